"""Weights divided among processes (`train.shard`): the steps of one process, checkpoints that any number of processes
resumes, and after a kill the same bytes."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from qkv.errors import PEER_LOST, InputError
from qkv.train import run_folder
from qkv.train.distributed import World
from qkv.train.loop import Trainer
from qkv.train.run_folder import RowRange
from tests.support import rank_jobs
from tests.support.ranks import Ended, Ranks
from tests.unit.train.test_distributed import check_alike, contents
from tests.unit.train.test_loop import Recorder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are those of Unix")
DIVIDED = {"shard": True}
BEST = 0.615
"""What the sum of squares of an embedding passes on its way: evaluations become better, then worse."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


def train(ranks: Ranks, size: int, out: Path, **given: Any) -> Ended:
    return ranks.call(size, "tests.support.rank_jobs:train", str(out), given, environment={"QKV_LOG_SAMPLES": "1"})


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One process; and two, of which each has half of the weights and recomputes activations."""
    folder = tmp_path_factory.mktemp("runs")
    assert train(ranks, 1, folder / "plain", best=BEST).codes == [0]
    done = train(ranks, 2, folder / "divided", best=BEST, train={**DIVIDED, "recompute": True})
    assert done.codes == [0, 0], done.said
    return {"plain": folder / "plain", "divided": folder / "divided"}


def check_weights_alike(one: Path, other: Path) -> None:
    first, second = (load_file(run / "whole.safetensors") for run in (one, other))
    assert first.keys() == second.keys()
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, rtol=1e-4, atol=1e-5)


def test_divided_weights_take_the_steps_of_one_process(runs: dict[str, Path]) -> None:
    check_alike(runs["plain"], runs["divided"])
    check_weights_alike(runs["plain"], runs["divided"])
    for run in runs.values():
        kept = run_folder.latest_checkpoint(run / "checkpoints", pytest.fail)
        assert kept is not None and 0 < kept.state["best"]["step"] < 12, "neither the first nor the last are the best"
        names = set(kept.tensors["model"])
        assert names == set(kept.tensors["best"]) and f"{min(names)}.exp_avg" in kept.tensors["optimizer"]
    assert kept is not None
    files = {file.name for file in kept.path.iterdir()}
    groups = ("best", "model", "optimizer")
    assert files == {"state.json", *(f"{group}-0000{k}-of-00002.safetensors" for group in groups for k in (1, 2))}
    sizes = [(kept.path / f"optimizer-0000{k}-of-00002.safetensors").stat().st_size for k in (1, 2)]
    assert max(sizes) < 1.1 * min(sizes), "each process has half of the state"


def test_a_divided_run_goes_on_with_any_number_of_processes(
    ranks: Ranks, runs: dict[str, Path], tmp_path: Path
) -> None:
    """1 → 2 divided → 3 divided → 1 whole → 2 whole."""
    for size, at, settings in ((1, 2, {}), (2, 5, DIVIDED), (3, 8, DIVIDED), (1, 10, {})):
        ended = train(ranks, size, tmp_path, best=BEST, train=settings, signal=signal.SIGTERM, rank=size - 1, at=at)
        assert ended.codes == [0] * size, ended.said
        assert ended.result["signal"] == signal.SIGTERM and len(set(ended.said)) == 1
    assert train(ranks, 2, tmp_path, best=BEST).codes == [0, 0]
    check_alike(runs["plain"], tmp_path)
    check_weights_alike(runs["plain"], tmp_path)


@pytest.mark.parametrize(
    "rank", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param("all", marks=pytest.mark.slow)]
)
def test_what_is_killed_ends_with_the_same_bytes(
    ranks: Ranks, runs: dict[str, Path], tmp_path: Path, rank: int | str
) -> None:
    given: dict[str, Any] = {"best": BEST, "train": {**DIVIDED, "recompute": True}}
    ended = train(ranks, 2, tmp_path, **given, signal=signal.SIGKILL, rank=rank, at=7)
    expected = {0: [-9, PEER_LOST], 1: [PEER_LOST, -9], "all": [-9, -9]}
    assert ended.codes == expected[rank], ended.said
    assert train(ranks, 2, tmp_path, **given).codes == [0, 0]
    assert contents(tmp_path) == contents(runs["divided"])
    assert (tmp_path / "whole.safetensors").read_bytes() == (runs["divided"] / "whole.safetensors").read_bytes()


def test_muon_uneven_batches_and_ranks_without_any(ranks: Ranks, tmp_path: Path) -> None:
    """A matrix is turned by one of the processes; a step has from one batch to four, for three processes."""
    settings = {"optimizer": "muon", "muon_lr": 0.01, "steps": 6}
    for size, more in ((1, {}), (3, DIVIDED)):
        ended = train(ranks, size, tmp_path / str(size), uneven=True, train=settings | more)
        assert ended.codes == [0] * size, ended.said
    check_alike(tmp_path / "1", tmp_path / "3")
    check_weights_alike(tmp_path / "1", tmp_path / "3")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits(ranks: Ranks, tmp_path: Path, precision: str) -> None:
    """The weights of blocks are rounded before they are gathered, so figures are near, and not equal."""
    for size, more in ((1, {}), (2, DIVIDED)):
        ended = train(ranks, size, tmp_path / str(size), train={"precision": precision} | more)
        assert ended.codes == [0] * size, ended.said
    lines = [(tmp_path / str(size) / "log.jsonl").read_text().splitlines() for size in (1, 2)]
    losses = [[json.loads(line)["loss"] for line in one if '"loss"' in line] for one in lines]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


def test_a_nan_stops_all(ranks: Ranks, tmp_path: Path) -> None:
    ended = train(ranks, 2, tmp_path, nan=True, train=DIVIDED)
    assert ended.codes == [2, 2]
    assert len(set(ended.said)) == 1 and "is NaN or infinite at step 5" in ended.said[0]
    assert [path.name for path in run_folder.checkpoint_steps(tmp_path / "checkpoints")] == ["step-00000003"]


@pytest.mark.slow
def test_early_stopping_is_decided_together(ranks: Ranks, tmp_path: Path) -> None:
    train_ = {"patience": 2, "evaluate_every": 2, "steps": 40}
    results = [
        train(ranks, size, tmp_path / str(size), flat=True, train=train_ | more)
        for size, more in ((1, {}), (2, DIVIDED))
    ]
    assert results[0].result == results[1].result and results[0].result["step"] < 40
    assert results[1].said[0] == results[1].said[1]


@pytest.mark.slow
def test_a_second_attempt_begins_with_the_initial_weights(ranks: Ranks, tmp_path: Path) -> None:
    settings = {"least": 0.6, "retry": 0.5, "evaluate_every": 4}  # half of the steps without success
    for size, more in ((1, {}), (3, DIVIDED)):
        ended = train(ranks, size, tmp_path / str(size), flat=True, renewed=True, train=settings | more)
        assert ended.codes == [0] * size, ended.said
        assert ended.result["step"] == 20 and '"restart"' in (tmp_path / str(size) / "log.jsonl").read_text()
    check_alike(tmp_path / "1", tmp_path / "3")
    check_weights_alike(tmp_path / "1", tmp_path / "3")


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_full_disk_of_one_process_is_an_error_of_all(ranks: Ranks, tmp_path: Path, rank: int) -> None:
    ended = train(ranks, 2, tmp_path, full=rank, train=DIVIDED)
    assert ended.codes == [2, 2]
    message = f"step-00000006 cannot be written by process {rank}: No space left on device. The folder is unchanged."
    assert len(set(ended.said)) == 1 and message in ended.said[0]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003"]
    if rank:
        return
    assert train(ranks, 2, tmp_path, train=DIVIDED).codes == [0, 0]


@pytest.mark.parametrize("damage", ["cut", "gone", "another"])
def test_a_damaged_part_is_named_and_the_one_before_used(runs: dict[str, Path], tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(runs["divided"] / "checkpoints", folder)
    before, last = run_folder.checkpoint_steps(folder)
    file, other = (last / f"optimizer-0000{k}-of-00002.safetensors" for k in (2, 1))
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-3])
    elif damage == "another":
        shutil.copy(other, file)
    else:
        file.unlink()
    messages: list[str] = []
    found = run_folder.latest_checkpoint(folder, messages.append)
    assert found is not None and found.path == before
    assert len(messages) == 1 and "is damaged" in messages[0] and file.name in messages[0]


def test_rows_are_read_from_any_files(runs: dict[str, Path], tmp_path: Path) -> None:
    """Of what two processes and one have written, the rows that a third process of five needs."""
    name = "encoder.embedding.token.weight"
    for run in runs.values():
        kept = run_folder.latest_checkpoint(run / "checkpoints", pytest.fail)
        assert kept is not None
        whole = kept.read("model")[name]
        total = len(whole)
        for begin, end in ((20, 30), (0, 1), (24, 26), (total, total)):
            part = kept.read("model", {name: RowRange(begin, end, total)})[name]
            assert torch.equal(part, whole[begin:end]) and part.shape == (end - begin, 32)
        with pytest.raises(KeyError, match="has 50 rows, not 51"):
            kept.read("model", {name: RowRange(0, 10, 51)})
    assert kept is not None
    lacking = run_folder.Checkpoint(kept.path, kept.step, kept.state, ("model-00001-of-00002.safetensors",))
    with pytest.raises(InputError, match="is damaged: rows of .* are missing"):
        lacking.read("model")


def test_the_order_of_tensors_leaves_no_trace(tmp_path: Path) -> None:
    """A run that was resumed has its best weights in the order of a file, another one in that of the model."""
    tensors, rows = {name: torch.ones(2, 3) for name in ("b", "a")}, dict.fromkeys("ab", RowRange(0, 2, 2))
    written = []
    for number, names in enumerate(("ab", "ba")):
        named = {"model": {name: tensors[name] for name in names}}
        target = run_folder.save_together(World(), tmp_path / str(number), 1, named, {}, rows)
        written.append((target / "model-00001-of-00001.safetensors").read_bytes())
    assert written[0] == written[1]


def test_one_process_has_no_use_for_it(tmp_path: Path) -> None:
    job, config = rank_jobs.make_job(tmp_path, {"train": {"shard": True, "steps": 1}})
    recorder = Recorder()
    Trainer(job, config, recorder).run()
    assert recorder.messages[0] == "note: train.shard has no effect on one process, which holds all weights."
    undivided = rank_jobs.make_job(tmp_path / "other", {"recomputed": [], "train": {"shard": True}})
    with pytest.raises(InputError, match="train.shard divides BERT and GPT by their blocks; this training has none"):
        Trainer(*undivided, recorder)
