"""The server of qkv.serve over real sockets, with an app of three routes: attacks on HTTP itself, slow clients."""

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from qkv.serve.app import Worker, read_json
from qkv.serve.connection import Connection, PlainConnection
from qkv.serve.listen import Server, choose_connection
from tests.support.look_server import exchanged, running, sent

LARGE = b"x" * (32 << 20)  # more than the buffers of two sockets hold


async def echo(request: Request) -> Response:
    return JSONResponse(await read_json(request, 1000))


async def large(request: Request) -> Response:
    return Response(LARGE)


async def greet(request: Request) -> Response:
    return Response(b"hello")


LEFT = threading.Event()


async def wait(request: Request) -> Response:
    while not await request.is_disconnected():
        await asyncio.sleep(0.01)
    LEFT.set()
    return Response()


@pytest.fixture(scope="module", params=[True, False], ids=["httptools", "h11"])
def reads_fast(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


def make_server(token: str | None = None, reads_fast: bool = True) -> Server:
    routes = [Route("/", greet), Route("/large", large), Route("/echo", echo, methods=["POST"]), Route("/wait", wait)]
    return Server(routes, Worker(), token=token, reads_fast=reads_fast)


@pytest.fixture(scope="module")
def server(reads_fast: bool) -> Iterator[Server]:
    with running(make_server(reads_fast=reads_fast)) as started:
        yield started


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


# HTTP itself


def test_the_body_of_a_get_is_no_second_request(server: Server) -> None:
    inner = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(inner)
    last = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = exchanged(server, head + inner + last)
    assert answers.count(b"HTTP/1.1 ") == 2
    assert answers.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 404 " in answers


def test_the_body_of_a_get_may_be_chunked(server: Server) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"1b\r\nGET /x HTTP/1.1\r\nHost: y\r\n\r\r\n0\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert exchanged(server, head + body + last).count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(
    "lines",
    [
        "Host: localhost\r\nHost: evil.example",
        "Host: evil.example\r\nHost: localhost",
        "Host: localhost\r\nHost: localhost",
        "Host: localhost\r\nContent-Length: 2\r\nContent-Length: 3",
        "Host: localhost\r\nContent-Length: +2",
        "Host : localhost",
        "",
    ],
)
def test_headers_that_two_programs_would_read_differently(server: Server, lines: str) -> None:
    answer = exchanged(server, f"POST /echo HTTP/1.1\r\n{lines}\r\n\r\n{{}}".encode())
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1
    assert b'"code": "http"' in answer and b"nosniff" in answer


