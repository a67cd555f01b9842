"""Exact search of qkv beside numpy, sentence-transformers and a graph of usearch: random vectors, same queries.

    python bench/search.py                              # 100,000 and 1,000,000 vectors of 256 numbers, 5 rounds
    python bench/search.py --vectors 20000 --rounds 1

Every contender returns the ten nearest of unit vectors by their cosine. numpy and sentence-transformers hold float32 in
memory; qkv maps float16 from disk, which the system may drop again; usearch holds float16 and its graph. The contenders
take turns within a round, and a figure is the median over rounds of the ratio within a round, so that a busy machine
slows all of them alike. The last column is the share of numpy's ten that a contender returns too. Random vectors have
no neighbourhoods, which is the hardest case for a graph; texts have.

The graph is built for up to --graph vectors. Contenders whose library is missing are left out.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from qkv.api.index_folder import FORMAT, INDEX_FILE, OFFSET_FILE, PASSAGE_FILE, TEXT_FILE, VECTOR_FILE
from qkv.api.search_index import SearchIndex

K = 10
Vectors = NDArray[np.float32]
Search = Callable[[Vectors], list[list[int]]]


def draw_unit(count: int, width: int, seed: int) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_index(folder: Path, vectors: Vectors) -> SearchIndex:
    """An index of these vectors, without texts worth reading."""
    number = np.arange(len(vectors))
    np.save(folder / VECTOR_FILE, vectors.astype(np.float16))
    np.save(folder / PASSAGE_FILE, np.stack([number, 0 * number, 0 * number + 1], axis=1))
    line = b'{"text": "x"}\n'
    (folder / TEXT_FILE).write_bytes(line * len(vectors))
    np.save(folder / OFFSET_FILE, np.arange(len(vectors) + 1) * len(line))
    facts: dict[str, Any] = {"format": FORMAT, "n_texts": len(vectors), "n_passages": len(vectors)}
    facts |= {"width": vectors.shape[1], "approximate": None, "model": {"name": "none"}}
    facts["files"] = {one.name: one.stat().st_size for one in folder.iterdir()}
    (folder / INDEX_FILE).write_text(json.dumps(facts), encoding="utf-8")
    return SearchIndex.open(folder)


def contenders(folder: Path, vectors: Vectors, graph: bool) -> dict[str, Search]:
    index = make_index(folder, vectors)

    def by_numpy(queries: Vectors) -> list[list[int]]:
        scores = queries @ vectors.T
        best = np.argpartition(scores, -K, axis=1)[:, -K:]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        return [list(map(int, row)) for row in np.take_along_axis(best, order, 1)]

    found: dict[str, Search] = {
        "numpy": by_numpy,
        "qkv": lambda queries: [[row for _, row in one] for one in index.nearest(queries, K)],
    }
    try:
        semantic_search = import_module("sentence_transformers.util").semantic_search
        held = torch.from_numpy(vectors)
        found["sentence-transformers"] = lambda queries: [
            [hit["corpus_id"] for hit in hits] for hits in semantic_search(torch.from_numpy(queries), held, top_k=K)
        ]
    except ImportError:
        pass
    try:
        if graph:
            built = import_module("usearch.index").Index(
                ndim=vectors.shape[1], metric="ip", dtype="f16", connectivity=16, expansion_add=128, expansion_search=64
            )
            built.add(np.arange(len(vectors), dtype=np.uint64), vectors)
            found["usearch (graph)"] = lambda queries: [
                [int(key) for key in built.search(query, K).keys] for query in queries
            ]
    except ImportError:
        pass
    return found


def compare(vectors: Vectors, several: list[int], rounds: int, graph: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        runners = contenders(Path(folder), vectors, graph)
        return [one for queries in several for one in take_turns(runners, vectors, queries, rounds)]


def take_turns(runners: dict[str, Search], vectors: Vectors, queries: int, rounds: int) -> list[dict[str, Any]]:
    asked = draw_unit(queries, vectors.shape[1], 1)
    answers = {name: run(asked) for name, run in runners.items()}  # also the warm-up
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, run in runners.items():
            begin = time.perf_counter()
            run(asked)
            seconds[name].append(time.perf_counter() - begin)
    wanted = answers["numpy"]
    return [
        {
            "vectors": len(vectors),
            "queries": queries,
            "side": name,
            "milliseconds": 1000 * statistics.median(taken),
            "times_numpy": statistics.median(b / a for a, b in zip(taken, seconds["numpy"], strict=True)),
            "recall": float(np.mean([len({*a} & {*b}) / K for a, b in zip(answers[name], wanted, strict=True)])),
        }
        for name, taken in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--graph", type=int, default=100_000, help="Build the graph for up to this number of vectors.")
    parser.add_argument("--json", type=Path, help="Write the figures there, too.")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: list[dict[str, Any]] = []
    for count in options.vectors:
        vectors = draw_unit(count, options.width, 0)
        found += compare(vectors, options.queries, options.rounds, count <= options.graph)
    table = Table(title=f"{K} nearest of vectors of {options.width} numbers, {options.threads} threads")
    for heading in ("vectors", "queries", "", "ms", "× numpy", "recall"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in found:
        figures = f"{one['milliseconds']:.1f}", f"{one['times_numpy']:.2f}", f"{one['recall']:.3f}"
        table.add_row(f"{one['vectors']:,}", str(one["queries"]), one["side"], *figures)
    Console(width=110).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
