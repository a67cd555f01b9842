"""Training on several processes of one machine beside one process with as many threads: tokens per second.

    python bench/scale.py                       # BERT-mini: 2 processes × 1 thread beside 1 process × 2 threads
    python bench/scale.py --processes 4 --rows 64 --rounds 9
    python bench/scale.py --memory              # bytes per parameter at the peak of a step

All train the same model (4 layers of 256, vocabulary 30,522, dropout 0.1, fp32) on the same rows with the loop of
`qkv pretrain`: batches built ahead in a thread, forward, backward, exchange of gradients, AdamW. The processes stay
alive and take turns by rounds of steps, so that a busy machine slows all of them alike; a ratio is the median over
rounds. Rounds are also measured in time of the processor, which other programs change little. The last contender
divides the weights among its processes (train.shard).

`--memory` trains BERT-medium (8 layers of 512) on steps of 8 rows of 32 tokens, whose activations are small, and prints
how much the memory of a process grows at most from before the model is built, per parameter: 1 process, 2, 2 and 4
with divided weights.

`build` is what a process pays for building all batches of a step instead of its own share (train/loop.py says why).
"""

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from qkv.data.batch import Batch
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, MaskingConfig, Vocabulary, mask_tokens
from qkv.train.ahead import build_ahead
from qkv.train.distributed import join
from qkv.train.log import Silent
from qkv.train.loop import Job, TrainConfig, Trainer

WORDS = 30_522


