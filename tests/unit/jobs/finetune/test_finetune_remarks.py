"""Every remark of fine-tuning on both sides of its line, with its figures in both languages."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qkv.jobs.finetune import remarks
from qkv.jobs.finetune.facts import ENOUGH, FinetuneFacts, Leak, LengthBin
from qkv.jobs.finetune.page import headline_figures
from qkv.report.bilingual import Phrase, phrase
from qkv.report.remarks import FAILURE, GOOD, NOTE, WARNING
from qkv.tasks.baselines import BaselineScore
from qkv.tasks.table import find_metric, task_words
from qkv.tasks.task import Scored
from tests.support.finetune_runs import ERRORS, SEEDS, calibration_facts, classification, constant, part_of, shown
from tests.support.finetune_tasks import EVERY
from tests.unit.report.test_remarks import check

ACCURACY, TEXTS = find_metric("accuracy"), task_words("classify", "single")


def scored(value: float, low: float | None = None, high: float | None = None, n: int = 200) -> Scored:
    intervals = {} if low is None or high is None else {"accuracy": (low, high)}
    return Scored("accuracy", {"accuracy": value}, intervals, n)


def facts_of(dev: Scored, *baselines: BaselineScore, test: Scored | None = None) -> FinetuneFacts:
    """`baselines` are those of test, if there is one."""
    facts = replace(classification(), scored=dev, test=None, test_scored=test, baselines=() if test else baselines)
    return replace(facts, test_baselines=baselines if test else ())


TF_IDF = Phrase("tf-idf with logistic regression", "tf-idf 加逻辑回归")


@pytest.mark.parametrize(("low", "high", "level"), [(0.5, 0.7, WARNING), (0.51, 0.7, GOOD), (0.3, 0.49, WARNING)])
def test_against_the_baseline(low: float, high: float, level: str) -> None:
    how = Phrase("always 'a'", "总是答 'a'")
    facts = facts_of(scored(0.6, low, high), BaselineScore("constant", how, 0.5))
    found = check(remarks.remark_baseline(facts), level, "60.0", "50.0")
    assert how.en in found.text.en and how.zh in found.text.zh


def test_an_interval_of_four_texts_is_not_good_news() -> None:
    facts = facts_of(scored(0.667, 0.267, 1.0, n=4), constant("a", 0.25))
    check(remarks.remark_baseline(facts), NOTE, "66.7", "25.0")


def test_a_score_without_an_interval_stands_for_itself() -> None:
    check(remarks.remark_baseline(facts_of(scored(0.6), constant("a", 0.5))), GOOD, "10.0")
    assert remarks.remark_baseline(facts_of(scored(math.nan), constant("a", 0.5))) is None
    assert remarks.remark_baseline(facts_of(scored(0.6))) is None
    assert remarks.remark_uncertainty(ACCURACY, scored(0.6), TEXTS) is None


@pytest.mark.parametrize(
    ("low", "high", "tf_idf", "level", "words"),
    [
        (0.63, 0.81, 0.818, WARNING, "below"),
        (0.63, 0.81, 0.7, NOTE, "cheaper"),
        (0.63, 0.81, 0.6, GOOD, "above"),
    ],
)
def test_the_best_baseline_counts_and_is_named(low: float, high: float, tf_idf: float, level: str, words: str) -> None:
    facts = facts_of(scored(0.727, low, high), constant("a", 0.5), BaselineScore("tf-idf", TF_IDF, tf_idf))
    found = check(remarks.remark_baseline(facts), level, "72.7", f"{100 * tf_idf:.1f}")
    assert words in found.text.en and TF_IDF.en in found.text.en and TF_IDF.zh in found.text.zh
    assert ("TfidfVectorizer" in found.text.en) == (level == WARNING)
    assert next(iter(remarks.finetune_remarks(facts))) == found, "it comes first"


def test_a_run_that_was_cut_short_is_told_to_train_longer() -> None:
    """A tagger with 48 steps on a slow machine, 31 points below a list of names, was advised everything but that."""
    facts = facts_of(scored(0.6, 0.5, 0.7), constant("a", 0.5), BaselineScore("tf-idf", TF_IDF, 0.8))
    short = replace(facts, seeds=(replace(SEEDS[0], steps=48),))
    found = check(remarks.remark_baseline(short), WARNING, "48")
    assert "--minutes" in found.text.en and "--minutes" in found.text.zh
    for other in (facts, replace(short, strength=1.0)):
        assert "--minutes" not in check(remarks.remark_baseline(other), WARNING).text.en


def test_a_test_that_is_clear_of_its_baseline_decides() -> None:
    """Forty texts of dev showed nothing, ninety-nine of test did, and the first remark was of dev."""
    facts = facts_of(scored(0.6, 0.45, 0.74), constant("a", 0.5), test=scored(0.73, 0.63, 0.81))
    assert "test" in check(remarks.remark_baseline(facts), GOOD, "73.0", "50.0").text.en


def test_scores_of_zero_do_not_agree() -> None:
    f1 = replace(EVERY["tagging"](), test_scored=None)
    zero = replace(f1.scored, values={"f1": 0.0}, intervals={"f1": (0.0, 0.0)})
    facts = replace(f1, scored=zero, test_scored=zero)
    assert remarks.remark_dev_and_test(facts) is None
    assert not [one for one in remarks.finetune_remarks(facts) if "agree" in one.text.en]
    facts = facts_of(scored(0.562, 0.4, 0.7), constant("a", 0.56), test=scored(0.56, 0.46, 0.65))
    assert remarks.remark_dev_and_test(replace(facts, baselines=(constant("a", 0.562),))) is None, "each has its own"


def test_too_good_to_be_true() -> None:
    check(
        remarks.remark_too_good(ACCURACY, scored(0.996), [constant("a", 0.3)], TEXTS),
        WARNING,
        "99.6",
        "200",
    )
    facts = facts_of(scored(0.996, 0.98, 0.999), constant("a", 0.3))
    leaked = replace(facts, leaks=(Leak("dev", 0.01, Phrase("leaked", "泄漏")),))
    said = [["rarely true" in one.text.en for one in remarks.finetune_remarks(one)] for one in (facts, leaked)]
    assert [any(found) for found in said] == [True, False], "a leak that is known is named instead"
    assert remarks.remark_too_good(ACCURACY, scored(0.98), [constant("a", 0.3)], TEXTS) is None
    assert remarks.remark_too_good(ACCURACY, scored(1.0), [constant("a", 0.95)], TEXTS) is None, "the task is easy"
    assert remarks.remark_too_good(ACCURACY, scored(1.0, n=5), (), TEXTS) is None


def test_wide_intervals() -> None:
    check(remarks.remark_uncertainty(ACCURACY, scored(0.8, 0.74, 0.85), TEXTS), NOTE, "74.0", "85.0", "200", "800")
    check(remarks.remark_uncertainty(ACCURACY, scored(0.8, 0.6, 0.9), TEXTS), WARNING)
    assert remarks.remark_uncertainty(ACCURACY, scored(0.8, 0.76, 0.85), TEXTS) is None
    found = check(remarks.remark_uncertainty(ACCURACY, scored(1.0, 0.2, 1.0, n=1), TEXTS), WARNING)
    assert "1 text is few" in found.text.en and "halve" not in found.text.en


@pytest.mark.parametrize(
    ("test", "level", "words"), [(0.79, GOOD, "agree"), (0.74, WARNING, "Trust"), (0.9, NOTE, "easier")]
)
def test_dev_and_test(test: float, level: str, words: str) -> None:
    found = check(
        remarks.remark_dev_and_test(facts_of(scored(0.8, 0.75, 0.85), test=scored(test))),
        level,
        "80.0",
        f"{100 * test:.1f}",
    )
    assert words in found.text.en
    assert remarks.remark_dev_and_test(facts_of(scored(0.8))) is None


@pytest.mark.parametrize(("test", "level"), [((0.66, 0.4, 0.86), NOTE), ((0.66, 0.6, 0.71), WARNING)])
def test_few_test_texts_may_differ_by_chance(test: tuple[float, float, float], level: str) -> None:
    """Twenty texts under dev's interval were taken as proof that the files are not alike, then as agreeing."""
    found = remarks.remark_dev_and_test(facts_of(scored(0.8, 0.72, 0.86), test=scored(*test)))
    assert "agree" not in check(found, level, "66.0").text.en


