"""Negative sampling: tell the word that stood in a window from words that did not (Mikolov et al. 2013, "Distributed
Representations of Words and Phrases and their Compositionality", §2.2 and §2.3).

    loss = −log σ(score of the word) − Σ over the negatives log σ(−score)

    negatives        words drawn in proportion to frequency^0.75, shared by all neighbours of a window
    subsampling      a word of frequency f stays in the text with the chance (√(f / t) + 1) · t / f
    dynamic window   how far a window reaches is drawn from 1 … window, so near words count more
    boundaries       a window ends where its sentence does; unknown words and special tokens are taken out before

`windows` draws and `Sampled` scores, on any device, in torch alone: this is what training means. The compiled kernel
(models/word2vec/kernel.py) does the same, one window after the other, many times as fast on a CPU.

Shapes: B windows, M = 2 · window neighbours at most, N = 1 + K outputs, W words of a text, V vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from qkv.config import check_least
from qkv.errors import InputError
from qkv.models.word2vec.network import Word2Vec


@dataclass(frozen=True)
class SamplingConfig:
    window: int = 5
    negatives: int = 5
    power: float = 0.75  # of a word's frequency, when negatives are drawn
    subsample: float = 1e-3  # t: words more frequent than this are thinned out; 0: none are

    def __post_init__(self) -> None:
        check_least(self, "window", "negatives")
        for name in ("power", "subsample"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} lies between 0 and 1, unlike {getattr(self, name)}.")


def keep_chances(counts: NDArray[np.int64], subsample: float) -> NDArray[np.float64]:
    """(V,) the probability of each word to stay in the text; 0 for words that are not learned (count 0).

    The formula is that of Mikolov's program. The paper's, √(t / f), thins out more.

    >>> keep_chances(np.array([0, 900, 100]), 0.1).round(3).tolist()
    [0.0, 0.444, 1.0]
    """
    if subsample == 0:
        return (counts > 0).astype(np.float64)
    ratio = counts / (subsample * max(1, counts.sum()))
    return np.where(counts > 0, np.minimum(1, (np.sqrt(ratio) + 1) / np.maximum(ratio, 1e-300)), 0)


class Alias(NamedTuple):
    """A table to draw from in constant time: take an entry, keep it with its chance or else take its alias."""

    chances: NDArray[np.float64]  # (V,)
    aliases: NDArray[np.int64]  # (V,)


def alias_table(weights: NDArray[np.float64]) -> Alias:
    """Walker's alias method (1977), built as Vose did (1991): every entry is filled up to the mean by one other.

    >>> alias_table(np.array([1.0, 2.0, 3.0]))
    Alias(chances=array([0.5, 1. , 1. ]), aliases=array([2, 1, 2]))
    """
    chances = weights * (len(weights) / weights.sum())
    aliases = np.arange(len(weights))
    small = np.flatnonzero(chances < 1).tolist()
    large = np.flatnonzero(chances >= 1).tolist()
    while small and large:
        short, rich = small.pop(), large[-1]
        aliases[short] = rich
        chances[rich] -= 1 - chances[short]
        if chances[rich] < 1:
            small.append(large.pop())
    chances[small + large] = 1  # what rounding has left
    return Alias(chances, aliases)


def noise(counts: NDArray[np.int64], power: float) -> Alias:
    """The distribution of negatives; a word with count 0 is never drawn."""
    return alias_table(np.where(counts > 0, counts.astype(np.float64) ** power, 0))


class Windows(NamedTuple):
    near: Tensor  # (B, M) ids of the neighbours
    mask: Tensor  # (B, M) which of them are there
    outputs: Tensor  # (B, N) the word, then its negatives
    told_apart: Tensor  # (B, N) False where a negative happens to be the word itself


class Sampler:
    """Draws windows from the ids of a text; deterministic for a seed."""

    def __init__(self, counts: NDArray[np.int64], config: SamplingConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        table = noise(counts, config.power)
        self.keep = torch.tensor(keep_chances(counts, config.subsample), dtype=torch.float32, device=device)  # V
        self.chances = torch.tensor(table.chances, dtype=torch.float32, device=device)  # V
        self.aliases = torch.tensor(table.aliases, device=device)  # V
        reach = torch.arange(1, config.window + 1)
        self.steps = torch.cat([-reach.flip(0), reach]).to(device)  # M

    def windows(self, tokens: Tensor, sentences: Tensor, generator: torch.Generator) -> Windows:
        """Ids (W,) and the number of each one's sentence (W,), ascending → one window for every word that stays."""

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=self.device)

        stays = uniform(len(tokens)) < self.keep[tokens]
        words, sentences = tokens[stays], sentences[stays]
        B, K = len(words), self.config.negatives
        reach = (uniform(B) * self.config.window).long() + 1  # B
        places = torch.arange(B, device=self.device)[:, None] + self.steps  # B, M
        inside = places.clamp(0, max(0, B - 1))
        mask = (places == inside) & (self.steps.abs() <= reach[:, None]) & (sentences[inside] == sentences[:, None])
        drawn = (uniform(B, K) * len(self.keep)).long().clamp_max(len(self.keep) - 1)
        drawn = torch.where(uniform(B, K) < self.chances[drawn], drawn, self.aliases[drawn])
        told_apart = torch.cat([torch.ones_like(mask[:, :1]), drawn != words[:, None]], 1)
        outputs = torch.cat([words[:, None], drawn], 1)
        found = mask.any(1)  # a word by itself has no window
        return Windows(words[inside][found], mask[found], outputs[found], told_apart[found])


