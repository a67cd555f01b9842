"""The parts of a preparation (parts.py) as tasks of a Ray cluster.

Ray runs each task on some node with a free CPU, and again on another one if that node is lost. The files that a task
had written by then are written again, with the same bytes; those of tasks that had ended are kept. No text passes
through Ray: a task reads its part of a file, writes its own files, and returns some figures.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from qkv.data.corpus.parts import PartsJob
from qkv.data.stores import is_url, open_store
from qkv.errors import InputError
from qkv.train.cluster import Cluster, Order, connect, import_ray

_TRIES = 20  # of a task whose node or process is lost
_SILENCE = 30.0  # seconds without a result after which the user is told

Work = Callable[[PartsJob, Any], Any]


@contextmanager
def cluster_tasks(
    address: str, out: str | os.PathLike[str], most: int | None, tell: Callable[[str], None]
) -> Iterator["ClusterTasks"]:
    """Connect to a cluster for the block. `most` is the number of tasks at a time (default: as many as it has CPUs)."""
    if most is not None and most < 1:
        raise InputError(f"workers is {most}; it must be at least 1, or omitted.")
    if is_url(out) and not open_store(out).is_shared:
        raise InputError(f"{open_store(out)} is in the memory of one process, which a cluster does not share.")
    with connect(address, cpus=most) as cluster:
        yield ClusterTasks(cluster, most, tell)


class ClusterTasks:
    """`Tasks` of parts.py."""

    def __init__(self, cluster: Cluster, most: int | None = None, tell: Callable[[str], None] = lambda _: None) -> None:
        self._cluster, self._most, self._tell = cluster, most, tell

    def map(self, work: Work, job: PartsJob, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        if not items:
            return
        ray = import_ray()
        task = ray.remote(_run).options(num_cpus=1, max_retries=_TRIES)
        running: dict[Any, int] = {}  # result → number of the item
        with self._cluster.errors():
            shared = ray.put((self._cluster.order(), work, job))
        try:
            limit, at, heard = 0, 0, time.monotonic()
            while at < len(items) or running:
                with self._cluster.errors():
                    if at < len(items) and len(running) >= limit:  # nodes come and go
                        limit = self._most or 2 * max(1, self._cluster.cpus)  # the next one waits at its node
                    while at < len(items) and len(running) < limit:
                        running[task.remote(shared, items[at])] = at
                        at += 1
                    done, _ = ray.wait(list(running), timeout=_SILENCE / 6)
                if done:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _SILENCE:
                    self._tell(
                        f"nothing was finished for {_SILENCE:.0f} s: the cluster has {self._cluster.cpus} CPUs, and "
                        "others may use them."
                    )
                    heard = time.monotonic()
                for one in done:
                    number = running.pop(one)
                    yield number, self._result(ray, one)
        finally:
            with suppress(Exception):  # of a lost cluster, which the error above names
                for one in running:
                    ray.cancel(one)

    def _result(self, ray: Any, one: Any) -> Any:
        try:
            with self._cluster.errors():
                return ray.get(one)
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise InputError(
                f"a process of the cluster ended {_TRIES} times at the same part. Was there too little memory? What is "
                "done is kept: run the same command again, perhaps with fewer --workers."
            ) from error


def _run(shared: tuple[Order, Work, PartsJob], item: Any) -> Any:
    order, work, job = shared
    order.begin()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread per task
    return work(job, item)
