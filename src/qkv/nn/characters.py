"""A vector for a token from how it is spelled (Kim et al. 2016, as Peters et al. 2018 use it for ELMo).

The characters are the bytes of its UTF-8, so that 256 of them spell every language; 猫 is three of them. A mark stands
before the first and another one after the last. Convolutions of width 1, 2, … look at so many bytes at a time, of each
filter the largest value is kept wherever it was found, and highway layers (Srivastava et al. 2015) and a projection mix
what was found.

A window begins at every byte of a token; past its end lie zeros. How far others are padded does nothing to a token.

Shapes: U tokens, L bytes of the longest with its marks, C width of a byte, F filters of all widths together, P output.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

PADDING_BYTE, BEGIN_BYTE, END_BYTE = 256, 257, 258  # after the bytes


def spell(tokens: Sequence[str], longest: int = 50) -> Tensor:
    """(U, L) int16: the bytes of each token between its marks; a token of more than `longest` is cut.

    >>> spell(["a", "##是"]).tolist()
    [[257, 97, 258, 256, 256, 256, 256], [257, 35, 35, 230, 152, 175, 258]]
    """
    assert longest > 2, "there must be room for a byte between the marks"
    written = [token.encode()[: longest - 2] for token in tokens]
    # a buffer must not be empty: one byte more
    letters = torch.frombuffer(bytearray(b"".join(written) + b" "), dtype=torch.uint8)[:-1]
    ends = torch.tensor([len(one) + 1 for one in written])[:, None]  # (U, 1)
    found = torch.full((len(written), int(ends.max()) + 1), PADDING_BYTE, dtype=torch.int16)
    place = torch.arange(found.shape[1])
    found[(place > 0) & (place < ends)] = letters.short()
    found[:, 0] = BEGIN_BYTE
    return found.scatter_(1, ends, END_BYTE)


LengthGroups = tuple[tuple[int, int], ...]
"""How many tokens, and how many bytes the longest of them has; one group after the other."""


def group_by_length(sizes: Sequence[int]) -> LengthGroups:
    """Tokens in groups of similar length: the shorter half, most of the rest, the long ones. `sizes` are their bytes,
    marks included, in ascending order.

    >>> group_by_length([3, 3, 4, 5, 6, 7, 9, 20])
    ((4, 5), (3, 9), (1, 20))
    """
    ends = sorted({len(sizes) // 2, len(sizes) * 7 // 8, len(sizes)} - {0})
    return tuple((end - begin, int(sizes[end - 1])) for begin, end in zip([0, *ends[:-1]], ends, strict=True))


class Highway(nn.Module):
    """g relu(W x + b) + (1 − g) x, where g = σ(V x + c): it begins by letting most of x pass."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * functional.relu(self.change(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    def __init__(self, filters: Sequence[int], width: int, byte_width: int = 16, highways: int = 2) -> None:
        """`filters` are how many there are of width 1, 2, …; `width` is that of the output."""
        super().__init__()
        self.embedding = nn.Embedding(END_BYTE + 1, byte_width, padding_idx=PADDING_BYTE)
        nn.init.uniform_(self.embedding.weight, -1, 1)
        nn.init.zeros_(self.embedding.weight[PADDING_BYTE].detach())
        self.convolutions = nn.ModuleList(
            nn.Conv1d(byte_width, count, kernel) for kernel, count in enumerate(filters, start=1)
        )
        self.highways = nn.ModuleList(Highway(sum(filters)) for _ in range(highways))
        self.project = nn.Linear(sum(filters), width)

    def forward(self, *spelled: Tensor) -> Tensor:
        """Bytes (U, L) of `spell` → (U, P); given in several parts, each of its own length, those of all one after the
        other: short tokens need not be padded to the longest (`by_length`)."""
        x = functional.relu(torch.cat([self._found(part) for part in spelled]))  # (U, F)
        for highway in self.highways:
            x = highway(x)
        return self.project(x)

    def _found(self, spelled: Tensor) -> Tensor:
        """(U, L) → (U, F)"""
        there = spelled != PADDING_BYTE  # (U, L)
        if not spelled.is_cuda:  # to ask a GPU how long they are takes longer than to compute zeros
            longest = int(there.sum(1).max())
            spelled, there = spelled[:, :longest], there[:, :longest]
        widest = len(self.convolutions)
        x = self.embedding(
            functional.pad(spelled, (0, widest - 1), value=PADDING_BYTE).long()
        )  # (U, L + widest - 1, C)
        # One product for all widths, the narrow ones with zeros behind: a convolution of its own for each would make a
        # GPU look for its way anew whenever the number of tokens is another one, which it is at every step.
        weights, biases = zip(*(one.parameters() for one in self.convolutions), strict=True)
        weight = torch.cat([functional.pad(one, (0, widest - one.shape[-1])) for one in weights])  # (F, C, widest)
        windows = x.unfold(1, widest, 1).flatten(2)  # (U, L, C widest)
        found = functional.linear(windows, weight.flatten(1))  # (U, L, F), the largest tensor there is
        highest = found.masked_fill_(~there[..., None], float("-inf")).amax(1)
        return highest + torch.cat(biases).to(highest.dtype)
