"""The end of a server: what a signal begins, what is still answered, what a second one does."""

import asyncio
import contextlib
import json
import signal
import socket
import threading
import time

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from qkv.errors import InputError
from qkv.serve.app import Access, build_app
from qkv.serve.connection import Connection, ManyConnections
from qkv.serve.journal import Journal
from qkv.serve.listen import Drain, Server, check_address, listen
from qkv.serve.metrics import Metrics
from tests.support.look_server import Answer, running, sent

READERS = pytest.mark.parametrize("reads_fast", [True, False], ids=["httptools", "h11"])


class Service:
    def __init__(self, reads_fast: bool = True) -> None:
        self.reads_fast = reads_fast
        self.draining, self.metrics, self.names = False, Metrics(), ()
        self.began, self.may_answer = threading.Event(), threading.Event()
        self.aborted: list[int] = []

    def start_draining(self) -> None:
        self.draining = True


def make_server(service: Service, delay: float = 0.0, seconds: float = 20.0) -> Server:
    async def slow(request: Request) -> Response:
        service.began.set()
        while not service.may_answer.is_set():
            await asyncio.sleep(0.005)
        return PlainTextResponse("slow")

    async def show_ready(request: Request) -> Response:
        return PlainTextResponse("", 503 if service.draining else 200)

    app = build_app([Route("/slow", slow), Route("/readyz", show_ready)], Access())
    drain = Drain(service.start_draining, service.aborted.append, delay, seconds)
    return Server(
        (),
        make_app=lambda token, cookie: Journal(app, service, 1000),
        drain=drain,
        for_programs=True,
        reads_fast=service.reads_fast,
    )


def asked(server: Server, path: str) -> Answer:
    return sent(server, "GET", path)


@READERS
def test_a_request_in_flight_is_answered_and_no_other_is_accepted(reads_fast: bool) -> None:
    service = Service(reads_fast)
    with running(make_server(service)) as server:
        found: list[Answer] = []
        asking = threading.Thread(target=lambda: found.append(asked(server, "/slow")))
        asking.start()
        assert service.began.wait(20)
        idle = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        idle.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        server._uvicorn.handle_exit(signal.SIGTERM, None)
        assert service.draining
        _wait_until_refused(server.port)
        assert idle.recv(1) == b"", "an idle connection is closed"
        idle.close()
        service.may_answer.set()
        asking.join(20)
        assert found[0].status == 200 and found[0].headers["connection"] == "close"


@READERS
def test_malformed_http_is_refused_as_the_family_of_the_path_says(reads_fast: bool) -> None:
    with running(make_server(Service(reads_fast))) as server:
        lines = b"X: " + b"x" * 300_000  # more than is read at a time
        for path, key in ((b"/v1/embeddings", "error"), (b"/v1/rerank", "detail"), (b"/look/api", "code")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + lines)
                answer = connection.recv(10_000)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 431 ") and key in json.loads(body)


def test_load_balancers_have_time_to_notice() -> None:
    service = Service()
    with running(make_server(service, delay=60)) as server:
        assert asked(server, "/readyz").status == 200
        server._uvicorn.handle_exit(signal.SIGTERM, None)
        answer = asked(server, "/readyz")
        assert answer.status == 503 and answer.headers["connection"] == "close"
        server._uvicorn.handle_exit(signal.SIGTERM, None)
        assert service.aborted == [signal.SIGTERM]


def test_ctrl_c_does_not_wait_for_load_balancers() -> None:
    service = Service()
    server = make_server(service, delay=60)
    with running(server):
        assert asked(server, "/readyz").status == 200
        server._uvicorn.handle_exit(signal.SIGINT, None)
        _wait_until_refused(server.port)
    assert service.aborted == []


@READERS
def test_what_takes_too_long_is_given_up(reads_fast: bool) -> None:
    service = Service(reads_fast)
    server = make_server(service, seconds=1)
    thread = threading.Thread(target=server.run)
    with server:
        thread.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as asking:
            asking.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert service.began.wait(20)
            server.stop()
            thread.join(20)
            assert not thread.is_alive() and service.draining
            assert asking.recv(100).startswith(b"HTTP/1.1 503 ")


@READERS
def test_a_request_that_comes_with_the_end_is_answered(reads_fast: bool) -> None:
    """Its connection was accepted, its bytes arrive after listening has ended."""
    service = Service(reads_fast)
    service.may_answer.set()
    with running(make_server(service)) as server:
        assert asked(server, "/readyz").status == 200
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as late:
            _wait_until_accepted(server, 1)
            server._uvicorn.handle_exit(signal.SIGINT, None)
            late.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n")
            _wait_until_refused(server.port)
            late.sendall(b"\r\n")
            assert late.recv(1000).startswith(b"HTTP/1.1 200 ")


def _wait_until_accepted(server: Server, connections: int) -> None:
    def waiting() -> int:
        found = list(server._uvicorn.server_state.connections)
        return sum(isinstance(one, Connection) and one.cycle is None for one in found)

    while waiting() < connections:
        time.sleep(0.002)


def _wait_until_refused(port: int) -> None:
    for _ in range(2000):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=20).close()
        except OSError:
            return
        time.sleep(0.005)
    raise AssertionError("the server goes on listening")


def test_programs_may_keep_more_connections_than_browsers() -> None:
    assert Connection.most_connections < ManyConnections.most_connections


def test_a_port_in_use_is_found_before_models_are_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: .*Use --port 0"):
            check_address("127.0.0.1", port, None)
        with pytest.raises(InputError, match=f"port {port}: "):
            listen((), None, "127.0.0.1", port, None, 8080)
    check_address("127.0.0.1", port, None)
    with pytest.raises(InputError, match="not an address of this machine"):
        check_address("no such host", None, None)
    with pytest.raises(InputError, match="not a port"):
        check_address("127.0.0.1", 70_000, None)
    with pytest.raises(InputError, match="--token"):
        check_address("127.0.0.1", 0, "short")