class Rows:
    """Random rows of 32 to 128 tokens, masked: step → batches."""

    def __init__(self, rows: int, batches: int, longest: int) -> None:
        self.rows, self.batches, self.longest = rows, batches, longest
        self.vocabulary = Vocabulary(WORDS, 103, frozenset(range(5)))

    def __call__(self, step: int) -> list[Batch]:
        draw = np.random.default_rng(step)
        lengths = draw.integers(self.longest // 4, self.longest + 1, self.rows)
        return [self._batch(np.sort(part), draw) for part in np.split(lengths, self.batches)]

    def _batch(self, lengths: Any, draw: np.random.Generator) -> Batch:
        ids = draw.integers(1000, WORDS, int(lengths.sum()))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        masked = mask_tokens(ids, rows, None, self.vocabulary, MaskingConfig(), draw)
        labels = {"masked_at": torch.from_numpy(masked.chosen), "masked": torch.from_numpy(masked.targets)}
        return Batch.packed(torch.from_numpy(masked.ids), lengths.tolist(), labels=labels)


def work(options: argparse.Namespace) -> None:
    """One process: for every line of standard input, so many steps; prints tokens, seconds and processor seconds."""
    with join() as world:
        torch.set_num_threads(options.threads)
        if options.memory:  # load what a first step loads
            trainer = make_trainer(options, tiny=True)
            trainer.advance(trainer.batches(0), 1e-4)
        before_model = resident("VmRSS")
        trainer = make_trainer(options, options.tiny)
        parameters = sum(parameter.numel() for parameter in trainer.job.model.parameters())
        print("ready", flush=True)
        done = 0
        for line in sys.stdin:
            steps, tokens, building = int(line), 0, 0.0
            world.wait()
            forget_peak()
            begin, before = time.perf_counter(), processor_seconds()
            with closing(build_ahead(trainer.batches, done, done + steps)) as built:
                for one in built:
                    trainer.advance(one.value, 1e-4)
                    tokens += sum(batch.n_tokens for batch in one.value)
                    building += one.building
            trainer.window.settle()
            seconds, used = time.perf_counter() - begin, processor_seconds() - before
            done += steps
            peak = (resident("VmHWM") - before_model) / parameters
            found = {"tokens": tokens, "seconds": seconds, "used": used, "building": building, "peak": peak}
            print(json.dumps(found), flush=True)


def make_trainer(options: argparse.Namespace, tiny: bool) -> Trainer[Batch]:
    torch.manual_seed(0)
    layers = {"layers": 1, "width": 32, "heads": 2, "inner_width": 64} if tiny else {}
    model = BertWithHeads(BertConfig.preset(options.size, vocabulary_size=WORDS, **layers), ["masked"])
    batches = Rows(options.rows, options.batches, options.longest)
    objective = MaskedAndNextSentence(next_sentence=False)
    job = Job(model, objective, batches, Path(), recomputed=list(model.encoder.blocks))
    return Trainer(job, TrainConfig(shard=options.shard), Silent())


def resident(kind: str) -> int:
    """Bytes of memory of this process: VmRSS now, VmHWM the most since `forget_peak`; 0 where there is no /proc."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")), 0)


def forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Side:
    """One contender: its processes."""

    def __init__(
        self, processes: int, threads: int, batches: int, options: argparse.Namespace, shard: bool = False
    ) -> None:
        divided = ", divided weights" if shard else ""
        self.name = f"{processes} × {threads} thread{'' if threads == 1 else 's'}, {batches} batches a step{divided}"
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = str(one.getsockname()[1])
        words = ["--work", "--threads", str(threads), "--batches", str(batches), "--rows", str(options.rows)]
        words += ["--longest", str(options.longest), "--size", options.size]
        words += [*(["--tiny"] if options.tiny else []), *(["--shard"] if shard else [])]
        words += ["--memory"] if options.memory else []
        self.processes = []
        for rank in range(processes):
            # freed memory goes back at once, so that what is resident is what is in use
            own = {"OMP_NUM_THREADS": str(threads), "MALLOC_MMAP_THRESHOLD_": "65536"} if options.memory else {}
            own |= {"OMP_NUM_THREADS": str(threads)}
            if processes > 1:
                own |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_PORT": port}
                own |= {"LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | own,
                )
            )
        for process in self.processes:
            assert _pipe(process.stdout).readline().strip() == "ready"

    def run(self, steps: int) -> dict[str, float]:
        for process in self.processes:
            print(steps, file=_pipe(process.stdin), flush=True)
        found = [json.loads(_pipe(process.stdout).readline()) for process in self.processes]
        seconds = max(one["seconds"] for one in found)
        return {
            "tokens_per_second": found[0]["tokens"] / seconds,
            "processor": sum(one["used"] for one in found) / found[0]["tokens"] * 1e6,
            "building": found[0]["building"] / seconds,
            "peak": max(one["peak"] for one in found),
        }

    def close(self) -> None:
        for process in self.processes:
            _pipe(process.stdin).close()
            process.wait()
            _pipe(process.stdout).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def measure_memory(options: argparse.Namespace) -> None:
    options.size, options.rows, options.longest = "medium", 8, 32
    results = []
    for processes, shard in ((1, False), (2, False), (2, True), (4, True)):
        side = Side(processes, 1, 4, options, shard)
        try:
            side.run(2)  # the second step is the first that has all of the optimizer's state
            results.append({"side": side.name, "bytes_per_parameter": side.run(2)["peak"]})
        finally:
            side.close()
        print(f"{side.name:54} {results[-1]['bytes_per_parameter']:5.1f} bytes per parameter", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"results": results}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=int, default=32, help="rows of a step")
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="of a round")
    parser.add_argument("--tiny", action="store_true", help="a model of no use, to try the bench")
    parser.add_argument("--memory", action="store_true", help="memory in place of speed")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--size", default="mini", help=argparse.SUPPRESS)
    parser.add_argument("--shard", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return
    if options.memory:
        measure_memory(options)
        return
    number = options.processes
    sides = [Side(1, number, 1, options), Side(1, number, number, options), Side(number, 1, number, options)]
    sides.append(Side(number, 1, number, options, shard=True))
    rounds: list[list[dict[str, float]]] = []
    try:
        for side in sides:
            side.run(2)  # allocates
        for _ in range(options.rounds):
            rounds.append([side.run(options.steps) for side in sides])
    finally:
        for side in sides:
            side.close()
    results: list[dict[str, Any]] = []
    for place, side in enumerate(sides):
        speeds = [one[place]["tokens_per_second"] for one in rounds]
        ratios = [one[place]["tokens_per_second"] / one[0]["tokens_per_second"] for one in rounds]
        result: dict[str, Any] = {
            "side": side.name,
            "tokens_per_second": statistics.median(speeds),
            "ratio": statistics.median(ratios),
            "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
            "processor_us_per_token": statistics.median(one[place]["processor"] for one in rounds),
            "building": statistics.median(one[place]["building"] for one in rounds),
        }
        results.append(result)
        print(
            f"{side.name:52} {result['tokens_per_second']:8,.0f} tokens/s  ratio {result['ratio']:.3f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})  {result['processor_us_per_token']:.1f} µs of processor a "
            f"token  build {100 * result['building']:.1f} %"
        )
    print(f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, load {os.getloadavg()[0]:.1f}")
    if options.json is not None:
        options.json.write_text(json.dumps({"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
