"""The interface of an encoder below the heads of tasks (BERT, recurrent layers, convolutions), and the heads.

An encoder turns packed ids (N,) into a vector a token (N, D), and pools a row into one vector. Its parts have two
names, so that any encoder can be frozen layer by layer: `embedding`, and `blocks` from the bottom to the top.

Shapes: … (B, T) of padded or (N,) of packed rows, R rows, D width.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qkv.data.batch import Batch, Packing, pad, unpad
from qkv.errors import InputError, did_you_mean
from qkv.nn.block import ACTIVATION_FUNCTIONS
from qkv.nn.cpu.encoder import has_engines
from qkv.nn.cpu.parallel import run_parts
from qkv.nn.layers import AttentionKind, Layer
from qkv.nn.multihead import Attend, Packed, explicit, fused
from qkv.nn.position import PositionEncoding

PART_TOKENS = 512
"""Tokens computed at a time on one thread of a CPU: their activations stay in its cache."""
_PARTS_PER_THREAD, _MOST_TOKENS = 8, 65_536
"""Of a batch that is divided among threads: enough that none waits long for the others at its end."""
_UNDIVIDED_TOKENS = 4096


class EncoderConfig(Protocol):
    """The fields of an encoder's config that heads and the windowing of texts need."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def head_dropout(self) -> float | None: ...
    @property
    def initial_std(self) -> float: ...


class Encoding(NamedTuple):
    hidden: Tensor  # (…, D)
    pooled: Tensor | None  # (B, D), read by the heads of rows; None if not computed
    states: tuple[Tensor, ...] | None  # the embedding and every layer's output, (…, D) each, when asked for
    attention: dict[int, Tensor]  # by layer, as asked for: (B, H, T, T), rows padded


class Pooler(nn.Module):
    """The vector of a row for a classifier: tanh(W x + b), or another activation."""

    def __init__(self, width: int, activation: str = "tanh", dropout: float = 0.0) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATION_FUNCTIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, first: Tensor) -> Tensor:
        """(B, D) → (B, D)"""
        return self.activation(self.dense(self.dropout(first)))


class Layered(Protocol):
    """What look and the attention verb need of a network: an encoder, or an encoder and a decoder."""

    @property
    def attentions(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention; the first is the default."""
        ...

    @property
    def position_encoding(self) -> PositionEncoding | None:
        """None if positions are not added to tokens."""
        ...

    @property
    def layers(self) -> Callable[..., Iterator[Layer]]:
        """Yield the layers of a batch; of an encoder and a decoder, for a source and the tokens that the decoder
        reads."""
        ...


class Encoder(nn.Module):
    """`forward` takes what `Batch.inputs()` gives, and `pool`, whether to run the pooler, and returns an `Encoding`."""

    embedding: nn.Module
    blocks: nn.ModuleList
    pooler: Pooler | None

    @property
    def attentions(self) -> tuple[AttentionKind, ...]:
        return ()

    @property
    def position_encoding(self) -> PositionEncoding | None:
        return None

    @abstractmethod
    def layers(self, batch: Batch) -> Iterator[Layer]:
        """Yield what `forward` computes for a packed batch, layer by layer."""

    def token_states(self, batch: Batch) -> list[Tensor]:
        """(N, D) each: the embedding, then the output of every layer."""
        first, *rest = self.layers(batch)
        return [first.entered, first.left, *(layer.left for layer in rest)]

    @property
    def batch_tokens(self) -> int:
        """A good number of tokens for a batch on a CPU."""
        if not any(getattr(block, "engine", None) for block in self.blocks):
            return _UNDIVIDED_TOKENS
        return min(PART_TOKENS * _PARTS_PER_THREAD * torch.get_num_threads(), _MOST_TOKENS)

    def token_vectors(self, batch: Batch) -> Tensor:
        """(N, D) of the last layer, without the pooler. On a CPU with engines (nn/cpu/encoder.py), some rows on each
        thread, unless a layer has hooks, which are to see the whole batch once."""
        if batch.n_rows == 1 or not has_engines(self.blocks, batch.ids):
            return self._hidden_of(batch)
        if any(layer._forward_hooks or layer._forward_pre_hooks for layer in self.modules()):
            return self._hidden_of(batch)
        parts = batch.parts(PART_TOKENS, torch.get_num_threads())
        return (
            self._hidden_of(batch)
            if len(parts) == 1
            else torch.cat(run_parts([partial(self._hidden_of, part) for part in parts]))
        )

    def _hidden_of(self, batch: Batch) -> Tensor:
        hidden: Tensor = self(**batch.inputs(), pool=False).hidden
        return hidden

    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        """(N, D) → (R, D): the vector of a row; by default that of its first token."""
        return hidden.index_select(0, packing.offsets[:-1].long())


def ways_to_attend(mask: Tensor | None, packing: Packing | None, causal: bool = False) -> tuple[Attend, Attend]:
    """The fused attention for this layout of rows, and the explicit one that returns its weights (B, H, T, T).

    `causal`: a token sees those before it in its row, and itself."""
    if packing is None:
        seen = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, T): every query sees the real keys
        return partial(fused, mask=seen, causal=causal), partial(explicit, mask=seen, causal=causal)

    def padded_explicit(
        query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        real = pad(torch.ones(query.size(0), dtype=torch.bool, device=query.device), packing, False)  # (B, T)
        query, key, value = (pad(x, packing) for x in (query, key, value))  # (B, T, H, K)
        answer, weights = explicit(
            query, key, value, mask=real[:, None, None, :], causal=causal, scale=scale, dropout=dropout
        )
        return unpad(answer, packing), weights

    return Packed(*packing, causal=causal), padded_explicit


# Heads of tasks: dropout and one linear layer each (Devlin et al. 2019, §4)


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
    "sentence_order": lambda config, labels: LinearHead(config.width, 2, _task_dropout(config)),  # 1: they were swapped
    "sequence": lambda config, labels: LinearHead(config.width, labels, _task_dropout(config)),
    "token": lambda config, labels: LinearHead(config.width, labels, _task_dropout(config)),
    "span": lambda config, labels: LinearHead(config.width, 2),  # is it the start, is it the end
    "choice": lambda config, labels: LinearHead(config.width, 1, _task_dropout(config)),
}
READS_POOLED = frozenset({"next_sentence", "sentence_order", "sequence", "choice"})
"""Those that read one vector a row, through a pooler."""


class WithHeads(nn.Module):
    """An encoder and heads by name, with a pooler if a head reads it or `pooler` is True.

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
        """Apply one head to its input: hidden vectors (…, D), or pooled ones (R, D)."""
        return self.heads[head](x)

    def forward(self, ids: Tensor, *rest: Tensor | None, **options: Any) -> tuple[Encoding, dict[str, Tensor]]:
        """The arguments of the encoder → its encoding, and the logits of every head."""
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


class SkipInit(TorchFunctionMode):
    """A network built inside, on the meta device, is not initialised: every weight is about to come from a file.

    There is no memory to write into, but torch imports its compiler to find that out, which takes seconds and tens of
    megabytes. A mode, unlike a patch of torch.nn.init, is seen by this thread alone.
    """

    WRITES = frozenset(
        {
            *("normal_", "uniform_", "kaiming_uniform_", "trunc_normal_", "constant_", "zeros_", "ones_"),
            *("fill_", "zero_", "add_", "mul_", "clamp_", "erfinv_"),  # how torch draws from a cut normal
        }
    )

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(func, "__name__", "") in self.WRITES:
            return args[0] if args else given["tensor"]
        return func(*args, **given)
