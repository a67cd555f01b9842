"""Training on a Ray cluster: what a disturbed run writes is what an undisturbed one of --processes writes; signals,
messages and exit codes are those of --processes too."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from qkv.cli.main import main
from qkv.errors import PEER_LOST
from qkv.train.launch_ray import Relay, run_words
from qkv.train.run_folder import LOCK, checkpoint_steps, lock_run
from tests.support.clusters import TwoNodes, two_nodes, wait_for, without_network
from tests.support.small_run import SETTINGS, make_shards

STEPS = 240
OWN = {"train.steps": STEPS, "train.save_every": 30, "train.log_every": 30, "train.evaluate_every": STEPS, "rows": 4}
LONG = {"train.steps": 100_000, "train.evaluate_every": 100_000}
WRITTEN = ("log.jsonl", "samples.jsonl", "model/model.safetensors")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def plain(shards: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The same run by --processes 2, which goes on while the cluster starts."""
    words = [sys.executable, "-m", "qkv", *words_of(shards, shards.parent / "plain"), "--processes", "2"]
    environment = os.environ | {"QKV_LOG_SAMPLES": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def nodes(plain: "subprocess.Popen[bytes]") -> Iterator[TwoNodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.1")
        patch.setenv("QKV_LOG_SAMPLES", "1")
        with two_nodes() as cluster:
            yield cluster


def words_of(shards: Path, out: Path, **changes: object) -> list[str]:
    settings = dict(setting.split("=") for setting in SETTINGS) | OWN | changes
    words = ["pretrain", "bert", "--data", str(shards), "--out", str(out), "--device", "cpu"]
    return words + [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


class Background(threading.Thread):
    """A command in a thread, so that the main one can disturb the cluster."""

    def __init__(self, words: Sequence[object]) -> None:
        super().__init__(daemon=True)
        self.words = [str(word) for word in words]
        self.code: int | None = None
        self.start()

    def run(self) -> None:
        self.code = main(self.words)

    def end(self) -> int:
        self.join(120)
        assert self.code is not None, "it did not end"
        return self.code


def saves(run: Path) -> bool:
    return bool(checkpoint_steps(run / "checkpoints"))


@pytest.mark.slow
def test_a_lost_node_leaves_no_trace(
    nodes: TwoNodes,
    shards: Path,
    plain: "subprocess.Popen[bytes]",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, undisturbed = tmp_path / "run", shards.parent / "plain"
    command = Background([*words_of(shards, run), "--cluster", nodes.address, "--processes", 2, "--json"])
    wait_for(lambda: saves(run) or command.code is not None)
    nodes.lose()
    nodes.add()
    code = command.end()
    out, said = capsys.readouterr()
    assert code == 0, said
    assert json.loads(out)["finished"] is True
    assert said.count("2 processes resume from step") == 1
    assert plain.wait(60) == 0
    for name in WRITTEN:
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes(), name
    steps = [json.loads(line)["step"] for line in (run / "samples.jsonl").read_text().splitlines()]
    assert steps == list(range(1, STEPS + 1))
    assert not (run / LOCK).exists()
    assert not list(tmp_path.glob(".*")), "what Ray Train wrote is removed"


@pytest.mark.slow
def test_fewer_processes_train_while_a_node_is_missing(
    nodes: TwoNodes, shards: Path, plain: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*words_of(shards, run), "--cluster", nodes.address, "--processes", 2, "--min-processes", 1]
    command = Background(words)
    wait_for(lambda: saves(run) or command.code is not None)
    nodes.lose()
    try:
        assert command.end() == 0
    finally:
        nodes.restore()
    said = capsys.readouterr().err
    assert "1 processes resume from step" in said and "was saved by 2 processes and resumes with 1" in said
    assert (run / "samples.jsonl").read_bytes() == (shards.parent / "plain" / "samples.jsonl").read_bytes()


@pytest.mark.slow
def test_one_process_that_fails_ends_the_run_with_its_message(
    nodes: TwoNodes, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first process refuses a folder that another command works on; the others wait for it."""
    run = tmp_path / "run"
    words = [*words_of(shards, run), "--cluster", nodes.address, "--processes", 2]
    with lock_run(run):
        assert Background(words).end() == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1 and "Another process works on" in said
    assert Background([*words, "--set", "rowss=3"]).end() == 2
    assert capsys.readouterr().err.count("Did you mean 'rows'?") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(nodes: TwoNodes, shards: Path, tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "qkv", *words_of(shards, run, **LONG), "--cluster", nodes.address]
    with subprocess.Popen(
        [*words, "--processes", "2"],
        env=without_network(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(lambda: saves(run) or process.poll() is not None)
        process.send_signal(number)
        out, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert "Stopped and saved at step" in out + said
    assert not (run / LOCK).exists()


@pytest.mark.slow
def test_a_lost_cluster_is_said(shards: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with two_nodes(connected=False) as cluster:
        words = [sys.executable, "-m", "qkv", *words_of(shards, run, **LONG), "--cluster", cluster.address]
        with subprocess.Popen(
            [*words, "--processes", "2"], env=without_network(), stderr=subprocess.PIPE, text=True
        ) as process:
            wait_for(lambda: saves(run) or process.poll() is not None)
            cluster.end_head()
            said = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert "is lost: its head node does not answer. The checkpoints are intact" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "local"], "--cluster needs the number of processes: --processes N."),
        (["--processes", "2", "--min-processes", "1"], "--min-processes is for --cluster."),
        (["--cluster", "nonsense", "--processes", "2"], "--cluster is local, auto, HOST:PORT or ray://HOST:PORT, not"),
        (["--cluster", "ray://head:1", "--processes", "2"], "Training is not started through ray://."),
        (["--cluster", "local", "--processes", "0"], "--processes must be 1 or more"),
        (["--cluster", "local", "--processes", "2", "--min-processes", "3"], "--min-processes between 1 and it"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words_of(tmp_path / "shards", tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_losses_without_progress_end_and_growth_is_no_loss() -> None:
    async def attempts(*found: tuple[int, int]) -> tuple[list[bool], int | None]:
        relay = Relay()
        overs = [(await relay.begin(size, step, None))["over"] for step, size in found]
        return overs, relay.given_up

    assert asyncio.run(attempts((0, 2), (40, 2), (80, 2), (120, 2), (160, 2))) == ([False] * 5, None)
    assert asyncio.run(attempts((40, 2), (40, 2), (40, 2), (40, 2))) == ([False, False, False, True], 40)
    assert asyncio.run(attempts((40, 2), (40, 3), (40, 2), (40, 3))) == ([False] * 4, None)


def test_an_attempt_resumes_what_the_one_before_has_begun() -> None:
    async def resumes(*configs: list[int] | None) -> list[bool]:
        relay = Relay()
        return [(await relay.begin(2, 0, config))["resume"] for config in configs]

    assert asyncio.run(resumes(None, None, [1, 5, 9])) == [False, False, True]
    assert asyncio.run(resumes([1, 5, 9], [1, 5, 9], [2, 6, 9])) == [False, False, True]  # --overwrite


def test_a_failure_after_the_group_has_ended_is_a_lost_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Ray Train ends the group of the processes that are left, in the middle of their step."""
    assert run_words(["--version"]) == 0
    assert run_words(["pretrain", "nothing"]) == PEER_LOST  # here, no group has begun
