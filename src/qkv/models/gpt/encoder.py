"""GPT below the heads of tasks (Radford et al. 2018, §3.2 and §3.3): what it was pretrained for, and one linear layer.

The same network as network.py, in the parts that any encoder has (models/encoder.py). The special tokens start,
delimiter and extract are around the texts of a row; its vector is that of `extract`, the only token that has seen all
of it. There is no pooler between that vector and the linear layer.

    P(y | x¹ … xᵐ) = softmax(h_m W_y)

The scores of words stay, so that the language model can be trained along with the task (tasks/transfer.py). They
are of the tokens that texts are made of: the special tokens of tasks are never predicted.

Shapes: N tokens of all rows, R rows, M of the tokens, D width, V vocabulary, W words (V without tokens of tasks).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from qkv.data.batch import Batch, Packing
from qkv.models.encoder import Encoder, Encoding, LinearHead, WithHeads, ways_to_attend
from qkv.models.gpt.network import GPT, GPTConfig, parts_in_place, positions_of, tokens_in_place
from qkv.nn.gpu.pre_norm import block_stack
from qkv.nn.layers import AttentionKind, Layer, run_blocks
from qkv.nn.multihead import Packed
from qkv.nn.position import PositionEncoding


@dataclass(frozen=True)
class GPTReaderConfig(GPTConfig):
    head_dropout: float | None = None
    words: int = 0  # tokens of texts; those after them are special tokens of tasks

    @property
    def segments(self) -> int:
        """Any number: the delimiter separates the texts of a pair."""
        return 2

    @property
    def network(self) -> GPTConfig:
        """The config of the network, without the tokens of tasks."""
        return GPTConfig(**{name: getattr(self, name) for name in GPTConfig.__dataclass_fields__})

    @classmethod
    def of(cls, config: GPTConfig, words: int) -> Self:
        return cls(**vars(config), words=words)


class TokensInPlace(nn.Module):
    """E[token] + P[position], and dropout."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.token, self.position, self.dropout = gpt.embedding, gpt.position, gpt.dropout

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """(N,) each → (N, D)"""
        return self.dropout(tokens_in_place(self.token, self.position, ids, positions))

    def parts(self, ids: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """The summands and their sum, (N, D) each."""
        return parts_in_place(self.token, self.position, ids, positions)


class GPTEncoder(Encoder):
    embedding: TokensInPlace

    def __init__(self, config: GPTReaderConfig) -> None:
        super().__init__()
        gpt = GPT(config.network)
        self.config = config
        self.embedding = TokensInPlace(gpt)
        self.blocks = gpt.blocks
        self.norm = gpt.norm
        self.table: nn.Linear | None = None  # that scores words, where it is not the one that reads them
        if gpt.table is not None:
            self.table = nn.Linear(config.width, config.vocabulary_size, bias=False)
            self.table.weight = gpt.table
        self.pooler = None

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        packing: Packing,
        attention: Collection[int] = (),
        pool: bool = True,
    ) -> Encoding:
        """Packed ids (N,); a token sees those before it in its row.

        `attention` names the layers, counted from 0, whose weights are wanted; they take the explicit path.
        """
        fused_way, explicit_way = ways_to_attend(None, packing, causal=True)
        x = self.embedding(ids, positions_of(packing) if positions is None else positions)  # (N, D)
        all_weights: dict[int, Tensor] = {}
        if attention:
            for number, block in enumerate(self.blocks):
                x, weights = block(x, explicit_way if number in attention else fused_way)
                if weights is not None:
                    all_weights[number] = weights
            hidden = self.norm(x)
        else:
            hidden = block_stack(list(self.blocks), self.norm, x, fused_way)
        return Encoding(hidden, self.of_rows(hidden, packing) if pool else None, None, all_weights)

    def layers(self, batch: Batch) -> Iterator[Layer]:
        inputs, attend = self.embedding.parts(batch.ids, batch.positions), Packed(*batch.packing, causal=True)
        return run_blocks("decoder", self.blocks, self.norm, inputs, self.embedding.dropout, attend)

    @property
    def attentions(self) -> tuple[AttentionKind, ...]:
        return (AttentionKind("causal", "decoder", "self", self.config.layers, self.config.heads, is_causal=True),)

    @property
    def position_encoding(self) -> PositionEncoding:
        return self.embedding.position

    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        """(N, D) → (R, D), at the last token of a row."""
        return hidden.index_select(0, packing.offsets[1:].long() - 1)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, None]:
        """The parts of the scores of the next word x Eᵀ: x (M, D), E (W, D), without bias."""
        table = self.embedding.token.weight if self.table is None else self.table.weight
        return hidden, table[: self.config.words], None


class GPTWithHeads(WithHeads):
    """A GPT and the heads of tasks by name. The head of a row has no bias, as in transformers."""

    encoder: GPTEncoder

    def __init__(self, config: GPTReaderConfig, heads: Sequence[str] = (), labels: int = 2) -> None:
        self.config: GPTReaderConfig
        dropout = config.dropout if config.head_dropout is None else config.head_dropout
        own = {"sequence": lambda: LinearHead(config.width, labels, dropout, bias=False)}
        super().__init__(config, lambda pooler: GPTEncoder(config), heads, labels, own=own)
