"""A prepared corpus as word2vec reads it: words instead of tokens, in chunks of whole sentences.

`WholeWords` joins tokens into words: 北京 out of 北 and 京, "unhappy" out of "un" and "##happy". The corpus stores
where words begin (in Chinese by a segmenter), so a model of words can be trained on the shards of a model of subwords.
Words are found by a hash of their ids, a chunk at a time; no text is decoded.

`SentenceChunks` streams the corpus. A chunk is a view of a mapped file, so memory does not grow with the corpus;
`Shards.sentence_offsets` would hold the start of every sentence.

Not here: cutting text that is not prepared. The tokenizer that is made here does that, with the segmenter of the
corpus; if that was the user's own function, Chinese text has to go through it first.

Shapes: W tokens, G words of a stretch of text, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers

from qkv.data.corpus.shards import Shards, map_arrays
from qkv.errors import InputError
from qkv.text.segmenter import is_known
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import CONTINUES, SPECIAL, UNKNOWN

STRETCH = 1 << 18  # tokens that are counted at a time
_MOST_WORDS = 1 << 22  # distinct words held before the rarest are forgotten
_powers = np.multiply.accumulate(np.full(64, 0x9E3779B97F4A7C15, np.uint64))

Keys = NDArray[np.uint64]


def keys_of(ids: NDArray[Any], begins: NDArray[np.int64]) -> Keys:
    """(G,) a hash of every word: a polynomial of its ids, modulo 2⁶⁴. `begins` (G,): where each word begins.

    >>> first, second, again = keys_of(np.array([7, 8, 8, 7, 7, 8]), np.array([0, 2, 4]))
    >>> bool(first == again), bool(first == second)
    (True, False)
    """
    lengths = np.diff(np.append(begins, len(ids)))
    places = np.arange(len(ids)) - np.repeat(begins, lengths)
    return np.add.reduceat((ids.astype(np.uint64) + np.uint64(1)) * _powers[places % len(_powers)], begins)


def word_begins(arrays: dict[str, NDArray[Any]], sentences: NDArray[np.int64]) -> NDArray[np.int64]:
    """(G,) where words begin in these sentences of a shard, as indices of its tokens; every sentence begins a word."""
    first, last = int(sentences[0]), int(sentences[-1])
    bits = np.unpackbits(arrays["word_starts"][first >> 3 : (last + 7) >> 3], bitorder="little")
    starts = bits[first & 7 :][: last - first].astype(np.bool_)
    starts[sentences[:-1][sentences[:-1] < last] - first] = True
    return np.flatnonzero(starts) + first


class WholeWords:
    """The words of a corpus, most frequent first, and how they are found in its shards."""

    def __init__(self, shards: Shards, min_count: int, most: int) -> None:
        pieces = shards.tokenizer()
        held: dict[int, tuple[int, ...]] = {}
        counts: dict[int, int] = {}
        for shard in shards.manifest[shards.part]["shards"]:
            arrays = map_arrays(shards.folder / shard["file"])
            sentences = arrays["sentences"]
            wanted = np.arange(sentences[0], sentences[-1], STRETCH)
            bounds = np.unique(np.append(np.searchsorted(sentences[:-1], wanted), len(sentences) - 1))
            for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                self._count(arrays, sentences[begin : end + 1], held, counts)
        special = pieces.special_ids
        names: dict[str, int] = {}
        found: dict[str, list[int]] = {}
        for key, count in counts.items():
            if not special.intersection(held[key]):
                name = "".join(pieces.token(id).removeprefix(CONTINUES) for id in held[key])
                names[name] = names.get(name, 0) + count
                found.setdefault(name, []).append(key)
        often = [name for name, count in names.items() if count >= min_count and name not in SPECIAL and name.strip()]
        if not often:
            raise InputError(
                f"No word of {shards.folder} occurs {min_count} times: give more text, or a lower min_count."
            )
        chosen = sorted(often, key=lambda name: (-names[name], name))[: most - len(SPECIAL)]
        segmenter = shards.manifest["settings"]["segmenter"]
        self.tokenizer = _tokenizer([*SPECIAL, *chosen], pieces.lowercase, segmenter if is_known(segmenter) else None)
        self.counts = np.array([0] * len(SPECIAL) + [names[name] for name in chosen])  # (V,)
        numbers = {key: id for id, name in enumerate(chosen, len(SPECIAL)) for key in found[name]}
        self._keys = np.array(sorted(numbers), np.uint64)
        self._ids = np.array([numbers[key] for key in self._keys.tolist()], np.int32)
        self._unknown = self.tokenizer.unk_id

    def _count(
        self,
        arrays: dict[str, NDArray[Any]],
        sentences: NDArray[np.int64],
        held: dict[int, tuple[int, ...]],
        counts: dict[int, int],
    ) -> None:
        begins = word_begins(arrays, sentences)
        if not len(begins):
            return
        ids = arrays["tokens"][sentences[0] : sentences[-1]]
        ends = np.append(begins[1:], sentences[-1]) - sentences[0]
        begins = begins - sentences[0]
        keys, places, often = np.unique(keys_of(ids, begins), return_index=True, return_counts=True)
        for key, place, count in zip(keys.tolist(), places.tolist(), often.tolist(), strict=True):
            if key not in counts:
                counts[key], held[key] = 0, tuple(ids[begins[place] : ends[place]].tolist())
            counts[key] += count
        least = 1
        while len(counts) > _MOST_WORDS:
            for key in [key for key, count in counts.items() if count <= least]:
                del counts[key], held[key]
            least += 1

    def joined(
        self, arrays: dict[str, NDArray[Any]], sentences: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The words of these sentences of a shard, concatenated, and the index at which each sentence begins."""
        begins = word_begins(arrays, sentences)
        if not len(begins):
            return np.zeros(0, np.int32), np.zeros(len(sentences), np.int64)
        keys = keys_of(arrays["tokens"][sentences[0] : sentences[-1]], begins - sentences[0])
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        words = np.where(self._keys[places] == keys, self._ids[places], np.int32(self._unknown))
        return words, np.searchsorted(begins, sentences)


