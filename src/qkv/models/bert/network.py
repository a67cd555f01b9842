"""BERT, the network (Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", §3 and figure 2).

The encoder half of the Transformer, post-norm with GELU, on token + segment + position embeddings; a pooler that reads
[CLS]; and heads: masked words and next sentence for pretraining (§3.1), one linear layer each for fine-tuning (§4).
Variants differ in a few values of the config: RoBERTa counts positions from an offset and has one segment, DistilBERT
none; ELECTRA and ALBERT have narrow tables and a projection, ALBERT blocks that run several times; ERNIE adds a fourth
embedding.

One network runs on two layouts of the same rows. Padded: ids (B, T) with a mask, which exports. Packed: ids (N,) with a
packing and no padding, which is faster. Tests check that both agree.

Not here: masking, targets and the loss (objective.py, tasks).

Shapes: B rows, T tokens, N tokens of all rows, D width, H heads, V vocabulary; "…" is (B, T) or (N,).
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Batch, Packing
from qkv.models.bert.config import PRESETS as PRESETS
from qkv.models.bert.config import BertConfig as BertConfig
from qkv.models.bert.config import is_projected
from qkv.models.encoder import Encoder, Encoding, Pooler, WithHeads, initialise, ways_to_attend
from qkv.nn.block import ACTIVATION_FUNCTIONS, FeedForward, PostNormBlock
from qkv.nn.gpu import layers
from qkv.nn.layers import AttentionKind, Layer, run_blocks
from qkv.nn.multihead import MultiHeadSelfAttention, Packed
from qkv.nn.position import LearnedPositions, PositionEncoding


class InputEmbedding(nn.Module):
    """Three looked-up vectors, added, normalised, dropped out.

    `positions` is an argument, not counted here: packed rows restart it, and giving every token the same position
    takes word order away (which is how a test shows that nothing else carries it).

    `segments` 0: nothing is added for them; 1: all tokens have the one row. The first position stands in row `offset`.
    With `task_types`, row 0 of a fourth table is added to every token. What is `projected` is D wide, on tables of E.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        max_length: int,
        segments: int = 2,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-12,
        offset: int = 0,
        task_types: int = 0,
        projected: int | None = None,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.segment = nn.Embedding(segments, width) if segments else None
        self.position = LearnedPositions(max_length, width, offset)
        self.task = nn.Embedding(task_types, width) if task_types else None
        self.norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.dropout = nn.Dropout(dropout)
        self.project = None if projected is None else nn.Linear(width, projected)

    def forward(self, ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """(…,) each → (…, D)"""
        if ids.dim() == 1 and self.segment is not None and self.task is None and layers.has_kernels(self.token.weight):
            tables = (self.token.weight, self.segment.weight, self.position.weight)
            x = layers.embed_inputs(ids, self._segments(segments), self.position.rows(positions), tables)
            x = layers.add_norm(x, None, None, self.norm)
        else:
            x = self._added(ids, segments, positions)["normed"]
        x = self.dropout(x)
        return x if self.project is None else self.project(x)

    def parts(self, ids: Tensor, segments: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """The summands, their sum and its norm, (…, E) each; with a projection also its output (…, D)."""
        found = self._added(ids, segments, positions)
        return found if self.project is None else found | {"projected": self.project(found["normed"])}

    def _added(self, ids: Tensor, segments: Tensor, positions: Tensor) -> dict[str, Tensor]:
        found = {"token": self.token(ids)}
        if self.segment is not None:
            found["segment"] = self.segment(self._segments(segments))
        found["position"] = self.position(positions)
        if self.task is not None:
            found["task"] = self.task(torch.zeros_like(ids))
        total = sum(list(found.values())[1:], start=found["token"])
        return found | {"sum": total, "normed": self.norm(total)}

    def _segments(self, segments: Tensor) -> Tensor:
        """A pair's second text uses row 0 if the table has only one row."""
        assert self.segment is not None
        return torch.zeros_like(segments) if self.segment.num_embeddings == 1 else segments


# The network


class Bert(Encoder):
    embedding: InputEmbedding

    def __init__(self, config: BertConfig, pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(
            config.vocabulary_size,
            config.table_width,
            config.max_length,
            config.segments,
            config.dropout,
            config.norm_epsilon,
            config.position_offset,
            config.task_types if config.adds_task_type else 0,
            config.width if is_projected(config) else None,
        )
        self.blocks = nn.ModuleList(
            PostNormBlock(
                MultiHeadSelfAttention(config.width, config.heads, dropout=config.attention_dropout),
                FeedForward(config.width, config.inner_width, config.activation),
                config.width,
                config.dropout,
                config.norm_epsilon,
            )
            for _ in range(config.own_layers)
        )
        before = config.dropout if config.head_dropout is None else config.head_dropout
        before = before if config.drops_before_dense else 0.0
        self.pooler = Pooler(config.width, config.dense_activation, before) if pooler else None
        self.apply(partial(initialise, std=config.initial_std))

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        packing: Packing | None = None,
        attention: Collection[int] = (),
        states: bool = False,
        pool: bool = True,
        only: Tensor | None = None,
    ) -> Encoding:
        """Padded ids (B, T) with a mask (B, T), True where a token is real; or packed ids (N,) with a packing.

        `attention` names the layers, counted from 0, whose weights are wanted; they take the explicit path.
        Without `pool` the pooler is left out, for callers that have a use of their own for [CLS].
        `only` (M,) names the packed tokens whose vectors will be read: `hidden` is then (M, D), and most of the last
        layer is not computed for the others.
        """
        if segments is None:
            segments = torch.zeros_like(ids)
        if positions is None:
            assert packing is None, "packed rows carry their positions"
            positions = torch.arange(ids.size(-1), device=ids.device).expand_as(ids)
        fused_way, explicit_way = ways_to_attend(mask, packing)
        pool = pool and self.pooler is not None
        first = None if packing is None else packing.offsets[:-1].long()  # (B,)
        needed = only
        if only is not None:
            assert first is not None and not states, "single tokens are named in packed rows, and of the last layer"
            needed = torch.cat([first, only]) if pool else only

        x = self.embedding(ids, segments, positions)  # (…, D)
        all_states, all_weights = [x], {}
        for number, block in enumerate(self.runs()):
            last = number == self.config.layers - 1
            x, weights = block(x, explicit_way if number in attention else fused_way, needed if last else None)
            if weights is not None:
                all_weights[number] = weights
            if states:
                all_states.append(x)
        pooled = None
        if pool and self.pooler is not None:
            if only is not None:
                firsts, x = x.split([x.size(0) - only.numel(), only.numel()])
            else:
                firsts = x[:, 0] if first is None else x.index_select(0, first)
            pooled = self.pooler(firsts)
        return Encoding(x, pooled, tuple(all_states) if states else None, all_weights)

    def runs(self) -> Iterator[nn.Module]:
        """The block of every layer: neighbours may be the same one, run again (Lan et al. 2020, §3.1)."""
        for number in range(self.config.layers):
            yield self.blocks[int(number / (self.config.layers / len(self.blocks)))]

    def layers(self, batch: Batch) -> Iterator[Layer]:
        inputs = self.embedding.parts(batch.ids, batch.segments, batch.positions)
        attend = Packed(*batch.packing)
        return run_blocks("encoder", self.runs(), nn.Identity(), inputs, self.embedding.dropout, attend)

    def token_states(self, batch: Batch) -> list[Tensor]:
        states = self(**batch.inputs(), states=True, pool=False).states  # on the fused path
        assert states is not None, "they were asked for"
        return list(states)

    @property
    def attentions(self) -> tuple[AttentionKind, ...]:
        return (AttentionKind("self", "encoder", "self", self.config.layers, self.config.heads),)

    @property
    def position_encoding(self) -> PositionEncoding:
        return self.embedding.position


class MaskedHead(nn.Module):
    """The word behind each hidden vector: a dense layer, then a score against every word of the vocabulary.

    The scores use the input embedding as their matrix (tied), handed in by the caller so that it is one parameter in
    one place. Give it only the vectors that are to be predicted: the scores are the largest tensor of pre-training.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.table_width)
        self.activation = ACTIVATION_FUNCTIONS[config.masked_activation or config.activation]
        self.norm = nn.LayerNorm(config.table_width, eps=config.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))
        self.table = None if config.tied else nn.Parameter(torch.empty(config.vocabulary_size, config.table_width))
        if self.table is not None:
            std = config.initial_std
            nn.init.trunc_normal_(self.table, std=std, a=-2 * std, b=2 * std)

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """(…, D) and the token embedding (V, E) → logits (…, V)"""
        return functional.linear(self.before_scores(hidden), self.scored_with(embedding), self.bias)

    def before_scores(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))

    def scored_with(self, embedding: Tensor) -> Tensor:
        return embedding if self.table is None else self.table


class ReplacedHead(nn.Module):
    """Whether a token was replaced by another (Clark et al. 2020): a dense layer and one score."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.linear = nn.Linear(config.width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…,), above 0 where it was"""
        return self.linear(self.activation(self.dense(hidden))).squeeze(-1)


class BertWithHeads(WithHeads):
    """BERT and the heads by name, those of pre-training among them."""

    encoder: Bert

    def __init__(
        self, config: BertConfig, heads: Sequence[str] = (), labels: int = 2, pooler: bool | None = None
    ) -> None:
        self.config: BertConfig
        super().__init__(
            config,
            partial(Bert, config),
            heads,
            labels,
            pooler,
            {"masked": partial(MaskedHead, config), "replaced": partial(ReplacedHead, config)},
        )

    def predict(self, head: str, x: Tensor) -> Tensor:
        return self.masked(x) if head == "masked" else super().predict(head, x)

    def masked(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        return self.heads["masked"](hidden, self.encoder.embedding.token.weight)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the word scores x Eᵀ + b: x (M, E), the table E (V, E) and b (V,)."""
        head = self.heads["masked"]
        assert isinstance(head, MaskedHead)
        return head.before_scores(hidden), head.scored_with(self.encoder.embedding.token.weight), head.bias
