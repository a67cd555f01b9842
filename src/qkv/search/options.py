"""Decoding options with defaults and validation, and the constraints on scores that they imply (`Controls`).

Lengths are in tokens. Values mean the same as in the corresponding options of transformers.

>>> GenerateConfig.of({"beams": 4, "n_best": 2}).hypotheses
4
>>> GenerateConfig.of({"beam": 4})
Traceback (most recent call last):
...
qkv.errors.InputError: Unknown decoding option 'beam'. Did you mean 'beams'?
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from qkv.config import COMMAND_LINE, check_known, merge
from qkv.errors import InputError, did_you_mean

STOPPING = ("estimate", "enough", "never")
LENGTH_FORMULAS = ("power", "gnmt")
SAMPLING_DEFAULTS: Mapping[str, Any] = {"temperature": 0.8, "top_k": 40}
"""Default sampling options of text generation."""

NAMES_ELSEWHERE = {
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
"""Names of these options in other programs, for hints in error messages."""


@dataclass(frozen=True)
class GenerateConfig:
    """Greedy search unless `beams` or `sample` is set."""

    beams: int = 1  # beam width; 1: greedy
    n_best: int = 1  # texts returned per source
    max_length: int = 256  # maximum number of tokens, including the end token
    max_ratio: float | None = None  # maximum ratio of target to source tokens, plus LENGTH_MARGIN
    min_length: int = 0  # minimum number of tokens before the end token
    # comparison of texts of different lengths
    length_penalty: float = 1.0  # α: log P is divided by length ** α; 0: no penalty; larger values favour long texts
    length_formula: str = "power"  # or "gnmt": divided by ((5 + length) / 6) ** α, as in the Transformer's paper
    coverage_penalty: float = 0.0  # β of GNMT (equation 14): penalises source tokens without attention
    stopping: str = "estimate"  # of beam search; see beam.py
    renormalise: bool = False  # renormalise probabilities over the allowed tokens, as OPUS-MT expects
    # repetition
    repetition_penalty: float = 1.0  # above 1: lowers the scores of tokens generated before
    no_repeat: int = 0  # no n-gram of this size occurs twice; 0: no limit
    # sampling
    sample: bool = False
    temperature: float = 1.0  # below 1: sharper distribution
    top_k: int | None = None  # sample from the k most likely tokens
    top_p: float = 1.0  # nucleus sampling: smallest set of tokens with this total probability
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
                f"min_length {self.min_length} leaves no room for the end token: max_length, which includes it, is "
                f"{self.max_length}."
            )
        check_known(self, stopping=STOPPING, length_formula=LENGTH_FORMULAS)
        if self.sample and self.beams > 1:
            raise InputError(f"Choose one: sample, or beams = {self.beams}.")
        if not self.sample:
            if self.n_best > self.beams:
                raise InputError(f"n_best {self.n_best} needs at least as many beams, not {self.beams}; or sample.")
            for field in dataclasses.fields(self):
                if field.name in ("temperature", "top_k", "top_p") and getattr(self, field.name) != field.default:
                    raise InputError(f"{field.name} is for sampling: add sample, or leave {field.name} out.")

    @classmethod
    def of(cls, options: Mapping[str, Any], where: str = COMMAND_LINE) -> Self:
        """From a table of options. Error messages name `where`, unless it is the command line."""
        start = "" if where == COMMAND_LINE else f"{where}: "
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                near = (
                    f" Did you mean '{NAMES_ELSEWHERE[name]}'?"
                    if name in NAMES_ELSEWHERE
                    else did_you_mean(name, known)
                )
                hint = near or f" Known: {', '.join(known)}."
                raise InputError(f"{start}Unknown decoding option '{name}'.{hint}")
        return merge(cls(), options, where)

    @property
    def hypotheses(self) -> int:
        """Rows per source, an argument of a model's `start`."""
        return self.n_best if self.sample else self.beams

    def limit(self, source_length: int | None = None) -> int:
        """The maximum number of tokens for a source, including the end token."""
        if self.max_ratio is None or source_length is None:
            return self.max_length
        # the margin is for short sources: three tokens may become eight
        return min(self.max_length, max(math.ceil(self.max_ratio * source_length) + LENGTH_MARGIN, self.min_length + 1))


