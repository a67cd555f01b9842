"""`qkv serve --cluster`: the same ASGI app in replicas of Ray Serve.

A replica is a process of the cluster that opens all models and answers as `qkv serve` does: its own batches by tokens,
its own queue with 429, the same routes and refusals. Ray Serve has a proxy on every node with a replica, gives requests
to the replica with the fewest, and starts and ends replicas between two numbers by the requests that are under way. A
replica that ends is given no more requests, and finishes those it has.

So `max_ongoing_requests` is in the hundreds (Ray's 5 would starve the batches), and nothing of Ray's own batching or
queue limits is used. The token is an argument of the replicas, pickled for them, in no environment and no dashboard.

What this file does NOT do: serve the page of `qkv look`, whose sessions belong to one process.
"""

import asyncio
import importlib
import logging
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.types import ASGIApp

from qkv.errors import InputError
from qkv.models.folders.hub import locate
from qkv.models.table import detect_family
from qkv.serve.app import is_loopback
from qkv.serve.settings import ServeSettings, split_name
from qkv.train.cluster import Cluster, Order, connect
from qkv.train.device import count_cores

NAME = "qkv"
"""Of the application in Ray Serve."""
ONGOING = 400
"""Requests under way in a replica, most of which wait for a batch; more wait in the proxies."""
BUSY = 32
"""Requests under way for each replica, by which their number is chosen: about what fills its batches."""
_START_SECONDS = 600.0  # to open large models
_EXTRA = "cluster-serve"


@dataclass(frozen=True)
class Replicas:
    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> "Replicas":
        """
        >>> Replicas.parse("2"), Replicas.parse("1:8")
        (Replicas(least=2, most=2), Replicas(least=1, most=8))
        """
        least, _, most = text.partition(":")
        if not least.isdecimal() or (most and not most.isdecimal()) or not 1 <= int(least) <= int(most or least):
            raise InputError(f"--replicas is a number, or MIN:MAX such as 1:8, not '{text}'.")
        return cls(int(least), int(most or least))


class Replica:
    """What Ray Serve starts: the models, around which `build_replica_app` builds the app."""

    def __init__(self, order: Order, models: Sequence[str], settings: ServeSettings, cookie: str) -> None:
        global _serving
        order.begin()
        from qkv.serve.served import Models

        opened = Models.open(models, settings, lambda name: None)
        warmed = threading.Thread(target=lambda: asyncio.run(opened.warm_up()))
        warmed.start()  # this thread has a running event loop
        warmed.join()
        _serving = (opened, settings, cookie)


_serving: tuple[Any, ServeSettings, str] | None = None
"""The models of this process, if it is a replica."""


def build_replica_app() -> ASGIApp:
    """The app of this replica."""
    from qkv.serve.front.front import routes
    from qkv.serve.journal import Journal, write_log
    from qkv.serve.routes import build_models_app

    assert _serving is not None
    models, settings, cookie = _serving
    app = build_models_app(models, settings, settings.token, cookie, [*routes()])
    return Journal(app, models, settings.max_body, write_log if settings.access_log else None)


@dataclass(frozen=True)
class Endpoint:
    """Where the replicas can be asked."""

    link: str
    token: str | None
    is_drawn: bool


@contextmanager
def serve_on_cluster(
    address: str, models: Sequence[str], settings: ServeSettings, port: int, replicas: Replicas
) -> Iterator[tuple[Endpoint, Cluster]]:
    """Start replicas, and end them with the block; what is accepted by then is finished."""
    if port == 0:
        raise InputError("--port 0 cannot be used with --cluster: the proxies of all nodes listen on the same port.")
    models = located(models)
    cpus = max(count_cores(), replicas.most * (settings.threads or 1))
    with connect(address, extra=_EXTRA, cpus=cpus if address == "local" else None) as cluster:
        serve = _import_serve()
        token = settings.token or (None if is_loopback(settings.host) else secrets.token_urlsafe(24))
        own = ServeSettings(**vars(settings) | {"token": token})
        with cluster.errors(), _quiet():
            if running := list(serve.status().applications):
                raise InputError(
                    f"Ray Serve already runs {', '.join(running)} on this cluster. End it (serve shutdown), or give "
                    "another cluster."
                )
            serve.start(http_options={"host": settings.host, "port": port})
        try:
            with cluster.errors(), _quiet():
                _run(serve, cluster, models, own, replicas, port)
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield Endpoint(f"http://{host}:{port}/", token, token is not None and settings.token is None), cluster
        finally:
            with cluster.errors(), _quiet():
                serve.shutdown()


