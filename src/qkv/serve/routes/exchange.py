"""One request and its answer: the body, the model, refusals in the family's convention, headers, the log's fields.

    async def embed_inputs(exchange: Exchange) -> Response:
        served = exchange.use("feature-extraction")
        found = await served.embed(exchange.fields.texts("inputs"), exchange.call)
        …
    endpoint("/embed", embed, models, settings)            # a starlette Route

Every answer of a model carries the headers of text-embeddings-inference (times in ms, characters, tokens) and
x-qkv-windows and x-qkv-truncated. `scope["qkv"]` has the route, the model, tokens and windows for the access log and
the metrics.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from qkv.errors import InputError
from qkv.serve.app import KEY_CHECK, RefusedError, read_body
from qkv.serve.conventions import Refused, convention_of
from qkv.serve.fields import BodyError, FieldError, Fields, parse_json
from qkv.serve.journal import CLIENT_LEFT
from qkv.serve.served import (
    Call,
    Models,
    OverloadedError,
    Served,
    ServeSettings,
    UnavailableError,
    UnknownModelError,
)

JSON = "application/json"
NUMBERS_PER_PART = 16_384
"""Numbers of a long answer that are written at a time: other requests are served in between."""
_Item = TypeVar("_Item")
Refusable = (InputError, OverloadedError, UnavailableError, UnknownModelError)


class Exchange:
    """A request while it is answered."""

    def __init__(self, request: Request, models: Models, route: str) -> None:
        self.request, self.models = request, models
        self.convention = convention_of(request.scope["path"])
        self.call = Call(request.receive)
        self.fields = Fields({})
        self.served: Served | None = None
        self.names: Mapping[str, str] = {}  # of the library's options, as the client calls them; for messages
        self.log: dict[str, Any] = request.scope.setdefault("qkv", {})
        self.log["route"] = route
        self.began = time.perf_counter()

    def use(self, task: str, name: str | None = None, *, needed: bool = True) -> Served:
        """The model of this name, or the first that has the task; it must have the task if it is `needed`."""
        served = self.models.default(task) if name is None else self.models[name]
        self.served, self.log["model"] = served, served.name
        if needed and task not in served.tasks:
            can = f"The model '{served.name}' does {', '.join(served.tasks)}, and not {task}."
            others = [one.name for one in self.models if task in one.tasks]
            advice = f"Ask {' or '.join(others)}." if others else "No model here does."
            raise FieldError("task", f"{can} {advice}", "model")
        return served

    def refusal(self, error: Exception) -> RefusedError:
        """What is answered for an error of the model or of the fields."""
        message, convention = str(error), self.convention
        if self.served is not None:  # messages of the library name the folder
            message = message.replace(str(self.served.facts.path), self.served.name)
        if self.names and isinstance(error, InputError) and not isinstance(error, FieldError):
            message = re.sub(r"\b\w+\b", lambda found: self.names.get(found[0], found[0]), message)
        if isinstance(error, OverloadedError):
            seconds = max(1.0, error.retry_after)
            headers = {"Retry-After": str(math.ceil(seconds)), "Retry-After-Ms": str(math.ceil(1000 * seconds))}
            code = HTTPStatus.TOO_MANY_REQUESTS
            return RefusedError(code, "overloaded", message, headers=headers, convention=convention)
        if isinstance(error, UnavailableError):
            headers = {"Retry-After": "1"}
            code = HTTPStatus.SERVICE_UNAVAILABLE
            return RefusedError(code, "unavailable", message, headers=headers, convention=convention)
        if isinstance(error, UnknownModelError):
            return RefusedError(HTTPStatus.NOT_FOUND, "model", message, {"field": "model"}, convention=convention)
        if isinstance(error, BodyError):
            return RefusedError(HTTPStatus.BAD_REQUEST, error.code, message, convention=convention)
        if isinstance(error, FieldError):
            status = HTTPStatus.BAD_REQUEST if error.code == "empty" else convention.invalid
            about = {"field": error.field} if error.field else {}
            return RefusedError(status, error.code, message, about, convention=convention)
        return RefusedError(convention.invalid, "input", message, convention=convention)

    def finish(self) -> None:
        """Write down what was computed."""
        self.log |= {"tokens": self.call.n_tokens, "windows": self.call.n_windows}

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Of an answer of a model."""
        call, total = self.call, time.perf_counter() - self.began
        times = {
            "x-compute-time": call.tokenise_s + call.inference_s,
            "x-total-time": total,
            "x-tokenization-time": call.tokenise_s,
            "x-queue-time": call.queue_s,
            "x-inference-time": call.inference_s,
        }
        said: dict[str, object] = {
            "x-compute-type": (self.served.info if self.served else {}).get("device", "cpu"),
            "x-compute-characters": call.n_characters,
            "x-compute-tokens": call.n_tokens,
            **{name: round(1000 * seconds) for name, seconds in times.items()},
            "x-qkv-windows": call.n_windows,
            "x-qkv-truncated": "true" if call.truncated else "false",
        }
        return [(name.encode(), str(value).encode()) for name, value in said.items()]


Handler = Callable[[Exchange], Awaitable[Response]]


def endpoint(
    path: str,
    handle: Handler,
    models: Models,
    settings: ServeSettings,
    *,
    method: str = "POST",
    parse: Callable[[bytes], dict[str, Any]] = parse_json,
    key: str = "",
) -> Route:
    """The route of a handler; a body is read for POST alone. `key` is the field that may have the token."""

    most = CHARACTERS_PER_TOKEN * settings.queue_tokens

    async def answer(request: Request) -> Response:
        exchange = Exchange(request, models, path)
        try:
            if method == "POST":
                body = await read_body(request, settings.max_body)
                fields = parse(body)
                _check_key(request, fields.get(key))
                if len(body) > most:
                    _check_characters(fields, most)
                exchange.fields = Fields(fields)
            response = await handle(exchange)
        except Refusable as error:
            raise exchange.refusal(error) from error
        except ClientDisconnect:
            exchange.log["status"] = CLIENT_LEFT
            raise
        finally:
            exchange.finish()
        if exchange.served is not None and method == "POST":
            response.raw_headers.extend(exchange.headers())
        return response

    return Route(path, answer, methods=[method])


