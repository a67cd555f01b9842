"""The tags of a head: "O" outside, "B-x" where a span with label x begins, "I-x" where it goes on.

This is IOB2, in which every span begins with B: the one scheme that models are trained with here. Files may be written
in others (data/labelled.py reads them). I-x may follow only B-x or I-x, and no text starts with I.

Shapes: L tags.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.nn.crf import Potentials

OUTSIDE = "O"


class TagLabels:
    """
    >>> TagLabels.of(["PER", "LOC"]).names
    ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')
    """

    def __init__(self, names: Sequence[str]) -> None:
        """In any order, as a saved head has them."""
        self.names = tuple(names)
        numbers = {name: number for number, name in enumerate(self.names)}
        labels = [name[2:] for name in self.names if name.startswith("B-")]
        if set(self.names) != {OUTSIDE} | {f"{letter}-{label}" for letter in "BI" for label in labels} or "" in labels:
            shown = ", ".join(map(repr, self.names[:12]))
            raise InputError(
                f"The model's labels are {shown}: a tagger has 'O', and 'B-x' and 'I-x' for every x. "
                "Train a model with `qkv finetune tag`, or give one that has them."
            )
        self.labels = tuple(labels)
        self.outside = numbers[OUTSIDE]
        self.tags = {label: (numbers[f"B-{label}"], numbers[f"I-{label}"]) for label in labels}
        self.begins = np.array([name.startswith("B-") for name in self.names])  # (L,)
        self.inside = np.array([name.startswith("I-") for name in self.names])
        self.label_of = ["" if name == OUTSIDE else name[2:] for name in self.names]
        self.inside_of = np.array([numbers.get(f"I-{label}", -1) for label in self.label_of])  # (L,) B-x, I-x → I-x
        same = np.array(self.label_of)[:, None] == np.array(self.label_of)  # (L, L)
        self.allowed = ~self.inside | same  # (L, L) from row to column

    @classmethod
    def of(cls, labels: Sequence[str]) -> "TagLabels":
        return cls([OUTSIDE, *(f"{letter}-{label}" for label in sorted(labels) for letter in "BI")])

    def rules(self, like: Tensor) -> Potentials:
        """0 for what is allowed, −inf for what is not, on the device and in the precision of `like`."""
        start = torch.zeros(len(self.names), dtype=like.dtype, device=like.device)
        start = start.masked_fill(torch.from_numpy(self.inside).to(like.device), float("-inf"))
        transitions = start.new_zeros(len(self.names), len(self.names))
        transitions = transitions.masked_fill(torch.from_numpy(~self.allowed).to(like.device), float("-inf"))
        return Potentials(start, transitions, torch.zeros_like(start))
