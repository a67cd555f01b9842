"""The losses of ELMo's two language models over running text (Peters et al. 2018, §3.1), with a sampled softmax.

Sampled softmax (Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", §3):

    loss = −log( exp s(target) / π(target)  /  Σ over the target and the sampled words exp s(word) / π(word) )

S words are sampled by frequency, once for all targets of a batch; π is the probability that a word is among them. The
target is always included, so without π the scores would be biased by how often a word is sampled. With π the best
scores are those of the full softmax, as long as words are drawn independently (almost: S draws, each word counted
once). With all words sampled π is 1, and this is the full softmax. Dividing only the sampled words and not the
target makes the sum right on average but its logarithm too low; on a small corpus (20 words of 50) that training made
the perplexity worse. Loss and accuracy are among the sampled words: they do not compare with those of the full
softmax.

Two directions: the backward model continues from the tokens *after* a piece, so it must have read these first. Each
direction has its own streams (data/corpus/rows.py): one from the start of the text, one from its end; in an
epoch both read everything. `TwoWayBatches` reads the text mirrored and reverses each row, so that the tokens of a batch
are in the order of the text and a reversed stack reads them from the end.

Labels in addition to those of data/corpus/rows.py, whose `next` is the token before, in a backward batch:

    word     (N,)  which of the batch's different tokens each one is
    words    (U,)  those tokens, of both directions (on the forward batch): each is spelled once, the shortest first

Shapes: M targets, S sampled words (in the first part) or streams, R rows of a batch, N tokens of all rows, D width,
P width of a direction, V vocabulary.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Batch, Epochs, Integers
from qkv.data.corpus.rows import Shuffled, StreamBatches
from qkv.models.elmo.network import Elmo
from qkv.nn.gpu.layers import word_loss
from qkv.nn.recurrent_stack import DIRECTIONS, States
from qkv.nn.words import LengthGroups, group_by_length
from qkv.train.loop import Term

_NEVER = -1e4  # a score that adds nothing; the logarithm of nothing at all would have no gradient


class Unigram:
    """Draws words in proportion to their counts plus one, so that every word can be drawn."""

    def __init__(self, counts: Tensor, size: int) -> None:
        exact = torch.float32 if counts.device.type == "mps" else torch.float64  # an Apple GPU has no float64
        shares = (counts.to(exact) + 1) / (counts.to(exact) + 1).sum()
        self.size = size
        self.cumulative = shares.cumsum(0)  # V
        self.log_chances = (-torch.expm1(size * torch.log1p(-shares))).log().float()  # V, of being among S

    def draw(self) -> tuple[Tensor, Tensor]:
        """(S,) words in the order of ids, and (S,) whether each repeats the one before; drawn by torch's generator of
        the device, which the loop seeds at every step."""
        chosen = torch.rand(self.size, dtype=self.cumulative.dtype, device=self.cumulative.device).sort().values
        words = torch.searchsorted(self.cumulative, chosen).clamp_max(len(self.cumulative) - 1)
        again = torch.zeros_like(words, dtype=torch.bool)
        again[1:] = words[1:] == words[:-1]
        return words, again


def sampled_loss(x: Tensor, table: Tensor, bias: Tensor, targets: Tensor, sampler: Unigram) -> tuple[Tensor, Tensor]:
    """Vectors (M, D), scored against their targets and sampled words of the table (V, D) → the summed loss, and the
    number of targets with the highest score."""
    drawn, again = sampler.draw()
    if not x.is_cuda:  # a GPU would have to be asked how many are left, which takes longer than to score them in vain
        drawn, again = drawn[~again], again[~again]
    bias = bias - sampler.log_chances  # V
    target = (x * _rows(table, targets)).sum(-1).float() + _rows(bias[:, None], targets)[:, 0]  # M
    offsets = _rows(bias[:, None], drawn)[:, 0].masked_fill(again, _NEVER)  # S
    scores = functional.linear(x, _rows(table, drawn), offsets).float()  # M, S
    scores = scores.masked_fill_(drawn == targets[:, None], _NEVER)
    others = scores.logsumexp(-1)  # M
    right = (target > scores.detach().amax(-1)).sum()
    return (torch.logaddexp(target, others) - target).sum(), right


def _rows(table: Tensor, ids: Tensor) -> Tensor:
    """A look-up whose gradient is summed in a fixed order."""
    return functional.embedding(ids, table)


# Two directions

_NAMES = {"next": "forward", "previous": "backward"}


@dataclass(frozen=True)
class TwoWays:
    """The batches of both directions in a step, from different positions of the same text."""

    forward: Batch
    backward: Batch
    groups: LengthGroups = ()  # of the different tokens, by length; () if their length is not known

    @property
    def n_tokens(self) -> int:
        return self.forward.n_tokens  # the others count in their turn

    def of(self, direction: str) -> Batch:
        return self.forward if direction == "forward" else self.backward

    def to(self, device: torch.device, non_blocking: bool = False) -> Self:
        return self._each(lambda batch: batch.to(device, non_blocking))

    def pinned(self) -> Self:
        return self._each(Batch.pinned)

    def _each(self, change: Callable[[Batch], Batch]) -> Self:
        return replace(self, forward=change(self.forward), backward=change(self.backward))


class Mirrored(Shuffled):
    """The same text in reverse, with documents counted from the end."""

    def __init__(self, text: Shuffled) -> None:
        self.straight = text
        self.begins = text.text.n_tokens - np.append(text.begins[1:], text.text.n_tokens)[::-1]

    def look_up(self, places: Integers) -> tuple[Integers, Integers]:
        ids, document = self.straight.look_up(self.straight.text.n_tokens - 1 - places)
        return ids, len(self.begins) - 1 - document


class TwoWayBatches(StreamBatches):
    """Step → the batches of both directions; the stream of each row continues in the next step."""

    def __init__(self, *text: Any, sizes: Integers | None = None, **how: Any) -> None:
        """`sizes` (V,) is the number of bytes of each token, with its boundary bytes; the rest is as for
        StreamBatches."""
        super().__init__(*text, **how)
        self.sizes = sizes

    @cached_property
    def mirrored(self) -> Epochs[Mirrored]:
        return Epochs(lambda epoch: Mirrored(self.epoch(epoch)))

    def two_ways(self, step: int) -> list[TwoWays]:
        pairs = zip(self(step), self.backward_batches(step), strict=True)
        return [_spelled_once(forward, backward, self.sizes) for forward, backward in pairs]

    def backward_batches(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        streams = np.arange(self.streams)
        begins = streams * self.stream_length + within * self.config.length
        return [
            reverse_rows(batch) for batch in self._batches(self.mirrored(epoch), begins, streams, goes_on=within > 0)
        ]


def reverse_rows(batch: Batch) -> Batch:
    """Reverse every row, and adapt the positions to score."""
    offsets, row = batch.offsets.long(), batch.row_of_token
    order = offsets[row] + offsets[row + 1] - 1 - torch.arange(batch.n_tokens)
    scored_at = order[batch.labels["scored_at"]]
    return replace(batch, ids=batch.ids[order], labels={**batch.labels, "scored_at": scored_at})


def _spelled_once(forward: Batch, backward: Batch, sizes: Integers | None) -> TwoWays:
    ids = torch.cat([forward.ids, backward.ids]).numpy()
    place = np.zeros(int(ids.max()) + 1, np.int64)  # of a word among the different ones
    place[ids] = 1
    words = np.flatnonzero(place)
    groups: LengthGroups = ()
    if sizes is not None:
        words = words[np.argsort(sizes[words], kind="stable")]
        groups = group_by_length(sizes[words].tolist())
    place[words] = np.arange(len(words))
    of_forward, of_backward = torch.from_numpy(place[ids]).split([forward.n_tokens, backward.n_tokens])
    labels = {**forward.labels, "word": of_forward, "words": torch.from_numpy(words)}
    return TwoWays(
        replace(forward, labels=labels), replace(backward, labels={**backward.labels, "word": of_backward}), groups
    )


class CarryingBoth(nn.Module):
    """ELMo in training: its buffers are the states of its streams."""

    def __init__(self, network: Elmo, streams: int) -> None:
        super().__init__()
        self.network = network
        for direction in DIRECTIONS:
            for number, part in enumerate(_flat(network.begin(direction, streams))):
                self.register_buffer(f"carried_{direction}_{number}", part)

    def carried(self, direction: str) -> list[Tensor]:
        """(S, ·) each: of every layer, the hidden and the cell state"""
        return [self.get_buffer(f"carried_{direction}_{number}") for number in range(2 * self.network.config.layers)]

    def forget(self) -> None:
        for direction in DIRECTIONS:
            for part in self.carried(direction):
                part.zero_()

    def forward(self, batch: TwoWays) -> dict[str, Tensor]:
        """By direction, the vectors from which targets are scored (N, P); the states of the streams are advanced."""
        spelled = self.network.spell(batch.forward.labels["words"], batch.groups)  # (U, P)
        return {direction: self._read(direction, spelled, batch.of(direction)) for direction in DIRECTIONS}

    def _read(self, direction: str, spelled: Tensor, batch: Batch) -> Tensor:
        carried, labels = self.carried(direction), batch.labels
        # where, not times: a NaN state must not reach another document
        continues = labels["continues"][:, None]
        begin = [torch.where(continues, part[batch.examples], part.new_zeros(())) for part in carried]  # (R, ·)
        states = tuple(zip(begin[::2], begin[1::2], strict=True))
        x = nn.functional.embedding(labels["word"], spelled)  # (N, P)
        layers, after = self.network.read(direction, x, batch.lengths, states)
        with torch.no_grad():
            for part, state in zip(carried, _flat(after), strict=True):
                part.index_copy_(0, labels["streams"], state.detach()[labels["last"]].to(part.dtype))
        return layers[-1]


def _flat(states: States) -> list[Tensor]:
    return [part for state in states for part in state]


class BothDirections:
    """The sum of the cross entropies of the next and the previous token: in training against the words of `sampler`, if
    there is one; else against all."""

    weights: Mapping[str, float] = dict.fromkeys(_NAMES, 1.0)

    def __init__(self, sampler: Unigram | None = None) -> None:
        self.sampler = sampler

    def counts(self, batch: TwoWays) -> dict[str, int]:
        return {name: batch.of(direction).labels["next"].numel() for name, direction in _NAMES.items()}

    def terms(self, model: nn.Module, batch: TwoWays) -> dict[str, Term]:
        assert isinstance(model, CarryingBoth)
        hidden, found = model(batch), {}
        for name, direction in _NAMES.items():
            labels = batch.of(direction).labels
            chosen = hidden[direction].index_select(0, labels["scored_at"])  # (M, P)
            parts = model.network.before_words(chosen)
            if self.sampler is not None and model.training:
                found[name] = Term(*sampled_loss(*parts, labels["next"], self.sampler))
            else:
                found[name] = Term(*word_loss(*parts, labels["next"]))
        return found


class _Figures(NamedTuple):
    loss: float  # the mean
    right: int
    scored: int


def evaluate_both_directions(model: CarryingBoth, batches: Iterable[TwoWays]) -> dict[str, _Figures]:
    """Figures of "next" and "previous"; the model needs states of its own."""
    device, objective = next(model.parameters()).device, BothDirections()
    sums: dict[str, list[Any]] = {name: [0.0, 0, 0] for name in _NAMES}
    for batch in batches:
        counts = objective.counts(batch)
        for name, term in objective.terms(model, batch.to(device)).items():
            parts = (term.loss.item(), int(term.correct), counts[name])
            sums[name] = [total + part for total, part in zip(sums[name], parts, strict=True)]
    return {name: _Figures(loss / max(1, count), right, count) for name, (loss, right, count) in sums.items()}


class TrainingFlops:
    """Floating-point operations of forward and backward: 6 for every use of a weight."""

    def __init__(self, network: Elmo, words: float) -> None:
        """`words` is the mean number of words that a target is scored against."""
        self.bytes = network.sizes().cpu()  # (V,)
        characters = network.characters
        self.of_byte = sum(weight.numel() for weight in characters.convolutions.parameters() if weight.dim() == 3)
        mixing = (*characters.highways.parameters(), characters.project.weight)
        self.of_word = sum(weight.numel() for weight in mixing if weight.dim() == 2)
        self.of_token = sum(weight.numel() for weight in network.forward_stack.parameters() if weight.dim() == 2)
        self.of_target = words * network.config.width

    def __call__(self, batch: TwoWays) -> float:
        words = batch.forward.labels["words"].cpu()
        found = float(self.of_byte * int(self.bytes[words].sum()) + self.of_word * len(words))
        for direction in DIRECTIONS:
            one = batch.of(direction)
            found += self.of_token * one.n_tokens + self.of_target * one.labels["next"].numel()
        return 6.0 * found
