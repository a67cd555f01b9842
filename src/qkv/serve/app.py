"""The ASGI app around the routes of `qkv look` and `qkv serve`: access, security headers, refusals, bodies, inference.

A refusal is JSON {"code", "message", "about"} with an HTTP status. Bodies over the size limit are refused before they
are read. Inference runs in worker threads, never in the event loop; queued calls of disconnected clients are dropped.

    app = build_app([Route("/", page), Route("/ask", ask, methods=["POST"])], Access(token))

Not here: listening on a port, deadlines for slow clients (listen.py).
"""

import asyncio
import contextlib
import json
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qkv.serve.access import Access, RefusedError

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Defaults of every response."""
DRAIN_SECONDS, DRAIN_BYTES = 2.0, 8 << 20
"""How much of a refused body is read, so that the sender receives the response and not a connection reset."""

Result = TypeVar("Result")


def build_app(routes: Sequence[BaseRoute], access: Access) -> ASGIApp:
    """A plain ASGI callable."""
    app = Starlette(
        routes=routes, exception_handlers={RefusedError: _refuse, HTTPException: _miss, Exception: _report_fault}
    )
    app.router.redirect_slashes = False
    return Guard(app, access)


class Guard:
    """Lets in the requests that `access` allows, and sets the security headers of every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._turn_away(scope) or self.app
        with contextlib.suppress(Exception):  # starlette re-raises what `_report_fault` has reported
            await answer(_with_plain_path(scope), receive, send_secured)

    def _turn_away(self, scope: Scope) -> Response | None:
        if self.access.is_introduced(scope):
            place = quote(f"/{_with_plain_path(scope)['path'].lstrip('/')}")
            return Response(None, HTTPStatus.SEE_OTHER, {"Location": place, "Set-Cookie": self.access.set_cookie()})
        try:
            self.access.check(scope)
        except RefusedError as error:
            return Refusal(error)
        return None


def _with_plain_path(scope: Scope) -> Scope:
    """The scope of a request for http://host/path, changed to one for /path."""
    if scope["path"].startswith("/"):
        return scope
    raw = "/" + scope.get("raw_path", b"").decode("latin-1").partition("://")[2].partition("/")[2]
    return {**scope, "path": unquote(raw), "raw_path": raw.encode("latin-1")}


class Refusal(JSONResponse):
    def __init__(self, error: RefusedError) -> None:
        headers = {"Connection": "close"} if error.close else {}
        content = {"code": error.code, "message": str(error), "about": error.about}
        super().__init__(content, error.status, headers)
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


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return Refusal(error)


async def _miss(request: Request, error: Exception) -> Response:
    """The response for a path or method without a route."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"'{path:.80}' takes {(error.headers or {}).get('Allow', 'another method')}, not {request.method}."
        return Refusal(RefusedError(error.status_code, "method", message))
    return Refusal(RefusedError(error.status_code, "no_page", f"There is nothing at '{path:.80}'."))


async def _report_fault(request: Request, error: Exception) -> Response:
    if not isinstance(error, ClientDisconnect):
        traceback.print_exception(error)
    message = "This is a bug in qkv; see the terminal for details."
    return Refusal(RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, "fault", message))


async def read_json(request: Request, most_bytes: int) -> dict[str, Any]:
    """The JSON object in the body; an empty body is an empty object."""
    length = request.headers.get("content-length")
    if length is None or "transfer-encoding" in request.headers:
        message = "The request needs a Content-Length header."
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "length", message, close=True)
    if int(length) > most_bytes:
        message = f"The body has {int(length):,} bytes; the maximum is {most_bytes:,}."
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_big", message, {"most": most_bytes}, close=True)
    return parse_object(await request.body())


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
