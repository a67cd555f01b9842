"""What a precision costs: the first texts of a work are computed in fp32, too, and compared.

Shapes: E texts, M tokens of all of them, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.api.embedder import scale_to_unit
from qkv.api.model import Model
from qkv.data.labelled.examples import Example

MEASURED = 32
"""Texts that are computed twice: about a second for a model of 100 M parameters on two cores."""


@dataclass(frozen=True)
class VectorCost:
    """The cosine of vectors in a precision with those in fp32."""

    precision: str
    n_texts: int
    worst: float
    mean: float


@dataclass(frozen=True)
class ResultCost:
    """Results in a precision and in fp32."""

    precision: str
    n_texts: int
    n_same: int  # the same label, entities, answer, choice
    largest_change: float  # of a probability or another number, where they are the same


def measure_vectors(
    model: Model, texts: Sequence[str], pooling: str | None = None, layer: int | None = None, tokens: bool = False
) -> VectorCost:
    """Compare the vectors of texts, or of their tokens, with those in fp32."""
    exact = model.with_precision("fp32")
    if tokens:
        vectors = [
            np.concatenate([one.vectors for one in which.embed_tokens(texts, layer=layer)]) for which in (model, exact)
        ]  # (M, D) each
    else:
        vectors = [which.embed(texts, pooling, layer=layer).vectors for which in (model, exact)]  # (E, D) each
    cosines = np.einsum("nd,nd->n", *map(scale_to_unit, vectors))
    return VectorCost(model.precision, len(texts), float(cosines.min()), float(cosines.mean()))


def measure_results(model: Model, examples: Sequence[Example], results: Sequence[Any]) -> ResultCost:
    """Compare results of `Model.answer_stream` with those in fp32."""
    exact = model.with_precision("fp32").solver.answers(examples)
    same, change = 0, 0.0
    for own, other in zip(results, exact, strict=True):
        numbers: list[float] = []
        others: list[float] = []
        if _without_numbers(own.to_dict(), numbers) == _without_numbers(other.to_dict(), others):
            same += 1
            change = max([change, *(abs(a - b) for a, b in zip(numbers, others, strict=True))])
    return ResultCost(model.precision, len(examples), same, change)


def _without_numbers(value: Any, numbers: list[float]) -> Any:
    """A JSON value without its floats, which are added to `numbers`; tables are in the order of their keys.

    >>> found = []
    >>> _without_numbers({"label": "a", "probability": 0.5, "n_tokens": 3}, found), found
    ([('label', 'a'), ('n_tokens', 3), ('probability', None)], [0.5])
    """
    if isinstance(value, float):
        numbers.append(value)
        return None
    if isinstance(value, dict):
        return [(key, _without_numbers(value[key], numbers)) for key in sorted(value)]
    return [_without_numbers(one, numbers) for one in value] if isinstance(value, list | tuple) else value


def watch_results(
    model: Model, parts: Iterator[tuple[list[Example], list[Any]]], tell: Callable[[ResultCost], None]
) -> Iterator[tuple[list[Example], list[Any]]]:
    """The parts of `Model.answer_stream`; `tell` is given the `ResultCost` of the first results."""
    for number, (examples, results) in enumerate(parts):
        if number == 0:
            tell(measure_results(model, examples[:MEASURED], results[:MEASURED]))
        yield examples, results
