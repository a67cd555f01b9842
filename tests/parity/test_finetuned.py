"""A fine-tuned folder in transformers: the same scores, the right labels, and its own pipeline runs on it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)

from qkv.api.model import load
from qkv.data.labelled.examples import AnswerExample, ChoiceExample, TagExample, TextExample
from qkv.errors import InputError
from qkv.jobs.finetune import run
from qkv.jobs.finetune.settings import resolve_finetune_settings
from qkv.train.log import Silent
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT, PAIR = "the cat owes me money", "the dog sat on the mat"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel")


def trained(tmp_path: Path, pretrained: Path, task: str, file: Path) -> Path:
    given = {"data.train": str(file), "epochs": 1.0, "train.lr": 1e-3, "train.threads": 1}
    run.FINETUNING.start(
        resolve_finetune_settings(task, str(pretrained), "full", None, given), tmp_path / "run", Silent()
    )
    return tmp_path / "run" / "model"


def scores(folder: Path, example: Any) -> np.ndarray:
    """(R, L) or (N, L) of qkv."""
    solver = load(folder).solver
    return solver.scores(solver.features([example]))


def theirs(kind: Any, folder: Path, *texts: Any) -> Any:
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    tokens = AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
    with torch.inference_mode():
        return model.eval(), tokens


def test_texts(tmp_path: Path, pretrained: Path) -> None:
    folder = trained(tmp_path, pretrained, "classify", sets.write_texts(tmp_path / "data.csv"))
    model, tokens = theirs(AutoModelForSequenceClassification, folder, TEXT)
    ours = scores(folder, TextExample(TEXT))
    np.testing.assert_allclose(ours, model(**tokens).logits.detach().numpy(), atol=1e-5)
    assert model.config.id2label == {0: "animal", 1: "place"}
    (found,) = pipeline("text-classification", model=str(folder), device="cpu")([TEXT])
    probability = torch.tensor(ours).softmax(-1).max().item()
    assert found["label"] == load(folder).predict(TEXT)[0].label
    assert found["score"] == pytest.approx(probability, abs=1e-5)


def test_tags(tmp_path: Path, pretrained: Path) -> None:
    folder = trained(tmp_path, pretrained, "tag", sets.write_tagged(tmp_path / "data.jsonl"))
    model, tokens = theirs(AutoModelForTokenClassification, folder, TEXT)
    np.testing.assert_allclose(scores(folder, TagExample(TEXT)), model(**tokens).logits[0].detach().numpy(), atol=1e-5)
    assert set(model.config.id2label.values()) == {"O", "B-ANI", "I-ANI", "B-LOC", "I-LOC"}
    pipeline("token-classification", model=str(folder), device="cpu")([TEXT])


def test_answers(tmp_path: Path, pretrained: Path) -> None:
    folder = trained(tmp_path, pretrained, "answer", sets.write_asked(tmp_path / "data.json"))
    model, tokens = theirs(AutoModelForQuestionAnswering, folder, "he sat", PAIR)
    found = model(**tokens)
    both = torch.stack([found.start_logits[0], found.end_logits[0]], -1).detach().numpy()
    np.testing.assert_allclose(scores(folder, AnswerExample("he sat", PAIR)), both, atol=1e-5)


def test_choices(tmp_path: Path, pretrained: Path) -> None:
    folder = trained(tmp_path, pretrained, "choice", sets.write_chosen(tmp_path / "data.jsonl"))
    choices = ("cat", "dog mat")
    model, _ = theirs(AutoModelForMultipleChoice, folder, TEXT)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = tokenizer([TEXT] * 2, [f"it {choice}" for choice in choices], return_tensors="pt", padding=True)
    found = model(**{name: value[None] for name, value in rows.items()}).logits[0].detach().numpy()
    ours = scores(folder, ChoiceExample(TEXT, "it", choices))[:, 0]
    np.testing.assert_allclose(ours, found, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "labels"),
    [
        ("BertForSequenceClassification", ("bad", "good")),
        ("BertForTokenClassification", ("O", "B-PER", "I-PER")),
        ("BertForQuestionAnswering", ()),
        ("BertForMultipleChoice", ()),
    ],
)
def test_folders_that_others_fine_tuned_predict_here(
    tmp_path: Path, architecture: str, labels: tuple[str, ...]
) -> None:
    model = load(make_folder(tmp_path / "theirs", architecture, labels=labels))
    example: Any = {
        "BertForQuestionAnswering": ("he sat", PAIR),
        "BertForMultipleChoice": {"text": TEXT, "question": "it", "choices": ["cat", "dog"]},
    }.get(architecture, TEXT)
    (found,) = model.predict([example])
    assert found.n_windows == 1
    if architecture == "BertForSequenceClassification":
        assert set(found.probabilities) == {"bad", "good"}


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (("LABEL_0",), "regression"),
        (("LABEL_0",), None),  # transformers' own rule: one output is a number
        (("x", "y", "z"), "multi_label_classification"),
        (("x", "y"), "single_label_classification"),
    ],
)
@pytest.mark.parametrize("pair", [None, PAIR])
def test_what_a_classifier_of_others_is_for_stands_in_its_config(
    tmp_path: Path, labels: tuple[str, ...], problem: str | None, pair: str | None
) -> None:
    """transformers writes the folder; it says the kind, and not whether the model reads pairs."""
    plain = make_folder(tmp_path / "plain", "BertForSequenceClassification", labels=labels)
    model = AutoModelForSequenceClassification.from_pretrained(plain).eval()
    model.config.problem_type = problem
    model.save_pretrained(tmp_path / "theirs")
    tokenizer = AutoTokenizer.from_pretrained(plain)
    tokenizer.save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "qkv.json").exists()
    with torch.inference_mode():
        (wanted,) = model(**tokenizer(*[TEXT, *([pair] if pair else [])], return_tensors="pt")).logits.double()
    found = load(tmp_path / "theirs").predict([TextExample(TEXT, pair)])[0]
    if len(labels) == 1:
        assert found.value == pytest.approx(wanted.item(), abs=1e-5)
        return
    several = problem == "multi_label_classification"
    probabilities = (wanted.sigmoid() if several else wanted.softmax(-1)).tolist()
    assert [found.probabilities[label] for label in labels] == pytest.approx(probabilities, abs=1e-5)
    if several:
        assert set(found.labels) == {label for label, given in zip(labels, probabilities, strict=True) if given >= 0.5}


def test_texts_and_pairs_are_not_mixed_in_one_call(tmp_path: Path) -> None:
    model = load(make_folder(tmp_path / "theirs", "BertForSequenceClassification", labels=("x", "y")))
    with pytest.raises(InputError, match="Text 2: here is a pair, and before it one text"):
        model.predict([TextExample(TEXT), TextExample(TEXT, PAIR)])


def test_several_numbers_at_a_time_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "theirs", "BertForSequenceClassification", labels=("x", "y"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"problem_type": "regression"}), encoding="utf-8")
    with pytest.raises(InputError, match="regression with 2 numbers"):
        load(folder).predict([TEXT])
