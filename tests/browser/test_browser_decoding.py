"""Decoding and recurrence as they stand on the page, against the numbers they are made of."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from qkv.look.api import Api
from qkv.look.recurrence import show_states
from qkv.look.translating import show_beam_steps, show_translation
from qkv.look.wire import Asked
from tests.browser.looking import Look, Room, looking
from tests.support.inside_folders import translator
from tests.support.look_server import serving

if TYPE_CHECKING:  # it need not be installed: then each test says so
    from playwright.sync_api import Browser

SHORT = "the cat sat on the mat."


def share(text: str) -> float:
    """
    >>> share("25.0 %")
    0.25
    """
    return float(text.removesuffix(" %").removeprefix("< ")) / 100


@pytest.mark.parametrize("temperature", [0.5, 1, 2])
def test_the_table_is_a_softmax_at_any_temperature(look: Look, temperature: float) -> None:
    own = {"translation.step": 1, "translation.temperature": temperature}
    look.open("translation", "transformer", text=SHORT, **own)
    found = show_beam_steps(look.room.subjects["transformer"], Asked({"text": SHORT, "beams": 4}))
    node = look.numbers()["node"]
    logits = found.arrays["logits"][node].astype(float)
    total = float(found.arrays["log_totals"][node, found.head["temperatures"].index(float(temperature))])
    rows = look.page.locator(".tr-table tbody tr:not(.rest)")
    assert rows.count() == len(logits) == 10
    for place, logit in enumerate(logits):
        cells = rows.nth(place).locator("td").all_inner_texts()
        assert float(cells[1].replace("−", "-")) == pytest.approx(logit, abs=0.0051)
        assert share(cells[-1]) == pytest.approx(math.exp(logit / temperature - total), abs=6e-4)


def test_an_alternative_shows_its_own_alignment(look: Look) -> None:
    look.open("translation", "transformer", text=SHORT)
    found = show_translation(look.room.subjects["transformer"], Asked({"text": SHORT, "beams": 4}))
    for number, candidate in enumerate(found.head["candidates"]):
        look.page.locator(f"[data-candidate='{number}'] >> nth=-1").click()
        look.until(f"look.numbers().candidate === {number}")
        shown = look.numbers()
        assert shown["text"] == candidate["text"]
        weights = found.arrays[f"alignment{number}"]
        assert shown["alignment"]["data"] == pytest.approx(weights.ravel().tolist(), abs=1e-6)
        cells = look.page.locator(".tr-alignment .figure").nth(1).locator("g[data-source][data-target]")
        places = cells.evaluate_all("all => all.map(one => one.dataset.target + ' ' + one.dataset.source)")
        assert {f"{row} {column}" for row, column in np.argwhere(weights >= 0.02).tolist()} <= set(places)


def test_an_address_that_says_nonsense_is_read_as_far_as_it_makes_sense(look: Look) -> None:
    own: dict[str, Any]
    for own in (
        {"step": 1.5},
        {"step": "x", "node": "constructor"},
        {"beams": "zz", "temperature": {}},
        {"node": 9999},
    ):
        look.open("translation", "transformer", text=SHORT, **{f"translation.{name}": one for name, one in own.items()})
        assert look.numbers()["step"] == 0 and not look.page.locator("[data-refusal]:visible").count()
    for own in ({"step": 1.5, "way": "x"}, {"unit": -3, "sort": "constructor", "rows": 7}, {"step": 9999}):
        look.open("recurrence", "rnnlm", text=SHORT, **{f"recurrence.{name}": one for name, one in own.items()})
        assert look.numbers()["way"] == 0 and not look.page.locator("[data-refusal]:visible").count()


def test_equations_come_out(look: Look) -> None:
    """The numbers that stand in an equation make the number after it, but for two decimals."""
    look.open("recurrence", "rnnlm", text=SHORT, **{"recurrence.step": 3})
    found = show_states(look.room.subjects["rnnlm"], Asked({"text": SHORT, "way": 0}))
    unit = look.numbers()["unit"]
    lines = look.page.locator(".rc-line")
    assert lines.count() >= len(found.head["blocks"])
    for line in lines.all():
        letter, value = line.get_attribute("data-letter") or "", float(line.get_attribute("data-value") or "nan")
        assert value == pytest.approx(float(found.arrays[letter][3, unit]), abs=1e-6)
        said = line.locator(".rc-numbers").inner_text().removeprefix("= ").replace("−", "-").replace("·", "*")
        assert re.fullmatch(r"[-+*. ()\d]*((σ|tanh)\([-+*. ()\d]*\))?", said), said
        names = {"σ": lambda x: 1 / (1 + math.exp(-x)), "tanh": math.tanh}
        assert eval(said, {"__builtins__": {}}, names) == pytest.approx(value, abs=0.03)


def test_the_word_under_the_pointer_goes_along(look: Look) -> None:
    """From translation to recurrence and back, by characters: the models cut the text in other ways."""
    look.open("translation", "seq2seq", text="😀 the cat sat")
    look.page.locator(".tr-alignment text", has_text="cat").first.hover()
    look.until("look.state.word === '6-9'")
    look.set(view="recurrence")
    look.until("document.querySelector('.rc-now b')?.textContent === 'cat'")
    look.page.locator(".rc-figure").press("ArrowRight")
    look.until("document.querySelector('.rc-now b')?.textContent === 'sat'")
    look.set(view="translation")
    bold = "[...document.querySelectorAll('.tr-word[font-weight=\\'650\\']')]"
    look.until(f"{bold}.some(one => one.textContent === 'cat')")


@pytest.mark.parametrize(("context", "arrows"), [("fixed", 1), ("every_step", 9)])
def test_no_attention_is_said_and_drawn(browser: "Browser", tmp_path: Path, context: str, arrows: int) -> None:
    """The one vector C, and an arrow from it: one, or one to every word."""
    subject = translator(tmp_path / "model", "seq2seq", context=context)
    with serving(Api([subject])) as server, looking(browser, Room(server, {context: subject})) as look:
        look.open("translation", context, text=SHORT)
        assert look.numbers()["alignment"] is None and "one vector C" in look.text("[data-view=translation] .caption")
        curves = look.page.locator(".tr-alignment path").evaluate_all(
            "(all, ink) => all.filter(one => one.matches(`[stroke='${ink}'][d*=C]`)).length",
            look.page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--accent').trim()"),
        )
        assert curves == arrows
