"""A task learned together with the language model of its texts (Radford et al. 2018, §3.2, equation 5).

    L = L(task) + λ L(next word)

The same texts are predicted word by word, from the same vectors that the task's head reads: the encoder runs once. What
is predicted is the text's own tokens, not the marks around them. The paper has λ = 0.5, and found that it helps where
there is much to learn from and not where there is little.

Shapes: N tokens of all rows, D width, W words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from qkv.batch import IGNORE, Batch
from qkv.models.gpt_reader import GPTEncoder
from qkv.nn.fast import word_loss
from qkv.tasks.model import VECTORS, TaskModel
from qkv.train.loop import Objective, Term

WEIGHT = 0.5
"""λ of the paper."""
TERM = "language_model"


@dataclass(frozen=True)
class WithLanguageModel:
    task: Objective[Batch]
    weight: float
    words: int  # tokens of texts; those after them are marks

    @property
    def weights(self) -> Mapping[str, float]:
        return {**self.task.weights, TERM: self.weight}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**self.task.counts(batch), TERM: int((next_words(batch, self.words) != IGNORE).sum())}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, TaskModel)
        encoder = model.network.encoder
        assert isinstance(encoder, GPTEncoder), "only a GPT has words to predict"
        hidden = model.hidden(batch)  # (N, D)
        read = replace(batch, labels={**batch.labels, VECTORS: model.of(hidden, batch)})
        words = word_loss(*encoder.before_words(hidden), next_words(batch, self.words))
        return {**self.task.terms(model, read), TERM: Term(*words)}


def next_words(batch: Batch, words: int) -> Tensor:
    """(N,) the word after each token; nothing where a mark follows, or the row ends.

    >>> next_words(Batch.of([[3, 5, 6, 9], [3, 7, 8, 5, 9]]), words=8).tolist()
    [5, 6, -100, -100, 7, -100, 5, -100, -100]
    """
    following, targets = batch.ids[1:], torch.full_like(batch.ids, IGNORE)
    is_word = (following < words) & (batch.positions[1:] > 0)
    targets[:-1] = torch.where(is_word, following, IGNORE)
    return targets
