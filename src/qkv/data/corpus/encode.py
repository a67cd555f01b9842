"""Fast encoding of large texts: the same ids as `Tokenizer.encode_ids`, several times as fast.

BERT's tokenization is local: spaces separate words, every 汉字 and every punctuation mark is a word by itself, and each
word is tokenized independently of the others. So there are three kinds of characters:

    spaces    no token
    singles   汉字, punctuation marks and, where the tokenizer splits them off, emoji: their ids are in a table by code
              point
    others    everything else; a run of others is roughly a word, and words repeat: each is tokenized once and cached

The work is done on whole arrays, and the tokenizer is called only for new words. Any character that may interact with
its neighbours is an "other" and is tokenized together with them, which is always right. For a character-level tokenizer
nearly all characters are singles. Full-width letters that a tokenizer folds are others, and are folded with their
word. For other tokenizers (a foreign normalizer, `--fold simplified`, added tokens inside a text) nothing is
assumed, and every sentence is tokenized. For a tokenizer of Chinese words, spaces are inserted between them first; then
汉字 are others, and Chinese words are cached like any word.

A corpus must not contain special tokens: "[MASK]" in a text is read as three words. This is the only difference from
`Tokenizer.encode_ids`.

Kept although `tokenizers` encodes batches itself: it normalises and splits every text again, which would be the slowest
part of preparing a corpus.
"""

import json
import re
import unicodedata
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from qkv.data.corpus.shards import ranges
from qkv.text.backend import BYTE_PAIR, find_normalizer
from qkv.text.folding import EMOJI, find_folds, folds_before_bert
from qkv.text.segmenter import Segmenter, word_starts
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import CHINESE, WHITE, is_punctuation

_MOST_WORDS = 1 << 17  # words in the cache
MOST_CHARACTERS = 1 << 24  # total characters of the words in the cache

# kinds of characters; NEW: not yet classified
NEW, OTHER, SPACE, SINGLE, HAN = range(5)
LAST = 0x110000  # number of code points

Cuts = Literal["words", "characters", "somehow"]

_white = re.compile(f"[{WHITE}]")
_han = re.compile(f"[{CHINESE}]")


class Pieces(NamedTuple):
    """Tokens of all sentences, concatenated."""

    ids: NDArray[np.uint32]  # (N,)
    word_starts: NDArray[np.bool_]  # (N,)
    lengths: NDArray[np.int64]  # (sentences,) tokens of each


class LookedUp(NamedTuple):
    """Tokens of all words, concatenated."""

    ids: NDArray[np.uint32]
    counts: NDArray[np.int64]  # (words,) tokens of each


