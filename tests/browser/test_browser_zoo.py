"""`qkv look` without a model: every view is live, with the first model that shows it, which loads when it is shown."""

from typing import TYPE_CHECKING

import pytest

from qkv.look.api import Api
from qkv.look.page import serve_page
from qkv.look.subject import VIEWS, Subject, open_shipped
from tests.browser.looking import OWN, TEXT, Room, looking
from tests.support.look_server import running
from tests.support.whole_zoo import whole_zoo

if TYPE_CHECKING:  # it need not be installed: then each test says so
    from playwright.sync_api import Browser

pytestmark = pytest.mark.usefixtures("one_thread")

FIRST = {
    "attention": "qkv-mini",
    "fill": "qkv-mini",
    "next": "qkv-gpt",
    "meanings": "qkv-mini",
    "positions": "qkv-mini",
    "translation": "qkv-en-zh",
    "vectors": "qkv-words",
    "tasks": "finetune",
    "recurrence": "qkv-elmo",
}


@pytest.fixture(scope="module")
def shipped(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    """The models of the default page, by title; none is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        whole_zoo(tmp_path_factory.mktemp("whole"), patch)
        return {subject.title: subject for subject in open_shipped()}


def test_nine_live_views(browser: "Browser", shipped: dict[str, Subject]) -> None:
    room = Room(serve_page(Api(list(shipped.values())), port=0), shipped)
    with running(room.server), looking(browser, room) as look:
        look.page.goto(f"{room.address}#lang=en&text={TEXT}")
        look.ready("attention").set(**OWN)
        assert look.page.locator(".place").count() == len(VIEWS) == 9
        assert look.page.locator(".place[aria-disabled]").count() == 0, "no view is grey"
        loaded = [name for name, subject in shipped.items() if {"opened", "translator"} & vars(subject).keys()]
        assert loaded == ["qkv-mini"]
        for view, title in FIRST.items():
            look.page.locator(f"[data-to={view}]").click()
            look.ready(view)
            assert list(shipped)[look.state("model")] == title, view
            assert look.page.locator("[data-refusal]:visible").all_inner_texts() == [], view
            assert len(look.numbers()) > 1, view
            assert title in look.page.locator(".chooser select option:checked").first.inner_text()
        names = look.page.locator(".chooser select").first.locator("option").all_inner_texts()
        assert {"qkv-mini  ·  BERT", "qkv-words  ·  word vectors", "finetune  ·  BERT classifier"} <= set(names)


def test_a_grey_view_says_what_would_make_it_live(browser: "Browser", shipped: dict[str, Subject]) -> None:
    subjects = {title: subject for title, subject in shipped.items() if title != "finetune"}
    room = Room(serve_page(Api(list(subjects.values())), port=0), subjects)
    with running(room.server), looking(browser, room) as look:
        look.page.goto(
            f"{room.address}#view=vectors&lang=en"
        )  # an address without a model: the first that has the view
        look.ready("vectors")
        assert list(subjects)[look.state("model")] == "qkv-words"
        grey = look.page.locator(".place[aria-disabled]")
        assert grey.evaluate_all("all => all.map(one => one.dataset.to)") == ["tasks"]
        assert "qkv finetune" in (grey.get_attribute("title") or "")
        look.page.keyboard.press("8")
        assert look.ready("tasks").refusal() == "no_task" and "qkv finetune" in look.text(".lacking .live")
