import pytest

from qkv.models.bert.keys import ARCHITECTURES
from qkv.models.bert.network import BertConfig
from qkv.models.folders.card import MARK, write_card


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_card_says_what_it_is_and_how_to_load_it(architecture: str) -> None:
    card = write_card("我的模型", BertConfig(), architecture, ("好", "坏"), 109_482_240, None)
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert card.count("\n---\n") == 1
    for part in (MARK, "# 我的模型", "109,482,240", "`好`, `坏`", "12 layers", "qkv.load(", "编码器"):
        assert part in card
    assert f"{ARCHITECTURES[architecture].auto_class}.from_pretrained(" in card


def test_pooling_makes_it_a_sentence_model() -> None:
    assert "pipeline_tag: sentence-similarity" in write_card("x", BertConfig(), "BertModel", (), 1, "mean")
    assert "pipeline_tag: feature-extraction" in write_card("x", BertConfig(), "BertModel", (), 1, None)
