"""The token ids of many pairs, kept in a run until it is finished: going on with it need not cut the texts again.

Cutting texts into tokens is most of what a resumed run waits for. RUN/encoded.safetensors holds the ids and a key made
of everything that they hang on: the files, how pairs are held out, the longest text, the tokenizers. Where the key is
another, or the file is damaged, it counts as not there.

What this file does NOT do: keep few pairs, which are cut in seconds; or outlive the run, whose model does not need it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from qkv.atomic import replaced_file
from qkv.data.pair_batching import EncodedPairs, Encoding, Side
from qkv.run.translate_config import BitextChoice
from qkv.tokenizer import Tokenizer

KEPT = "encoded.safetensors"
WORTH = 100_000  # pairs; fewer are not kept
FORMAT = 1
"""Of the file, and of the way in which pairs are read, held out and cut: what changes one of these counts it up."""


def key_of(choice: BitextChoice, max_length: int, source: Tokenizer, target: Tokenizer) -> str | None:
    """Of all that the ids hang on; None where the files were not hashed."""
    if choice.sha256 is None:
        return None
    given = [len(files) for files in (choice.train, choice.more, choice.dev, choice.test)]
    shares = [choice.dev_share, choice.test_share]
    tokenizers = [one.files() for one in dict.fromkeys((source, target))]
    told = json.dumps([FORMAT, choice.sha256, given, choice.columns, shares, max_length, tokenizers])
    return hashlib.sha256(told.encode()).hexdigest()


def keep(run: Path, key: str | None, found: Encoding) -> None:
    """Write the ids down, whole or not at all, if there are enough of them and they are not there already."""
    file = run / KEPT
    if key is None or len(found.pairs) < WORTH or _key_in(file) == key:
        return
    arrays: dict[str, NDArray[Any]] = {
        **{f"{name}.ids": side.ids for name, side in _sides(found)},
        **{f"{name}.offsets": side.offsets for name, side in _sides(found)},
        "too_long": np.array(found.too_long, np.int64),
        "nothing": np.array(found.nothing, np.int64),
    }
    with replaced_file(file) as part:
        save_file(arrays, part, metadata={"key": key})


def kept(run: Path, key: str | None) -> Encoding | None:
    """What was kept under this key."""
    file = run / KEPT
    if key is None or _key_in(file) != key:
        return None
    with safe_open(file, "numpy") as arrays:
        source, target = (
            Side(arrays.get_tensor(f"{name}.ids"), arrays.get_tensor(f"{name}.offsets"))
            for name in ("source", "target")
        )
        too_long, nothing = (tuple(arrays.get_tensor(name).tolist()) for name in ("too_long", "nothing"))
    return Encoding(EncodedPairs(source, target), too_long, nothing)


def forget(run: Path) -> None:
    (run / KEPT).unlink(missing_ok=True)


def _sides(found: Encoding) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("source", found.pairs.source), ("target", found.pairs.target)


def _key_in(file: Path) -> str | None:
    try:
        with safe_open(file, "numpy") as arrays:
            return (arrays.metadata() or {}).get("key")
    except (OSError, SafetensorError):  # not there, or damaged
        return None
