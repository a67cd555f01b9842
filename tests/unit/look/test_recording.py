"""What a saved page carries: the questions of every view under the page's own keys, the most wanted first."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.look.api import ANSWER_FUNCTIONS, Api
from qkv.look.examples import EXAMPLES
from qkv.look.recording import (
    PageText,
    Recording,
    choose_first,
    choose_heads,
    question_key,
    rank_texts,
    record_answers,
    split_units,
)
from qkv.look.subject import VIEWS, open_subject
from qkv.look.wire import RefusalError, Reply
from tests.support.below_readers import make_elmo
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import translator
from tests.support.task_folders import task_folder
from tests.support.word_vectors import make_vectors_folder

SMALL: dict[str, list[dict[str, Any]]] = {
    "attention": [
        {"lang": "en", "set": {"text": "the cat sat"}},
        {"lang": "en", "set": {"text": "he owes me", "pair": "she owes him"}},
        {"lang": "zh", "set": {"text": "我爱猫"}},
    ],
    "fill": [{"lang": "en", "set": {"text": "paris is the capital", "fill": {"hide": "0-5"}}}],
    "meanings": [{"lang": "en", "set": {"meanings": {"word": "cat", "sentences": ["the cat sat", "a cat is a cat"]}}}],
    "positions": [{"lang": "zh", "set": {"positions": {"text": "他欠我", "other": "我欠他"}}}],
    "translation": [{"lang": "en", "set": {"text": "the dog sat"}}],
    "vectors": [{"lang": "en", "set": {"vectors": {"word": "king", "a": "man", "b": "king", "c": "woman"}}}],
    "tasks": [
        {"lang": "en", "set": {"tasks": {"passage": "the cat sat on the mat", "question": "the cat"}}},
        {"lang": "en", "set": {"tasks": {"passage": "the cat", "question": "it", "choices": ["sat", "is"]}}},
        {"lang": "en", "set": {"text": "the animal was tired"}},
    ],
    "recurrence": [{"lang": "en", "set": {"text": "a dog"}}],
}


def test_keys_are_the_same_on_the_page() -> None:
    """As look/wire.js makes them: JSON.stringify with the names sorted."""
    assert question_key("fill", {"text": '他 "a" \\ \n\u2028', "k": 8}) == (
        'fill {"k":8,"model":0,"text":"他 \\"a\\" \\\\ \\n\u2028"}'
    )
    assert question_key("states", {"model": 2, "way": 0, "pair": None}) == 'states {"model":2,"way":0}'
    assert question_key("meanings", {"sentences": ["a", "b"], "whole": True}) == (
        'meanings {"model":0,"sentences":["a","b"],"whole":true}'
    )


def test_an_answer_is_asked_once_and_a_refusal_is_one() -> None:
    asked: list[str] = []

    def ask(name: str, fields: Mapping[str, Any]) -> bytes:
        asked.append(name)
        if name == "refused":
            raise RefusalError("no_pair", "他 reads single texts.", most=1)
        if name == "unusable":
            raise InputError("damaged")
        return Reply({"n": len(asked)}, {"a": np.ones(3, np.uint8)}).to_bytes()

    made = Recording(ask)
    first = made.keep("fill", text="a", pair=None)
    assert first is not None and made.keep("fill", text="a") is first and made.keep("fill", text="b") is not None
    for name in ("refused", "unusable", "refused", "unusable"):
        assert made.keep(name) is None
    assert asked == ["fill", "fill", "refused", "unusable"] and not made.left_out
    said = {key: base64.b64decode(reply) for key, reply in made.replies.items()}
    assert Reply.from_bytes(said['fill {"model":0,"text":"a"}']).head == {"n": 1}
    assert json.loads(said['refused {"model":0}']) == {
        "code": "no_pair",
        "message": "他 reads single texts.",
        "about": {"most": 1},
    }
    assert json.loads(said['unusable {"model":0}'])["code"] == "input"


def test_what_does_not_fit_is_counted() -> None:
    frame, asked = Reply({"name": "x" * 2000}).to_bytes(), []

    def ask(name: str, fields: Mapping[str, Any]) -> bytes:
        asked.append(fields["k"])
        return frame

    made = Recording(ask, most=3 * len(frame) - 1)
    assert [made.keep("fill", k=k) is not None for k in (0, 1, 2, 2, 0)] == [True, True, False, False, True]
    assert made.left_out == {'fill {"k":2,"model":0}'} and len(made.replies) == 2 and asked == [0, 1, 2]
    made = Recording(ask, most=len(frame) + 9)
    assert [made.keep("fill", k=k) is not None for k in (3, 4, 5)] == [True, False, False]
    assert len(made.left_out) == 2 and asked == [0, 1, 2, 3]  # there is no room for anything: nothing is computed


def test_texts_and_what_comes_first() -> None:
    ranks = {text.text: rank for rank, text in rank_texts("fill", SMALL, None)}
    assert ranks == {
        "the cat sat": 0,  # what a page opens with, in each language
        "我爱猫": 0,
        "paris is the capital": 1,
        "he owes me": 2,
        "the dog sat": 2,
        "a dog": 2,
        "the animal was tired": 2,
    }
    given = PageText("a cat", "a dog")
    found = rank_texts("fill", SMALL, given)
    assert found[0] == (0, given) and all(rank > 0 for rank, _ in found[1:]) and len(found) == 8
    assert PageText("paris is the capital", None, "0-5") in [text for _, text in found]
    assert all(text.hide is None for _, text in rank_texts("attention", SMALL, None))


def test_the_first_examples_alone() -> None:
    first = choose_first(SMALL, None)
    assert [one["set"]["text"] for one in first["attention"]] == ["the cat sat", "he owes me", "我爱猫"]
    assert len(first["tasks"]) == 3  # a question, one with choices, a text
    again = choose_first({view: [*listed, *listed] for view, listed in SMALL.items()}, None)
    assert again == first
    given = choose_first(SMALL, PageText("a cat"))
    assert not (given["attention"] or given["fill"] or given["translation"] or given["recurrence"])
    assert len(given["tasks"]) == 2 and given["meanings"] == SMALL["meanings"]


def test_every_example_or_the_first(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(name: str, fields: Mapping[str, Any]) -> bytes:
        asked.append(f"{name} {fields.get('text', fields.get('word'))}")
        raise RefusalError("no", "No.")

    api = Api(
        [open_subject(make_folder(tmp_path / "model"))], ANSWER_FUNCTIONS, SMALL | {"meanings": 2 * SMALL["meanings"]}
    )
    record_answers(ask, api.room(), PageText("a cat"))
    assert {one for one in asked if one.startswith(("attention", "fill"))} == {"attention a cat", "fill a cat"}
    assert {"meanings cat", "order 他欠我"} <= set(asked)
    record_answers(ask, api.room(), PageText("a cat"), every=True)
    assert {"attention the cat sat", "attention a dog", "fill 我爱猫"} <= set(asked)


@pytest.fixture(scope="module")
def made(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Of a model of every sort, what was asked: names and fields."""
    work = tmp_path_factory.mktemp("models")
    subjects = {
        "bert": open_subject(make_folder(work / "bert")),
        "gpt": open_subject(make_gpt(work / "gpt")),
        "transformer": translator(work / "transformer", "transformer"),
        "seq2seq": translator(work / "seq2seq", "seq2seq"),
        "elmo": open_subject(make_elmo(work / "elmo")),
        "table": open_subject(make_vectors_folder(work / "table")),
        **{task: open_subject(task_folder(work / task, task)) for task in ("classify", "tag", "answer", "choice")},
    }
    api = Api(list(subjects.values()), ANSWER_FUNCTIONS, SMALL)

    def ask(name: str, fields: Mapping[str, Any]) -> bytes:
        if name in ("translate", "beam_steps"):  # what is not looked into, and takes long
            return Reply({}).to_bytes()
        if name != "task" and fields["model"] >= list(subjects).index("classify"):
            raise RefusalError("no", "These are BERTs too.")
        return api.ask(name, fields)

    replies = record_answers(ask, api.room(), PageText("the cat is tired"), every=True).replies
    found: dict[str, set[str]] = {name: set() for name in subjects}
    for key in replies:
        name, _, written = key.partition(" ")
        fields = json.loads(written)
        model = list(subjects)[fields.pop("model")]
        found[model].add(f"{name} {json.dumps(fields, separators=(',', ':'), ensure_ascii=False)}")
    return found


