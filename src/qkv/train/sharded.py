"""Training a model that does not fit one device: every process holds some rows of each weight (`train.shard`).

FSDP2 (torch.distributed.fsdp.fully_shard), applied from outside: before a block is computed its weights are gathered,
afterwards all but the own rows are freed; gradients are summed and divided in the same way, and the optimizer keeps
state for its rows only. The model knows nothing of it. Two objects share its structure:

    network     what is trained; its parameters are DTensors, with the names of the model, which are the file format
    model       the job's own, without weights; while it is evaluated, and after the run, the first process has them all

All processes have to compute the same number of passes, since each pass is an exchange: one that has fewer batches
repeats the smallest of the step with weight 0. Sums are plain sums: gloo has no scaled ones, and has averaged wrongly.

Blocks are computed in the precision of the settings, their gradients summed in 32 bits; the rest (embeddings, heads)
is in 32 bits under autocast, as in a run that is not divided. The weights themselves are always in 32 bits.

Muon needs whole matrices. Each has an owner, who is sent its rows, turns it, and sends them back (`DividedMuon`).

What this file does NOT do: write checkpoints (run_folder.py), or divide a matrix by columns.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from qkv.train.distributed import World, divide, lost_peer
from qkv.train.optim import Muon, orthogonal
from qkv.train.run_folder import RowRange, save_together


def rows_of(total: int, rank: int, size: int) -> RowRange:
    """The rows of a tensor that a process has, as FSDP2 cuts them.

    >>> [tuple(rows_of(5, rank, 3)) for rank in range(3)], tuple(rows_of(1, 2, 3))
    ([(0, 2, 5), (2, 4, 5), (4, 5, 5)], (1, 1, 1))
    """
    share = -(-total // size)
    return RowRange(min(total, rank * share), min(total, (rank + 1) * share), total)


def own_rows(tensor: Tensor) -> Tensor:
    """The part of a divided tensor that this process has; another tensor as it is."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class _Pass(nn.Module):
    """The root of what is divided: everything that an objective may touch happens inside its forward."""

    def __init__(self, model: nn.Module, terms: Callable[[nn.Module, Any], Mapping[str, Any]]) -> None:
        super().__init__()
        self.model = model
        self.terms = terms

    def forward(self, batch: Any) -> Mapping[str, Any]:
        return self.terms(self.model, batch)


