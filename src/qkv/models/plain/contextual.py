"""Vectors of tokens that a pretrained language model gives, where a reader (network.py) else looks them up.

    elmo     a vector of every layer, both directions side by side; what of each is used is for a `ScalarMix` to learn
    rnnlm    the state of the last layer after each token: what stands before it has been read, and nothing else

Each row begins with nothing seen, so that the same text has the same vectors, whatever rows lie beside it. Nobody says
here whether a model moves with its task; while it does not, nothing is kept for a gradient.

ELMo spells its tokens, so that it needs no [UNK]: an id past the vocabulary is a word that `Words` can write
(models/elmo/tokenizer.py). Vectors depend on the spelling and never on the number.

Shapes: U different tokens, N tokens of all rows, P width of a direction or of a state, K = 1 + layers, L bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.models.elmo.network import BothWays, ElmoConfig
from qkv.models.rnnlm.network import RNNLMConfig, RNNStates
from qkv.nn.characters import NONE, spell
from qkv.nn.layers import Layer

Pretrained = ElmoConfig | RNNLMConfig
_AT_ONCE = 2048
"""Words that are spelled together: a convolution over all of a large batch would need gigabytes."""


class Words(Protocol):
    """How tokens are written: a tokenizer."""

    @property
    def size(self) -> int: ...
    @property
    def vocabulary(self) -> Mapping[str, int]: ...
    def token(self, id: int, /) -> str:
        """Of any id that it has given, also past the vocabulary."""
        ...


class ElmoVectors(nn.Module):
    spelled: Tensor

    def __init__(self, config: ElmoConfig, words: Words) -> None:
        super().__init__()
        self.network = BothWays(config)
        self.words = words
        tokens = [""] * words.size  # a vocabulary may have gaps
        for token, number in words.vocabulary.items():
            tokens[number] = token
        with torch.device("cpu"):  # known from the vocabulary, also while all weights are still missing
            self.register_buffer("spelled", spell(tokens, config.longest), persistent=False)  # (V, L)

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Tokens (N,) of rows end to end → (N, K, 2 P)"""
        with torch.set_grad_enabled(_learns(self)):
            return self.network.vectors(self._spelled(ids), lengths)

    def layers(self, ids: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        return self.network.layers(self._spelled(ids), lengths)

    def _spelled(self, ids: Tensor) -> Tensor:
        """(N,) → (N, P)"""
        different, place = ids.unique(return_inverse=True)
        parts = self.bytes_of(different).split(_AT_ONCE)
        return torch.cat([self.network.characters(part) for part in parts])[place]

    def bytes_of(self, ids: Tensor) -> Tensor:
        """Ids (U,), ascending → (U, L)"""
        if int(ids[-1]) < len(self.spelled):
            return self.spelled[ids]
        known = self.spelled[ids[ids < len(self.spelled)]]
        others = [self.words.token(number) for number in ids[len(known) :].tolist()]
        found = spell(others, self.network.config.longest).to(known.device)
        longest = max(known.shape[1], found.shape[1])
        return torch.cat([functional.pad(part, (0, longest - part.shape[1]), value=NONE) for part in (known, found)])


class StateVectors(nn.Module):
    def __init__(self, config: RNNLMConfig) -> None:
        super().__init__()
        self.network = RNNStates(config)

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Tokens (N,) of rows end to end → (N, P)"""
        with torch.set_grad_enabled(_learns(self)):
            states: Tensor = self.network(ids, lengths)[0]
            return states

    def layers(self, ids: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        return self.network.layers(ids, lengths)


def contextual(config: Pretrained, words: Words | None) -> ElmoVectors | StateVectors:
    if isinstance(config, RNNLMConfig):
        return StateVectors(config)
    assert words is not None, "ELMo has to know how tokens are written"
    return ElmoVectors(config, words)


def width_of(config: Pretrained) -> int:
    return 2 * config.width if isinstance(config, ElmoConfig) else config.output_width


def _learns(module: nn.Module) -> bool:
    """A kernel for recurrent layers keeps what a gradient needs unless it is told that there is none."""
    return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters())
