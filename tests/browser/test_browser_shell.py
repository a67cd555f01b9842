"""The shell around the views: keys, themes, links that restore, what is exported, and text that stays text."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from tests.browser.looking import MODELS, OWN, TEXT, Look

PNG = b"\x89PNG\r\n\x1a\n"
SVG = "{http://www.w3.org/2000/svg}"
MARKUP = "<img src=x onerror=alert(1)> the cat <script>alert(2)</script> &amp; sat"


def exported(look: Look, act: str, folder: Path) -> bytes:
    look.page.locator("details.share summary").click()
    with look.page.expect_download() as download:
        look.page.locator(f"[data-act='{act}']").click()
    download.value.save_as(folder / "file")
    return (folder / "file").read_bytes()


def test_what_is_on_screen_as_a_picture(look: Look, tmp_path: Path) -> None:
    look.open("attention").set(**OWN)
    for view, model in MODELS.items():
        look.set(view=view, model=look.room.index(model))
        picture = ElementTree.fromstring(exported(look, "export.svg", tmp_path))
        assert picture.tag == f"{SVG}svg" and float(picture.attrib["width"]) > 200, view
        assert len(list(picture.iter(f"{SVG}text"))) > 3, f"{view}: words are words"
        assert not list(picture.iter(f"{SVG}script")) and not list(picture.iter(f"{SVG}foreignObject")), view
        if view in ("attention", "fill"):  # a canvas's picture, and words alone; all go the same way from there
            assert exported(look, "export.png", tmp_path).startswith(PNG), view


def test_a_link_restores_the_state(look: Look, open_look: Callable[..., Look]) -> None:
    look.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    look.open("attention", lang="zh", text="他欠我100万 the cat #&=%?", theme="dark")
    look.set(layer=1, head=3, chosen=4, attention={"pieces": "pieces"})
    look.page.locator("details.share summary").click()
    look.page.locator("[data-act='copy.link']").click()
    look.page.locator("[role=status]", has_text="链接已复制").wait_for()
    link = look.page.evaluate("() => navigator.clipboard.readText()")
    before = look.numbers()
    other = open_look()
    other.page.goto(link)
    other.ready("attention")
    assert other.numbers() == before
    for name in ("text", "lang", "theme", "layer", "head", "chosen", "attention"):
        assert other.state(name) == look.state(name), name


def test_back_from_another_address(look: Look) -> None:
    look.open("fill")
    look.page.evaluate("() => { location.hash = '#view=positions&lang=en'; }")
    look.ready("positions")
    assert look.state("view") == "positions"


def test_by_keyboard_alone(look: Look) -> None:
    look.open("attention")
    for key, view in (("5", "positions"), ("2", "fill"), ("9", "recurrence"), ("1", "attention")):
        look.page.keyboard.press(key)
        look.ready(view)
    look.page.keyboard.press("d")
    look.until("look.state.theme !== 'system'")
    look.page.keyboard.press("?")
    look.page.locator("dialog.help[open]").wait_for()
    look.page.keyboard.press("Escape")
    look.page.keyboard.press("/")
    look.page.keyboard.press("Control+a")
    look.page.keyboard.type("the dog")
    look.page.keyboard.press("Control+Enter")
    look.until("look.state.text === 'the dog'")
    look.ready("attention")
    assert "dog" in [token["token"] for token in look.numbers()["left"]]
    look.page.keyboard.press("Escape")
    seen = []
    for _ in range(60):
        look.page.keyboard.press("Tab")
        seen.append(look.page.evaluate("() => document.activeElement.dataset.part ?? document.activeElement.className"))
    assert {"maps", "lines", "large"} <= set(seen), "every part of the picture is reached by Tab"
    assert any("place" in one for one in seen) or any("tool" in one for one in seen)


def test_light_and_dark(look: Look) -> None:
    look.open("attention", theme="light")
    light = look.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    look.set(theme="dark")
    assert look.page.evaluate("() => getComputedStyle(document.body).backgroundColor") != light
    assert look.colours("[data-view=attention] .at-large canvas") > 20


def test_markup_in_the_text_stays_text(look: Look, tmp_path: Path) -> None:
    """A dialog, a script that runs or a picture that is fetched would be among the page's complaints."""
    look.open("attention", text=MARKUP)
    look.set(
        meanings={"word": "cat", "sentences": [MARKUP, "a cat"]},
        positions={"text": MARKUP, "other": MARKUP},
        vectors={"word": MARKUP},
        tasks={"passage": MARKUP, "question": MARKUP},
        chosen=1,
        fill={"hide": f"{MARKUP.index('cat')}-{MARKUP.index('cat') + 3}"},
    )
    for view, model in (*MODELS.items(), ("tasks", "tag")):
        look.set(view=view, model=look.room.index(model), text=MARKUP)
        assert look.page.locator("img").count() == 0, view
        assert look.page.evaluate("() => document.querySelectorAll('#stage script').length") == 0, view
        if view in ("attention", "fill", "tasks"):
            assert "onerror" in ElementTree.tostring(
                ElementTree.fromstring(exported(look, "export.svg", tmp_path)), "unicode"
            ), f"{view}: it is told as it was written"
    assert not any(address.endswith("/x") for address in look.asked)


def test_a_text_that_is_typed_is_taken_after_a_pause(look: Look) -> None:
    look.open("attention")
    field = look.page.locator("#field-text")
    assert field.input_value() == TEXT
    field.fill("the cat sat on the mat")
    look.until("look.state.text === 'the cat sat on the mat'")
    look.ready("attention")
    assert len(look.numbers()["left"]) == 8
    assert "the+cat+sat" in look.page.evaluate("() => look.hash()")
