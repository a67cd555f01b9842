"""The ASGI app around the routes of `qkv look` and `qkv serve`: access, security headers, refusals, bodies, inference.

A refusal is JSON with an HTTP status, worded by the convention of its path (conventions.py); {"code", "message",
"about"} for the page. Bodies over the size limit are refused before they are read, or where the limit is passed if they
come in chunks. Inference of the page runs in worker threads, never in the event loop; queued calls of disconnected
clients are dropped.

    app = build_app([Route("/", page), Route("/ask", ask, methods=["POST"])], Access(token))

Not here: listening on a port, deadlines for slow clients (listen.py).
"""

import asyncio
import contextlib
import ipaddress
import json
import secrets
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qkv.serve.conventions import PAGE, Convention, Refused

# --- Access control: which requests are answered, decided from their headers.
#
# Without a token (loopback only) the Host must name this machine. Another site can point its own name at 127.0.0.1 (DNS
# rebinding), and the browser would then let it read our responses; but Host would be that name.
#
# With a token (required if others can reach the server) Host may be any name. The token is sent once as ?token=… and
# becomes a cookie that no script can read and no other site sends, or it is sent as `Authorization: Bearer …`.
#
# In both cases there is exactly one Host, an absolute address names the same host, and a POST from a browser comes from
# our own page: Origin, Sec-Fetch-Site and Referer must agree if present. Programs send none of them. Pages of the
# origins that the user allows may ask, too, and read the answers (CORS); their browsers ask for leave by OPTIONS.
#
# Not here: encryption. Over an untrusted network use ssh -L.

TOKEN_FIELD = "token"
"""Name of the token in an address."""
ALLOWED_METHODS = ("GET", "HEAD", "POST")
OTHER_METHODS = ("PUT", "PATCH", "DELETE", "OPTIONS")
"""No path takes them: they are answered with those that it takes, or that there is none."""
KEY_CHECK = "qkv.key"
"""In the scope of a request that came without the token, what tells whether a word is the token."""


class RefusedError(Exception):
    """A request that is not answered: HTTP status, code for programs, sentence for people, and the values in it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        about: Mapping[str, str | int] | None = None,
        *,
        close: bool = False,
        headers: Mapping[str, str] | None = None,
        convention: Convention | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.about = status, code, dict(about or {})
        self.close = close  # also close the connection; needed if the body of the request is not read
        self.headers = dict(headers or {})
        self.convention = convention  # None: that of the path


@dataclass(frozen=True)
class Access:
    token: str | None = None
    cookie: str = "qkv"  # name; servers on two ports of one host have two tokens and need two names
    allow_origins: tuple[str, ...] = ()  # of other pages that may ask, such as https://lab.example
    open_paths: frozenset[str] = frozenset()  # answered without the token: health checks
    key_paths: frozenset[str] = frozenset()  # whose routes look for the token in the body, by `scope[KEY_CHECK]`

    def check(self, scope: Scope) -> None:
        """Raise RefusedError unless the request may be answered."""
        method, headers = scope["method"], Headers(scope=scope)
        allowed = self.allowed_origin(headers)
        if method == "OPTIONS" and self.allow_origins:
            host = _host(scope, headers)
            if self.token is None and not names_this_machine(host):
                raise _wrong_host(host)
            if allowed is None:
                raise _wrong_page(headers.get("origin", "without an origin"))
            return
        if method not in (*ALLOWED_METHODS, *OTHER_METHODS):
            raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "http", f"Unsupported method '{method:.20}'.", close=True)
        host = _host(scope, headers)
        if self.token is None and not names_this_machine(host):
            raise _wrong_host(host)
        is_known = self.token is None or scope["path"] in self.open_paths or self._has_token(headers)
        if not is_known and method == "POST" and scope["path"] in self.key_paths:
            scope[KEY_CHECK] = self._is_token
        elif not is_known:
            message = "The token is missing or wrong. Open the link that was printed at the start."
            if self.open_paths:  # a server of programs
                message = (
                    "The token is missing or wrong. Send the header Authorization: Bearer TOKEN, or open /?token=TOKEN "
                    "in a browser."
                )
            challenge = {"WWW-Authenticate": "Bearer"}
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "token", message, close=True, headers=challenge)
        if method == "POST" and allowed is None and (other := _other_page(host, headers)) is not None:
            raise _wrong_page(other)

    def allowed_origin(self, headers: Headers) -> str | None:
        """The one origin that the request names, if the user allows it."""
        if not self.allow_origins:
            return None
        origins = headers.getlist("origin")
        if len(origins) != 1 or origins[0].lower() not in (one.rstrip("/").lower() for one in self.allow_origins):
            return None
        return origins[0]

    def is_introduced(self, scope: Scope) -> bool:
        """Whether the address carries the token, to be stored by `set_cookie`."""
        if scope["method"] != "GET" or self.token is None:
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN_FIELD, [])
        return any(map(self._is_token, given))

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def _has_token(self, headers: Headers) -> bool:
        cookies = (value for name, value in _cookies(headers) if name == self.cookie)
        return any(map(self._is_token, (*cookies, *_bearers(headers))))

    def _is_token(self, given: str) -> bool:
        """Takes the same time for every wrong token."""
        assert self.token is not None
        return secrets.compare_digest(given.encode(errors="replace"), self.token.encode(errors="replace"))


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(64)
def names_this_machine(host: str) -> bool:
    """Whether a Host header names loopback. Any port is accepted, since another one may be forwarded to ours.

    >>> names_this_machine("127.0.0.1:8765"), names_this_machine("[::1]:80"), names_this_machine("localhost.evil.org")
    (True, True, False)
    """
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _host(scope: Scope, headers: Headers) -> str:
    """The one host that the request names."""
    hosts = headers.getlist("host")
    if len(hosts) != 1:
        raise _wrong_host(", ".join(hosts))
    target = scope["path"]
    if not target.startswith("/") and (named := _authority(target)) != hosts[0].lower():
        raise _wrong_host(target if named is None else named)
    return hosts[0]


def _wrong_host(host: str) -> RefusedError:
    message = f"This server is not called '{host:.80}'."
    return RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "host", message, close=True)


def _wrong_page(page: str) -> RefusedError:
    message = f"Requests from another page, '{page:.80}', are refused."
    return RefusedError(HTTPStatus.FORBIDDEN, "origin", message, close=True)


def _other_page(host: str, headers: Headers) -> str | None:
    """The page of another origin that sent the request, as far as the headers say so."""
    for origin in headers.getlist("origin"):
        if host == "" or _authority(origin) != host.lower():
            return origin
    for site in headers.getlist("sec-fetch-site"):
        if site.strip().lower() not in ("same-origin", "none"):  # none: typed by the user
            return site
    for page in headers.getlist("referer"):
        if _authority(page) != host.lower():
            return page
    return None


def _authority(address: str) -> str | None:
    """Host and port of an address in lower case; None if it has none."""
    try:
        return urlsplit(address).netloc.lower() or None
    except ValueError:
        return None


def _cookies(headers: Headers) -> Iterator[tuple[str, str]]:
    """Parsed by hand: `SimpleCookie` drops all cookies if one of another program is malformed."""
    for line in headers.getlist("cookie"):
        for cookie in line.split(";"):
            name, _, value = cookie.partition("=")
            yield name.strip(), value.strip()


def _bearers(headers: Headers) -> Iterator[str]:
    for line in headers.getlist("authorization"):
        scheme, _, given = line.partition(" ")
        if scheme.lower() == "bearer":
            yield given.strip()


SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Defaults of every response."""
_ENCODED_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
PREFLIGHT = {"Access-Control-Allow-Methods": ", ".join(ALLOWED_METHODS), "Access-Control-Max-Age": "600"}
"""What an allowed page is told before it asks."""
DRAIN_SECONDS, DRAIN_BYTES = 2.0, 8 << 20
"""How much of a refused body is read, so that the sender receives the response and not a connection reset."""

