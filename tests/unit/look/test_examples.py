"""The one-click examples: every view has some, in both languages, and they fit what they are put into."""

import json
import re
from functools import cache

import pytest

from qkv.look.api import Api
from qkv.look.examples import EXAMPLES, RAIN, RAIN_ZH, PageExample
from qkv.look.subject import VIEWS, open_subject
from qkv.look.wire import TEXT_LIMIT, Reply
from qkv.tasks.table import TASKS
from tests.support.bench_modules import bench_module

EVERY = [(view, example) for view, examples in EXAMPLES.items() for example in examples]
OWN = {
    "fill": {"hide"},
    "next": {"at"},
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
        assert ("fill" in example["set"]) != ("[MASK]" in text)
        for part in example["set"].get("fill", {"hide": ""})["hide"].split():
            start, end = map(int, part.split("-"))
            word = text[start:end]
            assert word.strip() == word and 0 < len(word) == end - start
            if example["lang"] == "en":
                assert re.fullmatch(r"\w+", word)
                assert not re.match(r"\w", text[end : end + 1]) and not re.match(r"\w", text[start - 1 : start])


def test_a_chosen_place_is_the_beginning_of_a_word() -> None:
    for example in EXAMPLES["next"]:
        text, at = example["set"]["text"], example["set"].get("next", {}).get("at")
        if at is not None:
            assert text[at].isalnum() and (example["lang"] == "zh" or text[at - 1] == " ")


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
        "我请客",
        "my dog is hairy",
        "Thinking Machines",
        "干哈呢",
        "北京",
    ):
        assert named in texts
    python = next(one for one in EXAMPLES["meanings"] if one["set"]["meanings"]["word"] == "Python")["set"]["meanings"]
    assert any("Python" in one for one in python["sentences"]) and any(" python" in one for one in python["sentences"])


@cache
def mini() -> Api:
    """The model in the box, which most people open first."""
    return Api([open_subject()])


HIDING = [example for example in EXAMPLES["fill"] if "fill" in example["set"]]


@pytest.mark.parametrize("example", HIDING, ids=lambda one: one["title"]["en"])
def test_the_hidden_word_is_the_first_answer(example: PageExample) -> None:
    asked = {"text": example["set"]["text"], "hide": example["set"]["fill"]["hide"]}
    found = Reply.from_bytes(mini().ask("fill", asked)).head["blanks"]
    assert found and [blank["truth"]["rank"] for blank in found] == [1] * len(found)


def test_a_next_sentence_is_judged_as_its_title_says() -> None:
    judged = {}
    for example in EXAMPLES["fill"]:
        if "pair" in example["set"]:
            asked = {name: example["set"][name] for name in ("text", "pair")}
            found = Reply.from_bytes(mini().ask("next_sentence", asked)).head["is_next"]
            judged[example["title"]["en"]] = found > 0.5
    assert len(judged) == 4 and all(follows == ("yes" in title) for title, follows in judged.items())


@pytest.mark.parametrize(
    ("lang", "pronouns", "meant"),
    [("en", ("they", "it"), ("children", "river")), ("zh", ("它", "他"), ("公司", "李白"))],
)
def test_the_first_pictures_show_what_the_pronoun_stands_for(
    lang: str, pronouns: tuple[str, str], meant: tuple[str, str]
) -> None:
    measure = bench_module("look_examples").measure_opening
    first = [example["set"]["text"] for example in EXAMPLES["attention"] if example["lang"] == lang][:2]
    found = [measure(mini(), text, *words) for text, *words in zip(first, pronouns, meant, strict=True)]
    assert all(one["right"] and one["weight"] > 0.4 for one in found), found
