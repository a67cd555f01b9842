"""A network that is all chance and yet always the same: what it would write next follows from source and text alone.

It remembers nothing but the text, so that whatever a search does wrong with rows shows in what comes out.
"""

import itertools
import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.search.decoding import Stepped

END = 0
BEGIN = 9  # beyond the vocabularies of these tests: it is never written


@dataclass
class Remembered:
    rows: list[tuple[int, tuple[int, ...]]]  # source and text, begin included

    def select(self, rows: Tensor) -> "Remembered":
        return Remembered([self.rows[row] for row in rows.tolist()])


class Babbler:
    def __init__(
        self,
        vocabulary: int,
        seed: int = 0,
        source_lengths: tuple[int, ...] = (3,),
        looks: bool = True,
        first: int = BEGIN,
    ) -> None:
        self.vocabulary = vocabulary
        self.seed = seed
        self.source_lengths = source_lengths
        self.looks = looks
        self.first = first  # what texts begin with
        self.n_rows: list[int] = []  # in each step so far
        self._known: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    def start(self, hypotheses: int = 1, numbers: tuple[int, ...] | None = None) -> Remembered:
        """`numbers`: which sources, where not all of them."""
        numbers = tuple(range(len(self.source_lengths))) if numbers is None else numbers
        return Remembered([(number, ()) for number in numbers for _ in range(hypotheses)])

    def begin(self, n_sources: int | None = None) -> Tensor:
        return torch.full((len(self.source_lengths) if n_sources is None else n_sources,), self.first)

    def logits(self, source: int, text: tuple[int, ...]) -> Tensor:
        """(V,) after a text, begin included."""
        return self._both(source, text)[0]

    def attention(self, source: int, text: tuple[int, ...]) -> Tensor:
        """(S,)"""
        return self._both(source, text)[1]

    def _both(self, source: int, text: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        if (source, text) not in self._known:
            chance = torch.Generator().manual_seed(zlib.crc32(repr((self.seed, source, text)).encode()))
            looked = torch.zeros(max(self.source_lengths))
            n = self.source_lengths[source]
            looked[:n] = (torch.randn(n, generator=chance) * 2).softmax(dim=0)
            self._known[source, text] = torch.randn(self.vocabulary, generator=chance) * 2, looked
        return self._known[source, text]

    def step(self, tokens: Tensor, state: Remembered) -> Stepped[Remembered]:
        assert len(tokens) == len(state.rows)
        self.n_rows.append(len(tokens))
        rows = [(source, (*text, token)) for (source, text), token in zip(state.rows, tokens.tolist(), strict=True)]
        logits = torch.stack([self.logits(*row) for row in rows])
        attention = torch.stack([self.attention(*row) for row in rows]) if self.looks else None
        return Stepped(logits, Remembered(rows), attention)

    def log_probability(self, source: int, tokens: tuple[int, ...]) -> float:
        """Of tokens after begin; with the end, where that is the last of them."""
        text = (self.first, *tokens)
        return sum(
            float(self.logits(source, text[:place]).log_softmax(dim=0)[text[place]]) for place in range(1, len(text))
        )

    def looked(self, source: int, tokens: tuple[int, ...]) -> Tensor:
        """(tokens, S): what each of them looked at."""
        text = (self.first, *tokens)
        return torch.stack([self.attention(source, text[:place]) for place in range(1, len(text))])

    def all_texts(self, longest: int) -> list[tuple[int, ...]]:
        """Everything that can be written: with its end, or cut off where it is as long as it may be."""
        words = range(1, self.vocabulary)
        ended = [(*text, END) for length in range(longest) for text in itertools.product(words, repeat=length)]
        return ended + list(itertools.product(words, repeat=longest))


def ranked(babbler: Babbler, source: int, longest: int, length_penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """All texts with their scores, best first: beam search by brute force."""
    found = [
        (babbler.log_probability(source, text) / math.pow(len(text), length_penalty), text)
        for text in babbler.all_texts(longest)
    ]
    return sorted(found, reverse=True)
