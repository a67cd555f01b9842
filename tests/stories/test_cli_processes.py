"""Training verbs on several processes: what they write is what one process writes; messages, locks and dead processes.

A resumed run reads nothing but its config.toml, so a copy of that file, resumed by one process, is the same run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from qkv.cli.main import main
from qkv.train.run_folder import LOCK, lock_run, read_lines
from tests.support.folders import make_folder
from tests.support.forks import ENVIRONMENT
from tests.support.ranks import Ranks
from tests.support.small_run import SETTINGS, make_shards
from tests.support.translation_runs import SETTINGS as PAIR_SETTINGS
from tests.support.translation_runs import SMALL, digit_files

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are those of Unix")
SAMPLED = {"QKV_LOG_SAMPLES": "1"}
WORDS = "the cat dog sat on mat he owes me money paris street 我 你 他 爱 吃 鱼 猫 狗".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards, a tiny BERT, labelled texts, and pairs of texts."""
    folder = tmp_path_factory.mktemp("processes")
    make_shards(folder)
    make_folder(folder / "bert")
    draw = np.random.default_rng(0)

    def text() -> str:
        return " ".join(draw.choice(WORDS, draw.integers(3, 12)))

    labelled = [(text(), ("ja", "nein")[number % 2]) for number in range(80)]
    (folder / "texts.csv").write_text("text,label\n" + "".join(f"{a} {b},{b}\n" for a, b in labelled))
    (folder / "pairs.tsv").write_text("".join(f"{text()}\t{text()}\n" for _ in range(120)))
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Iterator[Ranks]:
    ranks = Ranks(folder)
    yield ranks
    ranks.close()


def assigned(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def check_as_one(ranks: Ranks, run: Path, *verb: str, size: int = 1) -> None:
    """The run ends as with another number of processes, up to rounding, on the same samples."""
    again = run.with_name(f"{run.name}-again")
    again.mkdir()
    shutil.copy(run / "config.toml", again)
    if (run / "pairs").exists():
        shutil.copytree(run / "pairs", again / "pairs")
    ended = ranks.qkv(size, *verb, "--resume", again, environment=SAMPLED)
    assert ended.codes == [0] * size, ended.said
    assert (again / "samples.jsonl").read_bytes() == (run / "samples.jsonl").read_bytes()
    one, other = log_of(run), log_of(again)
    assert [line["step"] for line in one] == [line["step"] for line in other]
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (one, other)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for name in ("model/config.json", "report.html"):
        assert (again / name).is_file() and (run / name).is_file()
    assert not (run / LOCK).exists()


@pytest.mark.parametrize("model", ["rnnlm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("elmo", "gpt"))])
def test_pretrain(ranks: Ranks, folder: Path, tmp_path: Path, model: str) -> None:
    """Carried states of recurrent models belong to streams, which several processes share."""
    sizes = {
        "rnnlm": ("rnnlm.width=16", "rnnlm.cell_width=16", "text.length=8", "rnnlm.tied=false", "rnnlm.layers=1"),
        "elmo": ("model.size=mini", "text.length=8", "negatives=40"),
        "gpt": ("model.layers=1", "model.width=16", "model.heads=2", "length=24"),
    }
    shared = [one for one in SETTINGS if one.startswith("train.")]
    settings = [*shared, "rows=6", "evaluation_tokens=300", *sizes[model]]
    words = ["pretrain", model, "--data", folder / "shards", "--out", tmp_path / "run", *assigned(settings)]
    ended = ranks.qkv(3, *words, environment=SAMPLED)
    assert ended.codes == [0, 0, 0], ended.said
    assert "3 processes: the 6 rows of a step are 3 batches of 2 (rows = 2, train.accumulate = 3)" in ended.said[0]
    assert "rows = 2\n" in (tmp_path / "run" / "config.toml").read_text()
    assert ended.said[1] == ended.said[2] == ""
    check_as_one(ranks, tmp_path / "run", "pretrain")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "gpt"])
def test_pretrain_with_divided_weights(ranks: Ranks, folder: Path, tmp_path: Path, model: str) -> None:
    sizes = {"bert": (), "gpt": ("length=24", "rows=6", "evaluation_tokens=300")}
    shared = SETTINGS if model == "bert" else [one for one in SETTINGS if one.startswith("train.")]
    settings = [*shared, *sizes[model], "model.layers=2", "model.width=16", "model.heads=2"]
    settings += ["train.shard=true", "train.optimizer=muon", "train.recompute=true"]
    words = ["pretrain", model, "--data", folder / "shards", "--out", tmp_path / "run", *assigned(settings)]
    ended = ranks.qkv(2, *words, environment=SAMPLED)
    assert ended.codes == [0, 0], ended.said
    check_as_one(ranks, tmp_path / "run", "pretrain")
    for part in ("run", "run-again"):
        shown = json.loads((tmp_path / part / "model" / "config.json").read_text())
        assert shown["model_type"] == ("bert" if model == "bert" else "gpt2")
    check_weights_alike(*(tmp_path / part / "model" / "model.safetensors" for part in ("run", "run-again")))


def check_weights_alike(one: Path, other: Path) -> None:
    first, second = load_file(one), load_file(other)
    assert first.keys() == second.keys()
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, rtol=1e-3, atol=1e-4)


