"""ELMo: vectors of tokens that depend on their sentence (Peters et al. 2018, "Deep contextualized word
representations").

Two language models of the same depth read a text, one from its beginning and one from its end. They share how a token
is spelled into a vector (nn/words.py) and the scores of words, and nothing in between. A token then has a vector
for every layer, both directions side by side: the spelled one, twice, which is the same in every sentence; and those of
the recurrent layers, which are not. A task learns how much of each it uses (`ScalarMix`).

The network keeps no state; models/elmo/objective.py carries it from piece to piece.

Below an encoder for a task (models/plain/network.py) it is `ElmoVectors`, which needs no [UNK]: an id past the
vocabulary is a word that an open tokenizer (tokenizer.py) can write. Vectors depend on the spelling, never on the
number. Each row begins with nothing seen, so that the same text has the same vectors, whatever rows lie beside it.

Shapes: U different tokens, N tokens of all rows, P width of a direction, K = 1 + layers, V vocabulary, L bytes.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.models.elmo.config import PRESETS as PRESETS
from qkv.models.elmo.config import ElmoConfig as ElmoConfig
from qkv.nn.layers import Layer
from qkv.nn.recurrent import LSTM
from qkv.nn.recurrent_stack import DIRECTIONS, Stack, States, needs_gradient
from qkv.nn.words import PADDING_BYTE, CharacterCNN, LengthGroups, WordScores, spell
from qkv.text.tokenizer import Tokenizer

_AT_ONCE = 2048
"""Words that are spelled together: a convolution over all of a large batch would need gigabytes."""


class BothWays(nn.Module):
    """ELMo below its word scores: the character CNN and the layers of both directions. Features need no more."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = CharacterCNN(config.filters, config.width, config.byte_width, config.highways)
        self.forward_stack, self.backward_stack = (_stack(config, direction) for direction in DIRECTIONS)
        self.dropout = nn.Dropout(config.dropout)

    def stack(self, direction: str) -> Stack:
        return self.forward_stack if direction == "forward" else self.backward_stack

    def begin(self, direction: str, rows: int) -> States:
        """The initial states."""
        return self.stack(direction).begin(rows)

    def read(
        self, direction: str, x: Tensor, lengths: tuple[int, ...], states: States | None = None
    ) -> tuple[tuple[Tensor, ...], States]:
        """Vectors of tokens (N, P) of concatenated rows → (N, P) of every layer, and the states after each row: at its
        end, or backward at its start."""
        return self.stack(direction)(self.dropout(x), lengths, states)

    def layers(self, x: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        """Yield the layers for vectors of tokens (N, P) of concatenated rows: the forward ones, then the independent
        backward ones."""
        for direction in DIRECTIONS:
            yield from self.stack(direction).run_layers("elmo", self.dropout(x), lengths)

    def vectors(self, x: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Vectors of tokens (N, P) of concatenated rows → (N, K, 2 P): both directions of each layer, concatenated.
        Every row starts with the initial state."""
        ways = [(x, *self.read(direction, x, lengths)[0]) for direction in DIRECTIONS]
        return torch.stack([torch.cat(pair, dim=-1) for pair in zip(*ways, strict=True)], dim=1)


class Elmo(BothWays):
    spelled: Tensor

    def __init__(self, config: ElmoConfig, tokens: Sequence[str]) -> None:
        """`tokens` is the vocabulary by id."""
        super().__init__(config)
        assert len(tokens) == config.vocabulary_size, f"{len(tokens)} tokens of {config.vocabulary_size}"
        self.register_buffer("spelled", spell(tokens, config.longest), persistent=False)  # (V, L)
        self.scores = WordScores(config.vocabulary_size, config.width)

    def sizes(self) -> Tensor:
        """(V,) the number of bytes of each token, with its two boundary bytes."""
        return (self.spelled != PADDING_BYTE).sum(1)

    def spell(self, words: Tensor, groups: LengthGroups = ()) -> Tensor:
        """Ids (U,) → (U, P), the same in every sentence. If they are sorted by length, `groups` has the lengths, and
        short ones are not padded to the longest."""
        if not groups:
            return self.characters(self.spelled[words])
        parts = words.split([count for count, _ in groups])
        sizes = [longest for _, longest in groups]
        return self.characters(*(self.spelled[:, :size][part] for part, size in zip(parts, sizes, strict=True)))

    def predict(self, hidden: Tensor) -> Tensor:
        """(…, P) of one direction → logits (…, V) of its next token"""
        return self.scores(hidden, hidden)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the word scores x Eᵀ + b: x (M, P), E (V, P) and b (V,). Both directions share E."""
        return self.dropout(hidden), *self.scores.parts(hidden)

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Tokens (N,) of concatenated rows → (N, K, 2 P)"""
        words, place = ids.unique(return_inverse=True)
        return self.vectors(self.spell(words)[place], lengths)


class ElmoVectors(nn.Module):
    """One vector per token and layer; a mix of them is learned elsewhere."""

    spelled: Tensor

    def __init__(self, config: ElmoConfig, words: Tokenizer) -> None:
        super().__init__()
        self.network = BothWays(config)
        self.words = words
        with torch.device("cpu"):  # known from the vocabulary, also while all weights are still missing
            self.register_buffer("spelled", spell(tokens_by_id(words), config.longest), persistent=False)  # (V, L)

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Tokens (N,) of concatenated rows → (N, K, 2 P)"""
        with torch.set_grad_enabled(needs_gradient(self)):
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
        return torch.cat(
            [functional.pad(part, (0, longest - part.shape[1]), value=PADDING_BYTE) for part in (known, found)]
        )


def tokens_by_id(tokenizer: Tokenizer) -> list[str]:
    """The tokens of a vocabulary by id; "" for unused ids."""
    tokens = [""] * tokenizer.size
    for token, number in tokenizer.vocabulary.items():
        tokens[number] = token
    return tokens


def _stack(config: ElmoConfig, direction: str) -> Stack:
    cells = [
        LSTM(config.width, config.cell_width, config.width, config.clip, config.clip) for _ in range(config.layers)
    ]
    return Stack(cells, dropout=config.dropout, residual=True, reverse=direction == "backward")


class ScalarMix(nn.Module):
    """γ Σ s x: one vector from those of all layers, with weights s that sum to 1 (equation 1 of the paper)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def shares(self) -> Tensor:
        """(K,)"""
        return self.weights.softmax(0)

    def forward(self, x: Tensor) -> Tensor:
        """(N, K, D) → (N, D)"""
        return self.gamma * (self.shares() @ x)
