"""The tokenizer of OPUS-MT: SentencePiece unigram models (.spm), used without the sentencepiece package.

An .spm file is a Protocol Buffers message with pieces, their scores, and the normalisation of texts. Only a few fields
are needed, and the message format is simple enough to parse in a few lines.

The `tokenizers` library splits a text into its most likely pieces (Kudo 2018, the unigram model), given the same pieces
and scores. The ids of a Marian model are those of its vocab.json, not of the .spm: a piece that vocab.json lacks is
unknown, even though texts are split by it.

Kept although the package sentencepiece does the same (tested against it): that package is native code, and `tokenizers`
gives the offsets of every piece in the original text.

What this file does NOT do: learn pieces, sample segmentations, write .spm files, or read byte-pair models. One
difference from the package: `tokenizers` replaces a grapheme of up to five bytes as a whole, so "①" with a combining
accent loses the accent, and CR LF becomes one space instead of two.
"""

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean, reading
from qkv.files import read_object
from qkv.text.tokenizer import Encoded
from qkv.text.vocabulary import HALF, half_character

# kinds of pieces and models, numbered as in sentencepiece_model.proto
NORMAL, UNKNOWN_KIND, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM = 1
MODEL_TYPES = {1: "unigram", 2: "byte-pair encoding", 3: "word", 4: "character"}


