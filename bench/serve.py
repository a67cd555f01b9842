"""`qkv serve` over HTTP: 64 clients that send single texts, beside the same texts in one call in process, and a peer.

    python bench/serve.py                          # MiniLM, 64 clients, 10 s a turn, 3 rounds, 2 threads
    python bench/serve.py --seconds 3 --rounds 1 --clients 16
    python bench/serve.py --infinity ../infinity/bin/python      # also infinity_emb, from an environment of its own

All sides have the weights of all-MiniLM-L6-v2, the texts of bench/embed.py, and the same number of threads. The sides
take turns within a round; a ratio is the median over rounds of the ratio within a round. The clients are one process
with one thread and plain sockets; each sends its next text when the last one is answered, over one connection. On a
machine with few cores the clients take their time from the server: their CPU time is printed.

The peer is starlette + uvicorn + sentence-transformers with the batching that people write for it (serve_peer.py): a
queue, from which a thread takes what is there, at most 32 texts, and encodes it. infinity_emb 0.0.78 needs an
environment of its own (numpy < 2, sentence-transformers < 4, uvicorn < 0.33):

    python -m venv ../infinity && ../infinity/bin/pip install "infinity_emb[torch,server]==0.0.78" "numpy<2"

It runs its engine torch in float32 without compiling, with its own batches of 32 texts, over its OpenAI route.
"""

import argparse
import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from embed import FOLDER, sample
from rich.console import Console
from rich.table import Table

import qkv
from qkv.serve.settings import ServeSettings

HERE = Path(__file__).resolve().parent
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


# --- The sides


class Found(NamedTuple):
    rate: float  # texts a second
    p50: float
    p99: float
    client_cpu: float  # cores
    cpu: float  # seconds of all cores of the server, a text


