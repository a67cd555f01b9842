"""An encoder with the one head of a task, and the few parameters that a task may have beside it (a CRF's).

The head of a task is everything between the encoder's last layer and the scores: for a head that reads [CLS] that is
BERT's pooler and the linear layer, because the pooler of a pretrained model was made for another question. How much of
each layer of ELMo a task uses is learned with its head too, though it stands below.

Shapes: R rows, N tokens of all rows, D width, L outputs.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.models.encoder import READS_POOLED, WithHeads

OF_THE_HEAD = ("pooler", "mix")
"""Parts that stand in an encoder and are made for one task."""
VECTORS = "vectors"
"""The label under which a batch carries what the encoder said of it, when it was asked once and written down."""


class TaskModel(nn.Module):
    def __init__(self, network: WithHeads, head: str, extra: Mapping[str, tuple[int, ...]] | None = None) -> None:
        super().__init__()
        self.network = network
        self.head = head
        self.extra = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in (extra or {}).items()})

    @property
    def reads_rows(self) -> bool:
        """One vector a row, at [CLS] or wherever the encoder has it; else one a token."""
        return self.head in READS_POOLED

    def vectors(self, batch: Batch) -> Tensor:
        """What the head reads: (R, D) at [CLS], or (N, D)."""
        return batch.labels[VECTORS] if VECTORS in batch.labels else self.of(self.hidden(batch), batch)

    def hidden(self, batch: Batch) -> Tensor:
        """(N, D), what the encoder says."""
        return self.network.encoder(**batch.inputs(), pool=False).hidden

    def of(self, hidden: Tensor, batch: Batch) -> Tensor:
        """(N, D) → what the head reads of it."""
        return self.network.encoder.of_rows(hidden, batch.packing) if self.reads_rows else hidden

    def scores(self, batch: Batch) -> Tensor:
        """(R, L) or (N, L)"""
        vectors, pooler = self.vectors(batch), self.network.encoder.pooler
        if self.reads_rows and pooler is not None:  # a GPT has none
            vectors = pooler(vectors)
        return self.network.predict(self.head, vectors)

    def head_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self.named_parameters():
            if not is_encoder(name):
                yield name, parameter

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
