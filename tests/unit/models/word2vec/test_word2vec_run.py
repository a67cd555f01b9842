"""A word2vec run from shards to a folder: what it leaves, that it learns, that it can be stopped, what it refuses."""

import json
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.api.vector_scores import load_vectors
from qkv.data.corpus.prepare import prepare_corpus
from qkv.errors import InputError
from qkv.jobs import pretrain as job
from qkv.models.folders.own import read_folder
from qkv.models.word2vec.learners import Word2VecConfiguration
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent
from qkv.train.run_folder import read_lines
from tests.support.small_run import Recorder, configured, contents

pytestmark = pytest.mark.usefixtures("one_thread")

THINGS = ["cat dog horse".split(), "红 绿 蓝".split(), "paris london rome".split()]
ABOUT = ["runs eats sleeps fur".split(), "颜 色 光 亮".split(), "city river bridge capital".split()]
# the shape of the kernel is that of test_word2vec_numba.py, so that it is compiled once
SETTINGS = (
    "model.width=10",
    "sampling.window=2",
    "sampling.negatives=2",
    "sampling.subsample=0",
    "train.chunk=200",
    "train.threads=1",
    "train.epochs=2",
    "train.lr=0.05",
    "train.log_every=4",
    "train.evaluate_every=6",
    "train.save_every=5",
)
KERNELS = [
    pytest.param("numba", marks=pytest.mark.skipif(find_spec("numba") is None, reason="the extra fast")),
    "torch",
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences about one of three things; a word of a thing stands among words that are said of its kind."""
    folder = tmp_path_factory.mktemp("word2vec")
    draw = np.random.default_rng(0)
    documents = []
    for _ in range(120):
        lines = []
        for _ in range(5):
            kind = int(draw.integers(3))
            lines.append(" ".join(draw.permutation([draw.choice(THINGS[kind]), *draw.choice(ABOUT[kind], 3)])))
        documents.append("\n".join(lines))
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.train(documents, kind="word", vocabulary_size=100)
    prepare_corpus(folder / "corpus.txt", tokenizer, folder / "shards", hold_out=0.05, segmenter="none", workers=1)
    return folder / "shards"


def made(shards: Path, *changes: str) -> Word2VecConfiguration:
    return configured("word2vec", str(shards), None, {}, [*SETTINGS, *changes])


def cosine(run: Path, first: str, second: str) -> float:
    folder = read_folder(run / "model", "word2vec")
    one, other = (folder.tensors["embedding"][folder.tokenizer.vocabulary[word]] for word in (first, second))
    return float(torch.cosine_similarity(one, other, dim=0))


@pytest.mark.parametrize("kernel", KERNELS)
def test_words_of_a_kind_come_together(shards: Path, tmp_path: Path, kernel: str) -> None:
    run = tmp_path / "run"
    changes = [
        "train.epochs=12",
        "train.lr=0.2",
        "train.windows=64",
        "train.save_every=999",
        "train.evaluate_every=999",
    ]
    finished = job.start(made(shards, f"train.kernel={kernel}", *changes), run, Silent())
    assert finished.outcome.finished
    for near, far in (("dog", "rome"), ("horse", "红"), ("dog", "london")):
        assert cosine(run, "cat", near) > 0.5 + cosine(run, "cat", far)
    lines = [line for line in read_lines(run / "log.jsonl") if "loss" in line]
    assert lines[-1]["loss"] < 0.75 * lines[0]["loss"]
    assert finished.evaluation is not None and finished.evaluation["loss"] < lines[0]["loss"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_it_leaves(shards: Path, tmp_path: Path, kernel: str) -> None:
    run, recorder = tmp_path / "run", Recorder()
    finished = job.start(made(shards, f"train.kernel={kernel}"), run, recorder)
    folder = read_folder(run / "model", "word2vec")
    assert set(folder.tensors) == {"embedding"}  # the Context matrix has done its work
    embedding = folder.tensors["embedding"]
    assert embedding.shape == (folder.tokenizer.size, 10) and embedding.dtype == torch.float32
    assert not embedding[:5].any() and embedding[5:].any(1).all()
    assert folder.config["architecture"] == "skipgram" and folder.config["window"] == 2
    assert folder.record["config"]["train"]["kernel"] == kernel
    assert job.read_model_name(run) == "word2vec"
    steps = [line["step"] for line in read_lines(run / "log.jsonl") if "loss" in line]
    assert steps == [*range(4, finished.steps, 4), finished.steps]
    tokens = sum(line["tokens"] for line in read_lines(run / "log.jsonl") if "tokens" in line)
    manifest = json.loads((shards / "manifest.json").read_text(encoding="utf-8"))
    assert tokens == 2 * manifest["train"]["tokens"]
    near = [line["evaluation"]["neighbours"][0] for line in read_lines(run / "log.jsonl") if "evaluation" in line]
    assert near[0]["word"] == near[-1]["word"] and len(near[0]["near"]) == 5
    assert "held-out loss" in recorder.messages[-1]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "A map of the most frequent words" in page and ">london</text>" in page and ">蓝</text>" in page
    assert job.resume(run, Silent()).already


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_run_that_was_stopped_ends_with_the_same_bytes(shards: Path, tmp_path: Path, kernel: str) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    job.start(made(shards, f"train.kernel={kernel}", "train.keep=100"), whole, Silent())
    shutil.copytree(whole, stopped)
    for later in sorted((stopped / "checkpoints").iterdir())[2:]:  # as if it had been killed after the second
        shutil.rmtree(later)
    shutil.rmtree(stopped / "model")
    (stopped / "sessions.jsonl").unlink()
    with (stopped / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"step": 99')
    finished = job.resume(stopped, Silent())
    assert finished.outcome.started == 10 and finished.outcome.finished
    clocked = ("timing.jsonl", "sessions.jsonl", "report.html")
    first, second = (
        {name: content for name, content in contents(run).items() if name not in clocked} for run in (whole, stopped)
    )
    assert first == second


def test_whole_words_out_of_pieces(tmp_path: Path) -> None:
    """Shards of 汉字 with the words of a segmenter: the vectors are of words."""
    (tmp_path / "corpus.txt").write_text("我爱北京。北京爱我。\n\n" * 20, encoding="utf-8")
    tokenizer = Tokenizer.train(["我爱北京。"] * 2, vocabulary_size=50)
    shards = tmp_path / "shards"
    prepare_corpus(tmp_path / "corpus.txt", tokenizer, shards, segmenter=by_hand, workers=1, hold_out=0.1)
    whole = tmp_path / "run"
    job.start(made(shards, "words=whole", "min_count=2", "train.kernel=torch", "train.chunk=50"), whole, Silent())
    folder = read_folder(whole / "model", "word2vec")
    assert set(list(folder.tokenizer.vocabulary)[5:]) == {"我", "爱", "北京", "。"}
    assert folder.tensors["embedding"].shape == (9, 10) and "by_hand" in folder.config["segmenter"]
    before = contents(whole / "model")
    shutil.rmtree(whole / "model")
    job.resume(whole, Silent())
    assert contents(whole / "model") == before


def test_rare_words_and_unseen_ones_get_no_vector(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the cat sees the dog\nthe dog sees the cat\n\n" * 9 + "the emu\n\n")
    tokenizer = Tokenizer.train(["the cat sees the dog emu yak"] * 2, kind="word", vocabulary_size=50)
    prepare_corpus(tmp_path / "corpus.txt", tokenizer, tmp_path / "shards", hold_out=0, segmenter="none", workers=1)
    for number, (changes, words) in enumerate(
        (
            ((), {"the", "cat", "dog", "sees", "emu"}),
            (("min_count=2",), {"the", "cat", "dog", "sees"}),
            (("vocabulary_size=10", "min_count=20"), {"the"}),
        )
    ):
        run = tmp_path / f"run{number}"
        made_of = made(tmp_path / "shards", "train.kernel=torch", "train.epochs=1", *changes)
        job.start(replace(made_of, train=replace(made_of.train, evaluate_every=None)), run, Silent())
        vectors = load_vectors(run)
        assert set(vectors.words) == words
        folder = read_folder(run / "model")
        assert len(folder.tensors["embedding"]) == folder.tokenizer.size and folder.record["words"] == len(words)
        assert f"{len(words)} words" in (run / "report.html").read_text(encoding="utf-8")
        assert len([line for line in read_lines(run / "log.jsonl") if "evaluation" in line]) > 0
        with pytest.raises(InputError, match="never seen in training"):
            vectors.row("yak")


def by_hand(text: str) -> list[str]:
    return [part for part in re.split("(北京)", text) for part in ([part] if part == "北京" else part)]


@pytest.mark.skipif(find_spec("numba") is None, reason="the extra fast")
def test_several_threads(shards: Path, tmp_path: Path) -> None:
    finished = job.start(made(shards, "train.threads=2", "train.epochs=3"), tmp_path / "run", Silent())
    assert finished.outcome.finished and finished.outcome.step == finished.steps
    assert torch.isfinite(read_folder(tmp_path / "run" / "model").tensors["embedding"]).all()


def test_ctrl_c_saves_and_stops(shards: Path, tmp_path: Path) -> None:
    class Impatient(Silent):
        def step(self, step: int, figures: Mapping[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    run = tmp_path / "run"
    finished = job.start(made(shards, "train.kernel=torch"), run, Impatient())
    assert not finished.outcome.finished and finished.outcome.signal == signal.SIGINT and finished.outcome.step == 4
    assert not (run / "model").exists()
    again = job.resume(run, Silent())
    assert again.outcome.started == 4 and again.outcome.finished and (run / "model").exists()


def test_minutes_become_steps_once(shards: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    finished = job.start(
        made(shards, "train.kernel=torch", "train.minutes=0.005", "train.evaluate_every=1000"), tmp_path / "r", recorder
    )
    assert "0.005 minutes are" in recorder.messages[0] and finished.outcome.finished
    assert f"steps = {finished.steps}\n" in (tmp_path / "r" / "config.toml").read_text(encoding="utf-8")


def test_what_cannot_be_trained(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*changes: str, data: Path = shards) -> str:
        with pytest.raises(InputError) as caught:
            job.start(made(data, *changes), tmp_path / "run", Silent())
        assert not (tmp_path / "run" / "model").exists()
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return str(caught.value)

    assert "window is 9, and the longest sentence of" in refused("sampling.window=9")
    assert "set it to 3 at most" in refused("sampling.window=9")
    assert "there is no folder" in refused(data=tmp_path / "none")
    assert "not a number any more at step 4 (train.lr is 1e+30)" in refused("train.kernel=torch", "train.lr=1e30")
    assert "occurs 99999 times: give more text, or a lower min_count" in refused("min_count=99999")
    monkeypatch.setattr("qkv.models.word2vec.learners.find_spec", lambda name: None)
    assert "pip install 'qkv[fast]'" in refused("train.kernel=numba")


@pytest.mark.skipif(find_spec("numba") is None, reason="the extra fast")
def test_a_run_that_goes_on_where_numba_is_not(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.start(made(shards, "train.kernel=numba"), tmp_path / "run", Silent())
    shutil.rmtree(tmp_path / "run" / "model")
    monkeypatch.setattr("qkv.models.word2vec.learners.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'qkv\[fast\]'"):
        job.resume(tmp_path / "run", Silent())


def test_without_numba_torch_trains_and_says_so(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.models.word2vec.learners.find_spec", lambda name: None)
    recorder = Recorder()
    job.start(made(shards, "train.epochs=0.1"), tmp_path / "run", recorder)
    assert "numba is not installed" in recorder.messages[0]
    assert 'kernel = "torch"' in (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")


def test_text_without_neighbours(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("cat\n\ndog\n\ncat\n\ndog\n", encoding="utf-8")
    tokenizer = Tokenizer.train(["cat dog cat dog"], kind="word", vocabulary_size=10)
    prepare_corpus(tmp_path / "corpus.txt", tokenizer, tmp_path / "shards", hold_out=0, segmenter="none", workers=1)
    with pytest.raises(InputError, match="has two words, so no word has a neighbour"):
        job.start(made(tmp_path / "shards"), tmp_path / "run", Silent())
    other = Tokenizer.train(["bird bird"], kind="word", vocabulary_size=10)
    prepare_corpus(tmp_path / "corpus.txt", other, tmp_path / "others", hold_out=0, segmenter="none", workers=1)
    with pytest.raises(InputError, match="no words to learn"):
        job.start(made(tmp_path / "others"), tmp_path / "run", Silent())


def test_a_corpus_that_was_prepared_anew(shards: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(shards, tmp_path / "shards"))
    job.start(made(data, "train.kernel=torch"), tmp_path / "run", Silent())
    shutil.rmtree(tmp_path / "run" / "model")
    manifest = data / "manifest.json"
    manifest.write_text(manifest.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="not what the run was begun with"):
        job.resume(tmp_path / "run", Silent())
