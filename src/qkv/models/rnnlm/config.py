"""The sizes of a recurrent language model (Mikolov et al. 2010; Zaremba et al. 2014); no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from qkv.config import apply_preset, check_known, check_least, check_shares
from qkv.errors import InputError
from qkv.nn.shapes import CELL_SIZES
from qkv.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class RNNLMConfig:
    """Also an `EmbedderConfig` (models/plain/config.py): it can be below a plain encoder."""

    model_type: ClassVar[str] = "rnnlm"
    mixed_layers: ClassVar[int] = 0

    vocabulary_size: int
    cell: str = "lstm"  # a name of nn/recurrent.py
    layers: int = 2
    width: int = 200
    cell_width: int | None = None  # None: width
    projection: int | None = None  # of an LSTM's output
    dropout: float = 0.1
    tied: bool = True  # predict with the input embedding

    def __post_init__(self) -> None:
        check_known(self, cell=CELL_SIZES)
        check_least(self, "layers", "width", "cell_width", "projection")
        check_shares(self, "dropout")
        if self.projection is not None and self.cell != "lstm":
            raise InputError(f"projection is for the cell lstm, not for {self.cell}.")
        if self.tied and self.output_width != self.width:
            raise InputError(
                f"With tied = true the last layer's output must be as wide as a word, and {self.output_width} is not "
                f"{self.width}. Set tied = false, or for an lstm projection = {self.width}."
            )

    @property
    def output_width(self) -> int:
        return self.projection or self.cell_width or self.width

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        return cls(**apply_preset(PRESETS, name, changes))

    @property
    def features_width(self) -> int:
        return self.output_width

    def opened(self, tokenizer: Tokenizer, most: int | None = None) -> Tokenizer:
        return tokenizer


PRESETS: dict[str, dict[str, Any]] = {
    "small": {"layers": 2, "width": 200, "dropout": 0.0},
    "medium": {"layers": 2, "width": 650, "dropout": 0.5},
    "large": {"layers": 2, "width": 1500, "dropout": 0.65},
}
