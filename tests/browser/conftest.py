"""The page in a real browser: Debian's Chromium, driven by Playwright, before the real server with tiny random models.

Which Chromium: $QKV_CHROMIUM, else one that is installed. Where there is none these tests are skipped, and say so.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from qkv.look.api import Api
from qkv.look.page import page_routes, serve_page
from tests.browser.looking import Look, Room, looking
from tests.browser.models import make_models
from tests.support.look_server import running

if TYPE_CHECKING:  # it need not be installed: then each test says so
    from playwright.sync_api import Browser
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from qkv.serve.app import Worker

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-device-scale-factor=1"),
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",  # no other machine is found
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser."""
    pytest.importorskip("playwright", reason="the browser tests need Playwright: pip install -e '.[dev]'")
    named = os.environ.get("QKV_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium is installed (apt-get install chromium, or set QKV_CHROMIUM to its path)")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def room(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """The server, in a thread of this process, and what it serves."""
    subjects = make_models(tmp_path_factory.mktemp("look"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qkv.look.page.page_routes", routes_to_keep)
        server = serve_page(Api(list(subjects.values())), port=0)
    with running(server):
        yield Room(server, subjects)


def routes_to_keep(api: Api, worker: "Worker") -> "list[Route]":
    """Otherwise the browser fetches and compiles the page's files again for each test."""
    from starlette.routing import Route

    routes = list(page_routes(api, worker))
    assets = next(route for route in routes if route.path.startswith("/assets"))

    async def send_to_keep(request: "Request") -> "Response":
        response: Response = await assets.endpoint(request)
        response.headers["Cache-Control"] = "max-age=600"
        return response

    return [Route(assets.path, send_to_keep) if route is assets else route for route in routes]


@pytest.fixture(scope="session")
def shared_look(browser: "Browser", room: Room) -> Iterator[Look]:
    """A window costs more than most tests, so that they have one together."""
    with looking(browser, room) as page:
        yield page


@pytest.fixture
def look(shared_look: Look) -> Iterator[Look]:
    """As if it were new; whatever the page complains of, and whomever it asks, is held against the test."""
    yield shared_look
    shared_look.forget()
    try:
        shared_look.check()
    finally:
        shared_look.complaints.clear()
        shared_look.asked.clear()


@pytest.fixture
def open_look(browser: "Browser", room: Room) -> Iterator[Callable[..., Look]]:
    """More pages, or such as are prepared before anything runs in them."""
    pages = []

    def opened(**options: Any) -> Look:
        pages.append(looking(browser, room, **options))
        return pages[-1].__enter__()

    yield opened
    for page in pages:
        page.__exit__(None, None, None)