def test_what_every_view_opens_with(made: dict[str, set[str]]) -> None:
    text = '"text":"the cat is tired"'
    wanted = {
        "bert": {
            f'attention {{"kind":"self",{text}}}',
            f'inputs {{"kind":"self",{text}}}',
            f'steps {{"head":3,"kind":"self","layer":1,{text}}}',
            'attention {"kind":"self","pair":"she owes him","text":"he owes me"}',
            f'fill {{"hide":"11-16","k":8,{text}}}',
            'fill {"hide":"0-5","k":8,"text":"paris is the capital"}',
            'next_sentence {"pair":"she owes him","text":"he owes me"}',
            'meanings {"sentences":["the cat sat","a cat is a cat"],"word":"cat"}',
            "positions {}",
            'order {"other":"我欠他","text":"他欠我"}',
        },
        "gpt": {f'attention {{"kind":"causal",{text}}}', f'next_words {{"k":8,{text}}}'},
        "transformer": {
            *(f'attention {{"kind":"{kind}",{text}}}' for kind in ("encoder", "decoder", "cross")),
            *(f'{name} {{"beams":4,{text}}}' for name in ("translate", "beam_steps")),
        },
        "seq2seq": {f'attention {{"kind":"cross",{text}}}', f'states {{{text},"way":1}}'},
        "elmo": {
            *(f'states {{{text},"way":{way}}}' for way in range(4)),
            f'next_words {{"k":8,{text}}}',
            'states {"text":"a dog","way":0}',
        },
        "table": {
            'neighbours {"k":10,"word":"king"}',
            'analogy {"a":"man","b":"king","c":"woman","k":6}',
        },
        "classify": {f"task {{{text}}}", 'task {"text":"the animal was tired"}'},
        "tag": {f"task {{{text}}}"},
        "answer": {'task {"question":"the cat","text":"the cat sat on the mat"}'},
        "choice": {'task {"choices":["sat","is"],"question":"it","text":"the cat"}'},
    }
    for name, keys in wanted.items():
        assert keys <= made[name], keys - made[name]
    assert not any(key.startswith("steps") for key in made["gpt"]), "of many models the first has its steps"
    (chart,) = [key for key in made["table"] if key.startswith("word_map")]
    assert chart.startswith('word_map {"most":500,"script":"letters","words":"king ') and "woman" in chart


