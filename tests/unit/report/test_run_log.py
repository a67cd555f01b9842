"""What a run wrote down, read back whatever happened to it."""

import math
from pathlib import Path

import pytest

from qkv.report.run_log import number, read_run
from tests.support.runs import make_run


def test_a_whole_run(tmp_path: Path) -> None:
    log = read_run(make_run(tmp_path / "run"))
    assert log.faults == () and len(log.steps) == 200 and len(log.evaluations) == 8
    assert log.last_step == 2000 and log.setting("train", "clip") == 1.0
    assert log.setting("train", "nothing") is None and log.setting("rows", "deeper") is None
    assert log.logged("tokens")[0] == (10, 4096) and log.evaluated("masked_count")[-1] == (2000, 10_000)
    assert log.share_of_time("waited_for_batches") == pytest.approx(0.011)
    assert log.logged("nothing") == () and log.share_of_time("nothing") is None


def test_shares_are_weighted_by_time(tmp_path: Path) -> None:
    (tmp_path / "timing.jsonl").write_text(
        '{"step": 1, "seconds": 1, "waited_for_batches": 0.9}\n{"step": 2, "seconds": 8, "waited_for_batches": 0}\n'
        '{"step": 3, "seconds": NaN, "waited_for_batches": 1}\n'
    )
    assert read_run(tmp_path).share_of_time("waited_for_batches") == pytest.approx(0.1)


def test_an_empty_folder(tmp_path: Path) -> None:
    log = read_run(tmp_path)
    assert [fault.en for fault in log.faults] == [
        "log.jsonl is missing.",
        "timing.jsonl is missing.",
        "config.toml is missing.",
    ]
    assert log.last_step == 0 and log.config == "" and log.settings == {}


def test_half_lines_and_nonsense(tmp_path: Path) -> None:
    good = '{"step": 10, "masked_loss": NaN, "gradient_norm": null, "lr": 0.1}'
    lines = [good, "{", "[1]", '{"step": "x"}', '{"no": 1}', "", '{"step": 20, "evaluation": 3}', '{"step": 30, "mas']
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "timing.jsonl").write_bytes(b"\xff\xfe\n")
    (tmp_path / "config.toml").write_text("a = \n")
    log = read_run(tmp_path)
    assert len(log.steps) == 1 and log.evaluations == () and log.timing == ()
    assert math.isnan(log.logged("masked_loss")[0][1]) and math.isnan(log.logged("gradient_norm")[0][1])
    said = " ".join(fault.en for fault in log.faults)
    assert "log.jsonl: 6 lines could not be read" in said and "timing.jsonl: 1 line could" in said
    assert "config.toml is not valid TOML" in said and all(fault.zh for fault in log.faults)


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    assert any("cannot be read" in fault.en for fault in read_run(tmp_path).faults)


def test_numbers() -> None:
    assert number(3) == 3.0 and number(2.5) == 2.5
    assert all(math.isnan(number(value)) for value in (None, "3", True, math.inf, 10**400, [1]))


def test_figures_of_the_whole_training(tmp_path: Path) -> None:
    lines = [f'{{"step": {step}, "loss": {100 - step if step < 100 else "NaN"}}}' for step in range(1, 201)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    rates = [f'{{"step": {step}, "tokens_per_second": {rate}}}' for step, rate in enumerate(("NaN", 5, 900, 7))]
    (tmp_path / "timing.jsonl").write_text("\n".join(rates))
    log = read_run(tmp_path)
    assert log.training_level("loss") == 3.0 and log.median_rate() == 7  # of 99 numbers, the last five
    assert log.training_level("nothing") is None and read_run(tmp_path / "none").median_rate() is None


def test_what_is_said_first(tmp_path: Path) -> None:
    (tmp_path / "timing.jsonl").write_text("")
    (tmp_path / "config.toml").write_text("[train]\nsteps = 50\n")
    missing, nothing = read_run(tmp_path).notices()
    assert missing.en == "log.jsonl is missing." and "No step was logged yet" in nothing.en
    (tmp_path / "log.jsonl").write_text('{"step": 20}\n')
    (said,) = read_run(tmp_path).notices()
    assert said.en.startswith("The run stopped at step 20 of 50:") and said.zh.startswith(
        "训练停在第 20 步，共 50 步："
    )
    (tmp_path / "log.jsonl").write_text('{"step": 50}\n')
    assert list(read_run(tmp_path).notices()) == []
