"""The language of a report and of an attention page, from a file: the browser's, or what was chosen before."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from qkv.report.attention import AttentionMap, Token, attention_page
from qkv.report.bilingual import Phrase
from qkv.report.page import Notes, RunPage, render_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = RunPage(
    "a run", Phrase("Fine-tuning", "微调"), sections=(Notes(Phrase("Notes", "说明"), (Phrase("one", "一"),)),)
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "report.html").write_text(render_page(PAGE), encoding="utf-8")
    tokens = tuple(Token(text, text, place * 2, place * 2 + 1) for place, text in enumerate("abc"))
    found = AttentionMap("self", np.full((1, 1, 3, 3), 85, np.uint8), (0,), (0,), tokens, tokens, ("a b c",))
    (folder / "attention.html").write_text(attention_page(found), encoding="utf-8")
    return {"report": folder / "report.html", "attention": folder / "attention.html"}


@pytest.mark.parametrize("kind", ["report", "attention"])
@pytest.mark.parametrize(
    ("locale", "shown", "other"), [("en-US", "en", "zh"), ("zh-CN", "zh", "en"), ("de", "en", "zh")]
)
def test_the_language_of_the_browser_and_a_choice(
    browser: "Browser", files: dict[str, Path], kind: str, locale: str, shown: str, other: str
) -> None:
    context = browser.new_context(locale=locale)
    page = context.new_page()
    # not from a file: after a reload Chromium 156 now and then has lost what a file stored in a context of this kind
    page.route("http://localhost/*", lambda route: route.fulfill(path=files[kind], content_type="text/html"))
    page.goto("http://localhost/page.html")
    assert page.evaluate("document.documentElement.lang") == shown
    if kind == "report":
        assert page.get_by_text("微调", exact=True).is_visible() == (shown == "zh")
    page.click(f"label[for=lang-{other}]" if kind == "report" else "#language")
    chosen = page.locator(f"html[lang={other}]")
    chosen.wait_for(state="attached")  # a busy machine answers a click late
    page.reload()
    assert page.evaluate("document.documentElement.lang") == other
    context.close()
