"""Training on several processes: which one this is, and what they exchange (torch.distributed, no other engine).

A step is a list of micro-batches, a pure function of the step and never of the number of processes. Each process
("rank") takes a contiguous block of them (`divide`), divides its losses by the counts of the whole step, and the
gradients are summed over all ranks: every rank then holds the full gradient and takes the same optimizer step. So a run
may be resumed with another number of processes: the same samples, masks and order, equal up to rounding; with the same
number, the same bytes.

No `DistributedDataParallel`: it averages (we need sums, since ranks have different counts), expects a backward pass on
every rank (a rank may have no micro-batch), and wraps the model, whose parameter names are our file format. What is
left of it is `GradientSum`, which like it overlaps the exchange with the last backward pass.

A process that was not started by torchrun (or `--processes`, train/launch.py) has a world of size 1, and nothing here
calls torch.distributed. `join` makes the world; it is called by the verbs that train, never by an import.

Numbers of the host (signals, counts, decisions) travel as CPU tensors over gloo, also beside GPUs, so that no rank
waits for its device; gradients travel where they are (NCCL on CUDA). Nothing is pickled.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist

from qkv.errors import PEER_LOST, InputError
from qkv.train.device import count_cores, device_named
from qkv.train.launch import end_with_launcher

_T = TypeVar("_T")
_P = ParamSpec("_P")

_PATIENCE = 60.0
"""Seconds in which all processes have to be there; QKV_JOIN_SECONDS."""
_LONG = timedelta(hours=12)
"""Of an exchange: others wait while the first process evaluates and saves. A process that ends is noticed at once."""


class PeerLostError(InputError):
    """Another process of the run has ended."""

    exit_code = PEER_LOST


@dataclass(frozen=True)
class World:
    """The processes of a run, and this one's number among them. Size 1: no exchange at all."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on this machine
    local_size: int = 1

    @property
    def is_main(self) -> bool:
        """The one process that evaluates, logs, saves and prints."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all other processes."""
        if self.size > 1:
            self.sum([1.0])

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """A block that the first process goes through before the others: it writes a file that they find."""
        if self.is_main:
            yield
        self.wait()
        if not self.is_main:
            yield

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, dist.ReduceOp.SUM)

    def max(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, dist.ReduceOp.MAX)

    def agree(self, flag: int | bool) -> int:
        """The largest value of all processes: whether any of them wants to stop, for example."""
        return int(self.max([float(flag)])[0])

    def _reduced(self, values: Sequence[float], how: dist.ReduceOp.RedOpType) -> list[float]:
        if self.size == 1 or not values:
            return list(values)
        exchanged = torch.tensor(values, dtype=torch.float64)
        _exchange(dist.all_reduce, exchanged, how)
        found: list[float] = exchanged.tolist()
        return found

    def sum_tensor(self, tensor: Tensor) -> None:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            _exchange(dist.all_reduce, tensor)

    def from_main(self, value: _T) -> _T:
        """The value of the first process (anything that JSON holds), on all of them."""
        if self.size == 1:
            return value
        content = json.dumps(value).encode() if self.is_main else b""
        length = torch.tensor([len(content)])
        _exchange(dist.broadcast, length, 0)
        data = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_main:
            data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        _exchange(dist.broadcast, data, 0)
        return value if self.is_main else cast(_T, json.loads(bytes(data.tolist())))

    def from_all(self, value: _T) -> list[_T]:
        """The values of all processes (anything that JSON holds) by rank, on all of them."""
        if self.size == 1:
            return [value]
        content = json.dumps(value).encode()
        lengths = [
            int(one) for one in self.sum([float(len(content) * (rank == self.rank)) for rank in range(self.size)])
        ]
        begin = sum(lengths[: self.rank])
        data = torch.zeros(sum(lengths), dtype=torch.uint8)
        data[begin : begin + len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        _exchange(dist.all_reduce, data)
        found, whole = [], bytes(data.tolist())
        for length in lengths:
            found.append(cast(_T, json.loads(whole[:length])))
            whole = whole[length:]
        return found

    def check_equal(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Raise unless all processes hold the same bytes: after a fault of the hardware, or on machines that round
        differently, they drift apart without a sign."""
        if self.size == 1:
            return
        sums = [_checksum(tensor.detach()) for tensor in tensors.values()]
        mine = (
            [value for one in torch.stack(sums).cpu().tolist() for value in (float(one), -float(one))] if sums else []
        )
        largest = self.max(mine)
        for number, name in enumerate(tensors):
            if largest[2 * number] != -largest[2 * number + 1]:
                raise InputError(
                    f"The processes do not have the same values of {name} at step {step:,}. Do the machines have the "
                    "same hardware and software? Resume from the last checkpoint."
                )

    def check_device(self, name: str) -> None:
        """Raise if the device of the settings cannot be shared by the processes of this machine."""
        if self.size == 1:
            return
        device = device_named(name)
        if device.type == "mps":
            raise InputError("An Apple GPU is one device for one process. Leave out --processes, or use --device cpu.")
        if device.type == "cuda":
            found = torch.cuda.device_count()
            if device.index is not None:
                raise InputError(
                    f"The device of the run is {name}, one GPU, and there are {self.size} processes. Use --device cuda."
                )
            if self.local_size > found:
                raise InputError(
                    f"{self.local_size} processes need as many GPUs, and torch finds {found} here. Give --processes "
                    f"{found}, or --device cpu."
                )
            torch.cuda.set_device(self.local_rank)


def _checksum(tensor: Tensor) -> Tensor:
    """() int64 of the bytes, below 2**53, so that a float64 holds it."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(integers).sum(dtype=torch.int64) % (1 << 53)


def _exchange(call: Callable[_P, object], *values: _P.args, **options: _P.kwargs) -> None:
    try:
        call(*values, **options)
    except RuntimeError as error:  # gloo and NCCL raise nothing more exact
        raise lost_peer(error) from error


def lost_peer(error: RuntimeError) -> PeerLostError:
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return PeerLostError(
        f"Another process of this run has ended, and so does this one ({reason[:200]}). The checkpoints are intact: "
        "the run can be resumed."
    )


class NamingLostPeers:
    """In this context an exchange that torch does for us (FSDP2) and that fails, is a peer that has ended."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # gloo raises nothing more exact than RuntimeError, but says that it was gloo
        if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
            raise lost_peer(error) from error


# --- Which world this process is in.

_SOLO = World()
_current = _SOLO


def current_world() -> World:
    return _current


def check_environment(environment: Mapping[str, str]) -> World:
    """The world that torchrun's variables describe.

    >>> check_environment({}).size, check_environment({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}).rank
    (1, 1)
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    numbers: dict[str, int] = {}
    for name in names:
        if (value := environment.get(name)) is not None:
            if not value.isdecimal():
                raise InputError(f"{name} is '{value}' in the environment, and not a number. {_START}")
            numbers[name] = int(value)
    rank, size = numbers.get("RANK"), numbers.get("WORLD_SIZE")
    if rank is None and size in (None, 1):
        return _SOLO
    if rank is None or size is None:
        missing = "RANK" if rank is None else "WORLD_SIZE"
        raise InputError(f"The environment has {' and '.join(numbers)}, but no {missing}. {_START}")
    if not rank < size:
        raise InputError(f"RANK is {rank} in the environment, and WORLD_SIZE {size}. {_START}")
    if size > 1 and "LOCAL_RANK" not in numbers:
        raise InputError(f"The environment has RANK and WORLD_SIZE, but no LOCAL_RANK. {_START}")
    return World(rank, size, numbers.get("LOCAL_RANK", 0), numbers.get("LOCAL_WORLD_SIZE", 1))


_START = (
    "Start several processes with --processes N or with torchrun, which set all of them; for one process, unset them."
)


@contextmanager
def join() -> Iterator[World]:
    """Join the other processes of this run, if torchrun, --processes or Ray started several; leave them at the end."""
    global _current
    world = check_environment(os.environ)
    if dist.is_available() and dist.is_initialized():  # by Ray Train, or by the caller's own script
        world = replace(world, rank=dist.get_rank(), size=dist.get_world_size())
        owned = False
    else:
        owned = world.size > 1
        if owned:
            end_with_launcher()
            _connect(world)
    if world.local_size > 1:
        torch.set_num_threads(max(1, count_cores() // world.local_size))
    before, _current = _current, world
    try:
        yield world
    finally:
        _current = before
        if owned:
            leave_group()


@contextmanager
def alone() -> Iterator[None]:
    """For what one process does by itself after the training: inside, the world has one process."""
    global _current
    before, _current = _current, _SOLO
    try:
        yield
    finally:
        _current = before


def leave_group() -> None:
    """End the exchange of this process with the others, who notice it."""
    with suppress(RuntimeError):  # the others are gone
        dist.destroy_process_group()


def _connect(world: World) -> None:
    torch_stores: Any = dist  # which has the names, but does not declare them
    patience = timedelta(seconds=float(os.environ.get("QKV_JOIN_SECONDS", _PATIENCE)))
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise InputError(f"MASTER_ADDR and MASTER_PORT of the environment are '{host}' and '{port}'. {_START}")
    address = f"{host}:{port}"
    # torchrun has the table where the processes meet itself; else the first of them has it
    is_server = world.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        # it does not wait for the others: `_meet` does, and says who is missing
        table = torch_stores.TCPStore(
            host, int(port), world.size, is_server, patience, wait_for_workers=False, multi_tenant=True
        )
    except (RuntimeError, ValueError) as error:
        if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
            raise InputError(
                f"{address} is used by another program. Give torchrun another --master-port, or --standalone."
            ) from error
        raise InputError(
            f"Rank {world.rank} cannot reach the first process at {address} within {patience.total_seconds():g} s. Is "
            "it running, and are MASTER_ADDR and MASTER_PORT those of its machine?"
        ) from error
    store = torch_stores.PrefixStore(f"qkv/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", table)
    try:
        _meet(world, store, patience)
    except RuntimeError as error:  # the first process has given up before
        raise lost_peer(error) from error
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=_LONG)
    total = world.sum([world.rank + 1.0])[0]
    if total != world.size * (world.size + 1) / 2:
        raise InputError(f"The processes cannot exchange numbers: the first sum was {total:g}. Is the network sound?")


def _meet(world: World, store: Any, patience: timedelta) -> None:
    """Wait until all ranks have reported; name those that have not."""
    store.set(f"here/{world.rank}", f"{socket.gethostname()} {os.getpid()}")
    end = time.monotonic() + patience.total_seconds()
    missing = [rank for rank in range(world.size) if rank != world.rank]
    while missing:
        missing = [rank for rank in missing if not store.check([f"here/{rank}"])]
        if missing and time.monotonic() > end:
            names = ", ".join(map(str, missing))
            raise InputError(
                f"Rank {names} of {world.size} did not start within {patience.total_seconds():g} s (QKV_JOIN_SECONDS). "
                "Look at its output, or start fewer processes."
            )
        time.sleep(0.01 if missing else 0)


# --- Who computes what.


def divide(weights: Sequence[int], size: int) -> list[range]:
    """Contiguous blocks for `size` processes, such that the heaviest is as light as possible; some may be empty.

    >>> divide([4, 4, 4, 4], 2), divide([9, 1, 1, 1], 2), divide([5], 2)
    ([range(0, 2), range(2, 4)], [range(0, 1), range(1, 4)], [range(0, 1), range(1, 1)])
    >>> [len(block) for block in divide([1] * 7, 3)]
    [3, 2, 2]
    """
    low, high = max(weights, default=0), sum(weights)
    while low < high:
        limit = (low + high) // 2
        if _fits(weights, limit, size):
            high = limit
        else:
            low = limit + 1
    found = _blocks(weights, low, size)
    return found + [range(len(weights), len(weights))] * (size - len(found))


def _blocks(weights: Sequence[int], limit: int, size: int) -> list[range]:
    """Blocks of at most this weight. A block ends earlier where what is left then still has about its share."""
    found: list[range] = []
    begin, left = 0, sum(weights)
    while begin < len(weights):
        end, weight = begin, 0
        share = left / max(1, size - len(found))
        while end < len(weights) and weight + weights[end] <= limit:
            # past its fair share, a block takes no more, if the others can hold the rest
            if weight and weight >= share and _fits(weights[end:], limit, size - len(found) - 1):
                break
            weight += weights[end]
            end += 1
        found.append(range(begin, end))
        begin, left = end, left - weight
    return found


def _fits(weights: Sequence[int], limit: int, size: int) -> bool:
    """Whether blocks of at most this weight are at most `size`."""
    number, weight = 0, limit + 1
    for one in weights:
        if weight + one > limit:
            number, weight = number + 1, 0
        weight += one
    return number <= size


# --- Gradients.

BUCKET = 16 << 20
"""Bytes of gradients that are exchanged together: few enough to begin early, enough that the start costs nothing."""


@dataclass
class _Bucket:
    parameters: list[nn.Parameter] = field(default_factory=list)
    size: int = 0  # bytes
    left: int = 0  # parameters whose gradient is not ready yet
    flat: Tensor | None = None
    work: Any = None


class GradientSum:
    """Sums the gradients of all ranks, in flat buckets that begin to travel during the last backward pass.

    Buckets are filled in reverse order of the parameters, about the order in which a backward pass reaches them, and
    travel in one fixed order on all ranks. A parameter that no rank has a gradient for keeps none, as in one process:
    an optimizer would otherwise let it decay.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], world: World, bucket: int = BUCKET) -> None:
        self.world = world
        self.parameters = [one for one in parameters if one.requires_grad]
        self.buckets: list[_Bucket] = []
        self.of: dict[int, _Bucket] = {}
        open_buckets: dict[tuple[torch.dtype, torch.device], _Bucket] = {}
        for parameter in reversed(self.parameters):
            kind = parameter.dtype, parameter.device
            found, bytes_ = open_buckets.get(kind), parameter.numel() * parameter.element_size()
            if found is None or found.size + bytes_ > bucket:
                found = open_buckets[kind] = _Bucket()
                self.buckets.append(found)
            found.parameters.append(parameter)
            found.size += bytes_
            self.of[id(parameter)] = found
        self.armed = False
        self.sent = 0
        self.hooks = [one.register_post_accumulate_grad_hook(self._ready) for one in self.parameters]

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def arm(self) -> None:
        """Call before the last backward pass of this rank: gradients are final as soon as they are accumulated."""
        self.armed = True

    def begin(self) -> None:
        """Call at the start of a step."""
        self.armed, self.sent = False, 0
        for bucket in self.buckets:
            bucket.left, bucket.flat, bucket.work = len(bucket.parameters), None, None

    def _ready(self, parameter: Tensor) -> None:
        if self.armed:
            self.of[id(parameter)].left -= 1
            while self.sent < len(self.buckets) and self.buckets[self.sent].left <= 0:
                self._send()

    def _send(self) -> None:
        bucket = self.buckets[self.sent]
        self.sent += 1
        parts = [(torch.zeros_like(one) if one.grad is None else one.grad).reshape(-1) for one in bucket.parameters]
        bucket.flat = torch.cat(parts)
        try:
            bucket.work = dist.all_reduce(bucket.flat, async_op=True)
        except RuntimeError as error:
            raise lost_peer(error) from error

    def finish(self, stop: int) -> int:
        """Exchange what is left and put the sums into `.grad`. Returns the largest `stop` of all ranks."""
        present = torch.tensor([stop, *(one.grad is not None for one in self.parameters)], dtype=torch.uint8)
        while self.sent < len(self.buckets):
            self._send()
        _exchange(dist.all_reduce, present, dist.ReduceOp.MAX)
        stops, *have = present.tolist()
        known = {id(one) for one, there in zip(self.parameters, have, strict=True) if there}
        for bucket in self.buckets:
            _exchange(bucket.work.wait)
            assert bucket.flat is not None
            sizes = [one.numel() for one in bucket.parameters]
            for one, part in zip(bucket.parameters, bucket.flat.split(sizes), strict=True):
                one.grad = part.view_as(one) if id(one) in known else None
            bucket.flat = bucket.work = None
        return int(stops)
