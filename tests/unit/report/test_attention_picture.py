"""The picture: valid XML, the right numbers in it, nothing from outside, any text."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.report.attention import FAINTEST, LONGEST_SIDE, AttentionMap, Token, choose, draw_attention
from tests.unit.report.test_attention_map import make_map

NASTY = ["<b>", "&amp;", '"', "巴黎", "ｆｕｌｌ", "🙂", "e\u0301", "\x07bell", "a\u200bb", "\t", "𠮷", "]]>", "אב"]


def texts_of(picture: str) -> list[str]:
    return [
        "".join(node.itertext()) for node in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_it_is_xml_without_script_or_address() -> None:
    picture = draw_attention(make_map(NASTY, second=["B", *NASTY]), 0, 0)
    tree = ElementTree.fromstring(picture)
    assert {node.tag.split("}")[1] for node in tree.iter()} <= set("svg title style rect text tspan g path".split())
    assert "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"url\(|@import|href|NaN|inf\b", picture)
    labels = texts_of(picture)
    for word in ("<b>", "&amp;", "巴黎", "🙂", "𠮷", "]]>", "�bell", "␣"):
        assert word in labels


def test_the_chosen_token_is_said_with_its_weights() -> None:
    found = make_map(["The", "animal", "it"])
    weights = found.weights(1, 2)
    labels = texts_of(draw_attention(found, 1, 2, token="it"))
    assert labels[0].startswith("Layer 1 · Head 2")
    best = int(weights[3].argmax())
    assert labels[1].startswith(f"“it” looks at {found.right[best].label} {100 * weights[3, best]:.0f}%")
    shown = {label for label in labels if re.fullmatch(r"\d+%", label)} - {"0%", "100%"}
    assert shown == {f"{100 * weight:.0f}%" for weight in weights[3] if weight >= FAINTEST}


def test_lines_and_cells_carry_the_weights() -> None:
    found = make_map(["The", "animal", "it"])
    weights, picture = found.weights(0, 1), draw_attention(found, 0, 1, token=2)
    curves = re.findall(r'<path d="M[\d.]+ [\d.]+C[^"]+"', picture)
    assert len(curves) == (weights >= FAINTEST).sum()
    cells = re.findall(r'<path class="(?:cell|dull)" opacity="([\d.]+)" d="([^"]+)"', picture)
    assert sum(path.count("M") for _, path in cells) == (found.bytes_of(0, 1) > 0).sum()
    expected = sorted({round(float(value / 255) ** 0.7, 3) for value in np.unique(found.bytes_of(0, 1)) if value})
    assert sorted({float(opacity) for opacity, _ in cells}) == pytest.approx(expected)


def test_chinese_captions() -> None:
    labels = texts_of(draw_attention(make_map(["他", "欠", "我"]), 0, 0, token="欠", lang="zh"))
    assert labels[0].startswith("第 0 层 · 第 0 头")
    assert labels[1].startswith("“欠”关注")
    with pytest.raises(InputError, match="Unknown language 'fr'"):
        draw_attention(make_map(), 0, 0, lang="fr")


def test_every_label_stays_inside_the_picture() -> None:
    found = make_map(["wwwwwwwwwwwwwwwwwwwwwwww", "汉字汉字汉字汉字汉字汉字汉字", "it"], second=["MMMMMMMMMMMMMM"])
    picture = draw_attention(found, 0, 0)
    width, height = map(int, re.findall(r'<svg [^>]*width="(\d+)" height="(\d+)"', picture)[0])
    for x, y in re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"', picture):
        assert -100 <= float(x) < width and -100 <= float(y) < height
    assert any(label.endswith("…") for label in texts_of(picture)), "a label that does not fit is cut with a mark"


def test_long_texts_scale_and_end_somewhere() -> None:
    picture = draw_attention(make_map([f"w{n}" for n in range(LONGEST_SIDE - 2)], layers=1, heads=1), 0, 0)
    ElementTree.fromstring(picture)
    assert len(picture) < 3_000_000
    with pytest.raises(InputError, match=rf"up to {LONGEST_SIDE} tokens and this text has {LONGEST_SIDE + 1}.*html"):
        draw_attention(make_map([f"w{n}" for n in range(LONGEST_SIDE - 1)], layers=1, heads=1), 0, 0)


def test_a_layer_or_head_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no layer 2"):
        draw_attention(make_map(), 2, 0)
    with pytest.raises(InputError, match="no head -1"):
        draw_attention(make_map(), 0, -1)


def pieces() -> AttentionMap:
    """ "unhappiness It" as un ##happi ##ness it."""
    parts = [("un", 0, 2), ("##happi", 2, 7), ("##ness", 7, 11), ("it", 12, 14)]
    text = "unhappiness It"
    tokens = tuple(Token(token, text[start:end], start, end) for token, start, end in parts)
    attn = np.full((1, 1, 4, 4), 63, dtype=np.uint8)
    attn[0, 0, 2, 3] = 200
    return AttentionMap("self", attn, (0,), (0,), tokens, tokens, (text,))


def test_choosing_a_token() -> None:
    found = pieces()
    weights = found.weights(0, 0)
    assert choose(found, weights, "it") == choose(found, weights, "It") == (3,)
    assert choose(found, weights, "##ness") == (2,)
    assert choose(found, weights, "unhappiness") == (0, 1, 2), "a word in pieces is chosen whole"
    assert choose(found, weights, "happiness") == (1, 2)
    assert choose(found, weights, 1) == (1,)
    assert choose(found, weights, None) == (2,), "the token that looks hardest at another"
    with pytest.raises(InputError, match="no token 'Itt'.*Did you mean 'It'"):
        choose(found, weights, "Itt")
    with pytest.raises(InputError, match="tokens 0 … 3"):
        choose(found, weights, 4)
    with pytest.raises(InputError, match="no token ''"):
        choose(found, weights, "")
    assert "unhappiness" in texts_of(draw_attention(found, 0, 0, "unhappiness"))[1]


def test_only_special_tokens_can_be_drawn() -> None:
    tokens = (Token("[CLS]", "", 0, 0, special=True), Token("[SEP]", "", 0, 0, special=True))
    found = AttentionMap("self", np.full((1, 1, 2, 2), 127, np.uint8), (0,), (0,), tokens, tokens, ("",))
    assert ElementTree.fromstring(draw_attention(found, 0, 0)).tag.endswith("svg")
