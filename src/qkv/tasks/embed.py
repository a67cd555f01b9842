"""Vectors of texts that can be compared: how rows become vectors, and what they are trained by.

A text is the mean of its tokens, [CLS] and [SEP] among them, or the vector of [CLS]; of a long text every token counts
once, in the window where it is further from an edge (data/windows.py). Similarity is the cosine. The objectives:

    pairs     InfoNCE (van den Oord et al. 2018) with the other texts of the step as negatives, in both directions:
              −log e^(s·cos(a, p)) / Σ e^(s·cos(a, c)), c over all positives and negatives of the step, s = `scale`.
              Equal texts, and positives of an equal anchor, are not negatives of each other.
    scores    CoSENT (Su 2022): log(1 + Σ e^(s·(cos_j − cos_i))) over all i with a higher score than j. It orders the
              cosines as the scores are ordered, which is what Spearman's correlation measures, whatever the scale of
              the scores; a squared error of cosines would need the scores between −1 and 1 and pull the cosine of
              unrelated texts to a number that nobody measured.
    teacher   1 − cos with the vector of a teacher (Reimers and Gurevych 2020); both sides of a translation learn the
              vector that the teacher gives the first (how it gets the student's width: tasks/teacher.py). With
              `relations`, also the divergence of each text's neighbours in the step from those that it has by the
              teacher's cosines: a distance from the aim that is the same for two texts does no harm to their cosine.

With `widths` (Kusupati et al. 2022, Matryoshka) the same loss is taken of the first numbers of each vector, too.

The loss of pairs needs all vectors of a step at once. Texts are encoded in chunks that are computed again in the
backward pass, with the same dropout: memory follows the chunk, and the gradient is that of the whole step.

Shapes: T texts of a step, R rows (windows of texts), N tokens of a chunk, M counted ones, B groups, K negatives,
D width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from qkv.data.batch import Batch, Epochs, Integers, Watch, pin, plan_batches, watched
from qkv.data.pairs.groups import GroupTable
from qkv.data.windows import Rows
from qkv.metrics.intervals import bootstrap, wilson_interval
from qkv.metrics.numbers import number_intervals, retrieval_figures, retrieval_intervals, spearman
from qkv.models.encoder import WithHeads
from qkv.models.family import Encodes
from qkv.train.device import seed_draws
from qkv.train.distributed import current_world, divide
from qkv.train.loop import Term, step_seed

TextArray = NDArray[np.float32]
Counted = tuple[Tensor, Tensor]
"""Places (M,) in a packed batch, and offsets (R,) into them where each row's begin."""


# From tokens to texts


def pool_mean(hidden: Tensor, batch: Batch, counted: Counted) -> Tensor:
    """(N, D) → (R, D), the mean of each row's counted tokens in one pass over the packed batch."""
    places, offsets = (part.to(hidden.device) for part in counted)
    return functional.embedding_bag(places, hidden, offsets, mode="mean")


def pool_first(hidden: Tensor, batch: Batch, counted: Counted) -> Tensor:
    """(N, D) → (R, D), the vectors of [CLS]."""
    return hidden[batch.first]


TEXT_POOLINGS: dict[str, Callable[[Tensor, Batch, Counted], Tensor]] = {"mean": pool_mean, "cls": pool_first}


def is_of_text(batch: Batch, places: Tensor) -> Tensor:
    """(M,), whether the token at each place is neither the [CLS] nor the [SEP] of its row."""
    return ~torch.isin(places, torch.cat([batch.offsets[:-1], batch.offsets[1:] - 1]))


def keep_counted(counted: Counted, keep: Tensor) -> Counted:
    """Restrict the counted tokens to those to keep (M,).

    >>> counted = torch.tensor([0, 1, 5, 6]), torch.tensor([0, 2])
    >>> [part.tolist() for part in keep_counted(counted, torch.tensor([0, 1, 0, 1]))]
    [[1, 6], [0, 1]]
    """
    places, offsets = counted
    before = functional.pad(keep.long().cumsum(0), (1, 0))  # (M + 1,) how many are kept before each
    return places[keep.bool()], before[offsets]