class _Term(NamedTuple):
    loss: Tensor  # summed over the inputs
    inputs: Tensor  # how many: neighbours, or windows for CBOW


class Sampled:
    """The loss of a model on windows."""

    def __call__(self, model: Word2Vec, windows: Windows) -> _Term:
        near, outputs = model.embedding[windows.near], model.context[windows.outputs]
        return self.of_rows(model, near, outputs, windows)

    def of_rows(self, model: Word2Vec, near: Tensor, outputs: Tensor, windows: Windows) -> _Term:
        """The same from rows that were looked up: near (B, M, D), outputs (B, N, D)."""
        scores = model.scores(near, windows.mask, outputs)  # B, M or 1, N
        inputs = windows.mask.any(1, keepdim=True) if scores.shape[1] == 1 else windows.mask  # B, M or 1
        signs = torch.ones(scores.shape[-1], device=scores.device)
        signs[1:] = -1
        counted = inputs[:, :, None] & windows.told_apart[:, None]
        loss = -(functional.logsigmoid(signs * scores) * counted).sum()
        return _Term(loss, inputs.sum())


def train_on(model: Word2Vec, windows: Windows, lr: float, most: int) -> _Term:
    """One step of gradient descent on all windows at once, which changes only the rows that take part.

    A row that takes part n times gets n gradients, all taken before any of them was applied. Beyond `most` of them
    they are scaled down to the sum of so many: without that a frequent word would leap over its goal, the further the
    larger the batch.

    In CBOW every neighbour takes the whole gradient of the mean and not its share of it, as in Mikolov's program: a
    larger step for the inputs than for the outputs. İrsoy et al. 2021 ("Corrected CBOW Performs as well as Skip-gram")
    divide. Tried once here (18 M words of Wikipedia, learning rates 0.075 and 0.25), that solved fewer analogies and,
    at the higher rate, found likeness of words a little better.
    """
    near = model.embedding.detach()[windows.near].requires_grad_()
    outputs = model.context.detach()[windows.outputs].requires_grad_()
    term = Sampled().of_rows(model, near, outputs, windows)
    term.loss.backward()
    taking = windows.mask.sum(1, keepdim=True)  # B, 1
    cbow = model.config.architecture == "cbow"
    uses = windows.told_apart * (1 if cbow else taking)  # B, N: inputs that an output meets
    for matrix, rows, ids, parts, times_over in (
        (model.embedding, near, windows.near, windows.mask, taking if cbow else 1),
        (model.context, outputs, windows.outputs, uses, 1),
    ):
        assert rows.grad is not None
        times = torch.zeros(len(matrix), device=matrix.device)
        times.index_add_(0, ids.flatten(), parts.flatten().float())
        scale = (most / times.clamp_min(most))[ids] * times_over
        changes = rows.grad * (-lr * scale)[..., None]
        matrix.data.index_add_(0, ids.flatten(), changes.flatten(0, 1))
    return _Term(term.loss.detach(), term.inputs)
