"""The one-click examples: every view has some, in both languages, and they fit what they are put into."""

import json
import re

import pytest

from qkv.look.examples import EXAMPLES, RAIN, RAIN_ZH, PageExample
from qkv.look.subject import VIEWS
from qkv.look.wire import TEXT_LIMIT
from qkv.tasks.table import TASKS

EVERY = [(view, example) for view, examples in EXAMPLES.items() for example in examples]
OWN = {
    "fill": {"hide"},
    "meanings": {"word", "sentences"},
    "positions": {"text", "other"},
    "vectors": {"word", "a", "b", "c"},
    "tasks": {"passage", "question", "choices"},
}


def test_every_view_has_examples_in_both_languages() -> None:
    assert tuple(EXAMPLES) == VIEWS
    for view, examples in EXAMPLES.items():
        assert {"zh", "en"} <= {example["lang"] for example in examples}, view
        for language in ("zh", "en"):
            titles = [example["title"][language] for example in examples]
            assert len(set(titles)) == len(titles), view


@pytest.mark.parametrize(("view", "example"), EVERY)
def test_an_example_sets_what_its_view_reads(view: str, example: PageExample) -> None:
    assert set(example) - {"task"} == {"title", "lang", "set"} and example.get("task", "tag") in TASKS
    assert all(example["title"][language].strip() for language in ("zh", "en"))
    patch = example["set"]
    assert patch and set(patch) <= {"text", "pair", view}
    assert set(patch.get(view, {})) <= OWN.get(view, set())
    assert len(json.dumps(patch)) < TEXT_LIMIT
    if example["lang"] == "zh":
        assert re.search("[一-鿿]", json.dumps(patch, ensure_ascii=False))


def test_hidden_places_are_whole_words() -> None:
    for example in EXAMPLES["fill"]:
        text = example["set"]["text"]
        for part in example["set"]["fill"]["hide"].split():
            start, end = map(int, part.split("-"))
            word = text[start:end]
            assert word.strip() == word and 0 < len(word) == end - start
            if example["lang"] == "en":
                assert re.fullmatch(r"\w+", word)
                assert not re.match(r"\w", text[end : end + 1]) and not re.match(r"\w", text[start - 1 : start])


def test_every_sentence_has_its_word() -> None:
    for example in EXAMPLES["meanings"]:
        own = example["set"]["meanings"]
        assert len(own["sentences"]) >= 4
        for sentence in own["sentences"]:
            assert own["word"].lower() in sentence.lower()


def test_another_order_has_the_same_words() -> None:
    for example in EXAMPLES["positions"]:
        own = example["set"]["positions"]
        assert own["text"] != own["other"]
        assert sorted(re.findall(r"[a-z]+|\S", own["text"].lower())) == sorted(
            re.findall(r"[a-z]+|\S", own["other"].lower())
        )


def test_the_passage_answers_its_questions() -> None:
    for passage, answers in ((RAIN, ("gravity", "sleet", "Inside a cloud")), (RAIN_ZH, ("重力", "冰粒", "云里"))):
        assert all(answer in passage for answer in answers)
        given = [one["set"]["tasks"] for one in EXAMPLES["tasks"] if "tasks" in one["set"]]
        asked = [one["question"] for one in given if one["passage"] == passage and "choices" not in one]
        assert len(set(asked)) == 3


def test_what_the_issue_names_is_one_click_away() -> None:
    texts = json.dumps(EXAMPLES, ensure_ascii=False)
    for named in (
        "The animal didn't cross the street because it was too tired",
        "The animal didn't cross the street because it was too narrow",
        "他欠我100万",
        "我欠他100万",
        "苹果",
        "傻子",
        "Tom chases Jerry",
        "Hello World",
    ):
        assert named in texts
    python = next(one for one in EXAMPLES["meanings"] if one["set"]["meanings"]["word"] == "Python")["set"]["meanings"]
    assert any("Python" in one for one in python["sentences"]) and any(" python" in one for one in python["sentences"])
