"""From words to vectors by their spelling, and from vectors to a score for every word of the vocabulary.

Shapes: D width, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class WordScores(nn.Module):
    """x Eᵀ + b. If tied, E is the input embedding, passed by the caller so that it remains one parameter (Press and
    Wolf 2017); otherwise it is a separate table."""

    def __init__(self, vocabulary: int, width: int, tied: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.table = None if tied else nn.Parameter(torch.empty(vocabulary, width))
        if self.table is not None:
            nn.init.uniform_(self.table, -(width**-0.5), width**-0.5)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        return functional.linear(x, self._table(embedding), self.bias)

    def parts(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """E (V, D) and b (V,), for a loss that avoids storing all scores."""
        return self._table(embedding), self.bias

    def _table(self, embedding: Tensor) -> Tensor:
        return embedding if self.table is None else self.table


# --- Token vectors from spelling: a character CNN (Kim et al. 2016, as Peters et al. 2018 use it for ELMo).
#
# The characters are UTF-8 bytes, so that 256 of them cover every language; 猫 is three. A special byte precedes the
# first and another follows the last. Convolutions of width 1, 2, … read that many bytes; each filter is max-pooled over
# the token; highway layers (Srivastava et al. 2015) and a projection follow.
#
# A window starts at every byte of a token, with zeros past its end, so that padding does not change a token's vector.
#
# Shapes: U tokens, L bytes of the longest with both special bytes, C width of a byte, F filters of all widths, P
# output.

PADDING_BYTE, BEGIN_BYTE, END_BYTE = 256, 257, 258  # after the bytes


def spell(tokens: Sequence[str], longest: int = 50) -> Tensor:
    """(U, L) int16: the bytes of each token between begin and end; a token longer than `longest` is truncated.

    >>> spell(["a", "##是"]).tolist()
    [[257, 97, 258, 256, 256, 256, 256], [257, 35, 35, 230, 152, 175, 258]]
    """
    assert longest > 2, "there must be room for a byte between begin and end"
    written = [token.encode()[: longest - 2] for token in tokens]
    # one extra byte: frombuffer rejects an empty buffer
    letters = torch.frombuffer(bytearray(b"".join(written) + b" "), dtype=torch.uint8)[:-1]
    ends = torch.tensor([len(one) + 1 for one in written])[:, None]  # (U, 1)
    found = torch.full((len(written), int(ends.max()) + 1), PADDING_BYTE, dtype=torch.int16)
    place = torch.arange(found.shape[1])
    found[(place > 0) & (place < ends)] = letters.short()
    found[:, 0] = BEGIN_BYTE
    return found.scatter_(1, ends, END_BYTE)


LengthGroups = tuple[tuple[int, int], ...]
"""For each group: number of tokens, bytes of the longest."""


def group_by_length(sizes: Sequence[int]) -> LengthGroups:
    """Groups tokens of similar length: the shorter half, the next three eighths, the longest eighth. `sizes` are their
    bytes, begin and end included, in ascending order.

    >>> group_by_length([3, 3, 4, 5, 6, 7, 9, 20])
    ((4, 5), (3, 9), (1, 20))
    """
    ends = sorted({len(sizes) // 2, len(sizes) * 7 // 8, len(sizes)} - {0})
    return tuple((end - begin, int(sizes[end - 1])) for begin, end in zip([0, *ends[:-1]], ends, strict=True))


class Highway(nn.Module):
    """g relu(W x + b) + (1 − g) x, where g = σ(V x + c); initially most of x passes unchanged."""

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
        """`filters`: number of filters of width 1, 2, …; `width`: output width."""
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
        """Bytes (U, L) from `spell` → (U, P). Several parts of different L are concatenated, so that short tokens need
        not be padded to the longest (`group_by_length`)."""
        x = functional.relu(torch.cat([self._found(part) for part in spelled]))  # (U, F)
        for highway in self.highways:
            x = highway(x)
        return self.project(x)

    def _found(self, spelled: Tensor) -> Tensor:
        """(U, L) → (U, F)"""
        there = spelled != PADDING_BYTE  # (U, L)
        if not spelled.is_cuda:  # on a GPU the synchronisation costs more than computing zeros
            longest = int(there.sum(1).max())
            spelled, there = spelled[:, :longest], there[:, :longest]
        widest = len(self.convolutions)
        x = self.embedding(
            functional.pad(spelled, (0, widest - 1), value=PADDING_BYTE).long()
        )  # (U, L + widest - 1, C)
        # One product for all widths, narrow filters padded with zeros: separate convolutions would make cuDNN search
        # for an algorithm at every step, since the number of tokens changes.
        weights, biases = zip(*(one.parameters() for one in self.convolutions), strict=True)
        weight = torch.cat([functional.pad(one, (0, widest - one.shape[-1])) for one in weights])  # (F, C, widest)
        windows = x.unfold(1, widest, 1).flatten(2)  # (U, L, C widest)
        found = functional.linear(windows, weight.flatten(1))  # (U, L, F)
        highest = found.masked_fill_(~there[..., None], float("-inf")).amax(1)
        return highest + torch.cat(biases).to(highest.dtype)
