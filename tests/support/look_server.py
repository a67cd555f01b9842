"""A server of the page in a thread, and one request to it, header by header."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from qkv.look.api import Api
from qkv.look.page import serve_page
from qkv.serve.listen import Server


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        document = json.loads(self.body)
        assert isinstance(document, dict)
        return document


@contextmanager
def serving(api: Api, host: str = "127.0.0.1", token: str | None = None) -> Iterator[Server]:
    with running(serve_page(api, host, 0, token)) as server:
        yield server


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.run)
    with server:
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


def sent(
    server: Server, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def asked(server: Server, name: str, **fields: Any) -> Answer:
    return sent(server, "POST", f"/api/{name}", json.dumps(fields).encode())


def exchanged(server: Server, request: bytes) -> bytes:
    """All that comes back for these bytes, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        return until_the_end(connection)


def until_the_end(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
