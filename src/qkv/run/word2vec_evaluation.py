"""What a word2vec run looks at on its way: the loss on held-out text, and the neighbours of a few words.

Windows and negatives of the held-out text are drawn from a seed of their own: every evaluation asks the same questions.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.sentence_chunks import SentenceChunks
from qkv.data.shards import Shards
from qkv.data.whole_words import WholeWords
from qkv.models.word2vec import Word2Vec
from qkv.objectives.sampled import Sampled, Sampler, SamplingConfig, Windows
from qkv.tokenizer import Tokenizer

SEED = 20_130_116  # the day word2vec was put on arXiv
TOKENS = 1 << 16  # of the held-out text that are looked at
BATCH = 1024  # windows at a time
SHOWN, RANKS = 6, (100, 5_000)  # words whose neighbours are shown: frequent ones, but not the most frequent


class VectorEvaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self,
        held_out: Shards,
        words: WholeWords | None,
        tokenizer: Tokenizer,
        counts: NDArray[np.int64],
        sampling: SamplingConfig,
        device: torch.device,
    ) -> None:
        chunks = SentenceChunks(held_out, TOKENS, words)
        self.windows: Windows | None = None
        if len(chunks):
            sampler = Sampler(counts, sampling, device)
            ids, sentences = (torch.from_numpy(array).to(device) for array in chunks[0].flat())
            self.windows = sampler.windows(ids, sentences, torch.Generator(device).manual_seed(SEED))
        self.tokenizer, self.seen = tokenizer, torch.from_numpy(counts > 0).to(device)
        ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        few = ranked[RANKS[0] : RANKS[1]] if len(ranked) > 2 * RANKS[0] else ranked
        letters = [int(id) for id in few if tokenizer.token(int(id)).isalpha()]
        chosen = np.random.default_rng(SEED).permutation(len(letters))[:SHOWN]
        self.shown = [letters[place] for place in chosen]

    def __call__(self, model: Word2Vec) -> dict[str, Any]:
        with torch.inference_mode():
            result = {"loss": self.loss(model)} if self.windows is not None and len(self.windows.near) else {}
            return result | {"neighbours": [self.neighbours(model.embedding, word) for word in self.shown]}

    def loss(self, model: Word2Vec) -> float:
        assert self.windows is not None
        loss, count = 0.0, 0
        for begin in range(0, len(self.windows.near), BATCH):
            term = Sampled()(model, Windows(*(tensor[begin : begin + BATCH] for tensor in self.windows)))
            loss, count = loss + float(term.loss), count + int(term.inputs)
        return loss / max(1, count)

    def neighbours(self, embedding: torch.Tensor, word: int, k: int = 5) -> dict[str, Any]:
        """The words whose vectors have the largest cosine with this one's."""
        cosines = torch.cosine_similarity(embedding, embedding[word], dim=-1)  # V
        cosines = cosines.masked_fill(~self.seen, -2.0)
        cosines[word] = -2.0
        best = cosines.topk(min(k, int(self.seen.sum()) - 1))
        near = [
            [self.tokenizer.token(int(id)), round(float(cosine), 4)]
            for id, cosine in zip(best.indices, best.values, strict=True)
        ]
        return {"word": self.tokenizer.token(word), "near": near}
