"""What `layers` yields is what `forward` computes, of every network; records are the attention that was computed."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.data.batch import Batch
from qkv.models.bert.network import Bert, BertConfig
from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.gpt.encoder import GPTEncoder, GPTReaderConfig
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.plain.network import READER_KINDS, ReaderConfig, reader
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.layers import Layer

SOURCE = Batch.of([[3, 4, 5], [6, 7, 8, 9, 3], [5]], segments=[[0, 0, 1], [0, 1, 1, 1, 1], [0]])
TARGET = Batch.of([[2, 4], [2, 5, 6, 7], [2, 9, 3]])
SIZES: dict[str, Any] = {"width": 8, "heads": 2, "inner_width": 12}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(1)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def connected(layers: list[Layer], parts: tuple[str, ...] = ("encoder", "decoder")) -> None:
    """What one layer of a part hands on is what the next one reads."""
    for part in parts:
        mine = [layer for layer in layers if layer.part == part]
        for below, above in pairwise(mine):
            same(below.left, above.entered)


def weights_of(layer: Layer, name: str, key_lengths: tuple[int, ...], lengths: tuple[int, ...]) -> list[Tensor]:
    """(H, Q, T) of every row, cut out of the one matrix; nothing is seen elsewhere."""
    whole = layer.attention(name).weights()
    same(whole.sum(-1), torch.ones(whole.shape[:-1]))
    rows = [
        part.split(list(key_lengths), dim=2)[number] for number, part in enumerate(whole.split(list(lengths), dim=1))
    ]
    for row in rows:
        same(row.sum(-1), torch.ones(row.shape[:-1]))
    return rows


@torch.no_grad()
def test_bert() -> None:
    network = Bert(BertConfig(10, layers=3, max_length=8, **SIZES)).eval()
    expected = network(**SOURCE.inputs(), attention=range(3), states=True)
    layers = list(network.layers(SOURCE))
    assert list(layers[0].inputs) == ["token", "segment", "position", "sum", "normed"] and not layers[1].inputs
    same(layers[0].inputs["normed"], layers[0].entered)
    for state, other in zip(expected.states, network.token_states(SOURCE), strict=True):
        same(state, other)
    connected(layers)
    (kind,) = network.attentions
    assert len(layers) == kind.layers
    for number, layer in enumerate(layers):
        same(layer.left, expected.states[number + 1])
        found = weights_of(layer, kind.attention, SOURCE.lengths, SOURCE.lengths)
        for row, (length, one) in enumerate(zip(SOURCE.lengths, found, strict=True)):
            same(one, expected.attention[number][row, :, :length, :length])


@torch.no_grad()
@pytest.mark.parametrize("order", ["pre", "post"])
def test_gpt(order: str) -> None:
    config = GPTConfig(10, layers=2, max_length=8, order=order, **SIZES)
    network = GPTEncoder(GPTReaderConfig.of(config, words=10)).eval()
    expected = network(**SOURCE.inputs(), attention=range(2))
    layers = list(network.layers(SOURCE))
    connected(layers[:-1])
    same(layers[-1].left, expected.hidden)
    same(layers[-1].left, network(**SOURCE.inputs()).hidden)
    assert network.attentions[0].is_causal and list(layers[0].inputs) == ["token", "position", "sum"]
    for number, layer in enumerate(layers):
        found = weights_of(layer, "self", SOURCE.lengths, SOURCE.lengths)
        for row, (length, one) in enumerate(zip(SOURCE.lengths, found, strict=True)):
            same(one, expected.attention[number][row, :, :length, :length])
    alone = GPT(config).eval()
    same([*alone.layers(SOURCE)][-1].left, alone(SOURCE.ids, SOURCE.packing))


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_transformer(norm: str) -> None:
    network = Transformer(TransformerConfig(10, 10, encoder_layers=2, decoder_layers=3, norm=norm, **SIZES)).eval()
    encoder = list(network.layers(SOURCE))
    same(encoder[-1].left, network.encode(SOURCE.ids, SOURCE.packing))
    layers = list(network.layers(SOURCE, TARGET))
    decoder = [layer for layer in layers if layer.part == "decoder"]
    same(decoder[-1].left, network(SOURCE.ids, SOURCE.packing, TARGET.ids, TARGET.packing))
    connected(encoder[:-1] + decoder[:-1])
    assert [(kind.name, kind.layers) for kind in network.attentions] == [("encoder", 2), ("decoder", 3), ("cross", 3)]
    for layer in decoder:
        assert layer.attentions == ("self", "cross")
        for one in weights_of(layer, "self", TARGET.lengths, TARGET.lengths):
            assert not one.triu(1).any()
        weights_of(layer, "cross", SOURCE.lengths, TARGET.lengths)


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"query": "current", "score": "dot"}, {"score": "bilinear", "cell": "lstm"}])
@pytest.mark.parametrize("deep", [1, 2])
def test_seq2seq_looks_where_it_looks_when_it_writes(changes: dict[str, Any], deep: int) -> None:
    network = Seq2Seq(Seq2SeqConfig(10, width=6, cell_width=8, layers=deep, **changes)).eval()
    layers = list(network.layers(SOURCE, TARGET))
    assert [layer.part for layer in layers] == ["encoder"] * deep + ["decoder"] * deep
    (asking,) = [layer for layer in layers if layer.attentions]
    found = weights_of(asking, "cross", SOURCE.lengths, TARGET.lengths)
    for row, (source, target) in enumerate(zip(SOURCE.rows(SOURCE.ids), TARGET.rows(TARGET.ids), strict=True)):
        state = network.start(source, Batch.of([source.tolist()]).packing)
        for place, token in enumerate(target):
            _, state, looked = network.step(token[None], state)
            assert looked is not None
            same(found[row][0, place], looked[0])
    same(layers[-1].left, network.decoder(network._embed(TARGET.ids), TARGET.lengths, *_read(network))[0])


def _read(network: Seq2Seq) -> tuple[Any, Any]:
    return network.read(SOURCE.ids, SOURCE.packing)


@torch.no_grad()
@pytest.mark.parametrize("context", ["fixed", "every_step"])
def test_seq2seq_without_attention(context: str) -> None:
    network = Seq2Seq(Seq2SeqConfig(10, width=6, cell_width=8, layers=2, context=context)).eval()
    layers = list(network.layers(SOURCE, TARGET))
    assert not network.attentions and not any(layer.attentions for layer in layers)
    hidden, _ = network.decoder(network._embed(TARGET.ids), TARGET.lengths, *_read(network))
    same(layers[-1].left, hidden)
    fixed = network.fixed_context(SOURCE.ids, SOURCE.packing)
    assert fixed is not None and fixed.shape == (3, 8)


@torch.no_grad()
def test_language_models() -> None:
    rnnlm = RNNLM(RNNLMConfig(10, layers=2, width=6)).eval()
    layers = list(rnnlm.layers(SOURCE.ids, SOURCE.lengths))
    hidden, states = rnnlm(SOURCE.ids, SOURCE.lengths)
    same(layers[-1].left, hidden)
    for layer, state in zip(layers, states, strict=True):
        for one, other in zip(layer.recurrences[0].after, state, strict=True):
            same(one, other)
    config = ElmoConfig(10, filters=(3, 4), byte_width=4, width=3, cell_width=5)
    elmo = Elmo(config, [f"t{number}" for number in range(10)]).eval()
    spelled = elmo.spell(SOURCE.ids)
    ways = [layer.recurrences[0] for layer in elmo.layers(spelled, SOURCE.lengths)]
    assert [way.direction for way in ways] == ["forward"] * 2 + ["backward"] * 2
    assert [way.adds_input for way in ways] == [False, True] * 2
    vectors = elmo(SOURCE.ids, SOURCE.lengths)  # (N, 3, 2 P)
    for number in range(2):
        same(torch.cat([ways[number].left, ways[2 + number].left], dim=-1), vectors[:, 1 + number])


@torch.no_grad()
@pytest.mark.parametrize("direct", [False, True])
def test_nnlm(direct: bool) -> None:
    network = NNLM(NNLMConfig(10, context=3, width=4, hidden_width=5, direct=direct)).eval()
    (layer,) = network.layers(SOURCE.ids, SOURCE.lengths)
    same(layer.left, network(SOURCE.ids, SOURCE.positions))
    assert layer.entered.shape == (9, 12)


@torch.no_grad()
@pytest.mark.parametrize("kind", READER_KINDS)
def test_readers(kind: str) -> None:
    deep = READER_KINDS[kind].layers(2)
    network = reader(ReaderConfig(kind, 10, embedding_width=6, inner_width=4, layers=deep)).eval()
    layers = list(network.layers(SOURCE))
    assert len(layers) == deep and not network.attentions
    hidden = network(**SOURCE.inputs(), pool=False).hidden
    same(layers[-1].left if layers else network.token_states(SOURCE)[0], hidden)
    same(network.token_states(SOURCE)[-1], hidden)


@torch.no_grad()
def test_a_reader_shows_the_language_model_below_it() -> None:
    below = RNNLMConfig(10, width=6, layers=2)
    network = reader(ReaderConfig("gru", 10, embedding_width=6, inner_width=4, layers=1, features=below)).eval()
    layers = list(network.layers(SOURCE))
    assert [layer.part for layer in layers] == ["language_model", "language_model", "reader"]
    same(layers[1].left, layers[2].entered)


@torch.no_grad()
def test_layers_that_are_not_asked_for_are_not_run() -> None:
    network = Bert(BertConfig(10, layers=3, max_length=8, **SIZES)).eval()
    ran: list[int] = []
    for number, block in enumerate(network.blocks):
        block.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
    next(network.layers(SOURCE))
    assert ran == [0]
