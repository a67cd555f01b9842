import time
from pathlib import Path

import torch

from qkv.train.run_folder import Outcome, Sessions


def test_what_several_sessions_add_up_to(tmp_path: Path) -> None:
    none = Sessions.of(tmp_path)
    assert (none.lines, none.reached, none.seconds, none.peak_memory, none.resumed_from) == ((), 0, 0, None, ())
    for started, step in ((0, 40), (40, 40), (40, 100)):
        outcome = Outcome(started, step, finished=step == 100)
        Sessions.of(tmp_path).ended(outcome, time.perf_counter() - 2, torch.device("cpu")).write(tmp_path)
    all_of_them = Sessions.of(tmp_path)
    assert all_of_them.reached == 100 and all_of_them.resumed_from == (40, 40)
    assert all_of_them.seconds >= 6 and (all_of_them.peak_memory or 0) > 1 << 20
    assert list(all_of_them.lines[0]) == ["from", "to", "seconds", "peak_memory"]


def test_memory_that_nobody_counts() -> None:
    lines = ({"from": 0, "to": 3, "seconds": 1.0, "peak_memory": None},)
    assert Sessions(lines).peak_memory is None
