"""Shapes that are known without torch are those of the networks, in the same order, whatever the sizes."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from qkv.models.bert.config import POOLED_HEADS, shapes_of_bert
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.encoder import READS_POOLED, SkipInit
from qkv.models.gpt.config import shapes_of_gpt
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.seq2seq.config import shapes_of_seq2seq
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.config import shapes_of_transformer
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.block import ACTIVATION_FUNCTIONS
from qkv.nn.recurrent import CELLS
from qkv.nn.shapes import ACTIVATIONS, CELL_SIZES


def built(build: Callable[[], nn.Module]) -> list[tuple[str, tuple[int, ...]]]:
    with torch.device("meta"), SkipInit():
        return [(name, tuple(parameter.shape)) for name, parameter in build().named_parameters()]


BERT: dict[str, Any] = {"vocabulary_size": 11, "layers": 3, "width": 8, "heads": 2, "inner_width": 12, "max_length": 7}


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize(
    ("heads", "changes"),
    [
        ((), {}),
        (("masked", "next_sentence"), {"position_offset": 2, "segments": 1}),
        (("masked", "sentence_order"), {"embedding_width": 6, "groups": 2, "tied": False}),
        (("replaced", "sequence", "choice"), {"is_projected": True, "segments": 0}),
        (("token", "span"), {"task_types": 3, "adds_task_type": True}),
        (("token",), {"task_types": 3}),
    ],
)
def test_bert(heads: Sequence[str], changes: dict[str, Any], pooler: bool) -> None:
    config = BertConfig(**(BERT | changes))
    found = shapes_of_bert(config, heads, 5, pooler)
    assert list(found.items()) == built(lambda: BertWithHeads(config, heads, 5, pooler))


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("tied", [True, False])
def test_gpt(order: str, tied: bool) -> None:
    config = GPTConfig(**BERT, order=order, tied=tied)
    assert list(shapes_of_gpt(config).items()) == built(lambda: GPT(config))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("source", [None, 9])
def test_transformer(norm: str, source: int | None) -> None:
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "inner_width": 12, "encoder_layers": 1, "decoder_layers": 2}
    config = TransformerConfig(11, source, norm=norm, **sizes)
    assert list(shapes_of_transformer(config).items()) == built(lambda: Transformer(config))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "changes",
    [
        {"score": "dot"},
        {"score": "bilinear", "query": "current", "encoder_width": 3},
        {"bidirectional": False, "source_vocabulary_size": 9},
        {"context": "fixed", "tied": False},
        {"context": "every_step"},
    ],
)
def test_seq2seq(cell: str, changes: dict[str, Any]) -> None:
    config = Seq2SeqConfig(11, cell=cell, layers=2, width=6, cell_width=4, **changes)
    assert list(shapes_of_seq2seq(config).items()) == built(lambda: Seq2Seq(config))


def test_names() -> None:
    assert tuple(ACTIVATION_FUNCTIONS) == ACTIVATIONS and list(CELLS) == list(CELL_SIZES)
    assert POOLED_HEADS == READS_POOLED


def test_cells() -> None:
    for name, kind in CELLS.items():
        sizes = CELL_SIZES[name]
        assert (kind.blocks, kind.has_memory, kind.state_bias) == (sizes.blocks, sizes.has_memory, sizes.state_bias)
