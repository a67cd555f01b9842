"""Every view, in both languages: it is drawn, and what is drawn is what the model says."""

import numpy as np
import pytest

from qkv.look.meanings import compare_meanings
from qkv.look.predictions import fill_blanks, run_task
from qkv.look.recurrence import show_states
from qkv.look.translating import show_translation
from qkv.look.vectors import show_neighbours
from qkv.look.wire import Asked
from tests.browser.looking import CATS, MODELS, OWN, TEXT, Look
from tests.support.near import assert_near


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_walk_through_the_rail(look: Look, lang: str) -> None:
    look.open("attention", lang=lang).set(**OWN)
    headings = set()
    for view, model in MODELS.items():
        look.page.locator(f"[data-to={view}]").click()
        look.ready(view).set(model=look.room.index(model))
        assert look.page.locator("[data-refusal]:visible").all_inner_texts() == [], view
        assert look.numbers()["view"] == view and len(look.numbers()) > 1
        assert look.page.locator(f"[data-to={view}]").get_attribute("aria-current") == "page"
        headings.add(look.page.title())
    assert len(headings) == len(MODELS)
    chinese = [any("一" <= character <= "鿿" for character in heading) for heading in headings]
    assert all(chinese) if lang == "zh" else not any(chinese)


def test_the_language_changes_where_one_is(look: Look) -> None:
    look.open("fill")
    look.page.get_by_role("button", name="切换到中文").click()
    look.ready("fill")
    assert look.page.locator("html").get_attribute("lang") == "zh-CN"
    assert "完形填空" in look.text("[data-to=fill]")
    look.page.keyboard.press("l")
    look.ready("fill")
    assert "Fill the blank" in look.text("[data-to=fill]")


def test_blanks_are_filled_as_the_model_fills_them(look: Look) -> None:
    look.open("fill")
    look.page.locator("[data-view=fill] .word", has_text="street").click()
    look.until("look.numbers().blanks.some(one => one.truth?.token === 'street')")
    found = look.ready("fill").numbers()
    hide = look.state("fill")["hide"]
    reply = fill_blanks(look.room.subjects["bert"], Asked({"text": TEXT, "k": 8, "hide": hide}))
    assert_near(found["blanks"], reply.head["blanks"])
    np.testing.assert_allclose(found["probabilities"]["data"], reply.arrays["probabilities"].ravel(), atol=1e-6)
    first = reply.head["blanks"][0]["candidates"][0]
    assert f"{100 * first['probability']:.1f} %" in look.text("[data-view=fill] .guess .chance")


def test_points_of_meanings_are_the_models_own(look: Look) -> None:
    look.open("meanings", "bert").set(**OWN)
    shown = {one["model"]: one for one in look.numbers()["subjects"]}
    for name in ("bert", "elmo", "word2vec"):
        index = look.room.index(name)
        reply = compare_meanings(look.room.subjects[name], Asked({"word": "cat", "sentences": CATS}))
        np.testing.assert_allclose(shown[index]["points"], reply.arrays["points"].ravel(), atol=1e-6)
        np.testing.assert_allclose(shown[index]["cosine"], reply.arrays["cosine"].ravel(), atol=1e-6)


