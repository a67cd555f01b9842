"""The curves of a run: what is drawn, beside what."""

import math
from pathlib import Path

from qkv.models.bert.page import pretraining_curves
from qkv.report.bilingual import phrase
from qkv.report.run_log import read_run
from tests.support.runs import make_run


def test_losses_beside_what_they_are_compared_with(tmp_path: Path) -> None:
    loss, filled, following, gradient, rate, speed = pretraining_curves(
        read_run(make_run(tmp_path / "run")), 8000, 6.42, (700,)
    )
    assert [level.value for level in loss.levels] == [math.log(8000), 6.42]
    assert "8.99" in phrase(loss.levels[0].name).zh and "frequencies" in phrase(loss.levels[1].name).en
    assert [len(series.points) for series in loss.series] == [200, 8] and loss.seams == (700,)
    assert filled.format == "percent"
    assert following.levels[0].value == 0.5
    low, high = following.series[1].intervals[-1]
    assert low < 0.8 < high, "800 of 1000"
    assert [step for step, _ in gradient.spikes] == [1310] and gradient.levels[0].value == 1.0
    assert rate.from_zero and len(speed.series[0].points) == 200


def test_without_pairs_timing_or_entropy(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", pairs=False, spike=None)
    (run / "timing.jsonl").unlink()
    (run / "config.toml").write_text("[train]\nclip = 5000.0\n")
    loss, _, gradient, _ = pretraining_curves(read_run(run), 8000, None)
    assert len(loss.levels) == 1
    assert gradient.levels == () and gradient.spikes == (), "a level far from all points would flatten them"


def test_counts_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"step": 1, "evaluation": {"next_sentence_accuracy": 0.5, "next_sentence_correct": 7}}\n'
    )
    following = list(pretraining_curves(read_run(tmp_path), 10, None))[2]
    assert math.isnan(following.series[1].intervals[0][0])