def test_a_leaked_test_set_decides_nothing() -> None:
    """Its remarks were: test is easier, a baseline that is better there, and no sign that nothing was learned."""
    facts = facts_of(scored(0.5, 0.4, 0.6), constant("a", 0.4), test=scored(0.95, 0.9, 0.98))
    facts = replace(facts, baselines=(constant("a", 0.5),), n_evaluations=9)
    assert remarks.remark_dev_and_test(facts) is not None and remarks.remark_nothing_learned(facts) is None
    leaked = replace(facts, leaks=(Leak("test", 0.9, Phrase("leaked", "泄漏")),))
    assert remarks.remark_dev_and_test(leaked) is None and remarks.remark_chosen_on_dev(leaked) is not None
    check(remarks.remark_nothing_learned(leaked), FAILURE, "50.0")
    assert "on dev" in check(remarks.remark_baseline(leaked), WARNING, "50.0").text.en
    both = replace(leaked, leaks=(*leaked.leaks, Leak("dev", 0.9, Phrase("leaked", "泄漏"))))
    assert "on test" in check(remarks.remark_baseline(both), GOOD, "95.0").text.en
    assert GOOD not in {one.level for one in remarks.finetune_remarks(both)}


def test_the_uncertainty_is_that_of_the_part_that_decides() -> None:
    facts = facts_of(scored(0.8, 0.6, 0.9, n=30), constant("a", 0.5), test=scored(0.79, 0.78, 0.80, n=6000))
    assert not [one for one in remarks.finetune_remarks(facts) if "few to judge by" in one.text.en]


