"""The connection to Ray: the one place that calls `ray.init`, and what a worker does first.

    with connect("local") as cluster:
        order = cluster.order()
        ...                       # in a task or an actor: `order.begin()` before anything else
        with cluster.errors():
            ray.get(reference)    # an InputError of a worker is raised here as it was

`local` starts a small cluster of this machine's cores that nobody else can reach (it listens on a loopback address)
and that ends with the block; it never joins another. `auto` is that of RAY_ADDRESS, or the one that runs here;
HOST:PORT and ray://HOST:PORT are that one. A process that is connected already (a test, a notebook) stays connected.

Ray keeps the interpreter busy for seconds while it is imported and started, swallows Ctrl-C in parts of that, and takes
the handler of SIGTERM for itself. So it starts in a thread: this one waits for it and can be interrupted at any moment,
and the handlers stay as they were. What was started by then is killed.

Nothing of the environment is handed to Ray (a `runtime_env` is shown in its dashboard, with every token in it). A
worker is given the variables of `PASSED`, as an argument.

What this file does NOT do: start workers or jobs. Those are launch_ray.py beside it, and the packages to the right.
"""

import atexit
import importlib
import logging
import os
import queue
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from qkv.errors import InputError, did_you_mean

_T = TypeVar("_T")

OLDEST = (2, 58)
"""The oldest Ray that has what we use (elastic training, two-phase writes, back pressure by 429)."""
PASSED = ("QKV_LANG", "QKV_MODEL", "QKV_LOG_SAMPLES", "QKV_JOIN_SECONDS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables of the environment that a worker is given. No secrets: they would be in Ray's logs and dashboard."""
_PATIENCE = 60.0
"""Seconds in which a cluster has to answer; QKV_JOIN_SECONDS."""
_STORE = 128 << 20
"""Bytes of the object store of a private cluster: blocks of rows pass through it, files do not."""
_LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Ray replaces 127.0.0.1 by the address of the machine in its network, where others would reach the cluster."""


@dataclass(frozen=True)
class Order:
    """What a worker is told before its first piece of work; pickled to it."""

    version: str
    variables: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Call first in a task or an actor."""
        if (here := own_version()) != self.version:
            raise InputError(
                f"The node {socket.gethostname()} of the Ray cluster has qkv {here}, and the command was given to qkv "
                f"{self.version}. Install the same version on all nodes."
            )
        os.environ.update(self.variables)


@dataclass(frozen=True)
class Cluster:
    """A connection to Ray, while the block of `connect` runs."""

    address: str
    is_own: bool  # started here, for this block

    def order(self) -> Order:
        return Order(own_version(), {name: os.environ[name] for name in PASSED if name in os.environ})

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive, as Ray describes them."""
        listed_nodes: Callable[[], list[dict[str, Any]]] = importlib.import_module("ray").nodes
        with self.errors():
            return [node for node in listed_nodes() if node["Alive"]]

    def count(self, resource: str) -> int:
        """CPUs or GPUs of all nodes that are alive, whether in use or not."""
        return int(sum(node["Resources"].get(resource, 0) for node in self.nodes()))

    @property
    def cpus(self) -> int:
        return self.count("CPU")

    @property
    def gpus(self) -> int:
        return self.count("GPU")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise an InputError of a worker as it was, and say in a sentence that the cluster is lost."""
        import ray

        try:
            yield
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise self.error_of(error) from error

    def error_of(self, error: BaseException) -> BaseException:
        """What to raise for an error that Ray has raised: the error itself, if it is one of a program."""
        found: BaseException | None = error
        seen: set[int] = set()
        while found is not None and id(found) not in seen:
            seen.add(id(found))
            if isinstance(found, InputError):
                return InputError(str(_bare(found)))
            if isinstance(found, ModuleNotFoundError) and (found.name or "").partition(".")[0] == "qkv":
                return InputError(
                    f"A node of the Ray cluster cannot import qkv ({found}). Install qkv {own_version()} on all nodes."
                )
            found = getattr(found, "cause", None) or found.__cause__
        if isinstance(error, ConnectionError) or type(error).__name__ in _LOST:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return InputError(f"The Ray cluster at {self.address} cannot be reached any more: {reason}")
        return error


_LOST = ("RpcError", "RaySystemError", "RayletDiedError", "LocalRayletDiedError", "GetTimeoutError")


def _bare(error: BaseException) -> BaseException:
    """The exception of the worker: Ray raises a class of its own, whose text is a traceback."""
    return getattr(error, "cause", None) or error


def check_address(address: str) -> str:
    """The address as it is, if it can be one of a cluster.

    >>> check_address("local"), check_address("ray://head:10001"), check_address("10.0.0.7:6379")
    ('local', 'ray://head:10001', '10.0.0.7:6379')
    >>> check_address("locl")
    Traceback (most recent call last):
    qkv.errors.InputError: --cluster is local, auto, HOST:PORT or ray://HOST:PORT, not 'locl'. Did you mean 'local'?
    """
    if address in ("local", "auto"):
        return address
    host, port = _split(address)
    if not host or not 0 < port < 1 << 16:
        hint = did_you_mean(address, ("local", "auto"))
        raise InputError(f"--cluster is local, auto, HOST:PORT or ray://HOST:PORT, not '{address}'.{hint}")
    return address


_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[\w.-]+|\[[\da-fA-F:]+\]):(?P<port>\d{1,5})/?")


