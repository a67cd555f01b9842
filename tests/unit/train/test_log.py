"""What a run writes down: cut where it is resumed, whatever a crash left, and said when it cannot be written."""

import io
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from qkv.errors import InputError
from qkv.train import log as logs
from qkv.train.log import Clock, Log, Window


def steps_in(file: Path) -> list[int]:
    return [json.loads(line)["step"] for line in file.read_text(encoding="utf-8").splitlines()]


def filled(folder: Path) -> Path:
    log = Log(folder, 0)
    for step in (2, 4, 6):
        log.write("log.jsonl", {"step": step, "loss": 1 / step, "note": "记"})
        log.write("timing.jsonl", {"step": step, "seconds": 0.5})
    log.flush()
    log.close()
    return folder / "log.jsonl"


@pytest.mark.parametrize(("step", "kept"), [(0, []), (4, [2, 4]), (5, [2, 4]), (9, [2, 4, 6])])
def test_lines_later_than_the_checkpoint_are_cut_off(tmp_path: Path, step: int, kept: list[int]) -> None:
    file = filled(tmp_path)
    before = file.read_bytes()
    Log(tmp_path, step).close()
    assert steps_in(file) == steps_in(tmp_path / "timing.jsonl") == kept
    assert before.startswith(file.read_bytes())


@pytest.mark.parametrize("left", [b'{"step": 8, "lo', b"\x00\x00\x00\n", b"\xff\xfe\n", b'{"loss": 3}\n', b"[8]\n"])
def test_what_a_crash_left_is_dropped(tmp_path: Path, left: bytes) -> None:
    file = filled(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole + left)
    Log(tmp_path, 9).close()
    assert file.read_bytes() == whole


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    log = Log(tmp_path, 0)
    log.files["log.jsonl"].close()
    log.files["log.jsonl"] = Full()
    with pytest.raises(InputError, match=r"log.jsonl cannot be written: No space left on device. .* can be resumed"):
        log.write("log.jsonl", {"step": 1})
    log.close()


def test_tensorboard_gets_the_numbers_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (folder, purge_step) == (str(tmp_path / "tensorboard"), 4)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0, 0))

    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setattr(logs, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    log = Log(tmp_path, 3)
    log.write("log.jsonl", {"step": 4, "loss": 2.5, "gradient_norm": None})
    log.write("log.jsonl", {"step": 4, "evaluation": {"masked_loss": 2.0, "samples": [{"text": "记"}]}})
    log.close()
    assert written == [("loss", 2.5, 4), ("evaluation/masked_loss", 2.0, 4), ("closed", 0, 0)]


def test_a_window_goes_through_a_checkpoint() -> None:
    whole, parts = Window(), Window()
    for step in range(1, 5):
        if step == 3:
            parts = Window(json.loads(json.dumps(parts.state())))
        for window in (whole, parts):
            window.add("masked", torch.tensor(step / 3), torch.tensor(step), 7)
            window.step(step, torch.tensor(step * 0.1), 50)
    line = whole.record({"masked": 1.0})
    assert line == parts.record({"masked": 1.0})
    assert line["tokens"] == 200 and line["masked_accuracy"] == 10 / 28 and line["loss"] == line["masked_loss"]
    assert line["gradient_norm"] == pytest.approx(0.4)


def test_several_batches_and_terms_make_a_step() -> None:
    window = Window()
    for loss, right in ((2.0, 3), (4.0, 1)):
        window.add("masked", torch.tensor(loss, requires_grad=True), torch.tensor(right), 4)
        window.add("next_sentence", torch.tensor(loss / 2), torch.tensor(1), 2)
    window.step(1, torch.tensor(1.0), 20)
    assert window.record({"masked": 1.0, "next_sentence": 0.5}) == {
        "loss": 0.75 + 0.5 * 0.75,
        "masked_loss": 0.75,
        "masked_accuracy": 0.5,
        "next_sentence_loss": 0.75,
        "next_sentence_accuracy": 0.5,
        "gradient_norm": 1.0,
        "tokens": 20,
    }


def test_the_first_step_that_gave_no_number_is_remembered() -> None:
    window = Window()
    for step, norm in ((1, 1.0), (2, math.inf), (3, math.nan)):
        window.step(step, torch.tensor(norm), 1)
    window.settle()
    assert window.lost_at == 2
    assert window.record({})["gradient_norm"] is None, "JSON has no infinity"


def test_a_scale_that_overflows_is_no_fault_but_a_lost_loss_is() -> None:
    window = Window()
    for step, loss in ((1, 1.0), (2, math.nan), (3, 1.0)):
        window.add("masked", torch.tensor(loss), torch.tensor(1), 1)
        window.step(step, torch.tensor(math.inf), 1, overflows=True)
    window.settle()
    assert window.lost_at == 2


def test_not_more_is_put_aside_than_memory_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ASIDE", 3)
    window = Window()
    for step in range(1, 6):
        window.add("masked", torch.tensor(1.0), torch.tensor(1), 1)
        window.step(step, torch.tensor(1.0), 1)
        assert window.sums.get("masked_loss", 0.0) == (3.0 if step >= 3 else 0.0)


def test_the_clock_leaves_out_what_is_not_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("qkv.train.log.time.perf_counter", lambda: now)
    clock = Clock(began=0.0)
    clock.tokens, clock.building, clock.waited, clock.flops = 300, 0.5, 0.25, 100.0
    now = 10.0
    with clock.stopped():
        now = 15.0
    assert clock.lap(peak=50.0) == {
        "seconds": 10.0,
        "tokens_per_second": 30.0,
        "waited_for_batches": 0.025,
        "building_batches": 0.05,
        "share_of_peak": 0.2,
    }