def _tokenizer(tokens: Sequence[str], lowercase: bool, segmenter: str | None) -> Tokenizer:
    """A tokenizer that takes a run of 汉字 as one word, if there is no segmenter."""
    backend = tokenizers.Tokenizer(models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token=UNKNOWN))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(backend, "word", segmenter=segmenter)


class SentenceChunk(NamedTuple):
    tokens: NDArray[Any]  # ids of the shard that the chunk lies in
    sentences: NDArray[np.int64]  # (S + 1,) where each sentence begins among them, and the end

    @property
    def n_tokens(self) -> int:
        return int(self.sentences[-1] - self.sentences[0])

    def flat(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of the chunk, and the sentence number of each."""
        ids = self.tokens[self.sentences[0] : self.sentences[-1]].astype(np.int64)
        lengths = np.diff(self.sentences)
        return ids, np.repeat(np.arange(len(lengths)), lengths)


class SentenceChunks:
    """All sentences of a part in order, in chunks of about `size` tokens; a longer sentence is its own chunk."""

    def __init__(self, shards: Shards, size: int, words: WholeWords | None = None) -> None:
        """With `words`, tokens are joined to words and ids are those of words; `size` and `longest` count tokens."""
        self._words = words
        self._shards = [map_arrays(shards.folder / one["file"]) for one in shards.manifest[shards.part]["shards"]]
        self.longest = 0  # sentence
        bounds = [np.zeros((0, 3), np.int64)]  # shard, first sentence, end
        for number, arrays in enumerate(self._shards):
            sentences = arrays["sentences"]
            if len(sentences) < 2:
                continue
            for begin in range(0, len(sentences) - 1, 1 << 16):
                self.longest = max(self.longest, int(np.diff(sentences[begin : begin + (1 << 16) + 1]).max()))
            wanted = np.arange(sentences[0], sentences[-1], size)
            starts = np.unique(np.append(np.searchsorted(sentences[:-1], wanted), len(sentences) - 1))
            bounds.append(np.stack([np.full(len(starts) - 1, number), starts[:-1], starts[1:]], 1))
        self._bounds = np.concatenate(bounds)

    def __len__(self) -> int:
        return len(self._bounds)

    def __getitem__(self, number: int) -> SentenceChunk:
        shard, first, end = self._bounds[number]
        arrays = self._shards[shard]
        if self._words is not None:
            return SentenceChunk(*self._words.joined(arrays, arrays["sentences"][first : end + 1]))
        return SentenceChunk(arrays["tokens"], arrays["sentences"][first : end + 1])
