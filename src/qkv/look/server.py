"""The page over HTTP, with the standard library alone.

    GET  /             the page                     GET  /assets/NAME   its files
    GET  /api/room     what there is to look at     POST /api/NAME      a question (api.py)
    GET  /page.html    the page as one file that needs no server, for the page to write its answers into

An answer is a frame; a refusal is JSON {"code", "message", "about"} with a status that fits. A body has a limit and is
refused before it is read; a few questions are worked on at a time, the others wait, and one whose asker has left
meanwhile is dropped.

What this file does NOT do: decide who may ask (explore/entrance.py), or encrypt. Over a network that is not trusted use
ssh -L.
"""

import contextlib
import io
import json
import os
import re
import secrets
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from qkv.errors import InputError
from qkv.explore.entrance import ASK, Entrance, is_loopback
from qkv.explore.incoming import Incoming
from qkv.look.api import Api, UnknownQuestionError
from qkv.look.page import TYPES, address_of, asset, saved, served
from qkv.look.wire import RefusalError

MOST_BYTES = 1 << 20
"""Of the body of a request."""
AT_ONCE, MOST_WAITING = 2, 64
"""Questions that are worked on, and those beside them that wait; a browser sends six at a time."""
IDLE_SECONDS, REQUEST_SECONDS = 60, 30
"""How long a connection may say nothing, and how long it may take to say what it asks, or to take an answer."""
MOST_CONNECTIONS = 128
"""Each has a thread of its own."""
DEFAULT_PORT, NEXT_PORTS = 8765, 20
"""Where it listens, or on the first free one of so many from there."""
FRAME, PLAIN = "application/octet-stream", "application/json"
TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,}")
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that stand for every address of this machine."""


class LeftError(Exception):
    """Nobody waits for the answer any more."""


class Server(ThreadingHTTPServer):
    """Listens from construction on; `serve_forever` answers, `shutdown` and `server_close` end it."""

    daemon_threads = True  # a long computation does not hold up the end
    block_on_close = False
    request_queue_size = 64
    allow_reuse_address = os.name != "nt"  # there it would let two programs have one port

    def __init__(self, api: Api, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        """A host that others can reach has a token, drawn here unless one is given."""
        self.api = api
        self.connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        token = token or (None if is_loopback(host) else secrets.token_urlsafe(24))
        self.entrance = Entrance(token, f"qkv-{self.port}")
        self.working = threading.BoundedSemaphore(AT_ONCE)
        self.waiting = threading.BoundedSemaphore(AT_ONCE + MOST_WAITING)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def server_bind(self) -> None:
        """Without the standard library's search for this machine's full name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def link(self, state: Mapping[str, str | int] | None = None) -> str:
        """Where a browser finds the page; with the token, and with what it is to show first."""
        host = str(self.server_address[0])
        host = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        query = f"?{ASK}={quote(self.entrance.token, safe='')}" if self.entrance.token else ""
        shown = address_of(state or {})
        return f"http://{host}:{self.port}/{query}{f'#{shown}' if shown else ''}"

    def is_working(self) -> bool:
        """Whether something is being computed; asked at the end, since nothing begins any more after it."""
        return not all(self.working.acquire(blocking=False) for _ in range(AT_ONCE))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is nothing to report."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


