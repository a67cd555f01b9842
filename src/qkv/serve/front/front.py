"""The pages of `qkv serve`: `/`, where a person tries every served model, and `/docs`, the API with requests to try.

Both are one HTML document with different modules, in Chinese and English, without a framework and without anything from
other servers: the Content-Security-Policy allows the page's own files and requests to its own origin. The pages know
nothing that a program could not ask for: GET /v1/models, GET /models/NAME/info and GET /openapi.json.

    GET /               the models                GET /docs             the API
    GET /assets/NAME    the files of both pages

Addresses in the documents are relative, so that they work behind a path prefix.
"""

import re
from http import HTTPStatus
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FRONT_FOLDER = Path(__file__).resolve().parent
START = "<!--qkv:start-->"
"""Placeholder of the page's module in index.html."""
FILE_NAME = re.compile(r"[a-z_]{1,40}\.(?:css|js)")
MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
FRONT_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "img-src 'self' data:; connect-src 'self'; style-src 'self'; script-src 'self'"
)


def routes() -> list[Route]:
    return [
        Route("/", _send_front),
        Route("/docs", _send_docs),
        Route("/assets/{name:path}", _send_file),
    ]


def build_document(module: str) -> str:
    """index.html that starts this module; the others are preloaded, since each of them imports some."""
    html = (FRONT_FOLDER / "index.html").read_text(encoding="utf-8")
    others = sorted(path.name for path in FRONT_FOLDER.glob("*.js") if path.name != module)
    early = [f'<link rel="modulepreload" href="assets/{name}">' for name in others if name not in ("app.js", "docs.js")]
    start = "\n".join([*early, f'<script type="module" src="assets/{module}"></script>'])
    assert html.count(START) == 1, f"index.html needs one {START}"
    return html.replace(START, start)


# plain functions, which starlette runs in threads, since they read files


def _send_front(request: Request) -> Response:
    return _document("app.js")


def _send_docs(request: Request) -> Response:
    return _document("docs.js")


def _document(module: str) -> Response:
    headers = {"Content-Security-Policy": FRONT_POLICY}
    return Response(build_document(module), media_type="text/html; charset=utf-8", headers=headers)


def _send_file(request: Request) -> Response:
    name = request.path_params["name"]
    path = FRONT_FOLDER / name
    if not FILE_NAME.fullmatch(name) or not path.is_file():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(path.read_bytes(), media_type=MEDIA_TYPES[path.suffix])
