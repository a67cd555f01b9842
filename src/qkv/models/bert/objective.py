"""BERT's two pretraining tasks (Devlin et al. 2019, §3.1): masked words and the next sentence.

A row is [CLS] A [SEP] B [SEP].

Masking: of all ordinary tokens 15 % are chosen; of those 80 % become [MASK], 10 % another random token and 10 % stay,
so that the model must represent every token well, not only the hidden ones. Special tokens and [UNK] are never chosen.

With whole words (Cui et al. 2021 for Chinese), all tokens of a word are chosen together. Words are taken in random
order until the budget is used up; the one that crosses it is taken with the probability that keeps the expected rate.
In a row so short that 15 % is less than a word, one word is taken. Masking is vectorised over a batch and depends on
the generator alone.

`PretrainingBatches` is a pure function of (seed, step): a run seeks to any step at once. `MaskedAndNextSentence` is the
loss. Only the chosen tokens go through the masked head, whose scores over the vocabulary are the largest tensor.

Shapes: N tokens of all rows, R rows, M chosen tokens, D width, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from qkv.data.batch import Batch, Epochs
from qkv.data.corpus.rows import Boundaries, Instances, PairConfig, instances
from qkv.data.corpus.shards import ranges
from qkv.errors import InputError
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.nn.gpu.layers import word_loss
from qkv.train.loop import Term

MASK, RANDOM, KEPT = 0, 1, 2
"""How a chosen token was treated; the order of `MaskingConfig.treatment`."""


@dataclass(frozen=True)
class MaskingConfig:
    rate: float = 0.15
    treatment: tuple[float, ...] = (0.8, 0.1, 0.1)  # [MASK], another token, kept
    whole_words: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise InputError(f"rate is a share between 0 and 1, not {self.rate}.")
        if len(self.treatment) != 3 or min(self.treatment) < 0 or abs(sum(self.treatment) - 1) > 1e-6:
            raise InputError(
                f"treatment is three shares ([MASK], random, kept) that add up to 1, not {self.treatment}."
            )


class Masked(NamedTuple):
    ids: NDArray[np.int64]  # (N,) with the chosen tokens treated
    chosen: NDArray[np.int64]  # (M,) where, in ascending order
    targets: NDArray[np.int64]  # (M,) before masking
    treatment: NDArray[np.int8]  # (M,) MASK, RANDOM or KEPT


@dataclass(frozen=True)
class Vocabulary:
    """The properties of a tokenizer that masking needs."""

    size: int
    mask_id: int
    special_ids: frozenset[int]  # [UNK] among them

    @cached_property
    def is_ordinary(self) -> NDArray[np.bool_]:
        """Whether a token is ordinary, by id."""
        found = np.ones(self.size, np.bool_)
        found[list(self.special_ids)] = False
        return found

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """The ids from which random tokens are drawn, ascending."""
        return np.flatnonzero(self.is_ordinary)


def mask_tokens(
    ids: NDArray[np.int64],
    row_of_token: NDArray[np.int64],
    unit_starts: NDArray[np.bool_] | None,
    vocabulary: Vocabulary,
    config: MaskingConfig,
    draw: np.random.Generator,
) -> Masked:
    """`unit_starts` (N,) is True where a word begins; None chooses token by token."""
    eligible = vocabulary.is_ordinary[ids]  # (N,)
    chosen = _chosen(eligible, row_of_token, unit_starts, config.rate, draw)
    targets = ids[chosen]
    treatment = np.searchsorted(np.cumsum(config.treatment[:2]), draw.random(len(chosen)), side="right")
    replaced = ids.copy()
    replaced[chosen[treatment == MASK]] = vocabulary.mask_id
    at_random = treatment == RANDOM
    replaced[chosen[at_random]] = _another(targets[at_random], vocabulary.ordinary, draw)
    return Masked(replaced, chosen, targets, treatment.astype(np.int8))


def _chosen(
    eligible: NDArray[np.bool_],
    row_of_token: NDArray[np.int64],
    unit_starts: NDArray[np.bool_] | None,
    rate: float,
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    """(M,) the tokens to predict, ascending."""
    if unit_starts is None:
        begins = np.flatnonzero(eligible)  # (units,)
        sizes = np.ones(len(begins), np.int64)
    else:
        # what follows a special token, or opens a row, opens a unit even if a word was cut there
        opens = unit_starts.copy()
        opens[:1] = True
        opens[1:] |= ~eligible[:-1]
        opens[1:] |= row_of_token[1:] != row_of_token[:-1]
        begins = np.flatnonzero(opens & eligible)
        sizes = np.add.reduceat(eligible, begins, dtype=np.int64) if len(begins) else begins
    if not len(begins):
        return begins
    unit_rows = row_of_token[begins]
    opens_row = np.diff(unit_rows, prepend=-1) != 0
    first, row = np.flatnonzero(opens_row), np.cumsum(opens_row) - 1

    # a random order within every row, by one number each: sorting by two takes several times as long
    order = np.argsort(unit_rows << 32 | draw.integers(0, 1 << 32, len(begins)))
    ordered_sizes = sizes[order]
    used = np.cumsum(ordered_sizes) - ordered_sizes  # tokens of units before this one …
    used -= used[first][row]  # … in its own row
    budget = (rate * np.add.reduceat(sizes, first))[row]
    taken = draw.random(len(begins)) * ordered_sizes < budget - used  # surely, if it fits whole
    taken[first] |= ~np.logical_or.reduceat(taken, first)  # at least one a row
    units_taken = np.sort(order[taken])
    return ranges(begins[units_taken], sizes[units_taken])


def _another(originals: NDArray[np.int64], ordinary: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64]:
    """A random ordinary token for each, never the same one."""
    picks = draw.integers(0, max(1, len(ordinary) - 1), len(originals))
    places = np.searchsorted(ordinary, originals)
    return ordinary[picks + (picks >= places)]


# Both tasks on one batch


class Corpus(Boundaries, Protocol):
    """Token ids that can be read by ranges: starts and lengths → the concatenated ids."""

    def tokens(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def word_starts(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]: ...


class _SpecialIds(Protocol):
    """The properties of a tokenizer that batches need."""

    @property
    def size(self) -> int: ...
    @property
    def cls_id(self) -> int: ...
    @property
    def sep_id(self) -> int: ...
    @property
    def mask_id(self) -> int: ...
    @property
    def special_ids(self) -> frozenset[int]: ...


class PretrainingBatches:
    """Step → the batches of that step."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: _SpecialIds,
        pairs: PairConfig,
        masking: MaskingConfig,
        *,
        rows: int,
        accumulate: int = 1,
        seed: int = 0,
    ) -> None:
        self.tokenizer, self.pairs, self.masking = tokenizer, pairs, masking
        self.rows, self.accumulate, self.seed = rows, accumulate, seed
        self.vocabulary = Vocabulary(tokenizer.size, tokenizer.mask_id, tokenizer.special_ids)
        self._read(corpus)
        if not self.steps_per_epoch:
            raise InputError(
                f"The corpus gives {len(self.epoch(0)[0])} rows of up to {pairs.max_length} tokens, but a step takes "
                f"{rows * accumulate}. Give more text, or fewer rows a step (--set rows=…)."
            )

    def over(self, corpus: Corpus) -> Self:
        """The same batches over another corpus, such as the held-out documents."""
        other = copy(self)
        other._read(corpus)
        return other

    def resized(self, rows: int, accumulate: int) -> Self:
        """The same steps in batches of another size."""
        other = copy(self)  # with the same drawn epochs
        other.rows, other.accumulate = rows, accumulate
        return other

    @property
    def streams(self) -> int:
        """Rows of a step."""
        return self.rows * self.accumulate

    def _read(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.epoch = Epochs(self._draw_epoch)
        self._steps: int | None = None

    @property
    def steps_per_epoch(self) -> int:
        """The number of rows varies a little between epochs; the first epoch sets the length of all, so that the epoch
        of a step is found by a division."""
        if self._steps is None:
            self._steps = len(self.epoch(0)[0]) // (self.rows * self.accumulate)
        return self._steps

    def __call__(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        drawn, order = self.epoch(epoch)
        if within >= 0.75 * self.steps_per_epoch:
            self.epoch.begin(epoch + 1)
        begin = within * self.rows * self.accumulate
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, within, 1)))
        return [
            self.batch(drawn.take(order[(begin + part * self.rows + np.arange(self.rows)) % len(order)]), draw)
            for part in range(self.accumulate)
        ]

    def _draw_epoch(self, epoch: int) -> tuple[Instances, NDArray[np.int64]]:
        """All rows of an epoch in the order of the corpus, and a random order for training."""
        drawn = instances(self.corpus, self.pairs, self.seed, epoch)
        shuffle = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, 2)))
        return drawn, shuffle.permutation(len(drawn))

    def batch(self, rows: Instances, draw: np.random.Generator) -> Batch:
        """Rows sorted by length, so that a CPU finds neighbours of equal length."""
        return self.packed(rows.take(np.argsort(rows.a_length + rows.b_length, kind="stable")), draw)[0]

    def packed(self, rows: Instances, draw: np.random.Generator) -> tuple[Batch, Masked]:
        """[CLS] A [SEP] B [SEP] of all rows concatenated and masked, and how every chosen token was treated."""
        paired = self.pairs.negatives != "none"
        lengths = rows.a_length + rows.b_length + (3 if paired else 2)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        total = int(ends[-1])

        ids = np.empty(total, np.int64)
        separator = begins + 1 + rows.a_length
        ids[begins] = self.tokenizer.cls_id
        ids[separator] = self.tokenizer.sep_id
        ids[ends - 1] = self.tokenizer.sep_id
        start, length, place = rows.a_start, rows.a_length, begins + 1
        if paired:
            start, length = np.concatenate([start, rows.b_start]), np.concatenate([length, rows.b_length])
            place = np.concatenate([place, separator + 1])
        order = np.argsort(start)  # corpus order, for sequential reads
        start, length, place = start[order], length[order], place[order]
        places = ranges(place, length)
        ids[places] = self.corpus.tokens(start, length)
        starts = None
        if self.masking.whole_words:
            starts = np.ones(total, bool)
            starts[places] = self.corpus.word_starts(start, length)

        row_of_token = np.zeros(total, np.int64)
        row_of_token[begins[1:]] = 1
        np.cumsum(row_of_token, out=row_of_token)
        positions = np.arange(total) - begins[row_of_token]
        segments = (positions > (1 + rows.a_length)[row_of_token]).astype(np.int64)  # 1 behind the first [SEP]
        masked = mask_tokens(ids, row_of_token, starts, self.vocabulary, self.masking, draw)
        labels = {"masked_at": torch.from_numpy(masked.chosen), "masked": torch.from_numpy(masked.targets)}
        if paired:
            labels["next_sentence"] = torch.from_numpy(rows.label)
        batch = Batch.packed(
            torch.from_numpy(masked.ids),
            lengths.tolist(),
            segments=torch.from_numpy(segments),
            positions=torch.from_numpy(positions),
            labels=labels,
        )
        return batch, masked


