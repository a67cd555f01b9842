"""`--cluster ADDRESS --processes N`: start a training command in N processes of a Ray cluster, and watch over them.

This is torchrun's place, taken by Ray Train's TorchTrainer: it finds nodes, makes torch's process group, and starts all
processes again when one is lost or (`--min-processes`) when the cluster grows. What it starts is the command itself,
which sees torch.distributed and the checkpoints in the folder of the run, and nothing of Ray: nothing is reported to
it, no checkpoint is its own. A command that was started again is `… --resume RUN`, from the newest checkpoint; with the
same number of processes the run ends with the same bytes as an undisturbed one.

Between the command and its processes is a `Relay`, an actor beside the command: what the first process writes goes to
this terminal, a signal to this command goes to the processes, which save and stop, and at the end their exit codes come
back. An error of the user's (exit code 2) ends the run at once; three losses in a row at the same checkpoint do too.

What this file does NOT do: start anything for a user who is not on the cluster (`ray job submit` does), or put a run on
an object store.
"""

import asyncio
import importlib
import io
import os
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from qkv.config import read_toml
from qkv.errors import PEER_LOST, InputError
from qkv.text.messages import write
from qkv.train.cluster import Cluster, Order, connect, watch_head
from qkv.train.launch import LAUNCHED, stop_training
from qkv.train.run_folder import CONFIG, LOCK, steps_kept

_GRACE = 20.0  # seconds in which the others end by themselves after one has failed
_LOSSES = 3  # in a row at the same checkpoint, after which the run is given up
_FREED = 120.0  # seconds in which the lock of a lost process has to be free
_WAIT = 30.0  # seconds without a process after which the user is told what the cluster lacks
_SHOWN = 15  # last lines of a process that failed
_LONG = 12 * 3600  # seconds of an exchange: others wait while the first process evaluates and saves


_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # how soon a lost process is noticed
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # it would print everything twice
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process more, for what the loop does not ask
    "RAY_TRAIN_METRICS_ENABLED": "0",
}


@dataclass(frozen=True)
class Command:
    """A training command: its words, those that resume its run, and where it was given."""

    words: tuple[str, ...]
    again: tuple[str, ...]
    run: str  # the folder of the run, absolute
    folder: str  # the current folder
    on_cpu: bool

    @property
    def config(self) -> Path:
        return Path(self.run, CONFIG)


# --- Beside the command.


def command_of(verb: Sequence[str], words: Sequence[str], given: Mapping[str, Any]) -> Command:
    """The command of a verb with these words, of which these are the values of its options."""
    run, device = given["resume"] or given["out"], given["device"]
    if "RANK" in os.environ:
        raise InputError("This process was started by torchrun, or by --processes: leave out --cluster.")
    if run is None:
        raise InputError("--cluster needs the folder of the run: --out RUN, or --resume RUN.")
    if given["resume"] and (run / CONFIG).is_file():
        device = read_toml(run / CONFIG).get("device")
    folder = str(run.absolute())
    again = (*verb, "--resume", folder, *(["--json"] if given["as_json"] else []))
    return Command((*verb, *words), again, folder, os.getcwd(), on_cpu=device == "cpu")


def launch_on_cluster(address: str, command: Command, processes: int, least: int | None) -> int:
    """Run the command in so many processes of the cluster; return the exit code of the run.

    With `least` the number may be anything from there on, as the cluster shrinks and grows.
    """
    if processes < 1 or (least is not None and not 1 <= least <= processes):
        raise InputError("--processes must be 1 or more, and --min-processes between 1 and it.")
    if "://" in address:
        raise InputError(
            "Training is not started through ray://. Give the command on a machine of the cluster with --cluster auto, "
            "or by `ray job submit`."
        )
    with connect(address, cpus=processes if address == "local" else None) as cluster:
        gpus = 0 if command.on_cpu else cluster.gpus
        if gpus and gpus < (least or processes):
            raise InputError(
                f"{processes} processes need as many GPUs, and the cluster has {gpus}. Give --processes {gpus}, or "
                "--device cpu."
            )
        cores = share_of_cores([int(node["Resources"].get("CPU", 0)) for node in cluster.nodes()], processes)
        return _Launch(cluster, command, processes, least, bool(gpus), cores).go()


