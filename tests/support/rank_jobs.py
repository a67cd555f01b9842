"""What the processes of tests/unit/train/test_distributed.py do: a tiny BERT with dropout, trained and disturbed."""

import itertools
import json
import os
import signal
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from qkv.data.batch import Batch
from qkv.data.corpus.rows import PairConfig
from qkv.errors import InputError
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, MaskingConfig, PretrainingBatches
from qkv.nn.block import find_matrices
from qkv.train import run_folder
from qkv.train.distributed import GradientSum, World, current_world, join
from qkv.train.log import Silent
from qkv.train.loop import Job, TrainConfig, Trainer
from tests.support.corpus import Ids, MemoryCorpus

CONFIG = TrainConfig(steps=12, lr=3e-3, log_every=5, evaluate_every=4, save_every=3)


class Disturbed:
    """Batches that send a signal to the process that builds a certain step."""

    def __init__(self, batches: Any, step: int, number: int) -> None:
        self.batches, self.step, self.number = batches, step, number

    def __call__(self, step: int) -> Sequence[Batch]:
        if step == self.step:
            os.kill(os.getpid(), self.number)
        return self.batches(step)


class Uneven:
    """One to four batches a step, of very different sizes."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __call__(self, step: int) -> Sequence[Batch]:
        return self.batches.resized(1 + step % 3, 1 + step % 4)(step)


class Explodes(MaskedAndNextSentence):
    """A NaN in the last batch of a step."""

    calls = 0

    def terms(self, model: nn.Module, batch: Batch) -> Any:
        self.calls += 1
        factor = float("nan") if self.calls == 9 and current_world().rank == current_world().size - 1 else 1.0
        terms = super().terms(model, batch)
        return {name: term._replace(loss=term.loss * factor) for name, term in terms.items()}


def make_job(out: Path, given: dict[str, Any]) -> tuple[Job[Batch], TrainConfig]:
    world = current_world()
    torch.manual_seed(0)
    sizes = BertConfig(vocabulary_size=50, layers=1, width=32, heads=2, inner_width=64, max_length=32)
    model = BertWithHeads(sizes, ["masked", "next_sentence"])
    batches: Any = PretrainingBatches(
        MemoryCorpus(60), Ids(), PairConfig("document", 32), MaskingConfig(), rows=4, accumulate=4
    )
    if given.get("uneven"):
        batches = Uneven(batches)
    if given.get("rank", 0) in (world.rank, "all") and "signal" in given:
        batches = Disturbed(batches, given["at"], given["signal"])
    config = replace(CONFIG, **given.get("train", {}))

    def evaluate(network: nn.Module) -> dict[str, Any]:
        if given.get("flat"):
            return {"score": 0.5, "loss": 1.0}
        if "best" in given:  # first better, then worse
            own = network.get_parameter("encoder.embedding.token.weight").double().square().sum()
            return {"score": -abs(float(own) - given["best"]), "loss": 1.0}
        return {"sum": float(sum(p.double().sum() for p in network.parameters()))}

    objective = Explodes() if given.get("nan") else MaskedAndNextSentence()
    best_by = "score" if given.get("flat") or "best" in given else None
    matrices = find_matrices(model)
    shown: dict[str, Any] = {"evaluate": evaluate, "best_by": best_by, "matrices": matrices}
    if "renewed" in given:
        initial = deepcopy(model.state_dict())
        shown["renew"] = lambda: model.load_state_dict(initial)
    blocks = given.get("recomputed", list(model.encoder.blocks))
    return Job(model, objective, batches, out, **shown, recomputed=blocks), config


def fill_disk() -> None:
    """From its second checkpoint on, this process has no room for another file of tensors."""
    folder: Any = run_folder
    write, calls = folder.save_file, itertools.count()

    def full(*arguments: Any) -> None:
        if next(calls) > 1:
            raise OSError(28, "No space left on device")
        write(*arguments)

    folder.save_file = full


def train(out: str, given: dict[str, Any]) -> int:
    torch.set_num_threads(1)
    try:
        with join():
            torch.set_num_threads(1)
            if given.get("full") == current_world().rank:
                fill_disk()
            job, config = make_job(Path(out), given)
            trainer = Trainer(job, config, Silent())
            outcome = trainer.run()
            if outcome.finished and current_world().is_main:
                trainer.take_best()
                whole = {name: parameter.detach() for name, parameter in job.model.named_parameters()}
                save_file(whole, Path(out) / "whole.safetensors")
    except InputError as error:
        print(error)
        return getattr(error, "exit_code", 2)
    print(json.dumps({"step": outcome.step, "finished": outcome.finished, "signal": outcome.signal}))
    return 0


def exchange() -> int:
    """Sums, decisions, and gradients of which some ranks have none."""
    with join() as world:
        assert world.sum([1.0, float(world.rank)]) == [world.size, sum(range(world.size))]
        assert world.agree(world.rank == 1) == 1 and world.agree(False) == 0
        assert world.from_main({"中文": [1, float(world.rank), None]}) == {"中文": [1, 0.0, None]}
        used, unused, other = (nn.Parameter(torch.ones(3)) for _ in range(3))
        gradients = GradientSum([used, unused, other], world, bucket=16)
        for _ in range(2):
            gradients.begin()
            gradients.arm()
            if world.rank == 1:
                (2 * used).sum().backward()
            elif world.rank == 0:
                (used + other).sum().backward()
            assert gradients.finish(signal.SIGTERM if world.rank == 1 else 0) == signal.SIGTERM
            assert used.grad is not None and used.grad.tolist() == [3.0] * 3
            assert other.grad is not None and other.grad.tolist() == [1.0] * 3
            assert unused.grad is None, "an optimizer would let it decay"
            used.grad = other.grad = None
        world.check_equal({"weight": torch.ones(2)}, 7)
        with pytest.raises(InputError, match="the same values of weight at step 7"):
            world.check_equal({"weight": torch.full((2,), float(world.rank))}, 7)
    assert current_world() == World()
    return 0
