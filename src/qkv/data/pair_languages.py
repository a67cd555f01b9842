"""The two sides of a translation model as token ids: a tokenizer each, or one for both, and where texts begin and end.

A model trained here begins its texts with [CLS] and ends them with [SEP]; models of others have other tokens for that.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from qkv.tokenizer import Encoded, Tokenizer


class Coder(Protocol):
    """What is asked of a tokenizer here."""

    @property
    def size(self) -> int: ...
    @property
    def special_ids(self) -> Collection[int]: ...
    @property
    def unk_id(self) -> int: ...
    def encode(self, text: str, *, special: bool = True) -> Encoded: ...
    def token(self, id: int) -> str: ...
    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...


class Languages(NamedTuple):
    source: Coder
    target: Coder
    begin: int  # before every target text
    end: int  # after it
    source_end: int  # after every source text
    never: tuple[int, ...] = ()  # tokens of the target that no text has

    @classmethod
    def of(cls, source: Tokenizer, target: Tokenizer) -> "Languages":
        never = tuple(sorted(set(target.special_ids) - {target.sep_id}))
        return cls(source, target, target.cls_id, target.sep_id, source.sep_id, never)

    @property
    def are_joint(self) -> bool:
        return self.source is self.target

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Source texts as the encoder reads them: [x1 … xn, end]"""
        return [[*ids, self.source_end] for ids in self.source.encode_ids(texts)]

    def unknown(self, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Which characters of a source text the vocabulary has no token for; `ids` are what `read` made of it.

        A span for every token that stands for the unknown. What it hides, a model cannot translate: it can only guess.
        """
        if self.source.unk_id not in ids:
            return []
        found = self.source.encode(text, special=False)
        spans = zip(found.ids, found.offsets, strict=True)
        return [_without_spaces(text, *span) for token, span in spans if token == self.source.unk_id]


def _without_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    """
    >>> _without_spaces("a  b ", 1, 5)
    (3, 4)
    """
    shown = text[start:end].strip()
    begin = text.index(shown, start) if shown else start
    return begin, begin + len(shown)
