import pytest

from qkv.models.bert.folder import BERT_NAMES, make_card
from qkv.models.bert.network import BertConfig
from qkv.models.folders.own import MARK, Card, write_card


@pytest.mark.parametrize("architecture", BERT_NAMES.classes)
def test_a_card_says_what_it_is_and_how_to_load_it(architecture: str) -> None:
    card = make_card(BERT_NAMES, "我的模型", BertConfig(), architecture, ("好", "坏"), 109_482_240, None)
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert card.count("\n---\n") == 1
    for part in (MARK, "# 我的模型", "109,482,240", "`好`, `坏`", "12 layers", "qkv.load(", "编码器"):
        assert part in card
    assert f"{BERT_NAMES.classes[architecture].auto_class}.from_pretrained(" in card


def test_pooling_makes_it_a_sentence_model() -> None:
    assert "pipeline_tag: sentence-similarity" in make_card(BERT_NAMES, "x", BertConfig(), "BertModel", (), 1, "mean")
    assert "pipeline_tag: feature-extraction" in make_card(BERT_NAMES, "x", BertConfig(), "BertModel", (), 1, None)


def test_a_card_of_all_facts_and_of_few() -> None:
    facts = Card(
        "名字",
        ("It is this.", "它是这个。"),
        ["one", "two"],
        library="transformers",
        pipeline="translation",
        sizes={"layers": 2},
        labels=["好"],
        notes=["A note."],
        command="qkv info .",
        python=["import qkv"],
    )
    assert write_card(facts).splitlines() == [
        *("---", "library_name: transformers", "pipeline_tag: translation", "tags:", "- qkv", "- one", "- two", "---"),
        *(MARK, "", "# 名字", "", "It is this.", "", "它是这个。", "", "| | |", "|---|---|", "| layers | 2 |", ""),
        *("Labels / 标签: `好`", "", "A note.", "", "## Use / 用法", "", "```bash", "qkv info .", "```", ""),
        *("```python", "import qkv", "```"),
    ]
    few = write_card(Card("x", ("This.", "这个。"), ["x"]))
    assert few.startswith("---\nlibrary_name: qkv\ntags:\n- qkv\n- x\n---\n") and few.endswith("\n\n这个。\n")
