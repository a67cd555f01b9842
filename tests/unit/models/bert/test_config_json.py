import json
from pathlib import Path
from typing import Any

import pytest

from qkv.errors import InputError
from qkv.models.bert.folder import BERT_NAMES, read_config
from qkv.models.bert.likes import FolderConfig
from qkv.models.bert.network import BertConfig
from qkv.models.folders.fields import ACTIVATION_NAMES
from qkv.nn.block import ACTIVATION_FUNCTIONS as OURS

# config.json of the published bert-base-chinese, older than model_type's neighbours of today
CHINESE: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 21128,
}


def read(tmp_path: Path, **changes: Any) -> FolderConfig:
    fields = {name: value for name, value in (CHINESE | changes).items() if value != "absent"}
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return read_config(tmp_path / "config.json")


def test_a_published_config(tmp_path: Path) -> None:
    stated = read(tmp_path)
    assert stated.config == BertConfig(vocabulary_size=21_128)
    assert (stated.architecture, stated.labels, stated.carried, stated.notes) == ("BertForMaskedLM", None, {}, ())


def test_every_value_is_taken_over_and_written_back(tmp_path: Path) -> None:
    config = BertConfig(
        vocabulary_size=99,
        layers=3,
        width=48,
        heads=4,
        inner_width=50,
        max_length=77,
        segments=3,
        dropout=0.2,
        attention_dropout=0.3,
        head_dropout=0.4,
        activation="gelu_tanh",
        norm_epsilon=1e-5,
        initial_std=0.03,
        tied=False,
        pad_id=7,
    )
    fields = BERT_NAMES.write_config(
        config, "BertForTokenClassification", ("O", "人名"), "float32", {"problem_type": "x"}
    )
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    stated = read_config(tmp_path / "config.json")
    assert stated.config == config
    assert stated.labels == ("O", "人名")
    assert stated.carried == {"problem_type": "x"}
    assert fields["id2label"] == {"0": "O", "1": "人名"}
    assert fields["label2id"] == {"O": 0, "人名": 1}


def test_defaults_are_those_of_transformers(tmp_path: Path) -> None:
    assert read(tmp_path, vocab_size="absent", hidden_size="absent", classifier_dropout=None).config == BertConfig()
    assert read(tmp_path, pad_token_id=None).config.pad_id == 0


@pytest.mark.parametrize("theirs", ACTIVATION_NAMES)
def test_every_activation_is_one_of_ours(tmp_path: Path, theirs: str) -> None:
    config = read(tmp_path, hidden_act=theirs).config
    written = BERT_NAMES.write_config(config, "BertModel", (), "float32", {})["hidden_act"]
    assert config.activation in OURS
    assert ACTIVATION_NAMES[written] == config.activation


def test_every_activation_of_ours_can_be_written() -> None:
    assert set(OURS) == set(ACTIVATION_NAMES.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "roberta", "architectures": ["RobertaModel"]},
            r"model_type 'roberta', where a BERT belongs: .*'bert'",
        ),
        ({"model_type": "absent", "architectures": ["GPT2LMHeadModel"]}, "says no model_type, where a BERT"),
        ({"architectures": ["BertLMHeadModel"]}, "'BertLMHeadModel' is not one that qkv reads"),
        ({"architectures": ["BertForMaskedML"]}, "Did you mean 'BertForMaskedLM'"),
        ({"hidden_act": "gelu_nwe"}, "hidden_act 'gelu_nwe' is not known. Did you mean 'gelu_new'"),
        ({"hidden_act": None}, "hidden_act None is not known"),
        ({"hidden_act": ["gelu"]}, r"hidden_act \['gelu'\] is not known"),
        ({"architectures": [["x"]]}, "is not one that qkv reads"),
        ({"architectures": [["x"]], "model_type": "absent"}, "says no model_type"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key', but .*absolute"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*float weights"),
        ({"hidden_size": 770}, "hidden_size 770 is not divisible by num_attention_heads 12"),
        ({"hidden_size": "768"}, "hidden_size is '768', where a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers is 10+, where a whole number from 1 to 10,000,000"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob is 1.5, where a number in \[0, 1\)"),
        ({"hidden_dropout_prob": None}, "hidden_dropout_prob is None"),
        ({"layer_norm_eps": 0}, "layer_norm_eps is 0"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"pad_token_id": -1}, "pad_token_id is -1, where a token id"),
        ({"id2label": {"1": "A", "2": "B"}}, r"id2label numbers its labels \[1, 2\], not 0 … 1"),
        ({"id2label": ["A", "B"]}, "id2label is not a table"),
        ({"id2label": {"zero": "A"}}, "id2label is not a table"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"config\.json.*{message}"):
        read(tmp_path, **changes)


def test_an_unknown_field_is_noted_and_carried(tmp_path: Path) -> None:
    stated = read(tmp_path, auto_map={"AutoModel": "x.Y"}, wordle=5, problem_type="regression")
    assert stated.notes == ("config.json: auto_map, wordle mean nothing to qkv and change nothing here",)
    assert stated.carried == {"problem_type": "regression", "auto_map": {"AutoModel": "x.Y"}, "wordle": 5}


def test_first_folders_say_no_model_type(tmp_path: Path) -> None:
    assert read(tmp_path, model_type="absent").architecture == "BertForMaskedLM"
    assert read(tmp_path, model_type="absent", architectures="absent").architecture is None


def test_labels(tmp_path: Path) -> None:
    assert read(tmp_path, id2label={"1": "坏", "0": "好"}, label2id={"好": 0, "坏": 1}).labels == ("好", "坏")
    assert read(tmp_path, label2id={"坏": 1, "好": 0}).labels == ("好", "坏")
    assert read(tmp_path, num_labels=3).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert read(tmp_path, id2label={}).labels is None
    stated = read(tmp_path, id2label={"0": "A", "1": "B"}, label2id={"A": 1, "B": 0})
    assert stated.labels == ("A", "B")
    assert "label2id disagrees" in stated.notes[0]


def test_labels_of_one_name_are_noted_and_written(tmp_path: Path) -> None:
    stated = read(tmp_path, id2label={"0": "A", "1": "B", "2": "A"})
    assert stated.labels == ("A", "B", "A")
    assert stated.notes == ("config.json: more than one label is called A; only their ids tell them apart",)
    written = BERT_NAMES.write_config(stated.config, "BertForSequenceClassification", stated.labels, "float32", {})
    assert written["id2label"] == {"0": "A", "1": "B", "2": "A"}
    assert written["label2id"] == {"A": 0, "B": 1}
    assert read(tmp_path, **written).notes == stated.notes
