"""Corpus to shards on a Ray cluster of this machine beside the processes of `qkv prepare` itself: same bytes, how fast?

    python bench/prepare_cluster.py                        # 30 MB of each language, two workers, 3 rounds
    python bench/prepare_cluster.py --megabytes 5 --rounds 1

    local     prepare_corpus with two workers
    cluster   the same by tasks of a private Ray cluster with two CPUs, one task at a CPU. The cluster and its two
              processes are started before, as those of a cluster in use are; a first preparation of a few lines does it

They take turns; a figure is the median over rounds of the ratio within a round. All files of both results are compared.
The text is Wikipedia when ../shared/data (or QKV_DATA) is there, Python's own documentation when not (prepare.py).
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from prepare import LANGUAGES, write_text

from qkv.data.corpus.cluster import ClusterTasks, cluster_tasks
from qkv.data.corpus.prepare import prepare_corpus
from qkv.models.folders.hub import locate
from qkv.text.tokenizer import Tokenizer

WORKERS = 2


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def timed(files: list[Path], tokenizer: Tokenizer, out: Path, tasks: ClusterTasks | None) -> float:
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    if tasks is None:
        prepare_corpus(files, tokenizer, out, workers=WORKERS, segmenter="none")
    else:
        prepare_corpus(files, tokenizer, out, segmenter="none", tasks=tasks)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=30, help="of each language")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    tokenizer = Tokenizer.load(locate("qkv-mini"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [write_text(one, given.megabytes << 20, folder / f"{one}.txt") for one in LANGUAGES]
        few = folder / "few.txt"
        few.write_text("A few lines.\n\n" * 4, encoding="utf-8")
        size = sum(file.stat().st_size for file in files) / 1e6
        ratios = []
        with cluster_tasks("local", folder / "cluster", WORKERS, print) as tasks:
            timed([few] * 2 * WORKERS, tokenizer, folder / "cluster", tasks)
            for number in range(given.rounds):
                sides = {"local": None, "cluster": tasks}
                order = list(sides) if number % 2 == 0 else list(sides)[::-1]
                seconds = {side: timed(files, tokenizer, folder / side, sides[side]) for side in order}
                assert content(folder / "local") == content(folder / "cluster"), "other bytes"
                ratios.append(seconds["local"] / seconds["cluster"])
                speeds = ", ".join(f"{side} {size / seconds[side]:.1f} MB/s" for side in sides)
                print(
                    f"round {number + 1}: {speeds}, ratio {ratios[-1]:.2f}, load {os.getloadavg()[0]:.1f}", flush=True
                )
    print(f"{size:.0f} MB: the cluster has {statistics.median(ratios):.2f} x the speed of local workers, same bytes")


if __name__ == "__main__":
    main()
