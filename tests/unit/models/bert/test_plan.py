"""What can be wrong with a folder, each with one message that names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.errors import InputError
from qkv.models.bert.folder import BERT_NAMES
from qkv.models.bert.plan import FolderPlan, make_plan
from qkv.models.encoder import SkipInit
from tests.support.folders import TOKENS, make_folder

Change = Callable[[dict[str, Tensor]], Any]


def change_weights(folder: Path, change: Change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder: Path, **changes: Any) -> None:
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changes
    fields = {name: value for name, value in fields.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")


def plan(folder: Path) -> FolderPlan:
    return make_plan(BERT_NAMES, folder, compare=True)


def heads(folder: Path) -> tuple[list[str], bool, str]:
    made = plan(folder)
    return list(made.heads), made.dense is not None, made.architecture


def test_known_parts_beyond_the_stated_ones_are_held(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "BertForPreTraining")
    change_config(folder, architectures=["BertForMaskedLM"])  # as published bert-base-uncased does
    assert heads(folder) == (["masked", "next_sentence"], True, "BertForPreTraining")
    change_config(folder, architectures="absent")
    assert heads(folder) == (["masked", "next_sentence"], True, "BertForPreTraining")


def test_a_part_that_the_architecture_needs_is_not_invented(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "BertModel")
    change_config(folder, architectures=["BertForMaskedLM"])
    with pytest.raises(InputError, match=r"model\.safetensors lacks 5 .* BertForMaskedLM .*cls\.predictions\.bias"):
        plan(folder)
    change_config(folder, architectures=["BertForTokenClassification"])
    with pytest.raises(InputError, match=r"lacks 2 .*classifier\.bias, classifier\.weight"):
        plan(folder)


def test_missing_and_unexpected_tensors_are_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    change_weights(folder, lambda tensors: tensors.pop("bert.encoder.layer.1.attention.self.key.weight"))
    with pytest.raises(InputError, match=r"lacks 1 of .* 2 layers .*encoder\.layer\.1\.attention\.self\.key\.weight"):
        plan(folder)
    make_folder(folder)
    change_weights(folder, lambda tensors: tensors.update({"bert.adapter.weight": torch.ones(2)}))
    with pytest.raises(InputError, match=r"holds 1 tensors .*: adapter\.weight"):
        plan(folder)
    make_folder(folder)
    change_config(folder, num_hidden_layers=1)
    with pytest.raises(InputError, match=r"holds 16 tensors .* 1 layers .*encoder\.layer\.1\..* and 10 more"):
        plan(folder)
    change_config(folder, num_hidden_layers=3)
    with pytest.raises(InputError, match=r"lacks 16 .* 3 layers .*encoder\.layer\.2\."):
        plan(folder)


@pytest.mark.parametrize("size", [10**7, 10**18])
@pytest.mark.parametrize("name", ["num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings"])
def test_absurd_sizes_end_at_once(tmp_path: Path, name: str, size: int) -> None:
    folder = make_folder(tmp_path / "m")
    change_config(folder, **{name: size})
    with pytest.raises(InputError):
        plan(folder)


def test_half_a_head_is_an_error(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    change_weights(folder, lambda tensors: tensors.pop("cls.seq_relationship.bias"))
    with pytest.raises(InputError, match=r"lacks 1 .*cls\.seq_relationship\.bias"):
        plan(folder)


def test_a_tensor_under_two_names(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    change_weights(folder, lambda tensors: tensors.update({"pooler.dense.bias": torch.ones(32)}))
    with pytest.raises(InputError, match=r"holds pooler\.dense\.bias twice"):
        plan(folder)


def test_known_buffers_are_tolerated(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    buffer = {"bert.embeddings.position_ids": torch.arange(64).view(1, -1)}
    change_weights(folder, lambda tensors: tensors.update(buffer))
    assert heads(folder)[0] == ["masked", "next_sentence"]


def test_wrong_shapes_name_both(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    change_config(folder, intermediate_size=128)
    with pytest.raises(
        InputError,
        match=r"model\.safetensors: encoder\.layer\.0\.intermediate\.dense\.weight has .*\[64, 32\].*\[128, 32\]",
    ):
        plan(folder)
    make_folder(folder)
    name = "bert.encoder.layer.0.attention.self.value.weight"
    change_weights(folder, lambda tensors: tensors.update({name: torch.ones(31, 32)}))
    with pytest.raises(InputError, match=r"self\.value\.weight has the shape \[31, 32\], but .*\[32, 32\]"):
        plan(folder)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    name = "bert.pooler.dense.bias"
    change_weights(folder, lambda tensors: tensors.update({name: torch.ones(32, dtype=torch.int8)}))
    with pytest.raises(InputError, match=r"pooler\.dense\.bias is stored as torch\.int8"):
        plan(folder)


def test_a_vocabulary_of_the_wrong_size(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    change_config(folder, vocab_size=30_522)
    with pytest.raises(InputError, match=rf"vocab_size 30,522, but the token table in .* has {len(TOKENS)} rows"):
        plan(folder)


def test_a_tokenizer_may_be_smaller_than_the_table_but_not_larger(tmp_path: Path) -> None:
    assert plan(make_folder(tmp_path / "whole")).notes == ()
    for spare in (7, 127):  # published tables are rounded up
        (note,) = plan(make_folder(tmp_path / "padded", vocabulary_size=len(TOKENS) + spare)).notes
        assert f"{len(TOKENS) + spare} rows for {len(TOKENS)} tokens" in note
    folder = make_folder(tmp_path / "m")

    def shrink(tensors: dict[str, Tensor]) -> None:
        for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
            tensors[name] = tensors[name][:50].clone()

    change_weights(folder, shrink)
    change_config(folder, vocab_size=50)
    with pytest.raises(InputError, match=rf"the tokenizer has {len(TOKENS)} tokens, but the model's table has 50 rows"):
        plan(folder)


def test_a_tokenizer_far_smaller_than_the_table_is_another_ones(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", vocabulary_size=len(TOKENS) + 127)
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    (folder / "vocab.txt").write_text("\n".join(TOKENS[:-1]) + "\n", encoding="utf-8")
    rows = len(TOKENS) + 127
    message = rf"the tokenizer has {len(TOKENS) - 1} tokens, but the model's table has {rows} rows .* another model"
    with pytest.raises(InputError, match=message):
        plan(folder)


def test_a_decoder_that_was_not_looked_at(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    assert make_plan(BERT_NAMES, folder, compare=False).is_decoder_compared
    table = {"cls.predictions.decoder.weight": torch.zeros(len(TOKENS), 32)}
    change_weights(folder, lambda tensors: tensors.update(table))
    quick, whole = make_plan(BERT_NAMES, folder, compare=False), plan(folder)
    assert (quick.is_decoder_compared, whole.is_decoder_compared) == (False, True)
    assert "whether it differs is seen when it is loaded" in quick.notes[0] and whole.notes == ()
    assert not whole.config.tied


def test_labels_and_outputs_must_agree(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "BertForSequenceClassification", labels=("好", "中", "坏"))
    assert plan(folder).labels == ("好", "中", "坏")
    change_config(folder, id2label={"0": "好", "1": "坏"})
    with pytest.raises(InputError, match="names 2 labels, but the classifier in .* has 3 outputs"):
        plan(folder)
    change_config(folder, id2label="absent", label2id="absent")
    assert plan(folder).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_classifier_without_an_architecture(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "BertForTokenClassification")
    change_config(folder, architectures="absent")
    with pytest.raises(InputError, match="holds a classifier, and config.json says no architecture"):
        plan(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_is_missing(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / name).unlink()
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        plan(folder)


def test_a_tokenizer_that_is_missing(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    plan(folder)  # vocab.txt is enough
    (folder / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        plan(folder)


def test_another_architecture(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    change_config(folder, model_type="roberta")
    with pytest.raises(InputError, match=r"model_type 'roberta', where a BERT belongs: model_type 'bert'"):
        plan(folder)
    change_config(folder, model_type="reader")
    with pytest.raises(InputError, match=f"model_type 'reader', where a BERT belongs.*qkv info {folder}"):
        plan(folder)
    with pytest.raises(InputError, match="There is no folder"):
        plan(tmp_path / "nothing")


def test_our_own_file(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / "qkv.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match=r"qkv\.json has format 99; .*newer"):
        plan(folder)
    (folder / "qkv.json").write_text('{"format": 1, "pooling": "median"}')
    with pytest.raises(InputError, match=r"qkv\.json: pooling is 'median'"):
        plan(folder)
    (folder / "qkv.json").write_text('{"format": 1, "pooling": "cls", "normalize": true, "record": {"steps": 3}}')
    made = plan(folder)
    assert (made.sentence.pooling, made.sentence.normalize, made.record) == ("cls", True, {"steps": 3})
    (folder / "qkv.json").unlink()
    assert plan(folder).sentence.pooling is None


def test_an_undrawn_network_costs_nothing_and_leaves_others_alone() -> None:
    with torch.device("meta"), SkipInit():
        hollow = torch.nn.Linear(4, 4)
    assert hollow.weight.device.type == "meta"
    assert hollow.weight.requires_grad
    assert float(torch.nn.Linear(4, 4).weight.detach().abs().sum()) > 0
