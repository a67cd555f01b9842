"""Folders of a GPT that a task is put on: new rows, what is saved and found again, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from qkv.cli.info import info
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.gpt import folder as gpt2
from qkv.models.gpt.encoder import GPTWithHeads
from qkv.models.gpt.task_folder import GPTFolder, open_gpt, save_gpt, shape_of_gpt, with_rows
from qkv.models.plain.folder import open_model, open_start, shape_of
from tests.support.folders import make_folder, randomise
from tests.support.gpt_folders import VOCABULARIES, make_gpt

CLASSES = {
    ("wordpiece", "sequence"): "GPT2ForSequenceClassification",
    ("wordpiece", "token"): "GPT2ForTokenClassification",
    ("gpt2", "span"): "GPT2ForQuestionAnswering",
    ("gpt2", "choice"): "GPT2DoubleHeadsModel",
    ("gpt", "sequence"): "OpenAIGPTForSequenceClassification",
    ("gpt", "choice"): "OpenAIGPTDoubleHeadsModel",
    ("gpt", "token"): "OpenAIGPTModel",
}


def fine_tuned(folder: Path, vocabulary: str = "wordpiece", head: str = "sequence", **changes: Any) -> GPTFolder:
    """Saved, as if a run had trained it."""
    begun = open_gpt(make_gpt(folder / "gpt", vocabulary, **changes))
    model = GPTWithHeads(begun.config, [head], labels=3)
    randomise(model)
    labels = ("a", "b", "猫") if head in ("sequence", "token") else ()
    save_gpt(folder / "task", model, begun.tokenizer, labels, {"task": "classify"}, "single_label_classification")
    return GPTFolder(model.eval(), begun.tokenizer, begun.config, labels, folder / "task")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_new_tokens_get_rows_and_the_rest_stays(tmp_path: Path, vocabulary: str) -> None:
    folder = make_gpt(tmp_path / "gpt", vocabulary)
    before, opened = gpt2.load(folder), open_gpt(folder)
    old, new = before.config.vocabulary_size, len(opened.tokenizer.added)
    assert opened.config.vocabulary_size == old + new and opened.config.words == old
    table = opened.model.encoder.embedding.token.weight
    assert torch.equal(table[:old], before.model.embedding.weight)
    assert table[old:].abs().sum(1).all() and len({tuple(row) for row in table[old:].tolist()}) == new
    assert torch.equal(table, open_gpt(folder).model.encoder.embedding.token.weight)  # drawn alike every time
    batch = Batch.of([[5, 6, 7], [8]])
    torch.testing.assert_close(
        opened.model.encoder(**batch.inputs()).hidden, before.model(batch.ids, batch.packing), rtol=0, atol=1e-6
    )


def test_spare_rows_are_used_and_drawn_anew() -> None:
    table = torch.ones(6, 3)
    found = with_rows(table, 6, (4, 5), 0.02)
    assert torch.equal(found[:4], table[:4]) and found[4:].abs().max() < 0.2 and found[4:].abs().min() > 0
    assert torch.equal(table, torch.ones(6, 3))


def test_a_table_that_scores_words_grows_too(tmp_path: Path) -> None:
    opened = open_gpt(make_gpt(tmp_path / "gpt", tied=False))
    assert opened.model.encoder.table is not None
    assert len(opened.model.encoder.table.weight) == opened.tokenizer.size
    saved = open_gpt(save_gpt(tmp_path / "saved", opened.model, opened.tokenizer))
    assert saved.model.encoder.table is not None
    assert torch.equal(saved.model.encoder.table.weight, opened.model.encoder.table.weight)


@pytest.mark.parametrize(("vocabulary", "head"), CLASSES)
def test_what_is_saved_comes_back(tmp_path: Path, vocabulary: str, head: str) -> None:
    saved = fine_tuned(tmp_path, vocabulary, head)
    config = json.loads((tmp_path / "task" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [CLASSES[vocabulary, head]]
    found = open_model(tmp_path / "task")
    assert isinstance(found, GPTFolder)
    assert found.labels == saved.labels and found.record == {"task": "classify"}
    assert found.tokenizer.added == () and found.tokenizer.marks == saved.tokenizer.marks
    assert found.config == saved.config and list(found.model.heads) == [head]
    for name, value in saved.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), name
    again = found.save(tmp_path / "again")
    for name in ("config.json", "tokenizer.json", "model.safetensors", "qkv.json"):
        assert (again / name).read_bytes() == (tmp_path / "task" / name).read_bytes(), name


def test_half_precision(tmp_path: Path) -> None:
    fine_tuned(tmp_path)
    model = open_model(tmp_path / "task", dtype=torch.bfloat16).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_sizes_without_weights(tmp_path: Path) -> None:
    folder = make_gpt(tmp_path / "gpt")
    (folder / "model.safetensors").unlink()
    shape = shape_of(folder)
    assert shape == shape_of_gpt(folder) and shape.layers == 2 and shape.width == 32


def test_what_it_is_and_what_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine_tuned(tmp_path)
    info(str(tmp_path / "task"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "qkv predict" in shown and "a, b, 猫" in shown and "sequence" in shown
    card = (tmp_path / "task" / "README.md").read_text(encoding="utf-8")
    assert "qkv predict" in card and "`猫`" in card
    assert isinstance(open_start(tmp_path / "gpt"), GPTFolder)
    assert not isinstance(open_start(make_folder(tmp_path / "bert")), GPTFolder)


def test_what_is_refused(tmp_path: Path) -> None:
    fine_tuned(tmp_path)
    with pytest.raises(InputError, match="made for a task.*qkv predict"):
        gpt2.load(tmp_path / "task")
    with pytest.raises(InputError, match="holds a GPT, which writes on from a text"):
        open_model(tmp_path / "gpt")
    with pytest.raises(InputError, match="cannot be saved as GPT2ForQuestionAnswering"):
        open_model(tmp_path / "task").save(tmp_path / "other", "GPT2ForQuestionAnswering")
    # others' classifier: a head, and no marks
    network = gpt2.load(tmp_path / "gpt")
    heads = {"score.weight": load_file(tmp_path / "task" / "model.safetensors")["score.weight"]}
    gpt2.save(tmp_path / "theirs", network.model, network.tokenizer, heads=heads)
    with pytest.raises(InputError, match="was not fine-tuned by qkv"):
        open_model(tmp_path / "theirs")
    config = tmp_path / "task" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"2": "猫"', '"2": "猫", "3": "x"'), encoding="utf-8")
    with pytest.raises(InputError, match="names 4 labels, and the head has 3 outputs"):
        open_model(tmp_path / "task")
