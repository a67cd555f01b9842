"""BERT: layouts, presets, word order, export. Parity with transformers is in parity/test_bert.py."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.bert.network import PRESETS, Bert, BertConfig, BertWithHeads
from qkv.models.encoder import HEADS as TASK_HEADS

CONFIG = BertConfig(vocabulary_size=40, layers=3, width=32, heads=4, inner_width=64, max_length=16)
ROWS = [[1, 5, 6, 2], [1, 7, 8, 9, 10, 2], [1, 11, 2], [1, 12, 13, 14, 15, 2]]
SEGMENTS = [[0, 0, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0], [0, 0, 1, 1, 1, 1]]

HEADS = ("masked", *TASK_HEADS)


def random_model(*heads: str, **changes: Any) -> BertWithHeads:
    model = BertWithHeads(replace(CONFIG, initial_std=0.2, **changes), heads, labels=3)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.0, 0.2)
    return model.eval()


def test_sizes_of_the_notes() -> None:
    """Base 110 M and large 340 M; exactly these with the uncased vocabulary and the pooler."""
    with torch.device("meta"):
        counts = {
            name: sum(p.numel() for p in Bert(BertConfig.preset(name)).parameters()) for name in ("base", "large")
        }
    assert counts == {"base": 109_482_240, "large": 335_141_888}


def test_presets_and_their_names() -> None:
    assert list(PRESETS) == ["tiny", "mini", "small", "medium", "base", "large"]
    config = BertConfig.preset("mini", vocabulary_size=100)
    assert (config.layers, config.width, config.heads, config.inner_width) == (4, 256, 4, 1024)
    assert config.vocabulary_size == 100
    for name, preset in PRESETS.items():
        assert preset["inner_width"] == 4 * preset["width"], name
        assert preset["width"] == 64 * preset["heads"], name


def test_unknown_names_offer_a_neighbour() -> None:
    with pytest.raises(InputError, match="Unknown size 'bsae'. Did you mean 'base'"):
        BertConfig.preset("bsae")
    with pytest.raises(InputError, match="Unknown activation 'gleu'. Did you mean 'gelu'"):
        BertConfig(activation="gleu")
    with pytest.raises(InputError, match="not divisible by 7 heads"):
        BertConfig(heads=7)
    with pytest.raises(InputError, match="Unknown head 'tokens'. Did you mean 'token'"):
        BertWithHeads(CONFIG, ["tokens"])


def test_packed_equals_padded_in_every_output() -> None:
    model = random_model(*HEADS)
    batch = Batch.of(ROWS, segments=SEGMENTS)
    packed, packed_logits = model(**batch.inputs(), attention=range(3), states=True)
    padded, padded_logits = model(**batch.padded().inputs(), attention=range(3), states=True)
    assert torch.allclose(packed.hidden, batch.unpad(padded.hidden), atol=1e-6)
    assert torch.allclose(packed.pooled, padded.pooled, atol=1e-6)
    for one, other in zip(packed.states, padded.states, strict=True):
        assert torch.allclose(one, batch.unpad(other), atol=1e-6)
    mask = batch.padded().mask
    for layer in range(3):
        assert packed.attention[layer].shape == (4, 4, 6, 6)
        real = (packed.attention[layer] - padded.attention[layer])[mask[:, None, :, None].expand(-1, 4, -1, 6)]
        assert real.abs().max() < 1e-6
    for name, logits in packed_logits.items():
        other = padded_logits[name]
        assert torch.allclose(logits, batch.unpad(other) if other.dim() == 3 else other, atol=1e-5), name


def test_explicit_and_fused_paths_agree() -> None:
    model = random_model()
    batch = Batch.of(ROWS)
    for inputs in (batch.inputs(), batch.padded().inputs()):
        fast, _ = model(**inputs)
        slow, _ = model(**inputs, attention={0, 2})
        assert fast.attention == {}
        assert fast.states is None
        assert set(slow.attention) == {0, 2}
        assert torch.allclose(fast.hidden, slow.hidden, atol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    model = random_model("masked")
    together, _ = model(**Batch.of(ROWS).inputs())
    for row, hidden in zip(ROWS, Batch.of(ROWS).rows(together.hidden), strict=True):
        alone, _ = model(**Batch.of([row]).inputs())
        assert torch.allclose(alone.hidden, hidden, atol=1e-6)


def test_without_positions_word_order_is_lost() -> None:
    """他欠我100万 and 我欠他100万: one bag of words to attention alone; two sentences once positions are added."""
    model = random_model(dropout=0.0)
    with torch.no_grad():
        nn.init.normal_(model.encoder.embedding.position.weight)
    he_owes_me = torch.tensor([[20, 21, 22, 23, 24]])
    order = torch.tensor([2, 1, 0, 3, 4])
    i_owe_him = he_owes_me[:, order]

    nowhere = torch.zeros_like(he_owes_me)
    one, _ = model(he_owes_me, positions=nowhere)
    other, _ = model(i_owe_him, positions=nowhere)
    assert (one.hidden[:, order] - other.hidden).abs().max() <= 1e-6

    one, _ = model(he_owes_me)
    other, _ = model(i_owe_him)
    assert (one.hidden[:, order] - other.hidden).abs().max() > 1e-2


def test_every_parameter_gets_a_gradient() -> None:
    for tied in (True, False):
        model = BertWithHeads(replace(CONFIG, tied=tied), list(HEADS), labels=3).train()
        # every word of the vocabulary, every position and both segments occur
        rows = torch.arange(40).repeat(2)[: 5 * 16].reshape(5, 16).tolist()
        batch = Batch.of(rows, segments=[[0] * 8 + [1] * 8] * 5)
        _, logits = model(**batch.inputs())
        torch.stack([(value * torch.randn_like(value)).sum() for value in logits.values()]).sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            moved = parameter.grad.reshape(len(parameter), -1).abs().sum(-1)
            if name.endswith("qkv.bias"):
                # the bias of the keys moves all scores of a query alike, and a softmax does not see that
                moved = torch.cat([moved[:32], moved[64:]])
            assert (moved > 0).all(), name


def test_masked_head_is_tied_unless_told_otherwise() -> None:
    assert "heads.masked.table" not in dict(random_model("masked").named_parameters())
    model = BertWithHeads(replace(CONFIG, tied=False), ["masked"])
    assert dict(model.named_parameters())["heads.masked.table"].shape == (40, 32)
    hidden = torch.randn(2, 32)
    before = model.predict("masked", hidden)
    with torch.no_grad():
        model.encoder.embedding.token.weight.zero_()
    assert torch.equal(model.predict("masked", hidden), before)


def test_pooler_stands_where_a_head_reads_it() -> None:
    assert random_model("masked").encoder.pooler is None
    assert random_model("sequence").encoder.pooler is not None
    assert BertWithHeads(CONFIG, ["masked"], pooler=True).encoder.pooler is not None
    assert random_model("masked")(torch.tensor([[1, 2]]))[0].pooled is None


class ForExport(nn.Module):
    """Tensors in and out, as an exported program wants them."""

    def __init__(self, model: BertWithHeads) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        encoding, logits = self.model(ids, segments, mask=mask)
        return encoding.hidden, logits


def test_padded_path_exports_with_dynamic_batch_and_length() -> None:
    model = ForExport(random_model("masked", "sequence"))
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=16)
    example = Batch.of(ROWS, segments=SEGMENTS).padded()
    inputs = (example.ids, example.segments, example.mask)
    shapes = {name: {0: batch, 1: length} for name in ("ids", "segments", "mask")}
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    other = Batch.of([[1, 3, 4, 5, 6, 7, 8, 2], [1, 2]]).padded()
    expected_hidden, expected = model(other.ids, other.segments, other.mask)
    hidden, logits = program.module()(other.ids, other.segments, other.mask)
    assert torch.allclose(hidden, expected_hidden, atol=1e-6)
    assert torch.allclose(logits["masked"], expected["masked"], atol=1e-5)
    assert torch.allclose(logits["sequence"], expected["sequence"], atol=1e-6)
