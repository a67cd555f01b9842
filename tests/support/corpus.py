"""A small corpus in memory, with the interface of shards, for tests of objectives and of training."""

import numpy as np
from numpy.typing import NDArray


class MemoryCorpus:
    """Documents of sentences of words of tokens, drawn at random but with a pattern that can be learned."""

    def __init__(self, documents: int = 30, vocabulary: int = 50, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        tokens: list[int] = []
        starts: list[bool] = []
        sentences, bounds = [0], [0]
        for _ in range(documents):
            topic = int(draw.integers(5, vocabulary - 3))
            for _ in range(int(draw.integers(3, 12))):
                for _ in range(int(draw.integers(3, 9))):
                    word = [topic + int(draw.integers(3))] * int(draw.integers(1, 3))
                    tokens += word
                    starts += [True] + [False] * (len(word) - 1)
                sentences.append(len(tokens))
            bounds.append(len(sentences) - 1)
        self.flat, self.starts = np.array(tokens), np.array(starts)
        self.sentence_offsets, self.document_offsets = np.array(sentences), np.array(bounds)

    def tokens(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([self.flat[s : s + n] for s, n in zip(starts, lengths, strict=True)])

    def word_starts(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.concatenate([self.starts[s : s + n] for s, n in zip(starts, lengths, strict=True)])


class Ids:
    """The special ids of a tokenizer: [PAD] [UNK] [CLS] [SEP] [MASK]."""

    def __init__(self, size: int = 50) -> None:
        self.size = size
        self.cls_id, self.sep_id, self.mask_id = 2, 3, 4
        self.special_ids = frozenset(range(5))
