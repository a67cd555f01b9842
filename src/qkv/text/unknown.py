"""Unknown tokens: what a model cannot read of its input, as counts and as the characters behind them.

An unknown token ([UNK]) says nothing about the text that it replaces: two texts of unknown tokens alone look the same
to a model. Counts come from the token ids that a caller has anyway. Only the characters behind them need the text: the
first `_EXAMINED` texts with an unknown token are encoded once more, with offsets.

Byte-level vocabularies (GPT-2, RoBERTa) spell everything and have no unknown tokens.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_EXAMINED = 1000
SHARE = 0.01
"""Of the tokens; from this share on unknown tokens are reported."""
_SHOWN = 8


class _Encoded(Protocol):
    @property
    def ids(self) -> list[int]: ...
    @property
    def offsets(self) -> list[tuple[int, int]]: ...


class _Vocabulary(Protocol):
    """A tokenizer, as far as it is needed here (tokenizer.py, sentencepiece.py)."""

    @property
    def unknown_id(self) -> int | None: ...
    def encode(self, text: str, *, special: bool = True) -> Any: ...
    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]: ...


def count_unknown(tokenizer: _Vocabulary, ids: Sequence[int]) -> int:
    """The number of unknown tokens among these."""
    unknown = tokenizer.unknown_id
    return 0 if unknown is None else ids.count(unknown)


def find_unknown(tokenizer: _Vocabulary, text: str, encoded: _Encoded | None = None) -> list[str]:
    """The characters of a text that its unknown tokens stand for; of a word in plain letters the word."""
    unknown = tokenizer.unknown_id
    if unknown is None:
        return []
    found = encoded if encoded is not None else tokenizer.encode(text, special=False)
    words = [
        text[start:end].strip()
        for number, (start, end) in zip(found.ids, found.offsets, strict=True)
        if number == unknown
    ]
    single = {character for word in words for character in word if not (character.isascii() or character.isspace())}
    lacking = {
        character for character, ids in zip(single, tokenizer.encode_ids(list(single)), strict=True) if unknown in ids
    }
    return [part for word in words if word for part in ([one for one in word if one in lacking] or [word])]


@dataclass(frozen=True)
class UnknownFacts:
    n_texts: int
    n_tokens: int  # of the texts themselves, without [CLS] and [SEP]
    n_unknown: int
    n_affected: int  # texts with an unknown token
    n_unreadable: int  # texts of unknown tokens alone
    most_frequent: dict[str, int]  # characters, or words, of the first texts with unknown tokens

    @property
    def share(self) -> float:
        return self.n_unknown / max(self.n_tokens, 1)

    @property
    def is_notable(self) -> bool:
        return self.n_unreadable > 0 or (self.n_unknown > 0 and self.share >= SHARE)

    @property
    def examples(self) -> str:
        """
        >>> UnknownFacts(2, 30, 3, 1, 0, {"嗯": 2, "😡": 1}).examples
        '嗯 (2), 😡'
        """
        shown = list(self.most_frequent.items())[:_SHOWN]
        return ", ".join(f"{what} ({count:,})" if count > 1 else what for what, count in shown)

    def describe(self) -> str | None:
        """One sentence where it matters; None where nearly everything is known.

        >>> UnknownFacts(2, 30, 3, 1, 1, {"嗯": 2, "😡": 1}).describe()
        '3 of 30 tokens (10.0 %) are unknown to the model, in 1 of 2 texts, 1 of them wholly: 嗯 (2), 😡.'
        >>> UnknownFacts(2, 3000, 3, 1, 0, {"嗯": 3}).describe() is None
        True
        """
        if not self.is_notable:
            return None
        wholly = f", {self.n_unreadable:,} of them wholly" if self.n_unreadable else ""
        where = f", in {self.n_affected:,} of {self.n_texts:,} texts{wholly}" if self.n_texts > 1 else ""
        return (
            f"{self.n_unknown:,} of {self.n_tokens:,} tokens ({100 * self.share:.1f} %) are unknown to the model"
            f"{where}: {self.examples}."
        )


class UnknownCounter:
    """Counts over any number of texts, in bounded memory."""

    def __init__(self, tokenizer: _Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._n_texts = self._n_tokens = self._n_unknown = self._n_affected = self._n_unreadable = 0
        self._characters: Counter[str] = Counter()

    def add(self, texts: Iterable[str], n_unknown: int, n_tokens: int) -> None:
        """The texts of one input, with their unknown tokens and all their tokens, without [CLS] and [SEP]."""
        self._n_texts += 1
        self._n_tokens += n_tokens
        if not n_unknown:
            return
        self._n_unknown += n_unknown
        self._n_affected += 1
        self._n_unreadable += n_unknown >= n_tokens
        if self._n_affected <= _EXAMINED:
            for text in texts:
                self._characters.update(find_unknown(self._tokenizer, text))

    def facts(self) -> UnknownFacts:
        return UnknownFacts(
            self._n_texts,
            self._n_tokens,
            self._n_unknown,
            self._n_affected,
            self._n_unreadable,
            dict(self._characters.most_common(20)),
        )
