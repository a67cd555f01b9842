"""The token ids of many pairs, kept in a run until it is finished: going on with it need not cut the texts again.

Cutting texts into tokens is most of what a resumed run waits for. RUN/encoded.safetensors holds the ids and a key made
of everything that they hang on: the files, how pairs are held out, the longest text, the tokenizers. Where the key is
another, or the file is damaged (a digest tells), it counts as not there; where it cannot be written, a run goes on
without it.

What this file does NOT do: keep few pairs, which are cut in seconds; or outlive the run, whose model does not need it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from qkv.atomic import replaced_file
from qkv.data.pair_batching import EncodedPairs, Encoding, Side
from qkv.errors import InputError
from qkv.run.translate_config import BitextChoice
from qkv.tokenizer import Tokenizer

Arrays = Mapping[str, NDArray[Any]]
NAMES = ("source.ids", "source.offsets", "target.ids", "target.offsets", "too_long", "nothing")
KEPT = "encoded.safetensors"
WORTH = 100_000  # pairs; fewer are not kept
FORMAT = 2
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


def keep(run: Path, key: str | None, found: Encoding, tell: Callable[[str], None]) -> None:
    """Write the ids down, whole or not at all, if there are enough of them and they are not there already.

    They save time and nothing else: where there is no room for them, `tell` hears of it.
    """
    file = run / KEPT
    if key is None or len(found.pairs) < WORTH or _arrays_in(file, key) is not None:
        return
    arrays: dict[str, NDArray[Any]] = {
        **{f"{name}.ids": side.ids for name, side in _sides(found)},
        **{f"{name}.offsets": side.offsets for name, side in _sides(found)},
        "too_long": np.array(found.too_long, np.int64),
        "nothing": np.array(found.nothing, np.int64),
    }
    try:
        with replaced_file(file) as part:
            save_file(arrays, part, metadata={"key": key, "sha256": _digest(arrays)})
    except (InputError, SafetensorError) as error:  # a full disk is either, by who met it first
        tell(f"note: the token ids were not kept ({error}); going on with this run would cut its pairs again")


def kept(run: Path, key: str | None) -> Encoding | None:
    """What was kept under this key."""
    arrays = None if key is None else _arrays_in(run / KEPT, key)
    if arrays is None:
        return None
    source, target = (Side(arrays[f"{name}.ids"], arrays[f"{name}.offsets"]) for name in ("source", "target"))
    too_long, nothing = (tuple(arrays[name].tolist()) for name in ("too_long", "nothing"))
    return Encoding(EncodedPairs(source, target), too_long, nothing)


def forget(run: Path) -> None:
    (run / KEPT).unlink(missing_ok=True)


def _sides(found: Encoding) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("source", found.pairs.source), ("target", found.pairs.target)


def _arrays_in(file: Path, key: str) -> Arrays | None:
    """What the file holds, if it was kept under this key and is as it was written."""
    try:
        with safe_open(file, "numpy") as opened:
            told = opened.metadata() or {}
            if told.get("key") != key:
                return None
            arrays = {name: opened.get_tensor(name) for name in NAMES}
    except (OSError, SafetensorError):  # not there, or cut short
        return None
    return arrays if _digest(arrays) == told.get("sha256") else None


def _digest(arrays: Arrays) -> str:
    """Of names, types, shapes and every byte."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
