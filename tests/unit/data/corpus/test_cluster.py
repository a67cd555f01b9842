"""Preparing on a Ray cluster of two nodes: the same bytes, also when a node is lost or the driver is killed."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.main import main
from qkv.data.corpus.cluster import ClusterTasks, Work, cluster_tasks
from qkv.data.corpus.parts import PartsJob
from qkv.data.corpus.prepare import PrepareProgress, prepare_corpus
from qkv.errors import InputError
from qkv.train.cluster import Order, connect
from tests.support.clusters import TwoNodes, two_nodes, wait_for, without_network
from tests.support.corpora import noted, write_corpus
from tests.support.folders import make_tokenizer
from tests.unit.data.corpus.test_parts import material
from tests.unit.data.corpus.test_prepare import content

pytest.importorskip("ray", minversion="2.58")


SMALL: dict[str, Any] = {"hold_out": 0.1, "block_bytes": 900, "shard_tokens": 1200}  # some 70 tasks


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("texts")
    return [*material(folder), write_corpus(folder / "more.txt", 200, seed=9)]


@pytest.fixture(scope="module")
def whole(texts: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    prepare_corpus(texts, make_tokenizer(), folder / "out", workers=1, **SMALL)
    return content(folder / "out")


class NotedTasks(ClusterTasks):
    """Tasks that leave the names of their nodes in a folder."""

    folder: Path

    def map(self, work: Work, job: PartsJob, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return super().map(partial(noted, work, self.folder), job, items)


def test_a_lost_node(nodes: TwoNodes, texts: list[Path], whole: dict[str, bytes], tmp_path: Path) -> None:
    """A node is killed while both work: its parts are made again, and nothing else."""
    nodes.restore()
    shares, lost = [0.0], 0.0
    with connect(nodes.address) as cluster:
        tasks = NotedTasks(cluster)
        tasks.folder = tmp_path / "nodes"
        tasks.folder.mkdir()

        def lose(progress: PrepareProgress) -> None:
            nonlocal lost
            shares.append(progress.share)
            if not lost and len(list(tasks.folder.iterdir())) == 2:
                lost = progress.share
                nodes.lose()

        prepare_corpus(texts, make_tokenizer(), tmp_path / "out", tasks=tasks, progress=lose, **SMALL)
        wait_for(lambda: cluster.cpus == 1)
    assert content(tmp_path / "out") == whole
    assert 0 < lost < 0.7 and shares == sorted(shares) and shares[-1] == 1.0


DRIVER = """
import sys
from pathlib import Path
from qkv.data.corpus.cluster import cluster_tasks
from qkv.data.corpus.prepare import prepare_corpus
from qkv.text.tokenizer import Tokenizer
address, tokenizer, out, *files = sys.argv[1:]
with cluster_tasks(address, out, None, print) as tasks:
    prepare_corpus(files, Tokenizer.load(tokenizer), out, tasks=tasks, hold_out=0.1, block_bytes=900, shard_tokens=1200,
                   progress=lambda now: print(now.share, flush=True))
"""


@pytest.mark.slow  # tests/unit/data/corpus/test_parts.py kills one without a cluster
def test_kill_9_of_the_driver(nodes: TwoNodes, texts: list[Path], whole: dict[str, bytes], tmp_path: Path) -> None:
    nodes.restore()
    make_tokenizer().save(tmp_path / "tokenizer")
    out = tmp_path / "out"
    command = [sys.executable, "-c", DRIVER, nodes.address, str(tmp_path / "tokenizer"), str(out), *map(str, texts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=without_network()) as process:
        assert process.stdout is not None
        for _ in range(12):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert not (out / "manifest.json").exists()
    kept = {file.name: file.stat().st_mtime_ns for file in (out / "unfinished").glob("part-*.json")}
    assert len(kept) >= 10
    seen: list[float] = []
    with connect(nodes.address) as cluster:
        prepare_corpus(
            texts,
            make_tokenizer(),
            out,
            tasks=ClusterTasks(cluster),
            progress=lambda now: seen.append(now.share),
            **SMALL,
        )
    assert content(out) == whole and seen[0] > 0.05, "what was done is not done again"


STOPPED = """
import os, signal, sys
from qkv.train.cluster import connect
def end(number, frame):
    raise SystemExit(143)
signal.signal(signal.SIGTERM, end)
with connect(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""


def test_sigterm_ends_a_command_as_without_ray(nodes: TwoNodes) -> None:
    command = [sys.executable, "-c", STOPPED, nodes.address]
    assert subprocess.run(command, env=without_network(), timeout=120).returncode == 143


def test_what_a_cluster_refuses(nodes: TwoNodes, tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    (tmp_path / "bad.txt").write_bytes(b"Fine.\n\nb\xe9d\n")
    with pytest.raises(InputError, match="memory://x is in the memory of one process"):
        cluster_tasks("local", "memory://x", None, print).__enter__()
    with pytest.raises(InputError, match="workers is 0"):
        cluster_tasks("local", tmp_path, 0, print).__enter__()
    with connect(nodes.address) as cluster:
        tasks = ClusterTasks(cluster, most=1)
        with pytest.raises(InputError, match="bad.txt, line 3, byte 2"):
            prepare_corpus(tmp_path / "bad.txt", make_tokenizer(), tmp_path / "out", tasks=tasks)
        with pytest.raises(InputError, match="cannot be imported by other machines"):
            prepare_corpus(file, make_tokenizer(), tmp_path / "new", tasks=tasks, segmenter=lambda text: [text])


def test_the_verb(nodes: TwoNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_corpus(tmp_path / "a.txt")
    make_tokenizer().save(tmp_path / "tokenizer")
    words = f"prepare {file} --tokenizer {tmp_path / 'tokenizer'} --hold-out 0.1 --out"
    assert main([*words.split(), str(tmp_path / "out"), "--cluster", nodes.address, "--workers", "1"]) == 0
    assert main([*words.split(), str(tmp_path / "here")]) == 0
    assert content(tmp_path / "out") == content(tmp_path / "here")
    capsys.readouterr()
    assert main([*words.split(), "memory://x"]) == 2
    assert "where only a cluster writes" in capsys.readouterr().err


# --- The connection itself (train/cluster.py): here, where a cluster runs.


def _remote(function: Any) -> Any:
    return importlib.import_module("ray").remote(function)


def _get(reference: Any) -> Any:
    return importlib.import_module("ray").get(reference)


def test_connects_to_the_nodes_and_keeps_what_was_connected(nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_TOKEN", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("QKV_LOG_SAMPLES", "1")
    nodes.restore()
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
