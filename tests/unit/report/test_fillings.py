"""Sample fillings: the same blank at several moments, in the order of time."""

from pathlib import Path
from typing import Any

from qkv.report.run_log import SHOWN_TIMES, RunLog, fillings, read_run
from tests.support.runs import BLANKS, make_run


def log_of(*samples: Any) -> RunLog:
    found = tuple((10 * (n + 1), {"samples": one}) for n, one in enumerate(samples))
    return RunLog((), found, (), "", {}, ())


def test_first_and_last_are_among_them(tmp_path: Path) -> None:
    found = fillings(read_run(make_run(tmp_path / "run")))
    assert [(one.text, one.expected) for one in found] == list(BLANKS)
    for one in found:
        steps = [answers.when[0] for answers in one.answers]
        assert len(steps) == SHOWN_TIMES and steps[0] == "step 250" and steps[-1] == "step 2,000"
        shares = [dict(answers.candidates)[one.expected or ""] for answers in one.answers]
        assert shares == sorted(shares) and shares[-1] > 0.5


def test_few_evaluations() -> None:
    sample = {"text": "[MASK]", "answer": "a", "candidates": [["a", 0.5]]}
    for n in (1, 2, 3):
        (found,) = fillings(log_of(*([[sample]] * n)))
        assert len(found.answers) == n
    assert fillings(log_of()) == ()


def test_damaged_samples_are_left_out() -> None:
    samples = [
        3,
        {"no": "text"},
        {"text": "a [MASK]"},
        {"text": "b [MASK]", "answer": None, "candidates": [["x"], ["y", None], ["z", 7.0], ["w", -1], "?"]},
    ]
    first, second = fillings(log_of(None, samples))
    assert first.expected is None and first.answers[0].candidates == ()
    assert second.answers[0].candidates == (("z", 1.0), ("w", 0.0))


def test_a_text_that_came_later() -> None:
    a, b = ({"text": text, "answer": "x", "candidates": [["x", 0.5]]} for text in ("a [MASK]", "b [MASK]"))
    first, second = fillings(log_of([a], [a, b]))
    assert len(first.answers) == 2 and len(second.answers) == 1
