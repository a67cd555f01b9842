"""The page of `qkv look` over HTTP: its routes, for the server of qkv.serve.

    GET  /             the page                     GET  /assets/NAME   its files
    GET  /api/room     the models and their views   POST /api/NAME      a question (api.py)
    GET  /page.html    the page as one file that needs no server, into which the page writes its replies

A reply is a frame; a refusal is JSON {"code", "message", "about"} with an HTTP status.

Not here: access control, limits, the process (qkv.serve).
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from qkv.errors import InputError
from qkv.look.api import Api, UnknownQuestionError
from qkv.look.page import CONTENT_TYPES, build_saved_page, build_served_page, find_asset
from qkv.look.wire import RefusalError
from qkv.serve.app import RefusedError, Worker, read_json
from qkv.serve.listen import Server, listen

MOST_REQUEST_BYTES = 1 << 20
"""Size limit of a request's body."""
DEFAULT_PORT = 8765
FRAME = "application/octet-stream"


def serve_page(api: Api, host: str = "127.0.0.1", port: int | None = None, token: str | None = None) -> Server:
    """A server on the port; 0: any free port; None: the first free port from the default on."""
    worker = Worker()
    return listen(page_routes(api, worker), worker, host, port, token, DEFAULT_PORT)


def page_routes(api: Api, worker: Worker) -> Sequence[Route]:
    async def answer(request: Request) -> Response:
        fields = await read_json(request, MOST_REQUEST_BYTES)
        name = request.path_params["name"]
        frame = await worker.run(request.receive, lambda: _ask(api, name, fields))
        return Response(frame, media_type=FRAME)

    async def send_room(request: Request) -> Response:
        return JSONResponse(api.room())

    return [
        Route("/", _send_page),
        Route("/page.html", _send_saved_page),
        Route("/assets/{name:path}", _send_asset),
        Route("/api/room", send_room),
        Route("/api/{name:path}", answer, methods=["POST"]),
    ]


def _ask(api: Api, name: str, fields: Mapping[str, Any]) -> bytes:
    try:
        return api.ask(name, fields)
    except UnknownQuestionError as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, error.code, str(error), error.about) from None
    except RefusalError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, error.code, str(error), error.about) from None
    except InputError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "input", str(error)) from None


# plain functions, which starlette runs in threads, since they read many files


def _send_page(request: Request) -> Response:
    document = build_served_page()
    return Response(
        document.html, media_type=CONTENT_TYPES[".html"], headers={"Content-Security-Policy": document.policy}
    )


def _send_saved_page(request: Request) -> Response:
    return Response(build_saved_page(None), media_type=CONTENT_TYPES[".html"])


async def _send_asset(request: Request) -> Response:
    file = find_asset(request.path_params["name"])
    if file is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, "no_page", f"There is nothing at '{request.url.path:.80}'.")
    return Response(file.read_bytes(), media_type=CONTENT_TYPES[file.suffix])
