"""Next words: what is drawn is what the model says, a click goes on writing, and a blank of BERT is beside it."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qkv.cli.main import main
from qkv.look.next_words import show_next_words
from qkv.look.predictions import fill_blanks
from qkv.look.wire import Asked
from tests.browser.looking import TEXT, Look
from tests.support.near import assert_near

VIEW = "[data-view=next]"


@pytest.mark.parametrize(("model", "lang"), [("gpt", "en"), ("rnnlm", "zh"), ("elmo", "en")])
def test_every_word_and_its_surprise(look: Look, model: str, lang: str) -> None:
    look.open("next", model, lang=lang)
    found = look.numbers()
    reply = show_next_words(look.room.subjects[model], Asked({"text": TEXT, "k": 8}))
    tokens, came = reply.head["tokens"], reply.arrays["forward_came"]
    said = [at for at, token in enumerate(tokens) if not token["special"]]
    assert found["words"] == [*(tokens[at]["text"] for at in said), None] and found["open"]
    first = 0 if tokens[0]["special"] else 1  # without a token for the beginning, the first word has no chance
    np.testing.assert_allclose(
        found["surprise"][first:-1], [-math.log2(came[at - 1]) for at in said[first:]], rtol=1e-4
    )
    last = reply.head["words"]["forward"][said[-1]]
    assert [one["token"] for one in found["guesses"]] == last
    shown = look.page.locator(f"{VIEW} [data-card=mine] .nx-guess")
    assert shown.count() == 8
    chance = reply.arrays["forward"][said[-1]][0]
    assert f"{100 * chance:.1f} %" in shown.first.inner_text() or chance < 1e-3
    assert ("左" in look.text(f"{VIEW} [data-card=mine] header")) == (lang == "zh")


def test_one_side_and_two(look: Look) -> None:
    """The chosen word as the GPT expected it, and as a blank of BERT."""
    look.open("next", "gpt")
    look.page.locator(f"{VIEW} .nx-word", has_text="street").click()
    look.until("look.numbers().blanks?.[0].truth?.token === 'street'")
    found = look.ready("next").numbers()
    start = TEXT.index("street")
    reply = fill_blanks(look.room.subjects["bert"], Asked({"text": TEXT, "k": 8, "hide": f"{start}-{start + 6}"}))
    assert_near(found["blanks"], reply.head["blanks"])
    assert found["words"][found["place"]] == "street" and found["rank"] >= 0
    assert look.page.locator(f"{VIEW} [data-card=mine] .unseen").inner_text().strip() == "because it was too tired."
    assert look.page.locator(f"{VIEW} [data-card=both] .unseen").count() == 0
    assert look.page.locator(f"{VIEW} .nx-guess.true").count() == 2
    look.page.get_by_role("button", name="Open in").click()
    assert look.ready("fill").numbers()["blanks"][0]["truth"]["token"] == "street"


def test_another_model_beside_it(look: Look) -> None:
    look.open("next", "gpt", compare=look.room.index("elmo"))
    assert look.page.locator(f"{VIEW} [data-card]").evaluate_all("all => all.map(one => one.dataset.card)") == [
        "mine",
        "other",
        "both",
    ]
    reply = show_next_words(look.room.subjects["elmo"], Asked({"text": TEXT, "k": 8}))
    shown = look.page.locator(f"{VIEW} [data-card=other] .what").all_inner_texts()
    expected = reply.head["words"]["forward"][-2]  # after the last word, before [SEP]
    assert [word for word in shown if word in expected] == [word for word in expected if word in shown] != []


def test_a_walk_and_the_way_back(look: Look) -> None:
    look.open("next", "gpt", text="the cat")
    for step in range(3):
        guess = next(one for one in look.numbers()["guesses"] if one["text"])
        text = look.state("text")
        look.page.locator(f"{VIEW} button.nx-guess").first.click()
        look.until(f"look.state.text !== {text!r} && look.numbers().words.at(-2) !== undefined")
        look.ready("next")
        assert look.state("text") == text + guess["text"], step
        assert look.numbers()["from"] == "the cat" and look.numbers()["open"]
    assert look.page.locator("#field-text").input_value() == look.state("text")
    look.page.locator(f"{VIEW} .reset").click()
    look.until("look.state.text === 'the cat'")
    assert look.ready("next").page.locator(f"{VIEW} .reset").count() == 0
    # from the middle: what came after it is given up
    look.page.locator(f"{VIEW} .nx-word", has_text="cat").click()
    look.until("!look.numbers().open")
    look.page.locator(f"{VIEW} button.nx-guess").first.click()
    look.until("look.state.text.startsWith('the') && look.state.text !== 'the cat'")
    assert look.numbers()["from"] == "the cat"


def test_elmo_writes_leftwards_too(look: Look) -> None:
    look.open("next", "elmo", text="the cat")
    look.page.locator(f"{VIEW} [data-way=backward]").click()
    look.until("look.numbers().way === 'backward'")
    found = look.ready("next").numbers()
    assert found["words"] == [None, "the", "cat"] and found["place"] == 0
    guess = next(one for one in found["guesses"] if one["text"])
    look.page.locator(f"{VIEW} button.nx-guess").first.click()
    look.until("look.state.text !== 'the cat'")
    assert look.ready("next").state("text") == guess["text"] + "the cat"


def test_by_keyboard(look: Look) -> None:
    look.open("next", "gpt")
    look.page.locator(f"{VIEW} .nx-word.chosen").focus()
    look.page.keyboard.press("ArrowLeft")
    look.until("!look.numbers().open")
    look.page.keyboard.press("Home")
    look.until("look.numbers().place === 0")
    assert "no token for the beginning" in look.ready("next").text(f"{VIEW} [data-card=mine] .caption")
    look.page.keyboard.press("ArrowRight")
    look.until("look.numbers().place === 1")
    look.ready("next").page.keyboard.press("ArrowDown")
    held = "document.activeElement.className"
    assert "nx-guess" in look.page.evaluate(held)
    look.page.keyboard.press("ArrowUp")
    assert "nx-word" in look.page.evaluate(held)
    look.page.keyboard.press("End")
    look.until("look.numbers().open")
    look.ready("next").page.keyboard.press("ArrowDown")
    look.page.keyboard.press("Enter")
    look.until(f"look.state.text !== {TEXT!r}")
    look.ready("next").page.keyboard.press("3")
    assert look.state("view") == "next"


def test_on_a_narrow_screen(look: Look) -> None:
    look.page.set_viewport_size({"width": 390, "height": 800})
    try:
        look.open("next", "gpt", lang="zh", text="他欠我100万 the cat 😀")
        assert look.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"
        boxes = [card.bounding_box() for card in look.page.locator(f"{VIEW} [data-card]").all()]
        assert len(boxes) == 2 and all(box and box["width"] > 300 for box in boxes)
    finally:
        look.page.set_viewport_size({"width": 1400, "height": 900})


def test_what_cannot_be_shown(look: Look) -> None:
    look.open("next", "gpt")
    for text, code in ((" ", "empty"), ("\u200b", "empty"), ("the cat " * 33, "too_many_tokens")):
        look.set(text=text)
        assert look.refusal() == code and look.page.locator(f"{VIEW} .nx-cards").is_hidden(), code
    look.set(model=look.room.index("rnnlm"), text="cat " * 256)
    assert look.refusal() == "too_many_shown" and "256" in look.text("[data-refusal]:visible")
    look.set(text="the zebra 😀 sat")
    assert "zebra" in look.text(f"{VIEW} .note:not(:empty)") and len(look.numbers()["words"]) == 5
    look.set(model=look.room.index("gpt"), text=TEXT, next={"at": 10_000, "k": -3, "way": "sideways", "from": 7})
    assert look.numbers()["open"] and len(look.numbers()["guesses"]) == 8


def test_a_place_belongs_to_its_text(look: Look) -> None:
    look.open("next", "gpt", text="the cat sat")
    look.page.locator(f"{VIEW} .nx-word", has_text="cat").click()
    look.until("!look.numbers().open")
    look.set(model=look.room.index("rnnlm"))
    assert look.numbers()["words"][look.numbers()["place"]] == "cat", "the same place of another model"
    look.set(text="the dog was a cat")
    assert look.numbers()["open"], "another text begins at its end"


def test_a_saved_page(look: Look, open_look: Callable[..., Look], tmp_path: Path) -> None:
    file, text = tmp_path / "page.html", "他欠我100万 the cat sat."
    gpt, bert = (str(look.room.subjects[name].path) for name in ("gpt", "bert"))
    assert main(["look", gpt, "--compare", bert, "--text", text, "--view", "next", "--save", str(file)]) == 0
    page = open_look(offline=True)
    page.page.goto(file.as_uri())
    page.ready("next")
    for lang in ("zh", "en"):
        page.set(lang=lang)
        for word in page.page.locator(f"{VIEW} .nx-word").all():
            word.click()
            page.ready("next")
            assert page.page.locator("[data-refusal]:visible").count() == 0 and page.numbers()["blanks"]
    assert page.numbers()["open"]
    page.page.locator(f"{VIEW} button.nx-guess").first.click()
    assert page.refusal() == "not_saved", "the longer text was not recorded"