def _check_key(request: Request, given: Any) -> None:
    """Refuse a request that came without the token in its headers and in its body (`Access.key_paths`)."""
    is_token = request.scope.get(KEY_CHECK)
    if is_token is not None and not (isinstance(given, str) and is_token(given)):
        raise RefusedError(HTTPStatus.FORBIDDEN, "token", "The API key is missing or wrong: it is the server's token.")


CHARACTERS_PER_TOKEN = 8
"""More than texts have. A request with so many for each token that a queue holds is refused before it is tokenized,
which would take seconds."""


def _check_characters(fields: Mapping[str, Any], most: int) -> None:
    if (n := count_characters(fields)) > most:
        limit = f"this server takes {most:,} at most, {CHARACTERS_PER_TOKEN} for each token of --max-queue-tokens"
        raise FieldError("too_long", f"The request has {n:,} characters, and {limit}. Send fewer or shorter texts.")


def count_characters(value: Any) -> int:
    """Of all strings.

    >>> count_characters({"inputs": ["你好", "abc"], "top_k": 3})
    5
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(count_characters, value.values()))
    return sum(map(count_characters, value)) if isinstance(value, list) else 0


SMALL_REQUEST = 4_000
"""Characters up to which texts are tokenized in the event loop: less than a switch of threads costs."""
_pool = ThreadPoolExecutor(1, thread_name_prefix="tokens")


async def work_aside(characters: int, work: Callable[[], _Item]) -> _Item:
    """The result of tokenizing or the like; of large requests in a thread, so that others are served meanwhile."""
    if characters <= SMALL_REQUEST:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_pool, work)


# --- Answers


def to_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def numbers_to_json(vector: NDArray[np.float32]) -> bytes:
    """A list of numbers with nine digits each, which are enough to tell every float32 from all others; json would write
    all seventeen of the same number as a float64, in four times the time.

    >>> numbers_to_json(np.array([0.1, -2.5, 1e-12], np.float32))
    b'[0.100000001,-2.5,9.99999996e-13]'
    """
    if not np.isfinite(vector).all():
        raise ValueError("NaN and infinity are no numbers in JSON")
    return b"[%b]" % (",".join(["%.9g"] * len(vector)) % tuple(vector.tolist())).encode()


def reply(content: Any) -> Response:
    return Response(to_json(content), media_type=JSON)


def reply_list(
    items: Sequence[_Item],
    write: Callable[[_Item], Any],
    numbers: int = 8,
    head: bytes = b"[",
    tail: bytes = b"]",
) -> Response:
    """A list of `write(item)` between `head` and `tail`; a long one is sent in parts. Bytes are JSON already.
    `numbers`: about how many of them an item has."""
    each = max(1, NUMBERS_PER_PART // max(1, numbers))

    def parts() -> Iterator[bytes]:
        for at in range(0, len(items), each):
            yield (b"," if at else head) + _items_to_json([write(one) for one in items[at : at + each]])
        yield tail if len(items) else head + tail

    return _reply_parts(parts(), is_long=len(items) > each)


def reply_lists(lists: Sequence[Any], write: Callable[[Any], Any], numbers: int) -> Response:
    """A list of lists, or arrays, of `write(item)`; long ones are sent in parts, which may end inside of a list."""
    each = max(1, NUMBERS_PER_PART // max(1, numbers))

    def parts() -> Iterator[bytes]:
        waiting, size = bytearray(b"["), 0
        for number, items in enumerate(lists):
            waiting += b",[" if number else b"["
            for at in range(0, len(items), each):
                some = items[at : at + each]
                waiting += (b"," if at else b"") + _items_to_json([write(one) for one in some])
                size += len(some)
                if size >= each:
                    yield bytes(waiting)
                    waiting, size = bytearray(), 0
            waiting += b"]"
        yield bytes(waiting + b"]")

    return _reply_parts(parts(), is_long=sum(map(len, lists)) > each)


def _items_to_json(items: Sequence[Any]) -> bytes:
    return b",".join(items) if items and isinstance(items[0], bytes) else to_json(items)[1:-1]


def _reply_parts(parts: Iterator[bytes], is_long: bool) -> Response:
    async def in_turns() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
            await asyncio.sleep(0)  # sending does not wait while the client reads as fast as we write

    if not is_long:
        return Response(b"".join(parts), media_type=JSON)
    return StreamingResponse(in_turns(), media_type=JSON)


async def reply_stream(
    exchange: Exchange, events: AsyncIterator[Mapping[str, Any]], last: str | None = None
) -> Response:
    """Server-sent events; `last` is the data of one at the end. What is refused before the first event has a status of
    its own; an error that comes later is an event with the body of a refusal."""
    first = await anext(events, None)

    async def lines() -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield _event(first)
            async for event in events:
                yield _event(event)
        except Refusable as error:
            refused = exchange.refusal(error)
            exchange.log["status"] = refused.status
            said = Refused(refused.status, refused.code, str(refused), refused.about)
            yield _event(exchange.convention.body(said))
            return
        finally:
            exchange.finish()
        if last is not None:
            yield f"data: {last}\n\n".encode()

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + to_json(content) + b"\n\n"