LENGTH_MARGIN = 10


def _check(config: GenerateConfig, name: str, least: int) -> None:
    value = getattr(config, name)
    if value is not None and not least <= value < math.inf:
        raise InputError(f"{name} must be at least {least}, not {value}.")


class Controls:
    """Minimum length, repetition and forbidden tokens, applied to scores in place before a token is chosen.

    With beams the scores are log probabilities, otherwise logits, as in transformers; they are renormalised only with
    `renormalise`.

    Shapes: Q rows, T tokens so far including the begin token, V vocabulary.
    """

    def __init__(self, config: GenerateConfig, end: int, never: Sequence[int], begin: Tensor) -> None:
        """`begin` (Q,): the first token of every row; `never`: tokens that are never generated."""
        self.repetition_penalty = config.repetition_penalty
        self.no_repeat = config.no_repeat
        self.min_length = config.min_length
        self.renormalise = config.renormalise
        self.end = end
        self.never = torch.tensor(sorted(set(never)), dtype=torch.int64, device=begin.device) if never else None
        self.remembers = self.repetition_penalty != 1 or self.no_repeat > 0
        self.history = begin[:, None]  # (Q, T); T stays 1 unless `remembers`

    @property
    def changes_scores(self) -> bool:
        """Whether the scores of allowed tokens may be changed."""
        return self.repetition_penalty != 1

    def forbids_more(self, n_written: int) -> bool:
        """Whether tokens other than `never` may be forbidden at this step."""
        return self.no_repeat > 0 or n_written < self.min_length

    def forbid(self, scores: Tensor) -> None:
        """(Q, V), in place: forbid the tokens `never`."""
        if self.never is not None:
            scores.index_fill_(1, self.never, -torch.inf)

    def apply(self, scores: Tensor, n_written: int) -> None:
        """(Q, V), in place. Every row has `n_written` tokens, the begin token not counted."""
        if self.remembers:
            # a begin token that is also the end token does not count as generated
            ends = self.history[:, 0] == self.end
            own = scores[:, self.end].clone()  # (Q,)
            if self.repetition_penalty != 1:
                penalise(scores, self.history, self.repetition_penalty)
            if self.no_repeat:
                forbid_repeats(scores, self.history, self.no_repeat)
            scores[:, self.end] = torch.where(ends, own, scores[:, self.end])
        self.forbid(scores)
        if n_written < self.min_length:
            scores[:, self.end] = -torch.inf

    def follow(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """(Q',): the new tokens. Row i becomes the former row rows[i] (None: rows are unchanged)."""
        if self.remembers:
            kept = self.history if rows is None else self.history[rows]
            self.history = torch.cat([kept, tokens[:, None]], dim=1)


def penalise(scores: Tensor, history: Tensor, penalty: float) -> None:
    """Divide the scores (Q, V) of tokens in the history (Q, T) by the penalty, or multiply negative ones
    (CTRL: Keskar et al. 2019, section 4.1; the sign is transformers' addition)."""
    found = scores.gather(1, history)  # (Q, T)
    scores.scatter_(1, history, torch.where(found < 0, found * penalty, found / penalty))


def forbid_repeats(scores: Tensor, history: Tensor, n: int) -> None:
    """Forbid tokens (Q, V) that would complete an n-gram already in the history (Q, T)."""
    if history.shape[1] < n:
        return
    runs = history.unfold(1, n, 1)  # (Q, T - n + 1, n)
    now = history[:, history.shape[1] - n + 1 :]  # (Q, n - 1), the start of the current n-gram
    same = (runs[:, :, :-1] == now[:, None]).all(dim=2)  # (Q, T - n + 1)
    # the minimum of the score and ±∞: a token may end several n-grams, not all with the same start
    limits = torch.full_like(same, torch.inf, dtype=scores.dtype).masked_fill_(same, -torch.inf)
    scores.scatter_reduce_(1, runs[:, :, -1], limits, "amin")
