"""How texts and pairs are encoded for classification, for all kinds of labels.

[CLS] text [SEP], or [CLS] text [SEP] pair [SEP], or the same with the special tokens of a GPT
(models/gpt/tokenizer.py). A text longer than the model is split into overlapping windows, and its scores are the mean
of its windows' scores, in training as in prediction. In training at most `train_windows` windows of a text are used,
drawn in every epoch; in prediction all are.

The head reads one vector per row (`pooling`):

    cls     [CLS] through the pooler, as transformers' classes do; of a GPT the last token
    first   [CLS] as the encoder leaves it, which sentence-transformers calls cls
    mean    the mean of all tokens

`resolve_reading` chooses what the encoder was made for: the pooling that a sentence-transformers folder declares. Of
other folders, a frozen encoder is read by its mean, unless it was trained for classes already: BERT's pooler, trained
for the next sentence, keeps little else. An encoder that is trained learns its [CLS].

Where it does not matter which of two texts is named first, as in paraphrase and similarity, a pair can be read in both
orders, and its scores are the mean of both. With a linear layer on the vector of a row that is, but for a factor of
two, the sum of both vectors in GPT (Radford et al. 2018, §3.3), a causal model, for which the two orders differ.

Shapes: E examples, R rows, U units (examples) of a batch, L labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.data.batch import Batch, Integers
from qkv.data.labelled.examples import Fault, TextExample, relative_weights
from qkv.data.windows import BothOrders, Windowed, merge_windows
from qkv.errors import InputError, did_you_mean
from qkv.models.family import TakesHead
from qkv.models.folders.fields import SentenceFiles
from qkv.tasks.task import Calibration, ClassifySettings, FloatArray, Scores, ShownPart, Task, Weighed, round_result
from qkv.tasks.transfer import TaskModel, Transfer
from qkv.text.tokenizer import Tokenizer
from qkv.train.linear import Classes, Labels, Numbers, Targets
from qkv.train.loop import Term

Extra = Mapping[str, NDArray[np.float32]]


BEFORE_POOLING = ClassifySettings(pooling="cls", fit="steps")
"""The settings of runs and models that were saved before `pooling` and `fit` existed."""


def resolve_reading(
    settings: ClassifySettings, takes: TakesHead, sentence: SentenceFiles, transfer: Transfer, has_epochs: bool
) -> ClassifySettings:
    """Decide `pooling`, `normalize` and `fit` where the user did not; refuse what the model cannot do."""
    pooling, declared = settings.pooling, sentence.pooling
    if pooling == "auto":
        knows_classes = bool(takes.stored_head("sequence")) and declared is None
        if declared == "mean" and takes.pools:
            pooling = "mean"
        elif not takes.pools or transfer.moves_encoder or knows_classes:
            pooling = "cls"
        else:
            pooling = "first" if declared == "cls" else "mean"
    elif pooling != "cls" and not takes.pools:
        raise InputError(
            f"classify.pooling is {pooling}, which is for BERT and its relatives: {takes.path} pools in its own way. "
            "Leave it out."
        )
    normalize = settings.normalize
    if normalize is None:
        normalize = sentence.normalize and {"mean": "mean", "cls": "first"}.get(declared or "") == pooling
    is_linear = pooling != "cls" or takes.has_linear_head("sequence")
    fit = settings.fit
    if fit == "auto":
        fit = "linear" if transfer.cached and is_linear and not has_epochs else "steps"
    elif fit == "linear" and not (transfer.cached and is_linear):
        raise InputError(
            f"classify.fit is linear, which needs stored vectors and a head of one linear layer, and this run has "
            f"transfer {transfer.name} with pooling {pooling}. Give --transfer features and classify.pooling=mean, or "
            "leave classify.fit out."
        )
    return replace(settings, pooling=pooling, normalize=normalize and pooling != "cls", fit=fit)


class TextFeatures:
    """Texts as rows; a unit of training is a text with its windows."""

    def __init__(
        self, rows: Windowed, targets: Tensor | None, train_windows: int, weights: FloatArray | None = None
    ) -> None:
        """`weights` (E,) are those of the examples in the loss; None: all count alike."""
        self.rows, self.targets, self.train_windows = rows, targets, train_windows
        self.weights = None if weights is None else torch.from_numpy(weights).float()
        self.n_tokens, self.n_windows, self.row_counts = rows.n_tokens, rows.n_windows, rows.n_rows
        read = np.minimum(rows.n_rows, train_windows)
        # the windows of a text are equally long
        self.unit_tokens: Integers = rows.lengths[rows.first_row] * read

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        assert self.targets is not None, "training needs labels"
        rows, unit_of_row = self._rows_of(units, draw)
        order = np.argsort(self.rows.lengths[rows], kind="stable")  # a CPU attends rows of equal length together
        labels = {"unit": torch.from_numpy(unit_of_row[order]), "target": self.targets[torch.from_numpy(units)]}
        if self.weights is not None:
            labels["weight"] = self.weights[torch.from_numpy(units)]
        return self.rows.collate(rows[order], labels)

    def count_token(self, number: int | None) -> Integers:
        return self.rows.count_token(number)

    def faults(self) -> list[Fault]:
        return []

    def _rows_of(self, units: Integers, draw: np.random.Generator) -> tuple[Integers, Integers]:
        windows = self.rows.n_rows[units]
        first = self.rows.first_row[units]
        if windows.max() == 1:
            return first, np.arange(len(units))
        rows = [
            start + (np.arange(n) if n <= self.train_windows else np.sort(draw.choice(n, self.train_windows, False)))
            for start, n in zip(first.tolist(), windows.tolist(), strict=True)
        ]
        return np.concatenate(rows), np.repeat(np.arange(len(units)), list(map(len, rows)))


def pool_windows(scores: Tensor, unit: Tensor, units: int) -> Tensor:
    """(R, L) scores of windows → (U, L), the mean over each unit's windows."""
    if scores.size(0) == units:
        # one row a unit, in another order
        return torch.empty_like(scores).index_copy(0, unit, scores)
    sums = scores.new_zeros(units, scores.size(1)).index_add(0, unit, scores)
    counts = torch.bincount(unit, minlength=units).unsqueeze(1)
    return sums / counts


