"""The connection to Ray: addresses, a Ray that is missing or old, Ctrl-C while it starts.

What workers are given and how their errors arrive: stories/test_cli_cluster.py, which has a cluster."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.train.cluster import check_address, import_ray
from tests.support.clusters import wait_for


@pytest.mark.parametrize("address", ["nonsense", "", "head", "head:0", "http://head:1", "ray://head", "head:99999"])
def test_refuses_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="--cluster is local, auto, HOST:PORT or ray://HOST:PORT, not"):
        check_address(address)


def test_says_that_ray_is_missing_or_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InputError, match=r"Ray is needed for --cluster and cannot be imported .*: pip install 'qkv\[cluster\]'"
    ):
        import_ray()

    class Old:
        __version__ = "2.57.1"

    monkeypatch.setitem(sys.modules, "ray", Old)
    with pytest.raises(InputError, match=r"Ray 2.57.1 is installed, and --cluster needs 2.58 or newer"):
        import_ray()


STARTS = """
import sys, time
from qkv.train.cluster import connect
try:
    print("starting", flush=True)
    with connect("local"):
        time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("seconds", [0.3, 1.5, 3.0, 5.0])
def test_ctrl_c_while_ray_starts_ends_everything(seconds: float) -> None:
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130

    def left() -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == process.pid and fields[0] != "Z":
                    found.append((folder / "cmdline").read_text()[:200])
        return found

    with contextlib.suppress(AssertionError):
        wait_for(lambda: not left(), 20)
    assert not left()