def share_of_cores(nodes: Sequence[int], processes: int) -> int:
    """The most cores that each process can have if all are to find a place on nodes with so many; at least 1.

    >>> share_of_cores([8, 8], 4), share_of_cores([8, 4], 2), share_of_cores([2], 4)
    (4, 4, 1)
    """
    fitting = (cores for cores in range(max(nodes, default=1), 1, -1) if sum(n // cores for n in nodes) >= processes)
    return next(fitting, 1)


class _Launch:
    def __init__(
        self, cluster: Cluster, command: Command, processes: int, least: int | None, on_gpus: bool, cores: int
    ) -> None:
        self.cluster, self.command, self.cores, self.on_gpus = cluster, command, cores, on_gpus
        self.processes: int | tuple[int, int] = processes if least in (None, processes) else (least or 1, processes)
        self.ray = importlib.import_module("ray")
        here = {"ray.io/node-id": self.ray.get_runtime_context().get_node_id()}
        self.relay = self.ray.remote(num_cpus=0, label_selector=here)(Relay).remote()
        self.failed: BaseException | None = None

    def go(self) -> int:
        with cluster_storage(Path(self.command.run)) as storage:
            trainer = self._trainer(storage)
            fitting = threading.Thread(target=self._fit, args=(trainer,), name="qkv-ray-train", daemon=True)
            with _forwarding(self.relay) as signals, watch_head(self.cluster, lambda: self._end_lost(storage)):
                fitting.start()
                self._show_until(fitting)
            with self.cluster.errors():
                end = self.ray.get(self.relay.result.remote())
        return self._report(end, signals)

    def _trainer(self, storage: str) -> Any:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        train, torch_ = importlib.import_module("ray.train"), importlib.import_module("ray.train.torch")
        given = {"order": self.cluster.order(), "command": self.command, "relay": self.relay}
        resources = {"CPU": self.cores} | ({"GPU": 1} if self.on_gpus else {})
        return torch_.TorchTrainer(
            work_on_cluster,
            train_loop_config=given,
            scaling_config=train.ScalingConfig(
                num_workers=self.processes, use_gpu=self.on_gpus, resources_per_worker=resources
            ),
            run_config=train.RunConfig(
                name="qkv", storage_path=storage, failure_config=train.FailureConfig(max_failures=-1)
            ),
            torch_config=torch_.TorchConfig(backend="cpu:gloo,cuda:nccl" if self.on_gpus else "gloo", timeout_s=_LONG),
        )

    def _fit(self, trainer: Any) -> None:
        try:
            trainer.fit()
        except BaseException as error:
            self.failed = error

    def _show_until(self, fitting: threading.Thread) -> None:
        """Write what the first process says, until all have ended."""
        quiet_since = time.monotonic()
        while True:
            alive = fitting.is_alive()
            with self.cluster.errors():
                running, said = self.ray.get(self.relay.take.remote(0.3))
            for stream, text in said:
                out = sys.stdout if stream == "out" else sys.stderr
                out.write(text)
                out.flush()
            if not alive:
                return
            now = time.monotonic()
            if running:
                quiet_since = now
            elif now - quiet_since > _WAIT:
                quiet_since = now
                self._say_what_lacks()

    def _end_lost(self, storage: str) -> None:
        shutil.rmtree(storage, ignore_errors=True)
        write(
            f"error: The Ray cluster at {self.cluster.address} is lost: its head node does not answer. The checkpoints "
            "are intact: resume the run with --resume.",
            err=True,
        )

    def _say_what_lacks(self) -> None:
        kind = "GPU" if self.on_gpus else "CPU"
        wanted = self.processes if isinstance(self.processes, int) else self.processes[0]
        total, free = self.cluster.count(kind), self.ray.available_resources().get(kind, 0)
        each = 1 if self.on_gpus else self.cores
        write(
            f"waiting for the cluster: {wanted} processes need {wanted * each} {kind}s, of {total} in the cluster "
            f"{free:g} are free. Ctrl-C ends.",
            err=True,
        )

    def _report(self, end: Mapping[str, Any], signals: Sequence[int]) -> int:
        if end["given_up"] is not None:
            raise InputError(
                f"The processes were lost {_LOSSES} times in a row at step {end['given_up']:,}, and the run was given "
                f"up: {end['reason'] or 'is there enough memory?'} The checkpoints are intact: resume the run with "
                "--resume."
            )
        codes = {int(rank): code for rank, code in end["codes"].items()}
        failed = [rank for rank, code in codes.items() if code not in (0, PEER_LOST)]
        if failed and codes.get(0, 0) in (0, PEER_LOST):
            rank = failed[0]
            raise InputError(
                f"Process {rank} of {end['size']} failed with exit code {codes[rank]}, and the others have ended. Its "
                f"last output:\n{end['texts'][rank]}"
            )
        if codes:
            return codes.get(0, 1)
        if self.failed is not None:
            raise self.cluster.error_of(_cause_of(self.failed))
        return 128 + signals[0] if signals else 1


def _cause_of(error: BaseException) -> BaseException:
    """What a worker or the controller of Ray Train raised, from the error that `fit` raised."""
    inner = getattr(error, "controller_failure", None) or next(
        iter(getattr(error, "worker_failures", {}).values()), None
    )
    return inner if isinstance(inner, BaseException) else error


@contextmanager
def cluster_storage(run: Path) -> Iterator[str]:
    """A folder beside the run for what Ray Train writes (a mark by which it sees that all nodes share it)."""
    parent = next(folder for folder in run.parents if folder.is_dir())
    try:
        folder = tempfile.mkdtemp(prefix=".qkv-ray-", dir=parent)
    except OSError as error:
        raise InputError(f"{parent} cannot be written: {error.strerror}. Give another folder with --out.") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _forwarding(relay: Any) -> Iterator[list[int]]:
    """Hand the first SIGINT or SIGTERM to the processes, which save and stop; the second ends this command."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def hand_on(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.signal(number, before[signal.Signals(number)])
        relay.stop.remote(number)

    for number in numbers:
        signal.signal(number, hand_on)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Relay:
    """What the command and its processes exchange; an actor with many calls at a time, one attempt after another."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.news = asyncio.Event()
        self.signal = 0
        self.stopped = asyncio.Event()
        self.attempts: list[tuple[int, int]] = []  # step and number of processes of each
        self.before: object = None  # what the folder held when the first attempt began
        self.codes: dict[int, int] = {}
        self.texts: dict[int, str] = {}
        self.size = 0
        self.running = False
        self.given_up: int | None = None
        self.reason = ""

    async def begin(self, size: int, step: int, config: object) -> dict[str, Any]:
        """The first process of an attempt reports; returns what the attempt is to do."""
        first = not self.attempts
        if first:
            self.before = config
        self.attempts.append((step, size))
        last = self.attempts[-_LOSSES - 1 :]
        if not self.codes and len(last) > _LOSSES and len(set(last)) == 1:
            self.given_up = step
        over = bool(self.codes) or self.given_up is not None or (self.signal != 0 and not first)
        self.size, self.running = size, True
        return {"first": first, "over": over, "resume": config is not None and config != self.before}

    async def say(self, stream: str, text: str) -> None:
        self.said.append((stream, text))
        self.news.set()

    async def take(self, seconds: float) -> tuple[bool, list[tuple[str, str]]]:
        """What was said since, or nothing after so many seconds; whether processes are at work."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.news.wait(), seconds)
        self.news.clear()
        said, self.said = self.said, []
        return self.running, said

    async def stop(self, number: int) -> None:
        self.signal = number
        self.stopped.set()

    async def wait_for_stop(self) -> int:
        await self.stopped.wait()
        return self.signal

    async def lose(self, reason: str) -> None:
        self.running, self.reason = False, reason

    async def has_failed(self) -> bool:
        return any(code not in (0, PEER_LOST) for code in self.codes.values())

    async def end(self, rank: int, code: int, text: str) -> None:
        self.codes[rank], self.texts[rank] = code, text

    async def all_ended(self) -> bool:
        return len(self.codes) >= self.size

    async def result(self) -> dict[str, Any]:
        return {
            "codes": self.codes,
            "texts": self.texts,
            "size": self.size,
            "given_up": self.given_up,
            "reason": self.reason,
        }


# --- On the nodes.


class _Call(Protocol):
    def __call__(self, name: str, *values: object) -> Any: ...


class _Writer(io.TextIOBase):
    """A stream of text that goes to the relay, which nobody waits for."""

    def __init__(self, send: _Call, stream: str) -> None:
        self.send, self.stream = send, stream

    def write(self, text: str) -> int:
        _check_text(text)
        if text:
            self.send("say", self.stream, text)
        return len(text)


class _Last(io.TextIOBase):
    """A stream that keeps its last lines."""

    def __init__(self) -> None:
        self.parts: deque[str] = deque(maxlen=200)

    def write(self, text: str) -> int:
        _check_text(text)
        self.parts.append(text)
        return len(text)

    def text(self) -> str:
        return "\n".join("".join(self.parts).strip().splitlines()[-_SHOWN:])


def _check_text(text: object) -> None:
    if not isinstance(text, str):  # by which libraries find out what kind of stream it is
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")


def work_on_cluster(given: Mapping[str, Any]) -> None:
    """One process of an attempt: run the command, as torchrun would."""
    from qkv.train.distributed import leave_group

    ray = importlib.import_module("ray")
    rank, relay = int(os.environ["RANK"]), given["relay"]

    def send(name: str, *values: object) -> Any:
        return getattr(relay, name).remote(*values)

    def call(name: str, *values: object) -> Any:
        return ray.get(send(name, *values))

    os.environ[LAUNCHED] = "1"
    threading.Thread(target=lambda: stop_training(call("wait_for_stop")), name="qkv-stop", daemon=True).start()
    last = _Last()
    out, err = (_Writer(send, "out"), _Writer(send, "err")) if rank == 0 else (last, last)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            words = _prepare(given["order"], given["command"], call)
            if words is None:
                return
            code = run_words(words)
        except InputError as error:
            code = getattr(error, "exit_code", 2)
            if code != PEER_LOST:
                write(f"error: {error}", err=True)
    if code == PEER_LOST and not call("has_failed"):
        call("lose", "another process was lost")
        raise RuntimeError("a process of the run was lost")  # Ray Train starts all again
    call("end", rank, code, last.text())
    if code:
        leave_group()  # the others wait for this one, and notice that it is gone
    end = time.monotonic() + _GRACE
    while code and not call("all_ended"):
        if time.monotonic() > end:
            raise RuntimeError(f"process {rank} has failed")
        time.sleep(0.2)


def _prepare(order: Order, command: Command, call: _Call) -> tuple[str, ...] | None:
    """The words of this attempt; None if there is nothing more to do."""
    from qkv.train.distributed import join

    with join() as world:
        step = steps_kept(Path(command.run)) if world.is_main else 0
        plan = world.from_main(call("begin", world.size, step, _mark(command.config)) if world.is_main else {})
        if plan["over"]:
            return None
        refused: InputError | None = None
        try:
            order.begin()
            _enter(command.folder)
        except InputError as error:
            refused = error
        if world.agree(refused is not None):
            if refused is not None:
                raise refused
            call("end", world.rank, PEER_LOST, "")
            return None
        _check_shared(Path(command.run), world)
        if world.is_main and not plan["first"]:
            _wait_for_lock(Path(command.run))
            at = step if plan["resume"] else 0
            changed = "a process was lost, or the cluster has changed"
            write(f"note: {changed}. {world.size} processes resume from step {at:,}.", err=True)
        world.wait()
        return command.again if plan["resume"] else command.words


def run_words(words: Sequence[str]) -> int:
    """The exit code of `python -m qkv WORDS`, also where that has a mistake of ours."""
    from torch import distributed as dist

    before, sys.argv = sys.argv, ["qkv", *words]
    said, code = "", 0
    try:
        runpy.run_module("qkv", run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:
        said, code = traceback.format_exc(), 1
    finally:
        sys.argv = before
    if code and not dist.is_initialized():  # Ray Train saw first that another process was lost, and ended the group
        return PEER_LOST
    sys.stderr.write(said)
    return code


def _enter(folder: str) -> None:
    """Make the folder in which the command was given the current one, so that its paths mean the same."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(
            f"The node {socket.gethostname()} does not have the folder {folder} ({error.strerror}). Give the command "
            "in a folder on a file system that all nodes share."
        ) from error


def _mark(config: Path) -> list[int] | None:
    """What tells a config.toml from another one in its place."""
    try:
        found = config.stat()
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_size]


def _check_shared(run: Path, world: Any) -> None:
    """Raise in all processes if one of them does not see what the first one writes beside the run."""
    parent = next(folder for folder in run.parents if folder.is_dir())
    name = f".{run.name}.{os.getpid()}-{time.time_ns()}.shared"
    mark = parent / str(world.from_main(name))
    try:
        if world.is_main:
            mark.touch()
        world.wait()
        seen = False
        for _ in range(50):  # a network file system may take a moment
            if seen := mark.exists():
                break
            time.sleep(0.1)
        if not world.agree(not seen):
            return
    finally:
        if world.is_main:
            mark.unlink(missing_ok=True)
    raise InputError(
        f"Not all nodes of the cluster see the same {parent}. The folder of the run and the data must be on a file "
        "system that all nodes share."
    )


def _wait_for_lock(run: Path) -> None:
    """Wait until the lock of a process that was lost is free."""
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:
        return
    end = time.monotonic() + _FREED
    while time.monotonic() < end:
        try:
            with (run / LOCK).open("r+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        except BlockingIOError:
            time.sleep(0.2)
        except OSError:
            return
