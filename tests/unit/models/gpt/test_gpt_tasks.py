"""Folders of a GPT that a task is put on: new rows, what is saved and found again, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qkv.cli.info import info
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.encoder import WithHeads
from qkv.models.family import FILLS, HAS_TASK, TAKES_HEAD, WRITES, Head, Loading, Saving, TakesHead
from qkv.models.gpt.encoder import GPTWithHeads
from qkv.models.gpt.folder import add_rows, save_with_heads
from qkv.models.gpt.tokenizer import TaskTokenizer
from qkv.models.table import describe_model, open_model
from tests.support.folders import randomise
from tests.support.gpt_folders import VOCABULARIES, load_gpt, make_gpt

CLASSES = {
    ("wordpiece", "sequence"): "GPT2ForSequenceClassification",
    ("wordpiece", "token"): "GPT2ForTokenClassification",
    ("gpt2", "span"): "GPT2ForQuestionAnswering",
    ("gpt2", "choice"): "GPT2DoubleHeadsModel",
    ("gpt", "sequence"): "OpenAIGPTForSequenceClassification",
    ("gpt", "choice"): "OpenAIGPTDoubleHeadsModel",
    ("gpt", "token"): "OpenAIGPTModel",
}


def begun(folder: Path) -> tuple[TakesHead, GPTWithHeads, TaskTokenizer]:
    takes = open_model(folder).ability(TAKES_HEAD)
    assert isinstance(takes.network, GPTWithHeads) and isinstance(takes.tokenizer, TaskTokenizer)
    return takes, takes.network, takes.tokenizer


def fine_tuned(folder: Path, vocabulary: str = "wordpiece", head: str = "sequence", **changes: Any) -> WithHeads:
    """Saved, as if a run had trained it."""
    takes, _, _ = begun(make_gpt(folder / "gpt", vocabulary, **changes))
    network, _ = takes.with_head(Head(head, 3, seed=0))
    randomise(network)
    labels = ("a", "b", "猫") if head in ("sequence", "token") else ()
    takes.save(folder / "task", network, Saving(labels, {"task": "classify"}, "single_label_classification"))
    return network


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_new_tokens_get_rows_and_the_rest_stays(tmp_path: Path, vocabulary: str) -> None:
    folder = make_gpt(tmp_path / "gpt", vocabulary)
    before, (_, network, tokenizer) = load_gpt(folder), begun(folder)
    old, new = before.config.vocabulary_size, len(tokenizer.added)
    assert network.config.vocabulary_size == old + new and network.config.words == old
    table = network.encoder.embedding.token.weight
    assert torch.equal(table[:old], before.model.embedding.weight)
    assert table[old:].abs().sum(1).all() and len({tuple(row) for row in table[old:].tolist()}) == new
    assert torch.equal(table, begun(folder)[1].encoder.embedding.token.weight)  # drawn alike every time
    batch = Batch.of([[5, 6, 7], [8]])
    torch.testing.assert_close(
        network.encoder(**batch.inputs()).hidden, before.model(batch.ids, batch.packing), rtol=0, atol=1e-6
    )


def test_spare_rows_are_used_and_drawn_anew() -> None:
    table = torch.ones(6, 3)
    found = add_rows(table, 6, (4, 5), 0.02)
    assert torch.equal(found[:4], table[:4]) and found[4:].abs().max() < 0.2 and found[4:].abs().min() > 0
    assert torch.equal(table, torch.ones(6, 3))


def test_a_table_that_scores_words_grows_too(tmp_path: Path) -> None:
    _, network, tokenizer = begun(make_gpt(tmp_path / "gpt", tied=False))
    assert network.encoder.table is not None
    assert len(network.encoder.table.weight) == tokenizer.size
    _, saved, _ = begun(save_with_heads(tmp_path / "saved", network, tokenizer))
    assert saved.encoder.table is not None
    assert torch.equal(saved.encoder.table.weight, network.encoder.table.weight)


@pytest.mark.parametrize(("vocabulary", "head"), CLASSES)
def test_what_is_saved_comes_back(tmp_path: Path, vocabulary: str, head: str) -> None:
    saved = fine_tuned(tmp_path, vocabulary, head)
    config = json.loads((tmp_path / "task" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [CLASSES[vocabulary, head]]
    found, (_, _, tokenizer) = open_model(tmp_path / "task"), begun(tmp_path / "gpt")
    assert found.labels == (("a", "b", "猫") if head in ("sequence", "token") else ())
    assert found.record == {"task": "classify"} and found.facts.heads == (head,)
    assert found.tokenizer.added == () and found.tokenizer.marks == tokenizer.marks
    network = found.ability(HAS_TASK).network
    assert network.config == saved.config and list(network.heads) == [head]
    for name, value in saved.state_dict().items():
        assert torch.equal(network.state_dict()[name], value), name
    again = found.save(tmp_path / "again")
    for name in ("config.json", "tokenizer.json", "model.safetensors", "qkv.json"):
        assert (again / name).read_bytes() == (tmp_path / "task" / name).read_bytes(), name


def test_half_precision(tmp_path: Path) -> None:
    fine_tuned(tmp_path)
    network = open_model(tmp_path / "task", Loading(torch.bfloat16)).ability(HAS_TASK).network
    assert {parameter.dtype for parameter in network.parameters()} == {torch.bfloat16}


def test_sizes_are_known_before_the_weights(tmp_path: Path) -> None:
    sizes = describe_model(make_gpt(tmp_path / "gpt")).sizes
    assert sizes is not None and (sizes.layers, sizes.width, sizes.pairs) == (2, 32, True)


def test_what_it_is_and_what_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine_tuned(tmp_path)
    info(str(tmp_path / "task"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "qkv predict" in shown and "a, b, 猫" in shown and "sequence" in shown
    card = (tmp_path / "task" / "README.md").read_text(encoding="utf-8")
    assert "qkv predict" in card and "`猫`" in card


def test_what_is_refused(tmp_path: Path) -> None:
    fine_tuned(tmp_path)
    with pytest.raises(InputError, match="cannot write.*made for a task.*qkv predict"):
        open_model(tmp_path / "task").ability(WRITES)
    with pytest.raises(InputError, match="holds a GPT, which writes on from a text"):
        open_model(tmp_path / "gpt").ability(FILLS)
    with pytest.raises(InputError, match="is a GPT as it was trained: copy its folder"):
        open_model(tmp_path / "gpt").save(tmp_path / "other")
    with pytest.raises(InputError, match="cannot be saved as GPT2ForQuestionAnswering"):
        open_model(tmp_path / "task").save(tmp_path / "other", "GPT2ForQuestionAnswering")
    # others' classifier: a head, and no marks
    weights = tmp_path / "gpt" / "model.safetensors"
    head = {"score.weight": load_file(tmp_path / "task" / "model.safetensors")["score.weight"]}
    save_file(load_file(weights) | head, weights)
    with pytest.raises(InputError, match="was not fine-tuned by qkv"):
        open_model(tmp_path / "gpt")
    config = tmp_path / "task" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"2": "猫"', '"2": "猫", "3": "x"'), encoding="utf-8")
    with pytest.raises(InputError, match="names 4 labels, and the head has 3 outputs"):
        open_model(tmp_path / "task")
