"""A small pretraining run from text to model: corpus, tokenizer, shards, settings. A second or two in all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.config import Requested
from qkv.data.corpus.prepare import prepare_corpus
from qkv.jobs.pretrain import resolve_pretraining_settings
from qkv.models.bert.pretrain import PretrainConfig
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent
from tests.support.corpora import documents, write_corpus

DOCUMENTS = 120
SETTINGS = (
    "rows=8",
    "evaluation_rows=16",
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.inner_width=64",
    "pairs.max_length=32",
    "train.steps=6",
    "train.threads=1",
    "train.log_every=2",
    "train.evaluate_every=3",
    "train.save_every=2",
)


class Recorder(Silent):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def make_tokenizer(seed: int = 0, size: int = 140) -> Tokenizer:
    return Tokenizer.train(documents(DOCUMENTS, seed), vocabulary_size=size)


def make_shards(
    folder: Path, count: int = DOCUMENTS, hold_out: float = 0.05, tokenizer: Tokenizer | None = None
) -> Path:
    """folder/corpus.txt and folder/shards."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = write_corpus(folder / "corpus.txt", count)
    prepare_corpus(
        corpus, tokenizer or make_tokenizer(), folder / "shards", hold_out=hold_out, segmenter="none", workers=1
    )
    return folder / "shards"


def configured(
    model: str,
    data: str,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> Any:
    """The settings of a pretraining, as `qkv pretrain` puts them together; the length of a small run gives way to a
    time."""
    if any(one.startswith("train.minutes") for one in settings):
        settings = [one for one in settings if not one.startswith(("train.steps", "train.epochs"))]
    return resolve_pretraining_settings(model, Requested(recipe, {"data": data, **(flags or {})}, settings))


def make_config(shards: Path, *changes: str, recipe: Path | None = None) -> PretrainConfig:
    config = configured("bert", str(shards), recipe, {}, [*SETTINGS, *changes])
    assert isinstance(config, PretrainConfig)
    return config


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
