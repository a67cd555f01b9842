"""The one door to every question: names, models, keys, and weights that are loaded once."""

import inspect
import json
import threading
from pathlib import Path

import pytest

from qkv.look.api import ANSWER_FUNCTIONS, Api, UnknownQuestionError
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from tests.support.folders import make_folder


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    work = tmp_path_factory.mktemp("models")
    return [open_subject(make_folder(work / name)) for name in ("one", "two")]


def titled(subject: Subject, asked: Asked) -> Reply:
    text = asked.maybe_text("text")
    asked.done()
    return Reply({"title": subject.title, "text": text})


def test_which_model_is_asked(subjects: list[Subject]) -> None:
    api = Api(subjects, {"titled": titled}, {})
    for fields, title in (({}, "one"), ({"model": 0}, "one"), ({"model": 1}, "two"), ({"model": None}, "one")):
        assert Reply.from_bytes(api.ask("titled", fields)).head["title"] == title
    for wrong in (2, -1, "0", True, 1.0):
        with pytest.raises(RefusalError) as caught:
            api.ask("titled", {"model": wrong})
        assert caught.value.about["field"] == "model"


def test_what_is_null_was_not_asked(subjects: list[Subject]) -> None:
    api = Api(subjects, {"titled": titled}, {})
    assert api.ask("titled", {"text": None, "other": None}) == api.ask("titled", {})


def test_a_name_that_is_nothing(subjects: list[Subject]) -> None:
    with pytest.raises(UnknownQuestionError, match="Did you mean 'titled'"):
        Api(subjects, {"titled": titled}, {}).ask("tilted", {})


def test_the_first_to_ask_is_alone(subjects: list[Subject]) -> None:
    """It loads the weights; whoever comes meanwhile waits for them."""
    inside: list[int] = []
    others, begun = threading.Event(), threading.Event()

    def loads(subject: Subject, asked: Asked) -> Reply:
        inside.append(1)
        if len(inside) == 1:
            begun.set()
            others.wait(0.2)
            inside.append(2)
        return Reply({})

    api = Api(subjects, {"loads": loads}, {})
    threads = [threading.Thread(target=lambda: api.ask("loads", {})) for _ in range(4)]
    threads[0].start()
    assert begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == [1, 2, 1, 1, 1]


def test_a_refusal_leaves_the_door_open(subjects: list[Subject]) -> None:
    def refuses(subject: Subject, asked: Asked) -> Reply:
        raise RefusalError("no", "No.")

    api = Api(subjects, {"refuses": refuses, "titled": titled}, {})
    for _ in range(2):
        with pytest.raises(RefusalError):
            api.ask("refuses", {})
    assert api.ask("titled", {})


def test_every_answer_is_a_function_of_a_subject_and_what_is_asked() -> None:
    names = "attention steps inputs fill next_sentence meanings positions order neighbours analogy word_map"
    names += " translate beam_steps states next_words task"
    assert set(ANSWER_FUNCTIONS) == set(names.split())
    for name, answer in ANSWER_FUNCTIONS.items():
        assert list(inspect.signature(answer).parameters) == ["subject", "asked"], name


def test_real_answers(tmp_path: Path) -> None:
    api = Api([open_subject(make_folder(tmp_path / "model"))])
    room = api.room()
    assert json.loads(json.dumps(room)) == room and set(room["examples"]) <= set(room["subjects"][0]["views"]) | {
        "next",
        "translation",
        "vectors",
        "tasks",
        "recurrence",
    }
    reply = Reply.from_bytes(api.ask("attention", {"text": "the cat sat", "kind": "self"}))
    assert reply.arrays["small"].shape == (2, 4, 5, 5)
    with pytest.raises(RefusalError):
        api.ask("attention", {"text": ""})
    with pytest.raises(RefusalError):
        api.ask("translate", {"text": "the cat", "beams": 4})
