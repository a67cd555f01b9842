"""What a fine-tuned model says and weighs, against `Model.predict` and sums by hand, and what it is not asked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.data.labelled.examples import AnswerExample
from qkv.errors import InputError
from qkv.look.examples import EXAMPLES
from qkv.look.predictions import run_task
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from tests.support.folders import make_folder
from tests.support.inside_folders import reader, rnnlm, translator
from tests.support.task_folders import task_folder

TEXT = "the cat sat on the mat, 他欠我100万 in paris."
QUESTION = "who sat on the mat?"


def subject_of(folder: Path, name: str, calibration: dict[str, Any] | None = None, **record: Any) -> Subject:
    """A tiny folder for a task; `calibration` is put into it as `qkv finetune` would."""
    task_folder(folder, name, **record)
    if calibration is not None:
        file = folder / "qkv.json"
        document = json.loads(file.read_text(encoding="utf-8"))
        document["record"]["calibration"] = calibration
        file.write_text(json.dumps(document), encoding="utf-8")
    return open_subject(folder)


def asked(subject: Subject, **fields: object) -> Reply:
    reply = run_task(subject, Asked(fields))
    assert Reply.from_bytes(reply.to_bytes()).head == reply.head
    return reply


def refused(subject: Subject, **fields: object) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        run_task(subject, Asked(fields))
    return caught.value


def softmax(scores: Any) -> Any:
    weights = np.exp(np.asarray(scores, np.float64) - np.max(scores))
    return weights / weights.sum()


@pytest.fixture(scope="module")
def answerer(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(tmp_path_factory.mktemp("answer") / "tiny", "answer", {"temperature": 1.7})


def test_classes_are_the_softmax_of_their_scores_at_the_saved_temperature(tmp_path: Path) -> None:
    calibration = {"temperature": 2.5, "abstain_below": 0.99}
    subject = subject_of(tmp_path / "tiny", "classify", calibration, labels=("bad", "好评", "so so"))
    reply = asked(subject, text=TEXT)
    (said,) = subject.model.predict(TEXT)
    assert [(one["label"], one["said"]) for one in reply.head["classes"]] == [
        (label, label == said.label) for label in said.probabilities
    ]
    np.testing.assert_allclose(reply.arrays["probabilities"], list(said.probabilities.values()), atol=1e-6)
    np.testing.assert_allclose(reply.arrays["probabilities"], softmax(reply.arrays["scores"] / 2.5), atol=1e-6)
    assert reply.head["abstained"] and reply.head["calibration"]["abstain_below"] == 0.99
    assert reply.head["n_tokens"] == said.n_tokens


def test_several_labels_and_their_thresholds(tmp_path: Path) -> None:
    calibration = {"temperature": 1.0, "thresholds": {"animal": 0.001, "place": 0.999}}
    subject = subject_of(tmp_path / "tiny", "classify", calibration, kind="multi")
    reply = asked(subject, text=TEXT)
    assert {one["label"]: one["said"] for one in reply.head["classes"]} == {"animal": True, "place": False}
    np.testing.assert_allclose(
        reply.arrays["probabilities"], 1 / (1 + np.exp(-reply.arrays["scores"].astype(np.float64))), atol=1e-6
    )
    assert reply.head["calibration"]["thresholds"] == calibration["thresholds"]


def test_a_number(tmp_path: Path) -> None:
    subject = subject_of(tmp_path / "tiny", "classify", kind="regression", mean=3.0, deviation=2.0)
    reply = asked(subject, text=TEXT)
    assert reply.head["value"] == pytest.approx(subject.model.predict(TEXT)[0].value, abs=1e-5)
    assert reply.head["value"] == pytest.approx(reply.arrays["scores"][0] * 2 + 3, abs=1e-4)


def test_one_text_or_two(tmp_path: Path) -> None:
    single = subject_of(tmp_path / "single", "classify")
    paired = subject_of(tmp_path / "paired", "classify", paired=True)
    assert refused(single, text=TEXT, pair="a dog").code == "no_pair"
    assert refused(paired, text=TEXT).code == "needs_pair"
    said = paired.model.predict((TEXT, "a dog"))[0]
    assert asked(paired, text=TEXT, pair="a dog").head["classes"][0]["label"] == said.label


@pytest.mark.parametrize("crf", [False, True])
def test_entities_are_spans_of_the_characters(tmp_path: Path, crf: bool) -> None:
    calibration = {"temperature": 1.3, "abstain_below": 0.55}
    subject = subject_of(tmp_path / "tiny", "tag", calibration, seed=4, settings={"crf": crf})
    reply = asked(subject, text=TEXT)
    (said,) = subject.model.predict(TEXT)
    assert reply.head["labels"] == ["ANI", "LOC"]
    assert len(reply.head["entities"]) == len(said.entities) > 0
    for found, entity in zip(reply.head["entities"], said.entities, strict=True):
        assert TEXT[found["start"] : found["end"]] == found["text"] == entity.text
        assert found["probability"] == pytest.approx(entity.probability, abs=1e-6)
        assert found["abstained"] == (entity.probability < 0.55)


def test_starts_and_ends_under_every_token_of_a_passage(answerer: Subject) -> None:
    reply = asked(answerer, text=TEXT, question=QUESTION)
    model = answerer.model
    row = model.tokenizer.encode(QUESTION, TEXT)
    mine = [place for place, (a, b) in enumerate(row.offsets) if row.segments[place] == 1 and a < b]
    assert reply.arrays["tokens"].tolist() == [list(row.offsets[place]) for place in mine]
    scores = model.solver.scores(model.solver.features([AnswerExample(QUESTION, TEXT)]))  # (tokens of the row, 2)
    for side, name in enumerate(("start", "end")):
        chances = softmax(scores[[0, *mine], side] / 1.7)
        np.testing.assert_allclose(reply.arrays[name], chances[1:], atol=1e-6)
        assert reply.head["nothing"][name] == pytest.approx(chances[0], abs=1e-5)


def test_the_answer_is_what_predict_says(answerer: Subject) -> None:
    head = asked(answerer, text=TEXT, question=QUESTION).head
    (said,) = answerer.model.predict((QUESTION, TEXT))
    assert (head["answer"]["text"], head["answer"]["start"]) == (said.text, said.start)
    assert head["nothing"]["probability"] == pytest.approx(said.no_answer_probability, abs=1e-6)
    assert [TEXT[one["start"] : one["end"]] for one in head["spans"]] == [one.text for one in said.n_best[:8]]


def test_without_windows_and_limits_a_span_is_the_product_of_its_ends(tmp_path: Path) -> None:
    settings = {"no_answer": "no", "n_best": 2000, "max_answer_tokens": 200}
    subject = subject_of(tmp_path / "tiny", "answer", {"temperature": 0.6}, settings=settings)
    reply = asked(subject, text=TEXT, question=QUESTION)
    assert reply.head["nothing"] is None
    assert reply.arrays["start"].sum() == pytest.approx(1) and reply.arrays["end"].sum() == pytest.approx(1)
    starts, ends = (dict(zip(reply.arrays["tokens"][:, side], p, strict=True)) for side, p in _sides(reply))
    first, second = reply.head["spans"][:2]
    by_hand = [starts[one["start"]] * ends[one["end"]] for one in (first, second)]
    # spans that would run backwards are none, so the shares alone agree
    assert first["probability"] / second["probability"] == pytest.approx(by_hand[0] / by_hand[1], rel=1e-3)


def _sides(reply: Reply) -> list[tuple[int, Any]]:
    return [(0, reply.arrays["start"]), (1, reply.arrays["end"])]


def test_a_passage_of_many_windows(answerer: Subject) -> None:
    passage = " ".join([TEXT] * 9)
    reply = asked(answerer, text=passage, question=QUESTION)
    assert reply.head["n_windows"] > 3
    tokens = reply.arrays["tokens"]
    assert len(tokens) == len(reply.arrays["start"]) == len(reply.arrays["end"])
    assert passage[slice(*tokens[-2])] == "paris", "the last token but the full stop"
    for name in ("start", "end"):
        assert reply.arrays[name].sum() + reply.head["nothing"][name] == pytest.approx(1, abs=1e-5)
        assert np.isfinite(reply.arrays[name]).all()


def test_choices(tmp_path: Path) -> None:
    subject = subject_of(tmp_path / "tiny", "choice", {"temperature": 2.0})
    choices = ["a cat", "paris", "北京"]
    reply = asked(subject, text=TEXT, question=QUESTION, choices=choices)
    (said,) = subject.model.predict({"text": TEXT, "question": QUESTION, "choices": choices})
    assert [one["text"] for one in reply.head["choices"]] == choices
    assert [one["said"] for one in reply.head["choices"]].index(True) == said.choice
    np.testing.assert_allclose(reply.arrays["probabilities"], said.probabilities, atol=1e-6)
    np.testing.assert_allclose(reply.arrays["probabilities"], softmax(reply.arrays["scores"] / 2), atol=1e-6)
    assert refused(subject, text=TEXT, choices=["a cat"]).code == "few_choices"
    assert refused(subject, text=TEXT, choices=["a cat"] * 27).about == {"field": "choices", "most": 26}
    assert refused(subject, choices=choices).code == "empty"


def test_readers_answer_too(tmp_path: Path) -> None:
    reply = asked(reader(tmp_path / "lstm", "lstm"), text="the cat sat on the mat.")
    assert {one["label"] for one in reply.head["classes"]} == {"no", "yes"}


def test_models_without_a_task_say_what_they_can_show(tmp_path: Path) -> None:
    made = (
        open_subject(make_folder(tmp_path / "bert")),
        rnnlm(tmp_path / "rnnlm", "lstm"),
        translator(tmp_path / "translator", "transformer"),
    )
    for subject, view in zip(made, ("fill", "recurrence", "translation"), strict=True):
        error = refused(subject, text=TEXT)
        assert error.code == "no_task" and error.about["kind"] == subject.kind
        assert view in str(error) and view in str(error.about["views"]) and "qkv finetune" in str(error)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": TEXT}, "missing"),
        ({"text": " ", "question": QUESTION}, "empty"),
        ({"text": "\u200b\u200b", "question": QUESTION}, "empty"),
        ({"text": TEXT, "question": QUESTION, "pair": "a"}, "field"),
        ({"text": "a" * 100_001, "question": QUESTION}, "too_long"),
    ],
)
def test_what_is_no_question(answerer: Subject, fields: dict[str, object], code: str) -> None:
    assert refused(answerer, **fields).code == code


def test_a_question_that_leaves_no_room_is_told(answerer: Subject) -> None:
    with pytest.raises(InputError, match="leave room for the text"):
        run_task(answerer, Asked({"text": TEXT, "question": "the cat " * 40}))


def test_the_examples_are_questions_for_a_reader(answerer: Subject) -> None:
    given = [one["set"]["tasks"] for one in EXAMPLES["tasks"] if "tasks" in one["set"]]
    questions = [one for one in given if "choices" not in one]
    assert len(questions) == 6
    for one in questions[::3]:
        assert asked(answerer, text=one["passage"], question=one["question"]).arrays["start"].size > 100
