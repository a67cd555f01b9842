"""What a model computes for a batch, one class per kind of work: vectors, scores of tasks, blanks, texts.

The units of encoders are rows of `Windowed` (data/windows.py): those of several requests are collated into one packed
batch, longest first. The results are what the same functions give in `qkv predict`, `Model.embed`, …: only the rows of
a batch come from elsewhere.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.api.embedder import Embedder
from qkv.api.generator import Generator, PromptTokens, WrittenPiece
from qkv.api.model import Model
from qkv.api.translator import Translator
from qkv.data.batch import Batch, Integers, longest_first
from qkv.data.windows import Rows, Windowed, locate_counted
from qkv.models.family import FILLS
from qkv.search.options import GenerateConfig
from qkv.serve.batching import ComputeGate, Part, Runner, Work
from qkv.tasks.embed import Counted
from qkv.tasks.predictor import Solver

COUNTED = "counted"
"""Label of rows (R, 2): the first token that is counted, and the one after the last."""
PLACES = "places"
"""Label of tokens (N,): whether it is a blank."""


class Joined(NamedTuple):
    batch: Batch
    order: Integers  # (R,) of each row of the batch, which unit of the parts it is


class RowsRunner(Runner):
    """Rows of an encoder."""

    def labels(self, source: Any, rows: Integers) -> dict[str, Tensor]:
        return {}

    def collate(self, source: Any, rows: Integers) -> Batch:
        found: Batch = source.collate(rows, self.labels(source, rows))
        return found

    def join(self, parts: Sequence[Part]) -> Joined:
        batches, places = list[Batch](), list[Integers]()  # of each row of the batches, which unit it is
        for _, some in groupby(parts, lambda part: id(part.source)):  # requests may share a source (gathering.py)
            together, before = list(some), sum(map(len, places))
            units, source = together[0].units, together[0].source
            place = np.arange(len(units))
            if len(together) > 1:
                units = np.concatenate([part.units for part in together])
                place = longest_first(np.asarray(source.lengths)[units])
                units = units[place]
            batches.append(self.collate(source, units))
            places.append(before + place)
        order = longest_first([length for batch in batches for length in batch.lengths])
        return Joined(batches[0] if len(batches) == 1 else Batch.join(batches), np.concatenate(places)[order])

    def run(self, joined: Joined, gate: ComputeGate) -> Sequence[Any]:
        with gate.turn():
            values = self.compute(joined.batch)
        found: list[Any] = [None] * len(joined.order)
        for unit, value in zip(joined.order.tolist(), values, strict=True):
            found[unit] = value
        return found

    @abstractmethod
    def compute(self, batch: Batch) -> Sequence[Any]:
        """One value per row."""


class VectorRunner(RowsRunner):
    """The vector of a row, and the number of tokens in it."""

    def __init__(self, embedder: Embedder, pooling: str) -> None:
        self.embedder, self.pooling, self.key = embedder, pooling, ("vector", pooling)

    def labels(self, source: Rows, rows: Integers) -> dict[str, Tensor]:
        return {COUNTED: torch.from_numpy(np.stack([source.counted_starts[rows], source.counted_ends[rows]], axis=1))}

    def compute(self, batch: Batch) -> Sequence[Any]:
        found = self.embedder.run_batch(batch, counted_of(batch), self.pooling)
        return list(zip(found.vectors, found.counts.tolist(), strict=True))


class TokensRunner(VectorRunner):
    """(M, D) vectors of the tokens of a row that are counted in it."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder, "")
        self.key = ("tokens",)

    def compute(self, batch: Batch) -> Sequence[Any]:
        counted = counted_of(batch)
        return np.split(self.embedder.run_tokens(batch, counted), counted[1][1:].numpy())


def counted_of(batch: Batch) -> Counted:
    starts, ends = batch.labels[COUNTED].numpy().T
    return locate_counted(np.asarray(batch.lengths, np.int64), starts, ends)


