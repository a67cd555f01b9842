"""Hiding words and putting guesses in, by clicks: what goes into the text is what was shown, whatever the text is."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Route

from qkv.look.examples import EXAMPLES
from qkv.look.predictions import fill_blanks
from qkv.look.wire import Asked
from tests.browser.looking import Look
from tests.support.near import assert_near


def shown(look: Look) -> str:
    return look.text(".sentence")


def test_what_is_shown_is_what_the_model_says(look: Look) -> None:
    text = "the 😀 cat sat, 他欠我100万"
    look.open("fill", text=text, **{"fill.hide": "6-9 16-17"})
    reply = fill_blanks(look.room.subjects["bert"], Asked({"text": text, "k": 8, "hide": "6-9 16-17"}))
    assert_near(look.numbers()["blanks"], reply.head["blanks"])
    assert_near(look.numbers()["probabilities"]["data"], reply.arrays["probabilities"].ravel().tolist())
    assert [blank["truth"]["token"] for blank in reply.head["blanks"]] == ["cat", "欠"]
    for number, blank in enumerate(reply.head["blanks"]):
        card = look.page.locator(f"[data-blank='{number}']")
        said = [row.split("\n") for row in card.locator(".guess").all_inner_texts()][: len(blank["candidates"])]
        for (token, chance), one in zip(said, blank["candidates"], strict=True):
            assert token == one["token"] and float(chance.strip("<> %")) == pytest.approx(
                100 * one["probability"], abs=0.06
            )


def test_a_click_hides_a_word_and_another_shows_it_again(look: Look) -> None:
    look.open("fill", text="the cat sat", **{"fill.hide": ""})
    assert look.page.locator(".card").count() == 0
    look.page.locator(".word", has_text="cat").click()
    look.page.locator(".card").wait_for()
    assert look.state("fill")["hide"] == "4-7"
    look.page.locator(".word.hidden").click()
    look.until("look.state.fill.hide === ''")
    assert shown(look) == "the cat sat"


def test_a_word_of_several_pieces_goes_in_as_it_was_shown(look: Look) -> None:
    look.open("fill", text="He was unhappyness here, cat", **{"fill.hide": "7-18 25-28"})
    assert look.page.locator(".card").count() == 4, "un ##happy ##ness, and the cat"
    look.page.locator("[data-blank='1'] .guess").nth(2).hover()
    before = shown(look)
    look.page.locator("[data-blank='1'] .guess").nth(2).click()
    look.until("look.state.text !== 'He was unhappyness here, cat'")
    look.ready("fill")
    word = look.state("text").removeprefix("He was ").removesuffix(" here, cat")
    assert f"He was {word} here" in before
    assert look.state("fill")["hide"] == f"{7 + len(word) + 7}-{7 + len(word) + 10}", "the cat stays hidden"


def test_an_accent_of_its_own_goes_with_its_letter(look: Look) -> None:
    look.open("fill", text="the cafe\u0301 sat", **{"fill.hide": "4-9"})
    look.page.locator(".guess").first.click()
    look.until("!look.state.text.includes('\u0301')")
    assert look.state("text").startswith("the ") and look.state("text").endswith(" sat")


def test_an_answer_that_comes_late_is_not_drawn(look: Look) -> None:
    look.open("fill", text="the cat is here", **{"fill.hide": "11-15"})
    held: list[Route] = []

    def hold(route: Route) -> None:
        if '"4-7"' in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    look.page.route("**/api/fill", hold)
    look.page.evaluate("() => look.set({ fill: { hide: '4-7' } })")
    look.page.evaluate("() => look.set({ fill: { hide: '8-10' } })")
    look.until("look.numbers().blanks[0].start === 8")
    assert len(held) == 1
    with look.page.expect_response("**/api/fill"):
        held[0].continue_()
    look.ready("fill")
    assert [blank["start"] for blank in look.numbers()["blanks"]] == [8]
    assert shown(look).startswith("the cat ")


def test_nothing_of_a_readers_own_text_is_hidden_unasked(look: Look) -> None:
    look.open("fill", text="the cat sat on the mat")
    assert look.page.locator(".card").count() == 0 and look.page.locator("[data-refusal]").count() == 0
    assert "Click a word" in look.text("[data-view=fill]") and look.state("fill")["hide"] == ""
    look.page.locator(".word", has_text="cat").click()
    look.page.locator(".card").wait_for()
    look.set(text="he owes me a dog")
    assert look.page.locator(".card").count() == 0, "what was hidden stood in another text"
    example = next(one["set"] for one in EXAMPLES["fill"] if one["set"].get("fill", {}).get("hide"))
    look.set(text=example["text"])
    assert look.state("fill")["hide"] == example["fill"]["hide"], "an example hides what it is an example of"


@pytest.mark.parametrize("hide", ["", "4-7"])
def test_a_text_that_is_too_long_is_not_drawn(look: Look, hide: str) -> None:
    look.open("fill", text="the cat")
    look.set(text="the cat " * 60, fill={"hide": hide})
    assert look.refusal() == "too_many_tokens"
    assert look.page.locator(".sentence").is_hidden() and look.page.locator("[data-refusal]").count() == 1
    look.set(text="the cat sat")
    assert shown(look) == "the cat sat" or look.page.locator(".word").count() == 3
    assert look.page.locator("[data-refusal]").count() == 0


@pytest.mark.parametrize(("lang", "said"), [("en", "do not see the second text"), ("zh", "不看第二句")])
def test_what_a_second_text_is_to_the_guesses_is_said(look: Look, lang: str, said: str) -> None:
    look.open("fill", text="the cat sat", lang=lang)
    assert look.page.locator(".fill-pair").is_hidden()
    look.set(pair="it was too tired.")
    assert said in look.text(".fill-pair")


@pytest.mark.parametrize("own", [{"fill.k": "x"}, {"fill.k": 1.5}, {"fill.hide": 5}, {"fill.by": 7}, {"fill.k": -1}])
def test_an_address_that_somebody_wrote(look: Look, own: dict[str, Any]) -> None:
    look.open("fill", **own)
    assert look.page.locator("[data-refusal]").count() == 0
    assert look.page.locator(".sentence .word").count() > 5


def test_pictures_of_several_characters_are_one(look: Look) -> None:
    look.open("fill", text="👨\u200d👩\u200d👧 and 👍🏽", **{"fill.hide": ""})
    assert look.page.locator(".sentence .word").all_inner_texts() == ["👨\u200d👩\u200d👧", "and", "👍🏽"]


def test_a_view_begins_with_its_example_where_nobody_wrote_a_text(open_look: Callable[..., Look]) -> None:
    look = open_look()
    for language in ("en", "zh"):
        look.page.goto("about:blank")
        look.page.goto(f"{look.room.address}#view=fill&lang={language}")
        look.ready("fill")
        first = next(one for one in EXAMPLES["fill"] if one["lang"] == language)["set"]
        assert look.state("text") == first["text"] and look.state("fill")["hide"] == first["fill"]["hide"]
    look.page.locator("#field-text").fill("the cat sat")
    look.until("look.state.text === 'the cat sat'")
    look.page.keyboard.press("Escape")
    look.page.keyboard.press("1")
    look.ready("attention")
    assert look.state("text") == "the cat sat", "somebody wrote it: it goes along"
