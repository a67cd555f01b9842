"""Unknown tokens: counts, and the characters behind them; and foldings that avoid them (`--fold width,emoji`).

An unknown token ([UNK]) says nothing about the text that it replaces: two texts of unknown tokens alone look the same
to a model. Counts come from the token ids that a caller has anyway. Only the characters behind them need the text: the
first `_EXAMINED` texts with an unknown token are encoded once more, with offsets.

Byte-level vocabularies (GPT-2, RoBERTa) spell everything and have no unknown tokens.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean

_EXAMINED = 1000
SHARE = 0.01
"""Of the tokens; from this share on unknown tokens are reported."""
_SHOWN = 8
_LONGEST = 24  # characters of one that is shown


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
        found = list(self.most_frequent.items())[:_SHOWN]
        shown = [(what if len(what) <= _LONGEST else what[: _LONGEST - 1] + "…", count) for what, count in found]
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


# --- Foldings of new tokenizers (`qkv tokenizer train --fold width,emoji`); transformers reads them from
# tokenizer.json.
#
#     width   full-width letters and digits become half-width: ＡＢＣ１２３ is ABC123. Punctuation stays: ， is not ,
#     emoji   every emoji is a token by itself: "ok😡😡" is three tokens, where BERT has one unknown word
#
# Offsets stay those of the text as it was written. A tokenizer with a folding takes about twice as long a text, and
# `qkv prepare` cannot take its shortcuts (data/corpus/encode.py).
#
# Tokenizers that are loaded stay as they are: `qkv convert FOLDER NEW --fold width,emoji` writes another folder.
#
# What this file does NOT do: traditional characters as simplified ones, for which we have no table of our own.

FOLDS = ("width", "emoji")
_WIDE = [*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B)]
_NARROW = {code: code - 0xFEE0 for code in _WIDE}
# pictographs, dingbats and weather, regional indicators; without the digits and marks that Unicode calls emoji, too
_EMOJI = "[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23fa]"
_emoji = re.compile(_EMOJI)


def check_fold(fold: Sequence[str], kind: str) -> None:
    """Raise for an unknown folding, or a tokenizer that does not read words as BERT does."""
    for name in fold:
        if name not in FOLDS:
            raise InputError(f"There is no folding '{name}'.{did_you_mean(name, FOLDS)} Known: {', '.join(FOLDS)}.")
    if fold and kind not in ("wordpiece", "word"):
        raise InputError(f"Foldings are for tokenizers by wordpiece or word, and this one is by {kind}: no --fold.")


def fold_text(text: str, fold: Sequence[str]) -> str:
    """The text as a vocabulary is learned from it.

    >>> fold_text("ＡＢ１，ok😡😡", ["width", "emoji"])
    'AB1，ok 😡  😡 '
    """
    if text.isascii():
        return text
    text = text.translate(_NARROW) if "width" in fold else text
    return _emoji.sub(lambda found: f" {found[0]} ", text) if "emoji" in fold else text


def add_folding(backend: tokenizers.Tokenizer, fold: Sequence[str]) -> None:
    """Make a backend read texts as `fold_text` writes them."""
    if "width" in fold:
        steps = [normalizers.Replace(chr(wide), chr(narrow)) for wide, narrow in _NARROW.items()]
        backend.normalizer = normalizers.Sequence([*steps, backend.normalizer])
    if "emoji" in fold:
        alone = pre_tokenizers.Split(Regex(_EMOJI), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([alone, backend.pre_tokenizer])