class MaskedAndNextSentence:
    """The masked and the next-sentence loss, added as in the paper."""

    def __init__(self, next_sentence: bool = True) -> None:
        self.weights: Mapping[str, float] = {"masked": 1.0} | ({"next_sentence": 1.0} if next_sentence else {})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.labels[name].numel() for name in self.weights}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, BertWithHeads)
        paired = "next_sentence" in self.weights
        encoding = model.encoder(**batch.inputs(), only=batch.labels["masked_at"], pool=paired)
        terms = {"masked": Term(*word_loss(*model.before_words(encoding.hidden), batch.labels["masked"]))}
        if paired:
            logits, targets = model.predict("next_sentence", encoding.pooled).float(), batch.labels["next_sentence"]
            loss = functional.cross_entropy(logits, targets, reduction="sum")
            terms["next_sentence"] = Term(loss, (logits.detach().argmax(-1) == targets).sum())
        return terms


def model_flops(model: BertWithHeads, batch: Batch) -> float:
    """Floating-point operations of the whole model's forward and backward pass (6 per weight and token), without
    padding and with the head on predicted tokens only; used to compare speeds."""
    config = model.config
    attention = 12 * config.layers * config.width * sum(length**2 for length in batch.lengths)
    head = config.width**2 + config.width * config.vocabulary_size
    blocks = config.layers * _weights(config) * batch.n_tokens
    return 6.0 * (blocks + head * batch.labels["masked_at"].numel()) + attention


