"""A zoo with a tiny random model of every kind, and the run of `qkv demo` beside it: the default page of `qkv look`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.look.subject import DEMO_RUN
from qkv.models.folders import hub
from tests.support.below_readers import make_elmo
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import translator
from tests.support.task_folders import task_folder
from tests.support.word_vectors import make_vectors_folder

MAKERS: dict[str, Callable[[Path], Path]] = {
    "qkv-words": make_vectors_folder,
    "qkv-elmo": make_elmo,
    "qkv-gpt": make_gpt,
    "qkv-mini": make_folder,
    "qkv-en-zh": lambda path: translator(path, "transformer").path,
}


def whole_zoo(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `path`/zoo the zoo and `path` the current folder for one test."""
    for name, make in MAKERS.items():
        hub.seal(make(path / "zoo" / name))
    run = path / DEMO_RUN
    task_folder(run / "model", "classify")
    (run / "config.toml").touch()
    monkeypatch.setattr(hub, "FOLDER", path / "zoo")
    monkeypatch.setattr(hub, "MODELS", tuple(MAKERS))
    monkeypatch.delenv("QKV_MODEL", raising=False)
    monkeypatch.chdir(path)
    return path
