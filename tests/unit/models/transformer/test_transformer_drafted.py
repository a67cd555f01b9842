"""Guessing ahead changes nothing: the scores, looks and texts of fp32, for one text and for several."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.transformer.decoding import TransformerDecoding
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu import precision as precision_module
from qkv.nn.cpu.precision import explain_no_int8, set_precision
from qkv.nn.cpu.speculative import DRAFT_LENGTHS
from qkv.search.beam import generate
from qkv.search.options import GenerateConfig

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8())),
]
ONE = Batch.of([[5, 6, 7, 1]])
THREE = Batch.of([[5, 6, 7, 1], [3, 1], [8, 9, 10, 11, 12, 1]])
END = 1


def make(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "width": 32, "heads": 4, "inner_width": 64}
    return Transformer(TransformerConfig(40, **(sizes | changes))).eval()


def written(model: Transformer, precision: str, source: Batch, **options: Any) -> list[Any]:
    config = GenerateConfig(**({"max_length": 100, "min_length": 90} | options))
    set_precision(model, precision)
    state = model.start(source.ids, source.packing, hypotheses=config.hypotheses, longest=config.max_length)
    begin = torch.full((source.n_rows,), 2)
    return [best for best, *_ in generate(model.step, state, begin, END, config, source_lengths=source.lengths)]


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "activation": "gelu"}, {"source_vocabulary_size": 20}])
@pytest.mark.parametrize("source", [ONE, THREE], ids=["one", "three"])
@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"sample": True, "seed": 3}], ids=["greedy", "beams", "sample"])
def test_the_same_as_fp32(changes: dict[str, Any], source: Batch, options: dict[str, Any]) -> None:
    """Longer than there is room for at first."""
    model = make(**changes)
    exact, drafted = (written(model, precision, source, **options) for precision in ("fp32", "drafted"))
    assert [one.tokens for one in drafted] == [one.tokens for one in exact]
    for ours, theirs in zip(drafted, exact, strict=True):
        assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
        assert torch.allclose(ours.attention, theirs.attention, atol=1e-5)


def test_what_is_written_may_be_none_of_the_guesses() -> None:
    """Tokens by chance: nearly every guess is wrong, and what was guessed is forgotten."""
    model = make()
    torch.manual_seed(1)
    tokens = torch.randint(2, 40, (40, 1))
    found: dict[str, list[Tensor]] = {}
    for precision in ("fp32", "drafted"):
        state = set_precision(model, precision).start(ONE.ids, ONE.packing, longest=40)
        found[precision] = []
        for token in tokens:
            logits, state, _ = model.step(token, state)
            found[precision].append(logits)
    assert torch.allclose(torch.stack(found["drafted"]), torch.stack(found["fp32"]), atol=1e-4)


def test_guesses_save_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are read once for several tokens, and the last token has room."""
    model = make()
    read: list[int] = []
    own = TransformerDecoding._read

    def counted(
        self: TransformerDecoding,
        network: Any,
        tokens: Tensor,
        past: Any,
        source: Any,
        layers: Any,
        count: int = 1,
    ) -> Any:
        if layers.guessing is not None:
            read.append(count)
        return own(self, network, tokens, past, source, layers, count)

    monkeypatch.setattr(TransformerDecoding, "_read", counted)
    (text,) = written(model, "drafted", ONE, max_length=60, min_length=59)
    assert len(text.tokens) >= 59
    assert len(read) < 40 and max(read) in [count + 1 for count in DRAFT_LENGTHS]


def test_a_selection_of_other_rows_forgets_the_guesses() -> None:
    model = set_precision(make(), "drafted")
    state = model.start(ONE.ids, ONE.packing, longest=30)
    state = model.step(torch.tensor([2]), state).state
    assert state.draft is not None
    kept = state.select(torch.tensor([0]))
    assert kept.draft is state.draft
    twice = kept.select(torch.tensor([0, 0]))
    assert twice.draft is None
    again = model.step(torch.tensor([7, 7]), twice).logits
    exact = set_precision(model, "fp32").start(ONE.ids, ONE.packing, longest=30)
    exact = model.step(torch.tensor([2]), exact).state
    assert torch.allclose(again[0], model.step(torch.tensor([7]), exact).logits[0], atol=1e-4)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"float64 on cpu.*fp32"):
        set_precision(make().double(), "drafted").start(ONE.ids, ONE.packing)
    monkeypatch.setattr(precision_module, "explain_no_int8", lambda: "torch 1.0 has no kernels for it on this machine")
    with pytest.raises(InputError, match="drafted is not available: torch 1.0 has no kernels"):
        set_precision(make(), "drafted")