class ScoresRunner(RowsRunner):
    """The scores of a task: (1, L) of a row, or (T, L) of its tokens."""

    def __init__(self, solver: Solver) -> None:
        self.solver, self.key = solver, ("scores",)

    def compute(self, batch: Batch) -> Sequence[Any]:
        scores = self.solver.score_batch(batch)
        ends = np.arange(1, batch.n_rows + 1) if self.solver.model.reads_rows else np.cumsum(batch.lengths)
        return np.split(scores, ends[:-1])


class BlanksRunner(RowsRunner):
    """The k candidates of each blank of a text. The source is a batch with one row per text.

    They are chosen here: the scores of the whole vocabulary, kept until the last blank of a large request is computed,
    would fill the memory."""

    def __init__(self, model: Model, device: torch.device, k: int, targets: Sequence[int] | None = None) -> None:
        self.model, self.fills, self.device = model, model.opened.ability(FILLS), device
        self.k, self.targets = k, None if targets is None else tuple(targets)
        self.key = ("blanks", k, self.targets)

    def collate(self, source: Batch, rows: Integers) -> Batch:
        return source.take(rows)

    @torch.inference_mode()
    def compute(self, batch: Batch) -> Sequence[Any]:
        at = batch.labels[PLACES].nonzero()[:, 0]
        counts = torch.bincount(batch.row_of_token[at], minlength=batch.n_rows).tolist()
        scores = self.fills.scores(batch.to(self.device), at.to(self.device))
        # not views of a whole batch, which would live as long as one of them
        return [self.model.rank_tokens(some, self.k, self.targets) for some in scores.split(counts)]


class TranslateRunner(Runner):
    """The n best hypotheses of a source."""

    def __init__(self, translator: Translator, config: GenerateConfig) -> None:
        self.translator, self.config, self.key = translator, config, ("translate", config)

    def join(self, parts: Sequence[Part]) -> list[tuple[list[int], int]]:
        return [part.source[unit] for part in parts for unit in part.units.tolist()]

    def run(self, joined: list[tuple[list[int], int]], gate: ComputeGate) -> Sequence[Any]:
        with gate.turn():
            return self.translator.run_batch([ids for ids, _ in joined], [key for _, key in joined], self.config)


class GenerateRunner(Runner):
    """The n best continuations of a prompt."""

    def __init__(self, generator: Generator, config: GenerateConfig) -> None:
        self.generator, self.config, self.key = generator, config, ("generate", config)

    def join(self, parts: Sequence[Part]) -> list[PromptTokens]:
        return [part.source[unit] for part in parts for unit in part.units.tolist()]

    def run(self, joined: list[PromptTokens], gate: ComputeGate) -> Sequence[Any]:
        with gate.turn():
            return self.generator.run_batch(joined)


class StreamRunner(Runner):
    """A text that is handed over while it is written. Other models have their turn between its tokens."""

    def __init__(self, pieces: Iterator[WrittenPiece], send: Callable[[WrittenPiece], bool]) -> None:
        """`send` returns whether anybody still reads."""
        self.pieces, self.send, self.key = pieces, send, object()

    def join(self, parts: Sequence[Part]) -> None:
        return None

    def run(self, joined: None, gate: ComputeGate) -> Sequence[Any]:
        while True:
            with gate.turn():
                piece = next(self.pieces, None)
            if piece is None or not self.send(piece):
                return [None]


def work_of_rows(runner: Runner, rows: Windowed) -> Work:
    """All rows, longest first: a request that is alone has the batches of `plan_batches`."""
    order = longest_first(rows.lengths)
    return Work(runner, rows, order, rows.lengths[order])


def work_of_items(runner: Runner, items: Any, tokens: Sequence[int]) -> Work:
    order = longest_first(tokens)
    return Work(runner, items, order, np.asarray(tokens, np.int64)[order])
