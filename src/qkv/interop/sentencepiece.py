"""The tokenizer of OPUS-MT: SentencePiece models (sentencepiece_file.py), used without the sentencepiece package.

Cutting a text into its likeliest pieces (Kudo 2018, the unigram model) is what the `tokenizers` library does as well;
it only has to be given the same pieces. The ids of a Marian model are those of its vocab.json, not of the .spm: a piece
that vocab.json lacks is unknown, even though a text is cut by it.

What this file does NOT do: learn pieces, or sample segmentations.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean
from qkv.interop.sentencepiece_file import (
    BYTE,
    NORMAL,
    UNKNOWN_KIND,
    USER_DEFINED,
    Piece,
    SentencePieceModel,
    read_model,
)
from qkv.json_file import read_object
from qkv.tokenizer import Encoded
from qkv.vocabulary import half_character

SPACE = "▁"  # U+2581 stands for a space inside pieces
END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"
LANGUAGE = re.compile(r">>[^<>\s]+<<")
"""What tells a model of several target languages which one is wanted. It stands before the text: >>fra<< Hello."""

NEVER = "\U0010ffff"
"""No character at all (Unicode keeps this number free): a piece that begins with it is found in no text."""


class MarianTokenizer:
    """One side of a Marian model: text to the ids of vocab.json, and back. Safe to use from several threads."""

    def __init__(self, model: SentencePieceModel, vocabulary: Mapping[str, int], where: str = "vocab.json") -> None:
        if missing := [token for token in (END, UNKNOWN, PADDING) if token not in vocabulary]:
            raise InputError(f"{where} has no {' '.join(missing)}; a Marian vocabulary has all of them.")
        self.model = model
        self.backend = build_backend(model)
        self.vocabulary = dict(sorted(vocabulary.items(), key=lambda entry: entry[1]))
        self.size = max(self.vocabulary.values()) + 1
        self.sep_id, self.unk_id, self.pad_id = (vocabulary[token] for token in (END, UNKNOWN, PADDING))
        self.cls_id = self.pad_id  # what Marian's texts begin with
        self.special_ids = frozenset({self.sep_id, self.unk_id, self.pad_id})
        self.languages = tuple(token for token in self.vocabulary if LANGUAGE.fullmatch(token))
        self._tokens = {number: token for token, number in vocabulary.items()}
        # by piece of the .spm: a text that reads </s> is no end, so only pieces of text have ids of their own
        self._ids = [
            vocabulary.get(piece.text, self.unk_id) if piece.kind in (NORMAL, USER_DEFINED, BYTE) else self.unk_id
            for piece in model.pieces
        ]

    @classmethod
    def load(cls, folder: str | os.PathLike[str], side: Literal["source", "target"]) -> "MarianTokenizer":
        """From a folder with source.spm, target.spm and vocab.json (and target_vocab.json, if the sides differ)."""
        folder = Path(os.path.expanduser(folder))
        own = folder / "target_vocab.json"
        file = own if side == "target" and own.is_file() else folder / "vocab.json"
        return cls(read_model(folder / f"{side}.spm"), read_vocabulary(file), str(file))

    def encode(self, text: str, special: bool = True) -> Encoded:
        return self.encode_batch([text], special)[0]

    def encode_batch(self, texts: Sequence[str], special: bool = True) -> list[Encoded]:
        """Pieces and, if `special`, the end. A language before the text (>>fra<<) is one token.

        Offsets are those of the characters in the text, without the space before a word.
        """
        for text in texts:
            if half := re.search("[\ud800-\udfff]", text):
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
        """Where the text itself begins, after a language. A model that knows no languages takes >>fra<< as text."""
        code = LANGUAGE.match(text) if self.languages else None
        if code is None:
            return 0
        if code[0] not in self.vocabulary:
            hint = did_you_mean(code[0], self.languages) or f" It has {', '.join(self.languages)}."
            raise InputError(f"{code[0]} is no language of this model.{hint}")
        return code.end()

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids alone, without the end."""
        return [one.ids for one in self.encode_batch(texts, special=False)]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Readable text. Unknown pieces are shown as ⁇; end and padding are left out, unless asked for."""
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


_decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    shown = text[start:end].lstrip()
    return (end - len(shown), end) if shown else (start, end)


def build_backend(model: SentencePieceModel) -> tokenizers.Tokenizer:
    """A tokenizer whose ids are the places of the pieces in the .spm."""
    scores = [piece.score for piece in model.pieces if piece.kind == NORMAL]
    unknown = [number for number, piece in enumerate(model.pieces) if piece.kind == UNKNOWN_KIND]
    if not scores or len(unknown) != 1:
        raise InputError(
            f"A SentencePiece model has pieces and one that stands for the unknown; this one has {len(scores)} and "
            f"{len(unknown)}. Copy the file again."
        )

    def entry(number: int, piece: Piece) -> tuple[str, float]:
        if piece.kind == USER_DEFINED:  # always taken where it fits, as SentencePiece does
            return piece.text, len(piece.text) * max(scores) - 0.1
        if piece.kind in (NORMAL, BYTE):
            return piece.text, piece.score if piece.kind == NORMAL else min(scores)
        return f"{NEVER}{number}", max(scores)

    entries = [entry(number, piece) for number, piece in enumerate(model.pieces)]
    backend = tokenizers.Tokenizer(models.Unigram(entries, unknown[0], model.byte_fallback))
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        try:
            steps.append(normalizers.Precompiled(model.charsmap))
        except Exception as error:  # the library has no narrower one
            raise InputError(f"The table of characters in a SentencePiece model is damaged ({error}).") from error
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    space = SPACE if model.escape_whitespaces else " "
    if model.add_dummy_prefix:
        steps.append(normalizers.Prepend(space))
    steps.append(normalizers.Replace(" ", space))
    backend.normalizer = normalizers.Sequence(steps)
    if space == SPACE and not any(SPACE in piece.text[1:] for piece in model.pieces):
        # pieces do not reach across spaces, so words can be cut one by one, and those seen before need not be cut again
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="never", split=True)
    return backend


def read_vocabulary(file: Path) -> dict[str, int]:
    """vocab.json: tokens and their ids."""
    vocabulary = read_object(file)
    seen: dict[int, str] = {}
    for token, number in vocabulary.items():
        if type(number) is not int or number < 0:
            raise InputError(f"{file}: the id of {token!r} is {number!r}, where a number from 0 up belongs.")
        if number in seen:
            raise InputError(f"{file}: {seen[number]!r} and {token!r} have the same id, {number}.")
        seen[number] = token
    return vocabulary
