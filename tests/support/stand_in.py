"""A stand-in for the models that come with qkv: the same name and files, tiny random weights in half precision."""

from pathlib import Path

import pytest

from qkv.models.bert.folder import save
from qkv.models.folders import hub
from tests.support.folders import make_model, make_tokenizer

CARD = "---\nlibrary_name: transformers\nlicense: cc-by-sa-4.0\n---\n\n# stand-in\n"


def stand_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `path` the zoo for one test; return the folder of its default model."""
    files = {"README.md": CARD.encode(), "LICENSE": b"CC BY-SA 4.0\n"}
    folder = save(path / hub.DEFAULT_MODEL, make_model().half(), make_tokenizer(), files=files)
    hub.seal(folder)
    monkeypatch.setattr(hub, "FOLDER", path)
    monkeypatch.delenv("QKV_MODEL", raising=False)
    return folder
