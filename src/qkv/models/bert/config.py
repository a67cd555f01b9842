"""The sizes of BERT and its relatives (Devlin et al. 2019), and the parameters that a network of them has; no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from qkv.config import apply_preset, check_known
from qkv.errors import InputError
from qkv.nn.shapes import ACTIVATIONS, Shapes, block, linear, norm, numbered, parts, table, word_scores

POOLED_HEADS = frozenset({"next_sentence", "sentence_order", "sequence", "choice"})
"""`READS_POOLED` of models/encoder.py: heads that read one vector a row, through a pooler."""
_OUTPUTS = {"next_sentence": 2, "sentence_order": 2, "span": 2, "choice": 1}
"""Of heads whose outputs are not labels."""


@dataclass(frozen=True)
class BertConfig:
    vocabulary_size: int = 30_522
    layers: int = 12
    width: int = 768
    heads: int = 12
    inner_width: int = 3_072
    max_length: int = 512
    segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float | None = None  # of the task heads; None: as `dropout`
    activation: str = "gelu"
    norm_epsilon: float = 1e-12
    initial_std: float = 0.02
    tied: bool = True  # the masked head predicts with the input embedding
    pad_id: int = 0
    # what networks of its kind have otherwise
    embedding_width: int | None = None  # of the tables; None: as `width`
    is_projected: bool = False  # between tables and blocks stands a linear layer, even where widths are the same
    position_offset: int = 0  # rows of the position table before that of the first token
    task_types: int = 0  # rows of a fourth table
    adds_task_type: bool = False  # and whether its first is added to every token
    groups: int | None = None  # blocks with weights of their own; None: one a layer
    dense_activation: str = "tanh"  # between the first vector of a row and a head
    drops_before_dense: bool = False
    masked_activation: str | None = None  # None: as `activation`

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise InputError(f"width {self.width} is not divisible by {self.heads} heads.")
        if not 1 <= self.own_layers <= self.layers:
            raise InputError(f"{self.own_layers} groups of weights do not fit {self.layers} layers.")
        check_known(self, activation=ACTIVATIONS)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """A published size by name: BERT base and large, and Google's small ones (Turc et al. 2019)."""
        return cls(**apply_preset(PRESETS, name, changes))

    @property
    def table_width(self) -> int:
        return self.width if self.embedding_width is None else self.embedding_width

    @property
    def own_layers(self) -> int:
        """Blocks with weights of their own."""
        return self.layers if self.groups is None else self.groups


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 128, "heads": 2, "inner_width": 512},
    "mini": {"layers": 4, "width": 256, "heads": 4, "inner_width": 1_024},
    "small": {"layers": 4, "width": 512, "heads": 8, "inner_width": 2_048},
    "medium": {"layers": 8, "width": 512, "heads": 8, "inner_width": 2_048},
    "base": {"layers": 12, "width": 768, "heads": 12, "inner_width": 3_072},
    "large": {"layers": 24, "width": 1_024, "heads": 16, "inner_width": 4_096},
}


def is_projected(config: BertConfig) -> bool:
    """Whether a linear layer is between tables and blocks."""
    return config.is_projected or config.table_width != config.width


def shapes_of_bert(config: BertConfig, heads: Sequence[str], labels: int, pooler: bool) -> Shapes:
    """The parameters of `BertWithHeads` (network.py)."""
    width, below = config.width, config.table_width
    embedding = {
        "token": table(config.vocabulary_size, below),
        **({"segment": table(config.segments, below)} if config.segments else {}),
        "position": table(config.max_length + config.position_offset, below),
        **({"task": table(config.task_types, below)} if config.task_types and config.adds_task_type else {}),
        "norm": norm(below),
        **({"project": linear(below, width)} if is_projected(config) else {}),
    }
    encoder = {
        "embedding": parts(embedding),
        "blocks": numbered([block(width, config.inner_width)] * config.own_layers),
        **({"pooler": parts(dense=linear(width, width))} if pooler else {}),
    }
    return parts(encoder=parts(encoder), heads=parts({head: _head(config, head, labels) for head in heads}))


def _head(config: BertConfig, name: str, labels: int) -> Shapes:
    width, below = config.width, config.table_width
    if name == "masked":
        scores = word_scores(config.vocabulary_size, below, config.tied)
        return scores | parts(dense=linear(width, below), norm=norm(below))
    if name == "replaced":
        return parts(dense=linear(width, width), linear=linear(width, 1))
    return parts(linear=linear(width, _OUTPUTS.get(name, labels)))
