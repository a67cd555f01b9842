"""The attention view: the bytes on screen are the model's, lines follow the pointer, and every kind is drawn."""

import numpy as np
import pytest

from qkv.look.attention import attention
from qkv.look.wire import Asked
from tests.browser.looking import TEXT, Look

LARGE, LINES, MAPS = (f"[data-view=attention] .at-{name} canvas" for name in ("large", "lines", "maps"))
IMAGE = "node => node.toDataURL()"


def test_the_enlarged_map_is_what_the_model_says(look: Look) -> None:
    look.open("attention")
    expected = look.room.subjects["bert"].model.attention(TEXT)
    for layer, head in ((None, None), (0, 0), (1, 3), (0, 2)):
        if layer is not None:
            look.set(layer=layer, head=head)
        found = look.numbers()
        if layer is not None:
            assert (found["layer"], found["head"]) == (layer, head)
        shown = expected.attn[found["layer"], found["head"]]
        np.testing.assert_array_equal(np.reshape(found["attn"], shown.shape), shown)
        assert [token["token"] for token in found["left"]] == [token.token for token in expected.left]
        assert look.colours(LARGE) > 30, "the map is drawn"
    assert look.colours(MAPS) > 30 and look.colours(LINES) > 10


@pytest.mark.parametrize(
    ("lang", "said"), [("en", "Not in the vocabulary: 👍🏽 · 𠮷"), ("zh", "词表里没有：👍🏽 · 𠮷")]
)
def test_words_that_the_vocabulary_lacks_are_told(look: Look, lang: str, said: str) -> None:
    look.open("attention", text="the 👍🏽 cat 𠮷", lang=lang, chosen=2)
    assert said in look.text(".at-lost") and "[UNK]" in look.text(".at-lost")
    assert look.text(".at-says").startswith("“👍🏽 ([UNK])”")
    look.page.locator("[data-panel=input]").click()
    look.ready("attention").set(text="the cat")
    assert look.page.locator(".at-lost").is_hidden()


def test_two_marks_of_one_name_and_a_word_of_pieces(look: Look) -> None:
    look.open("attention", text="the unhappyness", pair="a dog", chosen=2)
    assert [one for one in look.numbers()["columns"] if "SEP" in one] == ["[SEP]₁", "[SEP]₂"]
    assert "“unhappyness”" in look.text(".at-order select option[value=focus]")
    look.set(attention={"pieces": "pieces"})
    assert "“un”" in look.text(".at-order select option[value=focus]")


def test_two_models_stand_at_one_height(look: Look) -> None:
    look.open("attention", text="the 😀 cat", compare=look.room.index("gpt"))
    for part in (".at-lines", ".at-maps", ".at-large"):
        tops = [look.page.locator(part).nth(at).bounding_box() for at in (0, 1)]
        assert tops[0] and tops[1] and abs(tops[0]["y"] - tops[1]["y"]) < 1, part


KINDS = (
    ("gpt", "causal", ""),
    ("transformer", "encoder", ""),
    ("transformer", "decoder", ""),
    ("transformer", "cross", ""),
    ("seq2seq", "cross", ""),
    ("bert", "self", "it was too wide."),
    ("classify", "self", ""),
)


def test_every_kind_in_one_format(look: Look) -> None:
    look.open("attention")
    for model, kind, pair in KINDS:
        look.set(model=look.room.index(model), pair=pair, attention={"kind": kind}, layer=0, head=0)
        found = look.numbers()
        fields = {"text": TEXT, "kind": kind, "layer": 0} | ({"pair": pair} if pair else {})
        reply = attention(look.room.subjects[model], Asked(fields))
        assert found["kind"] == kind
        np.testing.assert_array_equal(found["attn"], reply.arrays["attn"][0].ravel(), str((model, kind)))
        assert found["left"] == reply.head["left"] and found["right"] == reply.head["right"]
        assert look.colours(LARGE) > 20 and look.colours(LINES) > 10, (model, kind)


def test_lines_follow_the_pointer(look: Look) -> None:
    look.open("attention", layer=1, head=2).set(attention={"pieces": "pieces"})
    left = [token["token"] for token in look.numbers()["left"]]
    lines = look.page.locator(LINES)
    box = lines.bounding_box()
    assert box is not None
    seen = {}
    for y in range(int(box["y"]) + 4, int(box["y"] + box["height"]), 9):
        look.page.mouse.move(box["x"] + 0.2 * box["width"], y)
        look.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        token = look.state("token")
        if token is not None and token not in seen:
            seen[token] = lines.evaluate(IMAGE), look.text(".at-says")
        if len(seen) > 1 and token == left.index("it"):
            break
    picture, said = seen[left.index("it")]
    others = [one for token, (one, _) in seen.items() if token != left.index("it")]
    assert picture not in others, "each token has lines of its own"
    weights = look.room.subjects["bert"].model.attention(TEXT, layers=1, heads=2).attn[0, 0, left.index("it")]
    assert "it" in said and f"{round(100 * int(max(weights)) / 255)}" in said.replace(".", " ")
    assert look.state("chosen") is None
    look.page.mouse.down()
    look.page.mouse.up()
    look.until(f"look.state.chosen === {left.index('it')}")
    assert "token=" not in look.page.url, "the pointer is not in the address"


def test_heads_by_keyboard(look: Look) -> None:
    look.open("attention", layer=0, head=0)
    look.page.locator(MAPS).focus()
    look.page.keyboard.press("ArrowRight")
    look.until("look.state.head === 1")
    look.page.keyboard.press("ArrowDown")
    look.until("look.state.layer === 1")
    look.ready("attention")
    shown = look.room.subjects["bert"].model.attention(TEXT, layers=1, heads=1).attn[0, 0]
    np.testing.assert_array_equal(look.numbers()["attn"], shown.ravel())
    look.page.locator(LARGE).last.focus()
    before = look.text(".at-says")
    look.page.keyboard.press("ArrowDown")
    look.until(f"document.querySelector('.at-says').innerText !== {before!r}")


def test_all_steps_and_the_input_row(look: Look) -> None:
    look.open("attention", layer=0, head=1)
    for panel in ("input", "steps"):
        look.page.locator(f"[data-panel={panel}]").click()
        look.ready("attention")
        assert look.page.locator(f"[data-panel={panel}]").get_attribute("aria-selected") == "true"
        drawn = look.page.locator("[data-view=attention] .at-below")
        drawn.locator("canvas, svg, table").first.wait_for()
        assert drawn.locator("[data-refusal]:visible").count() == 0


def test_two_models_side_by_side(look: Look) -> None:
    look.open("attention", compare=look.room.index("plain"))
    assert look.page.locator(".at-pane").count() == 2
    assert look.page.locator(LARGE).count() == 4, "two canvases each"


def test_a_line_says_that_attention_is_no_explanation(look: Look) -> None:
    for lang, word in (("en", "Jain"), ("zh", "Jain")):
        look.open("attention", lang=lang)
        assert word in look.text(".at-foot") and "Wiegreffe" in look.text(".at-foot")


def test_the_tired_animal_is_one_click_away(look: Look) -> None:
    look.open("attention", text="a cat")
    look.page.locator("details.examples summary").click()
    names = look.page.locator("details.examples .item").all_inner_texts()
    assert any("tired" in name for name in names) and any("narrow" in name for name in names)
    look.page.locator("details.examples .item", has_text="narrow").first.click()
    look.until("/narrow/.test(look.state.text)")
    look.ready("attention")
    assert len(look.numbers()["left"]) > 10
