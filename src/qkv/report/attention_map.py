"""Attention as plain data, one byte per weight, in the same format for every kind of attention.

An `AttentionMap` is returned by `Model.attention` and read by every picture and page. Its JSON form (`to_dict`) is

    {
      "format": "qkv.attention.1",
      "name":   "self",                     # "self" one text, "pair" two texts in one row, "causal" to the left only,
                                            # "encoder", "decoder" of a translator, "cross" decoder to encoder
      "attn":   "AAECAw…",                  # base64 of the raw bytes, C order; weight = byte / 255
      "shape":  [layers, heads, left, right],
      "layers": [0, 1, …],  "heads": [0, 1, …],       # the model's numbers, from 0
      "left":   [{"token": "[CLS]", "text": "", "start": 0, "end": 0, "segment": 0, "special": true}, …],
      "right":  [… the same …],
      "texts":  ["The animal …"],           # the texts of start and end: one text, or a text pair
      "model":  "all-MiniLM-L6-v2",
      "n_tokens": 14, "n_windows": 1
    }

`left` are the queries, `right` the keys: attn[layer, head, i, j] is the weight of left token i on right token j, and a
row sums to 255 up to rounding. `token` is the vocabulary's spelling (##ing, [UNK]); `text` is
`texts[segment][start:end]`, characters of the user's text, empty for added special tokens. For cross attention,
segment 0 is the left side's text and segment 1 the right side's.

A weight is stored as round(255 · w), with an error of at most 1/510. That is finer than a screen can show and a
twentieth of the size of JSON numbers: 512 tokens, one layer, 12 heads are 3 MB.
"""

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError
from qkv.files import read_object, write_text

_FORMAT = "qkv.attention.1"


@dataclass(frozen=True)
class Token:
    """One token and the characters it came from."""

    token: str
    text: str
    start: int
    end: int
    segment: int = 0
    special: bool = False

    @property
    def label(self) -> str:
        """The label in a picture: the user's characters, with ## if the token continues a word."""
        if not self.text or self.special:
            return self.token
        return f"##{self.text}" if self.token.startswith("##") else self.text


@dataclass(frozen=True)
class AttentionMap:
    name: str
    attn: NDArray[np.uint8]  # (layers, heads, T left, T right)
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    left: tuple[Token, ...]
    right: tuple[Token, ...]
    texts: tuple[str, ...]
    model: str = ""
    n_windows: int = 1

    def __post_init__(self) -> None:
        expected = (len(self.layers), len(self.heads), len(self.left), len(self.right))
        if self.attn.shape != expected or self.attn.dtype != np.uint8:
            raise InputError(f"Attention has shape {self.attn.shape} {self.attn.dtype}; it must be {expected} uint8.")

    @property
    def n_tokens(self) -> int:
        return len(self.left)

    def weights(self, layer: int, head: int) -> NDArray[np.float32]:
        """(T left, T right) of one head, as fractions; layer and head by the model's numbers, from 0."""
        return self.bytes_of(layer, head).astype(np.float32) / np.float32(255)

    def bytes_of(self, layer: int, head: int) -> NDArray[np.uint8]:
        """(T left, T right) of one head, as stored."""
        return self.attn[_place("layer", layer, self.layers), _place("head", head, self.heads)]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form above."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "attn": base64.b64encode(np.ascontiguousarray(self.attn).tobytes()).decode("ascii"),
            "shape": list(self.attn.shape),
            "layers": list(self.layers),
            "heads": list(self.heads),
            "left": [asdict(token) for token in self.left],
            "right": [asdict(token) for token in self.right],
            "texts": list(self.texts),
            "model": self.model,
            "n_tokens": self.n_tokens,
            "n_windows": self.n_windows,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON form; invalid data is an InputError."""
        if data.get("format") != _FORMAT:
            raise InputError(f"This is not an attention map: its format is {data.get('format')!r}, not {_FORMAT!r}.")
        try:
            raw = base64.b64decode(data["attn"], validate=True)
            shape = tuple(int(size) for size in data["shape"])
            if min(shape, default=0) < 0 or len(raw) != math.prod(shape):
                raise InputError(f"The attention map has {len(raw)} bytes, which does not fit the shape {shape}.")
            return cls(
                name=str(data["name"]),
                attn=np.frombuffer(raw, dtype=np.uint8).reshape(shape),
                layers=tuple(data["layers"]),
                heads=tuple(data["heads"]),
                left=tuple(Token(**token) for token in data["left"]),
                right=tuple(Token(**token) for token in data["right"]),
                texts=tuple(data["texts"]),
                model=str(data.get("model", "")),
                n_windows=int(data.get("n_windows", 1)),
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"The attention map is damaged: {error!r}.") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to a file, atomically."""
        write_text(Path(path), json.dumps(self.to_dict(), ensure_ascii=False))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote."""
        return cls.from_dict(read_object(Path(os.path.expanduser(path))))


def _place(what: str, number: int, available: Sequence[int]) -> int:
    if number not in available:
        some = f"{available[0]} … {available[-1]}" if len(available) > 1 else f"{available[0]}"
        raise InputError(f"There is no {what} {number} in this attention map; it has {what} {some} (from 0).")
    return available.index(number)
