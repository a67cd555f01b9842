"""Around the app of `qkv serve`: the access log, the count of requests, the bytes of bodies, the end of connections.

A line of the access log is a JSON object on standard error: time, method, path, status, seconds, model, tokens,
windows, client. Queries are left out, since they may have the token. Routes write what they know of a request into
`scope["qkv"]`: "route", "model", "tokens", "windows", and "status" if it differs from that of the response.
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Protocol

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qkv.serve.metrics import Metrics

CLIENT_LEFT = 499
"""Status of a request whose client has left, in the log and in metrics."""
FAILURE_BY_STATUS = {401: "access", 403: "access", 421: "access", 429: "overloaded", 499: "dropped", 503: "unavailable"}
"""Reasons by status; of others "input" or "fault"."""
SMALL_BODY = 1 << 16
"""Bytes of a body that is read without leave."""
HELD_BODIES = 8
"""Bodies of the largest size that are held at the same time; others wait unread."""


GIVEN_UP = JSONResponse(
    {"error": "The server is stopping, and this request took too long."},
    HTTPStatus.SERVICE_UNAVAILABLE,
    {"Retry-After": "1"},
)


class Service(Protocol):
    @property
    def draining(self) -> bool: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def names(self) -> Sequence[str]: ...


class Journal:
    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        max_body: int,
        write: Callable[[str], None] | None = None,
    ) -> None:
        """`write` takes a line of the access log; None: there is none."""
        self.app, self.service, self.write, self.max_body = app, service, write, max_body
        self._room = Room(HELD_BODIES * max_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), CLIENT_LEFT
        about: dict[str, Any] = {}
        scope["qkv"] = about

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.service.draining:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        size = self._size(scope)
        if size:
            await self._room.take(size)
        try:
            await self.app(scope, receive, send_on)
        except asyncio.CancelledError:
            if not self.service.draining or status != CLIENT_LEFT:
                raise
            await GIVEN_UP(scope, receive, send_on)  # it took longer than the server could wait
        finally:
            if size:
                self._room.give(size)
            seconds = time.perf_counter() - begin
            status = about.get("status", status)
            # a label for every name that somebody makes up would be a leak
            known = next((name for name in self.service.names if name == about.get("model")), "")
            self.service.metrics.request(about.get("route", "other"), known, status, seconds)
            if status >= 400:
                self.service.metrics.failure(FAILURE_BY_STATUS.get(status, "input" if status < 500 else "fault"))
            if self.write is not None:
                self.write(_line(scope, about, status, seconds))

    def _size(self, scope: Scope) -> int:
        """The bytes that a body may take, if it is not small."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers:
            size = self.max_body
        else:
            size = min(int(length), self.max_body) if length.isdigit() else 0
        return size if size > SMALL_BODY else 0


class Room:
    """A number of bytes that requests share, first come, first served."""

    def __init__(self, size: int) -> None:
        self.left = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Wait until there is room."""
        if not self._waiting and size <= self.left:
            self.left -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its room already
                self.give(size)
            raise

    def give(self, size: int) -> None:
        self.left += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self.left):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self.left -= wanted
                turn.set_result(None)


def _line(scope: Scope, about: dict[str, Any], status: int, seconds: float) -> str:
    client = scope.get("client")
    said = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 4),
        "model": about.get("model"),
        "tokens": about.get("tokens"),
        "windows": about.get("windows"),
        "client": client[0] if client else None,
    }
    return json.dumps(said)  # no control character reaches a terminal


def write_log(line: str) -> None:
    """To standard error, whole lines at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
