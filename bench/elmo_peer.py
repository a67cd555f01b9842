"""ELMo as one writes it with torch.nn alone, for bench/elmo.py to be held against.

The letters of every token go through the convolutions, also of a token that was met before; both directions read the
same rectangle of text; scores are those of all words. The state is carried to the next batch.

Shapes: R rows, T tokens of each, L bytes of the longest token, P width of a direction, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.models.elmo.network import ElmoConfig
from qkv.nn.words import END_BYTE, PADDING_BYTE, spell


class Peer(nn.Module):
    spelled: Tensor

    def __init__(self, config: ElmoConfig, names: Sequence[str]) -> None:
        super().__init__()
        filters = sum(config.filters)
        self.register_buffer("spelled", spell(names, config.longest).long())
        self.bytes = nn.Embedding(END_BYTE + 1, config.byte_width, padding_idx=PADDING_BYTE)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.byte_width, count, kernel, padding=kernel - 1)
            for kernel, count in enumerate(config.filters, start=1)
        )
        self.highways = nn.ModuleList(nn.Linear(filters, 2 * filters) for _ in range(config.highways))
        self.project = nn.Linear(filters, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.ways = nn.ModuleList(
            nn.ModuleList(
                nn.LSTM(config.width, config.cell_width, proj_size=config.width, batch_first=True)
                for _ in range(config.layers)
            )
            for _ in range(2)
        )
        self.words = nn.Linear(config.width, config.vocabulary_size)
        self.states: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def forward(self, ids: Tensor) -> Tensor:
        """(R, T + 1) → the two losses, added"""
        loss = self.words.weight.new_zeros(())
        for direction, text in enumerate((ids, ids.flip(1))):
            x = self.dropout(self.vectors(text[:, :-1]))
            for number, layer in enumerate(self._layers(direction)):
                inputs = self.dropout(x) if number else x
                hidden, state = layer(inputs, self.states.get((direction, number)))
                self.states[direction, number] = (state[0].detach(), state[1].detach())
                x = hidden + inputs if number else hidden
            scores = self.words(self.dropout(x))  # (R, T, V)
            loss = loss + functional.cross_entropy(scores.flatten(0, 1).float(), text[:, 1:].flatten())
        return loss

    def _layers(self, direction: int) -> nn.ModuleList:
        layers = self.ways[direction]
        assert isinstance(layers, nn.ModuleList)
        return layers

    def vectors(self, ids: Tensor) -> Tensor:
        """(R, T) → (R, T, P)"""
        letters = self.bytes(self.spelled[ids.flatten()]).transpose(1, 2)  # (R · T, C, L)
        found = [functional.relu(convolution(letters).amax(-1)) for convolution in self.convolutions]
        x = torch.cat(found, dim=-1)
        for highway in self.highways:
            change, gate = highway(x).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            x = gate * functional.relu(change) + (1 - gate) * x
        return self.project(x).unflatten(0, ids.shape)
