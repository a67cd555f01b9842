"""Every decoding option with its default, checked, under one name each.

Lengths are counted in tokens. Where transformers has an option of the same meaning, the value means the same.

>>> GenerateConfig.of({"beams": 4, "n_best": 2}).hypotheses
4
>>> GenerateConfig.of({"beam": 4})
Traceback (most recent call last):
...
qkv.errors.InputError: Unknown decoding option 'beam'. Did you mean 'beams'?
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from qkv.config import COMMAND_LINE, merge
from qkv.errors import InputError, did_you_mean

STOPPING = ("estimate", "enough", "never")
LENGTH_FORMULAS = ("power", "gnmt")
CHANCE: Mapping[str, Any] = {"temperature": 0.8, "top_k": 40}
"""How tokens of a text that is written on are drawn if nobody says how."""

ELSEWHERE = {
    "num_beams": "beams",
    "beam_size": "beams",
    "num_return_sequences": "n_best",
    "do_sample": "sample",
    "max_new_tokens": "max_length",
    "min_new_tokens": "min_length",
    "no_repeat_ngram_size": "no_repeat",
    "renormalize_logits": "renormalise",
    "early_stopping": "stopping",
    "alpha": "length_penalty",
    "beta": "coverage_penalty",
}
"""What other programs call these options: for hints alone."""


@dataclass(frozen=True)
class GenerateConfig:
    """Greedy unless `beams` or `sample` say otherwise."""

    beams: int = 1  # hypotheses that beam search keeps of a source; 1: greedy
    n_best: int = 1  # how many texts of a source are given back
    max_length: int = 256  # tokens that are written at most, the end among them
    max_ratio: float | None = None  # at most so many tokens for each of the source, and MARGIN more
    min_length: int = 0  # the end is not written before so many tokens
    # how texts of different lengths are compared
    length_penalty: float = 1.0  # α: log P is divided by length ** α; 0: not at all; more favours long texts
    length_formula: str = "power"  # or "gnmt": divided by ((5 + length) / 6) ** α, as the Transformer's paper has it
    coverage_penalty: float = 0.0  # β of GNMT (equation 14): against source tokens that nothing looked at
    stopping: str = "estimate"  # of beam search; see beam.py
    renormalise: bool = False  # the probabilities of what may be written add up to 1 again: OPUS-MT asks for it
    # repetition
    repetition_penalty: float = 1.0  # above 1: tokens that were written before get less
    no_repeat: int = 0  # no run of so many tokens is written twice; 0: may be
    # chance
    sample: bool = False
    temperature: float = 1.0  # below 1: likely tokens become likelier
    top_k: int | None = None  # draw from the k likeliest
    top_p: float = 1.0  # draw from the likeliest that have this probability together
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("beams", 1), ("n_best", 1), ("max_length", 1), ("top_k", 1), ("min_length", 0)):
            _check(self, name, least)
        for name in ("no_repeat", "coverage_penalty", "seed"):
            _check(self, name, 0)
        if not -10 <= self.length_penalty <= 10:
            raise InputError(f"length_penalty is an exponent, from -10 to 10, not {self.length_penalty}.")
        for name in ("temperature", "repetition_penalty", "max_ratio", "top_p"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be a number above 0, not {value}.")
        if self.top_p > 1:
            raise InputError(f"top_p is a probability, above 0 and up to 1, not {self.top_p}.")
        if self.min_length >= self.max_length:
            raise InputError(
                f"min_length {self.min_length} leaves no room for the end: max_length, which counts it, is "
                f"{self.max_length}."
            )
        for name, value, known in (
            ("stopping", self.stopping, STOPPING),
            ("length_formula", self.length_formula, LENGTH_FORMULAS),
        ):
            if value not in known:
                raise InputError(f"Unknown {name} '{value}'.{did_you_mean(value, known)} Known: {', '.join(known)}.")
        if self.sample and self.beams > 1:
            raise InputError(f"Choose one: sample, or beams = {self.beams}.")
        if not self.sample:
            if self.n_best > self.beams:
                raise InputError(f"n_best {self.n_best} needs as many beams, not {self.beams}; or sample.")
            for field in dataclasses.fields(self):
                if field.name in ("temperature", "top_k", "top_p") and getattr(self, field.name) != field.default:
                    raise InputError(f"{field.name} is for drawing by chance: add sample, or leave {field.name} out.")

    @classmethod
    def of(cls, options: Mapping[str, Any], where: str = COMMAND_LINE) -> Self:
        """From a table of options. `where` is named where a value does not fit, unless it is the command line."""
        start = "" if where == COMMAND_LINE else f"{where}: "
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                near = f" Did you mean '{ELSEWHERE[name]}'?" if name in ELSEWHERE else did_you_mean(name, known)
                hint = near or f" Known: {', '.join(known)}."
                raise InputError(f"{start}Unknown decoding option '{name}'.{hint}")
        return merge(cls(), options, where)

    @property
    def hypotheses(self) -> int:
        """Rows of a source: what a model's `start` is to be told."""
        return self.n_best if self.sample else self.beams

    def limit(self, source_length: int | None = None) -> int:
        """Tokens that are written for a source at most, the end among them."""
        if self.max_ratio is None or source_length is None:
            return self.max_length
        # short sources need room too: three tokens may well become eight
        return min(self.max_length, max(math.ceil(self.max_ratio * source_length) + MARGIN, self.min_length + 1))


MARGIN = 10


def _check(config: GenerateConfig, name: str, least: int) -> None:
    value = getattr(config, name)
    if value is not None and not least <= value < math.inf:
        raise InputError(f"{name} must be at least {least}, not {value}.")
