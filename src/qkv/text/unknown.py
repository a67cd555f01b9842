"""Unknown tokens: counts, the characters behind them, and what to do about them (`folding.py`).

An unknown token ([UNK]) says nothing about the text that it replaces: two texts of unknown tokens alone look the same
to a model. Counts come from the token ids that a caller has anyway. Only the characters behind them need the text: the
first `_EXAMINED` texts with an unknown token, up to `_EXAMINED_CHARACTERS`, are encoded once more, with offsets.

Byte-level vocabularies (GPT-2, RoBERTa) spell everything and have no unknown tokens.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

from qkv.text.folding import EMOJI, FOLDS, NARROW, find_folds

_EXAMINED, _EXAMINED_CHARACTERS = 1000, 1_000_000
SHARE = 0.01
"""Of the tokens; from this share on unknown tokens are reported."""
_SHOWN = 8
_LONGEST = 24  # characters of one that is shown
_cut_word = re.compile(r"[^\W\u4e00-\u9fff]+\Z")


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
    return [part for word in _unknown_words(tokenizer, text, encoded) for part in _lacking(tokenizer, word)]


def _unknown_words(tokenizer: _Vocabulary, text: str, encoded: _Encoded | None = None) -> list[str]:
    unknown = tokenizer.unknown_id
    if unknown is None:
        return []
    found = encoded if encoded is not None else tokenizer.encode(text, special=False)
    spans = [span for number, span in zip(found.ids, found.offsets, strict=True) if number == unknown]
    return [word for start, end in spans if (word := text[start:end].strip())]


def _lacking(tokenizer: _Vocabulary, word: str) -> list[str]:
    """The characters of an unknown word that are unknown by themselves; else the word."""
    single = {character for character in word if not (character.isascii() or character.isspace())}
    lacking = {one for one in single if not _knows(tokenizer, one)}
    return [one for one in word if one in lacking] or [word]


def _knows(tokenizer: _Vocabulary, text: str) -> bool:
    return tokenizer.unknown_id not in tokenizer.encode_ids([text])[0]


def _reads(tokenizer: _Vocabulary, text: str) -> bool:
    """As `_knows`, and there is something to know: the joiner inside 👨‍👩‍👧 has no token at all."""
    ids = tokenizer.encode_ids([text])[0]
    return bool(ids) and tokenizer.unknown_id not in ids


@dataclass(frozen=True)
class UnknownFacts:
    n_texts: int
    n_tokens: int  # of the texts themselves, without [CLS] and [SEP]
    n_unknown: int
    n_affected: int  # texts with an unknown token
    n_unreadable: int  # texts of unknown tokens alone
    most_frequent: dict[str, int]  # characters, or words, of the first texts with unknown tokens
    folds: Sequence[str] = ()  # of FOLDS, those with which the model would know some of these

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

    def remedy(self, model: str = "MODEL") -> str:
        """What to do about them, in one sentence."""
        if model.startswith("scratch:"):  # no folder that could be converted
            model = "MODEL"
        command = f"qkv convert {shlex.quote(model)} NEW --fold {','.join(self.folds)}"
        if "simplified" in self.folds and find_spec("opencc") is None:
            return f"A copy that knows more of them, once pip install 'qkv[zh]' was run: {command}."
        if self.folds:
            return f"A copy that knows more of them: {command}."
        return "A model with another vocabulary may know them."

    def describe(self, model: str = "MODEL") -> str | None:
        """Two sentences where it matters; None where nearly everything is known.

        >>> print(UnknownFacts(2, 30, 3, 1, 1, {"ok😡": 2, "Ａ": 1}, ["width", "emoji"]).describe("qkv-mini"))
        3 of 30 tokens (10.0 %) are unknown to the model, in 1 of 2 texts, 1 of them wholly; they stand \
for: ok😡 (2), Ａ. A copy that knows more of them: qkv convert qkv-mini NEW --fold width,emoji.
        >>> UnknownFacts(2, 3000, 3, 1, 0, {"嗯": 3}).describe() is None
        True
        """
        if not self.is_notable:
            return None
        wholly = f", {self.n_unreadable:,} of them wholly" if self.n_unreadable else ""
        where = f", in {self.n_affected:,} of {self.n_texts:,} texts{wholly}" if self.n_texts > 1 else ""
        behind = f"; they stand for: {self.examples}" if self.most_frequent else ""
        return (
            f"{self.n_unknown:,} of {self.n_tokens:,} tokens ({100 * self.share:.1f} %) are unknown to the model"
            f"{where}{behind}. {self.remedy(model)}"
        )


class UnknownCounter:
    """Counts over any number of texts, in bounded memory."""

    def __init__(self, tokenizer: _Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._n_texts = self._n_tokens = self._n_unknown = self._n_affected = self._n_unreadable = 0
        self._characters: Counter[str] = Counter()
        self._words: dict[str, list[str]] = {}  # unknown words, with the characters behind each
        self._examined = 0

    def add(self, texts: Iterable[str], n_unknown: int, n_tokens: int) -> None:
        """The texts of one input, with their unknown tokens and all their tokens, without [CLS] and [SEP]."""
        self._n_texts += 1
        self._n_tokens += n_tokens
        if not n_unknown:
            return
        self._n_unknown += n_unknown
        self._n_affected += 1
        self._n_unreadable += n_unknown >= n_tokens
        for text in texts:
            if self._n_affected <= _EXAMINED and self._examined < _EXAMINED_CHARACTERS:
                part = text[: _EXAMINED_CHARACTERS - self._examined]
                self._examined += len(part)
                part = part if len(part) == len(text) else _cut_word.sub("", part)
                for word in _unknown_words(self._tokenizer, part):
                    if word not in self._words:
                        self._words[word] = _lacking(self._tokenizer, word)
                    self._characters.update(self._words[word])

    def facts(self) -> UnknownFacts:
        backend = getattr(self._tokenizer, "backend", None)
        done = () if backend is None else find_folds(backend)
        return UnknownFacts(
            self._n_texts,
            self._n_tokens,
            self._n_unknown,
            self._n_affected,
            self._n_unreadable,
            dict(self._characters.most_common(20)),
            [name for name in FOLDS if name not in done and self._helps(name)],
        )

    def _helps(self, fold: str) -> bool:
        """Whether the model would know one of the unknown characters, or an unknown word with an emoji next to it."""
        parts = ((word, part) for word in self._words for part in EMOJI.split(word) if part)
        if fold == "emoji":  # a word may need both foldings
            words = (one for word, part in parts if part != word for one in (part, part.translate(NARROW)))
        elif fold == "width":
            wide = (*self._characters, *(part for _, part in parts))
            words = (narrow for one in wide if (narrow := one.translate(NARROW)) != one)
        else:  # the simplified form of each is not asked for, so that no package is needed
            words = ("这个们" for one in self._characters if is_traditional(one))
        return any(_reads(self._tokenizer, word) for word in words)


def is_traditional(character: str) -> bool:
    """Whether a 汉字 is in Taiwan's character set and not in that of the mainland (Big5, GB 2312).

    >>> [is_traditional(one) for one in "這这嗯a😡"]
    [True, False, False, False, False]
    """
    try:
        character.encode("big5")
    except UnicodeEncodeError:
        return False
    try:
        character.encode("gb2312")
    except UnicodeEncodeError:
        return "\u4e00" <= character[0] <= "\u9fff"
    return False
