"""What decoding gives back, and how texts of different lengths are compared.

    score(Y, X) = log P(Y | X) / lp(Y) + cp(X, Y)
    lp(Y) = |Y|^α  or, as in GNMT (Wu et al. 2016, equation 14), ((5 + |Y|) / 6)^α

|Y| counts the end. cp stands in coverage.py.

Shapes: S tokens of a source.
"""

from dataclasses import dataclass, field

from torch import Tensor

from qkv.generate.options import GenerateConfig


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without begin and end
    # the network's own for the tokens and, where there is one, the end, whatever else was forbidden or made likelier;
    # with `renormalise`, among all tokens but those that are never written
    log_probability: float
    score: float  # what hypotheses are ranked by
    finished: bool  # False: it stopped because it was too long, not because it was done
    # (n_tokens, S): what each token looked at, as wide as its source; tensors have no == that is true or false
    attention: Tensor | None = field(default=None, compare=False)


def normalised(log_probability: float, length: int, config: GenerateConfig) -> float:
    """`length` is that of the text with its end."""
    base = length if config.length_formula == "power" else (5 + length) / 6
    return float(log_probability / base**config.length_penalty)