class TextVectors(NamedTuple):
    vectors: TextArray  # (E, D)
    counts: Integers  # (E,) tokens counted in each


@torch.inference_mode()
def vectors_of_rows(
    encodes: Encodes,
    run: Callable[[Batch], Tensor],
    rows: Rows,
    pooling: str,
    device: torch.device,
    tokens_per_batch: int,
    watch: Watch | None = None,
) -> TextVectors:
    """The vectors of texts; `run` gives the vectors (N, D) of the tokens of a batch on the device."""
    found = np.empty((len(rows), encodes.sizes.width), dtype=np.float32)  # (R, D)
    counts = np.empty(len(rows), dtype=np.int64)  # (R,)
    for chosen in watched(plan_batches(rows.lengths, tokens_per_batch), rows.n_windows, watch):
        batch = rows.collate(chosen)
        found[chosen], counts[chosen] = vectors_of_batch(encodes, run, batch, rows.counted(chosen), pooling, device)
    return merge_vectors(rows, found, counts)


@torch.inference_mode()
def vectors_of_batch(
    encodes: Encodes,
    run: Callable[[Batch], Tensor],
    batch: Batch,
    counted: Counted,
    pooling: str,
    device: torch.device,
) -> TextVectors:
    """The vectors (R, D) of rows, and (R,) how many tokens each is of."""
    if not encodes.counts_marks:
        counted = keep_counted(counted, is_of_text(batch, counted[0]) & encodes.has_vector(batch.ids[counted[0]]))
    batch = batch.to(device)
    hidden = run(batch).float()  # (N, D): a mean over half precision would lose what is left of it
    found: TextArray = TEXT_POOLINGS[pooling](hidden, batch, counted).cpu().numpy()
    return TextVectors(found, np.diff(counted[1].numpy(), append=len(counted[0])))


def merge_vectors(rows: Rows, found: TextArray, counts: Integers) -> TextVectors:
    """Vectors of windows (R, D), weighted by the tokens counted in each (R,) → vectors of texts."""
    if len(rows) == rows.n_examples:
        return TextVectors(found, counts)
    first = np.flatnonzero(rows.windows == 0)  # rows keep the order of the texts
    total = np.add.reduceat(counts, first)
    weights = counts / total[rows.examples]  # (R,) exactly 1 for a text of one window
    return TextVectors(np.add.reduceat(found * weights[:, None].astype(np.float32), first, axis=0), total)


def merge_vectors_of_one(found: TextArray, counts: Integers) -> TextVectors:
    """`merge_vectors` of the windows of one text."""
    if len(found) == 1:
        return TextVectors(found, counts)
    total = counts.sum(keepdims=True)
    weights = (counts / total)[:, None].astype(np.float32)
    return TextVectors(np.add.reduceat(found * weights, [0], axis=0), total)


