"""A pool whose parent was killed leaves nobody behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bench_modules import ROOT

PARENT = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from end_with_parent import end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 60)
        sys.stdin.read()
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT / "bench")},
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        try:
            # its end comes when nobody holds the pipe any more, which the worker does while it lives
            assert parent.communicate(timeout=30)[0] == b""
        except subprocess.TimeoutExpired:
            os.kill(worker, signal.SIGKILL)
            pytest.fail("the worker outlives its parent")
