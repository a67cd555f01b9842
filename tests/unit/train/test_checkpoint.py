"""Checkpoints: whole or not at all, verified, rotated."""

from pathlib import Path

import pytest
import torch

from qkv.errors import InputError
from qkv.train import run_folder

TENSORS = {"model": {"weight": torch.arange(6.0).reshape(2, 3)}, "optimizer": {"weight.step": torch.tensor(3.0)}}


def saved(folder: Path, *steps: int, keep: int = 3) -> list[str]:
    for step in steps:
        run_folder.save_checkpoint(folder, step, TENSORS, {"note": "记", "step": step}, keep=keep)
    return [path.name for path in run_folder.checkpoint_steps(folder)]


def test_there_and_back(tmp_path: Path) -> None:
    saved(tmp_path, 7)
    found = run_folder.latest_checkpoint(tmp_path, pytest.fail)
    assert found is not None
    assert found.step == 7
    assert found.state == {"note": "记", "step": 7}
    assert torch.equal(found.tensors["model"]["weight"], TENSORS["model"]["weight"])
    assert torch.equal(found.tensors["optimizer"]["weight.step"], torch.tensor(3.0))


def test_none_is_none(tmp_path: Path) -> None:
    assert run_folder.latest_checkpoint(tmp_path / "nowhere", pytest.fail) is None


def test_the_oldest_go(tmp_path: Path) -> None:
    assert saved(tmp_path, 1, 2, 3, 4, keep=2) == ["step-00000003", "step-00000004"]


def test_how_far_a_run_has_come(tmp_path: Path) -> None:
    assert run_folder.steps_kept(tmp_path / "nowhere") == 0
    saved(tmp_path / "one" / "checkpoints", 3, 12)
    assert run_folder.steps_kept(tmp_path / "one") == 12
    saved(tmp_path / "several" / "seed-0" / "checkpoints", 6, 9)
    saved(tmp_path / "several" / "seed-1" / "checkpoints", 4)
    assert run_folder.steps_kept(tmp_path / "several") == 13, "a second seed that is lost goes on, too"


def test_the_same_step_may_be_saved_again(tmp_path: Path) -> None:
    assert saved(tmp_path, 5, 5) == ["step-00000005"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_one_is_named_and_the_one_before_used(tmp_path: Path, name: str, damage: str) -> None:
    saved(tmp_path, 1, 2)
    file = tmp_path / "step-00000002" / name
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-5])
    elif damage == "flip":
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    else:
        file.unlink()
    messages: list[str] = []
    found = run_folder.latest_checkpoint(tmp_path, messages.append)
    if name == "state.json" and damage == "flip":
        return  # white space before the last brace may flip into something harmless
    assert found is not None
    assert found.step == 1
    assert len(messages) == 1
    assert "step-00000002" in messages[0]
    assert "damaged" in messages[0]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_later_one_does_not_push_out_a_good_one(tmp_path: Path, keep: int) -> None:
    """The run fell back to step 6 and was stopped at step 7: that is what must stay, not the damaged 9."""
    saved(tmp_path, 6, 9)
    (tmp_path / "step-00000009" / "model.safetensors").write_bytes(b"")
    saved(tmp_path, 7, keep=keep)
    found = run_folder.latest_checkpoint(tmp_path, pytest.fail)
    assert found is not None and found.step == 7
    assert [path.name for path in run_folder.checkpoint_steps(tmp_path)] == ["step-00000006", "step-00000007"][-keep:]


def test_all_damaged_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    (tmp_path / "step-00000001" / "state.json").unlink()
    with pytest.raises(InputError, match="all 1 checkpoints are damaged"):
        run_folder.latest_checkpoint(tmp_path, lambda text: None)


def test_what_a_killed_save_left_is_removed(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    leftover = tmp_path / ".step-00000002.abcd.part"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    assert run_folder.latest_checkpoint(tmp_path, pytest.fail) is not None
    assert not leftover.exists()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "save_file", full)
    with pytest.raises(InputError, match="step-00000002 cannot be written: No space left"):
        run_folder.save_checkpoint(tmp_path, 2, TENSORS, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
