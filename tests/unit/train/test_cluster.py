"""The connection to Ray: addresses, what a worker is given, errors of workers, and how it ends."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from qkv.errors import InputError
from qkv.train.cluster import Order, check_address, connect, import_ray
from tests.support.clusters import TwoNodes, two_nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with two_nodes() as cluster:
        yield cluster


def _remote(function: Any) -> Any:
    return importlib.import_module("ray").remote(function)


def _get(reference: Any) -> Any:
    return importlib.import_module("ray").get(reference)


def test_connects_to_the_nodes_and_keeps_what_was_connected(nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_TOKEN", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("QKV_LOG_SAMPLES", "1")
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    with connect(nodes.address) as cluster:
        assert (len(cluster.nodes()), cluster.cpus, cluster.gpus, cluster.is_own) == (2, 2, 0, False)
        order = cluster.order()
        assert "secret" not in repr(order)
        seen = _get(_remote(_variables).remote(order))
        assert seen["QKV_LOG_SAMPLES"] == "1"
    assert importlib.import_module("ray").is_initialized()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


def _variables(order: Order) -> dict[str, str]:
    order.begin()
    return dict(os.environ)


def test_errors_of_workers_arrive_as_they_were(nodes: TwoNodes) -> None:
    with connect(nodes.address) as cluster:
        with pytest.raises(InputError) as caught, cluster.errors():
            _get(_remote(_refuse).remote(cluster.order()))
        assert str(caught.value) == "文件 a.txt is empty."
        with pytest.raises(InputError, match="has qkv .*, and the command was given to qkv 9.9"), cluster.errors():
            _get(_remote(_refuse).remote(Order("9.9")))
        with pytest.raises(ZeroDivisionError), cluster.errors():  # a mistake of ours keeps its traceback
            _get(_remote(_stumble).remote())


def _refuse(order: Order) -> None:
    order.begin()
    raise InputError("文件 a.txt is empty.")


def _stumble() -> None:
    raise ZeroDivisionError


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