@dataclass(frozen=True)
class TextObjective(ABC):
    """What the three losses share: pooled scores against targets."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"classify": 1.0})
    class_weights: tuple[float, ...] | None = None

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"classify": len(batch.labels["target"])}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, TaskModel)
        targets = batch.labels["target"]
        scores = pool_windows(model.scores(batch).float(), batch.labels["unit"], len(targets))  # (U, L)
        losses, correct = self.losses(scores, targets)
        if "weight" in batch.labels:  # with a mean of 1 over all examples, so that the count of units stays the divisor
            losses = losses * batch.labels["weight"]
        return {"classify": Term(losses.sum(), correct.sum())}

    @abstractmethod
    def losses(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (U, L) against the targets of as many units → (U,) losses, and (U,) whether the answer is right."""

    def balance(self, like: Tensor) -> Tensor | None:
        return None if self.class_weights is None else like.new_tensor(self.class_weights)


class TextTask(Task[TextExample, Any]):
    """What the three kinds share: how texts are read."""

    name = "classify"
    head = "sequence"
    example = TextExample
    unit = "text"

    def __init__(self, labels: Sequence[str], settings: ClassifySettings, paired: bool | None) -> None:
        self.labels, self.settings = tuple(labels), settings
        self.outputs = len(self.labels)
        self.paired = paired  # None: not recorded, either is read, but not both in one call
        self.ids = {label: number for number, label in enumerate(self.labels)}
        self.pooling, self.normalize = settings.pooling, bool(settings.normalize)

    def record(self) -> dict[str, Any]:
        settings = {name: value for name, value in asdict(self.settings).items() if value is not None}
        return {"kind": self.kind, "paired": self.paired, "settings": settings}

    def check(self, examples: Sequence[TextExample], needs_labels: bool = True) -> None:
        paired = self._reads_pairs(examples)
        for number, example in enumerate(examples, 1):
            where = str(example.place) if example.place.file else f"Text {example.place.line or number}"
            if (example.pair is not None) != paired:
                wanted, got = ("a pair", "one text") if paired else ("one text", "a pair")
                if self.paired is None:
                    raise InputError(f"{where}: here is {got}, and before it {wanted}. Give texts or pairs, not both.")
                raise InputError(
                    f"{where}: the model reads {wanted}, and here is {got}. Give the same columns as in training, "
                    "or of typed texts the second one (qkv predict … --with TEXT) or none."
                )
            if needs_labels or example.label is not None:
                self.target(example, where)

    def _reads_pairs(self, examples: Sequence[TextExample]) -> bool:
        return any(example.pair is not None for example in examples[:1]) if self.paired is None else self.paired

    @abstractmethod
    def target(self, example: TextExample, where: str) -> Any:
        """What is to be learned of one example; an error that names `where` for what cannot be."""

    @abstractmethod
    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        """The same of all, as the loss reads it."""

    def features(
        self, tokenizer: Tokenizer, examples: Sequence[TextExample], max_length: int, training: bool
    ) -> TextFeatures:
        paired = self._reads_pairs(examples)
        first = tokenizer.encode_ids([example.text for example in examples])
        second = tokenizer.encode_ids([example.pair or "" for example in examples]) if paired else None
        room = max_length - (3 if paired else 2)
        marks = tokenizer.marks
        cut = BothOrders if paired and self.settings.pairs == "both" else Windowed
        rows = cut(
            first,
            second,
            marks,
            max_length=max_length,
            overlap=min(self.settings.overlap, room // 4),
        )
        labelled = all(example.label is not None for example in examples)
        return TextFeatures(
            rows,
            self.targets(examples) if labelled else None,
            self.settings.train_windows,
            relative_weights(examples) if training else None,
        )

    def unknown(self, label: str, where: str) -> InputError:
        known = ", ".join(self.labels[:12]) + (" …" if len(self.labels) > 12 else "")
        return InputError(
            f"{where}: the label '{label}' is not one the model was trained with.{did_you_mean(label, self.labels)} "
            f"Known: {known}. Correct the label, or train again with examples of it."
        )

    def pooled(self, features: TextFeatures, scores: Scores) -> NDArray[np.float64]:
        """(R, L) → (E, L)"""
        return merge_windows(scores, features.rows.n_rows).astype(np.float64)

    def weighed(self, features: TextFeatures, scores: Scores, result: Any, calibration: Calibration) -> Weighed:
        """Classes, the most probable first."""
        chosen = result.chosen
        classes = [
            {"label": label, "probability": round_result(probability), "said": label in chosen}
            for label, probability in result.probabilities.items()
        ]
        order = [self.ids[label] for label in result.probabilities]
        arrays = {
            "scores": self.pooled(features, scores)[0][order].astype(np.float32),
            "probabilities": np.array(list(result.probabilities.values()), np.float32),
        }
        return Weighed({"classes": classes, "abstained": result.abstained}, arrays)


def show_text(example: TextExample) -> ShownPart:
    return ShownPart(example.text if example.pair is None else f"{example.text} ‖ {example.pair}")


# --- Classification as a linear model: the targets of train/linear.py from labelled texts.


def linear_targets(
    task: TextTask, examples: Sequence[TextExample], class_weights: Sequence[float] | None = None
) -> Targets:
    """What a linear model of these examples predicts, with their weights in the loss. A class weight multiplies the
    loss of the examples of a class, and of several labels the loss of the examples that have the label, as in training
    by steps."""
    wanted = task.targets(examples).numpy()
    relative = relative_weights(examples)
    own = np.ones(len(wanted)) if relative is None else relative  # (n,)
    if task.numbers:
        return Numbers(wanted.astype(np.float64), own)
    weights = np.ones(task.outputs) if class_weights is None else np.asarray(class_weights, np.float64)
    if wanted.ndim == 1:
        return Classes(wanted, task.outputs, own * weights[wanted])
    return Labels(wanted.astype(np.float64), own[:, None] * np.where(wanted > 0.5, weights, 1.0))
