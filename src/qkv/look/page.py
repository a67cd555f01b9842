"""The page's files and its HTML document: served (`qkv look`), saved, or in a notebook cell (`qkv.look`).

The JavaScript modules import each other by bare names ("look/app.js"), which an import map resolves: in the served page
to assets/, in the saved page to data: URLs, so that the file works offline. The Content-Security-Policy of each
document allows only its own scripts, styles and connections.

Not here: the views and their texts; access control, limits and the process of the server (qkv.serve).
"""

import base64
import hashlib
import html
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from qkv.api.model import Model
from qkv.errors import InputError, did_you_mean
from qkv.files import write_text
from qkv.look.api import Api, UnknownQuestionError
from qkv.look.recording import PageText, Recording, record_answers
from qkv.look.subject import VIEWS, Subject, open_subject
from qkv.look.wire import RefusalError
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import LANGUAGES

if TYPE_CHECKING:
    from starlette.routing import Route

    from qkv.serve.app import Worker
    from qkv.serve.listen import Server

PAGE_FOLDER = Path(__file__).resolve().parent / "page"
INDEX_FILE, STYLE_FILE, START_MODULE = "index.html", "look.css", "app.js"
_MARKS = ("policy", "style", "importmap", "recorded", "start")
"""Placeholders in index.html, as <!--qkv:NAME-->, in this order."""
_PREFIX = "look/"
"""Prefix of module names in the import map."""
ASSET_NAME = re.compile(r"([a-z_]{1,40}/)?[a-z_]{1,40}\.[a-z]{1,8}")
PRELOADED = re.compile(r"[a-z_]+\.js|views/attention")
"""Valid file names; and the files to preload."""
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Content types by file extension; other files are not served."""
BASE_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data: blob:"


class Document(NamedTuple):
    html: str
    policy: str  # Content-Security-Policy header


def list_assets() -> dict[str, Path]:
    """All files of the page by relative name; not cached, so that changes appear on reload."""
    files = (path for path in sorted(PAGE_FOLDER.rglob("*")) if path.suffix in CONTENT_TYPES and path.is_file())
    return {path.relative_to(PAGE_FOLDER).as_posix(): path for path in files}


def find_asset(name: str) -> Path | None:
    """The file of this untrusted name, or None."""
    path = PAGE_FOLDER / name
    return path if ASSET_NAME.fullmatch(name) and path.suffix in CONTENT_TYPES and path.is_file() else None


def build_served_page() -> Document:
    """The document for a server; addresses are relative, so that it works behind a path prefix."""
    names = [name for name in list_assets() if name.endswith(".js")]
    modules = _import_map({name: f"./assets/{name}" for name in names})
    # preload what the first view needs
    early = [f'<link rel="modulepreload" href="./assets/{name}">' for name in names if PRELOADED.match(name)]
    html = _fill_template(
        style=f'<link rel="stylesheet" href="assets/{STYLE_FILE}">',
        importmap="\n".join([f'<script type="importmap">{modules}</script>', *early]),
        start=f'<script type="module" src="assets/{START_MODULE}"></script>',
    )
    allowed = f"connect-src 'self'; style-src 'self'; script-src 'self' {_hash(modules)}"
    policy = f"{BASE_POLICY}; frame-ancestors 'none'; {allowed}"
    return Document(html, policy)


def build_saved_page(recorded: Mapping[str, Any] | None) -> str:
    """The self-contained document: style, modules and recorded replies (None: none).

    Its policy allows only its own scripts and no connections.
    """
    files = list_assets()
    style = files[STYLE_FILE].read_text(encoding="utf-8")
    modules = _import_map({name: _data_url(path.read_bytes()) for name, path in files.items() if name.endswith(".js")})
    start = f'import "{_PREFIX}{START_MODULE}"'
    policy = (
        f"{BASE_POLICY}; connect-src 'none'; style-src {_hash(style)}; script-src data: {_hash(modules)} {_hash(start)}"
    )
    return _fill_template(
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style=f"<style>{style}</style>",
        importmap=f'<script type="importmap">{modules}</script>',
        recorded=f'<script type="application/json" id="recorded">{_to_script_json(recorded)}</script>',
        start=f'<script type="module">{start}</script>',
    )


def address_of(state: Mapping[str, str | int]) -> str:
    """A page state as the fragment of its address.

    >>> address_of({"view": "fill", "text": "a b", "model": 1})
    'view=fill&text=a%20b&model=1'
    """
    return "&".join(f"{name}={quote(quote_value(value), safe='')}" for name, value in state.items())


def quote_value(value: str | int) -> str:
    """A value in an address: unchanged, but quoted if it would parse as JSON.

    >>> quote_value("他欠我100万"), quote_value("2024"), quote_value(2024)
    ('他欠我100万', '"2024"', '2024')
    """
    if isinstance(value, int):
        return str(value)
    try:
        json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return value
    return json.dumps(value, ensure_ascii=False)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _fill_template(**parts: str) -> str:
    """index.html with its placeholders replaced, from left to right, since a part may contain placeholder text."""
    rest, out = (PAGE_FOLDER / INDEX_FILE).read_text(encoding="utf-8"), []
    for name in _MARKS:
        mark = f"<!--qkv:{name}-->"
        before, found, rest = rest.partition(mark)
        assert found and mark not in rest, f"{INDEX_FILE} needs one {mark}, in the order {', '.join(_MARKS)}"
        out += [before, parts.get(name, "")]
    return "".join([*out, rest])


def _import_map(modules: Mapping[str, str]) -> str:
    return _to_script_json({"imports": {_PREFIX + name: address for name, address in modules.items()}})


def _to_script_json(data: Any) -> str:
    """JSON for a script element, with "<" escaped, since "</script>" or "<!--" would end or change it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _data_url(source: bytes) -> str:
    return "data:text/javascript;charset=utf-8;base64," + base64.b64encode(source).decode("ascii")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