def located(models: Sequence[str]) -> list[str]:
    """The models with names and whole paths, once it is known that there are such."""
    found: dict[str, str] = {}
    for one in models:
        name, model = split_name(one)
        if name in found:
            raise InputError(f"Two models are called '{name}': give one of them another name, NAME={model}.")
        folder = locate(model)
        detect_family(folder)
        found[name] = str(Path(model).expanduser().absolute()) if Path(model).expanduser().exists() else model
    return [f"{name}={model}" for name, model in found.items()]


def _run(
    serve: Any, cluster: Cluster, models: Sequence[str], settings: ServeSettings, replicas: Replicas, port: int
) -> None:
    gpus = settings.device.startswith("cuda")
    scaling: dict[str, Any] = {"num_replicas": replicas.least}
    if replicas.most > replicas.least:
        scaled = {"min_replicas": replicas.least, "max_replicas": replicas.most, "target_ongoing_requests": BUSY}
        scaling = {"autoscaling_config": scaled}
    deployed = serve.deployment(
        name=NAME,
        ray_actor_options={"num_cpus": settings.threads or 1, "num_gpus": int(gpus)},
        max_ongoing_requests=ONGOING,
        graceful_shutdown_wait_loop_s=0.2,
        graceful_shutdown_timeout_s=max(1.0, settings.drain_seconds),
        health_check_period_s=10,
        health_check_timeout_s=60,  # a process that loads or computes may be slow to answer
        max_constructor_retry_count=2,
        **scaling,
    )(serve.ingress(build_replica_app)(Replica))
    given = ServeSettings(**vars(settings) | {"threads": settings.threads or 1})
    application = deployed.bind(cluster.order(), list(models), given, f"qkv-{port}")
    failed: list[BaseException] = []

    def start() -> None:
        try:
            serve.run(application, name=NAME, route_prefix="/")
        except BaseException as error:
            failed.append(error)

    starting = threading.Thread(target=start, name="qkv-serve", daemon=True)
    starting.start()
    starting.join(_START_SECONDS)
    if failed or starting.is_alive():
        raise InputError(f"The replicas did not start: {_why(serve, failed)}")


def _why(serve: Any, failed: Sequence[BaseException]) -> str:
    """The message of the replica that failed: Ray Serve hands over its traceback as text."""
    application = serve.status().applications.get(NAME)
    said = [application.message] if application is not None else []
    said += [one.message for one in application.deployments.values()] if application is not None else []
    lines = [line.strip() for text in (*said, *map(str, failed)) for line in text.splitlines()]
    mark = "qkv.errors.InputError: "
    found = [line.split(mark, 1)[1] for line in lines if mark in line]
    return found[0] if found else next((line for line in reversed(lines) if line), "is the cluster full?")


def _import_serve() -> Any:
    try:
        return importlib.import_module("ray.serve")
    except ImportError as error:
        raise InputError(
            f"qkv serve --cluster needs Ray Serve and cannot import it ({error}): pip install 'qkv[{_EXTRA}]'"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray Serve logs what it does to standard error, as it pleases."""
    logger = logging.getLogger("ray.serve")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def wait_for_signal(stopping: Callable[[], None], abort: Callable[[int], None]) -> None:
    """Wait for SIGINT or SIGTERM; at the second one `abort` ends the process."""
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if came.is_set():
            abort(number)
        came.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    while not came.wait(0.5):
        pass
    stopping()
