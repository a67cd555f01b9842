"""`qkv serve`: models over HTTP."""

import os
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.look import LOOPBACK, port_of
from qkv.cli.options import ClusterOption, ThreadsOption, quick_start
from qkv.errors import InputError
from qkv.text.messages import write

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from qkv.serve.app import Worker
    from qkv.serve.listen import Server
    from qkv.serve.served import Models, ServeSettings

DEFAULT_PORT = 8080
_SIZE = re.compile(r"(\d+) ?(k|M|G)?B?", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """
    >>> bytes_of("8MB"), bytes_of("1000")
    (8388608, 1000)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise InputError(f"--max-body is '{text}': write a size such as 8MB or 500kB.")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[(found[2] or "").lower()]


def serve_models(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL",
            help="Run, model folder, model of the package, or hf:owner/name; NAME is its name in URLs (default: models "
            "of the package).",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="ADDRESS", help="Address to listen on (default: local only); others need a token."
        ),
    ] = LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", parser=port_of, help="Port; 0 for any free one (default 8080 or the next free one)."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="WORD",
            envvar="QKV_TOKEN",
            show_envvar=False,
            help="Access token (default: QKV_TOKEN); generated when --host is not local.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision", metavar="TYPE", help="fp32, int8, or of encoders also bf16 and auto: faster, nearly equal."
        ),
    ] = "fp32",
    max_batch_tokens: Annotated[
        int | None,
        typer.Option("--max-batch-tokens", metavar="N", help="Tokens computed at once (default: 2048 on a CPU)."),
    ] = None,
    max_queue_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-queue-tokens",
            metavar="N",
            help="Tokens that may wait for each model; more are refused with status 429 (default: 32 batches).",
        ),
    ] = None,
    max_body: Annotated[
        str, typer.Option("--max-body", metavar="SIZE", help="Largest body of a request, such as 500kB.")
    ] = "8MB",
    drain_delay: Annotated[
        float,
        typer.Option(
            "--drain-delay", metavar="SECONDS", help="Time after SIGTERM in which load balancers notice the end."
        ),
    ] = 1.0,
    drain_seconds: Annotated[
        float,
        typer.Option("--drain-seconds", metavar="SECONDS", help="Time after that for accepted requests to finish."),
    ] = 20.0,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="ORIGIN", help="Another web page that may ask (https://…); repeatable."),
    ] = None,
    no_access_log: Annotated[
        bool, typer.Option("--no-access-log", help="Do not print a line of JSON per request.")
    ] = False,
    cluster: ClusterOption = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas",
            metavar="N|MIN:MAX",
            help="With --cluster: number of replicas, or fewest and most, as requests need them (default 1).",
        ),
    ] = None,
) -> None:
    """Serve models over HTTP, several in one process.

    Every task: classes, entities, answers, choices, masked words, vectors, similarity, translation, text. The routes
    are those that clients of Hugging Face, OpenAI, text-embeddings-inference, Jina, Cohere and LibreTranslate call.

    \b
    qkv serve                                            # models of the package
    qkv serve RUN                                        # a fine-tuned model
    qkv serve mails=RUN qkv-sentences hf:owner/name      # three models, one with a name of its own
    curl http://127.0.0.1:8080/models/mails -d '{"inputs": "Where is my parcel?"}'

    Requests are computed in batches by tokens, whoever sent them. When too many tokens wait, requests are refused with
    status 429 and the time to wait. Long texts are read in windows, never cut.

    \b
    qkv serve mails=RUN --cluster auto --replicas 1:8 --host 0.0.0.0     # on Ray Serve

    GET /readyz answers 200 while the server is ready, /metrics is for Prometheus. SIGTERM and Ctrl-C finish accepted
    requests; a second one ends the server at once.
    """
    with quick_start():
        from qkv.serve.listen import check_address
        from qkv.serve.served import Models, ServeSettings, default_models

    settings = ServeSettings(
        host=host,
        port=port,
        token=token,
        max_body=bytes_of(max_body),
        max_batch_tokens=max_batch_tokens,
        max_queue_tokens=max_queue_tokens,
        drain_delay=drain_delay,
        drain_seconds=drain_seconds,
        threads=threads,
        precision=precision,
        allow_origins=tuple(allow_origin or ()),
        access_log=not no_access_log,
    )
    if cluster is not None:
        _serve_on_cluster(cluster, models or default_models(), settings, replicas or "1")
        return
    if replicas is not None:
        raise InputError("--replicas is for --cluster.")
    check_address(host, port, token)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would take those of the models
    opened = Models.open(models or default_models(), settings, lambda name: write(f"loading {name}", err=True))
    for served in opened:
        for note in served.info["notes"]:
            write(f"note: {served.name}: {note}", err=True)
    run_server(opened, settings)


def _serve_on_cluster(address: str, models: list[str], settings: "ServeSettings", replicas: str) -> None:
    from qkv.serve.cluster import Replicas, serve_on_cluster, wait_for_signal
    from qkv.serve.listen import check_address
    from qkv.serve.settings import ServeSettings
    from qkv.train.cluster import watch_head

    if settings.drain_delay != ServeSettings.drain_delay:
        raise InputError("--drain-delay is not for --cluster: Ray Serve gives a replica that ends no more requests.")
    check_address(settings.host, settings.port or DEFAULT_PORT, settings.token)
    port = DEFAULT_PORT if settings.port is None else settings.port
    number = Replicas.parse(replicas)
    write(f"starting replicas on the Ray cluster {address}", err=True)
    with serve_on_cluster(address, models, settings, port, number) as (endpoint, cluster):
        shown = endpoint.is_drawn or sys.stdout.isatty()
        typer.echo(f"{endpoint.link}?token={endpoint.token}" if endpoint.token and shown else endpoint.link)
        sys.stdout.flush()
        shared = " Requests need the token: Authorization: Bearer TOKEN." if endpoint.token else ""
        write(f"Ctrl-C ends it.{shared}", err=True)
        with watch_head(cluster, lambda: write(f"error: The Ray cluster at {cluster.address} is lost.", err=True)):
            wait_for_signal(
                lambda: write(
                    "stopping: accepted requests are finished; a second signal ends the server at once", err=True
                ),
                _leave,
            )


def run_server(models: "Models", settings: "ServeSettings") -> None:
    """Warm the models up and serve them until a signal."""
    import asyncio

    from qkv.look.served import GatedWorker
    from qkv.serve.listen import Drain, listen

    asyncio.run(models.warm_up())
    look = GatedWorker(models.gate)  # computes for the page of `qkv look`

    def start_draining() -> None:
        if not models.draining:
            models.draining = True
            write("stopping: accepted requests are finished; a second signal ends the server at once", err=True)

    drain = Drain(start_draining, _leave, settings.drain_delay, settings.drain_seconds)
    with listen(
        (),
        look,
        settings.host,
        settings.port,
        settings.token,
        DEFAULT_PORT,
        make_app=lambda token, cookie: build_server_app(models, settings, token, cookie, look),
        drain=drain,
        for_programs=True,
    ) as server:
        announce(models, server)
        server.run()
    is_done = models.close(0.5)
    sys.stdout.flush()
    if not is_done or look.is_working():  # what took too long: its thread would crash at interpreter shutdown
        _leave(0)


def build_server_app(
    models: "Models", settings: "ServeSettings", token: str | None, cookie: str, look: "Worker | None" = None
) -> "ASGIApp":
    """The ASGI app of these models, with the pages / and /docs; with a worker for it also that of `qkv look` at
    /look/."""
    from starlette.routing import BaseRoute, Mount

    from qkv.look.page import page_routes
    from qkv.look.served import look_at
    from qkv.serve.front.front import routes
    from qkv.serve.journal import Journal, write_log
    from qkv.serve.routes import build_models_app

    others: list[BaseRoute] = [*routes()]
    if look is not None:
        others.append(Mount("/look", routes=page_routes(look_at(models), look)))
    app = build_models_app(models, settings, token, cookie, others)
    return Journal(app, models, settings.max_body, write_log if settings.access_log else None)


def announce(models: "Models", server: "Server") -> None:
    """Print the link, and each model with its tasks. A token that was given is known, and stays out of logs."""
    typer.echo(server.link(with_token=server.is_drawn or sys.stdout.isatty()))
    sys.stdout.flush()  # a pipe needs the address at once
    for served in models:
        write(f"{served.name}: {', '.join(served.tasks)}", err=True)
    shared = " Requests need the token: Authorization: Bearer TOKEN." if server.token else ""
    write(f"Ctrl-C ends it.{shared}", err=True)


def _leave(number: int) -> None:
    """End at once, whatever is computed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + number if number else 0)
