"""What stands on the screen, read off it: pixels of the map, words put together, arithmetic written out, tables."""

import re
from typing import Any

import numpy as np
import pytest

from qkv.look.attention import attention, show_steps
from qkv.look.wire import Asked
from tests.browser.looking import TEXT, Look

CELLS = """(node, [x, y, cell, rows, columns]) => {
  const copy = new OffscreenCanvas(node.width, node.height), pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(node, 0, 0);
  const found = [], ratio = devicePixelRatio;
  for (let i = 0; i < rows; i += 1) for (let j = 0; j < columns; j += 1) {
    const at = [x + (j + 0.15) * cell, y + (i + 0.15) * cell].map(value => Math.round(value * ratio));
    found.push([...pen.getImageData(...at, 1, 1).data].slice(0, 3));
  }
  return found;
}"""
"""The colour of every cell of a map, near its corner: in the middle a number may stand."""
COLOUR = """name => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim().slice(1);
  return [0, 2, 4].map(at => parseInt(hex.slice(at, at + 2), 16));
}"""
LONG = "the cat sat on the mat. " * 8  # more tokens than the small maps have cells, and no more than the model reads


def merged(weights: Any, words: dict[str, list[list[int]]]) -> Any:
    """What a word looks at: the mean of its pieces; how much it is looked at: their sum."""
    rows = np.stack([weights[first : last + 1].mean(0) for first, last in words["left"]])
    return np.stack([rows[:, first : last + 1].sum(1) for first, last in words["right"]], 1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_cell_of_the_map_has_the_colour_of_its_weight(look: Look, theme: str) -> None:
    look.open("attention", layer=1, head=3, theme=theme)
    found, place = look.numbers(), look.numbers()["place"]
    reply = attention(look.room.subjects["bert"], Asked({"text": TEXT, "kind": "self", "layer": 1}))
    expected = merged(reply.arrays["attn"][3] / 255, reply.head["words"])
    rows, columns = expected.shape
    assert rows == len(found["rows"]) == len(reply.head["left"]) - 2, "didn't is one word of three pieces"
    np.testing.assert_allclose(np.reshape(found["map"], expected.shape), expected, atol=1e-6)
    canvas = look.page.locator("[data-view=attention] .at-large canvas").first
    cells = canvas.evaluate(CELLS, [place["x"], place["y"], place["cell"], rows, columns])
    panel, soft, head = (np.array(look.page.evaluate(COLOUR, name)) for name in ("panel", "soft", "head-3"))
    special = np.array([one in ("[CLS]", "[SEP]") for one in found["columns"]])
    opacity = expected[..., None] ** 0.62  # faint weights are lifted
    wanted = panel + opacity * (np.where(special[:, None], soft, head) - panel)
    np.testing.assert_allclose(np.reshape(cells, (rows, columns, 3)), wanted, atol=5)


def test_a_text_longer_than_the_small_maps(look: Look) -> None:
    look.open("attention", text=LONG).set(attention={"pieces": "pieces"})
    reply = attention(look.room.subjects["bert"], Asked({"text": LONG, "kind": "self"}))
    assert reply.arrays["small"].shape[2:] == (48, 48) and len(reply.head["left"]) > 48
    for layer, head in ((0, 1), (1, 2)):
        look.set(layer=layer, head=head)
        whole = attention(look.room.subjects["bert"], Asked({"text": LONG, "kind": "self", "layer": layer}))
        np.testing.assert_array_equal(look.numbers()["attn"], whole.arrays["attn"][head].ravel())
        np.testing.assert_allclose(look.numbers()["map"], whole.arrays["attn"][head].ravel() / 255, atol=1e-6)


def test_the_arithmetic_of_a_weight(look: Look) -> None:
    look.open("attention", layer=1, head=2)
    left = [token["token"] for token in look.numbers()["left"]]
    fields = {"text": TEXT, "kind": "self", "layer": 1, "head": 2, "row": left.index("it")}
    reply = show_steps(look.room.subjects["bert"], Asked(fields))
    look.page.locator(".at-sums", has_text="softmax").wait_for()
    assert "it" in look.text(".at-steps h3")
    said = look.text(".at-sums").replace("−", "-")
    best = int(reply.arrays["weights"].argmax())
    assert said.splitlines()[0] == left[best]
    score, scaled, weight = (float(reply.arrays[name][best]) for name in ("scores", "scaled", "weights"))
    assert f"= {score:.3f}" in said and f"{score:.3f} ÷ {np.sqrt(8):.3f} = {scaled:.3f}" in said
    assert f"= {100 * weight:.2f}%" in said
    top, bottom = map(float, re.findall(r"= ([\d.]+) ÷ ([\d.]+) =", said)[-1])
    assert top == pytest.approx(np.exp(scaled), abs=1e-3)
    assert bottom == pytest.approx(np.exp(reply.arrays["scaled"].astype(np.float64)).sum(), abs=1e-2)


def test_logits_become_probabilities_in_the_table(look: Look) -> None:
    look.open("translation", "transformer")
    rows = look.page.locator("[data-view=translation] table tr").all_inner_texts()[1:]
    read = [[cell.strip() for cell in re.split(r"[\t\n]+", row) if cell.strip()] for row in rows]
    (size,) = map(int, re.findall(r"Σ of all (\d+) tokens", look.text("[data-view=translation]")))
    assert size == look.room.subjects["transformer"].translator.languages.target.size
    logits = [float(row[1].replace("−", "-")) for row in read[:10]]
    shares = [float(row[3].removesuffix(" %")) / 100 for row in read[:10]]
    assert logits == sorted(logits, reverse=True)
    ratio = np.exp(np.array(logits) - logits[0])
    np.testing.assert_allclose(np.array(shares) / shares[0], ratio, atol=0.02)
    assert [float(row[2]) for row in read[:10]] == pytest.approx(ratio.tolist(), abs=0.012)


def test_characters_outside_the_basic_plane(look: Look) -> None:
    """Python counts code points, JavaScript halves of them."""
    look.open("meanings")
    look.set(meanings={"word": "cat", "sentences": ["😀😀 the cat sat", "𠮷 a cat 😀", "cat"]})
    marked = look.page.locator("[data-view=meanings]").locator("mark, b, em").all_inner_texts()
    assert marked.count("cat") >= 3
    look.set(view="positions", positions={"text": "😀😀他欠我100万", "other": "😀😀我欠他100万"})
    order = look.numbers()["order"]["words"]
    assert [one["text"] for one in order] == ["他", "欠", "我", "100", "万"]
    shown = look.page.locator("[data-view=positions]").inner_text().splitlines()
    assert {"他", "欠", "我", "100", "万"} <= set(shown)
    look.set(view="fill", text="😀 the cat 𠮷 sat", fill={"hide": "6-9"})
    (blank,) = look.numbers()["blanks"]
    assert "😀 the cat 𠮷 sat"[blank["start"] : blank["end"]] == "cat" == blank["truth"]["text"]
    look.page.locator("[data-view=fill] .word", has_text="sat").click()
    look.until("look.numbers().blanks.length === 2")
    assert look.state("fill")["hide"] == "6-9 12-15"