def test_the_best_of_several_evaluations_is_optimistic() -> None:
    facts = replace(facts_of(scored(0.8, 0.7, 0.9)), n_evaluations=12)
    found = check(remarks.remark_chosen_on_dev(facts), NOTE, "12", "--test FILE")
    assert "optimistic" in found.text.en and found in list(remarks.finetune_remarks(facts))
    assert remarks.remark_chosen_on_dev(replace(facts, n_evaluations=1)) is None, "it was evaluated once"
    assert remarks.remark_chosen_on_dev(replace(facts, test_scored=scored(0.8))) is None
    shown = next(headline_figures(facts))
    assert shown.note is not None and "optimistic" in phrase(shown.note).en


MEAN = BaselineScore("constant", Phrase("always answering the mean (3)", "总答平均值（3）"), 0.0, 0.8)


def numbers(r: float, low: float, error: float) -> FinetuneFacts:
    found = Scored("pearson", {"pearson": r, "mean_absolute_error": error}, {"pearson": (low, r + 0.1)}, 60)
    facts = replace(facts_of(found, MEAN), main="pearson", kind="regression")
    return replace(facts, numbers=np.array([[1.0, 1.1]]))


@pytest.mark.parametrize(
    ("r", "low", "error", "fails"),
    [(0.1, -0.1, 0.82, True), (-0.1, -0.3, 0.7, True), (0.1, -0.1, 0.7, False), (0.5, 0.3, 0.9, False)],
)
def test_numbers_that_were_not_learned(r: float, low: float, error: float, fails: bool) -> None:
    facts = numbers(r, low, error)
    found = remarks.remark_nothing_learned(facts)
    assert (found is not None) == fails
    if found is not None:
        check(found, FAILURE, "--lr")
        assert "no better than always answering the mean" in found.text.en
    check(remarks.remark_numbers(facts), WARNING if error > 0.8 else NOTE, "0.800")


def test_a_fitted_head_has_no_learning_rate_to_lower() -> None:
    facts = replace(facts_of(scored(0.5, 0.4, 0.6), constant("a", 0.5)), lr=1e-3, strength=1.0, transfer="features")
    found = check(remarks.remark_nothing_learned(facts), FAILURE, "--model")
    assert "--lr" not in found.text.en and "features" not in found.text.en and "--transfer full" in found.text.en
    new = check(remarks.remark_nothing_learned(replace(facts, transfer="full", new_layers=True)), FAILURE)
    assert "--transfer" not in new.text.en, "an encoder without pretrained layers has no other"


def test_a_run_of_few_steps_may_be_too_short() -> None:
    facts = replace(facts_of(scored(0.5, 0.4, 0.6), constant("a", 0.5)), lr=1e-3, seeds=(replace(SEEDS[0], steps=12),))
    assert "--epochs" not in check(remarks.remark_nothing_learned(replace(facts, seeds=SEEDS)), FAILURE).text.en
    check(remarks.remark_nothing_learned(facts), FAILURE, "--epochs", "--lr 0.0003")


def test_one_class_in_dev_and_a_test_that_shows_nothing() -> None:
    facts = facts_of(scored(1.0, 0.9, 1.0), constant("a", 0.5), test=scored(0.5, 0.4, 0.6))
    facts = replace(facts, baselines=(constant("a", 1.0),))
    check(remarks.remark_nothing_learned(facts), FAILURE, "50.0")


def test_seeds() -> None:
    found = check(remarks.remark_seeds(ACCURACY, SEEDS), NOTE, "3", "87.6", "0.9")
    assert "on dev" in found.text.en
    assert remarks.remark_seeds(ACCURACY, SEEDS[:1]) is None and remarks.remark_more_steps(SEEDS) is None
    check(remarks.remark_more_steps([replace(SEEDS[0], best_step=640)]), NOTE, "640")
    assert remarks.remark_more_steps(()) is None


