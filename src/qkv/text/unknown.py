"""Unknown tokens: counts, and the characters behind them; and foldings that avoid them (`--fold width,simplified`).

An unknown token ([UNK]) says nothing about the text that it replaces: two texts of unknown tokens alone look the same
to a model. Counts come from the token ids that a caller has anyway. Only the characters behind them need the text: the
first `_EXAMINED` texts with an unknown token, up to `_EXAMINED_CHARACTERS`, are encoded once more, with offsets.

Byte-level vocabularies (GPT-2, RoBERTa) spell everything and have no unknown tokens.
"""

import re
import shlex
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean

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
        return UnknownFacts(
            self._n_texts,
            self._n_tokens,
            self._n_unknown,
            self._n_affected,
            self._n_unreadable,
            dict(self._characters.most_common(20)),
            [name for name in FOLDS if self._helps(name)],
        )

    def _helps(self, fold: str) -> bool:
        """Whether the model would know one of the unknown characters, or an unknown word with an emoji next to it."""
        parts = ((word, part) for word in self._words for part in _emoji.split(word) if part)
        if fold == "emoji":  # a word may need both foldings
            words = (one for word, part in parts if part != word for one in (part, part.translate(_NARROW)))
        elif fold == "width":
            wide = (*self._characters, *(part for _, part in parts))
            words = (narrow for one in wide if (narrow := one.translate(_NARROW)) != one)
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


# --- Foldings of new tokenizers (`qkv tokenizer train --fold width,emoji`); transformers reads them from
# tokenizer.json.
#
#     width       full-width letters and digits become half-width: ＡＢＣ１２３ is ABC123. Punctuation stays as it is
#     emoji       every emoji is a token by itself: "ok😡😡" is three tokens, where BERT has one unknown word
#     simplified  traditional 汉字 become simplified ones, one character for one (OpenCC's table): 這個 is 这个. Words
#                 are not looked at: 乾 is 干 in 乾隆, too
#
# Offsets stay those of the text as it was written. A tokenizer with a folding takes about twice as long a text, and
# `qkv prepare` cannot take its shortcuts (data/corpus/encode.py). OpenCC is needed to write such a folder, not to read
# it: tokenizer.json has the table.
#
# Tokenizers that are loaded stay as they are, qkv-mini's too: transformers must read the same folder in the same way,
# and a resumed run the same tokens. `qkv convert FOLDER NEW --fold width,emoji` writes another folder.

FOLDS = ("width", "emoji", "simplified")
_NARROW = str.maketrans(
    "０１２３４５６７８９ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
)
# pictographs, dingbats and weather, regional indicators; without the digits and marks that Unicode calls emoji, too
_EMOJI = "[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23fa]"
_emoji = re.compile(_EMOJI)
_HAN = [*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000), *range(0xF900, 0xFB00), *range(0x20000, 0x32000)]


def read_folds(names: str) -> list[str]:
    """The foldings of --fold, separated by commas.

    >>> read_folds("width, emoji")
    ['width', 'emoji']
    """
    return [name.strip() for name in names.split(",")]


def check_fold(fold: Sequence[str], kind: str, segmenter: str | None = None) -> None:
    """Raise for an unknown folding, a tokenizer that cannot have it, or a missing package."""
    for name in fold:
        if not name:
            raise InputError(f"--fold has an empty name. Write one or more of {', '.join(FOLDS)}, separated by commas.")
        if name not in FOLDS:
            raise InputError(f"There is no folding '{name}'.{did_you_mean(name, FOLDS)} Known: {', '.join(FOLDS)}.")
    if fold and kind not in ("wordpiece", "word"):
        raise InputError(f"Foldings are for tokenizers by wordpiece or word, and this one is by {kind}: no --fold.")
    if "simplified" in fold:
        if segmenter is not None:
            raise InputError(
                "--fold simplified does not work with a segmenter, which reads the text before it is folded: leave one "
                "of them out."
            )
        _simplified()


@cache
def _simplified() -> dict[int, int]:
    """Code points of traditional 汉字, with those of the simplified ones."""
    try:
        import opencc
    except ImportError as error:
        raise InputError(
            f"--fold simplified takes its characters from OpenCC, which cannot be imported ({error}): pip install "
            "'qkv[zh]'."
        ) from error
    before = "\n".join(map(chr, _HAN))  # in lines of their own, so that no words are found
    after = opencc.OpenCC("t2s").convert(before)
    pairs = zip(before.split("\n"), after.split("\n"), strict=True)
    return {ord(one): ord(other) for one, other in pairs if one != other and len(other) == 1}


def fold_text(text: str, fold: Sequence[str]) -> str:
    """The text as a vocabulary is learned from it.

    >>> fold_text("ＡＢ１，ok😡😡", ["width", "emoji"])
    'AB1，ok 😡  😡 '
    """
    if text.isascii():
        return text
    text = text.translate(_NARROW) if "width" in fold else text
    text = text.translate(_simplified()) if "simplified" in fold else text
    return _emoji.sub(lambda found: f" {found[0]} ", text) if "emoji" in fold else text


def add_folding(backend: tokenizers.Tokenizer, fold: Sequence[str]) -> None:
    """Make a backend read texts as `fold_text` writes them."""
    if table := (_NARROW if "width" in fold else {}) | (_simplified() if "simplified" in fold else {}):
        steps = [normalizers.Precompiled(_compile(table)), backend.normalizer]
        backend.normalizer = normalizers.Sequence([step for step in steps if step is not None])
    if "emoji" in fold:
        alone = pre_tokenizers.Split(Regex(_EMOJI), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([alone, backend.pre_tokenizer])


def _compile(table: Mapping[int, int]) -> bytes:
    """SentencePiece's form of a table of characters, which the library replaces in one pass over a text.

    Four bytes with the length of a trie; the trie; the replacements, a zero byte after each. The trie is an array with
    32 bits for a node (a double array, Aoe 1989): the node for the next byte b is at (place ^ offset) ^ b, and a leaf,
    whose value is where its replacement begins, is at place ^ offset.

        bits 0-7   the byte that leads to the node          bit 8   whether it has a leaf
        bit 31     set in a leaf, whose other bits are its value          bits 10-30   the offset
    """
    keys = {chr(code).encode(): chr(other).encode() for code, other in sorted(table.items())}
    inner = sorted({key[:length] for key in keys for length in range(len(key))}, key=lambda one: (len(one), one))
    blocks = {prefix: (number + 1) << 8 for number, prefix in enumerate(inner)}  # 256 places for its next bytes
    trie = [0] * ((len(inner) + 1) << 8)
    trie[0] = blocks[b""] << 10
    # bytes after the first are 0x80 and above, so that the lower half of a block is free for leaves
    leaves = (place for block in list(blocks.values())[1:] for place in range(block, block + 128))
    texts = bytearray()
    for prefix in inner[1:]:
        place = blocks[prefix[:-1]] + prefix[-1]
        trie[place] = (blocks[prefix] ^ place) << 10 | prefix[-1]
    for key, other in keys.items():
        place, leaf = blocks[key[:-1]] + key[-1], next(leaves)
        trie[place] = (leaf ^ place) << 10 | 1 << 8 | key[-1]
        trie[leaf] = 1 << 31 | len(texts)
        texts += other + b"\0"
    return struct.pack(f"<I{len(trie)}I", 4 * len(trie), *trie) + bytes(texts)
