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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError, did_you_mean

MAGIC = b"qkv1"
_DTYPES = {"u1": np.uint8, "f4": np.float32, "i4": np.int32}
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
            dtype = next((key for key, kind in _DTYPES.items() if array.dtype == kind), None)
            assert dtype is not None, f"{name} is of {array.dtype}, and the wire has {', '.join(_DTYPES)}"
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
            kind, number = _DTYPES[one["dtype"]], int(np.prod(one["shape"], dtype=np.int64))
            arrays[one["name"]] = np.frombuffer(frame, kind, number, 8 + length + one["at"]).reshape(one["shape"])
        return cls(head, arrays)


# --- What is asked about a model: the fields of a request, each checked where it is read.
#
# A field that is missing, of the wrong kind or out of its range is a RefusalError that names it, never a traceback; a
# field that nobody reads is refused too (`done`), with what was probably meant.

MOST_CHARACTERS = 100_000
"""Characters of a text that are taken. What a model can read of them is its own matter."""


class Asked:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self._read: set[str] = set()

    def text(self, name: str = "text", *, longest: int = MOST_CHARACTERS) -> str:
        """A text with something in it."""
        found = self._of(name, str, "a text")
        if not found.strip():
            raise RefusalError("empty", f"'{name}' is empty. Write something.", field=name)
        if len(found) > longest:
            raise RefusalError(
                "too_long",
                f"'{name}' has {len(found):,} characters; {longest:,} are taken at most.",
                field=name,
                length=len(found),
                most=longest,
            )
        return str(found)

    def maybe_text(self, name: str, *, longest: int = MOST_CHARACTERS) -> str | None:
        """None where the field is missing, null or blank."""
        found = self._fields.get(name)
        if found is None or (isinstance(found, str) and not found.strip()):
            self._read.add(name)
            return None
        return self.text(name, longest=longest)

    def texts(self, name: str, *, most: int, longest: int = MOST_CHARACTERS) -> list[str]:
        found = self._of(name, list, "a list of texts")
        if not 1 <= len(found) <= most:
            raise RefusalError(
                "number", f"'{name}' has {len(found)} texts; 1 to {most} are taken.", field=name, most=most
            )
        return [Asked({name: one}).text(name, longest=longest) for one in found]

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        if default is not None and self._fields.get(name) is None:
            self._read.add(name)
            return default
        found = self._of(name, int, "a whole number")
        if not low <= found <= high:
            raise RefusalError(
                "range", f"'{name}' is {found}; it goes from {low} to {high}.", field=name, low=low, high=high
            )
        return int(found)

    def maybe_number(self, name: str, low: int, high: int) -> int | None:
        if self._fields.get(name) is None:
            self._read.add(name)
            return None
        return self.number(name, low, high)

    def flag(self, name: str, default: bool = False) -> bool:
        if self._fields.get(name) is None:
            self._read.add(name)
            return default
        return bool(self._of(name, bool, "true or false"))

    def choice(self, name: str, options: Sequence[str], default: str | None = None) -> str:
        if default is not None and self._fields.get(name) is None:
            self._read.add(name)
            return default
        found = self._of(name, str, "a name")
        if found not in options:
            raise RefusalError(
                "unknown",
                f"'{name}' is '{found}'.{did_you_mean(found, options)} Known: {', '.join(options)}.",
                field=name,
            )
        return str(found)

    def done(self) -> None:
        """All that may be read was: what is left was a mistake."""
        for name in self._fields:
            if name not in self._read:
                hint = did_you_mean(name, self._read)
                raise RefusalError("field", f"Nothing is known about the field '{name}'.{hint}", field=name)

    def _of(self, name: str, kind: type, wanted: str) -> Any:
        self._read.add(name)
        if name not in self._fields:
            raise RefusalError("missing", f"The field '{name}' is missing: {wanted}.", field=name)
        found = self._fields[name]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise RefusalError("kind", f"'{name}' is {found!r:.60}; {wanted} is due.", field=name)
        return found
