"""What examples say of themselves: their texts, labels and identity, from a file, from Python or typed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.data.corpus.shards import ranges
from qkv.data.labelled.check import check_labelled
from qkv.data.labelled.examples import (
    AnswerExample,
    AnswerSpan,
    ChoiceExample,
    Example,
    Span,
    TagExample,
    TextExample,
    UnlabelledInput,
)
from qkv.data.labelled.reader import LABELLINGS
from qkv.jobs.finetune.data import DataPart, read_part, report_conflicts, report_leaks
from qkv.jobs.finetune.settings import FinetuneConfig
from qkv.tasks.classify import Regression
from qkv.tasks.table import TASKS
from qkv.tasks.task import ClassifySettings
from tests.support import labelled_sets as sets
from tests.support.folders import make_tokenizer

EXAMPLES: dict[str, Example] = {
    "classify": TextExample("the cat", "a dog", ("x", "y")),
    "tag": TagExample("the cat", (Span(4, 7, "ANI"),)),
    "answer": AnswerExample("who", "the cat", (AnswerSpan(4, "cat"),), id="7"),
    "choice": ChoiceExample("the cat", "who", ("cat", "a dog"), 1),
}


def test_every_task_has_a_labelling_and_its_own_example() -> None:
    assert list(TASKS) == list(LABELLINGS) == list(EXAMPLES)
    for task, example in EXAMPLES.items():
        assert (
            LABELLINGS[task].example
            is type(example)
            is TASKS[task].load().chosen([], ClassifySettings("multi")).example
        )
        assert set(LABELLINGS[task].needed) <= set(LABELLINGS[task].roles)


def test_what_examples_say_of_themselves() -> None:
    said = {task: (one.texts(), one.labels(), one.counted(), one.stratum()) for task, one in EXAMPLES.items()}
    assert said == {
        "classify": (("the cat", "a dog"), ("x", "y"), ("x", "y"), ""),
        "tag": (("the cat", None), ("ANI",), ("ANI",), ""),
        "answer": (("who", "the cat"), ("answered",), ("answered",), "answered"),
        "choice": (("the cat", "who a dog"), (), ("choice 2 of 2",), ""),
    }


@pytest.mark.parametrize("task", EXAMPLES)
def test_without_labels_it_is_the_same_example(task: str) -> None:
    example = EXAMPLES[task]
    asked = example.unlabelled()
    assert asked.identity() == example.identity() and asked.record() == example.record()
    assert not asked.labels() and not asked.counted() and not asked.spanned() and asked.expected() is None


def test_names_of_a_record_are_columns_of_a_table() -> None:
    for example in EXAMPLES.values():
        assert set(example.record()) < set(example.columns)


def test_case_width_and_blanks_make_no_other_example() -> None:
    assert TextExample("Ｔhe  cat").identity() == TextExample("the Cat ", label="x").identity()
    assert TextExample("a b").identity() != TextExample("a", "b").identity()


def test_what_a_person_gives() -> None:
    given = UnlabelledInput("the cat", "a dog", "who", ("cat", "dog"))
    for example in EXAMPLES.values():
        made = type(example).of(given)
        table = {name: getattr(given, name) for name in example.fields}
        assert made is not None and made == type(example).from_python(table) and made.labels() == ()
    assert (
        AnswerExample.of(UnlabelledInput("the cat")) is None
        and ChoiceExample.of(UnlabelledInput("the cat", choices=["one"])) is None
    )


def test_a_list_of_one_label_is_that_label() -> None:
    assert TextExample("a", label=("x",)).single().label == "x"
    for kept in (*EXAMPLES.values(), TextExample("a", label=()), TextExample("a", label="x"), TextExample("a")):
        assert kept.single() is kept


def choices(path: Path, *rows: tuple[str, list[str]]) -> Path:
    lines = [json.dumps({"question": question, "choices": given, "answer": 0}) for question, given in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_check_and_finetune_agree_on_which_questions_are_the_same(tmp_path: Path) -> None:
    train = choices(tmp_path / "train.jsonl", ("which?", ["cat", "dog"]), ("who?", ["he", "she"]))
    for other, shared in ((["cat", "mat"], 0), (["Cat", "dog"], 1)):
        dev = choices(tmp_path / "dev.jsonl", ("which?", other))
        assert check_labelled(train, "choice", against=[dev]).counts.get("leak", 0) == shared
        parts = [read_part(str(path), FinetuneConfig("choice")) for path in (train, dev)]
        assert len(report_leaks(parts[0], parts[1], "dev")) == shared


def test_check_and_finetune_name_texts_with_two_labels(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\na cat,x\nA  Cat,y\na dog,x\na dog,x\na cat,x\na cat,y\n", encoding="utf-8")
    (found,) = report_conflicts(read_part(str(file), FinetuneConfig("classify")))
    assert check_labelled(file, "classify").counts["conflict"] == 2
    assert found.en.startswith("2 texts are labelled otherwise") and "line 3, as line 2" in found.en
    assert "2 条文本" in found.zh and "第 3 行，与第 2 行" in found.zh
    rows = (TextExample("a", label="x"), TextExample("a", label="y", weight=0.0), TextExample("b", label="y"))
    assert report_conflicts(DataPart("a", rows)) == [], "a weight of 0 says which one counts"


def test_a_pair_is_no_leak_of_its_two_texts_in_one() -> None:
    assert not report_leaks(DataPart("a", (TextExample("a b"),)), DataPart("b", (TextExample("a", "b"),)), "dev")


def pairs() -> list[TextExample]:
    return [TextExample(one.text, "the cat " * (3 * number), f"{number}.5") for number, one in enumerate(sets.texts(6))]


@pytest.mark.parametrize("task", [*EXAMPLES, "both orders"])
def test_rows_of_some_examples_among_those_of_all(task: str) -> None:
    made: dict[str, Any] = {"classify": sets.texts, "tag": sets.tagged, "answer": sets.asked, "choice": sets.chosen}
    tokenizer, examples = make_tokenizer(), pairs() if task == "both orders" else made[task](6)
    both = Regression(ClassifySettings(pairs="both"), paired=True)
    entry = (
        both if task == "both orders" else TASKS[task].load().learn(examples, FinetuneConfig(task).settings, tokenizer)
    )
    chosen = np.array([1, 4])
    whole = entry.features(tokenizer, examples, 20, training=False)
    part = entry.features(tokenizer, [examples[number] for number in chosen], 20, training=False)
    rows = ranges((np.cumsum(whole.row_counts) - whole.row_counts)[chosen], whole.row_counts[chosen])
    assert whole.row_counts.sum() == len(whole.rows) and len(rows) == len(part.rows)
    expected = part.rows.collate(np.arange(len(part.rows)))
    assert whole.rows.collate(rows).ids.tolist() == expected.ids.tolist()