def test_what_no_view_asks_is_not_there(made: dict[str, set[str]]) -> None:
    assert not any(key.startswith(("fill", "translate", "states")) for key in made["gpt"])
    assert not any('"choices"' in key for key in made["answer"]) and len(made["elmo"]) < 40
    assert not any(key.startswith("attention") for key in made["elmo"] | made["table"])


def test_the_heads_that_a_page_opens_with() -> None:
    """Four tokens, the last a mark; the first two heads look near, the third far, the fourth at the mark."""
    small = np.zeros((2, 2, 5, 5), np.uint8)
    small[0, 0] = np.eye(5) * 255
    small[0, 1, :, 1] = 200
    small[1, 0, 0, 3] = 180  # far from 0, counts by two thirds; 120 beats 0
    small[1, 1, :, 4] = 255
    small[0, 1, 4, 0] = 90
    right = [{"special": False, "text": text} for text in ("他", "a", ",", "1", "")]
    right[4]["special"] = True
    reply = Reply({"right": right, "left": right, "kind": "self"}, {"small": small})
    # row 0: head 2 (180 · 2/3). Rows 1, 2: nothing but near ones, so the first. Rows 3 and 4: head 1, 200 · 1/3 and 2/3
    assert choose_heads(reply) == [0, 1, 2]
    assert choose_heads(Reply({**reply.head, "kind": "cross"}, {"small": small})) == [0, 1]


