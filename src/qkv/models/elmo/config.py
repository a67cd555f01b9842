"""The sizes of ELMo (Peters et al. 2018); no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from qkv.config import apply_preset, check_least, check_shares
from qkv.errors import InputError
from qkv.models.elmo.tokenizer import OpenTokenizer
from qkv.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ElmoConfig:
    """Also an `EmbedderConfig` (models/plain/config.py): it can be below a plain encoder."""

    model_type: ClassVar[str] = "elmo"

    vocabulary_size: int
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)  # how many see 1 byte, 2 bytes, …
    byte_width: int = 16
    longest: int = 50  # bytes of a token, its two marks included; the rest is cut off
    highways: int = 1
    layers: int = 2
    width: int = 128  # of a token in one direction: what a cell's output is projected to
    cell_width: int = 1024
    clip: float | None = None  # of cell states and projections; torch has no kernel for cells that are clipped
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if not self.filters:
            raise InputError("filters are how many there are of each width, and there must be one at least.")
        for count in self.filters:
            if count < 1:
                raise InputError(f"filters must all be at least 1, not {count}.")
        check_least(self, "byte_width", "layers", "width")
        check_least(self, "longest", least=3)
        check_least(self, "highways", least=0)
        if self.cell_width <= self.width:
            raise InputError(
                f"cell_width ({self.cell_width}) must be more than width ({self.width}), which it is projected to."
            )
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"clip must be a number above 0, not {self.clip}.")
        check_shares(self, "dropout")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        return cls(**apply_preset(PRESETS, name, changes))

    @property
    def features_width(self) -> int:
        return 2 * self.width

    @property
    def mixed_layers(self) -> int:
        return 1 + self.layers

    def opened(self, tokenizer: Tokenizer, most: int | None = None) -> Tokenizer:
        return OpenTokenizer(tokenizer, most)


PRESETS: dict[str, dict[str, Any]] = {
    "mini": {"filters": (16, 16, 32, 32, 64, 64, 64), "width": 64, "cell_width": 256},
    "small": {},
    "paper": {"highways": 2, "width": 512, "cell_width": 4096, "clip": 3.0},
}
