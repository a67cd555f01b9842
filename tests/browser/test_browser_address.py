"""What an address keeps and what a file that is passed on tells: everything that is shown, nothing of this machine."""

from collections.abc import Callable
from pathlib import Path

from tests.browser.looking import Look

NO_CANVAS = "HTMLCanvasElement.prototype.getContext = () => null;"


def test_an_address_leaves_nothing_of_the_one_before(look: Look) -> None:
    look.open("attention", pair="a dog", layer=1, head=2, chosen=2, compare=1, **{"attention.pieces": "pieces"})
    look.page.evaluate("() => { location.hash = '#view=attention&lang=en&text=the+cat'; }")
    look.until("look.state.text === 'the cat'")
    look.ready("attention")
    assert look.state("pair") == "" and look.state("chosen") is None and look.state("compare") is None
    assert (look.state("attention") or {}).get("pieces") != "pieces"


def test_texts_stay_as_they_were_written(look: Look) -> None:
    for text in ("2024", '"the cat"', "null", "a+b %20 &c=d #e", "true"):
        look.open("fill", text=text)
        assert look.state("text") == text
        address = look.page.evaluate("() => look.hash()")
        look.page.goto("about:blank")
        look.page.goto(look.room.address + address)
        look.ready("fill")
        assert look.state("text") == text


def test_a_long_text_stays_out_of_the_address_and_in_a_saved_page(look: Look, tmp_path: Path) -> None:
    look.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    text = "the cat " * 600
    look.open("attention").set(text=text, layer=1)
    assert len(look.page.evaluate("() => look.hash()")) < 300 and "layer=1" in look.page.evaluate("() => look.hash()")
    look.page.locator("details.share summary").click()
    look.page.locator("[data-act='copy.link']").click()
    look.page.locator(".toast", has_text="without the text").wait_for()
    look.page.locator("details.share summary").click()
    with look.page.expect_download() as download:
        look.page.locator("[data-act='save.page']").click()
    download.value.save_as(tmp_path / "page.html")
    assert "the+cat+" * 600 in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_page_that_is_passed_on_names_no_place_of_this_machine(look: Look, tmp_path: Path) -> None:
    look.open("fill").set(text="the " * 200)
    look.open("tasks", "classify")
    look.page.locator("details.share summary").click()
    with look.page.expect_download() as download:
        look.page.locator("[data-act='save.page']").click()
    download.value.save_as(tmp_path / "page.html")
    saved = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "classify" in saved
    for subject in look.room.subjects.values():
        assert str(subject.path.parent) not in saved


def test_a_picture_that_cannot_be_made_is_told(open_look: Callable[..., Look]) -> None:
    look = open_look(script=NO_CANVAS)
    look.open("fill", **{"fill.hide": "4-10"})
    look.page.locator("details.share summary").click()
    look.page.locator("[data-act='export.png']").click()
    look.page.locator(".toast", has_text="canvas").wait_for()


def test_the_second_model_is_offered_where_it_is_shown(look: Look) -> None:
    look.open("fill")
    assert look.page.locator(".chooser").count() == 2
    look.set(view="positions")
    assert look.page.locator(".chooser").count() == 1
