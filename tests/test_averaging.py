from pathlib import Path

import torch

from qkv.run.averaging import averaged, kept_for
from qkv.train import checkpoint


def test_the_mean_of_the_last_regular_ones(tmp_path: Path) -> None:
    for step in (2, 4, 5, 6, 7):
        tensors = {"model": {"w": torch.tensor([float(step), 1.0])}}
        checkpoint.save(tmp_path, step, tensors, {}, keep=9)
    said: list[str] = []
    # 5 was written when somebody stopped the run; 7 is the last step
    torch.testing.assert_close(averaged(tmp_path, 3, 2, 7, said.append)["w"], torch.tensor([17 / 3, 1.0]))
    torch.testing.assert_close(averaged(tmp_path, 2, 2, 6, said.append)["w"], torch.tensor([5.0, 1.0]))
    assert said == []
    torch.testing.assert_close(averaged(tmp_path, 9, 2, 7, said.append)["w"], torch.tensor([19 / 4, 1.0]))
    assert said == ["note: the mean is that of 4 checkpoints, not of 9: no more were kept"]
    assert averaged(tmp_path, 1, 2, 7, said.append) == {}
    assert averaged(tmp_path / "none", 3, 2, 7, said.append) == {} and "save more often" in said[-1]
    assert kept_for(1) == 1 and kept_for(5) > 5
