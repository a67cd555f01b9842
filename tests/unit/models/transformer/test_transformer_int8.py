"""Decoding in 8 bits: nearly the scores of fp32, the same texts from trained weights, fp32 itself untouched."""

import copy
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu import precision as precision_module
from qkv.nn.cpu.precision import Int8Linear, explain_no_int8, set_precision

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8())),
]

SOURCE = Batch.of([[5, 6, 7, 1], [3, 1], [8, 9, 10, 11, 12, 1], [4, 4, 1]])


def make(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "width": 64, "heads": 4, "inner_width": 128}
    return Transformer(TransformerConfig(40, **(sizes | changes))).eval()


def test_rows_share_a_scale_in_every_layer() -> None:
    """However many there are, and one far larger than the others costs them little: steps are of the largest."""
    model = set_precision(make(), "int8")
    model.start(SOURCE.ids, SOURCE.packing)
    assert model.decoding._int8.held is not None
    layers = [layer for layer in model.decoding._int8.held.modules() if isinstance(layer, Int8Linear)]
    assert len(layers) == 2 * 4 + 2 * 7 + 1
    x = torch.randn(40, 64)
    for layer in layers:
        rows = torch.randn(40, layer.in_features)
        together = layer._product(rows, layer._packed, layer.is_narrow)
        assert torch.equal(layer(rows), together)
    exact, near = model.get_submodule("encoder.0.feed_forward.up"), layers[2]
    x[0] *= 5
    assert (near(x) - exact(x))[1:].std() < 0.05 * exact(x)[1:].std()


def logits_of(model: Transformer, steps: int = 6) -> Tensor:
    """(steps, rows, V) after the same tokens"""
    state, chance, found = model.start(SOURCE.ids, SOURCE.packing, hypotheses=2), random.Random(0), []
    rows = 8
    for number in range(steps):
        logits, state, looked = model.step(torch.tensor([chance.randrange(40) for _ in range(rows)]), state)
        assert looked is not None and torch.allclose(looked.sum(1), torch.ones(rows))
        found.append(logits[:4])
        if number % 2:
            rows = 8 if rows == 6 else 6
            state = state.select(torch.tensor(chance.choices(range(len(logits)), k=rows)))
    return torch.stack(found)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "activation": "gelu"}, {"source_vocabulary_size": 20}])
def test_nearly_the_scores_of_fp32(changes: dict[str, Any]) -> None:
    """Within 4 % of how far scores are apart, through any selection; and what fp32 gives is what it gave before."""
    model = make(**changes)
    exact = logits_of(model)
    near = logits_of(set_precision(model, "int8"))
    assert 0 < (near - exact).std() < 0.04 * exact.std()
    assert torch.equal(logits_of(set_precision(model, "fp32")), exact)


def test_trained_weights_write_the_same() -> None:
    """Three digits backwards."""
    model = make(encoder_layers=1, decoder_layers=1, width=32, heads=2, inner_width=64, dropout=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        digits = torch.randint(3, 13, (64, 3))
        source, target = Batch.of(digits.tolist()), Batch.of([[2, *row[:0:-1]] for row in digits.tolist()])
        scores = model.scores(model(source.ids, source.packing, target.ids, target.packing))
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, digits.flip(1).flatten()).backward()
        optimizer.step()
    model.eval()
    digits = torch.randint(3, 13, (200, 3))
    source = Batch.of(digits.tolist())
    written: dict[str, list[Tensor]] = {}
    for precision in ("fp32", "int8"):
        set_precision(model, precision)
        state, tokens = model.start(source.ids, source.packing, longest=3), torch.full((200,), 2)
        written[precision] = []
        for _ in range(3):
            logits, state, _ = model.step(tokens, state)
            tokens = logits.argmax(-1)
            written[precision].append(tokens)
    exact, near = (torch.stack(tokens, dim=1) for tokens in written.values())
    assert (exact == digits.flip(1)).all(dim=1).float().mean() > 0.97
    assert (exact == near).all(dim=1).float().mean() >= 0.99


def test_it_follows_training_and_is_no_part_of_the_model() -> None:
    model = set_precision(make(), "int8")
    names = set(model.state_dict())
    assert model.decoding.int8_bytes() == 0
    before = logits_of(model)
    n_weights = sum(weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2)
    assert n_weights < model.decoding.int8_bytes() < 1.1 * n_weights
    other = copy.deepcopy(model)
    assert other.decoding.precision == "int8" and other.decoding.int8_bytes() == 0
    model.train()
    assert model.decoding.int8_bytes() == 0
    for parameter in model.parameters():
        parameter.data.mul_(1.1)  # which no tensor counts as a change
    model.eval()
    after = logits_of(model)
    assert not torch.allclose(before, after, rtol=0.05)
    torch.testing.assert_close(logits_of(other), before, rtol=0.01, atol=0.01)  # a step of 8 bits, at most
    assert set(model.state_dict()) == names
    # all positions at once are fp32, whatever decoding is
    begun = Batch.of([[2]] * 4)
    hidden = model(SOURCE.ids, SOURCE.packing, begun.ids, begun.packing)
    assert torch.equal(hidden, set_precision(model, "fp32")(SOURCE.ids, SOURCE.packing, begun.ids, begun.packing))


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Unknown precision 'int4'. Did you mean 'int8'"):
        set_precision(make(), "int4")
    with pytest.raises(InputError, match=r"float64 on cpu.*fp32"):
        set_precision(make().double(), "int8").start(SOURCE.ids, SOURCE.packing)
    with pytest.raises(InputError, match="on meta"):
        set_precision(make().to("meta"), "int8").start(SOURCE.ids, SOURCE.packing)
    monkeypatch.setattr(precision_module, "explain_no_int8", lambda: "torch 1.0 has no kernels for it on this machine")
    with pytest.raises(InputError, match="int8 is not available: torch 1.0 has no kernels"):
        set_precision(make(), "int8")
    assert set_precision(make(), "fp32").decoding.precision == "fp32"