@pytest.mark.usefixtures("one_thread")
def test_steps_of_all_heads_and_of_a_few(tmp_path: Path) -> None:
    api = Api([open_subject(make_folder(tmp_path / "model"))], ANSWER_FUNCTIONS, {"attention": SMALL["attention"]})
    replies = record_answers(api.ask, api.room(), PageText("the cat is tired"), every=True).replies
    steps = [json.loads(key.partition(" ")[2])["text"] for key in replies if key.startswith("steps")]
    assert steps.count("the cat is tired") == 8 and 1 <= steps.count("the cat sat") <= 5
    assert sum(key.startswith("inputs") for key in replies) == 4


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("the cat " * 15, 30),
        ("the cat " * 40, 60),
        ("我爱猫" * 30, 60),
        ("the [MASK] sat", 3),  # nothing hidden, and each of two
    ],
)
def test_words_from_both_ends_are_hidden(text: str, hidden: int) -> None:
    """The view begins with one of the last words."""
    room = {
        "subjects": [{"index": 0, "kind": "bert", "views": ["fill"], "heads": ["masked"], "task": None}],
        "examples": {},
    }
    replies = record_answers(lambda name, fields: Reply({}).to_bytes(), room, PageText(text)).replies
    hides = [json.loads(key.partition(" ")[2]).get("hide") for key in replies]
    assert len(hides) == hidden
    start, end = split_units(text)[-1]
    assert f"{start}-{end}" in hides and ("[MASK]" in text) == (None in hides)


@pytest.mark.usefixtures("one_thread")
def test_a_long_text_has_its_layers_and_no_steps(tmp_path: Path) -> None:
    api = Api([open_subject(make_folder(tmp_path / "model", max_length=128))], ANSWER_FUNCTIONS, {})
    replies = record_answers(api.ask, api.room(), PageText("the cat " * 40)).replies
    layers = [json.loads(key.partition(" ")[2]).get("layer") for key in replies if key.startswith("attention")]
    assert layers == [None, 0, 1] and not any(key.startswith("steps") for key in replies)


@pytest.mark.usefixtures("one_thread")
def test_progress_and_a_page_that_is_full(tmp_path: Path) -> None:
    api = Api([open_subject(make_folder(tmp_path / "model"))], ANSWER_FUNCTIONS, SMALL)
    told: list[tuple[int, int]] = []
    made = record_answers(api.ask, api.room(), most=20_000, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, len(told)) and told[-1] == (len(told) - 1, len(told))
    assert made.left_out and 'attention {"kind":"self","model":0,"text":"the cat sat"}' in made.replies


def test_the_examples_of_the_page_fit() -> None:
    assert set(EXAMPLES) == set(VIEWS)
    assert all({"lang", "set", "title"} <= set(one) for listed in EXAMPLES.values() for one in listed)
    for view in VIEWS:
        assert rank_texts(view, EXAMPLES, None)


def test_of_many_models_the_first_of_a_view_is_recorded_as_a_whole() -> None:
    def subject(index: int) -> dict[str, Any]:
        return {"index": index, "kind": "bert", "views": ["fill"], "heads": ["masked"], "task": None}

    for number, whole in ((4, [True] * 4), (5, [True, False, False, False, False])):
        room = {"subjects": [subject(index) for index in range(number)], "examples": SMALL}
        replies = record_answers(lambda name, fields: Reply({}).to_bytes(), room, every=True).replies
        asked = [json.loads(key.partition(" ")[2]) for key in replies]
        about = [{one["text"] for one in asked if one["model"] == index} for index in range(number)]
        assert ["the dog sat" in texts for texts in about] == whole, "an example of another view"
        assert all("paris is the capital" in texts for texts in about), "one of its own"


def test_next_words_and_a_blank_in_every_place(tmp_path: Path) -> None:
    api = Api([open_subject(make_gpt(tmp_path / "gpt")), open_subject(make_folder(tmp_path / "bert"))])
    replies = record_answers(api.ask, api.room(), PageText("the cat 我")).replies
    for fields in ({"hide": "0-3"}, {"hide": "4-7"}, {"hide": "8-9"}, {"text": "the cat 我[MASK]"}):
        assert question_key("fill", {"text": "the cat 我", "k": 8, "model": 1, **fields}) in replies, fields
    assert question_key("next_words", {"text": "the cat 我", "k": 8}) in replies