def _split(address: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    return ("", 0) if found is None else (found["host"].strip("[]"), int(found["port"]))


def import_ray(extra: str = "cluster") -> Any:
    """Import Ray and return it; one sentence where that is not possible."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported, as the next one is
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # it would ship the environment of `uv run`
    install = f"pip install 'qkv[{extra}]'"
    try:
        ray = importlib.import_module("ray")
        found = tuple(int(part) for part in re.findall(r"\d+", ray.__version__)[:2])
        if found < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise InputError(f"Ray {ray.__version__} is installed, and --cluster needs {needed} or newer: {install}")
    except ImportError as error:
        raise InputError(f"Ray is needed for --cluster and cannot be imported ({error}): {install}") from error
    return ray


@contextmanager
def connect(address: str, extra: str = "cluster", cpus: int | None = None) -> Iterator[Cluster]:
    """Connect to Ray; see the head of this file.

    `extra` is what to install where Ray is missing; `cpus` are those of a private cluster, if not all cores of this
    process.
    """
    check_address(address)
    keeper = _Keeper()
    try:
        ray = keeper.do(lambda: import_ray(extra))
        if ray.is_initialized():
            yield Cluster(ray.get_runtime_context().gcs_address, is_own=False)
            return
        found = _find_running() if address == "auto" else address
        if found != "local":
            _probe(address, found)
        with _own_folder(found == "local") as folder:
            try:
                keeper.do(lambda: _init(ray, found, cpus, folder), _patience())
            except InputError:
                raise
            except Exception as error:
                raise _refused(address, error) from error
            _keep_handler()
            try:
                yield Cluster(found if "://" in found else ray.get_runtime_context().gcs_address, found == "local")
            finally:
                keeper.do(ray.shutdown, _patience())
    finally:
        keeper.close()


def _keep_handler() -> None:
    """Put the handler of SIGTERM back: below Python, Ray has replaced it by one that aborts the process."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _own_folder(wanted: bool) -> Iterator[str | None]:
    """A folder for the sockets and logs of a private cluster, which would stay in /tmp/ray for good."""
    if not wanted:
        yield None
        return
    usual = tempfile.gettempdir()  # the path of a socket has at most 107 bytes, of which Ray needs 80
    folder = tempfile.mkdtemp(prefix="qkv-", dir="/tmp" if len(usual) > 16 and os.path.isdir("/tmp") else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _init(ray: Any, address: str, cpus: int | None, folder: str | None) -> None:
    settings: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if address == "local":
        settings |= {
            "num_cpus": cpus or _count_cores(),
            "include_dashboard": False,
            "object_store_memory": _STORE,
            "_node_ip_address": _LOOPBACK,
            "_temp_dir": folder,
        }
    logger = logging.getLogger("ray")
    logger.setLevel(max(logger.level, logging.ERROR))
    # Ray prints what has happened to nodes and workers, with parts of its logs, to standard output: among our results
    internal: Any = importlib.import_module("ray._private.worker")
    internal.print_to_stdstream = lambda *_, **__: None
    ray.init(address=address, **settings)


def _refused(address: str, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if address == "local":
        return InputError(f"Ray cannot be started on this machine: {reason}")
    return InputError(f"The Ray cluster {address} refuses the connection: {reason}")


def _find_running() -> str:
    """The address of --cluster auto."""
    services = importlib.import_module("ray._private.services")
    found = os.environ.get("RAY_ADDRESS")
    if not found:
        with suppress(ConnectionError):
            found = services.canonicalize_bootstrap_address("auto")
    if not found or found in ("auto", "local"):
        raise InputError(
            "--cluster auto found no Ray cluster: RAY_ADDRESS is not set, and none runs on this machine. Give its "
            "HOST:PORT, or --cluster local."
        )
    if not all(_split(found)):
        raise InputError(f"RAY_ADDRESS is '{found}', and not HOST:PORT or ray://HOST:PORT.")
    return str(found)


def _patience() -> float:
    return float(os.environ.get("QKV_JOIN_SECONDS", _PATIENCE))


def _probe(given: str, address: str) -> None:
    """Raise at once if nothing listens there: Ray itself would try for ten minutes."""
    host, port = _split(address)
    named = address if given == address else f"{given} ({address})"
    try:
        with socket.create_connection((host, port), timeout=min(10.0, _patience())):
            pass
    except OSError as error:
        raise InputError(
            f"The Ray cluster {named} cannot be reached: {error.strerror or error}. Is it running, and is this the "
            "address of its head node?"
        ) from error


@contextmanager
def watch_head(cluster: Cluster, say: Callable[[], None]) -> Iterator[None]:
    """While the block runs, end this process with exit code 2 when the head of the cluster is lost, after `say` has
    said so: Ray would wait a minute, and abort the process."""
    ended = threading.Event()
    host, port = _split(cluster.address)

    def watch() -> None:
        missed = 0
        while not ended.wait(1.0):
            try:
                with socket.create_connection((host, port), timeout=5.0):
                    missed = 0
            except OSError:
                missed += 1
            if missed >= 3 and not ended.is_set():
                say()
                _leave(2)

    threading.Thread(target=watch, name="qkv-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class _Keeper:
    """A thread for what must not be in this one: starting Ray and ending it. It lives as long as the connection,
    because Linux ends Ray's processes with the thread that has started them."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="qkv-ray", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            call()

    def close(self) -> None:
        self.calls.put(None)

    def do(self, work: Callable[[], _T], limit: float | None = None) -> _T:
        """Do the work there and wait for it. A signal ends the wait at once, and so does the limit; the processes that
        were started by then are killed."""
        done: list[_T] = []
        failed: list[BaseException] = []
        ended = threading.Event()

        def run() -> None:
            try:
                done.append(work())
            except BaseException as error:
                failed.append(error)
            ended.set()

        self.calls.put(run)
        end = None if limit is None else time.monotonic() + limit
        try:
            while not ended.wait(0.1):
                if end is not None and time.monotonic() > end:
                    raise InputError(
                        f"Ray did not answer within {limit:g} s (QKV_JOIN_SECONDS). Is the address that of its head "
                        "node?"
                    )
        except BaseException as error:
            _kill_descendants(self.thread.native_id)
            # the thread waits for them for ever, or starts others; and so would Ray's own end of this process
            code = error.code if isinstance(error, SystemExit) else 130 if isinstance(error, KeyboardInterrupt) else 2
            atexit.register(_leave, code, self.thread.native_id)
            raise
        if failed:
            raise failed[0]
        return done[0]


def _leave(code: object, thread: int | None = None) -> None:
    if thread is not None:
        _kill_descendants(thread)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


def _kill_descendants(thread: int | None) -> None:
    """End what `_descendants` finds; first stop it, so that it starts nothing more."""
    stopped: list[int] = []
    while new := [one for one in _descendants(thread) if one not in stopped]:
        for process in new:
            stopped.append(process)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
    for process in stopped:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _descendants(thread: int | None) -> list[int]:
    """The processes that a thread of this process has started, and those that they have (Linux; elsewhere Ray's own
    watcher ends them with this process)."""
    found = _children(f"/proc/self/task/{thread}")
    for process in found:  # grows meanwhile
        with suppress(OSError):
            found += [
                one for task in os.listdir(f"/proc/{process}/task") for one in _children(f"/proc/{process}/task/{task}")
            ]
    return found


def _children(task: str) -> list[int]:
    try:
        with open(f"{task}/children") as file:
            return [int(one) for one in file.read().split()]
    except OSError:
        return []


def own_version() -> str:
    try:
        return version("qkv")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0"


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
