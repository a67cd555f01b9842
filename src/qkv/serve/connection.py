"""One connection: deadlines for slow clients, a limit on the number of connections, and the refusal of malformed HTTP.

uvicorn waits indefinitely for the rest of a request. Here each phase of a connection has a deadline that single bytes
do not extend, and with too many connections the one waiting longest is closed.

`PlainConnection` reads HTTP with h11, which uvicorn requires. fast_connection.py reads it with httptools, where that is
installed. Both have the phases and refusals of `Connection`.
"""

import asyncio
import json
import math
import sys
import time
from abc import abstractmethod
from asyncio import BaseTransport, TimerHandle, Transport
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from qkv.serve.app import SECURITY_HEADERS, word_for_the_page
from qkv.serve.conventions import Convention, Refused, convention_of

MOST_HEADER_BYTES = 1 << 16
CLOCK_SECONDS = 0.01
"""By how much the clock of an event loop may be ahead of ours."""


class Connection(asyncio.Protocol):
    """What uvicorn's protocols have in common here. Phases: idle, request, work, answer, lost."""

    idle_seconds = 60.0  # until the first byte of a request
    request_seconds = 30.0  # from its first to its last byte
    answer_seconds = 30.0  # until a client has read a response that fills the buffers
    most_connections = 128
    wording: Callable[[str], Convention] = staticmethod(word_for_the_page)

    loop: asyncio.AbstractEventLoop
    transport: Transport
    flow: FlowControl
    connections: set[Any]
    cycle: Any  # the last request and its response; None before

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.phase = ""
        self.since = 0.0
        self._ends_at = math.inf
        self._timer: TimerHandle | None = None
        self._fires_at = math.inf

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))  # uvloop's are none by name
        self.follow()
        if len(self.connections) <= self.most_connections:
            return
        open_ones = [one for one in self.connections if isinstance(one, Connection) and one.phase != "lost"]
        if len(open_ones) > self.most_connections:
            waited_for = [one for one in open_ones if one.phase in ("idle", "request")]  # at least this one
            min(waited_for, key=lambda one: one.since).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("lost")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.follow()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.follow()

    def drop(self) -> None:
        """Close at once; unsent data is lost."""
        self._enter("lost")
        self.transport.abort()

    @abstractmethod
    def read_phase(self) -> str:
        """idle, request or work."""

    def follow(self) -> None:
        """Update the phase from the state of the connection."""
        if self.flow.write_paused or self.transport.is_closing():
            self._enter("answer", self.answer_seconds)
            return
        phase = self.read_phase()
        seconds = {"idle": self.idle_seconds, "request": self.request_seconds}.get(phase, math.inf)
        self._enter(phase, seconds)

    def _enter(self, phase: str, seconds: float = math.inf) -> None:
        if phase == self.phase or self.phase == "lost":
            return
        now = time.monotonic()  # uvloop's clock counts milliseconds, in which several connections may come
        self.phase, self.since, self._ends_at = phase, now, now + seconds
        # a timer that fires too early is set again then: most phases are over long before
        if self._timer is not None and (phase == "lost" or self._fires_at > self._ends_at):
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._ends_at < math.inf:
            self._fires_at = self._ends_at
            self._timer = self.loop.call_later(self._ends_at - now, self._check_time)

    def _check_time(self) -> None:
        self._timer, now = None, time.monotonic()
        if now >= self._ends_at - CLOCK_SECONDS:
            self.drop()
        else:
            self._set_timer(now)

    def write_refusal(self, status: HTTPStatus, path: str) -> None:
        """Answer malformed HTTP in the convention of the path, as far as it is known, and close."""
        said = Refused(status, "http", f"{status.phrase}.", {})
        body = json.dumps(self.wording(path).body(said)).encode()
        headers = {
            "Server": "qkv",
            **SECURITY_HEADERS,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


class ManyConnections(Connection):
    """For programs, which keep connections open."""

    most_connections = 1024
    wording = staticmethod(convention_of)


class PlainConnection(Connection, H11Protocol):
    """HTTP as h11 reads it."""

    def handle_events(self) -> None:
        super().handle_events()
        self.follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.follow()

    def read_phase(self) -> str:
        state = self.conn.their_state
        if state is h11.IDLE and not self.conn.trailing_data[0]:
            return "idle"
        return "request" if state in (h11.IDLE, h11.SEND_BODY) else "work"

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP; called while uvicorn handles h11's error."""
        if self.cycle is not None and not self.cycle.response_complete:  # the app must not respond too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # our response was already sent
            self.drop()
            return
        status = HTTPStatus(getattr(sys.exception(), "error_status_hint", HTTPStatus.BAD_REQUEST))
        self.write_refusal(status, path_of(self.conn.trailing_data[0]))


class ManyPlainConnections(ManyConnections, PlainConnection):
    pass


def path_of(head: bytes) -> str:
    """The path in the first line of a request; "" if there is none.

    >>> path_of(b"POST /v1/embeddings?a=b HTTP/1.1"), path_of(b"rubbish")
    ('/v1/embeddings', '')
    """
    _, _, rest = head[:4096].partition(b"\r\n")[0].partition(b" ")
    return rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
