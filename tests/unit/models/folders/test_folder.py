"""Folders of models that transformers does not know: what is saved comes back, whole or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from qkv.cli.main import main
from qkv.errors import InputError
from qkv.models.folders.own import (
    OWN_TYPES,
    check_model_target,
    describe_folder,
    model_type_of,
    read_folder,
    save_folder,
)
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL
from tests.support.folders import make_folder, make_tokenizer

CONFIG: dict[str, Any] = {"vocabulary_size": make_tokenizer().size, "width": 4, "cell": "lstm", "sizes": [1, 2]}


def tensors() -> dict[str, torch.Tensor]:
    return {"embedding": torch.randn(3, 4), "deep.bias": torch.randn(5).half(), "turned": torch.randn(4, 2).T}


def save(path: Path, **changes: Any) -> Path:
    given: dict[str, Any] = {
        "model_type": "rnnlm",
        "config": CONFIG,
        "tensors": tensors(),
        "tokenizer": make_tokenizer(),
        "record": {"steps": 10, "语料": "维基"},
    }
    return save_folder(path, **(given | changes))


@pytest.mark.parametrize("model_type", OWN_TYPES)
def test_what_is_saved_comes_back(tmp_path: Path, model_type: str) -> None:
    held = tensors()
    path = save(tmp_path / "模型", model_type=model_type, tensors=held)
    found = read_folder(path)
    assert (found.model_type, found.config, found.record) == (model_type, CONFIG, {"steps": 10, "语料": "维基"})
    assert found.tensors.keys() == held.keys()
    for name, tensor in held.items():
        assert torch.equal(found.tensors[name], tensor) and found.tensors[name].dtype == tensor.dtype
    assert found.tokenizer.vocabulary == make_tokenizer().vocabulary
    assert model_type_of(path) == model_type and read_folder(path, model_type, "elmo").config == CONFIG
    assert load_file(path / "model.safetensors").keys() == held.keys()
    card = (path / "README.md").read_text(encoding="utf-8")
    assert "# 模型\n" in card and OWN_TYPES[model_type].chinese in card and "25 parameters" in card
    assert f"- {model_type}\n" in card and "| cell | lstm |" in card
    files = {"config.json", "model.safetensors", "qkv.json", "README.md", *make_tokenizer().files()}
    assert {file.name for file in path.iterdir()} == files


def test_a_folder_is_described(tmp_path: Path) -> None:
    found = describe_folder(read_folder(save(tmp_path / "one")))
    assert (found["model_type"], found["parameters"], found["dtype"]) == ("rnnlm", 25, "float16 and float32")
    assert found["tensors"]["embedding"] == [3, 4] and found["vocabulary"]["kind"] == "wordpiece"
    assert json.dumps(found) and found["files"]["README.md"] > 0
    assert found["vocabulary"]["segmenter"] is None
    assert "分词" not in (tmp_path / "one" / "README.md").read_text(encoding="utf-8")


def test_the_segmenter_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = Tokenizer.from_vocabulary([*SPECIAL, "北京", "国王"], "word", segmenter="rjieba 0.1")
    path = save(tmp_path / "one", model_type="elmo", tokenizer=words, config={"vocabulary_size": words.size})
    assert describe_folder(read_folder(path))["vocabulary"]["segmenter"] == "rjieba 0.1"
    card = (path / "README.md").read_text(encoding="utf-8")
    assert "found by rjieba 0.1" in card and "中文由 rjieba 0.1 分词" in card
    assert main(["info", str(path)]) == 0
    assert "7 tokens by word, Chinese by rjieba 0.1, lower case" in capsys.readouterr().out
    assert main(["info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vocabulary"]["segmenter"] == "rjieba 0.1"


def test_a_tensor_is_ours_to_write_to(tmp_path: Path) -> None:
    path = save(tmp_path / "one")
    read_folder(path).tensors["embedding"].zero_()
    assert read_folder(path).tensors["embedding"].abs().sum() > 0
    # and a folder may be read from and replaced at once
    found = read_folder(path)
    save(path, tensors=found.tensors, card="My own words.")
    assert torch.equal(read_folder(path).tensors["turned"], found.tensors["turned"])
    assert (path / "README.md").read_text() == "My own words."


def test_other_folders_are_refused(tmp_path: Path) -> None:
    bert = make_folder(tmp_path / "bert")
    with pytest.raises(InputError, match="bert holds a BERT, where word2vec belongs"):
        read_folder(bert, "word2vec")
    ours = save(tmp_path / "ours")
    with pytest.raises(InputError, match="ours holds a model of type rnnlm, where elmo or word2vec belongs"):
        read_folder(ours, "elmo", "word2vec")
    with pytest.raises(InputError, match="not a model folder: it has no config.json, only bert, ours"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="it has no config.json, or is no folder"):
        read_folder(tmp_path / "missing")
    with pytest.raises(InputError, match="The model_type is 'word3vec'.*Did you mean 'word2vec'?"):
        save(tmp_path / "new", model_type="word3vec")
    with pytest.raises(
        InputError,
        match="the tokenizer has 109 tokens, but the model's table has 9 rows".replace(
            "109", str(make_tokenizer().size)
        ),
    ):
        save(tmp_path / "new", config={"vocabulary_size": 9})
    assert not (tmp_path / "new").exists() and model_type_of(tmp_path) is None and model_type_of(bert) == "bert"


def test_somebodys_work_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    for act in (save, check_model_target):
        with pytest.raises(InputError, match="thesis.txt, which is not part of a model"):
            act(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    check_model_target(tmp_path / "new")
    assert save(make_folder(tmp_path / "bert")) == tmp_path / "bert", "one model takes the place of another"
    assert model_type_of(tmp_path / "bert") == "rnnlm"


def change(path: Path, name: str, **fields: Any) -> None:
    content = json.loads((path / name).read_text(encoding="utf-8"))
    (path / name).write_text(json.dumps(content | fields), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("config.json", {"model_type": "elmoo"}, "says model_type 'elmoo', where .* belongs. Did you mean 'elmo'?"),
        ("config.json", {"model_type": ["elmo"]}, "says model_type \\['elmo'\\]"),
        ("config.json", {"model_type": None}, "says model_type None"),
        ("config.json", {"vocabulary_size": "many"}, "vocabulary_size is 'many', where a number belongs"),
        ("config.json", {"vocabulary_size": 7}, "The tokenizer belongs to another model"),
        ("qkv.json", {"format": 99}, "has format 99; this qkv reads up to 1"),
    ],
)
def test_files_that_contradict_each_other(tmp_path: Path, name: str, fields: dict[str, Any], message: str) -> None:
    path = save(tmp_path / "model")
    change(path, name, **fields)
    with pytest.raises(InputError, match=message):
        read_folder(path)


def test_damaged_folders(tmp_path: Path) -> None:
    path = save(tmp_path / "model")
    (path / "qkv.json").unlink()
    assert read_folder(path).record == {}
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(InputError, match="model.safetensors holds .* bytes, but its header describes"):
        read_folder(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no weights: model.safetensors is missing"):
        read_folder(path)
    (path / "model.safetensors").write_bytes(whole)
    for name in Tokenizer.load(path).files():
        (path / name).unlink()
    with pytest.raises(InputError, match="neither tokenizer.json nor vocab.txt"):
        read_folder(path)
