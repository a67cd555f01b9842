"""An encoder with the head of a task, and which of its parameters are trained.

    full        all parameters are trained
    top:K       the last K layers and the head are trained
    freeze      only the head is trained
    features    the encoder is run once, its vectors are stored, and the head is trained on them

The head includes BERT's pooler and the weights of ELMo's layers. Frozen parts run without dropout, so `freeze` and
`features` learn the same head. A new encoder has only pretrained parts below it (word vectors, a language model):
`freeze` and `features` then both freeze these, and its own layers are always trained. With ELMo's layer weights
`features` equals `freeze`, since the stored vectors would depend on them.

A GPT may also learn its language model on the texts (Radford et al. 2018, §3.2, equation 5): L = L(task) + λ L(next
word), λ = 0.5, on the tokens of the text without special tokens.

Shapes: R rows, N tokens of all rows, D width, L outputs, W words.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MethodType
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import IGNORE, Batch
from qkv.errors import InputError, did_you_mean
from qkv.models.encoder import READS_POOLED, LinearHead, WithHeads
from qkv.nn.convolution import mean_over_rows
from qkv.nn.gpu.layers import word_loss
from qkv.nn.multihead import Packed
from qkv.train.loop import Objective, Term

OF_THE_HEAD = ("pooler", "mix")
"""Parts of an encoder that belong to the head of a task."""
VECTORS = "vectors"
"""Key of precomputed encoder vectors in `batch.labels`."""


class TaskModel(nn.Module):
    """`pooling` and `normalize` say which vector a head of rows reads (tasks/texts.py)."""

    def __init__(
        self,
        network: WithHeads,
        head: str,
        extra: Mapping[str, tuple[int, ...]] | None = None,
        pooling: str = "cls",
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        self.head = head
        self.pooling, self.normalize = pooling, normalize
        self.extra = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in (extra or {}).items()})

    @property
    def reads_rows(self) -> bool:
        """Whether the head reads one vector per row instead of one per token."""
        return self.head in READS_POOLED

    def vectors(self, batch: Batch) -> Tensor:
        """Return the vectors of rows, before the pooler, or of tokens: (R, D) or (N, D)."""
        return batch.labels[VECTORS] if VECTORS in batch.labels else self.of(self.hidden(batch), batch)

    def hidden(self, batch: Batch) -> Tensor:
        """Run the encoder. → (N, D)"""
        return self.network.encoder.token_vectors(batch)

    def of(self, hidden: Tensor, batch: Batch) -> Tensor:
        """(N, D) → (R, D) or (N, D), as `vectors`."""
        if not self.reads_rows:
            return hidden
        if self.pooling == "mean":
            return mean_over_rows(hidden, Packed(*batch.packing))
        return self.network.encoder.of_rows(hidden, batch.packing)

    def pooled(self, vectors: Tensor) -> Tensor:
        """(R, D) vectors of rows → the input of the head."""
        pooler = self.network.encoder.pooler
        if self.pooling == "cls":
            return vectors if pooler is None else pooler(vectors)  # a GPT has none
        if self.normalize:  # to the length that vectors after a layer norm have: rates of learning suit it
            return functional.normalize(vectors, dim=-1) * math.sqrt(vectors.size(-1))
        return vectors

    def scores(self, batch: Batch) -> Tensor:
        """(R, L) or (N, L)"""
        vectors = self.vectors(batch)
        return self.network.predict(self.head, self.pooled(vectors) if self.reads_rows else vectors)

    def divide_scores(self, by: float) -> None:
        """Divide all scores of the head by a number, through its weights."""
        head = self.network.heads[self.head]
        assert isinstance(head, LinearHead)
        with torch.no_grad():
            head.linear.weight.div_(by)
            if head.linear.bias is not None:
                head.linear.bias.div_(by)

    def extra_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: value.detach().float().cpu().numpy() for name, value in self.extra.items()}


def is_encoder(name: str) -> bool:
    """Whether a parameter belongs to the encoder; the pooler is part of the head, and so is a mix of layers.

    >>> is_encoder("network.encoder.blocks.0.attention.qkv.weight"), is_encoder("network.encoder.pooler.dense.bias")
    (True, False)
    >>> is_encoder("network.encoder.mix.gamma"), is_encoder("network.heads.token.linear.bias")
    (False, False)
    """
    network, _, rest = name.partition(".encoder.")
    return network == "network" and bool(rest) and rest.split(".")[0] not in OF_THE_HEAD


# Transfer.

EXTRA = 100.0
"""Factor of the learning rate of a CRF, whose few hundred weights start at zero."""
ABOVE = ("norm", "table")
"""Parts of an encoder above its blocks, trained with the last of them."""
_WAYS = ("full", "top:K", "freeze", "features")


@dataclass(frozen=True)
class Transfer:
    name: str
    moving_layers: int  # of the encoder, counted from its top
    moving_embedding: bool
    cached: bool = False  # vectors are computed once

    @property
    def moves_encoder(self) -> bool:
        return self.moving_layers > 0 or self.moving_embedding


def parse_transfer(name: str, layers: int, mixes: bool = False) -> Transfer:
    """Parse --transfer. With learned layer weights (`mixes`) vectors cannot be stored before training."""
    if name == "full":
        return Transfer(name, layers, True)
    if name == "freeze":
        return Transfer(name, 0, False)
    if name == "features":
        return Transfer(name, 0, False, cached=not mixes)
    word, colon, number = name.partition(":")
    if word == "top" and colon:
        if not number.isdecimal() or not 1 <= int(number) <= layers:
            raise InputError(f"transfer '{name}': top:K moves the last K layers, 1 to {layers} for this model.")
        return Transfer(name, int(number), False)
    raise InputError(f"Unknown transfer '{name}'.{did_you_mean(name, _WAYS)} Known: {', '.join(_WAYS)}.")


def parse_scratch_transfer(name: str, layers: int, below: str | None, mixes: bool = False) -> Transfer:
    """Parse --transfer for a new encoder; `below` names the pretrained part below it, if any."""
    if name == "full":
        return Transfer(name, layers, True)
    if name not in ("freeze", "features"):
        if name.partition(":")[0] == "top":
            raise InputError(_no_top(name, layers, below))
        return parse_transfer(name, layers)
    if below is None:
        raise InputError(
            f"transfer '{name}' holds word vectors still, and a model that begins from nothing has none. Give some "
            "with --embeddings, or leave --transfer out."
        )
    return Transfer(name, layers, False, cached=name == "features" and layers == 0 and not mixes)


def _no_top(name: str, layers: int, below: str | None) -> str:
    if below is None:
        return (
            f"transfer '{name}': the layers of a model that begins from nothing all have to move. Possible here: full."
        )
    above = f"the layers above {below} are new, and all have to move" if layers else f"{below} has no layers above it"
    return f"transfer '{name}': {above}. Possible here: full ({below} learns too), freeze and features ({below} stays)."


def freeze_parts(model: TaskModel, transfer: Transfer) -> None:
    """Freeze the parts of the encoder that are not trained."""
    encoder = model.network.encoder
    blocks = list(encoder.blocks)
    still: list[nn.Module] = [] if transfer.moving_embedding else [encoder.embedding]
    if not transfer.moves_encoder:  # also what is no part of either, dropout between them
        still = [part for name, part in encoder.named_children() if name not in OF_THE_HEAD]
    for part in [*still, *blocks[: len(blocks) - transfer.moving_layers]]:
        part.requires_grad_(False)
        for module in part.modules():
            module.training = False
            # the loop calls train() on the whole model
            object.__setattr__(module, "train", MethodType(_stays, module))


def _stays(self: nn.Module, mode: bool = True) -> nn.Module:
    return self


def layer_scale(decay: float, layers: int) -> Callable[[str], float]:
    """Layer-wise learning rates: the head at 1, the last layer at `decay`, each below it `decay` times as much.

    >>> scale = layer_scale(0.5, 2)
    >>> [scale(f"network.{name}") for name in ("heads.x.linear", "encoder.blocks.1.x", "encoder.embedding.x")]
    [1.0, 0.5, 0.125]
    """

    def scale(name: str) -> float:
        if name.startswith("extra."):
            return EXTRA
        if not is_encoder(name):
            return 1.0
        parts = name.split(".")
        depth = layers - int(parts[3]) if parts[2] == "blocks" else 1 if parts[2] in ABOVE else layers + 1
        return float(decay**depth)

    return scale


def trainable_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    return (parameter for parameter in model.parameters() if parameter.requires_grad)


# Auxiliary language model.

WEIGHT = 0.5
"""λ of the paper."""
TERM = "language_model"


@runtime_checkable
class _PredictsWords(Protocol):
    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor | None]: ...


@dataclass(frozen=True)
class WithLanguageModel:
    task: Objective[Batch]
    weight: float
    words: int  # tokens of texts; those after them are marks

    @property
    def weights(self) -> Mapping[str, float]:
        return {**self.task.weights, TERM: self.weight}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**self.task.counts(batch), TERM: int((next_word_targets(batch, self.words) != IGNORE).sum())}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, TaskModel)
        encoder = model.network.encoder
        assert isinstance(encoder, _PredictsWords), "only a GPT has words to predict"
        hidden = model.hidden(batch)  # (N, D)
        read = replace(batch, labels={**batch.labels, VECTORS: model.of(hidden, batch)})
        words = word_loss(*encoder.before_words(hidden), next_word_targets(batch, self.words))
        return {**self.task.terms(model, read), TERM: Term(*words)}


def next_word_targets(batch: Batch, words: int) -> Tensor:
    """(N,) the word after each token; nothing where a mark follows, or the row ends.

    >>> next_word_targets(Batch.of([[3, 5, 6, 9], [3, 7, 8, 5, 9]]), words=8).tolist()
    [5, 6, -100, -100, 7, -100, 5, -100, -100]
    """
    following, targets = batch.ids[1:], torch.full_like(batch.ids, IGNORE)
    is_word = (following < words) & (batch.positions[1:] > 0)
    targets[:-1] = torch.where(is_word, following, IGNORE)
    return targets
