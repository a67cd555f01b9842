"""A small pretraining run from text to model: corpus, tokenizer, shards, settings. A second or two in all."""

from pathlib import Path

from qkv.data.corpus.prepare import prepare_corpus
from qkv.models.bert.pretrain import PretrainConfig, configured
from qkv.text.tokenizer import Tokenizer
from qkv.train.progress import Silent
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


def make_config(shards: Path, *changes: str, recipe: Path | None = None) -> PretrainConfig:
    return configured(str(shards), recipe, {}, [*SETTINGS, *changes])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
