"""A prepared corpus in chunks of whole sentences, for training that streams it from one end to the other.

A chunk is a view of a mapped file: nothing is copied, and memory stays the same however large the corpus is. That is
why this does not go through `Shards.sentence_offsets`, which holds the beginning of every sentence.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.data.shard_file import map_arrays
from qkv.data.shards import Shards
from qkv.data.whole_words import WholeWords


class Chunk(NamedTuple):
    tokens: NDArray[Any]  # ids of the shard that the chunk lies in
    sentences: NDArray[np.int64]  # (S + 1,) where each sentence begins among them, and the end

    @property
    def n_tokens(self) -> int:
        return int(self.sentences[-1] - self.sentences[0])

    def flat(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of the chunk alone, and the number of each one's sentence."""
        ids = self.tokens[self.sentences[0] : self.sentences[-1]].astype(np.int64)
        lengths = np.diff(self.sentences)
        return ids, np.repeat(np.arange(len(lengths)), lengths)


class SentenceChunks:
    """All sentences of a part in order, cut into chunks of about `size` tokens; a longer sentence is a chunk alone."""

    def __init__(self, shards: Shards, size: int, words: WholeWords | None = None) -> None:
        """With `words`, tokens are put together to words, and ids are theirs; `size` and `longest` are of tokens."""
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

    def __getitem__(self, number: int) -> Chunk:
        shard, first, end = self._bounds[number]
        arrays = self._shards[shard]
        if self._words is not None:
            return Chunk(*self._words.joined(arrays, arrays["sentences"][first : end + 1]))
        return Chunk(arrays["tokens"], arrays["sentences"][first : end + 1])
