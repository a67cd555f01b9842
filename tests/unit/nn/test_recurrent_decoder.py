"""Who asks, who is told, and what is seen; the equations of all four ways stand in
tests/unit/models/seq2seq/test_seq2seq.py."""

import pytest
import torch
from torch import Tensor

from qkv.nn.recurrent import GRU
from qkv.nn.recurrent_decoder import (
    AttentionDecoder,
    CurrentDecoder,
    Decoder,
    EveryStepDecoder,
    FixedDecoder,
    PreviousDecoder,
)
from qkv.nn.source_attention import DotScore, Source, SourceRows

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS: tuple[type[Decoder], ...] = (FixedDecoder, EveryStepDecoder, PreviousDecoder, CurrentDecoder)
WIDTH, TOKEN = 4, 3


def make(kind: type[Decoder]) -> Decoder:
    torch.manual_seed(0)
    cells = [GRU(TOKEN + WIDTH * kind.is_fed, WIDTH), GRU(WIDTH, WIDTH)]
    found = kind(cells, DotScore(WIDTH, WIDTH)) if issubclass(kind, AttentionDecoder) else kind(cells)
    return found.double()


def given() -> tuple[Source, tuple[tuple[Tensor], tuple[Tensor]]]:
    torch.manual_seed(1)
    h = torch.randn(2, 3, WIDTH).double()
    source = Source(h[:, -1], h, torch.ones(2, 3, dtype=torch.bool), h)
    return source, ((torch.randn(2, WIDTH).double(),), (torch.randn(2, WIDTH).double(),))


@pytest.mark.parametrize("kind", KINDS)
def test_what_reaches_the_decoder(kind: type[Decoder]) -> None:
    """The states of the source only by attention, its C only at every step, and without either only H_0."""
    decoder, (source, states), x = make(kind), given(), torch.randn(5, TOKEN).double()
    before, _ = decoder(x, (3, 2), source, states)
    for name, change in (("context", source.context + 1), ("states", source.states + 1), ("keys", source.states * 2)):
        after, context = decoder(x, (3, 2), source._replace(**{name: change}), states)
        is_seen = {"context": kind is EveryStepDecoder}.get(name, kind is PreviousDecoder)
        assert after.equal(before) is not is_seen, name
    assert (context is None) is (kind is FixedDecoder) is (not kind.shows)
    other, _ = decoder(x, (3, 2), source, ((states[0][0] + 1,), states[1]))
    assert not bool((other == before).all(1).any())


@pytest.mark.parametrize("kind", [PreviousDecoder, CurrentDecoder])
def test_which_layer_asks(kind: type[Decoder]) -> None:
    """Before a step the lowest one, after it the uppermost: with a dot product its state is the query."""
    decoder, (source, states), x = make(kind), given(), torch.randn(2, TOKEN).double()
    written = decoder.step(x, source, SourceRows.of([0, 1], 2), states)
    query = states[0][0] if kind is PreviousDecoder else written.states[1][0]
    alpha = torch.einsum("rp,rsp->rs", query, source.states).softmax(-1)
    assert written.weights is not None and written.context is not None
    torch.testing.assert_close(written.weights, alpha)
    torch.testing.assert_close(written.context, torch.einsum("rs,rse->re", alpha, source.states))
    assert written.hidden is written.states[-1][0]


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_between_layers(kind: type[Decoder]) -> None:
    """So strong that nothing passes: what comes out knows of no token."""
    decoder, (source, states), x = make(kind), given(), torch.randn(5, TOKEN).double()
    decoder.stack.dropout.p = 1.0
    assert decoder(x, (3, 2), source, states)[0].equal(decoder(x + 1, (3, 2), source, states)[0])
    decoder.eval()
    assert not decoder(x, (3, 2), source, states)[0].equal(decoder(x + 1, (3, 2), source, states)[0])
