"""The page's files and its HTML document, served or saved.

The JavaScript modules import each other by bare names ("look/app.js"), which an import map resolves: in the served page
to assets/, in the saved page to data: URLs, so that the file works offline. The Content-Security-Policy of each
document allows only its own scripts, styles and connections.

Not here: the views and their texts.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

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
