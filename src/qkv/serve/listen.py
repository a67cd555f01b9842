"""The server process: port, uvicorn, signals.

HTTP is read by httptools and the event loop is uvloop's where these are installed (qkv[serve]), else h11 and asyncio.
Limits on slow clients and on the number of connections: connection.py.

A server with a `Drain` ends in steps, so that no accepted request is lost: at SIGTERM it says that it is not ready any
more, and goes on listening and answering for a moment, each response with "Connection: close", until load balancers
have noticed; then it stops listening, and requests that were accepted finish. At Ctrl-C it does not wait for load
balancers. A second signal ends it at once.
"""

import asyncio
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any, Self
from urllib.parse import quote

import uvicorn
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from qkv.errors import InputError
from qkv.serve.app import TOKEN_FIELD, Access, Worker, build_app, is_loopback
from qkv.serve.connection import MOST_HEADER_BYTES, Connection, ManyConnections, ManyPlainConnections, PlainConnection

NEXT_PORTS = 20
"""Number of ports tried, starting with the default."""
BACKLOG = 64
TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~-]{8,}")
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that mean every address of this machine."""


@dataclass(frozen=True)
class Drain:
    """How a server ends that must not lose a request."""

    start: Callable[[], None]  # called at the first signal: from now on the server says that it is not ready
    abort: Callable[[int], None]  # called at the second one, with its number; ends the process
    delay: float  # seconds of listening after SIGTERM
    seconds: float  # after that, for accepted requests to finish


SETTLE_SECONDS = 0.5
"""How long a connection that was accepted last may take to send its request, when listening has ended."""


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, drain: Drain | None) -> None:
        super().__init__(config)
        self.drain = drain
        self._ends_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.drain is None:
            super().handle_exit(sig, frame)
        elif self._ends_at is not None:
            self.drain.abort(sig)
        else:
            self.drain.start()
            self._ends_at = time.monotonic() + (0.0 if sig == signal.SIGINT else self.drain.delay)

    async def on_tick(self, counter: int) -> bool:
        if self._ends_at is not None and time.monotonic() >= self._ends_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.drain is not None:
            self.drain.start()  # `stop` comes without a signal
            for server in self.servers:
                server.close()
            end = time.monotonic() + SETTLE_SECONDS
            while time.monotonic() < end and any(map(_may_send, list(self.server_state.connections))):
                await asyncio.sleep(0.02)
        await super().shutdown(sockets)
        if tasks := list(self.server_state.tasks):  # they were cancelled, and say so to their clients
            await asyncio.wait(tasks, timeout=SETTLE_SECONDS)
        await asyncio.sleep(0)  # what they wrote is sent
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.drop()
        await asyncio.sleep(0)


def _may_send(connection: object) -> bool:
    """Whether a connection has sent a part of a request, or is new and may send one."""
    assert isinstance(connection, Connection)
    is_new = connection.cycle is None and time.monotonic() - connection.since < SETTLE_SECONDS
    return connection.phase == "request" or (connection.phase == "idle" and is_new)


def choose_connection(for_programs: bool, reads_fast: bool = True) -> type[Connection]:
    """How HTTP is read: by httptools if that is installed."""
    if not reads_fast or find_spec("httptools") is None:
        return ManyPlainConnections if for_programs else PlainConnection
    from qkv.serve.fast_connection import FastConnection, ManyFastConnections

    return ManyFastConnections if for_programs else FastConnection


MakeApp = Callable[[str | None, str], ASGIApp]
"""From the token and the name of its cookie."""


class Server:
    """Listens from construction on; `run` serves until a signal or `stop`, `close` frees the port."""

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        worker: Worker | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        *,
        make_app: MakeApp | None = None,
        drain: Drain | None = None,
        for_programs: bool = False,
        reads_fast: bool = True,
    ) -> None:
        """A host that is not loopback requires a token, generated here unless given. `make_app` takes the place of
        `routes`. Programs may have more connections than browsers. `reads_fast`: with httptools and uvloop, where
        they are installed."""
        self.worker = worker or Worker()
        most = (ManyConnections if for_programs else Connection).most_connections
        backlog = min(most, BACKLOG) if drain is None else most
        self.socket = _bind(host, port, backlog)
        self.host, self.port = self.socket.getsockname()[:2]
        self.token = token or (None if is_loopback(host) else secrets.token_urlsafe(24))
        self.is_drawn = self.token != token  # nobody knows it yet
        cookie = f"qkv-{self.port}"
        self.app = build_app(routes, Access(self.token, cookie)) if make_app is None else make_app(self.token, cookie)
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                self.app,
                http=choose_connection(for_programs, reads_fast),
                ws="none",
                loop="uvloop" if reads_fast and find_spec("uvloop") else "asyncio",
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                headers=[("Server", "qkv")],
                log_config=None,
                log_level="critical",  # the app reports its own faults
                access_log=False,
                backlog=backlog,
                h11_max_incomplete_event_size=MOST_HEADER_BYTES,
                timeout_keep_alive=int(Connection.idle_seconds),
                # None would be for ever
                timeout_graceful_shutdown=0 if drain is None else max(1, round(drain.seconds)),
            ),
            drain,
        )

    def run(self) -> None:
        """Serve until `stop`, Ctrl-C (KeyboardInterrupt) or SIGTERM (default action). Does not wait for inference. With
        a `Drain` it returns after signals, too."""
        self._uvicorn.run([self.socket])

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._uvicorn.should_exit = True

    def close(self) -> None:
        self.socket.close()
        self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def link(self, fragment: str = "", with_token: bool = True) -> str:
        """The address for a browser, with the token and the fragment."""
        host = socket.gethostname() if self.host in EVERYWHERE else f"[{self.host}]" if ":" in self.host else self.host
        query = f"?{TOKEN_FIELD}={quote(self.token, safe='')}" if self.token and with_token else ""
        return f"http://{host}:{self.port}/{query}{f'#{fragment}' if fragment else ''}"


def _bind(host: str, port: int, backlog: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given; with it a response takes 40 ms longer
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name != "nt":  # on Windows it would let two programs share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        if backlog is not None:
            bound.listen(backlog)
    except BaseException:
        bound.close()
        raise
    return bound


def listen(
    routes: Sequence[BaseRoute],
    worker: Worker | None,
    host: str,
    port: int | None,
    token: str | None,
    default_port: int,
    **how: Any,
) -> Server:
    """A server on the port; 0: any free port; None: the first free port from the default on. `how` as of `Server`."""
    check_address(None, port, token)
    ports = range(default_port, default_port + NEXT_PORTS) if port is None else range(port, port + 1)
    where = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    for one in ports:
        try:
            return Server(routes, worker, host, one, token, **how)
        except (OSError, UnicodeError) as error:
            if one == ports[-1] or isinstance(error, socket.gaierror | UnicodeError):
                raise _explain_no_port(host, where, error) from None
    raise AssertionError("there is at least one port")


def check_address(host: str | None, port: int | None, token: str | None) -> None:
    """Refuse what is not a port or not a token; with a host, also a port in use, before models are loaded."""
    if token is not None and not TOKEN_PATTERN.fullmatch(token):
        raise InputError("--token must have 8 or more characters, each of a to z, A to Z, 0 to 9, . _ ~ and -.")
    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"--port {port} is not a port: use 0 to 65535.")
    if host is not None:
        try:
            _bind(host, port or 0, None).close()
        except (OSError, UnicodeError) as error:
            raise _explain_no_port(host, f"port {port or 0}", error) from None


def _explain_no_port(host: str, where: str, error: OSError | UnicodeError) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, socket.gaierror | UnicodeError):
        return InputError(f"--host '{host}' is not an address of this machine: {reason}.")
    return InputError(f"Cannot listen on --host {host}, {where}: {reason}. Use --port 0 for any free port.")
