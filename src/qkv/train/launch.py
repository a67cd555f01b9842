"""`--processes N`: start the same command N times on this machine, as torchrun would, and watch over the processes.

The processes find each other by torchrun's variables (RANK, WORLD_SIZE, …), so `torchrun --nproc-per-node N -m qkv …`
does the same, also on several machines. Not torchrun itself, because of how it ends: after a signal it kills what has
not stopped within 30 seconds, which may be in the middle of a long step or a large save; it answers with a traceback
and its own exit code; and when it is killed itself its workers live on.

Here a signal is handed to all processes, which save and stop; the first one's output is shown and its exit code
returned; if one of them dies, one message says which and why. If this process is killed, they save and stop.

What this file does NOT do: import torch, or start anything again.
"""

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO

from qkv.errors import PEER_LOST, InputError

LAUNCHED, LIFELINE = "QKV_LAUNCHED", "QKV_LIFELINE"
"""Variables of the processes: that they were started here, and a pipe that closes when this process ends."""
_GRACE = 20.0  # seconds in which the others end by themselves after one has died
_SHOWN = 15  # last lines of the output of a process that failed


@dataclass
class _Rank:
    number: int
    process: subprocess.Popen[bytes]
    errors: IO[bytes] | None  # what it wrote to standard error; None: it was shown


def launch(words: Sequence[str], processes: int, cores: int) -> int:
    """Run `python -m qkv WORDS` in so many processes; return the exit code of the first that says something."""
    if processes < 1:
        raise InputError(f"--processes must be 1 or more, not {processes}.")
    if "RANK" in os.environ:
        raise InputError("This process was started by torchrun, or by --processes: leave out --processes.")
    if not hasattr(os, "killpg"):
        raise InputError("--processes is for Linux and macOS. Leave it out.")
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores // processes))),
        LAUNCHED: "1",
    }
    if sys.platform == "linux":  # else gloo looks the name of the machine up
        shared["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    lifeline, held = os.pipe()
    ranks: list[_Rank] = []
    try:
        with ExitStack() as files, _forwarding(ranks) as signals:
            for number in range(processes):
                own = shared | {"RANK": str(number), "LOCAL_RANK": str(number), LIFELINE: str(lifeline)}
                said = files.enter_context(tempfile.TemporaryFile()) if number else None
                ranks.append(_Rank(number, _start(words, os.environ | own, lifeline, said), said))
            codes = _watch(ranks, signals)
            return _report(ranks, codes, bool(signals))
    finally:
        os.close(held)
        os.close(lifeline)
        for rank in ranks:
            _kill(rank)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _start(
    words: Sequence[str], environment: Mapping[str, str], lifeline: int, errors: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "qkv", *words],
        env=environment,
        stdin=None if errors is None else subprocess.DEVNULL,
        stdout=None if errors is None else subprocess.DEVNULL,
        stderr=errors,
        pass_fds=(lifeline,),
        start_new_session=True,  # else a terminal sends Ctrl-C to them too, and they would have it twice
    )


@contextmanager
def _forwarding(ranks: list[_Rank]) -> Iterator[list[int]]:
    """Hand SIGINT and SIGTERM to all processes; yields the list of those that came."""
    came: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        came.append(number)
        for rank in ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, hand_on) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(ranks: Sequence[_Rank], signals: Sequence[int]) -> dict[int, int]:
    """Wait for all processes → their exit codes, in the order in which they ended."""
    ended: queue.Queue[tuple[int, int]] = queue.Queue()
    for rank in ranks:
        threading.Thread(
            target=lambda rank=rank: ended.put((rank.number, rank.process.wait())), name="qkv-rank", daemon=True
        ).start()
    codes: dict[int, int] = {}
    limit: float | None = None
    while len(codes) < len(ranks):
        with suppress(queue.Empty):  # a short wait, so that signals are handled
            number, code = ended.get(timeout=0.2)
            codes[number] = code
            if code and not signals and limit is None:
                limit = time.monotonic() + _GRACE
        if limit is not None and time.monotonic() > limit:
            for rank in ranks:
                _kill(rank)
    return codes


def _kill(rank: _Rank) -> None:
    if rank.process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(rank.process.pid, signal.SIGKILL)


def _report(ranks: Sequence[_Rank], codes: Mapping[int, int], stopped: bool) -> int:
    """The exit code of the run; a message to standard error if a process failed that could not say so."""
    failed = [number for number, code in codes.items() if code not in (0, PEER_LOST)]
    if not failed:
        return 0 if not any(codes.values()) else PEER_LOST
    first = 0 if 0 in failed and codes[0] > 0 else failed[0]
    code = codes[first]
    if code < 0 and not (stopped and -code in (signal.SIGINT, signal.SIGTERM)):
        name = signal.Signals(-code).name
        why = " Was there too little memory?" if -code == signal.SIGKILL else ""
        raise InputError(
            f"Process {first} of {len(ranks)} was killed ({name}), and the others have ended.{why} The checkpoints are "
            "intact: resume the run with --resume."
        )
    if first and not stopped:
        said = _last_lines(ranks[first])
        raise InputError(
            f"Process {first} of {len(ranks)} failed with exit code {code}, and the others have ended. Its last "
            f"output:\n{said}"
        )
    return code if code > 0 else 128 - code


def _last_lines(rank: _Rank) -> str:
    assert rank.errors is not None
    rank.errors.seek(0)
    lines = rank.errors.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-_SHOWN:])


def end_with_launcher() -> None:
    """In a process that was started here: save and stop when the launcher is killed."""
    pipe = os.environ.get(LIFELINE)
    if pipe is None:
        return

    def listen(number: int) -> None:
        with suppress(OSError):
            os.read(number, 1)  # returns when nobody holds the other end any more
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, args=(int(pipe),), name="qkv-lifeline", daemon=True).start()


# --- Ctrl-C in a process that trains, of several or the only one.


@dataclass
class Interruption:
    signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


_FROM_AFAR = Interruption()


def stop_training(number: int) -> None:
    """Stop a run of this process that does not train in the main thread (on Ray) as this signal would, now or at its
    start."""
    _FROM_AFAR.signal = number


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Record the first SIGINT or SIGTERM and continue; the second has its default effect."""
    if threading.current_thread() is not threading.main_thread():
        yield _FROM_AFAR  # only the main thread may set handlers
        return
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.signal = number
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