def scale_to_unit(vectors: TextArray) -> TextArray:
    """Rows scaled to length 1; a row of zeros stays as it is."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


# Steps


@dataclass(frozen=True)
class EmbedBatch:
    """The texts of a step in chunks, and what is asked of their vectors. Texts are numbered within the step."""

    kind: str  # a term of `EmbedObjective`
    parts: tuple[Batch, ...]  # labels: "places" (M,) and "offsets" (R,) of counted tokens
    order: Tensor  # (R,) rows of all parts, text by text
    begins: Tensor  # (T,) where each text's begin in `order`
    shares: Tensor  # (R,) of each row in its text, in this order
    anchors: Tensor  # (B,)
    positives: Tensor  # (B,) or (0,)
    negatives: Tensor  # (K,)
    same: Tensor  # (T,) equal for equal texts
    scores: Tensor  # (B,) or (0,)
    targets: Tensor  # (B, D) or (0,) of a teacher

    @property
    def n_tokens(self) -> int:
        return sum(part.n_tokens for part in self.parts)

    def to(self, device: torch.device, non_blocking: bool = False) -> Self:
        return self._each(
            lambda part: part.to(device, non_blocking), lambda one: one.to(device, non_blocking=non_blocking)
        )

    def pinned(self) -> Self:
        return self._each(Batch.pinned, pin)

    def _each(self, batch: Callable[[Batch], Batch], tensor: Callable[[Tensor], Tensor]) -> Self:
        names = ("order", "begins", "shares", "anchors", "positives", "negatives", "same", "scores", "targets")
        tensors: dict[str, Any] = {name: tensor(getattr(self, name)) for name in names}
        return replace(self, parts=tuple(map(batch, self.parts)), **tensors)


@dataclass(frozen=True)
class GroupSource:
    """The groups of one file, and for those with a teacher its vectors."""

    table: GroupTable
    targets: Any = None  # (anchors' texts, D) an array, perhaps mapped from a file
    target_of: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # (T,) text → row of `targets`

    @property
    def kind(self) -> str:
        """The term that it trains."""
        if self.targets is not None:
            return "teacher"
        return "scores" if self.table.kind == "scores" else "pairs"


def make_source(table: GroupTable, taught: bool, width: int) -> GroupSource:
    """With a teacher, vectors of zeros take the place of its own until `teach`."""
    if not taught or table.kind not in ("texts", "translations"):
        return GroupSource(table)
    different, _ = np.unique(table.anchors, return_inverse=True)
    place = np.zeros(len(table.texts), np.int64)
    place[different] = np.arange(len(different))
    return GroupSource(table, np.broadcast_to(np.float16(0), (len(different), width)), place)


class EmbedBatches:
    """Step → its batch, a pure function of (seed, step). A step has groups of one source.

    An epoch has as many steps as all sources need to be read once, drawn among them by their steps to the power `mix`:
    1 is in proportion, 0 as often each. A source that is read to its end is shuffled again.
    """

    def __init__(
        self,
        sources: Sequence[GroupSource],
        groups_per_step: int,
        tokens_at_once: int,
        *,
        seed: int,
        train_windows: int,
        mix: float = 1.0,
    ) -> None:
        self.sources, self.seed, self.train_windows = sources, seed, train_windows
        self.groups_per_step, self.tokens_at_once, self.mix = groups_per_step, tokens_at_once, mix
        self.own_steps = [max(1, round(len(source.table) / groups_per_step)) for source in sources]
        self.steps_per_epoch = sum(self.own_steps)
        self.steps_of = share_steps(self.own_steps, mix)
        self.turns = Epochs(self._draw_turns)
        self.orders = [Epochs(partial(self._draw_order, number)) for number in range(len(sources))]

    def __call__(self, step: int) -> list[EmbedBatch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        numbers, places = self.turns(epoch)
        number = int(numbers[within])
        own_epoch, place = divmod(epoch * self.steps_of[number] + int(places[within]), self.own_steps[number])
        groups = np.array_split(self.orders[number](own_epoch), self.own_steps[number])[place]
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, step, 6)))
        return [make_batch(self.sources[number], groups, self.tokens_at_once, self.train_windows, draw)]

    def _draw_turns(self, epoch: int) -> tuple[Integers, Integers]:
        """(steps,) the source of each step of an epoch, and how many steps of the epoch it had before."""
        numbers = np.repeat(np.arange(len(self.sources)), self.steps_of)
        numbers = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, 7))).permutation(numbers)
        places = np.zeros_like(numbers)
        for number, steps in enumerate(self.steps_of):
            places[numbers == number] = np.arange(steps)
        return numbers, places

    def _draw_order(self, number: int, epoch: int) -> Integers:
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, number, 8)))
        return draw.permutation(len(self.sources[number].table))


def share_steps(steps: Sequence[int], mix: float) -> list[int]:
    """How many steps of an epoch each source has: in proportion to steps ** mix, at least one, the same in all.

    >>> share_steps([90, 10], 1.0), share_steps([90, 10], 0.0), share_steps([90, 10], 0.5)
    ([90, 10], [50, 50], [75, 25])
    """
    weights = np.asarray(steps, np.float64) ** mix
    goals = np.cumsum(weights) / weights.sum() * sum(steps)
    number = np.arange(1, len(steps) + 1)
    ends = np.maximum.accumulate(np.maximum(np.rint(goals).astype(np.int64), number) - number) + number
    ends = np.minimum(ends, sum(steps) - (len(steps) - number))
    found: list[int] = np.diff(ends, prepend=0).tolist()
    return found


def make_batch(
    source: GroupSource, groups: Integers, tokens_at_once: int, train_windows: int, draw: np.random.Generator
) -> EmbedBatch:
    table, kind = source.table, source.kind
    anchors, negatives = table.anchors[groups], table.negatives_of(groups)
    positives = table.positives[groups] if len(table.positives) else table.positives
    learners, targets = anchors, np.zeros(0, np.float32)
    if kind == "teacher":
        taught = source.target_of[anchors]
        if len(positives):  # both sides of a translation
            learners, taught = np.concatenate([anchors, positives]), np.concatenate([taught, taught])
        targets = np.asarray(source.targets[np.sort(taught)], np.float32)[np.argsort(np.argsort(taught))]
        anchors, positives = learners, table.positives[:0]
    texts, places = np.unique(np.concatenate([anchors, positives, negatives]), return_inverse=True)
    anchors, positives, negatives = np.split(places, np.cumsum([len(anchors), len(positives)]))
    rows, counts = choose_windows(table.rows, texts, train_windows, draw)
    plan = plan_batches(table.rows.lengths[rows], tokens_at_once)
    order = np.argsort(np.concatenate(plan), kind="stable")  # (R,) where each row is
    counted = table.rows.counts()[rows].astype(np.float64)
    begins = np.cumsum(counts) - counts
    shares = counted / np.repeat(np.add.reduceat(counted, begins), counts)
    scores = table.scores[groups] if kind == "scores" else table.scores[:0]
    return EmbedBatch(
        kind,
        tuple(_collate(table.rows, rows[part]) for part in plan),
        torch.from_numpy(order),
        torch.from_numpy(begins),
        torch.from_numpy(shares.astype(np.float32)),
        torch.from_numpy(anchors),
        torch.from_numpy(positives),
        torch.from_numpy(negatives),
        torch.from_numpy(table.same[texts]),
        torch.from_numpy(np.ascontiguousarray(scores)),
        torch.from_numpy(targets),
    )


def choose_windows(
    rows: Rows, texts: Integers, train_windows: int, draw: np.random.Generator
) -> tuple[Integers, Integers]:
    """The rows of these texts, in their order, and how many each has: all, or some windows of a longer text."""
    number, first = rows.n_windows[texts], rows.first_row[texts]
    if number.max() == 1:
        return first, np.ones(len(texts), np.int64)
    chosen = [
        start + (np.arange(n) if n <= train_windows else np.sort(draw.choice(n, train_windows, replace=False)))
        for start, n in zip(first.tolist(), number.tolist(), strict=True)
    ]
    return np.concatenate(chosen), np.minimum(number, train_windows)


def _collate(rows: Rows, chosen: Integers) -> Batch:
    places, offsets = rows.counted(chosen)
    return rows.collate(chosen, {"places": places, "offsets": offsets})


class SentenceEncoder(nn.Module):
    """An encoder and its pooling: packed texts to vectors."""

    def __init__(self, network: WithHeads, pooling: str) -> None:
        super().__init__()
        self.network = network
        self.pooling = pooling

    def hidden(self, batch: Batch) -> Tensor:
        """(N, D)"""
        return self.network.encoder(**batch.inputs(), pool=False).hidden

    def row_vectors(self, batch: Batch) -> Tensor:
        """(R, D)"""
        counted = batch.labels["places"], batch.labels["offsets"]
        return TEXT_POOLINGS[self.pooling](self.hidden(batch).float(), batch, counted)

    def text_vectors(self, batch: EmbedBatch) -> Tensor:
        """(T, D). Of several chunks no activations are stored: they are computed again in the backward pass.

        In training on several processes each computes some of the chunks and all have all vectors; the gradient of each
        reaches the weights through its own.
        """
        rows = torch.cat([self.row_vectors(part) for part in batch.parts]) if self._is_whole(batch) else None
        if rows is None:
            rows = self._chunks(batch)  # (R, D)
        if len(batch.begins) == len(rows):
            return rows[batch.order]
        return functional.embedding_bag(batch.order, rows, batch.begins, mode="sum", per_sample_weights=batch.shares)

    @staticmethod
    def _is_whole(batch: EmbedBatch) -> bool:
        return not torch.is_grad_enabled() or (len(batch.parts) == 1 and current_world().size == 1)

    def _chunks(self, batch: EmbedBatch) -> Tensor:
        """(R, D)"""
        world, seed, device = current_world(), torch.initial_seed(), batch.order.device
        own = divide([part.n_tokens for part in batch.parts], world.size)[world.rank]
        found = []
        for number, part in enumerate(batch.parts):
            if number not in own:
                found.append(torch.zeros(part.n_rows, self.network.config.width, device=device))
                continue
            if number:  # dropout by the chunk, so that it does not matter which process computes it
                seed_draws(device, step_seed(seed, 0, number))
            # the ids tell the checkpoint which device's random state to restore
            found.append(checkpoint(lambda ids, part: self.row_vectors(part), part.ids, part, use_reentrant=False))
        rows = torch.cat(found)
        if world.size == 1:
            return rows
        everywhere = rows.detach().clone()
        world.sum_tensor(everywhere)
        return rows + (everywhere - rows.detach())


# Objectives


def contrast(
    anchors: Tensor, positives: Tensor, negatives: Tensor, allowed: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """InfoNCE of unit vectors (B, D), (B, D), (K, D) → (B,) losses, and (B,) whether the positive is nearest.

    `allowed` (B, B + K): which texts a pair is compared with, its own among them. The mean of both directions: a
    positive is also compared with the anchors.
    """
    logits = scale * anchors @ torch.cat([positives, negatives]).T  # (B, B + K)
    logits = logits.masked_fill(~allowed, float("-inf"))
    own = torch.arange(len(anchors), device=anchors.device)
    back = logits[:, : len(anchors)].T  # (B, B): `allowed` is symmetric there
    losses = [functional.cross_entropy(one, own, reduction="none") for one in (logits, back)]
    return (losses[0] + losses[1]) / 2, logits.argmax(1) == own


def comparable(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """(B,), (B,), (K,) numbers of texts → (B, B + K) whether a text may be a negative of a pair, or is its positive.

    Not: an equal text, and a positive of an equal anchor.

    >>> comparable(torch.tensor([0, 0, 1]), torch.tensor([5, 6, 7]), torch.tensor([6, 8])).int().tolist()
    [[1, 0, 1, 0, 1], [0, 1, 1, 0, 1], [1, 1, 1, 1, 1]]
    """
    alike = (anchors[:, None] == anchors) | (positives[:, None] == positives)  # (B, B)
    equal = alike | (anchors[:, None] == positives) | (positives[:, None] == anchors)
    equal.fill_diagonal_(False)
    if not len(negatives):
        return ~equal
    belongs = alike.float() @ (positives[:, None] == negatives).float() > 0  # (B, K)
    return torch.cat([~equal, ~(belongs | (anchors[:, None] == negatives))], dim=1)


def rank_cosines(cosines: Tensor, scores: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """CoSENT of (B,) cosines and scores → the loss, and the share of pairs of pairs in the right order."""
    higher = scores[:, None] > scores  # (B, B)
    gaps = cosines - cosines[:, None]  # (B, B) at i, j: cos_j − cos_i
    wrong = (scale * gaps).masked_fill(~higher, float("-inf")).flatten()
    loss = torch.logsumexp(functional.pad(wrong, (1, 0)), 0)
    return loss, ((gaps < 0) & higher).sum() / higher.sum().clamp(min=1)


def relate(vectors: Tensor, aims: Tensor, scale: float) -> Tensor:
    """(B, D) and (B, W) unit vectors of the student and the teacher → (B,) how far their neighbours differ.

    Of each text, the Kullback–Leibler divergence of the softmax of its cosines with the others, times the scale. Two
    sides of a translation have one aim: each is to have the other as its nearest, as in `contrast`, but texts that the
    teacher finds alike are not pushed apart.
    """
    own = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    logits, goals = (
        (scale * unit @ unit.T).masked_fill(own, torch.finfo(torch.float32).min).log_softmax(1)
        for unit in (vectors, aims)
    )
    return (goals.exp() * (goals - logits)).masked_fill(own, 0.0).sum(1)


@dataclass(frozen=True)
class EmbedObjective:
    scale: float = 20.0  # of cosines: the inverse of a temperature
    widths: tuple[int, ...] = ()  # numbers of a vector whose beginning is trained beside the whole
    width_weights: tuple[float, ...] = ()  # of their losses, the whole counts 1; (): 1 each
    relations: float = 0.0  # weight of the teacher's cosines between the texts of a step
    weights: Mapping[str, float] = field(default_factory=lambda: {"pairs": 1.0, "scores": 1.0, "teacher": 1.0})

    def counts(self, batch: EmbedBatch) -> dict[str, int]:
        return {name: len(batch.anchors) if name == batch.kind else 0 for name in self.weights}

    def terms(self, model: nn.Module, batch: EmbedBatch) -> dict[str, Term]:
        assert isinstance(model, SentenceEncoder)
        vectors = model.text_vectors(batch)  # (T, D)
        # cosines times the scale need more digits than 16 bits have
        with torch.autocast(vectors.device.type, enabled=False):
            return {batch.kind: self.loss(vectors.float(), batch)}

    def loss(self, vectors: Tensor, batch: EmbedBatch) -> Term:
        """The weighted mean over the widths; whether a prediction is correct follows from the whole vector."""
        whole = self._loss(vectors, batch.targets, batch)
        weights = self.width_weights or (1.0,) * len(self.widths)
        total = whole.loss
        for width, weight in zip(self.widths, weights, strict=True):
            targets = batch.targets[:, :width] if batch.targets.dim() == 2 else batch.targets
            total = total + weight * self._loss(vectors[:, :width], targets, batch).loss
        return Term(total / (1 + sum(weights)), whole.correct)

    def _loss(self, vectors: Tensor, targets: Tensor, batch: EmbedBatch) -> Term:
        unit = functional.normalize(vectors, dim=-1)
        first = unit[batch.anchors]
        if batch.kind == "teacher":
            aims = functional.normalize(targets, dim=-1)
            near = first @ aims.T  # (B, B)
            own = near.diagonal()
            losses = 1 - own
            if self.relations:
                losses = losses + self.relations * relate(first, aims, self.scale)
            return Term(losses.sum(), (own >= near.amax(1) - 1e-6).sum())
        second = unit[batch.positives]
        if batch.kind == "scores":
            loss, right = rank_cosines((first * second).sum(1), batch.scores, self.scale)
            return Term(loss * len(first), right * len(first))
        same = (batch.same[places] for places in (batch.anchors, batch.positives, batch.negatives))
        losses, correct = contrast(first, second, unit[batch.negatives], comparable(*same), self.scale)
        return Term(losses.sum(), correct.sum())


# Evaluation

_COSINES = 1 << 24  # of queries and candidates, held at a time


@dataclass(frozen=True)
class SetScore:
    """The figures of an evaluated set; `main` is one of them."""

    main: str
    n: int  # of groups
    values: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return self.values[self.main]

    def to_dict(self) -> dict[str, Any]:
        return {
            "main": self.main,
            "examples": self.n,
            **self.values,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
        }


def score_vectors(source: GroupSource, vectors: TextArray, intervals: bool = False) -> SetScore:
    """Score the vectors (T, D) of the texts of a set: Spearman of scores, retrieval of pairs, cosine with a teacher."""
    table, unit = source.table, scale_to_unit(vectors)
    if table.kind == "scores":
        return _score_scores(table, unit, intervals)
    values: dict[str, float] = {}
    ends: dict[str, tuple[float, float]] = {}
    if len(table.positives):
        forward = retrieval_ranks(unit, table.same, table.anchors, table.positives)
        back = retrieval_ranks(unit, table.same, table.positives, table.anchors)
        values["mrr"] = retrieval_figures(np.concatenate([forward, back]))["mrr"]
        for name, ranks in (("forward", forward), ("back", back)):
            values |= {f"{key}_{name}": value for key, value in retrieval_figures(ranks).items()}
            if intervals:
                ends |= {f"{key}_{name}": value for key, value in retrieval_intervals(ranks).items()}
        if intervals:
            ends["mrr"] = _interval_of_both(table, forward, back)
    if source.targets is not None:
        aims = scale_to_unit(np.asarray(source.targets, np.float32)[:, : unit.shape[1]])[
            source.target_of[table.anchors]
        ]
        sides = [side for side in (table.anchors, table.positives) if len(side)]
        cosines = np.stack([(unit[side] * aims).sum(1) for side in sides]).astype(np.float64).mean(0)  # (E,)
        values["cosine"] = float(cosines.mean())
        if intervals:
            ends["cosine"] = _interval_of_mean(cosines, np.ones(len(cosines)))
    return SetScore("mrr" if len(table.positives) else "cosine", len(table), values, _proper(ends))


def _proper(intervals: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Without those whose draws all agree: few rows are no proof."""
    return {name: (low, high) for name, (low, high) in intervals.items() if low < high}


