"""A Ray cluster of two nodes on this machine, for tests.

What it costs (two cores, other tests beside): 6 to 9 s to start the head, a second node and a connection; 2 s a node
more; the first task on a node 1 s, because its process imports what it needs; 1 s to end. So one cluster a module:

    @pytest.fixture(scope="module")
    def nodes() -> Iterator[TwoNodes]:
        with two_nodes() as cluster:
            yield cluster

This process is connected meanwhile, so `connect(nodes.address)` inside a test costs nothing; a command in another
process connects by --cluster ADDRESS (1 s and `import ray`). The head has one CPU, and so has the other node.
"""

import importlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from qkv.train.cluster import _LOOPBACK, connect

_SETTINGS = {
    "RAY_memory_monitor_refresh_ms": "0",  # it would kill workers on a busy machine
    "RAY_AUTH_MODE": "disabled",  # else a token is written into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    # a lost node is noticed within a second, and a slow one is not taken for lost
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "200",
    "RAY_health_check_timeout_ms": "20000",
    "RAY_health_check_failure_threshold": "3",
}
_NODE = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20, "node_ip_address": _LOOPBACK}


class TwoNodes:
    """The head and another node; `lose` and `add` change the other ones."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._others: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, **settings: Any) -> None:
        self._others.append(self._cluster.add_node(**(_NODE | settings)))

    def lose(self) -> None:
        """Kill all processes of a node that is not the head, as if its power had gone."""
        self._cluster.remove_node(self._others.pop(), allow_graceful=False)

    def end_head(self) -> None:
        """Kill the head: the cluster is lost."""
        self._cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    def restore(self) -> None:
        """Have two nodes again, whatever the test before did."""
        while self._others[1:]:
            self.lose()
        if not self._others:
            self.add()


@contextmanager
def two_nodes(connected: bool = True) -> Iterator[TwoNodes]:
    """A cluster of two nodes with a CPU each; this process is connected to it, unless it shall not be."""
    pytest.importorskip("ray", minversion="2.58")
    folder = tempfile.mkdtemp(prefix="qkv-ray-", dir="/tmp")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in _SETTINGS.items():
            patch.setenv(name, value)
        os.mkdir(os.path.join(folder, "ray"))  # where Ray writes the address, and does not make the folder itself
        patch.setenv("RAY_TMPDIR", folder)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of Ray
        cluster_utils = importlib.import_module("ray.cluster_utils")
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=_NODE | {"temp_dir": folder})
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(cluster.shutdown)
        nodes = TwoNodes(cluster)
        nodes.add()
        if connected:
            stack.enter_context(connect(nodes.address))
        yield nodes


def wait_for(what: Any, seconds: float = 60.0) -> None:
    """Wait until a condition holds; a test fails that waits for ever."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.02)


def without_network(environment: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for a command in another process that connects to the cluster."""
    return os.environ | _SETTINGS | (environment or {})
