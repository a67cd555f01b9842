"""SentencePiece's files (.spm): pieces with scores, and how a text is normalised before it is cut into them.

Such a file is a Protocol Buffers message. Few fields of it are of use here, and the format of messages is simple enough
to be read in a few lines: neither the sentencepiece nor the protobuf package is needed.

What this file does NOT do: cut texts (sentencepiece.py), write such files, or read those of byte-pair encoding.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from qkv.errors import InputError, reading

# Kinds of pieces and models, as numbered in sentencepiece_model.proto
NORMAL, UNKNOWN_KIND, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM = 1
MODEL_TYPES = {1: "unigram", 2: "byte-pair encoding", 3: "word", 4: "character"}


class Piece(NamedTuple):
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    pieces: tuple[Piece, ...]
    model_type: int = UNIGRAM
    byte_fallback: bool = False  # characters without a piece become their bytes
    unknown_surface: str = " ⁇ "  # how an unknown piece is shown
    charsmap: bytes = b""  # characters and what they are replaced by, compiled
    add_dummy_prefix: bool = True  # the first word too has a space before it
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


def read_model(file: str | os.PathLike[str]) -> SentencePieceModel:
    with reading(file):
        data = Path(file).read_bytes()
    try:
        return parse_model(data)
    except (ValueError, struct.error) as error:
        if isinstance(error, InputError):
            raise InputError(f"{file}: {error}") from None
        raise InputError(f"{file} is not a SentencePiece model ({error}). Copy it again.") from None


def parse_model(data: bytes) -> SentencePieceModel:
    """The numbers of fields are those of sentencepiece_model.proto; what is not used here is passed over."""
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value in _fields(data):
        if field == 1:
            piece = dict(_fields(_bytes(value)))
            score = struct.unpack("<f", _bytes(piece[2]))[0] if 2 in piece else 0.0
            pieces.append(Piece(_bytes(piece.get(1, b"")).decode(), score, _int(piece.get(3, NORMAL))))
        elif field == 2:
            trainer |= dict(_fields(_bytes(value)))
        elif field == 3:
            normalizer |= dict(_fields(_bytes(value)))
    if not pieces:
        raise ValueError("it holds no pieces")
    model_type = _int(trainer.get(3, UNIGRAM))
    if model_type != UNIGRAM:
        name = MODEL_TYPES.get(model_type, f"number {model_type}")
        raise InputError(f"a SentencePiece model of the type {name}; qkv reads unigram models, as OPUS-MT has them.")
    if _int(trainer.get(24, 0)):
        raise InputError("a SentencePiece model with the space after a word; qkv reads those with the space before.")
    return SentencePieceModel(
        pieces=tuple(pieces),
        model_type=model_type,
        byte_fallback=bool(_int(trainer.get(35, 0))),
        unknown_surface=_bytes(trainer.get(44, " ⁇ ".encode())).decode(),
        charsmap=_bytes(normalizer.get(2, b"")),
        add_dummy_prefix=bool(_int(normalizer.get(3, 1))),
        remove_extra_whitespaces=bool(_int(normalizer.get(4, 1))),
        escape_whitespaces=bool(_int(normalizer.get(5, 1))),
    )


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in their order: (number, value). A value is a whole number, or bytes to be read on."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"field of unknown kind {wire} before byte {at}")
        if at + size > len(data):
            raise ValueError(f"cut off: {at + size - len(data)} bytes are missing")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A whole number, seven bits a byte, the lowest first; and where it ends."""
    value = shift = 0
    while True:
        if at == len(data) or shift > 63:
            raise ValueError(f"no whole number ends before byte {at}")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"the number {value} stands where text belongs")
    return value


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("text stands where a number belongs")
    return value