def _interval_of_both(table: GroupTable, forward: Integers, back: Integers) -> tuple[float, float]:
    """The 95 % interval of the mean reciprocal rank of both directions.

    The two ranks of a pair rise and fall together, and so do those of all pairs with a common text: what is drawn are
    the texts of the side that repeats itself more, each with all its pairs. A rank counts once, however many pairs its
    query has.
    """
    sides = [np.unique(table.same[side], return_inverse=True)[1] for side in (table.anchors, table.positives)]
    owner = min(sides, key=lambda side: int(side.max()))  # (E,)
    total, count = np.zeros(owner.max() + 1), np.zeros(owner.max() + 1)
    for query, ranks in zip(sides, (forward, back), strict=True):
        shares = 1 / np.bincount(query)[query]  # (E,)
        total += np.bincount(owner, shares / ranks[query])
        count += np.bincount(owner, shares)
    if (forward == 1).all() and (back == 1).all():  # the draws agree; the first-hit rate is not more than this mean
        return wilson_interval(len(count), len(count))
    return _interval_of_mean(total, count)


def _interval_of_mean(total: NDArray[np.float64], count: NDArray[np.float64]) -> tuple[float, float]:
    return bootstrap(np.stack([total, count], axis=1), lambda sums: sums[:, 0] / sums[:, 1])


