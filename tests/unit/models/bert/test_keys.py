import pytest

from qkv.errors import InputError
from qkv.models.bert.folder import BERT_NAMES
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.encoder import READS_POOLED
from tests.support.folders import SMALL

POOLER = {"pooler.dense.weight", "pooler.dense.bias"}
NEXT = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
CLASSIFIER = {"classifier.weight", "classifier.bias"}

HEADS = tuple(BERT_NAMES.heads)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pooler", [True, False])
def test_the_table_names_every_parameter_of_the_network(tied: bool, pooler: bool) -> None:
    config = BertConfig(**SMALL, tied=tied)
    for heads in [(), *((head,) for head in HEADS), tuple(HEADS)]:
        if not pooler and READS_POOLED & set(heads):
            continue
        model = BertWithHeads(config, heads, pooler=pooler)
        assert set(BERT_NAMES.tensors(config, heads, "pooler.dense" if pooler else None)) == set(model.state_dict())


def test_no_stored_name_is_used_twice_but_the_classifier() -> None:
    config = BertConfig(**SMALL, tied=False)
    found = BERT_NAMES.tensors(config, HEADS, "pooler.dense")
    theirs = [name for names in found.values() for name in names if "classifier" not in name]
    assert len(theirs) == len(set(theirs))
    assert [len(names) for names in found.values()].count(3) == 2 * config.layers  # the fused weight and bias


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"),
        ("bert.encoder.layer.3.output.LayerNorm.beta", "encoder.layer.3.output.LayerNorm.bias"),
        ("cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.weight"),
        ("pooler.dense.weight", "pooler.dense.weight"),
        ("classifier.weight", "classifier.weight"),
    ],
)
def test_canonical_names(stored: str, name: str) -> None:
    assert BERT_NAMES.canonical(stored) == name
    assert BERT_NAMES.canonical(BERT_NAMES.written("encoder.x", name, "BertForMaskedLM")) == name
    assert BERT_NAMES.written("encoder.x", name, "BertModel") == name


def test_heads_are_what_the_file_holds_not_what_it_states() -> None:
    # bert-base-uncased states BertForMaskedLM
    stored = {"cls.predictions.bias", "cls.predictions.transform.dense.weight"} | NEXT
    assert BERT_NAMES.heads_held(stored, "BertForMaskedLM", "file") == ("masked", "next_sentence")
    assert BERT_NAMES.architecture_of(["masked", "next_sentence"], "BertForMaskedLM") == "BertForPreTraining"
    assert BERT_NAMES.heads_held(set(), "BertForMaskedLM", "file") == ("masked",)  # a missing head is found later
    assert BERT_NAMES.heads_held(POOLER, None, "file") == ()
    assert BERT_NAMES.heads_held(set(), "BertModel", "file") == ()
    assert BERT_NAMES.heads_held(CLASSIFIER | NEXT, "BertForSequenceClassification", "file") == (
        "sequence",
        "next_sentence",
    )
    assert BERT_NAMES.heads_held(CLASSIFIER, "BertForTokenClassification", "file") == ("token",)


@pytest.mark.parametrize("stated", [None, "BertModel", "BertForMaskedLM"])
def test_a_classifier_without_a_meaning_asks_for_it(stated: str | None) -> None:
    with pytest.raises(InputError, match=r"x\.safetensors: it holds a classifier.*BertForTokenClassification"):
        BERT_NAMES.heads_held(CLASSIFIER, stated, "x.safetensors")


def test_every_architecture_is_its_own_best_class() -> None:
    for name, architecture in BERT_NAMES.classes.items():
        assert BERT_NAMES.architecture_of(architecture.heads) == name
    assert (
        BERT_NAMES.architecture_of(["sequence", "masked"], "BertForSequenceClassification")
        == "BertForSequenceClassification"
    )
    assert BERT_NAMES.architecture_of(["sequence", "masked"]) == "BertForMaskedLM"


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(InputError, match=r"config\.json.*'BertForMaskedML'.*Did you mean 'BertForMaskedLM'"):
        BERT_NAMES.check_architecture("BertForMaskedML", "config.json")
