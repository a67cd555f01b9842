"""The sizes of recurrent encoder-decoders (Sutskever et al. 2014; Bahdanau et al. 2015; Luong et al. 2015), and the
parameters that a network of them has; no torch.
"""

from dataclasses import dataclass
from typing import Any, Self

from qkv.config import apply_preset, check_known, check_least, check_shares
from qkv.errors import InputError
from qkv.nn.shapes import CELL_SIZES, Shapes, cell, linear, numbered, parts, table, word_scores

_CONTEXTS = ("fixed", "every_step", "attention")
_SCORES = ("additive", "dot", "bilinear")
_QUERIES = ("previous", "current")


@dataclass(frozen=True)
class Seq2SeqConfig:
    vocabulary_size: int  # of the target
    source_vocabulary_size: int | None = None  # None: one vocabulary, and one table, for both
    context: str = "attention"
    score: str = "additive"  # how attention compares two states
    query: str = "previous"  # which state asks: H_{i-1}, or Luong's H_i ("current")
    cell: str = "gru"  # a name of nn/recurrent.py
    layers: int = 1  # of the encoder, and of the decoder
    width: int = 256
    cell_width: int = 512
    encoder_width: int | None = None  # of a cell in one direction; None: all directions together are cell_width
    bidirectional: bool = True
    dropout: float = 0.3
    tied: bool = True  # predict with the target's embedding

    def __post_init__(self) -> None:
        check_known(self, context=_CONTEXTS, score=_SCORES, query=_QUERIES, cell=CELL_SIZES)
        check_least(self, "vocabulary_size", "source_vocabulary_size", "layers", "width", "cell_width", "encoder_width")
        check_shares(self, "dropout")
        if self.encoder_width is None and self.bidirectional and self.cell_width % 2:
            raise InputError(
                f"cell_width ({self.cell_width}) is odd, and two directions share it. Set encoder_width too."
            )
        for name in ("score", "query"):
            if self.context != "attention" and (value := getattr(self, name)) != getattr(Seq2SeqConfig, name):
                raise InputError(
                    f"{name} = {value} is for attention, and with context = {self.context} there is none. Leave {name} "
                    "out, or set context = attention."
                )
        if self.context == "attention" and self.score == "dot" and self.source_width != self.cell_width:
            raise InputError(
                f"With score = dot the encoder's states must be as wide as the decoder's, and {self.source_width} is "
                f"not {self.cell_width}. Leave encoder_width out, or set score = bilinear."
            )

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def one_way_width(self) -> int:
        """The width of the encoder in one direction."""
        return self.encoder_width or self.cell_width // self.directions

    @property
    def source_width(self) -> int:
        return self.one_way_width * self.directions

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        return cls(**apply_preset(_PRESETS, name, changes))


_PRESETS: dict[str, dict[str, Any]] = {
    "small": {"width": 64, "cell_width": 128, "dropout": 0.1},
    "base": {},
}


def shapes_of_seq2seq(config: Seq2SeqConfig) -> Shapes:
    """The parameters of `Seq2Seq` (network.py)."""
    kind, layers, width, wide, ends = config.cell, config.layers, config.width, config.cell_width, config.source_width
    attends, source = config.context == "attention", config.source_vocabulary_size
    read = [cell(kind, inputs, config.one_way_width) for inputs in [width] + [ends] * (layers - 1)]
    # whether the lowest cell of the decoder, and what predicts, read a context
    is_fed = config.query == "previous" if attends else config.context == "every_step"
    shows = config.context != "fixed"
    written = [cell(kind, inputs, wide) for inputs in [width + ends * is_fed] + [wide] * (layers - 1)]
    scores = {
        "additive": parts(query=linear(wide, wide, False), key=linear(ends, wide, False), score=linear(wide, 1, False)),
        "bilinear": parts(key=linear(ends, wide, False)),
        "dot": {},
    }
    maps = numbered([linear(ends, wide)] * layers)
    return parts(
        embedding=table(config.vocabulary_size, width),
        source_embedding={} if source is None else table(source, width),
        encoder=parts(layers=numbered([numbered([one, one]) for one in read]))
        if config.bidirectional
        else parts(cells=numbered(read)),
        decoder=parts(stack=parts(cells=numbered(written)), score=scores[config.score] if attends else {}),
        to_hidden=maps,
        to_memory=maps if CELL_SIZES[kind].has_memory else {},
        readout=linear(wide + width + ends * shows, width),
        words=word_scores(config.vocabulary_size, width, config.tied),
    )
