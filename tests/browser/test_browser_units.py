"""The page cuts a text into what can be clicked as Python does: a saved page finds its answers by it."""

import random

from qkv.look.recording import split_units
from tests.browser.looking import Look

CUT = """async texts => {
  const { unitsOf } = await import("look/views/fill_units.js");
  return texts.map(text => unitsOf(text).filter(unit => !unit.mask).map(unit => [unit.start, unit.end]));
}"""
PIECES = (
    *"ab_ 1'’.,-，。国々〇猫\n\t\u3000\u0301é𠮷한ひ[]ªⅫ²\u00a0\ufeff",
    *("😀", "👍", "🏽", "🇨", "❤", "\ufe0f", "\u200d", "👨‍👩‍👧"),
    *("[MASK]", "[MASK", "don't", "3.5", "e-mail", "汉字", "cafe\u0301"),
)


def test_both_cut_alike(look: Look) -> None:
    draw = random.Random(9)
    texts = ["".join(draw.choices(PIECES, k=draw.randrange(24))) for _ in range(400)]
    look.open("fill")
    found = look.page.evaluate(CUT, texts)
    for text, spans in zip(texts, found, strict=True):
        assert [tuple(span) for span in spans] == split_units(text), repr(text)
