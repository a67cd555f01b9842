"""Answer the rows of many files on a Ray cluster: `qkv predict`, `embed` and `translate` with `--cluster`.

Ray Data hands the parts of the plan (parts.py) to actors that hold the model, as many as there are free CPUs or GPUs;
rows do not pass through Ray: an actor reads its part and writes its result. What Ray promises about lost actors is not
relied on. Its retries are off: it would wait for an actor of a full cluster without end. A part whose actor was lost is
not done, since it has no marker, and is done in the next round; a node that joins is used as soon as Ray sees it.

What this file does NOT do: decide what a part is, or write anything but the summary.
"""

import importlib
import json
import logging
import queue
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from qkv.api.part_jobs import EmbedParts, PredictParts, TranslateParts, join_facts
from qkv.api.parts import (
    CutFile,
    PartAnswerer,
    PartFolder,
    PartLimits,
    RowFile,
    RowJob,
    RowPlan,
    cut_file,
    find_files,
    plan_rows,
    suffix_of_parts,
)
from qkv.data.stores import is_url, place_of
from qkv.errors import InputError
from qkv.train.cluster import Cluster, Order, connect
from qkv.train.run_folder import LOCK, lock_run

AnyJob = TypeVar("AnyJob", PredictParts, EmbedParts, TranslateParts)
_HERE = 64 << 20  # bytes of input that are planned in this process: to start others would take longer
_TRIES = 20  # of a file whose node or process is lost while it is planned
_PATIENCE = 60.0  # seconds in which a cluster may have no node that can hold the model
_QUIET = 10.0  # seconds without a result after which it is said that we wait
_FRUITLESS = 3  # rounds without a result after which we give up
_MOST_FAILED = 20  # parts with a row that cannot be used, if they are more than those that are done


@dataclass(frozen=True)
class PartsAnswered:
    """What was done."""

    out: str
    n_parts: int
    n_kept: int  # of them, that an earlier command had done
    n_rows: int
    seconds: float
    facts: Mapping[str, Any]  # of all parts (part_jobs.py)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        own = {"out": self.out, "n_parts": self.n_parts, "n_parts_kept": self.n_kept, "n_rows": self.n_rows}
        known = {name: value for name, value in self.facts.items() if name not in ("unknown", "cost", "left_out")}
        return own | known | {"seconds": self.seconds}