class _Memory(dict[str, int]):
    """Cache of tokenized words: word → its number, in order of arrival; the ids of all words are in one array.

    `continues`: by id, whether the subword continues a word; None if words have no such form.

    >>> tokenizer = Tokenizer.from_vocabulary("[PAD] [UNK] [CLS] [SEP] [MASK] a ##b".split())
    >>> memory = _Memory(tokenizer.backend, np.array([False, False, False, False, False, False, True]))
    >>> memory.look_up(["ab", "a", "ab", "c"])
    LookedUp(ids=array([5, 6, 5, 5, 6, 1], dtype=uint32), counts=array([2, 1, 2, 1]))
    >>> memory
    {'ab': 0, 'a': 1, 'c': 2}
    """

    def __init__(self, backend: tokenizers.Tokenizer, continues: NDArray[np.bool_] | None) -> None:
        self._backend = backend
        self._continues = continues
        self._forget()

    def _forget(self) -> None:
        self.clear()
        self._new: list[str] = []
        self._ids = np.zeros(0, np.uint32)
        self._counts = np.zeros(0, np.int64)
        self._starts = np.zeros(0, np.int64)
        self._uses = np.zeros(0, np.int64)
        self._characters = 0

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        self._new.append(word)
        return number

    def look_up(self, words: list[str]) -> LookedUp:
        if self._characters > MOST_CHARACTERS:
            self._forget()
        elif len(self) > _MOST_WORDS:
            self._forget_half()
        numbers = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        if self._new:
            self._learn()
        self._uses += np.bincount(numbers, minlength=len(self))
        counts = self._counts[numbers]
        return LookedUp(self._ids[ranges(self._starts[numbers], counts)], counts)

    def _forget_half(self) -> None:
        """Keep the words that were used most."""
        kept = np.sort(np.argsort(-self._uses, kind="stable")[: _MOST_WORDS // 2])
        words = list(self)
        self.clear()
        self.update((words[number], place) for place, number in enumerate(kept.tolist()))
        self._characters = sum(map(len, self))
        self._ids = self._ids[ranges(self._starts[kept], self._counts[kept])]
        self._counts, self._uses = self._counts[kept], self._uses[kept]
        self._starts = np.cumsum(self._counts) - self._counts

    def _learn(self) -> None:
        """Tokenize the new words, which have the highest numbers."""
        simple = np.fromiter(map(str.isalnum, self._new), np.bool_, len(self._new)) & (self._continues is not None)
        starts, counts = np.empty(len(simple), np.int64), np.empty(len(simple), np.int64)
        for chosen, encode in ((np.flatnonzero(simple), self._together), (np.flatnonzero(~simple), self._apart)):
            if len(chosen):
                found = encode([self._new[number] for number in chosen.tolist()])
                counts[chosen] = found.counts
                starts[chosen] = len(self._ids) + np.cumsum(found.counts) - found.counts
                self._ids = np.append(self._ids, found.ids)
        self._starts = np.append(self._starts, starts)
        self._counts = np.append(self._counts, counts)
        self._uses = np.append(self._uses, np.zeros(len(counts), np.int64))
        self._characters += sum(map(len, self._new))
        self._new = []

    def _together(self, words: list[str]) -> LookedUp:
        """Tokenize words of letters and digits as one text, which takes a third of the time."""
        assert self._continues is not None
        texts = [" ".join(words[start : start + 1000]) for start in range(0, len(words), 1000)]
        found = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        ids = np.concatenate([np.array(one.ids, np.uint32) for one in found])
        begins = np.flatnonzero(~self._continues[ids])
        assert len(begins) == len(words)
        return LookedUp(ids, np.diff(np.append(begins, len(ids))))

    def _apart(self, words: list[str]) -> LookedUp:
        """Tokenize each word as a text: it may become several words, or none."""
        found = [one.ids for one in self._backend.encode_batch_fast(words, add_special_tokens=False)]
        counts = np.fromiter(map(len, found), np.int64, len(found))
        return LookedUp(np.fromiter(chain.from_iterable(found), np.uint32, counts.sum()), counts)


class CorpusEncoder:
    """Encodes sentences with a cache of words, which does not affect the ids."""

    def __init__(self, tokenizer: Tokenizer, segmenter: Segmenter | None = None) -> None:
        self._chinese = tokenizer.chinese
        self._segmenter = segmenter if self._chinese is None else None  # otherwise every token is a word
        self._backend = _reads_special_tokens_as_text(tokenizer.backend)
        self._cut = how_it_cuts(tokenizer)
        self._splits_emoji = self._cut == "words" and "emoji" in find_folds(tokenizer.backend)
        prefix = tokenizer.backend.model.continuing_subword_prefix if tokenizer.kind == "wordpiece" else None
        self._continues = np.zeros(tokenizer.size, np.bool_)  # by id: whether the subword continues a word
        if prefix:
            self._continues[[id for token, id in tokenizer.vocabulary.items() if token.startswith(prefix)]] = True
        self._kinds = np.zeros(LAST, np.uint8)  # by code point: NEW, OTHER, ...
        self._letters = np.zeros(LAST, np.bool_)  # by code point: letters and digits except 汉字
        self._single_ids = np.zeros(LAST, np.uint32)  # by code point
        self._memory = _Memory(self._backend, self._continues if self._cut == "words" else None)

    def encode(self, text: str, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Pieces:
        """Encode the sentences text[start:end], which are in order and do not overlap."""
        if self._chinese is not None:
            sentences = self._chinese.spaced([text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
            lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
            text, ends = "\n".join(sentences), np.cumsum(lengths + 1) - 1
            starts = ends - lengths
        if self._cut == "somehow":
            return self._one_by_one(text, starts, ends)
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        kinds = self._kinds_of(codes)
        kinds[ranges(np.append(0, ends), np.append(starts, len(codes)) - np.append(0, ends))] = SPACE
        others = kinds == OTHER
        touching = starts[1:][starts[1:] == ends[:-1]]
        if (others[touching] & others[touching - 1]).any():  # a sentence ends inside a word
            return self._one_by_one(text, starts, ends)

        places = np.flatnonzero((kinds >= SINGLE) | _begins(others))  # beginnings of singles and words
        is_word = others[places]
        words = self._memory.look_up(_runs(codes, others, " "))
        counts = np.ones(len(places), np.int64)
        counts[is_word] = words.counts
        after = np.cumsum(counts)  # tokens up to and including each place
        ids = np.empty(counts.sum(), np.uint32)
        ids[after[~is_word] - 1] = self._single_ids[codes[places[~is_word]]]
        ids[ranges(after[is_word] - words.counts, words.counts)] = words.ids

        first_place = np.searchsorted(places, starts)
        lengths = np.diff(np.append(0, after)[np.append(first_place, len(places))])
        word_begins = ~self._continues[ids]
        if self._cut == "characters":
            letters = self._letters[codes]
            same_word = letters & np.append(False, letters[:-1])
            same_word[starts] = False
            word_begins = np.repeat(~same_word[places], counts)
            word_begins[ranges(after - counts + 1, np.maximum(counts - 1, 0))] = False
        if self._segmenter is not None and (han := kinds == HAN).any():
            word_begins[after[han[places]] - 1] = word_starts(_runs(codes, han, "\n"), self._segmenter)
        return Pieces(ids, word_begins, lengths)

    def _kinds_of(self, codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
        kinds = self._kinds.take(codes)
        if not kinds.all():
            self._look_at(np.unique(codes[kinds == NEW]))
            kinds = self._kinds.take(codes)
        return kinds

    def _look_at(self, codes: NDArray[np.uint32]) -> None:
        """Add new characters to the tables."""
        characters = [chr(code) for code in codes.tolist()]
        found = self._backend.encode_batch_fast(characters, add_special_tokens=False)
        for code, character, one in zip(codes.tolist(), characters, found, strict=True):
            kind = SINGLE if self._splits_emoji and EMOJI.match(character) else _kind(character, self._cut)
            if kind == HAN and self._chinese is not None:
                kind = OTHER
            if kind >= SINGLE:
                if len(one.ids) == 1:
                    self._single_ids[code] = one.ids[0]
                else:  # several tokens: İ in lower case
                    kind = OTHER
            self._kinds[code] = kind
            self._letters[code] = character.isalnum() and not _is_han(character)

    def _one_by_one(self, text: str, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Pieces:
        """Tokenize every sentence: slow, but right for any tokenizer."""
        sentences = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        ids: list[int] = []
        lengths: list[int] = []
        inside: list[bool] = []  # inside a Chinese word, not at its beginning
        for sentence, found in zip(
            sentences, self._backend.encode_batch(sentences, add_special_tokens=False), strict=True
        ):
            goes_on = self._words_go_on(sentence)
            ids += found.ids
            lengths.append(len(found.ids))
            inside += [begin < len(goes_on) and bool(goes_on[begin]) for begin, _ in found.offsets]
        array = np.array(ids, np.uint32)
        return Pieces(array, ~self._continues[array] & ~np.array(inside, np.bool_), np.array(lengths, np.int64))

    def _words_go_on(self, sentence: str) -> NDArray[np.bool_]:
        """By character: whether it is a 汉字 of a word other than the first."""
        codes = np.frombuffer(sentence.encode("utf-32-le"), np.uint32)
        han = np.fromiter(map(_is_han, sentence), np.bool_, len(sentence))
        goes_on = np.zeros(len(sentence), np.bool_)
        if self._segmenter is not None and han.any():
            goes_on[han] = ~word_starts(_runs(codes, han, "\n"), self._segmenter)
        return goes_on


def how_it_cuts(tokenizer: Tokenizer) -> Cuts:
    """Return which shortcuts are valid for a tokenizer.

    >>> how_it_cuts(Tokenizer.from_vocabulary("[PAD] [UNK] [CLS] [SEP] [MASK] a".split(), kind="word"))
    'words'
    """
    state = json.loads(tokenizer.backend.to_str())
    if any(not token["special"] for token in state["added_tokens"]):
        return "somehow"  # such tokens are found inside a text, even across spaces
    if tokenizer.kind == BYTE_PAIR:
        return "somehow"
    normalizer, model = state["normalizer"] or {}, state["model"]
    if tokenizer.kind == "character":
        settings = "dropout continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback".split()
        alone = state["pre_tokenizer"] is None and normalizer.get("type", "Lowercase") == "Lowercase"
        return "characters" if alone and not any(map(model.get, settings)) else "somehow"
    if folds_before_bert(tokenizer.backend) is None:
        return "somehow"
    bert = find_normalizer(normalizer, "BertNormalizer")
    spaced = bert["handle_chinese_chars"] == (tokenizer.chinese is None)
    return "words" if bert["clean_text"] and spaced else "somehow"


def _reads_special_tokens_as_text(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return a copy that reads special tokens as text, since the setting would change the shared tokenizer."""
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.encode_special_tokens = True
    return copy


def _kind(character: str, cut: Cuts) -> int:
    if _is_han(character):
        return HAN
    if cut == "characters":
        return SINGLE
    if _white.match(character):
        return SPACE
    # the rest of a decomposed punctuation mark could join the next word
    alone = is_punctuation(character) and unicodedata.normalize("NFD", character) == character
    return SINGLE if alone else OTHER


def _is_han(character: str) -> bool:
    return _han.match(character) is not None


def _begins(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True at the beginning of each run of True."""
    begins = mask.copy()
    begins[1:] &= ~mask[:-1]
    return begins


def _runs(codes: NDArray[np.uint32], mask: NDArray[np.bool_], separator: str) -> list[str]:
    """Return the runs of characters selected by `mask`; the separator is a character it never selects.

    >>> codes = np.frombuffer("ab, c".encode("utf-32-le"), np.uint32)
    >>> _runs(codes, np.array([True, True, False, False, True]), " ")
    ['ab', 'c']
    """
    taken = mask.copy()
    taken[1:] |= mask[:-1]  # and one position after each run
    text = np.where(mask, codes, ord(separator))[taken].astype("<u4").tobytes().decode("utf-32-le")
    return text.removesuffix(separator).split(separator) if text else []
