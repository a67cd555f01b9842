"""HTTP as httptools reads it (llhttp in C), in a third of the time of h11, with the limits and refusals of Connection.

Needs the package httptools: qkv[serve]. h11 reads one request at a time, httptools all that has arrived: requests that
come before the last one is answered wait in `pipeline`. What h11 does by itself is checked here: one Host, the versions
of HTTP, the size of headers.
"""

import asyncio
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from qkv.serve.connection import MOST_HEADER_BYTES, Connection, ManyConnections

MOST_WAITING = 64
"""Requests that a connection may send before the first of them is answered."""


class _MalformedError(Exception):
    def __init__(self, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(status.phrase)
        self.status = status


class FastConnection(Connection, HttpToolsProtocol):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # that of uvicorn would make a request of what comes after "Connection: close"
        self.parser = httptools.HttpRequestParser(self)
        self.url = b""
        self._running: RequestResponseCycle | None = None  # the request that is being answered, or was the last
        self._read: RequestResponseCycle | None = None  # the request whose body is read
        self._is_reading = False  # from the first byte of a request to its last
        self._is_over = False  # nothing more is read
        self._head_size = 0  # bytes of the first line and the headers
        self._unfinished = 0  # bytes since the parser reported something: it keeps the beginning of a header

    def read_phase(self) -> str:
        if self._running is not None and not self._running.response_complete:
            return "request" if self._running.more_body else "work"
        return "request" if self._is_reading else "idle"

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unfinished += len(data)
        try:
            self.parser.feed_data(data)
            if self._unfinished > MOST_HEADER_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except httptools.HttpParserUpgrade:  # the request is answered in this protocol, and then we close
            self._is_over = True
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._refuse(reason.status if isinstance(reason, _MalformedError) else HTTPStatus.BAD_REQUEST)
        self.follow()

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn notifies the request that came last; another one may be running
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    # Called by the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_reading, self._read = True, None
        self._head_size = self._unfinished = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value) + 4)
        if self._read is None:  # else it comes after a body in chunks, and nobody reads it
            super().on_header(name, value)

    def _grow(self, size: int) -> None:
        self._unfinished = 0
        self._head_size += size
        if self._head_size > MOST_HEADER_BYTES:
            raise _MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1") or hosts > 1 or (version == "1.1" and not hosts):
            raise _MalformedError
        if len(self.pipeline) >= MOST_WAITING:
            raise _MalformedError(HTTPStatus.TOO_MANY_REQUESTS)
        raw_path, _, query = self.url.partition(b"?")
        path = raw_path.decode("ascii")
        self.scope["http_version"] = version
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"], self.scope["query_string"] = raw_path, query
        self.cycle = self._read = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version != "1.0",
            keep_alive=version != "1.0" and self.parser.should_keep_alive() and not self.parser.should_upgrade(),
            on_response=self.on_response_complete,
        )
        if self._running is None or self._running.response_complete:
            self._start(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _start(self, cycle: RequestResponseCycle) -> None:
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_reading, self._unfinished = False, 0
        super().on_message_complete()

    # Called by the request

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start(self.pipeline.pop()[0])
        self.follow()

    def _refuse(self, status: HTTPStatus) -> None:
        """Refuse what is being read. Requests before it are answered first, and then the connection is closed."""
        self._is_over = True
        broken, running = self._read if self._is_reading else None, self._running
        if self.pipeline and self.pipeline[0][0] is broken:
            self.pipeline.popleft()
        elif broken is not None and broken is running:
            broken.disconnected = True  # the app must not respond too
            broken.message_event.set()
            if broken.response_started:
                self.drop()
            else:
                self.write_refusal(status, self.scope["path"])
            return
        if running is None or running.response_complete:
            self.write_refusal(status, self.url.partition(b"?")[0].decode("latin-1"))
        else:
            last = self.pipeline[0][0] if self.pipeline else running
            last.keep_alive = False


class ManyFastConnections(ManyConnections, FastConnection):
    pass