Tell = Callable[[str], None]
Count = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""What is counted, and how many there are in all → a function that is given how many more are done."""


@contextmanager
def _no_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda items: None


def answer_parts(
    job: AnyJob,
    inputs: Sequence[str],
    out: str,
    address: str,
    limits: PartLimits | None = None,
    tell: Tell = lambda message: None,
    progress: Count = _no_progress,
) -> PartsAnswered:
    """Answer every row of some files on the cluster at `address`, into a folder of parts.

    The same call goes on where an earlier one was stopped, by whatever: parts that are done are kept. A row that cannot
    be used is an error when all others are done.
    """
    suffix = suffix_of_parts(out)
    files = find_files(inputs, out, job.reads_documents)
    began = time.perf_counter()
    with connect(address, "ray.data") as cluster:
        device = _choose_device(cluster, job)
        job = replace(job, model=replace(job.model, device=device, threads=_count_threads(job, device)))
        where = place_of(out) if is_url(out) else str(Path(place_of(out)).absolute())
        folder = PartFolder(where, suffix, job.settings())
        folder.check_target()
        with lock_run(Path(where)) if folder.store.is_local else folder.store.lock():
            markers = folder.check_target()
            cut = _cut_files(cluster, job, files, limits or PartLimits(), suffix, progress)
            plan = plan_rows(cut, suffix)
            for file in plan.files:
                if file.note:
                    tell(f"{file.file.place}: {file.note}")
            done = folder.take_over(plan, markers)
            n_kept = len(done)
            tell(f"{plan.rows:,} rows in {len(plan.parts):,} parts, of which {n_kept:,} are done already")
            try:
                with progress("rows", plan.rows) as advance:
                    advance(sum(plan.parts[number].rows for number in done))
                    _do_rounds(cluster, job, folder, plan, done, tell, advance)
            finally:
                folder.remove_drafts()
            facts = join_facts([done[part.number]["facts"] for part in plan.parts])
            folder.finish(plan, done, facts)
    seconds = round(time.perf_counter() - began, 3)
    return PartsAnswered(out, len(plan.parts), n_kept, plan.rows, seconds, facts)


def _choose_device(cluster: Cluster, job: AnyJob) -> str:
    wanted = job.model.device
    if wanted == "auto":
        return "cuda" if cluster.gpus and job.model.precision in ("fp32", "auto") else "cpu"
    if wanted not in ("cpu", "cuda"):
        raise InputError(f"With --cluster, --device is auto, cpu or cuda, not '{wanted}': Ray chooses the GPU.")
    return wanted


def _count_threads(job: AnyJob, device: str) -> int | None:
    """Of an actor; one by default, since many small ones share a node better than a few large ones."""
    return job.model.threads or (1 if device == "cpu" else None)


def _cut_files(
    cluster: Cluster, job: AnyJob, files: Sequence[RowFile], limits: PartLimits, suffix: str, progress: Count
) -> list[CutFile]:
    sizes = [Path(file.place).stat().st_size for file in files if not is_url(file.place)]
    if len(sizes) == len(files) and sum(sizes) <= _HERE:
        return [cut_file(job, file, limits, suffix) for file in files]
    import ray

    task: Any = ray.remote(num_cpus=1, max_retries=_TRIES)(_cut)
    order = cluster.order()
    results = [task.remote(order, job, file, limits, suffix) for file in files]
    waiting = list(results)
    try:
        with cluster.errors(), progress("files", len(files)) as advance:
            while waiting:
                done, waiting = ray.wait(waiting)
                ray.get(done)  # raises
                advance(len(done))
            return list(ray.get(results))
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise InputError(
            f"A process of the cluster ended {_TRIES} times while it read one of the files. Was there too little "
            "memory?"
        ) from error


def _cut(order: Order, job: AnyJob, file: RowFile, limits: PartLimits, suffix: str) -> CutFile:
    order.begin()
    return cut_file(job, file, limits, suffix)


class _Actor:
    """Answers parts, in a process of the cluster."""

    def __init__(self, order: Order, job: RowJob, folder: PartFolder, plan: RowPlan) -> None:
        self._order, self._job, self._folder, self._plan = order, job, folder, plan
        self._answer: PartAnswerer | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        number = int(batch["number"][0])
        return {"number": [number], "answer": [json.dumps(self._do(number))]}

    def _check_folder(self) -> None:
        """Refuse a folder that only this node sees: the lock of the command is in the right one."""
        store = self._folder.store
        if store.is_local and not (Path(store.where) / LOCK).is_file():
            raise InputError(
                f"{store.where} must be a folder that all nodes of the cluster share, or in an object store."
            )

    def _do(self, number: int) -> dict[str, Any]:
        try:
            if self._answer is None:
                self._order.begin()
                self._check_folder()
                self._answer = self._job.open_model()
        except InputError as error:
            return {"refused": str(error)}
        except Exception:
            return {"crashed": traceback.format_exc()}
        try:
            return {"marker": self._folder.write(self._job, self._answer, self._plan.parts[number])}
        except InputError as error:
            return {"failed": str(error)}
        except Exception:
            return {"crashed": traceback.format_exc()}


def _do_rounds(
    cluster: Cluster,
    job: AnyJob,
    folder: PartFolder,
    plan: RowPlan,
    done: dict[int, dict[str, Any]],
    tell: Tell,
    advance: Callable[[int], None],
) -> None:
    """Do the parts that are not in `done`, and add their markers to it."""
    failed: dict[int, str] = {}
    fruitless = 0
    while left := [part.number for part in plan.parts if part.number not in done and part.number not in failed]:
        before = len(done) + len(failed)
        with _Round(cluster, _Actor, (cluster.order(), job, folder, plan), left, job.model, tell) as answers:
            for number, answer in answers:
                if "marker" in answer:
                    done[number] = answer["marker"]
                    advance(plan.parts[number].rows)
                elif "failed" in answer:
                    if not failed:
                        tell(f"a row cannot be used; the other parts go on: {answer['failed']}")
                    failed[number] = answer["failed"]
                    if len(failed) >= _MOST_FAILED and len(failed) > len(done):
                        raise _failed(failed, done, plan, folder)
                elif "refused" in answer:
                    raise InputError(answer["refused"])
                else:
                    raise RuntimeError(f"in a process of the cluster:\n{answer['crashed']}")
        lost = len(left) - (len(done) + len(failed) - before)
        fruitless = 0 if lost < len(left) else fruitless + 1
        if fruitless == _FRUITLESS:
            raise InputError(
                f"The processes that hold the model end before they have done a part ({fruitless} times). Is there too "
                f"little memory for them? {_kept(done, plan, folder)}"
            )
        if lost:
            tell(f"processes of the cluster were lost: {lost:,} part{'' if lost == 1 else 's'} will be done again")
    if failed:
        raise _failed(failed, done, plan, folder)


def _kept(done: Mapping[int, Any], plan: RowPlan, folder: PartFolder) -> str:
    return (
        f"{len(done):,} of {len(plan.parts):,} parts are done and stay in {folder.out}: the same command goes on from "
        "there."
    )


def _failed(failed: Mapping[int, str], done: Mapping[int, Any], plan: RowPlan, folder: PartFolder) -> InputError:
    first = failed[min(failed)]
    others = f" {len(failed) - 1:,} more parts have such a row." if len(failed) > 1 else ""
    return InputError(f"{first}{others} {_kept(done, plan, folder)}")


class _Round:
    """Hand parts to actors once, and yield what they answer; a part whose actor is lost is not answered.

    Ray Data is read in a thread: this one stays free for Ctrl-C, and for seeing that nothing comes any more.
    """

    def __init__(
        self,
        cluster: Cluster,
        actor: type[_Actor],
        arguments: tuple[Any, ...],
        numbers: Sequence[int],
        model: Any,
        tell: Tell,
    ) -> None:
        self._cluster, self._tell = cluster, tell
        self._needs = {"GPU": 1.0, "CPU": 1.0} if model.device == "cuda" else {"CPU": float(model.threads)}
        self._check_room()
        self._came: queue.SimpleQueue[tuple[int, dict[str, Any]] | BaseException | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._dataset = self._plan(actor, arguments, numbers)
        self._thread = threading.Thread(target=self._read, name="qkv-parts", daemon=True)

    def _check_room(self) -> None:
        if not self._has_room():
            most = " and ".join(f"{count:g} {what}" for what, count in self._needs.items())
            raise InputError(
                f"No node of the cluster has {most}, which one process needs. Give other --threads or --device."
            )

    def _has_room(self) -> bool:
        return any(
            all(node["Resources"].get(what, 0) >= count for what, count in self._needs.items())
            for node in self._cluster.nodes()
        )

    def _capacity(self) -> int:
        return max(1, min(int(self._cluster.count(what) // count) for what, count in self._needs.items()))

    def _plan(self, actor: type[_Actor], arguments: tuple[Any, ...], numbers: Sequence[int]) -> Any:
        import ray.data

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of max_restarts, in the words of Ray 2.60
            found = ray.data.from_items(
                [{"number": one} for one in numbers], override_num_blocks=len(numbers)
            ).map_batches(
                actor,
                batch_size=1,
                fn_constructor_args=arguments,
                compute=ray.data.ActorPoolStrategy(
                    min_size=1,
                    initial_size=min(len(numbers), self._capacity()),
                    max_size=len(numbers),
                    max_tasks_in_flight_per_actor=2,
                ),
                num_cpus=self._needs["CPU"],
                num_gpus=self._needs.get("GPU"),
                max_restarts=0,
            )
        found.context.max_errored_blocks = -1
        found.context.enable_progress_bars = False
        found.context.print_on_execution_start = False
        return found

    def __enter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        self._thread.start()
        return self._answers()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _read(self) -> None:
        try:
            with _quiet_logs():
                for row in self._dataset.iter_rows():
                    self._came.put((row["number"], json.loads(row["answer"])))
                    if self._stopped.is_set():
                        return
            self._came.put(None)
        except BaseException as error:
            self._came.put(error)

    def _answers(self) -> Iterator[tuple[int, dict[str, Any]]]:
        last = alive = time.monotonic()
        said = False
        while True:
            try:
                found = self._came.get(timeout=1.0)
            except queue.Empty:
                now = time.monotonic()
                if now - last > _QUIET and self._answers_nothing():
                    raise InputError(
                        f"The Ray cluster at {self._cluster.address} is lost. What is done is kept: give the same "
                        "command again when it runs."
                    ) from None
                if now - last > _QUIET and self._has_room():
                    alive = now
                    said = said or self._say_waiting()
                elif now - alive > _PATIENCE:
                    raise InputError(
                        f"For {_PATIENCE:.0f} seconds the cluster had no node that can hold the model. What is done is "
                        "kept: give the same command again when there are nodes."
                    ) from None
                continue
            if found is None:
                return
            if isinstance(found, BaseException):
                known = self._cluster.error_of(found)
                if isinstance(known, InputError):
                    raise known from found
                return  # of lost actors; what is not done will be seen
            last = alive = time.monotonic()
            yield found

    def _answers_nothing(self) -> bool:
        """Whether the head node is gone. Ray itself would try for a minute, and then end this process."""
        host, _, port = self._cluster.address.rpartition(":")
        if "://" in self._cluster.address or not port.isdigit():
            return False
        try:
            with socket.create_connection((host, int(port)), timeout=5):
                return False
        except OSError:
            return True

    def _say_waiting(self) -> bool:
        tell = self._tell
        free = {what: _count_free(what) for what in self._needs}
        if all(free[what] >= count for what, count in self._needs.items()):
            return False
        tell(f"waiting for the cluster: {' and '.join(f'{count:g} {what}' for what, count in free.items())} free")
        return True


def _count_free(resource: str) -> float:
    free: dict[str, float] = importlib.import_module("ray").available_resources()
    return free.get(resource, 0.0)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Ray Data writes several lines a second; its errors are ours to tell."""
    loggers = [logging.getLogger(name) for name in ("ray.data", "ray")]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)
