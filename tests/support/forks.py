"""Commands of qkv in processes of their own that start at once: a parent imports everything and forks for each.

Python with torch takes seconds to start; a child of this one takes none. To its signals and files it is the same
process that `python -m qkv` would be: it runs `main`, and exits with what that returns.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT = os.environ | ONE_THREAD | {"TOKENIZERS_PARALLELISM": "false"}

PARENT = """
import json, os, sys
import torch._dynamo
import qkv.cli.terminal, qkv.data.corpus.prepare, qkv.models.bert.pretrain, qkv.train.loop
from qkv.cli.main import main

qkv.train.loop.measure_peak = lambda *_: 5e10  # it takes 0.3 s
print("ready", flush=True)
for line in sys.stdin:
    command = json.loads(line)
    child = os.fork()
    if child == 0:
        said = os.open(command["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        code = main(command["words"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    def __init__(self, folder: Path) -> None:
        self.said = folder / "said.txt"
        self._parent = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert self._answer() == "ready"

    def run(self, *words: object, signal_at: Callable[[], bool] | None = None, number: int = signal.SIGKILL) -> int:
        """The exit code of a command; once `signal_at` holds, it is sent the signal."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps({"words": [str(word) for word in words], "said": str(self.said)}) + "\n")
        self._parent.stdin.flush()
        child = int(self._answer())
        if signal_at is not None:
            until(signal_at, lambda: not alive(child))
            send(child, number)
        return int(self._answer())

    def close(self) -> None:
        self._parent.communicate()

    def _answer(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().strip()


def run_python(
    said: Path, *words: object, signal_at: Callable[[], bool] | None = None, number: int = signal.SIGKILL
) -> int:
    """The same with `python -m qkv`, which takes seconds to start."""
    command = [sys.executable, "-m", "qkv", *map(str, words)]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=ENVIRONMENT) as process:
        if signal_at is not None:
            until(signal_at, lambda: process.poll() is not None)
            process.send_signal(number)  # does nothing to one that has ended
        return process.wait()


def until(*conditions: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not any(condition() for condition in conditions):
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.0005)


def alive(child: int) -> bool:
    """Not a zombie: the parent waits for its children, so one that ended is gone."""
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        return False
    return True


def send(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        return  # it ended by itself
