"""Tagging: labelled spans of a text, such as names, from one tag a word (BERT §5.3; with a CRF, Lample et al. 2016).

    Tom  lives  in  New   York       a tag for every unit: a word or a piece, or what the file gave one line each
    B-PER  O    O   B-LOC I-LOC      read from the head at the unit's first token (tag_units.py)

Loss: the mean cross entropy of units, each counted in one window (tag_features.py); with a CRF −log probability of the
tags that a row counts, as one chain, also as a mean over units. Spans that begin or end inside a unit are widened to
whole units for training, and `misaligned` lists them; evaluation holds answers against the user's own characters.

Decoding: the scores of all windows are put together, and a text is decoded once, whatever its length: the best path of
tags that never has I-x but after B-x or I-x. Both taggers are chains (nn/crf.py); the plain one's transitions are 0.

The probability of an entity is the exact marginal of its span: the share of all allowed paths, weighed by their
probability, in which just this span has just this label. What the temperature divides: every score of the chain, that
is the head's and the CRF's.

What this file does NOT do: answer with spans that overlap. Files that hold them are refused, unless the settings say
that the outer one is to be learned; evaluation counts the inner ones as missed.

Shapes: E examples, R rows, N tokens of all rows, U units, M units of a batch, K entities, L tags.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from qkv.batch import Batch
from qkv.config import merge
from qkv.data.batching import Integers
from qkv.data.examples import Fault, TagExample
from qkv.errors import InputError, did_you_mean
from qkv.nn.crf import Beliefs, Chains, Potentials, beliefs, log_partition, path_scores, viterbi
from qkv.tasks.model import TaskModel
from qkv.tasks.tag_check import check_example, misaligned, outermost, place_of
from qkv.tasks.tag_features import TagFeatures
from qkv.tasks.tag_labels import TagLabels
from qkv.tasks.tag_result import Entity, TagResult, TagScorer, in_words
from qkv.tasks.tag_units import fitted, tokens_of, units_of
from qkv.tasks.task import Calibration, Judgement, Scores, Sure
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Term

UNITS = ("auto", "word", "piece")
NESTED = ("refuse", "outer")
TOO_MANY = 0.01
"""The share of spans from which on words are given up for pieces, if pieces can hold what words cannot."""


@dataclass(frozen=True)
class TagSettings:
    crf: bool = False
    unit: str = "auto"  # word, or piece: for spans that end inside words. A column file's own units go before either.
    overlap: int = 64  # tokens that two windows share
    nested: str = "refuse"  # outer: of spans that overlap the longer is learned, and `misaligned` lists the other

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"Unknown unit '{self.unit}'.{did_you_mean(self.unit, UNITS)} Known: {', '.join(UNITS)}.")
        if self.nested not in NESTED:
            hint = did_you_mean(self.nested, NESTED)
            raise InputError(f"nested is {' or '.join(map(repr, NESTED))}, not '{self.nested}'.{hint}")
        if self.overlap < 0:
            raise InputError(f"overlap must be 0 or more, not {self.overlap}.")


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
        return {"tag": Term(losses.sum(), (scores.detach().argmax(-1) == targets).sum())}

    def _chain_term(self, scores: Tensor, targets: Tensor, batch: Batch, extra: Mapping[str, Tensor]) -> Term:
        chains = Chains(batch.labels["tag_chains"].tolist(), scores.device)
        starts, ends = batch.labels["tag_ends"].unbind(1)  # (R,)
        whole = with_rules(self.tags, extra, scores)
        # where a window cuts a text, any tag may stand at the cut
        potentials = Potentials(
            torch.where(starts[:, None], whole.start, 0.0),
            whole.transitions,
            torch.where(ends[:, None], whole.end, 0.0),
        )
        losses = log_partition(scores, potentials, chains) - path_scores(scores, targets, potentials, chains)  # (R,)
        with torch.no_grad():
            correct = (viterbi(scores, potentials, chains) == targets).sum()
        return Term(losses.sum(), correct)


class Tag:
    name: ClassVar[str] = "tag"
    head: ClassVar[str] = "token"
    architecture: ClassVar[str] = "BertForTokenClassification"
    main: ClassVar[str] = "f1"

    def __init__(self, tags: TagLabels, settings: TagSettings) -> None:
        assert settings.unit != "auto", "decided by `learn`"
        self.tags, self.settings = tags, settings

    @classmethod
    def learn(cls, examples: Sequence[TagExample], settings: TagSettings, tokenizer: Tokenizer) -> "Tag":
        for number, example in enumerate(examples, 1):
            check_example(example, place_of(example, number), True, settings.nested == "outer")
        labels = {span.label for example in examples for span in example.spans or ()}
        if not labels:
            where = (examples[0].place.file if examples else "") or "the training examples"
            raise InputError(f"No span is labelled in {where}: a tagger learns from spans. Is it the right file?")
        unit = best_unit(examples, tokenizer) if settings.unit == "auto" else settings.unit
        return cls(TagLabels.of(sorted(labels)), replace(settings, unit=unit))

    @classmethod
    def restored(cls, labels: Sequence[str], record: Mapping[str, Any]) -> "Tag":
        settings = merge(TagSettings(unit="word"), record.get("settings", {}), "qkv.json")
        return cls(TagLabels(labels), settings)

    @property
    def kind(self) -> str:
        return "crf" if self.settings.crf else "bio"

    @property
    def labels(self) -> tuple[str, ...]:
        return self.tags.names

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def extra_tensors(self) -> Mapping[str, tuple[int, ...]]:
        n = self.outputs
        return {"crf_start": (n,), "crf_transitions": (n, n), "crf_end": (n,)} if self.settings.crf else {}

    def record(self) -> dict[str, Any]:
        return {"kind": self.kind, "settings": asdict(self.settings)}

    def check(self, examples: Sequence[TagExample], needs_labels: bool = True) -> None:
        for number, example in enumerate(examples, 1):
            where = place_of(example, number)
            check_example(example, where, needs_labels, self.settings.nested == "outer")
            for _, _, label in example.spans or ():
                if label not in self.tags.tags:
                    known = ", ".join(self.tags.labels[:12]) + (" …" if len(self.tags.labels) > 12 else "")
                    raise InputError(
                        f"{where}: the label '{label}' is not one the model was trained with."
                        f"{did_you_mean(label, self.tags.labels)} Known: {known}. Mend the label, or train again with "
                        "examples of it."
                    )

    def misaligned(self, tokenizer: Tokenizer, examples: Sequence[TagExample]) -> list[Fault]:
        """Every span that no whole units make up, or that lies in another, and what training takes instead."""
        return misaligned(tokenizer, examples, self.settings.unit)

    def features(
        self, tokenizer: Tokenizer, examples: Sequence[TagExample], max_length: int, training: bool
    ) -> TagFeatures:
        return TagFeatures(
            tokenizer,
            [outermost(example) for example in examples],
            self.tags.tags,
            outside=self.tags.outside,
            unit=self.settings.unit,
            max_length=max_length,
            overlap=self.settings.overlap,
        )

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
        believed = beliefs(emissions, potentials, chains)
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
        potentials = with_rules(self.tags, learned if self.settings.crf else {}, emissions).over(temperature)
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
            in_words(example.text, example.spans),
            in_words(example.text, result.spans),
            set(example.spans) == set(result.spans),
            result.probability,
            result.loss,
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


def with_rules(tags: TagLabels, learned: Mapping[str, Tensor], like: Tensor) -> Potentials:
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


def best_unit(examples: Sequence[TagExample], tokenizer: Tokenizer) -> str:
    """Pieces, where more than a few spans end inside words and pieces can hold them; else words."""
    free = [outermost(example) for example in examples if example.units is None and example.spans]
    if tokenizer.kind != "wordpiece" or not free:
        return "word"
    texts = [example.text for example in free]
    tokens = tokens_of(tokenizer, texts)
    words, pieces = (
        fitted(units_of(tokens, texts, [None] * len(texts), unit), free).exact for unit in ("word", "piece")
    )
    return "piece" if (pieces & ~words).mean() > TOO_MANY else "word"
