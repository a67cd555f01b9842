"""Tagging: labelled spans of a text, such as names, from one tag per unit (BERT §5.3; with a CRF, Lample et al. 2016).

    Tom  lives  in  New   York       a tag for every unit: a word, a token, or a line of a column file
    B-PER  O    O   B-LOC I-LOC      read from the head at the first token of the unit (tag_units.py)

Tags are IOB2: I-x follows only B-x or I-x, and no text starts with I. Files may use other schemes
(data/labelled/column_files.py).

Loss: the mean cross entropy of units, each counted in one window; with a CRF the −log probability of the tags of a row.
In training, spans that begin or end inside a unit are widened to whole units, and `find_misaligned` lists them;
evaluation compares with the original characters: start, end and label must be equal, as in conlleval.

Decoding: the scores of all windows are merged, and the best valid path of the whole text is found. Both taggers are
chains (nn/crf.py); without a CRF the transitions are 0. The probability of an entity is the exact marginal of its span;
the temperature divides all scores of the chain. Overlapping spans are not supported: files with them are rejected,
unless the settings keep the outer ones; evaluation counts the inner ones as missed.

Shapes: E examples, R rows, N tokens of all rows, U units, M units of a batch, K entities, L tags.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from qkv.config import merge
from qkv.data.batch import IGNORE, Batch, Integers
from qkv.data.labelled.examples import NO_PLACE, Fault, Span, TagExample, relative_weights
from qkv.errors import InputError, did_you_mean
from qkv.metrics.spans import EntityCounts
from qkv.nn.crf import Beliefs, Chains, Potentials, compute_beliefs, log_partition, path_scores, viterbi
from qkv.tasks.tag_units import TagFeatures, cut_units, fit_spans, tokenize_texts
from qkv.tasks.task import (
    Calibration,
    FloatArray,
    Judgement,
    LabelScore,
    Makers,
    Scored,
    Scores,
    ShownPart,
    Sure,
    TagSettings,
    Task,
    Weighed,
    compute_f1,
    round_result,
)
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer
from qkv.train.loop import Term

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


# Results and scores.


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
    n_unknown: int = 0  # tokens that stand for what the vocabulary lacks
    abstained: ClassVar[bool] = False  # each entity says so for itself

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(Span(entity.start, entity.end, entity.label) for entity in self.entities)

    def to_dict(self) -> dict[str, Any]:
        return {
            "entities": [entity._asdict() for entity in self.entities],
            "n_tokens": self.n_tokens,
            "n_windows": self.n_windows,
            "n_unknown": self.n_unknown,
        }

    def shown(self, example: TagExample) -> list[ShownPart]:
        pieces, done = [], 0
        for entity in self.entities:
            pieces += [ShownPart(example.text[done : entity.start]), ShownPart(entity.text, "bold", entity.label)]
            done = entity.end
        pieces.append(ShownPart(example.text[done:]))
        for start, end, label, text, probability, _ in self.entities:
            pieces += [
                ShownPart(f"\n    {label:<8} ", label=label),
                ShownPart(f"{text}  [{start}:{end}]  {probability:.1%}"),
            ]
        return pieces if self.entities else [*pieces, ShownPart("\n    nothing found", "dim")]


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


def list_spans(text: str, spans: Sequence[Span]) -> str:
    """
    >>> list_spans("Tom 在北京", [Span(5, 7, "LOC"), Span(0, 3, "PER")])
    'PER Tom; LOC 北京'
    >>> list_spans("nobody", [])
    '–'
    """
    return "; ".join(f"{label} {text[start:end]}" for start, end, label in sorted(spans)) or "–"


# Checks.


def name_example(example: TagExample, number: int) -> str:
    return str(example.place) if example.place != NO_PLACE else f"Text {number}"


def check_example(example: TagExample, where: str, needs_labels: bool, may_nest: bool = False) -> None:
    """Spans and units inside the text, none empty, none over another."""
    if example.spans is None and needs_labels:
        raise InputError(f"{where} has no labels: not even the word that nothing is there. Give a labelled file.")
    spans = sorted(example.spans or ())
    for span in spans:
        _check_inside(span.start, span.end, f"the span {span.label}", example, where)
        if not span.label:
            raise InputError(f"{where}: the span {describe_span(example.text, span)} has an empty label. Name it.")
    if not may_nest and (pair := find_overlap(spans)):
        raise InputError(
            f"{where}: the spans {describe_span(example.text, pair[0])} and {describe_span(example.text, pair[1])} "
            "overlap, and a character has one label here. Take out one of them, or give --set tag.nested=outer: then "
            "the longer one is learned, and the other is listed."
        )
    units = example.units or ()
    for start, end in units:
        _check_inside(start, end, "the unit", example, where)
    for (_, stop), (start, _) in pairwise(units):
        if start < stop:
            raise InputError(f"{where}: a unit ends at character {stop}, after the next begins ({start}).")


def find_overlap(spans: Sequence[Span]) -> tuple[Span, Span] | None:
    """The first two that do, of spans in order."""
    return next(((one, other) for one, other in pairwise(spans) if other.start < one.end), None)


def keep_outermost(example: TagExample) -> TagExample:
    """Of spans that overlap, the longest; of equals, the first.

    >>> keep_outermost(TagExample("南京大学", (Span(0, 2, "LOC"), Span(0, 4, "ORG")))).spans
    (Span(start=0, end=4, label='ORG'),)
    """
    if example.spans is None or not find_overlap(sorted(example.spans)):
        return example
    kept: list[Span] = []
    for span in sorted(example.spans, key=lambda span: (span.start - span.end, span)):
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return replace(example, spans=tuple(sorted(kept)))


def _check_inside(start: int, end: int, what: str, example: TagExample, where: str) -> None:
    if not 0 <= start < end <= len(example.text):
        raise InputError(
            f"{where}: {what} goes from character {start} to {end}, in a text of {len(example.text)}. Characters are "
            "counted from 0, and the end is one past the last."
        )


def describe_span(text: str, span: Span) -> str:
    """
    >>> describe_span("Tom lives here", Span(0, 3, "PER"))
    "PER 'Tom' (characters 0 to 3)"
    """
    words = text[span.start : span.end]
    return f"{span.label} {words if len(words) <= 40 else words[:40] + '…'!r} (characters {span.start} to {span.end})"


def find_misaligned(tokenizer: Tokenizer, examples: Sequence[TagExample], unit: str) -> list[Fault]:
    """Every span that no whole units make up, or that lies in another, and what training takes instead.

    Each is "mended", also a span that is left out: its example stays, and "dropped" counts examples.
    """
    faults = []
    for example in examples:
        if len(kept := keep_outermost(example).spans or ()) < len(example.spans or ()):
            for span in sorted({*(example.spans or ())} - {*kept}):
                message = f"{describe_span(example.text, span)} overlaps a longer span: training leaves it out."
                faults.append(Fault(example.place, "overlapping", message, "mended"))
    examples = [keep_outermost(example) for example in examples]
    texts = [example.text for example in examples]
    units = cut_units(tokenize_texts(tokenizer, texts), texts, [example.units for example in examples], unit)
    spans = fit_spans(units, examples)
    for at in (~spans.exact).nonzero()[0].tolist():
        number = int(spans.example[at])
        text, begin = texts[number], int(units.text_begins[number])
        span = Span(int(spans.starts[at]), int(spans.ends[at]), spans.label[at])
        first, last = int(spans.first[at]), int(spans.last[at])
        if last < first:
            message = f"{describe_span(text, span)} holds no token of its own: training leaves it out."
        else:
            taken = Span(int(units.starts[first]) - begin, int(units.ends[last]) - begin, span.label)
            message = (
                f"{describe_span(text, span)} does not lie on whole units: training takes {describe_span(text, taken)}."
            )
        faults.append(Fault(examples[number].place, "misaligned", message, "mended"))
    return sorted(faults)


# The task.


TOO_MANY = 0.01
"""The share of spans from which on words are given up for pieces, if pieces can hold what words cannot."""


@dataclass(frozen=True)
class TagObjective:
    tags: TagLabels
    crf: bool
    class_weights: tuple[float, ...] | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: {"tag": 1.0})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"tag": len(batch.labels["tag"])}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, TaskModel)
        scores = model.scores(batch)[batch.labels["tag_at"]].float()  # (M, L)
        targets = batch.labels["tag"]
        if self.crf:
            # sums of exponentials need more digits than matrix products are given elsewhere
            with torch.autocast(scores.device.type, enabled=False):
                return {"tag": self._chain_term(scores, targets, batch, dict(model.extra))}
        losses = functional.cross_entropy(scores, targets, reduction="none")  # (M,)
        if self.class_weights is not None:
            losses = losses * scores.new_tensor(self.class_weights)[targets]
        if "tag_weight" in batch.labels:
            losses = losses * batch.labels["tag_weight"].repeat_interleave(batch.labels["tag_chains"])
        return {"tag": Term(losses.sum(), (scores.detach().argmax(-1) == targets).sum())}

    def _chain_term(self, scores: Tensor, targets: Tensor, batch: Batch, extra: Mapping[str, Tensor]) -> Term:
        chains = Chains(batch.labels["tag_chains"].tolist(), scores.device)
        starts, ends = batch.labels["tag_ends"].unbind(1)  # (R,)
        whole = apply_tag_rules(self.tags, extra, scores)
        # where a window cuts a text, any tag may stand at the cut
        potentials = Potentials(
            torch.where(starts[:, None], whole.start, 0.0),
            whole.transitions,
            torch.where(ends[:, None], whole.end, 0.0),
        )
        losses = log_partition(scores, potentials, chains) - path_scores(scores, targets, potentials, chains)  # (R,)
        if "tag_weight" in batch.labels:
            losses = losses * batch.labels["tag_weight"]
        with torch.no_grad():
            correct = (viterbi(scores, potentials, chains) == targets).sum()
        return Term(losses.sum(), correct)


class TagTask(Task[TagExample, TagResult]):
    name = "tag"
    head = "token"
    example = TagExample
    unit = "entity"
    main = "f1"
    paired = False

    def __init__(self, tags: TagLabels, settings: TagSettings) -> None:
        assert settings.unit != "auto", "decided by `learn`"
        self.tags, self.settings = tags, settings
        self.kind = "crf" if settings.crf else "bio"
        self.folds_temperature = not settings.crf  # its transitions are divided too, and are no part of the head
        self.labels, self.outputs = tags.names, len(tags.names)

    @classmethod
    def learn(cls, examples: Sequence[TagExample], settings: TagSettings, tokenizer: Tokenizer) -> "TagTask":
        for number, example in enumerate(examples, 1):
            check_example(example, name_example(example, number), True, settings.nested == "outer")
        labels = {span.label for example in examples for span in example.spans or ()}
        if not labels:
            where = (examples[0].place.file if examples else "") or "the training examples"
            raise InputError(f"No span is labelled in {where}: a tagger learns from spans. Is it the right file?")
        unit = choose_unit(examples, tokenizer) if settings.unit == "auto" else settings.unit
        return cls(TagLabels.of(sorted(labels)), replace(settings, unit=unit))

    @classmethod
    def restored(cls, labels: Sequence[str], record: Mapping[str, Any]) -> "TagTask":
        settings = merge(TagSettings(unit="word"), record.get("settings", {}), "qkv.json")
        return cls(TagLabels(labels), settings)

    def extra_tensors(self) -> Mapping[str, tuple[int, ...]]:
        n = self.outputs
        return {"crf_start": (n,), "crf_transitions": (n, n), "crf_end": (n,)} if self.settings.crf else {}

    def record(self) -> dict[str, Any]:
        return {"kind": self.kind, "settings": asdict(self.settings)}

    def check(self, examples: Sequence[TagExample], needs_labels: bool = True) -> None:
        for number, example in enumerate(examples, 1):
            where = name_example(example, number)
            check_example(example, where, needs_labels, self.settings.nested == "outer")
            for _, _, label in example.spans or ():
                if label not in self.tags.tags:
                    known = ", ".join(self.tags.labels[:12]) + (" …" if len(self.tags.labels) > 12 else "")
                    raise InputError(
                        f"{where}: the label '{label}' is not one the model was trained with."
                        f"{did_you_mean(label, self.tags.labels)} Known: {known}. Correct the label, or train again "
                        "with examples of it."
                    )

    def misaligned(self, tokenizer: Tokenizer, examples: Sequence[TagExample]) -> list[Fault]:
        """Every span that no whole units make up, or that lies in another, and what training takes instead."""
        return find_misaligned(tokenizer, examples, self.settings.unit)

    def features(
        self, tokenizer: Tokenizer, examples: Sequence[TagExample], max_length: int, training: bool
    ) -> TagFeatures:
        return TagFeatures(
            tokenizer,
            [keep_outermost(example) for example in examples],
            self.tags.tags,
            outside=self.tags.outside,
            unit=self.settings.unit,
            max_length=max_length,
            overlap=self.settings.overlap,
            weights=relative_weights(examples) if training else None,
        )

    def balanced_weights(self, features: TagFeatures, examples: Sequence[TagExample]) -> list[float]:
        """By tag, a tenth to ten: nearly all words are outside of everything, and must not weigh nothing."""
        counts = np.bincount(features.tags[features.tags != IGNORE], minlength=self.outputs)
        found: list[float] = np.clip(counts.sum() / (self.outputs * np.maximum(counts, 1)), 0.1, 10.0).tolist()
        return found

    def objective(self, class_weights: Sequence[float] | None = None) -> TagObjective:
        if class_weights is not None and self.settings.crf:
            raise InputError(
                "Class weights multiply the loss of single tags; a CRF scores whole paths and has no place for them. "
                "Leave out one of the two."
            )
        assert class_weights is None or len(class_weights) == self.outputs
        return TagObjective(self.tags, self.settings.crf, None if class_weights is None else tuple(class_weights))

    def decode(
        self, features: TagFeatures, scores: Scores, extra: Mapping[str, NDArray[np.float32]], calibration: Calibration
    ) -> list[TagResult]:
        emissions, potentials, chains = self._chain(features, scores, extra, calibration.temperature)
        path = viterbi(emissions, potentials, chains)  # (U,)
        believed = compute_beliefs(emissions, potentials, chains)
        certain = (path_scores(emissions, path, potentials, chains) - believed.partition).exp()  # (E,)
        losses = believed.partition - path_scores(
            emissions, torch.from_numpy(features.tags).clamp_min(0), potentials, chains
        )
        first, last = self._entities(path.numpy())  # (K,)
        probability = span_probabilities(first, last, path, emissions, potentials, believed, chains, self.tags)
        units, rows = features.units, features.rows
        example = chains.of_unit.numpy()[first]
        begins, stops = units.starts[first], units.ends[last]
        shift = units.text_begins[example]
        sure = calibration.abstain_below or 0.0
        found: list[list[Entity]] = [[] for _ in features.texts]
        for number, start, end, tag, p in zip(
            example.tolist(),
            (begins - shift).tolist(),
            (stops - shift).tolist(),
            path.numpy()[first].tolist(),
            probability.tolist(),
            strict=True,
        ):
            text = features.texts[number][start:end]
            found[number].append(Entity(start, end, self.tags.label_of[tag], text, p, p < sure))
        return [
            TagResult(tuple(entities), n_tokens, n_windows, min(p, 1.0), max(loss, 0.0))
            for entities, n_tokens, n_windows, p, loss in zip(
                found,
                rows.n_tokens.tolist(),
                rows.n_windows.tolist(),
                certain.tolist(),
                np.where(features.labelled, losses.numpy(), np.nan).tolist(),
                strict=True,
            )
        ]

    def _chain(
        self, features: TagFeatures, scores: Scores, extra: Mapping[str, NDArray[np.float32]], temperature: float
    ) -> tuple[Tensor, Potentials, Chains]:
        """One chain a text, its units from whichever windows count them; in double precision."""
        emissions = torch.from_numpy(scores[features.places]).double() / temperature  # (U, L)
        learned = {name: torch.from_numpy(value) for name, value in extra.items()}
        potentials = apply_tag_rules(self.tags, learned if self.settings.crf else {}, emissions).over(temperature)
        return emissions, potentials, Chains(features.units.counts.tolist())

    def _entities(self, path: Integers) -> tuple[Integers, Integers]:
        """(K,) first and last unit of each: from a B up to before the next tag that is not I."""
        first = np.flatnonzero(self.tags.begins[path])
        stops = np.append(np.flatnonzero(~self.tags.inside[path]), len(path))
        return first, stops[np.searchsorted(stops, first, side="right")] - 1

    def scorer(self) -> TagScorer:
        return TagScorer()

    def judge(self, example: TagExample, result: TagResult) -> Judgement:
        """Right when every span is. The confidence is that of the whole path."""
        assert example.spans is not None
        return Judgement(
            list_spans(example.text, example.spans),
            list_spans(example.text, result.spans),
            set(example.spans) == set(result.spans),
            result.probability,
            result.loss,
        )

    def statistics(self, example: TagExample, result: TagResult, judgement: Judgement) -> tuple[float, ...]:
        wanted, said = set(example.spanned()), set(result.spans)
        return float(len(wanted & said)), float(len(said)), float(len(wanted))

    def figure(self, sums: FloatArray) -> FloatArray:
        return compute_f1(sums)

    def weighed(self, features: TagFeatures, scores: Scores, result: TagResult, calibration: Calibration) -> Weighed:
        """Entities as characters of the text, each with the probability of just this span with this label."""
        return Weighed(
            {
                "labels": list(self.tags.labels),
                "entities": [one._asdict() | {"probability": round_result(one.probability)} for one in result.entities],
                "probability": round_result(result.probability),
            },
            {},
        )

    def losses(
        self, features: TagFeatures, scores: Scores, extra: Mapping[str, NDArray[np.float32]], temperature: float
    ) -> NDArray[np.float64]:
        assert features.labelled.all(), "a loss needs labels"
        emissions, potentials, chains = self._chain(features, scores, extra, temperature)
        right = path_scores(emissions, torch.from_numpy(features.tags), potentials, chains)
        return (log_partition(emissions, potentials, chains) - right).numpy()

    def confidences(self, examples: Sequence[TagExample], results: Sequence[TagResult]) -> Sure:
        """One for each entity that was answered."""
        answers = [
            (entity.probability, tuple(entity[:3]) in wanted, number)
            for number, (example, result) in enumerate(zip(examples, results, strict=True))
            for wanted in [{tuple(span) for span in example.spans or ()}]
            for entity in result.entities
        ]
        confidence, right, example = zip(*answers, strict=True) if answers else ((), (), ())
        return Sure(np.array(confidence, np.float64), np.array(right, np.bool_), np.array(example, np.int64))


def apply_tag_rules(tags: TagLabels, learned: Mapping[str, Tensor], like: Tensor) -> Potentials:
    """What a CRF has learned, if there is one, where it is allowed."""
    rules = tags.rules(like)
    return Potentials(*(rule + learned[f"crf_{name}"] if learned else rule for name, rule in rules._asdict().items()))


def span_probabilities(
    first: Integers,
    last: Integers,
    path: Tensor,
    emissions: Tensor,
    potentials: Potentials,
    believed: Beliefs,
    chains: Chains,
    tags: TagLabels,
) -> NDArray[np.float64]:
    """(K,) of the paths that enter at `first`, go along `path` to `last`, and leave the span there."""
    if not len(first):
        return np.zeros(0)
    tag = path.numpy()
    scores, transitions, end = emissions.numpy(), potentials.transitions.numpy(), potentials.end.numpy()
    chain = chains.of_unit.numpy()
    # along the path, as differences of one running sum; what it adds where texts meet is never between two ends
    steps = scores[np.arange(len(tag)), tag] + transitions[np.roll(tag, 1), tag]
    steps[~chains.inner.numpy()] = 0.0
    along = np.cumsum(steps)
    into = believed.forward.numpy()[first, tag[first]]
    is_end = np.append(chain[1:] != chain[:-1], True)[last]
    after = np.minimum(last + 1, len(tag) - 1)
    onwards = transitions[tag[last]] + scores[after] + believed.backward.numpy()[after]  # (K, L)
    onwards[np.arange(len(last)), tags.inside_of[tag[last]]] = -np.inf  # one more unit would be another span
    out = np.where(is_end, end[tag[last]], np.logaddexp.reduce(onwards, axis=1))
    log = into + along[last] - along[first] + out - believed.partition.numpy()[chain[first]]
    return np.exp(np.minimum(log, 0.0))


def choose_unit(examples: Sequence[TagExample], tokenizer: Tokenizer) -> str:
    """Pieces, where more than a few spans end inside words and pieces can hold them; else words."""
    free = [keep_outermost(example) for example in examples if example.units is None and example.spans]
    if tokenizer.kind != "wordpiece" or not free:
        return "word"
    texts = [example.text for example in free]
    tokens = tokenize_texts(tokenizer, texts)
    words, pieces = (
        fit_spans(cut_units(tokens, texts, [None] * len(texts), unit), free).exact for unit in ("word", "piece")
    )
    return "piece" if (pieces & ~words).mean() > TOO_MANY else "word"


TAG = Makers(lambda *_: TagTask, TagTask.learn, TagTask.restored)
