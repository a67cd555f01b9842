"""What a tagger answers: entities as spans of the user's characters; and how good its answers are.

An entity is right when its start, its end and its label are exactly what the file says, character for character: the
figures are conlleval's where spans lie on words, and hold for texts that nobody cut into words too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from qkv.data.examples import Span, TagExample
from qkv.metrics.entities import EntityCounts
from qkv.tasks.task import LabelScore, Scored


class Entity(NamedTuple):
    start: int  # text[start:end]
    end: int
    label: str
    text: str
    probability: float  # that just this span has this label
    abstained: bool = False  # less sure than the model was found to need


@dataclass(frozen=True)
class TagResult:
    entities: tuple[Entity, ...]  # in the order of the text
    n_tokens: int
    n_windows: int
    probability: float = math.nan  # that all of it is right: of the whole path of tags
    loss: float = math.nan  # −log probability of the spans that the example came with; nan: it came without

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(Span(entity.start, entity.end, entity.label) for entity in self.entities)

    def to_dict(self) -> dict[str, Any]:
        return {
            "entities": [entity._asdict() for entity in self.entities],
            "n_tokens": self.n_tokens,
            "n_windows": self.n_windows,
        }


class TagScorer:
    """Keeps counts, no texts."""

    def __init__(self) -> None:
        self._counts = EntityCounts()

    def add(self, examples: Sequence[TagExample], results: Sequence[TagResult]) -> None:
        for example, result in zip(examples, results, strict=True):
            assert example.spans is not None, "an example without labels cannot be scored"
            self._counts.add(example.spans, result.spans)

    def result(self, intervals: bool = True) -> Scored:
        counts = self._counts
        return Scored(
            main="f1",
            values=counts.values(),
            intervals=counts.intervals() if intervals else {},
            n=counts.documents,
            per_label=tuple(
                LabelScore(label, score.precision, score.recall, score.f1, score.expected, score.answered)
                for label, score in counts.per_label().items()
            ),
        )


def in_words(text: str, spans: Sequence[Span]) -> str:
    """
    >>> in_words("Tom 在北京", [Span(5, 7, "LOC"), Span(0, 3, "PER")])
    'PER Tom; LOC 北京'
    >>> in_words("nobody", [])
    '–'
    """
    return "; ".join(f"{label} {text[start:end]}" for start, end, label in sorted(spans)) or "–"
