"""The page of a fine-tuning run: every task, the odd cases, whole HTML, and nothing a user wrote can break it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qkv.jobs.finetune.facts import FinetuneFacts
from qkv.jobs.finetune.page import finetune_page
from qkv.jobs.finetune.tables import ExamplesShown
from qkv.report.bilingual import phrase
from qkv.report.page import Charts, Commands, RunPage, Settings, render_page
from qkv.report.tables import Confusion
from qkv.tasks.task import Scored
from tests.support.finetune_runs import classification, constant, make_run, part_of, shown
from tests.support.finetune_tasks import EVERY, nothing, regression
from tests.unit.report.test_run_page import NASTY, checked


def page_of(tmp_path: Path, facts: FinetuneFacts) -> RunPage:
    return finetune_page(make_run(tmp_path / "my run", facts.main, facts.seeds), facts)


def titles(page: RunPage) -> list[str]:
    return [phrase(section.title).en for section in page.sections]


@pytest.mark.parametrize("name", EVERY)
def test_every_task_is_whole_html(tmp_path: Path, name: str) -> None:
    page = page_of(tmp_path, EVERY[name]())
    assert page.notices == () or name in ("nothing",)
    text = render_page(page, "zh")
    found = checked(text)
    assert found.shown.count("script") == 1
    assert not re.search(r"src=|href=|@import|url\(|fetch\(|https?:", text), "one offline file"
    assert not re.search(r"\b(nan|NaN|inf|None)\b", " ".join(found.texts[:-1]).replace("best_step", ""))
    assert text.count('class="en"') == text.count('class="zh"')


def test_the_order_of_a_classification(tmp_path: Path) -> None:
    page = page_of(tmp_path, classification())
    assert page.title == "my run" and phrase(page.kind).zh == "微调报告：文本分类"
    assert titles(page) == [
        "Remarks",
        "Results by label (test)",
        "Confusion matrix (test)",
        "Calibration",
        "Confident errors",
        "Hardest examples",
        "Training",
        "Results",
        "Results by length",
        "Seeds",
        "Performance",
        "Next steps",
        "Data",
        "Default choices",
        "Settings",
    ]
    (hardest,) = (one for one in page.sections if isinstance(one, ExamplesShown) and phrase(one.title).en[0] == "H")
    assert len(hardest.examples) == 2, "what is shown above is not shown again"
    (settings,) = (one for one in page.sections if isinstance(one, Settings))
    assert "epochs = 10" in settings.text, "from the run's folder, the logs from the seeds' folders"


def test_next_steps_are_the_commands_of_this_run(tmp_path: Path) -> None:
    """A good report ended without a word on how the model is used."""
    (steps,) = (one for one in page_of(tmp_path, classification()).sections if isinstance(one, Commands))
    verbs = [command.split("'")[0].strip() for command, _ in steps.commands]
    assert verbs == ["qkv predict", "qkv evaluate", "qkv look"] and steps.html().count("<code>") == 3
    assert all("'my run'" in command for command, _ in steps.commands), "as a shell reads it"
    for source, texts, labelled in (("a.tsv.gz", "new.tsv", "new.tsv"), ("a.bio", "new.txt", "new.bio")):
        facts = replace(classification(), train=replace(classification().train, source=source))
        (steps,) = (one for one in page_of(tmp_path, facts).sections if isinstance(one, Commands))
        predict, evaluate, _ = (command.split() for command, _ in steps.commands)
        assert (texts in predict, labelled in evaluate) == (True, True)
    facts = replace(classification(), test=None, test_scored=None)
    failed = replace(facts, scored=replace(facts.scored, values=facts.scored.values | {facts.main: 0.0}))
    assert "Next steps" not in titles(page_of(tmp_path, failed)), "the first remark says what to try"


def test_a_run_of_one_seed_in_its_own_folder(tmp_path: Path) -> None:
    facts = replace(classification(), seeds=(replace(classification().seeds[0], folder=""),))
    page = page_of(tmp_path, facts)
    assert page.notices == () and "Seeds" not in titles(page)
    (charts,) = (one for one in page.sections if isinstance(one, Charts))
    assert len(charts.charts) == 3


def test_regression_is_a_cloud(tmp_path: Path) -> None:
    assert "Targets and predictions" in titles(page_of(tmp_path, regression()))
    for numbers in (np.zeros((1, 2)), np.full((3, 2), np.nan), np.ones((5000, 2))):
        checked(render_page(page_of(tmp_path, replace(regression(), numbers=numbers))))


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    page = finetune_page(tmp_path, nothing())
    assert [phrase(notice).en for notice in page.notices] == ["log.jsonl is missing.", "config.toml is missing."]
    assert page.figures == () and titles(page) == ["Performance"]


def test_two_labels_and_one(tmp_path: Path) -> None:
    scored = Scored("accuracy", {"accuracy": 1.0}, {}, 1, confusion=np.array([[1]]), confusion_labels=("a",))
    page = page_of(tmp_path, replace(classification(), scored=scored, test_scored=None))
    assert not any(isinstance(one, Confusion) for one in page.sections), "one label is taken for nothing"


def test_text_stays_text(tmp_path: Path) -> None:
    facts = classification()
    labels = (NASTY, *facts.scored.confusion_labels[1:])
    per_label = tuple(replace(one, label=name) for one, name in zip(facts.scored.per_label, labels, strict=True))
    facts = replace(
        facts,
        model=NASTY,
        transfer=NASTY,
        train=part_of(NASTY, 90, labels),
        scored=replace(facts.scored, per_label=per_label, confusion_labels=labels),
        test_scored=None,
        baselines=(constant(NASTY, 0.1),),
        hardest=(shown(NASTY, NASTY, NASTY, 0.9, 3, file=NASTY, pair=NASTY),),
        notes=(NASTY,),
        cost=replace(facts.cost, device=NASTY),
    )
    text = render_page(page_of(tmp_path, facts))
    assert checked(text).shown.count("script") == 1
    text.encode("utf-8")
