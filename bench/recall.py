"""Delayed recall: a symbol after a mark is to be named at the end of the row, so and so many steps later.

    3 0 5 MARK 2 7 7 1 0 6 4 ASK        the answer is 2, which stands 7 steps before ASK

Everything but MARK and ASK is drawn from one alphabet, so that the symbol looks like the distractors around it: where
it stands is all that tells it apart. Guessing is right once in `SYMBOLS` times.

What this file does NOT do: train or measure anything (distance.py).

Shapes: R rows, T tokens of a row.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SYMBOLS = 8
MARK, ASK = SYMBOLS, SYMBOLS + 1
VOCABULARY = SYMBOLS + 2
BEFORE = 3
"""Tokens of a row before the symbol of the largest distance, the mark among them."""


@dataclass(frozen=True)
class Rows:
    tokens: Tensor  # (R, T)
    answers: Tensor  # (R,)
    places: Tensor  # (R,) where the symbol stands


def rows_of(distances: Tensor, length: int, generator: torch.Generator) -> Rows:
    """Rows of one length whose symbols stand at these distances (R,) from their end, all at least 1."""
    farthest = int(distances.max())
    assert int(distances.min()) >= 1 and farthest + 2 <= length, f"a row of {length} has no room for {farthest}"
    rows = torch.arange(len(distances))
    tokens = torch.randint(0, SYMBOLS, (len(distances), length), generator=generator)
    places = length - 1 - distances
    answers = tokens[rows, places]
    tokens[rows, places - 1] = MARK
    tokens[:, -1] = ASK
    return Rows(tokens, answers, places)


def at_distance(rows: int, distance: int, generator: torch.Generator) -> Rows:
    """Rows of this distance and no other."""
    return rows_of(torch.full((rows,), distance), distance + BEFORE + 1, generator)


def up_to_distance(rows: int, farthest: int, generator: torch.Generator) -> Rows:
    """Rows of all distances from 1 to `farthest`, as many of 1 as of 2 and 3 together, and of 4 to 7."""
    exponents = torch.rand(rows, generator=generator) * math.log(farthest + 1)
    distances = exponents.exp().long().clamp(1, farthest)
    return rows_of(distances, farthest + BEFORE + 1, generator)