def test_finetune_with_divided_weights(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    """The best seed is read from its checkpoint, which two processes have written, by the first of them alone."""
    words = ["finetune", "classify", "--model", folder / "bert", "--train", folder / "texts.csv", "--seeds", 2]
    words += ["--out", tmp_path / "run", "--epochs", 2, "--transfer", "top:1"]
    ended = ranks.qkv(2, *words, *assigned(["train.threads=1", "train.shard=true"]))
    assert ended.codes == [0, 0], ended.said
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(tmp_path / "run" / "config.toml", again)
    alone = ranks.qkv(1, "finetune", "--resume", again)
    assert alone.codes == [0] and "train.shard has no effect on one process" in alone.said[0]
    other = json.loads((again / "result.json").read_text())
    assert other["seeds"]["values"] == pytest.approx(found["seeds"]["values"], abs=1e-4)
    assert other["seeds"]["best"] == found["seeds"]["best"]
    check_weights_alike(*(run / "model" / "model.safetensors" for run in (tmp_path / "run", again)))


def test_finetune_with_several_seeds(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    words = ["finetune", "classify", "--model", folder / "bert", "--train", folder / "texts.csv", "--seeds", 2]
    words += ["--out", tmp_path / "run", "--epochs", 2, "--set", "train.threads=1", "--json"]
    ended = ranks.qkv(2, *words)
    assert ended.codes == [0, 0], ended.said
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(tmp_path / "run" / "config.toml", again)
    assert ranks.qkv(1, "finetune", "--resume", again).codes == [0]
    other = json.loads((again / "result.json").read_text())
    assert other["seeds"]["values"] == pytest.approx(found["seeds"]["values"], abs=1e-4)
    assert [line["seed"] for line in read_lines(again / "sessions.jsonl")] == [0, 1]
    assert [line["seed"] for line in read_lines(tmp_path / "run" / "sessions.jsonl")] == [0, 1]
    refused = ranks.qkv(2, *words[:-3], "--transfer", "features", "--overwrite")
    assert refused.codes == [2, 2] and "leave out --processes" in refused.said[0]


def test_translate(ranks: Ranks, tmp_path: Path) -> None:
    files = digit_files(tmp_path / "digits")
    given = ["--pairs", files["train"], "--dev", files["dev"], "--test", files["test"]]
    settings = assigned([*PAIR_SETTINGS, *SMALL["transformer"], "select=loss", "average=2"])
    words = ["train", "translate", "--model", "transformer", *given, "--out", tmp_path / "run", *settings]
    ended = ranks.qkv(2, *words, environment=SAMPLED)
    assert ended.codes == [0, 0], ended.said
    assert "2 processes: a step of 128 tokens is 2 batches (tokens_per_batch = 64" in ended.said[0]
    check_as_one(ranks, tmp_path / "run", "train", "translate")


def test_sentence_vectors(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    """All pairs of a step are compared with each other, whoever computed their vectors; with dropout."""
    settings = ["batch=16", "train.threads=1", "train.log_every=2", "train.evaluate_every=3", "dropout=0.1"]
    words = ["train", "embed", "--model", folder / "bert", "--data", folder / "pairs.tsv", "--steps", 6]
    ended = ranks.qkv(2, *words, "--out", tmp_path / "run", *assigned(settings), environment=SAMPLED)
    assert ended.codes == [0, 0], ended.said
    check_as_one(ranks, tmp_path / "run", "train", "embed")


def test_word_vectors_are_refused(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    ended = ranks.qkv(2, "pretrain", "word2vec", "--data", folder / "shards", "--out", tmp_path / "run")
    assert ended.codes == [2, 2]
    assert "word2vec trains in one process, with a thread for each core" in ended.said[0]
    assert not (tmp_path / "run").exists()


def test_a_finished_run_and_one_in_use(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["pretrain", "bert", "--data", folder / "shards", "--out", run, *assigned(SETTINGS)]
    assert ranks.qkv(1, *words).codes == [0]
    done = ranks.qkv(2, "pretrain", "--resume", run)
    assert done.codes == [0, 0] and "is finished: 6 steps" in done.said[0]
    (run / "sessions.jsonl").unlink()
    with lock_run(run):
        used = ranks.qkv(2, "pretrain", "--resume", run)
    assert used.codes[0] == 2 and f"Another process works on {run} (process {os.getpid()} on" in used.said[0]
    resumed = ranks.qkv(2, "pretrain", "--resume", run)
    assert resumed.codes == [0, 0]
    note = "note: the run was saved by 1 process and resumes with 2: the same samples, masks and order, equal up to"
    assert note in resumed.said[0]


def test_wrong_numbers(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["pretrain", "bert", "--data", str(folder / "shards"), "--out", str(tmp_path / "run")]
    assert main([*words, "--processes", "0"]) == 2
    assert "--processes must be 1 or more, not 0." in capfd.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(words) == 2
    assert "The environment has WORLD_SIZE, but no RANK. Start several processes with" in capfd.readouterr().err
    monkeypatch.setenv("RANK", "0")
    assert main([*words, "--processes", "2"]) == 2
    assert "leave out --processes" in capfd.readouterr().err


def test_more_processes_than_rows(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    words = ["pretrain", "bert", "--data", folder / "shards", "--out", tmp_path / "run", *assigned(SETTINGS)]
    ended = ranks.qkv(2, *words, "--set", "rows=1")
    assert ended.codes == [2, 2] and "A step has 1 row, fewer than the 2 processes." in ended.said[0]


# --- The launcher, with processes of its own.


class Launched:
    """`qkv … --processes N` in a process of its own."""

    def __init__(self, *words: object, environment: dict[str, str] | None = None) -> None:
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "qkv", *map(str, words)],
            env=ENVIRONMENT | {"PYTHONPATH": path} | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ranks(self) -> list[int]:
        """The processes that it has started, in their order."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return sorted(int(child) for child in children.read_text().split())

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said


def until(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not there() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


MANY = [one for one in SETTINGS if not one.startswith(("train.steps", "train.threads"))]


def test_processes_are_started_stopped_and_resumed(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["pretrain", "bert", "--data", folder / "shards", "--out", run]
    first = Launched(*words, *assigned([*MANY, "train.steps=100000"]), "--processes", 2)
    log = run / "log.jsonl"
    until(lambda: log.exists() and log.read_text().count("\n") > 3, first.process)
    first.process.send_signal(signal.SIGTERM)
    code, said = first.end()
    assert code == 128 + signal.SIGTERM, said
    assert "Stopped and saved at step" in said and "2 processes, 2 on this machine" in said
    assert said.count("Stopped and saved") == 1 and "Traceback" not in said
    assert "--processes 2" in said.partition("Resume with: ")[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_one_message_names_the_process_that_was_killed(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["pretrain", "bert", "--data", folder / "shards", "--out", run]
    started = Launched(*words, *assigned([*MANY, "train.steps=100000"]), "--processes", 2)
    log = run / "log.jsonl"
    until(lambda: log.exists() and log.read_text().count("\n") > 3, started.process)
    os.kill(started.ranks()[1], signal.SIGKILL)
    code, said = started.end()
    assert code == 2
    assert "error: Process 1 of 2 was killed (SIGKILL), and the others have ended." in said
    assert said.count("error:") == 1 and "Traceback" not in said
    # and the launcher itself: its processes save and stop
    again = Launched("pretrain", "--resume", run, "--processes", 2)
    until(lambda: len(again.ranks()) == 2, again.process)
    left = again.ranks()
    before = log.read_text().count("\n")
    until(lambda: log.read_text().count("\n") > before + 3, again.process)
    again.process.kill()
    again.end()
    end = time.monotonic() + 30
    while any(Path(f"/proc/{one}/cmdline").exists() for one in left) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{one}/cmdline").exists() for one in left)
    assert not (run / LOCK).exists()


@pytest.mark.slow
def test_torchrun_gives_the_bytes_of_processes(folder: Path, tmp_path: Path) -> None:
    """And if it is killed, its processes go on to the end, under the lock of the run."""
    words = ["pretrain", "bert", "--data", folder / "shards", *assigned([*MANY, "train.steps=60"])]
    code, said = Launched(*words, "--out", tmp_path / "ours", "--processes", 2).end()
    assert code == 0, said
    root = Path(__file__).resolve().parents[2]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "qkv"]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])}
    given = [*torchrun, *map(str, words), "--out"]
    subprocess.run([*given, str(tmp_path / "theirs")], env=environment, check=True, capture_output=True)
    run = tmp_path / "killed"
    with (tmp_path / "said.txt").open("w") as said_by_ranks:
        killed = subprocess.Popen(
            [*given, str(run)], env=environment, stdout=said_by_ranks, stderr=said_by_ranks, text=True
        )
        until(lambda: (run / "log.jsonl").exists() and (run / "log.jsonl").read_text().count("\n") > 3, killed)
        killed.kill()
        killed.wait()
        end = time.monotonic() + 60
        while (run / LOCK).exists() and time.monotonic() < end:
            time.sleep(0.05)
    for name in ("log.jsonl", "model/model.safetensors"):
        ours, theirs, alone = ((tmp_path / one / name).read_bytes() for one in ("ours", "theirs", "killed"))
        assert ours == theirs == alone