Result = TypeVar("Result")


Wording = Callable[[str], Convention]
"""The convention of a path."""


def word_for_the_page(path: str) -> Convention:
    return PAGE


def build_app(routes: Sequence[BaseRoute], access: Access, wording: Wording = word_for_the_page) -> ASGIApp:
    """A plain ASGI callable. `wording` says by which convention the refusals of a path are worded."""

    def word(request: Request, error: RefusedError) -> Response:
        return Refusal(error, error.convention or wording(request.scope["path"]))

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return word(request, error)

    async def miss(request: Request, error: Exception) -> Response:
        """The response for a path or method without a route."""
        assert isinstance(error, HTTPException)
        path, headers = request.scope["path"], dict(error.headers or {})
        close = request.method not in ALLOWED_METHODS  # its body is not read
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            methods = set[str](headers.get("Allow", "").split(", "))  # of the first route alone
            for route in routes:
                if isinstance(route, Route) and route.path_regex.match(path):
                    methods |= route.methods or set()
            headers["Allow"] = ", ".join(sorted(filter(None, methods)))
            message = f"'{path:.80}' takes {headers['Allow']}, not {request.method}."
            return word(request, RefusedError(error.status_code, "method", message, headers=headers, close=close))
        message = f"There is nothing at '{path:.80}'."
        return word(request, RefusedError(error.status_code, "no_page", message, close=close))

    async def report_fault(request: Request, error: Exception) -> Response:
        if not isinstance(error, ClientDisconnect):
            traceback.print_exception(error)
        message = "This is a bug in qkv; see the terminal for details."
        return word(request, RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, "fault", message))

    handlers: dict[Any, Any] = {RefusedError: refuse, HTTPException: miss, Exception: report_fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, access, wording)