def test_positions_are_the_sinusoids_of_the_notes(look: Look) -> None:
    look.open("positions").set(**OWN)
    found = look.numbers()
    point, (rows, width) = found["point"], found["shape"]
    assert rows == width == 128
    angle = point["row"] / 10_000 ** (2 * (point["column"] // 2) / width)
    assert found["value"] == pytest.approx(np.cos(angle) if point["column"] % 2 else np.sin(angle), abs=1e-6)
    assert found["order"]["bag"] is not None and len(found["order"]["moved"]) > 0
    assert look.colours("[data-view=positions] canvas") > 20


@pytest.mark.parametrize("model", ["transformer", "seq2seq"])
def test_a_translation_and_its_alignment(look: Look, model: str) -> None:
    look.open("translation", model)
    found = look.numbers()
    reply = show_translation(look.room.subjects[model], Asked({"text": TEXT, "beams": 4}))
    assert found["text"] == reply.head["candidates"][0]["text"]
    np.testing.assert_allclose(found["alignment"]["data"], reply.arrays["alignment0"].ravel(), atol=1e-6)
    cells = look.page.locator("[data-view=translation] svg").first
    assert cells.bounding_box() and cells.locator("*").count() > reply.arrays["alignment0"].shape[0]


def test_neighbours_of_a_word(look: Look) -> None:
    look.open("vectors", "word2vec").set(**OWN)
    found = look.numbers()
    reply = show_neighbours(look.room.subjects["word2vec"], Asked({"word": "king", "k": 10}))
    assert_near(found["neighbours"], reply.head["neighbours"][: len(found["neighbours"])])
    assert len(found["map"]["words"]) == 6


@pytest.mark.parametrize("model", ["rnnlm", "elmo", "seq2seq"])
def test_states_step_by_step(look: Look, model: str) -> None:
    look.open("recurrence", model)
    found = look.numbers()
    reply = show_states(look.room.subjects[model], Asked({"text": TEXT, "way": found["way"]}))
    np.testing.assert_allclose(found["hidden"]["data"], reply.arrays["h"].ravel(), atol=1e-6)
    width = reply.head["width"]
    for letter, value in found["values"].items():
        expected = reply.arrays[letter].reshape(-1, width)[found["step"], found["unit"]]
        assert value == pytest.approx(expected, abs=1e-6), letter
    assert look.colours("[data-view=recurrence] canvas") > 10
    look.page.locator("[data-view=recurrence] figure").focus()
    look.page.keyboard.press("ArrowLeft")
    look.until(f"look.numbers().step === {found['step'] - 1}")


QUESTION = "who sat on the mat?"
PASSAGE = "the cat sat on the mat, 他欠我100万 because it was tired."


def test_a_passage_with_start_and_end_under_every_token(look: Look) -> None:
    look.open("tasks", "answer").set(tasks={"passage": PASSAGE, "question": QUESTION})
    (found,) = look.numbers()["answers"]
    reply = run_task(look.room.subjects["answer"], Asked({"text": PASSAGE, "question": QUESTION}))
    assert_near(found["head"], reply.head)
    for name in ("start", "end", "tokens"):
        np.testing.assert_allclose(found["arrays"][name]["data"], reply.arrays[name].ravel(), atol=1e-6)
    shown = look.page.locator("[data-token]")
    spans = reply.arrays["tokens"].tolist()
    assert shown.all_inner_texts() == [PASSAGE[start:end] for start, end in spans]
    assert look.page.locator(".tasks-passage").text_content() == PASSAGE, "every character stands there once"
    for side in ("start", "end"):
        strong = (
            shown.nth(int(reply.arrays[side].argmax()))
            .locator(f"i.{side}")
            .evaluate("node => getComputedStyle(node).backgroundColor")
        )
        weak = (
            shown.nth(int(reply.arrays[side].argmin()))
            .locator(f"i.{side}")
            .evaluate("node => getComputedStyle(node).backgroundColor")
        )
        assert strong != weak
    shown.nth(2).hover()
    assert f"{100 * reply.arrays['start'][2]:.1f} %" in look.text(".tasks-readout")
    marked = "".join(look.page.locator(".tasks-passage .inside").all_inner_texts())
    assert marked == reply.head["answer"]["text"]


def test_the_rain_is_one_click_away(look: Look) -> None:
    look.open("tasks", "answer")
    chips = look.page.locator(".tasks-examples .chip")
    assert chips.count() == 3
    before = look.numbers()["answers"][0]["head"]
    chips.nth(1).click()
    look.page.wait_for_selector(".tasks-examples .chip:nth-child(2)[aria-pressed=true]")
    look.ready("tasks")
    assert "precipitation" in look.text(".tasks-passage")
    assert look.numbers()["answers"][0]["head"] != before


def test_entities_as_spans_of_the_characters(look: Look) -> None:
    text = "the cat sat on the mat, 他欠我100万 in paris 😀."
    look.open("tasks", "tag", text=text)
    (found,) = look.numbers()["answers"]
    reply = run_task(look.room.subjects["tag"], Asked({"text": text}))
    assert_near(found["head"], reply.head)
    shown = look.page.locator(".tasks-entity")
    assert shown.count() == len(reply.head["entities"]) > 3
    assert shown.locator(".what").all_inner_texts() == [one["text"] for one in reply.head["entities"]]
    assert shown.locator(".kind").all_inner_texts() == [one["label"] for one in reply.head["entities"]]


def test_classes_and_choices(look: Look) -> None:
    look.open("tasks", "classify")
    reply = run_task(look.room.subjects["classify"], Asked({"text": TEXT}))
    lines = look.page.locator(".tasks-list .tasks-line")
    assert lines.locator(".what").all_inner_texts() == [one["label"] for one in reply.head["classes"]]
    assert look.text(".tasks-said") == reply.head["classes"][0]["label"]
    choices = ["a cat", "paris", "北京"]
    asked = {"passage": PASSAGE, "question": QUESTION, "choices": choices}
    look.set(model=look.room.index("choice"), tasks=asked)
    (found,) = look.numbers()["answers"]
    reply = run_task(look.room.subjects["choice"], Asked({"text": PASSAGE, "question": QUESTION, "choices": choices}))
    assert_near(found["head"], reply.head)
    assert lines.locator(".what").all_inner_texts() == choices