# --- The page over HTTP: its routes, for the server of qkv.serve.
#
#     GET  /             the page                     GET  /assets/NAME   its files
#     GET  /api/room     the models and their views   POST /api/NAME      a question (api.py)
#     GET  /page.html    the page as one file that needs no server, into which the page writes its replies
#
# A reply is a frame; a refusal is JSON {"code", "message", "about"} with an HTTP status. The packages of the server are
# imported here, since a saved page needs none.

MOST_REQUEST_BYTES = 1 << 20
"""Size limit of a request's body."""
DEFAULT_PORT = 8765
FRAME = "application/octet-stream"


def serve_page(api: Api, host: str = "127.0.0.1", port: int | None = None, token: str | None = None) -> "Server":
    """A server on the port; 0: any free port; None: the first free port from the default on."""
    from qkv.serve.app import Worker
    from qkv.serve.listen import listen

    worker = Worker()
    return listen(page_routes(api, worker), worker, host, port, token, DEFAULT_PORT)


def page_routes(api: Api, worker: "Worker") -> "Sequence[Route]":
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from qkv.serve.app import RefusedError, read_json

    def ask(name: str, fields: Mapping[str, Any]) -> bytes:
        try:
            return api.ask(name, fields)
        except UnknownQuestionError as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, error.code, str(error), error.about) from None
        except RefusalError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, error.code, str(error), error.about) from None
        except InputError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "input", str(error)) from None

    async def answer(request: Request) -> Response:
        fields = await read_json(request, MOST_REQUEST_BYTES)
        name = request.path_params["name"]
        frame = await worker.run(request.receive, lambda: ask(name, fields))
        return Response(frame, media_type=FRAME)

    async def send_room(request: Request) -> Response:
        return JSONResponse(api.room())

    async def send_asset(request: Request) -> Response:
        file = find_asset(request.path_params["name"])
        if file is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "no_page", f"There is nothing at '{request.url.path:.80}'.")
        return Response(file.read_bytes(), media_type=CONTENT_TYPES[file.suffix])

    # plain functions, which starlette runs in threads, since they read many files

    def send_page(request: Request) -> Response:
        page = build_served_page()
        return Response(page.html, media_type=CONTENT_TYPES[".html"], headers={"Content-Security-Policy": page.policy})

    def send_saved_page(request: Request) -> Response:
        return Response(build_saved_page(None), media_type=CONTENT_TYPES[".html"])

    return [
        Route("/", send_page),
        Route("/page.html", send_saved_page),
        Route("/assets/{name:path}", send_asset),
        Route("/api/room", send_room),
        Route("/api/{name:path}", answer, methods=["POST"]),
    ]