class Guard:
    """Lets in the requests that `access` allows, and sets the security headers of every response."""

    def __init__(self, app: ASGIApp, access: Access, wording: Wording = word_for_the_page) -> None:
        self.app, self.access, self.wording = app, access, wording

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        origin = self.access.allowed_origin(Headers(scope=scope))

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                given = {name.lower() for name, _ in headers.raw}
                headers.raw.extend(one for one in _ENCODED_HEADERS if one[0] not in given)
                if self.access.allow_origins:
                    headers.add_vary_header("Origin")
                if origin is not None:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers["Access-Control-Expose-Headers"] = "*"
            await send(message)

        answer = self._turn_away(scope) or self.app
        with contextlib.suppress(Exception):  # starlette re-raises what `report_fault` has reported
            await answer(_with_plain_path(scope), receive, send_secured)

    def _turn_away(self, scope: Scope) -> Response | None:
        if self.access.is_introduced(scope):
            place = quote(f"/{_with_plain_path(scope)['path'].lstrip('/')}")
            return Response(None, HTTPStatus.SEE_OTHER, {"Location": place, "Set-Cookie": self.access.set_cookie()})
        try:
            self.access.check(scope)
        except RefusedError as error:
            return Refusal(error, self.wording(_with_plain_path(scope)["path"]))
        if scope["method"] == "OPTIONS" and self.access.allow_origins:
            wanted = Headers(scope=scope).get("access-control-request-headers", "")
            return Response(None, HTTPStatus.NO_CONTENT, PREFLIGHT | {"Access-Control-Allow-Headers": wanted})
        return None


def _with_plain_path(scope: Scope) -> Scope:
    """The scope of a request for http://host/path, changed to one for /path."""
    if scope["path"].startswith("/"):
        return scope
    raw = "/" + scope.get("raw_path", b"").decode("latin-1").partition("://")[2].partition("/")[2]
    return {**scope, "path": unquote(raw), "raw_path": raw.encode("latin-1")}


class Refusal(JSONResponse):
    def __init__(self, error: RefusedError, convention: Convention = PAGE) -> None:
        headers = error.headers | ({"Connection": "close"} if error.close else {})
        said = Refused(error.status, error.code, str(error), error.about)
        super().__init__(convention.body(said), error.status, headers)
        self.close = error.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.close:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _drain(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    left = DRAIN_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0 and (part := await receive())["type"] == "http.request" and part.get("more_body"):
                left -= len(part.get("body", b""))


async def read_json(request: Request, most_bytes: int) -> dict[str, Any]:
    """The JSON object in the body; an empty body is an empty object."""
    length = request.headers.get("content-length")
    if length is None or "transfer-encoding" in request.headers:
        message = "The request needs a Content-Length header."
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "length", message, close=True)
    if int(length) > most_bytes:
        raise _too_big(f"{int(length):,} bytes", most_bytes)
    return parse_object(await request.body())


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The body, with its length said before or in chunks; one that is too large is refused as soon as it shows."""
    length = request.headers.get("content-length")
    if length is not None and "transfer-encoding" in request.headers:
        message = "A body has a Content-Length or is sent in chunks, not both."
        raise RefusedError(HTTPStatus.BAD_REQUEST, "length", message, close=True)
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        message = f"The body is encoded with '{coding:.20}'; send it as it is."
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "encoding", message, close=True)
    if length is not None and int(length) > most_bytes:
        raise _too_big(f"{int(length):,} bytes", most_bytes)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise _too_big(f"more than {most_bytes:,} bytes", most_bytes)
        parts.append(part)
    return b"".join(parts)


def _too_big(size: str, most_bytes: int) -> RefusedError:
    message = f"The body has {size}; the maximum is {most_bytes:,}."
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_big", message, {"most": most_bytes}, close=True)


def parse_object(body: bytes) -> dict[str, Any]:
    """
    >>> parse_object(b'{"text": "a"}')
    {'text': 'a'}
    """
    try:
        found = json.loads(body or b"{}")
        # Python accepts half a surrogate pair, NaN and Infinity; JSON does not.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "json", "The body is not a JSON object in UTF-8.")
    return found


class Worker:
    """Threads for inference, `at_once` of them, and a queue of at most `most_waiting` calls."""

    def __init__(self, at_once: int = 1, most_waiting: int = 64) -> None:
        self.at_once, self.most_waiting = at_once, most_waiting
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="inference")
        self._calls: set[Future[Any]] = set()
        self._working: set[int] = set()  # threads

    async def run(self, receive: Receive, call: Callable[[], Result]) -> Result:
        """Run `call` in a thread and return its result. Raises ClientDisconnect when the client leaves; a call that has
        not started is dropped."""
        if len(self._calls) >= self.at_once + self.most_waiting:
            message = "Too many requests at a time. Try again in a moment."
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", message)
        future = self._pool.submit(self._work, call)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        result = asyncio.wrap_future(future)
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            either: set[asyncio.Future[Any]] = {result, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise ClientDisconnect
            return result.result()
        finally:
            gone.cancel()
            result.cancel()

    def _work(self, call: Callable[[], Result]) -> Result:
        thread = threading.get_ident()
        self._working.add(thread)
        try:
            return call()
        finally:
            self._working.discard(thread)

    def is_working(self) -> bool:
        return bool(self._working)

    def close(self) -> None:
        """Accept no more calls; do not wait for running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
