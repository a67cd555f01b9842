"""Which token comes next: the loss of NNLM and RNNLM over running text, and the state that a recurrent model carries.

`Carrying` is a recurrent model while it is trained. Its buffers are the state that each stream of running_text.py was
left in, so that a checkpoint holds them like weights. The gradient ends there: truncated back-propagation through time.

Shapes: S streams, R rows of a batch, N tokens of all rows, M predicted tokens, P width of the last layer.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from qkv.batch import Batch
from qkv.models.nnlm import NNLM
from qkv.models.rnnlm import RNNLM
from qkv.nn.fast import word_loss
from qkv.nn.recurrent_stack import States
from qkv.train.loop import Term


class Carrying(nn.Module):
    """A recurrent model, and the states in which its streams were left."""

    def __init__(self, network: RNNLM, streams: int) -> None:
        super().__init__()
        self.network = network
        self.shape = tuple(len(state) for state in network.begin(1))  # hidden and cell state, of each layer
        for number, part in enumerate(_flat(network.begin(streams))):
            self.register_buffer(f"carried_{number}", part)

    @property
    def carried(self) -> list[Tensor]:
        """(S, ·) each"""
        return [self.get_buffer(f"carried_{number}") for number in range(sum(self.shape))]

    def forget(self) -> None:
        for part in self.carried:
            part.zero_()

    def forward(self, batch: Batch) -> Tensor:
        """What the next tokens are scored from (N, P); the streams of the batch have moved on."""
        continues = batch.labels["continues"][:, None]
        # where, not times: a state that is no number any more must not reach the next document
        begin = [torch.where(continues, part[batch.examples], part.new_zeros(())) for part in self.carried]  # (R, ·)
        hidden, states = self.network(batch.ids, batch.lengths, self._unflat(begin))
        streams, last = batch.labels["streams"], batch.labels["last"]
        with torch.no_grad():
            for part, after in zip(self.carried, _flat(states), strict=True):
                part.index_copy_(0, streams, after.detach()[last].to(part.dtype))
        return hidden

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.network.before_words(hidden)

    def _unflat(self, parts: list[Tensor]) -> States:
        rest = iter(parts)
        return tuple(tuple(next(rest) for _ in range(size)) for size in self.shape)


def _flat(states: States) -> list[Tensor]:
    return [part for state in states for part in state]


class NextToken:
    """The cross entropy of the token that comes next, of every token that has a next one."""

    weights: Mapping[str, float] = {"next": 1.0}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"next": batch.labels["next"].numel()}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, NNLM | Carrying)
        hidden = model(batch) if isinstance(model, Carrying) else model(batch.ids, batch.positions)
        chosen = hidden.index_select(0, batch.labels["scored_at"])  # (M, P)
        return {"next": Term(*word_loss(*model.before_words(chosen), batch.labels["next"]))}


def evaluated(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, int, int]:
    """The mean loss, how many were right, of how many; a recurrent model must come with states of its own."""
    device, objective = next(model.parameters()).device, NextToken()
    loss, right, count = 0.0, 0, 0
    for batch in batches:
        term = objective.terms(model, batch.to(device))["next"]
        loss, right, count = loss + term.loss.item(), right + int(term.correct), count + objective.counts(batch)["next"]
    return loss / max(1, count), right, count


def training_flops(model: NNLM | RNNLM, batch: Batch) -> float:
    """Multiplications and additions of forward and backward: 6 for a weight and a token that meets it."""
    inner = model.hidden if isinstance(model, NNLM) else model.stack
    weights = sum(weight.numel() for weight in inner.parameters() if weight.dim() == 2)
    width = model.config.hidden_width if isinstance(model, NNLM) else model.config.output_width
    if isinstance(model, NNLM) and model.config.direct:
        width += model.config.context * model.config.width
    head = model.config.vocabulary_size * width
    return 6.0 * (weights * batch.n_tokens + head * batch.labels["next"].numel())
