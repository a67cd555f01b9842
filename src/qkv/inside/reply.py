"""What is answered about a model: a few fields of JSON, and numbers as arrays.

On the wire (`to_bytes`) a reply is one frame, so that a page gets its numbers as it draws them, one byte a weight:

    4 bytes   b"qkv1"
    4 bytes   length of the head, little-endian
    head      JSON, UTF-8: the fields, and "arrays": [{"name", "dtype", "shape", "at"}, …]
    arrays    one after the other, little-endian, C order; "at" counts bytes from the end of the head, in eights

A `RefusalError` is an InputError with a code, by which a page says the same in the reader's language.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError

MAGIC = b"qkv1"
DTYPES = {"u1": np.uint8, "f4": np.float32, "i4": np.int32}
"""What an array may be of, by the name on the wire."""
BOUNDARY = 8  # bytes, where an array begins: a browser's typed arrays want theirs on one


class RefusalError(InputError):
    """Something that cannot be shown, and why; `code` is what a page translates, `about` what its sentence names."""

    def __init__(self, code: str, message: str, **about: str | int) -> None:
        super().__init__(message)
        self.code = code
        self.about = about


@dataclass(frozen=True)
class Reply:
    head: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """
        >>> frame = Reply({"name": "self"}, {"attn": np.zeros((2, 3), np.uint8)}).to_bytes()
        >>> again = Reply.from_bytes(frame)
        >>> again.head["name"], again.arrays["attn"].shape
        ('self', (2, 3))
        """
        listed, parts, at = [], [], 0
        for name, array in self.arrays.items():
            dtype = next((key for key, kind in DTYPES.items() if array.dtype == kind), None)
            assert dtype is not None, f"{name} is of {array.dtype}, and the wire has {', '.join(DTYPES)}"
            raw = np.ascontiguousarray(array).tobytes()
            listed.append({"name": name, "dtype": dtype, "shape": list(array.shape), "at": at})
            parts.append(raw + bytes(-len(raw) % BOUNDARY))
            at += len(parts[-1])
        head = json.dumps({**self.head, "arrays": listed}, ensure_ascii=False, allow_nan=False).encode()
        head += b" " * (-len(head) % BOUNDARY)
        return b"".join((MAGIC, struct.pack("<I", len(head)), head, *parts))

    @classmethod
    def from_bytes(cls, frame: bytes) -> "Reply":
        if frame[:4] != MAGIC:
            raise InputError("This is no reply of qkv look: it does not begin with qkv1.")
        (length,) = struct.unpack("<I", frame[4:8])
        head = json.loads(frame[8 : 8 + length])
        arrays = {}
        for one in head.pop("arrays"):
            kind, number = DTYPES[one["dtype"]], int(np.prod(one["shape"], dtype=np.int64))
            arrays[one["name"]] = np.frombuffer(frame, kind, number, 8 + length + one["at"]).reshape(one["shape"])
        return cls(head, arrays)