def pretraining_flops(model: BertWithHeads, batch: Batch) -> float:
    """The operations that are actually computed: after its attention, the last block runs on the predicted tokens
    only."""
    config = model.config
    read = batch.labels["masked_at"].numel() + (batch.n_rows if model.encoder.pooler is not None else 0)
    after_attention = _weights(config) - 3 * config.width**2
    return model_flops(model, batch) - 6.0 * after_attention * (batch.n_tokens - read)


def _weights(config: BertConfig) -> int:
    """The number of weights in the matrices of a block."""
    return 4 * config.width**2 + 2 * config.width * config.inner_width


def evaluate_pretraining(
    model: nn.Module, objective: MaskedAndNextSentence, batches: Sequence[Batch]
) -> dict[str, tuple[float, int, int]]:
    """The mean loss, the number of correct predictions and their total, by term."""
    device = next(model.parameters()).device
    sums = {name: [0.0, 0, 0] for name in objective.weights}
    for batch in batches:
        counts = objective.counts(batch)
        for name, term in objective.terms(model, batch.to(device)).items():
            sums[name][0] += term.loss.item()
            sums[name][1] += int(term.correct)
            sums[name][2] += counts[name]
    return {name: (loss / max(1, count), int(right), int(count)) for name, (loss, right, count) in sums.items()}
