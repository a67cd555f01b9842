"""Requests and replies of `qkv look`: validated fields (`Asked`), and JSON with arrays (`Reply`).

On the wire (`to_bytes`) a reply is one frame:

    4 bytes   b"qkv1"
    4 bytes   length of the head, little-endian
    head      JSON, UTF-8: the fields, and "arrays": [{"name", "dtype", "shape", "at"}, …]
    arrays    concatenated, little-endian, C order; "at" is the byte offset from the end of the head, a multiple of 8

A field that is missing, of the wrong type, out of range or unknown raises a `RefusalError`, an InputError with a code
that the page translates to the reader's language.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from qkv.errors import InputError, did_you_mean

MAGIC = b"qkv1"
_DTYPES = {"u1": np.uint8, "f4": np.float32, "i4": np.int32}
"""Array types by their names on the wire."""
BOUNDARY = 8  # alignment of arrays in bytes, required by typed arrays in a browser


class RefusalError(InputError):
    """A request that cannot be answered; `code` selects the page's translation, `about` has the values in it."""

    def __init__(self, code: str, message: str, **about: str | int) -> None:
        super().__init__(message)
        self.code = code
        self.about = about


def check_length(tokens: int, most: int, text: str = "", shown: bool = False) -> None:
    """Refuse a text of more tokens than the model reads or, if `shown`, than the view shows. Of several, `text`."""
    if tokens <= most:
        return
    begins = text if len(text) <= 40 else text[:39] + "…"
    who, reader = (repr(begins) if text else "The text"), ("this view shows" if shown else "the model reads")
    raise RefusalError(
        "too_many_shown" if shown else "too_many_tokens",
        f"{who} has {tokens:,} tokens, and {reader} {most:,} at most. Shorten it: texts are not truncated.",
        tokens=tokens,
        most=most,
        **({"text": begins} if text else {}),
    )


def empty_refusal(name: str) -> RefusalError:
    return RefusalError("empty", f"Nothing is left of '{name}' after tokenization. Write something.", field=name)


def to_float32(values: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = values.float().cpu().numpy()
    return found


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
            raise InputError("This is not a reply of qkv look: it does not begin with qkv1.")
        (length,) = struct.unpack("<I", frame[4:8])
        head = json.loads(frame[8 : 8 + length])
        arrays = {}
        for one in head.pop("arrays"):
            kind, number = _DTYPES[one["dtype"]], int(np.prod(one["shape"], dtype=np.int64))
            arrays[one["name"]] = np.frombuffer(frame, kind, number, 8 + length + one["at"]).reshape(one["shape"])
        return cls(head, arrays)


TEXT_LIMIT = 100_000
"""Maximum number of characters of a text; models may accept fewer."""


class Asked:
    """The fields of a request, each validated when it is read; `done` rejects unknown fields."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self._read: set[str] = set()

    def text(self, name: str = "text", *, longest: int = TEXT_LIMIT) -> str:
        """A text that is not blank."""
        found = self._of(name, str, "a text")
        if not found.strip():
            raise RefusalError("empty", f"'{name}' is empty. Write something.", field=name)
        if len(found) > longest:
            raise RefusalError(
                "too_long",
                f"'{name}' has {len(found):,} characters; the maximum is {longest:,}.",
                field=name,
                length=len(found),
                most=longest,
            )
        return str(found)

    def maybe_text(self, name: str, *, longest: int = TEXT_LIMIT) -> str | None:
        """None if the field is missing, null or blank."""
        found = self._fields.get(name)
        if found is None or (isinstance(found, str) and not found.strip()):
            self._read.add(name)
            return None
        return self.text(name, longest=longest)

    def texts(self, name: str, *, most: int, longest: int = TEXT_LIMIT) -> list[str]:
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
        """Reject unknown fields: those that were never read."""
        for name in self._fields:
            if name not in self._read:
                hint = did_you_mean(name, self._read)
                raise RefusalError("field", f"Unknown field '{name}'.{hint}", field=name)

    def _of(self, name: str, kind: type, wanted: str) -> Any:
        self._read.add(name)
        if name not in self._fields:
            raise RefusalError("missing", f"The field '{name}' is missing; it must be {wanted}.", field=name)
        found = self._fields[name]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise RefusalError("kind", f"'{name}' is {found!r:.60}; it must be {wanted}.", field=name)
        return found