class VocabularyPiece(NamedTuple):
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    pieces: tuple[VocabularyPiece, ...]
    model_type: int = UNIGRAM
    byte_fallback: bool = False  # characters without a piece become bytes
    unknown_surface: str = " ⁇ "  # text of an unknown piece
    charsmap: bytes = b""  # compiled table of character replacements
    add_dummy_prefix: bool = True  # put a space before the first word
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
    """Parse the fields that are used here, numbered as in sentencepiece_model.proto."""
    pieces: list[VocabularyPiece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value in _fields(data):
        if field == 1:
            piece = dict(_fields(_bytes(value)))
            score = struct.unpack("<f", _bytes(piece[2]))[0] if 2 in piece else 0.0
            pieces.append(VocabularyPiece(_bytes(piece.get(1, b"")).decode(), score, _int(piece.get(3, NORMAL))))
        elif field == 2:
            trainer |= dict(_fields(_bytes(value)))
        elif field == 3:
            normalizer |= dict(_fields(_bytes(value)))
    if not pieces:
        raise ValueError("it holds no pieces")
    model_type = _int(trainer.get(3, UNIGRAM))
    if model_type != UNIGRAM:
        name = MODEL_TYPES.get(model_type, f"number {model_type}")
        raise InputError(f"a SentencePiece model of type {name}; qkv reads unigram models, as in OPUS-MT.")
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
    """Yield the fields of a message in order: (number, value), where a value is an integer or bytes."""
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
            raise ValueError(f"truncated: {at + size - len(data)} bytes are missing")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer (seven bits per byte, lowest first) and the position after it."""
    value = shift = 0
    while True:
        if at == len(data) or shift > 63:
            raise ValueError(f"invalid integer before byte {at}")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"found the number {value} instead of text")
    return value


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("found text instead of a number")
    return value


_SPACE = "▁"  # U+2581: a space inside pieces
END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"
LANGUAGE = re.compile(r">>[^<>\s]+<<")
"""The target language, before the text, for a model of several languages: >>fra<< Hello."""

_NEVER = "\U0010ffff"
"""A noncharacter of Unicode: a piece that begins with it matches no text."""


class MarianTokenizer:
    """One side of a Marian model: text to the ids of vocab.json, and back. Safe to use from several threads."""

    def __init__(self, model: SentencePieceModel, vocabulary: Mapping[str, int], where: str = "vocab.json") -> None:
        if missing := [token for token in (END, UNKNOWN, PADDING) if token not in vocabulary]:
            raise InputError(f"{where} has no {' '.join(missing)}; a Marian vocabulary has all of them.")
        self.model = model
        self.backend = _build_backend(model)
        self.vocabulary = dict(sorted(vocabulary.items(), key=lambda entry: entry[1]))
        self.size = max(self.vocabulary.values()) + 1
        self.sep_id, self.unk_id, self.pad_id = (vocabulary[token] for token in (END, UNKNOWN, PADDING))
        self.unknown_id = self.unk_id
        self.cls_id = self.pad_id  # Marian's target texts begin with it
        self.special_ids = frozenset({self.sep_id, self.unk_id, self.pad_id})
        self.languages = tuple(token for token in self.vocabulary if LANGUAGE.fullmatch(token))
        self._tokens = {number: token for token, number in vocabulary.items()}
        # by piece of the .spm: only pieces of text keep their ids, so "</s>" in a text is not the end token
        self._ids = [
            vocabulary.get(piece.text, self.unk_id) if piece.kind in (NORMAL, USER_DEFINED, BYTE) else self.unk_id
            for piece in model.pieces
        ]

    @classmethod
    def load(cls, folder: str | os.PathLike[str], side: Literal["source", "target"]) -> "MarianTokenizer":
        """Load from a folder with source.spm, target.spm and vocab.json (and target_vocab.json, if sides differ)."""
        folder = Path(os.path.expanduser(folder))
        own = folder / "target_vocab.json"
        file = own if side == "target" and own.is_file() else folder / "vocab.json"
        return cls(read_model(folder / f"{side}.spm"), read_marian_vocabulary(file), str(file))

    def encode(self, text: str, special: bool = True) -> Encoded:
        return self.encode_batch([text], special)[0]

    def encode_batch(self, texts: Sequence[str], special: bool = True) -> list[Encoded]:
        """Encode to pieces and, if `special`, the end token. A language before the text (>>fra<<) is one token.

        Offsets are spans of characters of the text, without the space before a word.
        """
        for text in texts:
            if half := HALF.search(text):
                raise half_character(half[0])
        starts = [self._start(text) for text in texts]
        found = self.backend.encode_batch([text[start:] for text, start in zip(texts, starts, strict=True)])
        rows = []
        for text, start, one in zip(texts, starts, found, strict=True):
            ids = [self._ids[number] for number in one.ids]
            offsets = [_without_space(text, start + first, start + last) for first, last in one.offsets]
            if start:
                ids, offsets = [self.vocabulary[text[:start]], *ids], [(0, start), *offsets]
            if special:
                ids, offsets = [*ids, self.sep_id], [*offsets, (0, 0)]
            rows.append(Encoded(ids, [0] * len(ids), offsets, [self._tokens[number] for number in ids]))
        return rows

    def _start(self, text: str) -> int:
        """Return where the text begins, after a language. A model without languages reads >>fra<< as text."""
        code = LANGUAGE.match(text) if self.languages else None
        if code is None:
            return 0
        if code[0] not in self.vocabulary:
            hint = did_you_mean(code[0], self.languages) or f" It has {', '.join(self.languages)}."
            raise InputError(f"{code[0]} is not a language of this model.{hint}")
        return code.end()

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode to ids only, without the end token."""
        return [one.ids for one in self.encode_batch(texts, special=False)]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return readable text. Unknown pieces become ⁇; end and padding are dropped if `skip_special`."""
        parts: list[str] = []
        for number in ids:
            token = self.token(number)
            if number == self.unk_id:
                parts.append(self.model.unknown_surface)
            elif number not in (self.sep_id, self.pad_id) or not skip_special:
                parts.append(token)
        return _decoder.decode(parts).strip(" ")

    def token(self, id: int) -> str:
        token = self._tokens.get(int(id))
        if token is None:
            raise InputError(f"There is no token with id {id}; the vocabulary has {self.size}.")
        return token

    def id(self, token: str) -> int | None:
        return self.vocabulary.get(token)


_decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    shown = text[start:end].lstrip()
    return (end - len(shown), end) if shown else (start, end)


def _build_backend(model: SentencePieceModel) -> tokenizers.Tokenizer:
    """Build a tokenizer whose ids are the positions of the pieces in the .spm."""
    scores = [piece.score for piece in model.pieces if piece.kind == NORMAL]
    unknown = [number for number, piece in enumerate(model.pieces) if piece.kind == UNKNOWN_KIND]
    if not scores or len(unknown) != 1:
        raise InputError(
            f"A SentencePiece model needs pieces and one unknown piece; this one has {len(scores)} and "
            f"{len(unknown)}. Copy the file again."
        )

    def entry(number: int, piece: VocabularyPiece) -> tuple[str, float]:
        if piece.kind == USER_DEFINED:  # always taken where it fits, as SentencePiece does
            return piece.text, len(piece.text) * max(scores) - 0.1
        if piece.kind in (NORMAL, BYTE):
            return piece.text, piece.score if piece.kind == NORMAL else min(scores)
        return f"{_NEVER}{number}", max(scores)

    entries = [entry(number, piece) for number, piece in enumerate(model.pieces)]
    backend = tokenizers.Tokenizer(models.Unigram(entries, unknown[0], model.byte_fallback))
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        try:
            steps.append(normalizers.Precompiled(model.charsmap))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"The character table of a SentencePiece model is damaged ({error}).") from error
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    space = _SPACE if model.escape_whitespaces else " "
    if model.add_dummy_prefix:
        steps.append(normalizers.Prepend(space))
    steps.append(normalizers.Replace(" ", space))
    if model.remove_extra_whitespaces:  # trailing spaces last, so that a ▁ in the text is removed too
        steps.append(normalizers.Replace(Regex(f"{space}+\\z"), ""))
    backend.normalizer = normalizers.Sequence(steps)
    if space == _SPACE and not any(_SPACE in piece.text[1:] for piece in model.pieces):
        # no piece contains an inner space, so words can be tokenized one by one and cached
        backend.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme="never", split=True)
    return backend


def read_marian_vocabulary(file: Path) -> dict[str, int]:
    """Read a vocab.json: tokens and their ids."""
    vocabulary = read_object(file)
    seen: dict[int, str] = {}
    for token, number in vocabulary.items():
        if type(number) is not int or number < 0:
            raise InputError(f"{file}: the id of {token!r} is {number!r}; it must be an integer from 0.")
        if number in seen:
            raise InputError(f"{file}: {seen[number]!r} and {token!r} have the same id, {number}.")
        seen[number] = token
    return vocabulary
