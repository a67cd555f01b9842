"""`qkv predict --cluster` beside `qkv predict`: rows per second of the same model on the same rows.

    python bench/cluster_rows.py                     # 30,000 rows: two actors of one thread beside two threads
    python bench/cluster_rows.py --rows 60000 --rounds 3

Both are commands in processes of their own and take turns; the cluster is one of this machine with two nodes of one CPU
each, and runs before the first is timed. Each command is also run on a few rows: that is what it costs to start. The
ratio is that of the whole times, start included; the ratio without the start is printed beside it. At the end both
results are compared row by row: the same columns, the same values up to rounding (texts that are computed together
round differently).

The model has the size of BERT-mini (4 layers of 256) and drawn weights; texts have 5 to 30 words.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from qkv.models.bert.folder import BERT_NAMES, save
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.folders.hub import locate
from qkv.text.tokenizer import Tokenizer

LABELS = ("complaint", "praise", "question")
FEW = 64  # rows that show what a start costs


def write_model(path: Path) -> Path:
    tokenizer = Tokenizer.load(locate("qkv-mini"))
    torch.manual_seed(0)
    config = BertConfig(tokenizer.size, layers=4, width=256, heads=4, inner_width=1024, max_length=512)
    kind = "BertForSequenceClassification"
    known = BERT_NAMES.classes[kind]
    network = BertWithHeads(config, known.heads, labels=len(LABELS), pooler=known.pooler).eval()
    record = {"task": "classify", "task_record": {"kind": "single", "paired": False}}
    return save(path, network, tokenizer, LABELS, kind, record=record)


def write_rows(path: Path, count: int, words: list[str]) -> Path:
    draw = random.Random(count)
    with path.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        for number in range(count):
            file.write(f"{number},{' '.join(draw.choices(words, k=draw.randint(5, 30)))}\n")
    return path


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a cluster of this machine, with two nodes of one CPU each."""
    node: dict[str, Any] = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**node)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def timed(*words: str) -> float:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "qkv", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - began


def compare(parts: Path, file: Path) -> float:
    """The largest difference of a number between two tables that are otherwise equal."""
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    found = pa.concat_tables([pq.read_table(one) for one in sorted(parts.glob("part-*.parquet"))])
    expected = pq.read_table(file)
    assert found.schema.remove_metadata() == expected.schema.remove_metadata(), "other columns"
    largest = 0.0
    for name in expected.column_names:
        pairs = list(zip(found[name].to_pylist(), expected[name].to_pylist(), strict=True))
        if pa.types.is_floating(expected.schema.field(name).type):
            largest = max([largest, *(abs(a - b) for a, b in pairs if a is not None)])
        else:
            assert all(a == b for a, b in pairs), f"other values in {name}"
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--part-rows", type=int, default=4096)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory(prefix="qkv-bench-") as folder, two_nodes() as address:
        root = Path(folder)
        model = str(write_model(root / "model"))
        vocabulary = [one for one in Tokenizer.load(model).vocabulary if one.isalpha() and one.isascii()]
        files = {count: str(write_rows(root / f"{count}.csv", count, vocabulary)) for count in (FEW, given.rows)}

        def local(count: int) -> float:
            return timed("predict", model, files[count], "--threads", "2", "--out", str(root / f"{count}.parquet"))

        def cluster(count: int, turn: int) -> float:
            out = ["--cluster", address, "--out", str(root / f"{count}-{turn}"), "--part-rows", str(given.part_rows)]
            return timed("predict", model, files[count], "--threads", "1", *out)

        local(FEW)  # files that are read for the first time
        starts = {"local": local(FEW), "cluster": cluster(FEW, 0)}
        rounds = []
        for turn in range(given.rounds):
            here, there = local(given.rows), cluster(given.rows, turn)
            bare = (here - starts["local"]) / (there - starts["cluster"])
            rounds.append({"local": here, "cluster": there, "ratio": here / there, "without_start": bare})
            speeds = f"local {given.rows / here:,.0f} rows/s, cluster {given.rows / there:,.0f} rows/s"
            print(f"{speeds}: {here / there:.2f}", flush=True)
        change = compare(root / f"{given.rows}-0", root / f"{given.rows}.parquet")
        assert math.isfinite(change) and change < 1e-4, f"a probability differs by {change}"
        found = {
            "rows": given.rows,
            "load": os.getloadavg()[0],
            "starts": starts,
            "rounds": rounds,
            "ratio": statistics.median(one["ratio"] for one in rounds),
            "without_start": statistics.median(one["without_start"] for one in rounds),
            "largest_change": change,
        }
    print(f"start: local {starts['local']:.1f} s, cluster {starts['cluster']:.1f} s; load {found['load']:.1f}")
    print(f"cluster / local: {found['ratio']:.2f}, without the start {found['without_start']:.2f}")
    print(f"the results are the same; numbers differ by at most {change:.1g}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
