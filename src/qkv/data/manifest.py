"""What a preparation says of itself in the end: what it was made from, what came out, and what to know before training.

Two figures are for judging a training run. `unigram_entropy` is the loss of a model that knows how frequent tokens are
and nothing else: a masked-language loss above it has learned less than that. `vocabulary_seen` counts the different
tokens of the training text; the embeddings of all others stay as they began.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.languages import LANGUAGES, shares
from qkv.data.shard_file import map_arrays, write_arrays
from qkv.data.shards import FORMAT
from qkv.data.writer import Writer
from qkv.tokenizer import Tokenizer

COUNTS = "token_counts.safetensors"
SUMMED = ("documents", "sentences", "tokens", "words")


def manifest_of(made_from: Mapping[str, Any], writer: Writer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Also writes how often each token occurs, which is found by reading the shards once more."""
    train, valid = writer.parts
    counts = _token_counts(writer.folder, train.shards, tokenizer.size)
    write_arrays(writer.folder / COUNTS, {"counts": counts})
    totals = {key: train.totals()[key] + valid.totals()[key] for key in SUMMED}
    manifest = {
        "format": FORMAT,
        **made_from,
        "totals": {**totals, "characters": writer.counts["characters"], "bytes": writer.counts["bytes"]},
        "languages": shares(np.array([writer.counts[name] for name in LANGUAGES])),
        "unigram_entropy": unigram_entropy(counts),
        "vocabulary_seen": int(np.count_nonzero(counts)),
        "unknown_share": round(int(counts[tokenizer.unk_id]) / max(1, int(counts.sum())), 6),
        **{part.name: {**part.totals(), "shards": part.shards} for part in writer.parts},
    }
    return manifest | {"notes": _notes(manifest)}


def _token_counts(folder: Path, shards: Sequence[dict[str, Any]], size: int) -> NDArray[np.int64]:
    counts = np.zeros(size, np.int64)
    for shard in shards:
        tokens = map_arrays(folder / shard["file"])["tokens"]
        for begin in range(0, len(tokens), 1 << 20):  # numpy makes eight bytes of each
            counts += np.bincount(tokens[begin : begin + (1 << 20)], minlength=size)
    return counts


def unigram_entropy(counts: NDArray[np.int64]) -> float:
    """In nats: the loss of a model that knows how frequent each token is, and nothing else.

    >>> round(unigram_entropy(np.array([1, 1, 2, 0])) / 0.6931471805599453, 6)
    1.5
    """
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _notes(manifest: Mapping[str, Any]) -> list[str]:
    """What whoever trains on this should know."""
    notes = []
    chinese, unknown = manifest["languages"]["zh"], manifest["unknown_share"]
    if manifest["settings"]["segmenter"] == "none" and chinese > 0.01:
        notes.append(
            f"{chinese:.0%} of the letters are Chinese and no segmenter was used: each 汉字 counts as a word. For "
            "whole-word masks, pip install 'qkv[zh]' and prepare again."
        )
    if unknown > 0.05:
        notes.append(f"{unknown:.1%} of the tokens are unknown: the tokenizer does not fit this text.")
    if manifest["settings"]["hold_out"] and not manifest["valid"]["documents"]:
        count = manifest["totals"]["documents"]
        notes.append(f"{count} documents are too few to hold one out: there is nothing to evaluate on.")
    return notes
