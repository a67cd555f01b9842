"""A stand-in for the models that come with qkv: the same name and files, tiny random weights in half precision."""

import shutil
from pathlib import Path

import pytest

from qkv.models.bert.folder import save
from qkv.models.folders import hub
from qkv.models.folders.own import add_to_record
from tests.golden.golden import MODELS
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


WHOLE = {
    "qkv-words": "word2vec",
    "qkv-elmo": "elmo",
    "qkv-gpt": "gpt",
    "qkv-sentences": "bert",
    "qkv-mini": "bert",
    "qkv-en-zh": "transformer",
    "qkv-zh-en": "transformer",
    "qkv-en-zh-rnn": "seq2seq",
}
"""Models of the zoo, and the tiny one of tests/golden/models that takes its place."""


def make_zoo(path: Path) -> Path:
    """Write a zoo with all models; return it."""
    for name, kind in WHOLE.items():
        shutil.copytree(MODELS / kind, path / name)
        if hub.ZOO[name].writes:
            languages = {"source_language": hub.ZOO[name].reads[0], "target_language": hub.ZOO[name].writes}
            add_to_record(path / name, languages)
        hub.seal(path / name)
    return path


def use_zoo(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `path` the zoo for one test; return it."""
    monkeypatch.setattr(hub, "FOLDER", path)
    for name in ("QKV_MODEL", "QKV_VECTORS"):
        monkeypatch.delenv(name, raising=False)
    return path
