"""The page's document, served and saved: nothing runs or is fetched but what its policy lists."""

import base64
import hashlib
import html.parser
import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from qkv.look import page
from qkv.look.page import CONTENT_TYPES, build_saved_page, build_served_page, list_assets

ROOT = Path(__file__).resolve().parents[3]


class Scripts(html.parser.HTMLParser):
    """Script elements, with what is in them."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self._open = dict(attrs)
            self.found.append((self._open, ""))

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.found[-1] = (self._open, self.found[-1][1] + data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._open = None

    def of(self, **wanted: str) -> str:
        (one,) = [text for attributes, text in self.found if wanted.items() <= attributes.items()]
        return one


def source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_every_file_has_a_known_type() -> None:
    found = list_assets()
    assert {"index.html", "look.css", "app.js", "wire.js", "state.js"} <= set(found)
    others = [path.name for path in page.PAGE_FOLDER.rglob("*") if path.is_file() and path.suffix not in CONTENT_TYPES]
    assert others == []
    assert {name: page.find_asset(name) for name in found} == found


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../page.py", "views/../../page.py", "/app.js", "app.js/", "views", "no.js", "app.js\n", "a\0.js"],
)
def test_a_name_that_is_no_file(name: str) -> None:
    assert page.find_asset(name) is None


def test_every_file_comes_with_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = settings["package-data"]["*"]
    assert settings["packages"]["find"]["include"] == ["qkv*"]  # folders without code too
    assert all(any(fnmatch(path.name, one) for one in patterns) for path in list_assets().values())


def test_the_served_page_names_every_module() -> None:
    document = build_served_page()
    scripts = Scripts(document.html)
    names = {name for name in list_assets() if name.endswith(".js")}
    imports = json.loads(scripts.of(type="importmap"))["imports"]
    assert imports == {f"look/{name}": f"./assets/{name}" for name in names}
    assert source_hash(scripts.of(type="importmap")) in document.policy
    early = re.findall(r'<link rel="modulepreload" href="\./assets/([^"]*)">', document.html)
    assert {"app.js", "wire.js", "views/attention.js"} <= set(early) < names
    inline = [text for attributes, text in scripts.found if "src" not in attributes]
    assert len(inline) == 1 and "<!--qkv:" not in document.html


def test_the_modules_import_what_is_there_by_its_name() -> None:
    names = {f"look/{name}" for name in list_assets() if name.endswith(".js")}
    for name, path in list_assets().items():
        if name.endswith(".js"):
            source = path.read_text(encoding="utf-8")
            told = re.findall(r"""^\s*(?:import|export)\b[^;'"]*?\bfrom\s*["']([^"']+)["']""", source, re.MULTILINE)
            told += re.findall(r"""^\s*import\s*["']([^"']+)["']""", source, re.MULTILINE)
            assert set(told) <= names, f"{name} imports {set(told) - names}"


def test_nothing_comes_from_elsewhere() -> None:
    allowed = ("http://www.w3.org/", "https://doi.org/", "https://arxiv.org/", "https://aclanthology.org/")
    for name, path in list_assets().items():
        source = path.read_text(encoding="utf-8")
        found = [one for one in re.findall(r"https?://[^\s\"'`)<>]*", source) if not one.startswith(allowed)]
        assert found == [], f"{name} names {found}"
        assert not re.search(r"\beval\(|\bnew Function\b|\.innerHTML\s*=|\.outerHTML\s*=|insertAdjacentHTML", source), (
            name
        )


def test_the_saved_page_holds_everything() -> None:
    recorded = {"room": {"title": "</script><script>alert(1)</script><!--"}, "replies": {"fill {}": "AAAA"}}
    document = build_saved_page(recorded)
    scripts = Scripts(document)
    assert json.loads(scripts.of(id="recorded")) == recorded
    imports = json.loads(scripts.of(type="importmap"))["imports"]
    for name, path in list_assets().items():
        if name.endswith(".js"):
            head, _, body = imports[f"look/{name}"].partition(",")
            assert head == "data:text/javascript;charset=utf-8;base64" and base64.b64decode(body) == path.read_bytes()
    assert not any("src" in attributes for attributes, _ in scripts.found) and "modulepreload" not in document
    assert (
        '<link rel="stylesheet"' not in document and list_assets()["look.css"].read_text(encoding="utf-8") in document
    )
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)
    assert "connect-src 'none'" in policy and "'self'" not in policy.replace("img-src 'self'", "")
    assert "unsafe" not in policy
    for attributes, text in scripts.found:
        if attributes.get("type") != "application/json":
            assert source_hash(text) in policy
    assert len(scripts.found) == 3 and "alert(1)</script>" not in document


def test_a_page_to_write_into() -> None:
    assert Scripts(build_saved_page(None)).of(id="recorded") == "null"


def test_a_mark_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_MARKS", ("policy", "nowhere"))
    with pytest.raises(AssertionError, match="<!--qkv:nowhere-->"):
        build_served_page()
