"""All heads of an attention map on one page: a file that opens from disk with the network off.

Every layer × head is a small map; one of them is enlarged as lines between words and as a heat map, and follows the
token under the pointer, the arrow keys and the reader's light or dark setting. The weights are inside, one byte each
(base64), and are drawn on canvas. The template beside this file holds the page itself; what the user wrote enters it
only as JSON and is shown only as text.
"""

import json
from importlib import resources

from qkv.report.attention_map import AttentionMap
from qkv.report.attention_picture import FAINTEST, caption_texts, choose

CAUTION = {
    "en": "Arrow keys move between heads. Attention shows where a head looks, not why a model answers as it does "
    "(Jain & Wallace 2019).",
    "zh": "方向键在各个头之间移动。注意力显示一个头看向哪里，并不解释模型为何如此作答（Jain & Wallace 2019）。",
}
GRID = {"en": "layer ↓ head →", "zh": "层 ↓ 头 →"}


def html(
    attention: AttentionMap,
    layer: int | None = None,
    head: int | None = None,
    token: str | int | None = None,
    lang: str = "en",
) -> str:
    """The page, with this layer, head and token in view first (by default the first head, and its clearest word)."""
    layer = attention.layers[0] if layer is None else layer
    head = attention.heads[0] if head is None else head
    chosen = choose(attention, attention.weights(layer, head), token)
    caption_texts(lang)  # an unknown language is an error here too
    data = {
        "map": attention.to_dict(),
        "layer": attention.layers.index(layer),
        "head": attention.heads.index(head),
        "token": chosen[0],
        "lang": lang,
        "faintest": FAINTEST,
        "texts": {code: _words(code) for code in CAUTION},
    }
    # "</script>" and "<!--" inside the text would end or change the script element that carries it
    inside = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    template = resources.files("qkv.report").joinpath("attention_page.html").read_text(encoding="utf-8")
    return template.replace("__DATA__", inside)


def _words(lang: str) -> dict[str, object]:
    words = caption_texts(lang)
    note = str(words["note"]).format(faintest=FAINTEST)
    return {**words, "note": note, "caution": CAUTION[lang], "grid": GRID[lang]}