def _score_scores(table: GroupTable, unit: TextArray, intervals: bool) -> SetScore:
    cosines = (unit[table.anchors] * unit[table.positives]).sum(1).astype(np.float64)
    found = spearman(table.scores, cosines)
    ends = {"spearman": number_intervals(table.scores, cosines)["spearman"]} if intervals else {}
    # all cosines the same: nothing is ordered
    return SetScore("spearman", len(table), {"spearman": found if np.isfinite(found) else 0.0}, _proper(ends))


def retrieval_ranks(unit: TextArray, same: Integers, queries: Integers, candidates: Integers) -> Integers:
    """(Q,) for each different query, the rank of its best right candidate among all different candidates, from 1.

    Equal texts are one. A query itself is no candidate. A wrong candidate that is as near counts as nearer.
    """
    asked, query_of = np.unique(same[queries], return_inverse=True)
    offered, candidate_of = np.unique(same[candidates], return_inverse=True)
    text_of = np.empty(int(same.max()) + 1, np.int64)
    text_of[same] = np.arange(len(same))
    stored = unit[text_of[offered]]  # (C, D)
    ranks = np.empty(len(asked), np.int64)
    order = np.argsort(query_of, kind="stable")
    size = max(1, _COSINES // len(offered))
    for begin in range(0, len(asked), size):
        block = asked[begin : begin + size]
        near = unit[text_of[block]] @ stored.T  # (Q, C)
        first, last = np.searchsorted(query_of[order], [begin, begin + len(block)])
        pairs = order[first:last]
        right = np.zeros(near.shape, bool)
        right[query_of[pairs] - begin, candidate_of[pairs]] = True
        near[(block[:, None] == offered) & ~right] = -np.inf
        best = np.where(right, near, -np.inf).max(1)  # (Q,)
        ranks[begin : begin + len(block)] = 1 + ((near >= best[:, None]) & ~right).sum(1)
    return ranks
