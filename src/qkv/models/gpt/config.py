"""The sizes of GPT and GPT-2 (Radford et al. 2018, 2019), and the parameters that a network of them has; no torch."""

from dataclasses import dataclass
from typing import Any, Self

from qkv.config import apply_preset, check_known, check_least, check_shares
from qkv.errors import InputError
from qkv.nn.shapes import ACTIVATIONS, Shapes, block, norm, numbered, parts, table

ORDERS = ("post", "pre")


@dataclass(frozen=True)
class GPTConfig:
    vocabulary_size: int
    layers: int = 12
    width: int = 768
    heads: int = 12
    inner_width: int = 3_072
    max_length: int = 1_024
    order: str = "pre"  # of norm and residual; or "post"
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    embedding_dropout: float = 0.1
    norm_epsilon: float = 1e-5
    initial_std: float = 0.02
    tied: bool = True  # tokens are scored with the table that reads them
    scaled: bool = True  # scores of attention by 1 / √K
    scaled_by_layer: bool = False  # and by 1 / the layer's number, counted from 1

    def __post_init__(self) -> None:
        check_known(self, activation=ACTIVATIONS, order=ORDERS)
        check_least(self, "vocabulary_size", "layers", "width", "heads", "inner_width", "max_length")
        if self.width % self.heads:
            raise InputError(f"width {self.width} is not divisible by {self.heads} heads.")
        check_shares(self, "dropout", "attention_dropout", "embedding_dropout")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """A size by name: the two published ones, and small ones in the shapes of small BERTs (Turc et al. 2019)."""
        return cls(**apply_preset(PRESETS, name, changes))


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 128, "heads": 2, "inner_width": 512, "max_length": 512},
    "mini": {"layers": 4, "width": 256, "heads": 4, "inner_width": 1_024, "max_length": 512},
    "small": {"layers": 4, "width": 512, "heads": 8, "inner_width": 2_048, "max_length": 512},
    "gpt": {"layers": 12, "width": 768, "heads": 12, "inner_width": 3_072, "max_length": 512, "order": "post"},
    "gpt2": {"layers": 12, "width": 768, "heads": 12, "inner_width": 3_072, "max_length": 1_024, "order": "pre"},
}


def shapes_of_gpt(config: GPTConfig) -> Shapes:
    """The parameters of `GPT` (network.py)."""
    width, is_pre = config.width, config.order == "pre"
    own: Shapes = {} if config.tied else {"table": (config.vocabulary_size, width)}
    return own | parts(
        embedding=table(config.vocabulary_size, width),
        position=table(config.max_length, width),
        blocks=numbered([block(width, config.inner_width, is_pre)] * config.layers),
        norm=norm(width) if is_pre else {},
    )
