import pytest

from qkv.errors import InputError
from qkv.models.bert.keys import (
    ARCHITECTURES,
    KEYS,
    architecture_of,
    canonical,
    check_architecture,
    parts_held,
    tensors_of,
    written,
)
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.encoder import HEADS as TASK_HEADS
from qkv.models.encoder import READS_POOLED
from tests.support.folders import SMALL

POOLER = {"pooler.dense.weight", "pooler.dense.bias"}
NEXT = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
CLASSIFIER = {"classifier.weight", "classifier.bias"}

HEADS = ("masked", *TASK_HEADS)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pooler", [True, False])
def test_the_table_names_every_parameter_of_the_network(tied: bool, pooler: bool) -> None:
    config = BertConfig(**SMALL, tied=tied)
    for heads in [(), *((head,) for head in HEADS), tuple(HEADS)]:
        if not pooler and READS_POOLED & set(heads):
            continue
        model = BertWithHeads(config, heads, pooler=pooler)
        assert set(tensors_of(heads, pooler, config.layers, tied)) == set(model.state_dict())


def test_no_stored_name_is_used_twice_but_the_classifier() -> None:
    theirs = [name for ours, names in KEYS.items() for name in names if "classifier" not in names[0]]
    assert len(theirs) == len(set(theirs))
    assert [len(names) for names in KEYS.values()].count(3) == 2  # the fused weight and bias


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
    assert canonical(stored) == name
    assert canonical(written(name, "BertForMaskedLM")) == canonical(written(name, "BertModel")) == name


def test_heads_are_what_the_file_holds_not_what_it_states() -> None:
    # bert-base-uncased states BertForMaskedLM
    stored = {"cls.predictions.bias", "cls.predictions.transform.dense.weight"} | POOLER | NEXT
    assert parts_held(stored, "BertForMaskedLM", "file") == (("masked", "next_sentence"), True)
    assert architecture_of(["masked", "next_sentence"], "BertForMaskedLM") == "BertForPreTraining"
    assert parts_held(set(), "BertForMaskedLM", "file") == (("masked",), False)  # a missing head is found later
    assert parts_held(POOLER, None, "file") == ((), True)
    assert parts_held(set(), "BertModel", "file") == ((), False)
    assert parts_held(CLASSIFIER | NEXT, "BertForSequenceClassification", "file") == (
        ("sequence", "next_sentence"),
        True,
    )
    assert parts_held(CLASSIFIER, "BertForTokenClassification", "file") == (("token",), False)


@pytest.mark.parametrize("stated", [None, "BertModel", "BertForMaskedLM"])
def test_a_classifier_without_a_meaning_asks_for_it(stated: str | None) -> None:
    with pytest.raises(InputError, match=r"x\.safetensors: it holds a classifier.*BertForTokenClassification"):
        parts_held(CLASSIFIER, stated, "x.safetensors")


def test_every_architecture_is_its_own_best_class() -> None:
    for name, architecture in ARCHITECTURES.items():
        assert architecture_of(architecture.heads) == name
    assert architecture_of(["sequence", "masked"], "BertForSequenceClassification") == "BertForSequenceClassification"
    assert architecture_of(["sequence", "masked"]) == "BertForMaskedLM"


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(InputError, match=r"config\.json.*'BertForMaskedML'.*Did you mean 'BertForMaskedLM'"):
        check_architecture("BertForMaskedML", "config.json")
