"""The notes' example on trained models: "Python" that bites and Python that is written are one word to word2vec, two to
ELMo."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from qkv.cli.main import main
from tests.bench_modules import bench_module

readers, probes = bench_module("probe_readers"), bench_module("probes")
pytestmark = pytest.mark.usefixtures("one_thread")

SNAKE = (
    ("He", "She", "The farmer", "My dog", "A boy"),
    ("got bit by", "ran away from", "was afraid of", "saw", "fed"),
    ("Python", "a snake", "the spider", "a cobra"),
    ("in the grass .", "in the forest .", "near the river .", "in the zoo ."),
)
LANGUAGE = (
    ("Python", "Java", "Fortran", "C"),
    ("is my favorite", "is an old", "became a popular", "is the first"),
    ("programming language", "language for code", "tool for software"),
    ("at work .", "of our company .", "in the course .", "since then ."),
)
SENTENCES = ("He got bit by Python in the zoo .", "She saw Python near the river .", *(
    "Python is my favorite programming language at work .", "Python became a popular tool for software since then .",
))  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word2vec and an ELMo, trained on the same text."""
    folder = tmp_path_factory.mktemp("polysemy")
    texts = [" ".join(words) for kind in (SNAKE, LANGUAGE) for words in itertools.product(*kind)]
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    (folder / "corpus.txt").write_text("\n\n".join(texts[number] for number in order), encoding="utf-8")

    def qkv(*words: object) -> None:
        assert main([str(word) for word in words]) == 0

    settings = ("kind", "word"), ("vocab-size", 100), ("min-frequency", 1), ("cased", None)
    flags = [word for name, value in settings for word in (f"--{name}", value) if word is not None]
    qkv("tokenizer", "train", folder / "corpus.txt", "--out", folder / "words", *flags)
    qkv("prepare", folder / "corpus.txt", "-t", folder / "words", "-o", folder / "shards", "--workers", 1)
    few = ["model.filters=[8, 8, 8]", "model.width=16", "model.cell_width=32", "model.dropout=0", "rows=8"]
    few += ["text.length=16", "train.steps=80", "train.lr=0.01", "train.threads=1"]
    given = [word for one in few for word in ("--set", one)]
    qkv("pretrain", "elmo", "--data", folder / "shards", "--out", folder / "elmo", *given)
    given = ["--set", "train.epochs=3", "--set", "train.threads=1", "--set", "model.width=16"]
    qkv("pretrain", "word2vec", "--data", folder / "shards", "--out", folder / "word2vec", *given)
    return folder


def vectors(folder: Path) -> Tensor:
    """(4, K, D)"""
    reader = readers.open_reader(folder, torch.device("cpu"))
    sentences = [sentence.split() for sentence in SENTENCES]
    found: Tensor = reader.read(sentences, [[words.index("Python")] for words in sentences])
    return found


def cosines(vectors: Tensor) -> Tensor:
    return functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)


def test_one_vector_of_word2vec(folder: Path) -> None:
    found = vectors(folder / "word2vec")
    assert found.abs().sum() > 0 and (found == found[0]).all()
    assert probes.python_twice(readers.open_reader(folder / "word2vec", torch.device("cpu"))) == pytest.approx([1.0])


def test_two_vectors_of_elmo(folder: Path) -> None:
    found = vectors(folder / "elmo")
    torch.testing.assert_close(found[:, 0], found[:1, 0].expand(4, -1))  # the lowest layer sees the spelling alone
    snake, snake_too, language, language_too = range(4)
    for layer in (1, 2):
        alike = cosines(found[:, layer])
        within = min(alike[snake, snake_too], alike[language, language_too])
        across = alike[[snake, snake_too]][:, [language, language_too]].max()
        assert within > across + 0.1, f"layer {layer}: {alike}"
