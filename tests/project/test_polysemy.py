"""The notes' example on trained models: "Python" that bites and Python that is written are one word to word2vec, two to
ELMo.

Either Python opens a sentence or stands inside of it, and no sentence that is asked for was in the training text: it is
neither the position nor the sentence by heart that tells them apart.
"""

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from qkv.cli.main import main
from tests.support.bench_modules import bench_module

readers, probes = bench_module("probe_readers"), bench_module("probes")
pytestmark = pytest.mark.usefixtures("one_thread")

PEOPLE = ("He", "She", "The farmer")
PLACES = ("in the grass", "near the river", "outside")
USES = ("at work", "in our company", "every day")
SNAKE = (
    (PEOPLE, ("got bit by", "ran from", "saw"), ("Python", "a snake", "the spider"), PLACES),
    (("Python", "A snake", "The spider"), ("bit him", "hid from her", "ate a mouse"), PLACES),
)
LANGUAGE = (
    (PEOPLE, ("writes code in", "learned", "builds software with"), ("Python", "Java", "Fortran"), USES),
    (("Python", "Java", "Fortran"), ("is my favorite", "became a popular"), ("programming language", "tool"), USES),
)
SENTENCES = {  # sense and place of the word → two sentences
    ("snake", "inside"): ("He got bit by Python in the grass", "She saw Python near the river"),
    ("snake", "first"): ("Python bit him in the grass", "Python ate a mouse outside"),
    ("language", "inside"): ("She writes code in Python at work", "The farmer learned Python in our company"),
    ("language", "first"): (
        "Python is my favorite programming language at work",
        "Python became a popular tool every day",
    ),
}


def training_texts() -> list[str]:
    """Two sentences of one sense run on, so that what comes before a Python that opens one depends on its sense."""
    asked = {sentence for pair in SENTENCES.values() for sentence in pair}
    generator = torch.Generator().manual_seed(0)
    texts: list[str] = []
    for templates in (SNAKE, LANGUAGE):
        every = [" ".join(words) for parts in templates for words in itertools.product(*parts)]
        assert len(asked & set(every)) == 4, "they could have been drawn"
        first, second = (
            [every[number] for number in torch.randperm(len(every), generator=generator).tolist()] for _ in range(2)
        )
        texts += [f"{one} {other}" for one, other in zip(first, second, strict=True) if not {one, other} & asked]
    return [texts[number] for number in torch.randperm(len(texts), generator=generator).tolist()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word2vec and an ELMo, trained on the same text."""
    folder = tmp_path_factory.mktemp("polysemy")
    (folder / "corpus.txt").write_text("\n\n".join(training_texts()), encoding="utf-8")

    def qkv(*words: object) -> None:
        assert main([str(word) for word in words]) == 0

    settings = ("kind", "word"), ("vocab-size", 100), ("min-frequency", 1), ("cased", None)
    flags = [word for name, value in settings for word in (f"--{name}", value) if word is not None]
    qkv("tokenizer", "train", folder / "corpus.txt", "--out", folder / "words", *flags)
    qkv("prepare", folder / "corpus.txt", "-t", folder / "words", "-o", folder / "shards", "--workers", 1)
    few = ["model.filters=[8, 8]", "model.width=16", "model.cell_width=32", "model.dropout=0", "rows=32"]
    few += ["text.length=8", "train.steps=120", "train.lr=0.03", "train.threads=1"]
    given = [word for one in few for word in ("--set", one)]
    qkv("pretrain", "elmo", "--data", folder / "shards", "--out", folder / "elmo", *given)
    given = ["--set", "train.epochs=1", "--set", "train.threads=1", "--set", "model.width=16"]
    qkv("pretrain", "word2vec", "--data", folder / "shards", "--out", folder / "word2vec", *given)
    return folder


def vectors(folder: Path) -> Tensor:
    """(2 senses, 2 places, 2 sentences, K, D)"""
    reader = readers.open_reader(folder, torch.device("cpu"))
    sentences = [sentence.split() for pair in SENTENCES.values() for sentence in pair]
    found: Tensor = reader.read(sentences, [[words.index("Python")] for words in sentences])
    return found.unflatten(0, (2, 2, 2))


def test_as_a_user_sees_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The notes' two sentences, through `qkv embed --tokens`."""
    sentences = ("He got bit by Python", "Python is my favorite programming language")

    def python_twice(model: Path, *flags: str) -> list[float]:
        assert main(["embed", "--tokens", "--json", *flags, "--model", str(model), *sentences]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        one, other = (
            torch.tensor(next(token["vector"] for token in line["tokens"] if token["token"] == "Python"))
            for line in lines
        )
        return [float(functional.cosine_similarity(one, other, dim=0)), float((one - other).abs().max())]

    assert python_twice(folder / "word2vec") == pytest.approx([1, 0])
    assert python_twice(folder / "elmo", "--layer", "0") == pytest.approx([1, 0], abs=1e-5)
    assert python_twice(folder / "elmo", "--layer", "2")[0] < 0.95
    assert python_twice(folder / "elmo")[1] > 0.01


def cosines(some: Tensor, others: Tensor) -> Tensor:
    """Of each of some, (…, D), with each of the others."""
    return functional.cosine_similarity(some.flatten(0, -2)[:, None], others.flatten(0, -2)[None], dim=-1)


def test_one_vector_of_word2vec(folder: Path) -> None:
    found = vectors(folder / "word2vec")
    assert found.abs().sum() > 0 and (found == found[0, 0, 0]).all()
    assert probes.python_twice(readers.open_reader(folder / "word2vec", torch.device("cpu"))) == pytest.approx([1.0])


def test_two_vectors_of_elmo(folder: Path) -> None:
    found = vectors(folder / "elmo")
    spelled = found[..., 0, :]
    torch.testing.assert_close(spelled, spelled[:1, :1, :1].expand_as(spelled))  # the lowest layer sees no sentence
    for layer, margin in ((1, 0.03), (2, 0.1)):
        snake, language = found[..., layer, :]  # (2 places, 2 sentences, D)
        for place, where in enumerate(("inside", "first")):
            within = [cosines(sense[place, :1], sense[place, 1:]).mean() for sense in (snake, language)]
            across = cosines(snake[place], language[place]).mean()
            assert min(within) > across + margin, f"layer {layer}, {where}: {within} within, {across} across"
    # in the highest layer a sense is also nearer to itself at the other place than to the other sense there
    snake, language = found[..., 2, :]
    same = (cosines(*snake).mean() + cosines(*language).mean()) / 2
    other = (cosines(snake[0], language[1]).mean() + cosines(snake[1], language[0]).mean()) / 2
    assert same > other + 0.03, f"from place to place: {same} within, {other} across"