def test_calibration() -> None:
    facts = calibration_facts()
    found = check(remarks.remark_calibration(facts), GOOD, "1.8", "6.2", "1.62")
    assert "too sure" in found.text.en and "过于自信" in found.text.zh
    modest = replace(facts, before=((0.5, 0.9, 100),))
    assert "too modest" in check(remarks.remark_calibration(modest), GOOD, "50.0", "90.0").text.en
    even = replace(facts, before=((0.9, 0.9, 100),))
    assert "about as sure" in check(remarks.remark_calibration(even), GOOD).text.en
    check(remarks.remark_calibration(replace(facts, error_after=0.12)), WARNING, "12.0")
    few = ((0.7, 0.6, 20), (0.9, 0.95, 40))
    noisy = replace(facts, after=few, before=few, error_after=0.07)
    found = check(remarks.remark_calibration(noisy), NOTE, "7.0", "60")
    assert "chance" in found.text.en, "sixty answers that are right as often as they say have such an error"
    check(remarks.remark_calibration(replace(facts, before=((0.9, 0.9, 49),))), NOTE, "49")
    assert remarks.remark_calibration(None) is None


def test_answers_by_itself() -> None:
    facts = calibration_facts()
    check(remarks.remark_automation(facts), GOOD, "95", "82", "0.71", "18")
    check(remarks.remark_automation(replace(facts, answered=0.3)), NOTE, "30", "70")
    everything = replace(facts, answered=1.0)
    check(remarks.remark_automation(everything), GOOD, "95", f"{facts.answers:,}")
    few = ((0.9, 0.95, ENOUGH - 1),)
    check(remarks.remark_automation(replace(everything, before=few, after=few)), NOTE, str(ENOUGH - 1))
    tested = scored(0.887, 0.826, 0.928, 150)
    check(remarks.remark_automation(everything, tested), WARNING, "95", "88.7")
    check(remarks.remark_automation(everything, replace(tested, values={"accuracy": 0.96})), GOOD, "95")
    check(remarks.remark_automation(replace(facts, answered=None, abstain_below=None)), WARNING, "95")
    assert remarks.remark_automation(None) is None and remarks.remark_automation(replace(facts, coverage=())) is None


def test_long_texts() -> None:
    bins = (LengthBin(1, 50, 200, 190), LengthBin(51, 400, 60, 40), LengthBin(401, 500, 0, 0))
    check(remarks.remark_long_texts(bins), NOTE, "51", "60", "67", "95")
    assert (
        remarks.remark_long_texts((bins[0], replace(bins[1], right=56))) is None
        and remarks.remark_long_texts(bins[:1]) is None
    )


def test_labels_that_may_be_wrong() -> None:
    check(remarks.remark_wrong_labels(ERRORS), NOTE, "3", "90")
    assert remarks.remark_wrong_labels((shown("x", "a", "b", 0.89, 1),)) is None


def test_numbers_that_lie_too_low() -> None:
    gold = np.linspace(0, 5, 100)
    wave = 0.1 * np.sin(np.arange(100))
    check(remarks.remark_bias(np.stack([gold, gold - 0.5 + wave], 1)), NOTE, "0.5")
    assert remarks.remark_bias(np.stack([gold, gold + wave], 1)) is None and remarks.remark_bias(None) is None
    assert remarks.remark_bias(np.full((10, 2), math.nan)) is None


def test_dropped_examples() -> None:
    part = part_of("a.csv", 998, n_dropped=2)
    check(remarks.remark_dropped(part), NOTE, "2", "1,000", "0.2")
    check(remarks.remark_dropped(part_of("a.csv", 90, n_dropped=10)), WARNING, "10.0")
    assert remarks.remark_dropped(part_of("a.csv", 90)) is None


@pytest.mark.parametrize("name", EVERY)
def test_no_remark_of_any_run_says_nan(name: str) -> None:
    for remark in remarks.finetune_remarks(EVERY[name]()):
        assert "nan" not in remark.text.en.lower().split() and remark.text.en[-1] == "." and remark.text.zh[-1] == "。"


def test_nothing_is_good_where_much_was_seen_in_training() -> None:
    """One example in a hundred is a note; many make every score doubtful."""
    for share, level in ((0.01, NOTE), (0.2, WARNING)):
        leak = Leak("dev", share, Phrase("leaked", "泄漏"))
        found = list(remarks.finetune_remarks(replace(classification(), leaks=(leak,))))
        assert [one.level for one in found if one.text.en == "leaked"] == [level]
        assert (GOOD in {one.level for one in found}) == (level == NOTE)


def test_a_run_that_learned_nothing_says_so_first() -> None:
    always = BaselineScore("constant", Phrase("always 'a'", "总答 'a'"), 0.99)
    facts = replace(classification(), baselines=(always,), test_baselines=(always,), test_scored=None, lr=3e-4)
    first, *others = remarks.finetune_remarks(facts)
    assert first.level == FAILURE and "--lr 0.0001" in first.text.en and "always 'a'" in first.text.en
    assert GOOD not in {one.level for one in others} and not any("not looking" in one.text.en for one in others)
    # what a test set shows counts too
    tested = replace(facts, test_scored=replace(facts.scored, values=facts.scored.values | {facts.main: 0.995}))
    assert remarks.remark_nothing_learned(tested) is None