def test_length_and_chunks_at_once_are_no_second_request(server: Server) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchanged(server, head + b"0\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer[9:12] in (b"400", b"411") and answer.count(b"HTTP/1.1") == 1


def test_an_absolute_address(server: Server) -> None:
    for target, host, status in (
        ("http://evil.example/", "localhost", 421),
        ("http://localhost/", "evil.example", 421),
        ("http://evil.example/", "evil.example", 421),
        ("http://localhost/", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost/nothing?a=http://b", "localhost", 404),
        ("http://[/", "localhost", 421),
        ("*", "localhost", 421),
    ):
        answer = exchanged(server, f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 %d " % status), target


def test_a_post_of_another_site_that_carries_no_origin(server: Server) -> None:
    assert sent(server, "POST", "/echo", b"{}", {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert sent(server, "POST", "/echo", b"{}", {"Referer": "http://evil.example/"}).status == 403
    assert sent(server, "POST", "/echo", b"{}", {"Sec-Fetch-Site": "same-origin"}).status == 200
    assert sent(server, "POST", "/echo", b"{}").status == 200


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET /\r\n\r\n", b"A" * 70_000, b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http(server: Server, request_: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(ConnectionError):  # where the server closes before all is sent
        answer = exchanged(server, request_)
        assert answer[9:12] in (b"400", b"421", b"431", b"")
    assert sent(server, "GET", "/").body == b"hello"
    assert capfd.readouterr() == ("", "")


def test_rubbish_before_an_answer(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchanged(server, head + b"no chunk\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1
    assert sent(server, "GET", "/").body == b"hello"
    assert capfd.readouterr() == ("", "")


def test_rubbish_after_an_answer(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.sendall(b"no chunk\r\n")
        with contextlib.suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass
    assert sent(server, "GET", "/").body == b"hello"
    assert capfd.readouterr() == ("", "")


ENDLESS = b"x" * (1 << 20)


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["header", "address", "trailer", "extension"],
)
def test_what_never_ends(server: Server, begun: bytes) -> None:
    """It is not kept: the connection is closed long before the deadline."""
    with connect(server) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(begun)
        for _ in range(64):
            connection.sendall(ENDLESS)
        raise AssertionError("64 MB were taken")
    assert sent(server, "GET", "/").body == b"hello"


def test_many_small_headers(server: Server) -> None:
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(30_000))
    with contextlib.suppress(ConnectionError):
        answer = exchanged(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
        assert answer[9:12] in (b"431", b"")


def test_requests_sent_at_once_are_answered_in_order(server: Server) -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n"
    requests = b"".join(one + b'{"a":%d}' % number for number in range(9))
    answers = exchanged(server, requests + b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answers.count(b"HTTP/1.1 200 ") == 10 and answers.endswith(b"hello")
    places = [answers.index(b'{"a":%d}' % number) for number in range(9)]
    assert places == sorted(places)


def test_rubbish_after_a_request_that_is_not_answered_yet(server: Server) -> None:
    """The request is answered, and what came after it is never taken for its answer."""
    one = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    answer = exchanged(server, one + b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"HTTP/1.1 200 ") == 1


def test_a_client_that_leaves_is_noticed_by_the_request_that_runs(server: Server) -> None:
    """Not by the last one that was sent, which has not begun."""
    LEFT.clear()
    with connect(server) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        time.sleep(0.1)
    assert LEFT.wait(10)


def test_an_old_client_is_not_asked_to_continue(server: Server) -> None:
    """An answer of that kind is unknown to HTTP/1.0."""
    head = b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    for version, first in ((b"1.0", b"HTTP/1.1 200 "), (b"1.1", b"HTTP/1.1 100 ")):
        answer = exchanged(server, b"POST /echo HTTP/" + version + b"\r\n" + head)
        assert answer.startswith(first) and answer.endswith(b"{}")


def test_a_thousand_requests_at_once(server: Server) -> None:
    """Some are answered, none of them twice, and the connection ends."""
    with connect(server) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        connection.shutdown(socket.SHUT_WR)
        taken = b""
        while part := connection.recv(1 << 16):
            taken += part
        assert 1 <= taken.count(b"HTTP/1.1 200 ") <= 1000
    assert sent(server, "GET", "/").body == b"hello"


def test_a_request_for_another_protocol_is_answered_in_this_one(server: Server) -> None:
    """As some clients ask whether we speak HTTP/2. The connection may be closed then."""
    asked = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    last = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = exchanged(server, asked + b"Content-Length: 2\r\n\r\n{}" + last)
    assert answers.startswith(b"HTTP/1.1 200 ") and answers.count(b"HTTP/1.1 200 ") == answers.count(b"HTTP/1.1 ")


def test_a_cookie_beside_another_program_s() -> None:
    with running(make_server("open-sesame")) as server:
        cookie = sent(server, "GET", "/?token=open-sesame").headers["Set-Cookie"].partition(";")[0]
        for line in (f'theme="; a b=c; {cookie}', f"{cookie}; {{json}}=[1]"):
            assert sent(server, "GET", "/", headers={"Cookie": line}).status == 200


def test_headers_of_every_answer(server: Server) -> None:
    for answer in (
        sent(server, "GET", "/"),
        sent(server, "GET", "/nothing"),
        sent(server, "GET", "/echo"),
        sent(server, "POST", "/echo", b"["),
        sent(server, "PUT", "/"),
        sent(server, "GET", "/", headers={"Host": "evil.example"}),
    ):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Server"] == "qkv"
        assert answer.headers["Date"] and len(answer.headers.get_all("Date", [])) == 1


# Slow clients, and many


def test_answers_are_not_held_back(server: Server) -> None:
    """As Nagle's algorithm would hold them, for 40 ms and more."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        connection.request("POST", "/echo", b"{}")
        assert connection.getresponse().read() == b"{}"
        seconds.append(time.perf_counter() - began)
    connection.close()
    assert min(seconds[1:]) < 0.03


def test_200_slow_clients_delay_nobody(server: Server) -> None:
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(200)]
        for number, one in enumerate(slow):
            with contextlib.suppress(ConnectionError):  # those that had to give way
                if number % 2:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: loc")
                else:
                    one.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{")
        for _ in range(20):
            assert sent(server, "POST", "/echo", b"{}").body == b"{}"
    assert time.perf_counter() - began < 10


def test_the_longest_waited_for_gives_way(monkeypatch: pytest.MonkeyPatch, reads_fast: bool) -> None:
    monkeypatch.setattr(Connection, "most_connections", 2)
    with running(make_server(reads_fast=reads_fast)) as server, connect(server) as first, connect(server) as second:
        second.sendall(b"GET / HTTP/1.1\r\n")
        assert sent(server, "GET", "/").status == 200
        with contextlib.suppress(ConnectionError):
            assert first.recv(1) == b""
        second.sendall(b"Host: localhost\r\n\r\n")
        assert second.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("limit", ["idle_seconds", "request_seconds"])
def test_a_connection_that_sends_too_little(monkeypatch: pytest.MonkeyPatch, reads_fast: bool, limit: str) -> None:
    monkeypatch.setattr(Connection, limit, 0.2)
    requests = {
        "idle_seconds": [b""],
        "request_seconds": [
            b"GET / HTTP/1.1\r\nHost: ",
            b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n",
        ],
    }
    with running(make_server(reads_fast=reads_fast)) as server:
        for begun in requests[limit]:
            with connect(server) as slow:
                slow.sendall(begun)
                assert _is_ended(slow, b"l" if begun else b"")
        assert sent(server, "GET", "/").status == 200


def _is_ended(slow: socket.socket, drip: bytes) -> bool:
    """Whether the server closes a connection that goes on sending a byte now and then."""
    slow.settimeout(0.05)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            slow.sendall(drip)
            if slow.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_a_client_that_does_not_take_its_answer(monkeypatch: pytest.MonkeyPatch, reads_fast: bool) -> None:
    monkeypatch.setattr(Connection, "answer_seconds", 0.2)
    with running(make_server(reads_fast=reads_fast)) as server, connect(server) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := slow.recv(1 << 20):
                taken += len(part)
        assert 0 < taken < len(LARGE)


def test_a_large_answer_is_whole(server: Server) -> None:
    assert sent(server, "GET", "/large").body == LARGE


def test_it_ends_with_open_connections(reads_fast: bool) -> None:
    before = threading.active_count()
    with running(make_server(reads_fast=reads_fast)) as server:
        idle, begun = connect(server), connect(server)
        begun.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert sent(server, "GET", "/").status == 200
    assert threading.active_count() == before
    idle.close()
    begun.close()
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_without_the_fast_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.serve.listen.find_spec", lambda name: None)
    with running(make_server()) as server:
        assert sent(server, "GET", "/").body == b"hello"
        assert issubclass(choose_connection(True), PlainConnection) and issubclass(choose_connection(True), Connection)