def listen(api: Api, host: str = "127.0.0.1", port: int | None = None, token: str | None = None) -> Server:
    """A server on the port, on any free one for 0, or, for None, on the first free one from the default on."""
    if token is not None and not TOKEN.fullmatch(token):
        raise InputError(
            "--token must be a word that a link can carry: 8 or more of a to z, A to Z, 0 to 9, . _ ~ and -."
        )
    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"--port {port} is no port: they go from 0 to 65535.")
    ports = range(DEFAULT_PORT, DEFAULT_PORT + NEXT_PORTS) if port is None else range(port, port + 1)
    reason = ""
    for one in ports:
        try:
            return Server(api, host, one, token)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, socket.gaierror | UnicodeError):
                raise InputError(f"--host '{host}' is no address of this machine: {reason}.") from None
    where = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise InputError(f"--host {host}, {where} cannot be listened on: {reason}. --port 0 takes a free one.")


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "qkv", ""
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.incoming = Incoming(self.connection)
        self.rfile = io.BufferedReader(self.incoming)

    def handle_one_request(self) -> None:
        self.incoming.within(IDLE_SECONDS)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """The first line is there; what belongs to it, headers and body, must come soon."""
        self.incoming.within(REQUEST_SECONDS)
        return super().parse_request()

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_HEAD(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def _answered(self, answer: Callable[[str], None]) -> None:
        """Let in, or turned away; what cannot be answered is said in the same form everywhere."""
        parts = urlsplit(self.path)
        path, entrance = unquote(parts.path), self.server.entrance
        if entrance.introduces(self.command, parse_qs(parts.query)):
            place = {"Location": quote(f"/{path.lstrip('/')}"), "Set-Cookie": entrance.set_cookie()}
            self._send(HTTPStatus.SEE_OTHER, PLAIN, b"", place)
            return
        if (turned := entrance.turned(self.command, self.headers)) is not None:
            self._refuse(turned.status, turned.code, turned.message, close=True)
            return
        try:
            answer(path)
        except UnknownQuestionError as error:
            self._refuse(HTTPStatus.NOT_FOUND, error.code, str(error), error.about)
        except RefusalError as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE if error.code == "busy" else HTTPStatus.BAD_REQUEST
            self._refuse(status, error.code, str(error), error.about)
        except InputError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, "input", str(error))
        except (ConnectionError, TimeoutError, LeftError):
            self.close_connection = True
        except Exception:
            traceback.print_exc()
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "fault", "This is a fault of qkv; the terminal says more.")

    def _get(self, path: str) -> None:
        if path == "/":
            document = served()
            about = {"Content-Security-Policy": document.policy}
            self._send(HTTPStatus.OK, TYPES[".html"], document.html.encode(), about)
        elif path == "/page.html":
            self._send(HTTPStatus.OK, TYPES[".html"], saved(None).encode())
        elif path == "/api/room":
            self._send_json(HTTPStatus.OK, self.server.api.room())
        elif path.startswith("/assets/") and (file := asset(path.removeprefix("/assets/"))) is not None:
            self._send(HTTPStatus.OK, TYPES[file.suffix], file.read_bytes())
        elif path == "/favicon.ico":
            self._send(HTTPStatus.NOT_FOUND, PLAIN, b"{}")
        elif path.startswith("/api/"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "method", "A question is sent by POST, with a JSON body.")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no_page", f"There is nothing at '{path:.80}'.")

    def _post(self, path: str) -> None:
        body = self._body()
        if body is None:
            return
        if not path.startswith("/api/"):
            raise UnknownQuestionError("unknown_name", "Questions go to /api/NAME.")
        fields = fields_of(body)
        with self._turn():
            frame = self.server.api.ask(path.removeprefix("/api/"), fields)
        self._send(HTTPStatus.OK, FRAME, frame)

    # How much

    def _body(self) -> bytes | None:
        """None where there is none to be had, and that was said."""
        length = self._length()
        if length is None or self.headers.get("Transfer-Encoding"):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "length", "A body of a stated length is due.", close=True)
            return None
        if self._is_too_large(length):
            return None
        body = self.rfile.read(length)
        if len(body) < length:
            raise LeftError
        return body

    def _length(self) -> int | None:
        stated = self.headers.get("Content-Length", "")
        # a number of twenty digits is as good as any larger one
        return int(stated[:20]) if stated.isascii() and stated.isdigit() else None

    def _is_too_large(self, length: int) -> bool:
        if length <= MOST_BYTES:
            return False
        message = f"The question has {length:,} bytes; {MOST_BYTES:,} are taken at most."
        self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_big", message, {"most": MOST_BYTES}, close=True)
        self._let_go()
        return True

    def handle_expect_100(self) -> bool:
        """A client that asks before it sends is answered before it sends."""
        return not self._is_too_large(self._length() or 0) and super().handle_expect_100()

    def _let_go(self) -> None:
        """Take in a little of what is still being sent, so that the sender sees the answer and not a reset."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(0.5)
            until, left = time.monotonic() + 2, 8 * MOST_BYTES
            while left > 0 and time.monotonic() < until and (part := self.connection.recv(1 << 16)):
                left -= len(part)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Inside, one of the few that work."""
        if not self.server.waiting.acquire(blocking=False):
            raise RefusalError("busy", "Too many questions at a time. Ask again in a moment.")
        try:
            while not self.server.working.acquire(timeout=0.1):
                self._still_here()
            try:
                self._still_here()
                yield
            finally:
                self.server.working.release()
        finally:
            self.server.waiting.release()

    def _still_here(self) -> None:
        """Raise where the asker closed the connection; what it may have sent ahead stays where it is."""
        self.connection.settimeout(0)
        try:
            if self.connection.recv(1, socket.MSG_PEEK) == b"":
                raise LeftError
        except BlockingIOError:
            return  # it waits and says nothing
        finally:
            self.connection.settimeout(REQUEST_SECONDS)

    # What is sent

    def _send(self, status: HTTPStatus, kind: str, body: bytes, about: Mapping[str, str] | None = None) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            **(about or {}),
            **({"Connection": "close"} if self.close_connection else {}),
        }
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_json(self, status: HTTPStatus, document: Any) -> None:
        self._send(status, PLAIN, json.dumps(document, ensure_ascii=False, allow_nan=False).encode())

    def _refuse(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        about: Mapping[str, str | int] | None = None,
        close: bool = False,
    ) -> None:
        self.close_connection = self.close_connection or close
        with contextlib.suppress(ConnectionError):
            self._send_json(status, {"code": code, "message": message, "about": dict(about or {})})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library has against a request, in our form."""
        self.command = getattr(self, "command", None) or "GET"
        self._refuse(HTTPStatus(code), "http", f"{message or HTTPStatus(code).phrase}.", close=True)

    def log_message(self, format: str, *values: Any) -> None:
        """Nothing: what matters is on the page."""


def fields_of(body: bytes) -> dict[str, Any]:
    """The JSON object of a question."""
    try:
        found = json.loads(body or b"{}")
        # half of a surrogate pair, or a number that is none, is JSON to Python and to nobody else
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusalError("json", "The question is no JSON object in UTF-8.")
    return found
