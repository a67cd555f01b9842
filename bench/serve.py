"""`qkv serve` over HTTP: 64 clients that send single texts, beside the same texts in one call in process, and a peer.

    python bench/serve.py                          # MiniLM, 64 clients, 10 s a turn, 3 rounds, 2 threads
    python bench/serve.py --seconds 3 --rounds 1 --clients 16

All sides have the weights of all-MiniLM-L6-v2, the texts of bench/embed.py, and the same number of threads. The sides
take turns within a round; a ratio is the median over rounds of the ratio within a round. The clients are one process
with one thread and plain sockets; each sends its next text when the last one is answered, over one connection. On a
machine with few cores the clients take their time from the server: their CPU time is printed.

The peer is starlette + uvicorn + sentence-transformers with the batching that people write for it (bench/serve_peer.py):
a queue, from which a thread takes what is there, at most 32 texts, and encodes it. infinity_emb asks for older versions
of most of its dependencies than are installed here.
"""

import argparse
import json
import os
import platform
import re
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from embed import FOLDER, sample
from rich.console import Console
from rich.table import Table

import qkv

HERE = Path(__file__).resolve().parent
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


# --- The clients, in a process of their own


class Client:
    """One connection, which asks for one text after the other."""

    def __init__(self, port: int, requests: list[bytes], at: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.requests, self.at = requests, at
        self.buffer, self.begin = b"", 0.0

    def ask(self) -> None:
        self.begin = time.perf_counter()
        self.socket.sendall(self.requests[self.at % len(self.requests)])
        self.at += 1

    def hear(self) -> bool:
        """Whether the response is complete."""
        self.buffer += self.socket.recv(1 << 18)
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None and head.startswith(b"HTTP/1.1 200"), self.buffer[:500]
        if len(body) < int(length[1]):
            return False
        self.buffer = b""
        return True


def ask_for(port: int, requests: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Ask for so many seconds; the first tenth is not counted."""
    chosen = selectors.DefaultSelector()
    every = len(requests) // clients
    for number in range(clients):
        client = Client(port, requests, number * every)
        chosen.register(client.socket, selectors.EVENT_READ, client)
        client.ask()
    begin = time.perf_counter()
    counted, end = begin + seconds / 10, begin + seconds
    taken: list[float] = []
    last = counted
    while (now := time.perf_counter()) < end:
        for key, _ in chosen.select(end - now):
            if key.data.hear():
                last = time.perf_counter()
                if last >= counted:
                    taken.append(last - key.data.begin)
                key.data.ask()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"times": taken, "seconds": last - counted, "cpu": used.ru_utime + used.ru_stime}


def send_from_here(port: int, path: str, file: str, clients: int, seconds: float) -> None:
    """The process of the clients: prints what `ask_for` found."""
    requests = []
    for text in json.loads(Path(file).read_text(encoding="utf-8")):
        body = json.dumps({"inputs": text, "input": text, "model": "minilm"}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    print(json.dumps(ask_for(port, requests, clients, seconds)))


# --- The sides


class Found(NamedTuple):
    rate: float  # texts a second
    p50: float
    p99: float
    client_cpu: float  # cores


class HttpSide:
    def __init__(self, command: list[str], path: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{command} did not start"
        port = re.search(r":(\d+)", line)
        assert port is not None, line
        self.port, self.path = int(port[1]), path

    def measure(self, file: Path, clients: int, seconds: float) -> Found:
        words = [str(self.port), self.path, str(file), str(clients), str(seconds)]
        said = subprocess.run([sys.executable, __file__, "--send", *words], capture_output=True, text=True, check=True)
        found = json.loads(said.stdout)
        p50, p99 = np.percentile(found["times"], [50, 99])
        return Found(len(found["times"]) / found["seconds"], p50, p99, found["cpu"] / seconds)

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
def sides(threads: int, route: str, without_peer: bool) -> Iterator[dict[str, HttpSide]]:
    qkv_words = [sys.executable, "-m", "qkv", "serve", f"minilm={FOLDER}", "--port", "0", "--threads", str(threads)]
    peer_words = [sys.executable, str(HERE / "serve_peer.py"), str(FOLDER), str(threads)]
    started = {"qkv serve": HttpSide([*qkv_words, "--drain-delay", "0"], route)}
    try:
        if not without_peer:
            started["starlette + sentence-transformers"] = HttpSide(peer_words, "/embed")
        yield started
    finally:
        for side in started.values():
            side.close()


def cpu() -> str:
    """The processor, and which instructions it has."""
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", said)
    flags = re.search(r"flags\s*: (.*)", said)
    known = [flag for flag in FLAGS if flags and flag in flags[1].split()]
    return f"{name[1] if name else platform.processor()}, {os.cpu_count()} cores, {' '.join(known)}"


def main() -> None:
    if sys.argv[1:2] == ["--send"]:
        port, path, file, clients, seconds = sys.argv[2:]
        send_from_here(int(port), path, file, int(clients), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--route", default="/models/minilm", help="of qkv serve; /v1/embeddings is OpenAI's")
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = qkv.load(FOLDER, threads=options.threads)
    texts = sample(options.texts, lambda text: len(model.tokenizer.encode(text).ids))
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"qkv-bench-serve-{os.getpid()}.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    tokens = int(model.embed(texts).n_tokens.sum())  # also the warm-up
    alone: list[float] = []
    over: dict[str, list[Found]] = {}
    try:
        with sides(options.threads, options.route, options.without_peer) as started:
            for side in started.values():
                side.measure(file, options.clients, min(3.0, options.seconds))
            for _ in range(options.rounds):
                begin, done = time.perf_counter(), 0
                while time.perf_counter() - begin < options.seconds:
                    model.embed(texts, normalize=True)
                    done += len(texts)
                alone.append(done / (time.perf_counter() - begin))
                for name, side in started.items():
                    over.setdefault(name, []).append(side.measure(file, options.clients, options.seconds))
            memory = {name: side.peak_memory() for name, side in started.items()}
    finally:
        file.unlink()
    report(options, alone, over, memory, tokens / len(texts))


def report(
    options: argparse.Namespace,
    alone: list[float],
    over: dict[str, list[Found]],
    memory: dict[str, float],
    tokens_per_text: float,
) -> None:
    batch = 4096 / tokens_per_text / statistics.median(alone)  # seconds of a full batch, in process
    table = Table(title=f"{options.clients} clients, {options.threads} threads, median of {options.rounds} rounds")
    for heading in ("", "texts/s", "× in process", "p50 ms", "p99 ms", "p99 ÷ full batch", "peak MB", "clients' cores"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("in process, one call", f"{statistics.median(alone):.0f}", "1.00", *[""] * 5)
    figures: dict[str, Any] = {"cpu": cpu(), "in_process": statistics.median(alone), "full_batch_seconds": batch}
    for name, found in over.items():
        rate, p50, p99 = (statistics.median(getattr(one, key) for one in found) for key in ("rate", "p50", "p99"))
        ratio = statistics.median(one.rate / base for one, base in zip(found, alone, strict=True))
        cores = statistics.median(one.client_cpu for one in found)
        figures[name] = {"rate": rate, "ratio": ratio, "p50": p50, "p99": p99, "peak_mb": memory[name], "cores": cores}
        table.add_row(
            name,
            f"{rate:.0f}",
            f"{ratio:.2f}",
            f"{1000 * p50:.0f}",
            f"{1000 * p99:.0f}",
            f"{p99 / batch:.2f}",
            f"{memory[name]:.0f}",
            f"{cores:.2f}",
        )
    console = Console(width=130)
    console.print(table)
    console.print(f"{tokens_per_text:.0f} tokens a text; a full batch of 4096 tokens: {1000 * batch:.0f} ms in process")
    console.print(cpu())
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
