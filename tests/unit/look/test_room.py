"""What there is to look at, by kind and by what a folder says, without loading a weight."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from qkv.errors import InputError
from qkv.look.subject import VIEWS, Subject, describe_models, describe_subject, open_subject
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm
from tests.support.folders import TOKENS, make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import reader, translator
from tests.support.task_folders import task_folder
from tests.support.word_vectors import make_vectors_folder, small


def views(subject: Subject) -> str:
    return " ".join(describe_subject(subject)["views"])


def test_views_by_kind(tmp_path: Path) -> None:
    small().save(tmp_path / "small.vec")
    expected = {
        make_folder(tmp_path / "bert"): "attention fill meanings positions",
        make_gpt(tmp_path / "gpt"): "attention next meanings positions",
        translator(tmp_path / "transformer", "transformer").path: "attention meanings positions translation",
        translator(tmp_path / "seq2seq", "seq2seq").path: "attention positions translation recurrence",
        translator(tmp_path / "fixed", "seq2seq", context="fixed").path: "positions translation recurrence",
        make_elmo(tmp_path / "elmo"): "next meanings positions recurrence",
        make_rnnlm(tmp_path / "rnnlm"): "next meanings positions recurrence",
        make_nnlm(tmp_path / "nnlm"): "next meanings positions vectors",
        make_vectors_folder(tmp_path / "word2vec"): "meanings positions vectors",
        tmp_path / "small.vec": "meanings positions vectors",
        reader(tmp_path / "lstm", "lstm").path: "meanings positions tasks recurrence",
        reader(tmp_path / "cnn", "textcnn", layers=1).path: "meanings positions tasks",
    }
    assert {path: views(open_subject(path)) for path in expected} == expected
    assert all(set(shown.split()) <= set(VIEWS) for shown in expected.values())


@pytest.mark.parametrize(
    ("architecture", "heads"),
    [
        ("BertForPreTraining", ["masked", "next_sentence"]),
        ("BertForMaskedLM", ["masked"]),
        ("BertForNextSentencePrediction", ["next_sentence"]),
        ("BertModel", []),
    ],
)
def test_blanks_where_a_head_fills_them(tmp_path: Path, architecture: str, heads: list[str]) -> None:
    found = describe_subject(open_subject(make_folder(tmp_path / "model", architecture)))
    assert sorted(found["heads"]) == heads and ("fill" in found["views"]) == bool(heads)
    assert found["task"] is None


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "choice"])
def test_tasks_where_one_was_put_on(tmp_path: Path, task: str) -> None:
    found = describe_subject(open_subject(task_folder(tmp_path / "model", task)))
    assert found["task"] == task and "tasks" in found["views"] and "fill" not in found["views"]
    (tmp_path / "model" / "qkv.json").unlink()  # as others write one
    assert describe_subject(open_subject(tmp_path / "model"))["task"] == task


def test_facts(tmp_path: Path) -> None:
    found = describe_subject(open_subject(make_folder(tmp_path / "bert")))["facts"]
    parameters = found.pop("parameters")
    assert found == {"layers": 2, "heads": 4, "width": 32, "vocabulary": len(TOKENS), "positions": 64}
    assert parameters > len(TOKENS) * 32
    gpt = describe_subject(open_subject(make_gpt(tmp_path / "gpt")))["facts"]
    assert (gpt["layers"], gpt["heads"], gpt["width"], gpt["positions"]) == (2, 4, 32, 64)
    translates = describe_subject(translator(tmp_path / "transformer", "transformer"))["facts"]
    assert (translates["layers"], translates["decoder_layers"], translates["heads"]) == (1, 2, 2)
    recurrent = describe_subject(open_subject(make_rnnlm(tmp_path / "rnnlm")))["facts"]
    assert recurrent["cell"] == "gru" and "positions" not in recurrent
    assert describe_subject(open_subject(make_elmo(tmp_path / "elmo")))["facts"]["cell"] == "lstm"
    assert describe_subject(reader(tmp_path / "cnn", "textcnn", layers=1))["facts"]["reader"] == "textcnn"


def test_the_languages_of_a_translator(tmp_path: Path) -> None:
    subject = translator(tmp_path / "model", "transformer")
    assert "source_language" not in describe_subject(subject)["facts"]
    ours = json.loads((subject.path / "qkv.json").read_text(encoding="utf-8"))
    ours["record"] |= {"source_language": "en", "target_language": "zh"}
    (subject.path / "qkv.json").write_text(json.dumps(ours), encoding="utf-8")
    facts = describe_subject(open_subject(subject.path))["facts"]
    assert (facts["source_language"], facts["target_language"]) == ("en", "zh")


def test_the_room(tmp_path: Path) -> None:
    one, other = open_subject(make_folder(tmp_path / "one")), open_subject(make_vectors_folder(tmp_path / "other"))
    room = describe_models([one, other], {"fill": []})
    assert [(found["index"], found["title"]) for found in room["subjects"]] == [(0, "one"), (1, "other")]
    assert room["examples"] == {"fill": []} and json.loads(json.dumps(room)) == room
    assert not {"model", "vectors"} & (vars(one).keys() | vars(other).keys())  # nothing was loaded


def test_weights_that_are_missing_or_of_another_form(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    facts = describe_subject(open_subject(folder))["facts"]
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights.*model.safetensors"):
        describe_subject(open_subject(folder))
    torch.save(tensors, folder / "pytorch_model.bin")
    assert describe_subject(open_subject(folder))["facts"] == facts


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_weights_that_are_cut_short(tmp_path: Path, keep: int) -> None:
    folder = make_folder(tmp_path / "model")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:keep])
    with pytest.raises(InputError, match="model.safetensors.*damaged"):
        describe_subject(open_subject(folder))
