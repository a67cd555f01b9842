"""Muon: the update is orthogonal, equals torch's own one by one, is stacked without a trace, and goes on exactly."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.nn.block import find_matrices
from qkv.train.log import Silent
from qkv.train.loop import TrainConfig, Trainer
from qkv.train.optim import Muon, muon, orthogonal
from tests.unit.train.test_loop import CONFIG, StopAt, contents, job

pytestmark = pytest.mark.usefixtures("one_thread")
WITH_MUON = replace(CONFIG, optimizer="muon", muon_lr=2e-3)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def optimizer_of(model: nn.Module, matrices: dict[str, int], decay: float = 0.1) -> Muon:
    return muon(model, matrices, lr=0.01, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=decay)


def test_singular_values_come_out_near_one() -> None:
    matrices = drawn(3, 8, 20)
    matrices[1] *= 1e-4  # the size of a gradient does not matter
    turned = orthogonal(matrices)
    values = torch.linalg.svdvals(turned)
    assert values.min() > 0.5 and values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    within = u.mT @ turned @ v.mT  # diagonal: the singular vectors are the same
    assert (within - torch.diag_embed(within.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-3
    assert not orthogonal(torch.zeros(1, 3, 4)).any(), "no gradient, no direction"


@pytest.mark.parametrize("shape", [(6, 6), (6, 15), (15, 6)])
@pytest.mark.parametrize(("rounded", "tolerance"), [(False, 1e-6), (True, 5e-4)])
def test_one_matrix_moves_as_with_torch(
    shape: tuple[int, int], rounded: bool, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's Muon rounds to bf16 between the products; without the rounding, both take the same steps."""
    if not rounded:
        monkeypatch.setattr(Tensor, "bfloat16", Tensor.float)
    ours, theirs = (nn.Linear(shape[1], shape[0], bias=False) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    before = ours.weight.detach().clone()
    optimizer = optimizer_of(ours, {"weight": 1})
    reference = torch.optim.Muon(theirs.parameters(), lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        ours.weight.grad = drawn(*shape, seed=step)
        theirs.weight.grad = ours.weight.grad.clone()
        optimizer.step()
        reference.step()
    assert (ours.weight - before).abs().max() > 1e-2
    assert torch.allclose(ours.weight, theirs.weight, rtol=0, atol=tolerance)


def test_stacked_or_alone_is_the_same() -> None:
    """Three matrices in one weight, and one that lies beside one that stands: each moves as if it were alone."""
    shapes = {"query": (4, 4), "key": (4, 4), "value": (4, 4), "up": (10, 4), "down": (4, 10)}
    weights = {name: drawn(*shape, seed=number) for number, (name, shape) in enumerate(shapes.items())}
    gradients = {name: drawn(*shape, seed=number + 9) for number, (name, shape) in enumerate(shapes.items())}

    def moved(names: list[str], matrices: int = 1) -> dict[str, Tensor]:
        model = nn.ParameterDict({name: weights[name].clone() for name in names})
        if matrices > 1:
            model = nn.ParameterDict({"all": torch.cat([weights[name] for name in names])})
        optimizer = optimizer_of(model, {name: matrices for name, _ in model.named_parameters()})
        for name, parameter in model.items():
            parameter.grad = torch.cat([gradients[one] for one in names]) if name == "all" else gradients[name]
        optimizer.step()
        return {name: parameter.detach() for name, parameter in model.items()}

    alone = {name: moved([name])[name] for name in shapes}
    parts = moved(["query", "key", "value"], 3)["all"].chunk(3)
    together = dict(zip(shapes, parts, strict=False)) | moved(["up", "down"])
    for name, weight in alone.items():
        assert torch.allclose(together[name], weight, atol=1e-6), name


def test_the_rest_is_adamw() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4))
    optimizer = optimizer_of(model, {"1.weight": 1})
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    kept = {name: set(optimizer.state[parameter]) for name, parameter in model.named_parameters()}
    moments = {"step", "exp_avg", "exp_avg_sq"}
    assert kept == {"0.weight": moments, "1.weight": {"momentum"}, "1.bias": moments}
    assert sorted((g["matrices"], g["weight_decay"]) for g in optimizer.param_groups) == [(0, 0.0), (0, 0.1), (1, 0.1)]


def trainer(out: Path, config: TrainConfig = WITH_MUON, stop: int | None = None) -> Trainer[Batch]:
    made = job(out)
    batches = made.batches if stop is None else StopAt(made.batches, stop)
    return Trainer(replace(made, batches=batches, matrices=find_matrices(made.model)), config, Silent())


@pytest.mark.parametrize("stop", [4, 7])
def test_a_broken_run_ends_like_a_whole_one(tmp_path: Path, stop: int) -> None:
    trainer(tmp_path / "whole").run()
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path / "broken", stop=stop).run()
    trainer(tmp_path / "broken").run()
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_a_model_learns_with_it(tmp_path: Path) -> None:
    trainer(tmp_path, replace(WITH_MUON, steps=50, lr=5e-3, muon_lr=2e-2, evaluate_every=50, save_every=50)).run()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [line["masked_loss"] for line in lines if "masked_loss" in line]
    assert losses[-1] < 0.95 * losses[0]


def test_an_overflow_leaves_all_as_it_was(tmp_path: Path) -> None:
    """In fp16 a gradient of one kind that overflows must stop the step of both kinds."""
    made = trainer(tmp_path, replace(WITH_MUON, precision="fp16"))
    block = next(parameter for name, parameter in made.job.model.named_parameters() if name.endswith("qkv.weight"))
    block.register_hook(lambda gradient: gradient * float("inf"))
    before = {name: weight.clone() for name, weight in made.trained().items()}
    made.advance(made.job.batches(0), 0.01)
    assert all(torch.equal(weight, before[name]) for name, weight in made.trained().items())


def test_matrices_have_their_own_rate(tmp_path: Path) -> None:
    made = trainer(tmp_path, replace(CONFIG, optimizer="muon", lr=0.1, muon_lr=0.05))
    made.advance(made.job.batches(0), 0.01)
    rates = {group["matrices"]: group["lr"] for group in made.optimizer.param_groups}
    assert rates == {0: 0.01, 1: 0.005, 3: 0.005}


def test_adamw_inside_sees_the_same_groups_and_state(tmp_path: Path) -> None:
    """The loop sets rates, and a resumed run restores states, in Muon's: a torch that copies them must be noticed."""
    optimizer = trainer(tmp_path).optimizer
    assert isinstance(optimizer, Muon) and optimizer.rest is not None
    plain = [group for group in optimizer.param_groups if not group["matrices"]]
    assert len(plain) == len(optimizer.rest.param_groups)
    assert all(one is other for one, other in zip(plain, optimizer.rest.param_groups, strict=True))
    assert optimizer.rest.state is optimizer.state


def test_a_rate_for_muon_without_muon(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train.muon_lr is for the optimizer muon, but train.optimizer is adamw\."):
        trainer(tmp_path, replace(CONFIG, muon_lr=2e-3))


def test_muon_without_matrices(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="muon, which is for matrices of hidden layers, but none is trained here"):
        Trainer(job(tmp_path), WITH_MUON, Silent())
    made = job(tmp_path)
    for name, parameter in made.model.named_parameters():
        parameter.requires_grad_(name.startswith("heads."))
    with pytest.raises(InputError, match="none is trained here"):
        Trainer(replace(made, matrices=find_matrices(made.model)), WITH_MUON, Silent())
