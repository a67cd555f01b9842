"""Predict with a fine-tuned model: features to scores to results, in bounded memory.

Rows are sorted by length, packed up to a budget of tokens, and returned in their order. With `--transfer features` the
vectors of the encoder are computed once and stored in a file.

Shapes: R rows, N tokens of all rows, D width.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.batch import Batch, Integers, Watch, chunks, plan_batches, watched
from qkv.data.corpus.shards import ranges
from qkv.data.labelled.examples import Example, Fault
from qkv.errors import InputError
from qkv.files import replaced_file
from qkv.models.family import HAS_TASK, Opened
from qkv.tasks.table import TASKS, AnyTask, detect_task
from qkv.tasks.task import Calibration, Features, Scores
from qkv.tasks.transfer import VECTORS, TaskModel
from qkv.text.tokenizer import Tokenizer
from qkv.text.unknown import UnknownCounter, UnknownFacts

_E = TypeVar("_E", bound=Example)


class Vectors:
    """Features with precomputed encoder vectors in every batch."""

    def __init__(self, features: Features, vectors: NDArray[np.float32], reads_rows: bool) -> None:
        self.features, self.vectors, self.reads_rows = features, vectors, reads_rows
        self.rows, self.row_counts = features.rows, features.row_counts
        self.n_tokens, self.n_windows, self.unit_tokens = features.n_tokens, features.n_windows, features.unit_tokens
        self._begins = np.cumsum(self.rows.lengths) - self.rows.lengths

    def faults(self) -> list[Fault]:
        return self.features.faults()

    def count_token(self, number: int | None) -> Integers:
        return self.features.count_token(number)

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        batch = self.features.batch(units, draw)
        rows = self.rows.first_row[batch.examples.numpy()] + batch.windows.numpy()
        return replace(batch, labels={**batch.labels, VECTORS: self.of(rows)})

    def of(self, rows: Integers) -> torch.Tensor:
        """(R, D) or (N, D) of these rows, in their order."""
        places = rows if self.reads_rows else ranges(self._begins[rows], self.rows.lengths[rows])
        return torch.from_numpy(self.vectors[places])


def strip_vectors(features: Features) -> Features:
    """Return the features without their vectors."""
    return features.features if isinstance(features, Vectors) else features


def find_row_vectors(features: Features, file: Path, reads_rows: bool) -> Vectors | None:
    """Return the vectors that an earlier session stored, or None."""
    if not file.is_file():
        return None
    vectors = np.load(file, mmap_mode="r")
    rows = len(features.rows) if reads_rows else int(features.rows.lengths.sum())
    return Vectors(features, vectors, reads_rows) if len(vectors) == rows else None


@torch.inference_mode()
def write_row_vectors(
    model: TaskModel,
    features: Features,
    file: Path,
    tokens_per_batch: int,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Vectors:
    """Run the encoder over all rows, into a file that is mapped and not loaded: it may be larger than memory.

    `watch` is called after each batch with the tokens so far and all of them.
    """
    rows = features.rows
    device = next(model.parameters()).device
    begins = np.cumsum(rows.lengths) - rows.lengths
    shape = (len(rows) if model.reads_rows else int(rows.lengths.sum()), model.network.config.width)
    model.eval()
    with replaced_file(file) as part:
        with part.open("wb") as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            start = stream.tell()
            stream.truncate(start + 4 * shape[0] * shape[1])
        found = np.memmap(part, np.float32, "r+", offset=start, shape=shape)
        done, total = 0, int(rows.lengths.sum())
        for chosen in plan_batches(rows.lengths, tokens_per_batch):
            values = model.vectors(rows.collate(chosen).to(device)).float().cpu().numpy()
            found[chosen if model.reads_rows else ranges(begins[chosen], rows.lengths[chosen])] = values
            done += int(rows.lengths[chosen].sum())
            watch(done, total)
        found.flush()
        del found
    return Vectors(features, np.load(file, mmap_mode="r"), model.reads_rows)


@torch.inference_mode()
def infer(
    model: TaskModel,
    features: Features,
    tokens_per_batch: int,
    precision: torch.dtype | None = None,
    watch: Watch | None = None,
) -> Scores:
    """(R, L) for a head that reads rows, (N, L) for one that reads tokens; rows in order, as the features have them.

    `precision` is what matrix products are computed in on a GPU, as in training; None is what the weights are in.
    """
    rows = features.rows
    device = next(model.parameters()).device
    begins = np.cumsum(rows.lengths) - rows.lengths
    found: Scores | None = None
    model.eval()
    for chosen in watched(plan_batches(rows.lengths, tokens_per_batch), features.row_counts, watch):
        labels = {VECTORS: features.of(chosen)} if isinstance(features, Vectors) else None
        values = score_batch(model, rows.collate(chosen, labels), device, precision)
        if found is None:
            found = np.empty((len(rows) if model.reads_rows else int(rows.lengths.sum()), values.shape[1]), np.float32)
        found[chosen if model.reads_rows else ranges(begins[chosen], rows.lengths[chosen])] = values
    assert found is not None, "there is at least one row"
    return found


@torch.inference_mode()
def score_batch(model: TaskModel, batch: Batch, device: torch.device, precision: torch.dtype | None = None) -> Scores:
    """(R, L) or (N, L) of the rows of a batch; the model is in eval mode."""
    with torch.autocast(device.type, precision or torch.bfloat16, enabled=precision is not None):
        scores = model.scores(batch.to(device, non_blocking=True))
    found: Scores = scores.float().cpu().numpy()
    return found


TOKENS_PER_BATCH = {"cpu": 4096}
TOKENS_PER_BATCH_ELSEWHERE = 65_536
EXAMPLES_PER_CHUNK, CHARACTERS_PER_CHUNK = 2048, 500_000
"""What is held at a time: enough that sorting by length pays, little enough to stream."""


@dataclass(frozen=True)
class Solver:
    model: TaskModel
    task: AnyTask
    tokenizer: Tokenizer
    max_length: int
    calibration: Calibration = field(default_factory=Calibration)
    precision: torch.dtype | None = None  # of matrix products; None: the weights' own

    @property
    def tokens_per_batch(self) -> int:
        if self.device.type != "cpu":
            return TOKENS_PER_BATCH_ELSEWHERE
        return self.model.network.encoder.batch_tokens

    def features(self, examples: Sequence[Example]) -> Features:
        return self.task.features(self.tokenizer, examples, self.max_length, training=False)

    def scores(self, features: Features, watch: Watch | None = None) -> Scores:
        return infer(self.model, features, self.tokens_per_batch, self.precision, watch)

    def answers(self, examples: Sequence[Example], watch: Watch | None = None) -> list[Any]:
        """One result an example, in order."""
        features = self.features(examples)
        return self.decode(features, self.scores(features, watch))

    def decode(self, features: Features, scores: Scores) -> list[Any]:
        """One result an example, from the scores of all rows."""
        found = self.task.decode(features, scores, self.model.extra_arrays(), self.calibration)
        return with_unknown(found, features, self.tokenizer)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def score_batch(self, batch: Batch) -> Scores:
        """(R, L) or (N, L) of the rows of a batch, which may be those of several lists of examples."""
        return score_batch(self.model, batch, self.device, self.precision)

    def shorten(self, example: _E) -> _E:
        """The example, cut at the end of its text so that it fits one window; of a text pair the longer side is cut,
        and at last both. Callers report it: by default long texts are windowed, never cut."""
        sides = ("text", "pair") if example.fields.keys() >= {"pair"} and example.beside is not None else ("text",)
        while (features := self.features([example])).n_windows[0] > 1:
            excess = max(1, int(features.n_tokens[0]) - self.max_length)
            ends = {side: self.tokenizer.encode(getattr(example, side), special=False).offsets for side in sides}
            for _ in range(excess):
                longest = max(ends.values(), key=len)
                if len(longest) < 2:
                    raise InputError("The input does not fit one window of this model, however much of it is cut.")
                longest.pop()
            cut = {side: getattr(example, side)[: spans[-1][1]] for side, spans in ends.items()}
            shorter: Any = example
            example = replace(shorter, **cut)
        return example

    def stream(
        self, examples: Iterable[Example], needs_labels: bool = False, watch: Watch | None = None
    ) -> Iterator[tuple[list[Example], list[Any]]]:
        """Examples with their results, a part for every few thousand of them; `watch` hears of long texts."""
        for chunk in chunks(examples, EXAMPLES_PER_CHUNK, Example.characters, CHARACTERS_PER_CHUNK):
            self.task.check(chunk, needs_labels)
            yield chunk, self.answers(chunk, watch)


def with_unknown(results: Sequence[Any], features: Features, tokenizer: Tokenizer) -> list[Any]:
    """Results with the number of unknown tokens of their examples."""
    counts = features.count_token(tokenizer.unknown_id).tolist()
    return [replace(one, n_unknown=n) if n else one for one, n in zip(results, counts, strict=True)]


def add_unknown(counter: UnknownCounter, tokenizer: Tokenizer, example: Example, found: int, n_tokens: int) -> None:
    """Count the unknown tokens of an example; `n_tokens` with the special tokens, as results and features have it."""
    texts = [text for text in example.texts() if text is not None]
    counter.add(texts, found, n_tokens - (2 if len(texts) == 1 else tokenizer.marks.around_pair))


def find_unknown_tokens(tokenizer: Tokenizer, examples: Sequence[Example], features: Features) -> UnknownFacts:
    """How much of these examples the vocabulary lacks."""
    counter = UnknownCounter(tokenizer)
    counts = features.count_token(tokenizer.unknown_id).tolist()
    for example, found, n_tokens in zip(examples, counts, features.n_tokens.tolist(), strict=True):
        add_unknown(counter, tokenizer, example, found, n_tokens)
    return counter.facts()


def make_solver(opened: Opened, device: torch.device) -> Solver:
    """From a folder that `qkv finetune` wrote, or one of transformers with a head that a task here has."""
    own = opened.ability(HAS_TASK)
    name = detect_task(opened.record, own.heads)
    assert name is not None, "it has a task"
    entry, makers = TASKS[name], TASKS[name].load()
    if entry.head not in own.heads:
        raise InputError(f"{opened.path} says it is for '{name}' but has no {entry.head} head: it is damaged.")
    record = opened.record.get("task_record")
    if record is None:
        sizes = opened.facts.sizes
        reads_pairs = sizes is not None and sizes.pairs
        record = makers.foreign(str(opened.path), opened.carried.get("problem_type"), len(opened.labels), reads_pairs)
    task = makers.restored(opened.labels, record)
    model = TaskModel(own.network, entry.head, task.extra_tensors(), task.pooling, task.normalize)
    with torch.no_grad():
        for key, value in opened.record.get("extra", {}).items():
            model.extra[key].copy_(torch.tensor(value))
    longest = int(opened.record.get("max_length") or min(entry.longest, own.network.config.max_length))
    stored = opened.record.get("calibration") or {}
    calibration = Calibration(
        float(stored.get("temperature", 1.0)), dict(stored.get("thresholds") or {}), stored.get("abstain_below")
    )
    return Solver(model.to(device).eval(), task, opened.tokenizer, longest, calibration)


def extra_record(model: TaskModel) -> dict[str, Any]:
    """A task's own parameters as JSON: they are few, and their folder stays one that transformers loads."""
    return {name: np.asarray(value, np.float64).tolist() for name, value in model.extra_arrays().items()}
