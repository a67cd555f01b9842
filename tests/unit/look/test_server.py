"""The server of the page over real sockets: what it gives, what it refuses and how, and who may ask it."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.look.api import Api
from qkv.look.page import DEFAULT_PORT, MOST_REQUEST_BYTES, address_of, serve_page
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import TEXT_LIMIT, Asked, RefusalError, Reply
from qkv.serve.listen import Server
from tests.support.folders import make_folder
from tests.support.look_server import asked, exchanged, sent, serving, until_the_end


def length(subject: Subject, asked: Asked) -> Reply:
    text = asked.text()
    asked.done()
    return Reply({"title": subject.title, "length": len(text)}, {"codes": np.array([ord(c) for c in text], np.int32)})


def refused(subject: Subject, asked: Asked) -> Reply:
    raise RefusalError("too_many_tokens", "600 tokens, and 512 are read.", tokens=600, most=512)


def unusable(subject: Subject, asked: Asked) -> Reply:
    raise InputError("model.safetensors is damaged.")


def broken(subject: Subject, asked: Asked) -> Reply:
    raise ZeroDivisionError("a secret of the machine")


ANSWERS: dict[str, Callable[[Subject, Asked], Reply]] = {
    "length": length,
    "refused": refused,
    "unusable": unusable,
    "broken": broken,
}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(make_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def server(subject: Subject) -> Iterator[Server]:
    with serving(Api([subject], ANSWERS, {})) as started:
        yield started


# What it gives


def test_the_page_and_its_files(server: Server) -> None:
    page = sent(server, "GET", "/")
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    for name, kind in (
        ("look.css", "text/css"),
        ("app.js", "text/javascript"),
        ("state.js", "text/javascript"),
    ):
        file = sent(server, "GET", f"/assets/{name}")
        assert file.status == 200 and file.headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert file.headers["X-Content-Type-Options"] == "nosniff"
        assert file.headers["Cache-Control"] == "no-store"
    alone = sent(server, "GET", "/page.html")
    assert alone.status == 200 and b'id="recorded">null</script>' in alone.body


def test_the_room(server: Server) -> None:
    room = sent(server, "GET", "/api/room").said
    assert [(one["index"], one["title"], one["kind"]) for one in room["subjects"]] == [(0, "tiny", "bert")]
    assert room["languages"] == ["zh", "en"] and room["limits"]["characters"] == TEXT_LIMIT


def test_a_question(server: Server) -> None:
    answer = asked(server, "length", text="他欠我100万 <b>", model=0)
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/octet-stream"
    reply = Reply.from_bytes(answer.body)
    assert reply.head == {"title": "tiny", "length": 11}
    assert "".join(map(chr, reply.arrays["codes"])) == "他欠我100万 <b>"


def test_a_connection_is_kept(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.connect()
    used = connection.sock
    for number in range(3):
        connection.request("POST", "/api/length", json.dumps({"text": "a" * (number + 1)}))
        answer = connection.getresponse()
        assert Reply.from_bytes(answer.read()).head["length"] == number + 1
        connection.request("POST", "/api/refused", "{}")  # a refusal does not end it either
        refusal = connection.getresponse()
        assert refusal.status == 400 and refusal.read()
    assert connection.sock is used
    connection.close()


def test_a_head_has_no_body(server: Server) -> None:
    answer = sent(server, "HEAD", "/")
    assert answer.status == 200 and int(answer.headers["Content-Length"]) > 0 and answer.body == b""


# What it refuses


@pytest.mark.parametrize(
    ("name", "fields", "status", "code"),
    [
        ("length", {"text": ""}, 400, "empty"),
        ("length", {"text": " \n"}, 400, "empty"),
        ("length", {"text": "a" * (TEXT_LIMIT + 1)}, 400, "too_long"),
        ("length", {}, 400, "missing"),
        ("length", {"text": 3}, 400, "kind"),
        ("length", {"text": "a", "txt": "b"}, 400, "field"),
        ("length", {"text": "a", "model": 1}, 400, "range"),
        ("length", {"text": "a", "model": "0"}, 400, "kind"),
        ("lenght", {"text": "a"}, 404, "unknown_name"),
        ("", {}, 404, "unknown_name"),
        ("refused", {}, 400, "too_many_tokens"),
        ("unusable", {}, 400, "input"),
    ],
)
def test_what_cannot_be_answered(server: Server, name: str, fields: dict[str, object], status: int, code: str) -> None:
    answer = asked(server, name, **fields)
    assert answer.status == status and answer.said["code"] == code and answer.said["message"]
    assert answer.headers["Content-Type"] == "application/json"


def test_a_refusal_says_what_it_is_about(server: Server) -> None:
    assert asked(server, "refused").said["about"] == {"tokens": 600, "most": 512}
    assert "Did you mean 'length'?" in asked(server, "lenght").said["message"]


def test_the_longest_text_is_taken(server: Server) -> None:
    assert Reply.from_bytes(asked(server, "length", text="字" * TEXT_LIMIT).body).head["length"] == TEXT_LIMIT


@pytest.mark.parametrize(
    "body",
    [
        b"text",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"text": NaN}',
        b'{"text": "\\ud800"}',
        b'{"text": ' + b"[" * 100_000,
        b'{"text": ' + b"9" * 10_000 + b"}",
    ],
)
def test_a_body_that_is_no_question(server: Server, body: bytes) -> None:
    answer = sent(server, "POST", "/api/length", body)
    assert answer.status == 400 and answer.said["code"] == "json"


def test_a_body_too_large(server: Server) -> None:
    answer = asked(server, "length", text="a" * MOST_REQUEST_BYTES)
    assert answer.status == 413 and answer.said["about"] == {"most": MOST_REQUEST_BYTES}


def test_a_body_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    for expect in ("", "Expect: 100-continue\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            head = f"POST /api/length HTTP/1.1\r\nHost: localhost\r\n{expect}Content-Length: {10**15}\r\n\r\n"
            connection.sendall(head.encode())
            connection.shutdown(socket.SHUT_WR)
            assert until_the_end(connection).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("", 411),
        ("Transfer-Encoding: chunked\r\n", 411),
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: ten\r\n", 400),
        (f"Content-Length: {10**25}\r\n", 400),
    ],
)
def test_a_body_of_no_stated_length(server: Server, line: str, status: int) -> None:
    answer = exchanged(server, f"POST /api/length HTTP/1.1\r\nHost: localhost\r\n{line}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 %d " % status) and b"nosniff" in answer and b'{"code":' in answer


def test_a_fault_of_ours_keeps_its_secrets(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(server, "broken")
    assert answer.status == 500 and answer.said["code"] == "fault"
    assert b"secret" not in answer.body and b"Traceback" not in answer.body
    assert "a secret of the machine" in capsys.readouterr().err
    assert asked(server, "length", text="a").status == 200  # and it goes on


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../page.py",
        "/assets/..%2fpage.py",
        "/assets/%2e%2e/page.py",
        "/assets//etc/passwd",
        "/assets/..\\page.py",
        "/assets/",
        "/assets",
        "/assets/nothing.js",
        "/../../../../etc/passwd",
        "/page.py",
        "/assets/look.css%00.js",
        f"/assets/{'a' * 300}.js",
        f"/assets/{'a/' * 5_000}a.js",
        f"/assets/{'a' * 60_000}.js",
    ],
)
def test_nothing_but_the_files_of_the_page(server: Server, path: str) -> None:
    answer = sent(server, "GET", path)
    assert answer.status == 404 and b"import" not in answer.body and b"root:" not in answer.body


def test_other_methods(server: Server) -> None:
    assert sent(server, "GET", "/api/length").status == 405
    for method in ("PUT", "DELETE", "OPTIONS"):
        answer = sent(server, method, "/api/length")
        assert answer.status == 405 and answer.said["code"] == "method" and answer.headers["Allow"] == "POST"
        assert "Access-Control-Allow-Origin" not in answer.headers


# Who may ask


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "0.0.0.0", "192.168.1.7:8765", ""])
def test_another_name_for_this_machine(server: Server, host: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/api/room"), ("GET", "/assets/app.js"), ("POST", "/api/length")):
        answer = sent(server, method, path, b'{"text": "a"}' if method == "POST" else None, {"Host": host})
        assert answer.status == 421 and answer.said["code"] == "host"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://[", ""])
def test_another_page_may_not_ask(server: Server, origin: str) -> None:
    answer = sent(server, "POST", "/api/length", b'{"text": "a"}', {"Origin": origin})
    assert answer.status == 403 and answer.said["code"] == "origin"


def test_the_page_itself_may(server: Server) -> None:
    for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", "localhost:9000", "[::1]:80"):
        answer = sent(server, "POST", "/api/length", b'{"text": "a"}', {"Host": host, "Origin": f"http://{host}"})
        assert answer.status == 200


def test_a_token(subject: Subject) -> None:
    with serving(Api([subject], ANSWERS, {}), token="open-sesame") as server:
        for path in ("/", "/api/room", "/assets/app.js", "/?token=wrong", "/?token=", "/page.html"):
            answer = sent(server, "GET", path)
            assert answer.status == 401 and answer.said["code"] == "token"
        assert sent(server, "POST", "/api/length?token=open-sesame", b'{"text": "a"}').status == 401
        link = server.link(address_of({"text": "2024"}))
        assert link.endswith("/?token=open-sesame#text=%222024%22")


def test_a_token_becomes_a_cookie(subject: Subject) -> None:
    with serving(Api([subject], ANSWERS, {}), token="abc-DEF_1") as server:
        welcome = sent(server, "GET", "/?token=abc-DEF_1")
        assert welcome.status == 303 and welcome.headers["Location"] == "/"
        cookie = welcome.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        kept = {"Cookie": cookie.partition(";")[0]}
        assert sent(server, "GET", "/", headers=kept).status == 200
        assert sent(server, "POST", "/api/length", b'{"text": "a"}', kept).status == 200
        evil = kept | {"Origin": "http://evil.example"}
        assert sent(server, "POST", "/api/length", b'{"text": "a"}', evil).status == 403
        elsewhere = sent(server, "GET", "//evil.example/%2e%2e?token=abc-DEF_1")
        assert not elsewhere.headers["Location"].startswith("//")
        for wrong in ({"Cookie": "qkv=abc-DEF_1"}, {"Cookie": "\x01;;="}, {"Authorization": "Basic abc-DEF_1"}):
            assert sent(server, "GET", "/", headers=wrong).status in (400, 401)
        assert sent(server, "GET", "/api/room", headers={"Authorization": "Bearer abc-DEF_1"}).status == 200


def test_a_host_that_others_reach_has_a_token(subject: Subject) -> None:
    with serving(Api([subject], ANSWERS, {}), host="0.0.0.0") as server:
        token = server.token
        assert token is not None and len(token) >= 32 and f"?token={token}" in server.link()
        assert sent(server, "GET", "/api/room").status == 401
        assert sent(server, "GET", "/api/room", headers={"Authorization": f"Bearer {token}"}).status == 200
    with serving(Api([subject], ANSWERS, {})) as server:
        assert server.token is None and server.link() == f"http://127.0.0.1:{server.port}/"


# Where it listens


def test_a_port_that_is_taken(subject: Subject) -> None:
    api = Api([subject], ANSWERS, {})
    with serving(api) as server, pytest.raises(InputError, match="Cannot listen on.*--port 0"):
        serve_page(api, port=server.port)
    first, second = serve_page(api), serve_page(api)
    try:
        assert DEFAULT_PORT <= first.port < second.port
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("token", ["short", "with space", "令牌令牌令牌令牌", "semi;colon;", "line\r\nfeed"])
def test_a_token_that_no_link_can_carry(subject: Subject, token: str) -> None:
    with pytest.raises(InputError, match="--token"):
        serve_page(Api([subject], ANSWERS, {}), port=0, token=token)


@pytest.mark.parametrize(
    ("host", "port"), [("no such host", 0), ("203.0.113.7", 0), ("127.0.0.1", 70_000), ("x" * 70, 0)]
)
def test_a_place_where_nobody_can_listen(subject: Subject, host: str, port: int) -> None:
    with pytest.raises(InputError, match="--host|--port"):
        serve_page(Api([subject], ANSWERS, {}), host, port)