# --- `qkv.look(model, text)`: the page of `qkv look` with its answers in one document, shown in a notebook cell.
#
#     qkv.look("qkv-mini", "The children went home because they were hungry.")
#     qkv.look(model).save("page.html")
#
# Not here: what is asked of the models (recording.py).

_HEIGHT = 720
"""Pixels of the frame in a notebook."""


def build_page(
    api: Api,
    state: dict[str, Any],
    every: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[str, Recording]:
    """The page in one document with the answers about the text of `state`, or about the first examples (or `every`)."""
    room = api.room()
    given = PageText(str(state["text"]), str(state["pair"]) if "pair" in state else None) if "text" in state else None

    def nameless(message: str) -> str:
        """Replace paths of this machine by the titles of the models."""
        for subject in api.subjects:
            for place in (str(subject.path.resolve()), str(subject.path), subject.name):
                message = message.replace(place, subject.title)
        return message

    made = record_answers(api.ask, room, given, every=every, progress=progress, format_message=nameless)
    subjects = [subject | {"name": subject["title"]} for subject in room["subjects"]]
    recorded = {
        "room": room | {"subjects": subjects, "saved": True},
        "replies": made.replies,
        "hash": f"#{address_of(state)}" if state else "",
    }
    return build_saved_page(recorded), made


def describe_too_long(subjects: Sequence[Subject], text: str, pair: str | None = None) -> list[str]:
    """A message for each model that cannot read the text whole: its views will refuse it."""
    found = []
    for subject in subjects:
        if subject.is_table:
            continue
        if subject.translates:
            n_tokens = len(subject.translator.languages.read([text])[0])
        else:
            tokenizer, texts = subject.model.tokenizer, [text] if pair is None else [text, pair]
            special = (2 if pair is None else tokenizer.marks.around_pair) if subject.model.counts_special_tokens else 0
            n_tokens = sum(map(len, tokenizer.encode_ids(texts))) + special
        if n_tokens > (most := subject.max_length):
            found.append(
                f"The text has {n_tokens:,} tokens, and {subject.title} reads {most:,} at most: its views refuse it. "
                "Shorten it."
            )
    return found


@dataclass(frozen=True)
class LookPage:
    """The page of a model, which needs no server. A notebook shows it; `save` writes it."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<qkv.look at {self.title}: a page of {len(self.html) / 2**20:.1f} MB; .save(file) writes it>"

    def _repr_html_(self) -> str:
        frame = f'style="width: 100%; height: {_HEIGHT}px; border: 0"'
        return f'<iframe title="{html.escape(self.title)}" {frame} srcdoc="{html.escape(self.html)}"></iframe>'

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write one file that opens without a server, whole or not at all; return its path."""
        path = Path(os.path.expanduser(file))
        write_text(path, self.html)
        return path


def look(
    model: str | os.PathLike[str] | Model = DEFAULT_MODEL,
    text: str | None = None,
    pair: str | None = None,
    view: str | None = None,
    lang: str | None = None,
) -> LookPage:
    """The page about a model: a loaded one, a folder, a run, a file of word vectors, or a name.

    With a text the page has the answers about it, else those about the first example of every view; `view` and `lang`
    say what it opens with.
    """
    if view is not None and view not in VIEWS:
        raise InputError(f"There is no view '{view}'.{did_you_mean(view, VIEWS)} Views: {', '.join(VIEWS)}.")
    if pair is not None and text is None:
        raise InputError("pair is a second text: give the first one as text.")
    if lang is not None and lang not in LANGUAGES:
        raise InputError(f"lang is '{lang}'; known: {', '.join(LANGUAGES)}.")
    api = Api([Subject.of(model) if isinstance(model, Model) else open_subject(model)])
    api.load()
    for message in [] if text is None else describe_too_long(api.subjects, text, pair):
        warnings.warn(message, stacklevel=2)
    state = {"view": view, "text": text, "pair": pair, "lang": lang}
    page, _ = build_page(api, {name: value for name, value in state.items() if value is not None})
    return LookPage(api.subjects[0].title, page)
