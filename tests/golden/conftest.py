"""A folder in which every job of material.py is made once, when it is asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.golden.golden import Answer, run_qkv
from tests.golden.material import JOBS, NEEDS, write_material


class Workshop:
    """`answers` holds what the jobs printed with --json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, Answer] = {}
        write_material(folder)

    def make(self, name: str) -> Path:
        for needed in NEEDS.get(name, ()):
            self.make(needed)
        if name not in self.answers:
            answer = run_qkv(f"{JOBS[name]} --json", self.folder)
            assert answer.code == 0, answer.err
            self.answers[name] = answer
        return self.folder / name


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("golden").resolve())


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the user, and one thread: with these sizes more would wait for each other."""
    for name in ("QKV_MODEL", "QKV_VECTORS", "QKV_DATA"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)


@pytest.fixture
def ask(workshop: Workshop) -> Callable[[str], Answer]:
    """A command in the folder of the material."""
    return lambda line: run_qkv(line, workshop.folder)