class Sharded:
    """A model divided among the processes of a world."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[nn.Module],
        terms: Callable[[nn.Module, Any], Mapping[str, Any]],
        world: World,
        precision: torch.dtype,
    ) -> None:
        self.model, self.world = model, world
        self.device = device = next(model.parameters()).device
        # the copy shares the weights, until they are divided
        self.network = deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
        self._names = dict(self.network.named_modules())
        self._places = {id(module): name for name, module in model.named_modules()}
        replace_parameters(model, lambda parameter: parameter.to("meta"))
        mesh = init_device_mesh(device.type, (world.size,))
        mixed = None if precision == torch.float32 else precision
        policy = MixedPrecisionPolicy(param_dtype=mixed, reduce_dtype=torch.float32)
        for block in self.inside(blocks):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        self.root = _Pass(self.network, terms)
        fully_shard(self.root, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
        for module in self.root.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self.parameters = dict(self.network.named_parameters())
        self.rows: dict[str, RowRange] = {}  # of weights, and of the optimizer's state
        for name, parameter in self.parameters.items():
            own = rows_of(parameter.size(0), world.rank, world.size)
            assert len(own_rows(parameter)) == own.end - own.begin, "FSDP2 divides in another way"
            self.rows |= dict.fromkeys((name, *(f"{name}.{state}" for state in _STATES)), own)

    def inside(self, modules: Sequence[nn.Module]) -> list[nn.Module]:
        """The modules of the network that correspond to these of the model."""
        return [self._names[self._places[id(module)]] for module in modules]

    def trained(self) -> dict[str, Tensor]:
        """The own rows of the trainable weights."""
        return {name: own_rows(one).detach() for name, one in self.parameters.items() if one.requires_grad}

    def forward(self, batch: Any) -> Mapping[str, Any]:
        """The terms of a batch."""
        found: Mapping[str, Any] = self.root(batch)
        return found

    def passes(self, weights: Sequence[int]) -> int:
        """The number of passes of a step, which is that of the process with the most batches."""
        return max(map(len, divide(weights, self.world.size)))

    def clip(self, most: float) -> Tensor:
        """Scale the gradient such that its norm, over all processes, is at most this; returns the norm."""
        gradients = [own_rows(one.grad) for one in self.parameters.values() if one.grad is not None]
        gradients = [gradient for gradient in gradients if gradient.numel()]
        norms = torch._foreach_norm(gradients) if gradients else [torch.zeros((), device=self.device)]
        square = torch.stack(list(norms)).double().square().sum()
        _sum(square)
        norm = square.sqrt()
        if gradients:
            torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0).to(gradients[0].dtype))
        return norm.float()

    def as_state(self, parameter: Tensor, part: Tensor) -> Tensor:
        """A tensor of the optimizer's state from its own rows; a number stays one."""
        assert isinstance(parameter, DTensor)
        if part.dim() == 0:
            return part.to(parameter.device)
        state = torch.zeros_like(parameter, requires_grad=False)
        own_rows(state).copy_(part)
        return state

    def gather(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The own rows of weights, by all processes → the whole tensors on the host, in the first process only."""
        found = {}
        for name, part in parts.items():
            whole = self._whole(self.as_state(self.parameters[name], part.to(self.device)))
            if self.world.is_main:
                found[name] = whole.cpu()
        return found

    def _whole(self, tensor: Tensor) -> Tensor:
        assert isinstance(tensor, DTensor)
        with torch.no_grad():
            try:
                return tensor.full_tensor()
            except RuntimeError as error:
                raise lost_peer(error) from error

    def give_back(self) -> None:
        """Give the model its weights, in the first process: one weight at a time passes through the others."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            whole = self._whole(parameter.detach())
            if self.world.is_main:
                found[name] = whole
        if self.world.is_main:
            names = {id(parameter): name for name, parameter in self.model.named_parameters()}
            replace_parameters(self.model, lambda parameter: found[names[id(parameter)]])

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A block in which the first process has the weights in the model, for an evaluation."""
        self.give_back()
        try:
            yield
        finally:
            replace_parameters(self.model, lambda parameter: parameter.to("meta"))

    def renew(self, renew: Callable[[], None]) -> None:
        """Take the weights that `renew` puts into the model: the same in all processes."""
        device = self.device
        replace_parameters(self.model, lambda parameter: torch.empty_like(parameter, device=device))
        renew()
        for name, parameter in self.model.named_parameters():
            own = self.rows[name]
            own_rows(self.parameters[name]).copy_(parameter.detach()[own.begin : own.end])
        replace_parameters(self.model, lambda parameter: parameter.to("meta"))

    def save(
        self, folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
    ) -> None:
        """Write a checkpoint, by all processes."""
        own = {group: {name: own_rows(part) for name, part in named.items()} for group, named in tensors.items()}
        save_together(self.world, folder, step, own, state, self.rows, keep)

    def make_muon(self, groups: list[dict[str, Any]], **settings: Any) -> "DividedMuon":
        return DividedMuon(groups, self.world, **settings)


_STATES = ("exp_avg", "exp_avg_sq", "momentum")
"""What optimizers keep for every weight (train/optim.py)."""


def replace_parameters(model: nn.Module, made: Callable[[Tensor], Tensor]) -> None:
    """Put another parameter in the place of each; one in several places (tied weights) stays one."""
    new: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if parameter not in new:
                new[parameter] = nn.Parameter(made(parameter).detach(), requires_grad=parameter.requires_grad)
            setattr(module, name, new[parameter])


def _sum(tensor: Tensor) -> None:
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        raise lost_peer(error) from error


# --- Muon.


@dataclass(frozen=True)
class _Matrix:
    """One of the matrices that are stacked in a weight."""

    weight: int  # its number in the group
    begin: int  # its rows in the weight
    end: int
    columns: int
    owner: int

    def held(self, total: int, rank: int, size: int) -> slice:
        """The rows of the matrix that a process has, counted in its part of the weight."""
        own = rows_of(total, rank, size)
        begin, end = max(self.begin, own.begin), min(self.end, own.end)
        return slice(begin - own.begin, max(begin, end) - own.begin)


class DividedMuon(Muon):
    """Muon on rows. Momentum and weight decay need only the own ones; a direction is turned as a whole by its owner."""

    def __init__(self, groups: list[dict[str, Any]], world: World, **settings: Any) -> None:
        super().__init__(groups, **settings)
        self.world = world

    def _turn(self, group: dict[str, Any]) -> None:
        weights: list[Tensor] = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [own_rows(self.state[weight]["momentum"]) for weight in weights]
        gradients = [own_rows(weight.grad) for weight in weights if weight.grad is not None]
        directions = self._blend(momenta, gradients)
        parts = [own_rows(weight) for weight in weights]
        changes = self._turned([weight.size(0) for weight in weights], directions, group["matrices"])
        for part, change in zip(parts, changes, strict=True):
            part.mul_(1 - group["lr"] * group["weight_decay"]).add_(change, alpha=-group["lr"])

    def _turned(self, totals: Sequence[int], directions: Sequence[Tensor], stacked: int) -> list[Tensor]:
        """The own rows of directions → those of the turned matrices, scaled; `totals`: rows of the whole weights."""
        rank, size = self.world.rank, self.world.size
        matrices = assign([(total, one.size(1)) for total, one in zip(totals, directions, strict=True)], stacked, size)
        held = [[one.held(totals[one.weight], other, size) for one in matrices] for other in range(size)]
        mine = [number for number, one in enumerate(matrices) if one.owner == rank]
        of_owner = [[number for number, one in enumerate(matrices) if one.owner == owner] for owner in range(size)]

        def count(numbers: Sequence[int], who: int) -> int:
            slices = [held[who][number] for number in numbers]
            return sum((one.stop - one.start) * matrices[n].columns for one, n in zip(slices, numbers, strict=True))

        outgoing, incoming = [count(numbers, rank) for numbers in of_owner], [count(mine, who) for who in range(size)]
        sent = [directions[matrices[n].weight][held[rank][n]].reshape(-1) for numbers in of_owner for n in numbers]
        received = _all_to_all(torch.cat(sent), outgoing, incoming)
        pieces: dict[int, list[Tensor]] = {number: [] for number in mine}
        for who, numbers in enumerate([mine] * size):
            sizes = [count([number], who) for number in numbers]
            for number, piece in zip(numbers, received[who].split(sizes), strict=True):
                pieces[number].append(piece.view(-1, matrices[number].columns))
        turned = dict(zip(mine, _turn_all([torch.cat(pieces[number]) for number in mine]), strict=True))
        back: list[Tensor] = []
        for who in range(size):
            for number in mine:
                begin = sum(held[before][number].stop - held[before][number].start for before in range(who))
                rows = held[who][number].stop - held[who][number].start
                back.append(turned[number][begin : begin + rows].reshape(-1))
        own = directions[0].new_empty(0)
        returned = _all_to_all(torch.cat([own, *back]), incoming, outgoing)
        changes = [torch.empty_like(one) for one in directions]
        for owner, numbers in enumerate(of_owner):
            sizes = [count([number], rank) for number in numbers]
            for number, piece in zip(numbers, returned[owner].split(sizes), strict=True):
                changes[matrices[number].weight][held[rank][number]] = piece.view(-1, matrices[number].columns)
        return changes


def assign(shapes: Sequence[tuple[int, int]], stacked: int, size: int) -> list[_Matrix]:
    """Give every matrix of weights of these shapes to the process that has least to do so far.

    >>> [(one.begin, one.end, one.owner) for one in assign([(6, 4), (2, 2)], 2, 2)]
    [(0, 3, 0), (3, 6, 1), (0, 1, 0), (1, 2, 1)]
    """
    work = [0] * size
    found = []
    for number, (rows, columns) in enumerate(shapes):
        for part in torch.arange(rows).chunk(stacked):
            begin, end = int(part[0]), int(part[-1]) + 1
            owner = work.index(min(work))
            work[owner] += (end - begin) * columns * min(end - begin, columns)
            found.append(_Matrix(number, begin, end, columns, owner))
    return found


def _turn_all(matrices: Sequence[Tensor]) -> list[Tensor]:
    """`orthogonal` of matrices of any shapes, equal ones together, scaled as Muon does."""
    found: list[Tensor] = list(matrices)
    by_shape: dict[tuple[int, int], list[int]] = {}
    for number, matrix in enumerate(matrices):
        by_shape.setdefault((min(matrix.shape), max(matrix.shape)), []).append(number)
    for (_, longer), numbers in by_shape.items():
        lying = [one if one.size(0) <= one.size(1) else one.mT for one in (matrices[number] for number in numbers)]
        for number, one in zip(numbers, orthogonal(torch.stack(lying)), strict=True):
            scaled = one * (0.2 * math.sqrt(longer))
            found[number] = scaled if matrices[number].size(0) <= matrices[number].size(1) else scaled.mT
    return found


def _all_to_all(sent: Tensor, outgoing: list[int], incoming: list[int]) -> tuple[Tensor, ...]:
    received = sent.new_empty(sum(incoming))
    try:
        dist.all_to_all_single(received, sent, incoming, outgoing)
    except RuntimeError as error:
        raise lost_peer(error) from error
    return received.split(incoming)