class HttpSide:
    def __init__(self, command: list[str], path: str, port: int | None = None, **environment: str) -> None:
        """A server that prints its address, or that listens on `port` when it is ready."""
        said = subprocess.PIPE if port is None else subprocess.DEVNULL
        surroundings = os.environ | environment
        self.process = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL, text=True, env=surroundings)
        self.path = path
        if port is not None:
            self.port = port
            self._wait_until_it_listens(command)
            return
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{command} did not start"
        found = re.search(r":(\d+)", line)
        assert found is not None, line
        self.port = int(found[1])

    def _wait_until_it_listens(self, command: list[str]) -> None:
        end = time.monotonic() + 180
        while time.monotonic() < end and self.process.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.2)
        self.process.kill()
        raise AssertionError(f"{command} did not start")

    def measure(self, file: Path, clients: int, seconds: float) -> Found:
        words = [str(self.port), self.path, str(file), str(clients), str(seconds)]
        command = [sys.executable, str(HERE / "serve_clients.py"), *words]
        before = self.cpu_seconds()
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(said.stdout)
        assert found["times"], "nothing was answered in this time: give more --seconds, or a quieter machine"
        p50, p99 = np.percentile(found["times"], [50, 99])
        rate = len(found["times"]) / found["seconds"]
        return Found(rate, p50, p99, found["cpu"] / seconds, (self.cpu_seconds() - before) / seconds / rate)

    def cpu_seconds(self) -> float:
        """Of the server, since its start."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> float:
        """MB"""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        return int(peak[1]) / 1024

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextmanager
def sides(threads: int, route: str, without_peer: bool, infinity: Path | None) -> Iterator[dict[str, HttpSide]]:
    qkv_words = [sys.executable, "-m", "qkv", "serve", f"minilm={FOLDER}", "--port", "0", "--threads", str(threads)]
    peer_words = [sys.executable, str(HERE / "serve_peer.py"), str(FOLDER), str(threads)]
    started = {"qkv serve": HttpSide([*qkv_words, "--drain-delay", "0"], route)}
    try:
        if not without_peer:
            started["starlette + sentence-transformers"] = HttpSide(peer_words, "/embed")
        if infinity is not None:
            started["infinity_emb"] = start_infinity(infinity, threads)
        yield started
    finally:
        for side in started.values():
            side.close()


def start_infinity(python: Path, threads: int) -> HttpSide:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(python.with_name("infinity_emb")), "v2", "--model-id", str(FOLDER), "--served-model-name", "minilm"]
    words += ["--engine", "torch", "--device", "cpu", "--dtype", "float32", "--no-compile", "--no-bettertransformer"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--url-prefix", "/v1", "--log-level", "critical"]
    offline = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    return HttpSide(words, "/v1/embeddings", port, OMP_NUM_THREADS=str(threads), PYTHONPATH="", **offline)


def cpu() -> str:
    """The processor, and which instructions it has."""
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", said)
    flags = re.search(r"flags\s*: (.*)", said)
    known = [flag for flag in FLAGS if flags and flag in flags[1].split()]
    return f"{name[1] if name else platform.processor()}, {os.cpu_count()} cores, {' '.join(known)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--route", default="/models/minilm", help="of qkv serve; /v1/embeddings is OpenAI's")
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--infinity", type=Path, metavar="PYTHON", help="of an environment with infinity_emb")
    parser.add_argument("--json", type=Path, help="write the figures")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = qkv.load(FOLDER, threads=options.threads)
    texts = sample(options.texts, lambda text: len(model.tokenizer.encode(text).ids))
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"qkv-bench-serve-{os.getpid()}.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    tokens = int(model.embed(texts).n_tokens.sum())  # also the warm-up
    alone: list[float] = []
    alone_cpu: list[float] = []
    over: dict[str, list[Found]] = {}
    try:
        with sides(options.threads, options.route, options.without_peer, options.infinity) as started:
            for side in started.values():
                side.measure(file, options.clients, options.seconds)  # the warm-up
            for _ in range(options.rounds):
                begin, used, done = time.perf_counter(), time.process_time(), 0
                while time.perf_counter() - begin < options.seconds:
                    model.embed(texts, normalize=True)
                    done += len(texts)
                alone.append(done / (time.perf_counter() - begin))
                alone_cpu.append((time.process_time() - used) / done)
                for name, side in started.items():
                    over.setdefault(name, []).append(side.measure(file, options.clients, options.seconds))
            memory = {name: side.peak_memory() for name, side in started.items()}
    finally:
        file.unlink()
    report(options, alone, alone_cpu, over, memory, tokens / len(texts))


def report(
    options: argparse.Namespace,
    alone: list[float],
    alone_cpu: list[float],
    over: dict[str, list[Found]],
    memory: dict[str, float],
    tokens_per_text: float,
) -> None:
    full = ServeSettings().batch_tokens
    batch = full / tokens_per_text / statistics.median(alone)  # seconds of a full batch, in process
    table = Table(title=f"{options.clients} clients, {options.threads} threads, median of {options.rounds} rounds")
    last = ("p50 ms", "p99 ms", "p99 ÷ batch", "CPU ms/text", "peak MB", "clients' cores")
    for heading in ("", "texts/s", "× in process", *last):
        table.add_column(heading, justify="left" if not heading else "right")
    spent = f"{1000 * statistics.median(alone_cpu):.1f}"
    table.add_row("in process, one call", f"{statistics.median(alone):.0f}", "1.00", "", "", "", spent)
    figures: dict[str, Any] = {"cpu": cpu(), "in_process": statistics.median(alone), "full_batch_seconds": batch}
    for name, found in over.items():
        rate, p50, p99 = (statistics.median(getattr(one, key) for one in found) for key in ("rate", "p50", "p99"))
        ratio = statistics.median(one.rate / base for one, base in zip(found, alone, strict=True))
        cost = statistics.median(one.cpu for one in found)
        cores = statistics.median(one.client_cpu for one in found)
        figures[name] = {"rate": rate, "ratio": ratio, "p50": p50, "p99": p99, "peak_mb": memory[name], "cpu": cost}
        table.add_row(
            name,
            f"{rate:.0f}",
            f"{ratio:.2f}",
            f"{1000 * p50:.0f}",
            f"{1000 * p99:.0f}",
            f"{p99 / batch:.2f}",
            f"{1000 * cost:.1f}",
            f"{memory[name]:.0f}",
            f"{cores:.2f}",
        )
    console = Console(width=130)
    console.print(table)
    console.print(f"{tokens_per_text:.0f} tokens a text; a full batch of {full:,}: {1000 * batch:.0f} ms in process")
    console.print(f"load average {os.getloadavg()[0]:.1f} at the end")
    console.print(cpu())
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
