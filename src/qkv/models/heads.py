"""The heads that tasks put on an encoder: dropout and one linear layer each (Devlin et al. 2019, §4).

Shapes: … (B, T) of padded or (N,) of packed rows, R rows, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from qkv.errors import InputError, did_you_mean
from qkv.models.encoder import Encoder, EncoderConfig, Encoding


class LinearHead(nn.Module):
    """Dropout and one linear layer: all that fine-tuning adds."""

    def __init__(self, width: int, outputs: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, outputs)"""
        return self.linear(self.dropout(x))


def _task_dropout(config: EncoderConfig) -> float:
    return config.dropout if config.head_dropout is None else config.head_dropout


HEADS: dict[str, Callable[[EncoderConfig, int], nn.Module]] = {
    "next_sentence": lambda config, labels: LinearHead(config.width, 2),  # 0 is IsNext, 1 is NotNext
    "sequence": lambda config, labels: LinearHead(config.width, labels, _task_dropout(config)),
    "token": lambda config, labels: LinearHead(config.width, labels, _task_dropout(config)),
    "span": lambda config, labels: LinearHead(config.width, 2),  # is it the start, is it the end
    "choice": lambda config, labels: LinearHead(config.width, 1, _task_dropout(config)),
}
READS_POOLED = frozenset({"next_sentence", "sequence", "choice"})
"""Those that read one vector a row, through a pooler."""


class WithHeads(nn.Module):
    """An encoder and heads by name; a pooler when a head reads it, or when asked for.

    `own` are heads that belong to one kind of encoder, beside those that any can have.
    """

    encoder: Encoder

    def __init__(
        self,
        config: EncoderConfig,
        encoder: Callable[[bool], Encoder],
        heads: Sequence[str] = (),
        labels: int = 2,
        pooler: bool | None = None,
        own: Mapping[str, Callable[[], nn.Module]] | None = None,
    ) -> None:
        super().__init__()
        known: dict[str, Callable[[], nn.Module]] = {
            **{name: partial(make, config, labels) for name, make in HEADS.items()},
            **(own or {}),
        }
        for name in heads:
            if name not in known:
                raise InputError(f"Unknown head '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}.")
        self.config = config
        self.encoder = encoder(bool(READS_POOLED & set(heads)) if pooler is None else pooler)
        self.heads = nn.ModuleDict({name: known[name]() for name in heads})
        self.heads.apply(partial(initialise, std=config.initial_std))

    def predict(self, head: str, x: Tensor) -> Tensor:
        """One head on the vectors it should read: hidden ones (…, D), or pooled ones (R, D)."""
        return self.heads[head](x)

    def forward(self, ids: Tensor, *rest: Tensor | None, **options: Any) -> tuple[Encoding, dict[str, Tensor]]:
        """The arguments of the encoder → its encoding and every head's logits."""
        encoding = self.encoder(ids, *rest, **options)
        logits = {}
        for name in self.heads:
            reads = encoding.pooled if name in READS_POOLED else encoding.hidden
            assert reads is not None, f"the head {name} reads what a pooler makes of a row"
            logits[name] = self.predict(name, reads)
        return encoding, logits


def initialise(module: nn.Module, std: float) -> None:
    """Normal weights cut at two deviations, zero biases, as BERT's original code draws them."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
