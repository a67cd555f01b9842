from pathlib import Path

import torch

from qkv.train import run_folder
from qkv.train.run_folder import Mean, average_checkpoints, checkpoints_to_keep, forget_stops


def test_the_mean_of_the_last_regular_ones(tmp_path: Path) -> None:
    for step in (2, 4, 5, 6, 7):
        tensors = {"model": {"w": torch.tensor([float(step), 1.0])}}
        run_folder.save_checkpoint(tmp_path, step, tensors, {}, keep=9)
    said: list[str] = []

    def mean(count: int, last: int) -> Mean:
        found = average_checkpoints(tmp_path, count, 2, last, said.append)
        assert found is not None
        return found

    # 5 was written when somebody stopped the run; 7 is the last step
    torch.testing.assert_close(mean(3, 7).weights["w"], torch.tensor([17 / 3, 1.0]))
    torch.testing.assert_close(mean(2, 6).weights["w"], torch.tensor([5.0, 1.0]))
    assert said == [] and mean(2, 6).count == 2
    torch.testing.assert_close(mean(9, 7).weights["w"], torch.tensor([19 / 4, 1.0]))
    assert said == ["note: averaged 4 checkpoints instead of 9: no more were kept"]
    assert mean(9, 7).count == 4
    assert average_checkpoints(tmp_path, 1, 2, 7, said.append) is None
    assert average_checkpoints(tmp_path / "none", 3, 2, 7, said.append) is None and "save more often" in said[-1]
    assert checkpoints_to_keep(1) == 1 and checkpoints_to_keep(5) > 5


def test_stops_push_out_nothing_that_the_mean_is_of(tmp_path: Path) -> None:
    """Stopped after every step, each time gone on with."""
    for step in range(1, 41):
        forget_stops(tmp_path, 10)
        run_folder.save_checkpoint(
            tmp_path, step, {"model": {"w": torch.tensor([float(step)])}}, {}, keep=checkpoints_to_keep(3)
        )
    found = average_checkpoints(tmp_path, 3, 10, 40, lambda said: None)
    assert found is not None and found.count == 3 and found.weights["w"].item() == 30
    forget_stops(tmp_path, 10)
    assert [path.name[-2:] for path in run_folder.checkpoint_steps(tmp_path)] == ["10", "20", "30", "39", "40"]
