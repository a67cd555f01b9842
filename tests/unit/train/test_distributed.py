"""Several processes take the steps that one takes: the same samples and losses, and after a kill the same bytes."""

import itertools
import json
import os
import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qkv.errors import PEER_LOST, InputError
from qkv.models.pretraining import choose_number
from qkv.train import run_folder
from qkv.train.distributed import World, check_environment, divide
from qkv.train.loop import step_seed
from tests.support.ranks import Ended, Ranks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are those of Unix")
TRAIN = "tests.support.rank_jobs:train"
SAMPLED = {"QKV_LOG_SAMPLES": "1"}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


def train(ranks: Ranks, size: int, out: Path, **given: Any) -> Ended:
    return ranks.call(size, TRAIN, str(out), given, environment=SAMPLED)


@pytest.fixture(scope="module")
def whole(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Undisturbed runs, by the number of processes."""
    found = {size: tmp_path_factory.mktemp("whole") / str(size) for size in (1, 2)}
    for size, out in found.items():
        assert train(ranks, size, out).codes == [0] * size
    return found


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def contents(out: Path) -> dict[str, bytes]:
    last = run_folder.checkpoint_steps(out / "checkpoints")[-1]
    files = [out / "log.jsonl", out / "samples.jsonl", *sorted(last.iterdir())]
    return {file.name: file.read_bytes() for file in files}


def check_alike(one: Path, other: Path) -> None:
    """The same samples and masks at every step, and figures that are equal up to rounding."""
    assert (one / "samples.jsonl").read_bytes() == (other / "samples.jsonl").read_bytes()
    first, second = lines(one / "log.jsonl"), lines(other / "log.jsonl")
    assert [line["step"] for line in first] == [line["step"] for line in second]
    for before, after in zip(first, second, strict=True):
        if "loss" in before:
            assert before.keys() == after.keys()
            assert after["loss"] == pytest.approx(before["loss"], abs=1e-5)
            assert after["gradient_norm"] == pytest.approx(before["gradient_norm"], rel=1e-4)
            assert after["tokens"] == before["tokens"]


def test_two_processes_take_the_steps_of_one(whole: dict[int, Path]) -> None:
    check_alike(whole[1], whole[2])
    assert len(lines(whole[2] / "samples.jsonl")) == 12
    (last, *_) = lines(whole[2] / "samples.jsonl")
    assert len(set(last["samples"])) == 4
    environment = json.loads(contents(whole[2])["state.json"])["state"]["environment"]
    assert environment["processes"] == 2
    assert "processes" not in json.loads(contents(whole[1])["state.json"])["state"]["environment"]


def test_a_run_goes_on_with_any_number_of_processes(ranks: Ranks, whole: dict[int, Path], tmp_path: Path) -> None:
    """1 → 2 → 3 → 1; a signal to the last process stops all of them after the same step."""
    for size, at in ((1, 3), (2, 5), (3, 8)):
        ended = train(ranks, size, tmp_path, signal=signal.SIGTERM, rank=size - 1, at=at)
        assert ended.codes == [0] * size
        assert ended.result["signal"] == signal.SIGTERM and not ended.result["finished"]
        assert len(set(ended.said)) == 1, "all stopped after the same step"
    assert train(ranks, 1, tmp_path).result == {"step": 12, "finished": True, "signal": None}
    check_alike(whole[1], tmp_path)


@pytest.mark.parametrize(
    "rank", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param("all", marks=pytest.mark.slow)]
)
def test_what_is_killed_ends_with_the_same_bytes(
    ranks: Ranks, whole: dict[int, Path], tmp_path: Path, rank: int | str
) -> None:
    ended = train(ranks, 2, tmp_path, signal=signal.SIGKILL, rank=rank, at=7)
    expected = {0: [-9, PEER_LOST], 1: [PEER_LOST, -9], "all": [-9, -9]}
    assert ended.codes == expected[rank]
    assert train(ranks, 2, tmp_path).codes == [0, 0]
    assert contents(tmp_path) == contents(whole[2])


def test_a_full_disk_ends_all_and_the_run_can_be_resumed(ranks: Ranks, whole: dict[int, Path], tmp_path: Path) -> None:
    ended = train(ranks, 2, tmp_path, full=0)
    assert ended.codes == [2, PEER_LOST]
    assert "step-00000006 cannot be written: No space left on device." in ended.said[0]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003"]
    assert train(ranks, 2, tmp_path).codes == [0, 0]
    assert contents(tmp_path) == contents(whole[2])


def test_uneven_batches_and_ranks_without_any(ranks: Ranks, tmp_path: Path) -> None:
    for size in (1, 3):
        assert train(ranks, size, tmp_path / str(size), uneven=True).codes == [0] * size
    check_alike(tmp_path / "1", tmp_path / "3")


def test_muon_and_16_bits(ranks: Ranks, tmp_path: Path) -> None:
    for size in (1, 2):
        done = train(ranks, size, tmp_path / str(size), train={"optimizer": "muon", "steps": 6})
        assert done.codes == [0] * size
    check_alike(tmp_path / "1", tmp_path / "2")
    assert train(ranks, 3, tmp_path / "half", uneven=True, train={"precision": "fp16", "steps": 3}).codes == [0, 0, 0]


def test_a_nan_in_one_process_stops_all_with_the_same_message(ranks: Ranks, tmp_path: Path) -> None:
    ended = train(ranks, 2, tmp_path, nan=True)
    assert ended.codes == [2, 2]
    assert len(set(ended.said)) == 1 and "is NaN or infinite at step 5" in ended.said[0]
    assert [path.name for path in run_folder.checkpoint_steps(tmp_path / "checkpoints")] == ["step-00000003"]


def test_early_stopping_is_decided_together(ranks: Ranks, tmp_path: Path) -> None:
    given = {"flat": True, "train": {"patience": 2, "evaluate_every": 2, "steps": 40}}
    results = [train(ranks, size, tmp_path / str(size), **given) for size in (1, 2)]
    assert results[0].result == results[1].result
    assert results[1].said[0] == results[1].said[1]
    assert results[0].result["step"] < 40


def test_numbers_and_gradients_are_exchanged(ranks: Ranks) -> None:
    assert ranks.call(3, "tests.support.rank_jobs:exchange").codes == [0, 0, 0]


def test_a_process_that_does_not_come_is_named(ranks: Ranks, tmp_path: Path) -> None:
    ended = ranks.call(3, TRAIN, str(tmp_path), {}, environment={"QKV_JOIN_SECONDS": "0.5"}, absent=(1,))
    assert ended.codes[0] == 2 and "Rank 1 of 3 did not start within 0.5 s" in ended.said[0]
    assert ended.codes[1] in (2, PEER_LOST), "it has waited as long, or the first one was gone before"
    ended = ranks.call(2, TRAIN, str(tmp_path), {}, environment={"QKV_JOIN_SECONDS": "0.5"}, absent=(0,))
    assert "Rank 1 cannot reach the first process at 127.0.0.1" in ended.said[0]


def test_a_port_in_use_is_named(ranks: Ranks, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        environment = {"QKV_JOIN_SECONDS": "0.5", "MASTER_PORT": str(port)}
        ended = ranks.call(2, TRAIN, str(tmp_path), {}, environment=environment, absent=(1,))
    assert ended.codes == [2]
    assert f"127.0.0.1:{port} is used by another program. Give torchrun another --master-port" in ended.said[0]


# Pure functions


def test_blocks_are_as_even_as_can_be() -> None:
    draw = random.Random(0)
    for _ in range(60):
        weights, size = [draw.randint(1, 9) for _ in range(draw.randint(1, 7))], draw.randint(1, 4)
        found = divide(weights, size)
        assert len(found) == size and [place for block in found for place in block] == list(range(len(weights)))
        cuts = itertools.combinations_with_replacement(range(len(weights) + 1), size - 1)
        edges = ((0, *sorted(cut), len(weights)) for cut in cuts)
        best = min(max(sum(weights[a:b]) for a, b in itertools.pairwise(edge)) for edge in edges)
        assert max(sum(weights[place] for place in block) for block in found) == best


def test_the_seed_of_a_first_batch_is_that_of_the_step() -> None:
    assert step_seed(3, 5, 0) == step_seed(3, 5) != step_seed(3, 5, 1)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "2"}, "The environment has WORLD_SIZE, but no RANK."),
        ({"RANK": "0"}, "The environment has RANK, but no WORLD_SIZE."),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 in the environment, and WORLD_SIZE 2."),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE is 'two' in the environment, and not a number."),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "no LOCAL_RANK"),
    ],
)
def test_a_wrong_environment_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_environment(environment)


def test_an_environment_of_one_is_no_world() -> None:
    assert check_environment({}) == check_environment({"WORLD_SIZE": "1"}) == World()
    assert check_environment({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}) == World(
        1, 2, 1, 2
    )


def test_devices_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    world = World(0, 4, 0, 4)
    with pytest.raises(InputError, match="4 processes need as many GPUs, and torch finds 2 here"):
        world.check_device("cuda")
    with pytest.raises(InputError, match="The device of the run is cuda:1, one GPU, and there are 4 processes"):
        world.check_device("cuda:1")
    world.check_device("cpu")


def test_the_rows_of_a_step_are_cut_for_the_processes() -> None:
    assert [choose_number(32, 1, size) for size in (2, 3, 4, 5, 32)] == [2, 8, 4, 8, 32]
    assert choose_number(32, 8, 2) == 8
    assert choose_number(2, 1, 3) is None


def test_a_run_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with run_folder.lock_run(run):
        assert (run / run_folder.LOCK).is_file()
        message = rf"Another process works on .*run \(process {os.getpid()} on "
        with pytest.raises(InputError, match=message), run_folder.lock_run(run):
            pass
    assert not any(run.iterdir())
    (run / run_folder.LOCK).write_text("process 1 on nowhere")  # of one that was killed
    with run_folder.lock_run(run):
        pass
    run_folder.begin(run, "pretrain")
