"""How much the server of the page takes on at a time, and what it does with those who leave, dawdle or crowd."""

import socket
import threading
from collections.abc import Callable

import pytest

from qkv.look.api import Api
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, Reply
from qkv.serve.connection import Connection
from qkv.serve.listen import Server
from tests.support.folders import make_folder
from tests.support.look_server import asked, sent, serving


def length(subject: Subject, asked: Asked) -> Reply:
    return Reply({"length": len(asked.text())})


ANSWERS: dict[str, Callable[[Subject, Asked], Reply]] = {"length": length}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(make_folder(tmp_path_factory.mktemp("models") / "tiny"))


class Slow:
    """Answers when it is told to, and counts."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.lock = threading.Lock()
        self.now = self.most = self.all = 0

    def __call__(self, subject: Subject, asked: Asked) -> Reply:
        with self.lock:
            self.now, self.all = self.now + 1, self.all + 1
            self.most = max(self.most, self.now)
        self.begun.release()
        self.go.wait(20)
        with self.lock:
            self.now -= 1
        return Reply({})


def _left_behind(server: Server, name: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(f"POST /api/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    return connection


def test_what_nobody_waits_for_is_not_computed(subject: Subject) -> None:
    slow = Slow()
    api = Api([subject], {"length": length, "slow": slow}, {})
    with serving(api) as server:
        at_once = server.worker.at_once
        slow.go.set()
        assert asked(server, "slow").status == 200  # the weights are loaded by the first, and it alone
        slow.go.clear()
        slow.begun.acquire()
        working = [_left_behind(server, "slow") for _ in range(at_once)]
        for _ in working:
            assert slow.begun.acquire(timeout=20)
        idle = [_left_behind(server, "slow") for _ in range(10)]
        for one in idle:
            one.close()
        waits = _left_behind(server, "slow")
        assert not slow.begun.acquire(timeout=0.5)  # longer than a look at who is still there
        slow.go.set()
        for one in (*working, waits):
            assert one.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            one.close()
        assert slow.most == at_once and slow.all == 1 + at_once + 1


def test_too_many_at_a_time(subject: Subject) -> None:
    slow = Slow()
    with serving(Api([subject], {"length": length, "slow": slow}, {})) as server:
        server.worker.most_waiting = 0
        with _left_behind(server, "slow") as first:
            assert slow.begun.acquire(timeout=20) and server.worker.is_working()
            answer = asked(server, "length", text="a")
            assert answer.status == 503 and answer.said["code"] == "busy"
            slow.go.set()
            assert first.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert asked(server, "length", text="a").status == 200 and not server.worker.is_working()


def test_the_rest_is_answered_while_something_is_computed(subject: Subject) -> None:
    slow = Slow()
    with serving(Api([subject], {"slow": slow}, {})) as server, _left_behind(server, "slow"):
        assert slow.begun.acquire(timeout=20)
        for path in ("/", "/api/room", "/assets/app.js", "/page.html"):
            assert sent(server, "GET", path).status == 200
        assert server.worker.is_working()
        slow.go.set()


def test_too_many_connections(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at work: the next is closed."""
    monkeypatch.setattr(Connection, "most_connections", 1)
    slow = Slow()
    with serving(Api([subject], {"length": length, "slow": slow}, {})) as server:
        with _left_behind(server, "slow") as first:
            assert slow.begun.acquire(timeout=20)
            with pytest.raises(ConnectionError):
                asked(server, "length", text="a")
            slow.go.set()
            assert first.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert asked(server, "length", text="a").status == 200


def test_it_ends_while_something_is_computed(subject: Subject) -> None:
    slow = Slow()
    with serving(Api([subject], {"slow": slow}, {})) as server:
        connection = _left_behind(server, "slow")
        assert slow.begun.acquire(timeout=20)
        assert server.worker.is_working()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=20)
    slow.go.set()
    connection.close()
