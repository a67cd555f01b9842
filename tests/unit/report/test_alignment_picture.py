"""The picture of an alignment: valid XML, the right numbers in it, nothing from outside, any text."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.report.alignment_picture import TEXTS, draw_alignment
from qkv.report.attention import FAINTEST, LONGEST_SIDE
from qkv.text.alignment import WordAttention, WordSpan, align

NASTY = ["<b>", "&amp;", '"', "巴黎", "ｆｕｌｌ", "🙂", "e\u0301", "\x07bell", "a\u200bb", "𠮷", "]]>", "אב"]


def make(source: list[str], target: list[str], seed: int = 0, rest: bool = True) -> WordAttention:
    """Words with spaces between them, and weights that were drawn."""

    def spans(words: list[str]) -> tuple[WordSpan, ...]:
        ends = np.cumsum([len(word) + 1 for word in words]).tolist()
        return tuple(WordSpan(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))

    weights = np.random.default_rng(seed).dirichlet(np.full(len(source) + 1, 0.4), len(target))
    if not rest:
        weights[:, -1] = 0
    return WordAttention(
        " ".join(source), " ".join(target), spans(source), spans(target), weights[:, :-1], weights[:, -1]
    )


def texts_of(picture: str) -> list[str]:
    tree = ElementTree.fromstring(picture)
    return ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("lang", list(TEXTS))
def test_it_is_xml_without_script_or_address(lang: str) -> None:
    picture = draw_alignment(make(NASTY, NASTY[::-1]), lang=lang)
    tree = ElementTree.fromstring(picture)
    assert {node.tag.split("}")[1] for node in tree.iter()} <= set("svg title style rect text tspan g path".split())
    assert "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"url\(|@import|href|NaN|nan|inf\b", picture)
    labels = texts_of(picture)
    for word in ("<b>", "&amp;", "巴黎", "🙂", "𠮷", "]]>", "�bell"):
        assert labels.count(word) == 4  # the two sentences, a row, a column


def test_links_are_said_outlined_and_drawn_on_top() -> None:
    found = make("Tom chases Jerry".split(), ["汤姆", "追逐", "杰瑞"], rest=False)
    links = align(found)
    picture = draw_alignment(found)
    said = texts_of(picture)[1]
    for link in links:
        source, target = found.source[slice(*link.source)], found.target[slice(*link.target)]
        assert f"{target} ← {source} {link.weight:.0%}" in said
    assert picture.count('<rect class="hot"') == len(links) == 3
    hot = picture.partition('<g fill="none" class="hot">')[2].partition("</g>")[0]
    assert hot.count("<path") == 3


def test_cells_carry_the_weights_and_the_rest_has_a_column() -> None:
    found = make(list("abcd"), list("xyz"))
    picture = draw_alignment(found)
    numbers = sorted(label for label in texts_of(picture) if re.fullmatch(r"\d+", label))
    shown = [*found.weights.ravel().tolist(), *found.rest.tolist()]
    assert numbers == sorted(f"{100 * weight:.0f}" for weight in shown if weight >= 0.1)
    assert len(re.findall(r'<path d="M[\d.]+ [\d.]+C', picture)) == (found.weights >= FAINTEST).sum()
    assert "end of text" in texts_of(picture) and 'class="dull"' in picture
    without = draw_alignment(make(list("abcd"), list("xyz"), rest=False))
    assert "end of text" not in texts_of(without) and 'class="dull"' not in without


def test_a_link_may_cover_several_rows() -> None:
    """汤 and 姆 are two rows, and one link."""
    found = WordAttention(
        "Tom",
        "汤姆",
        (WordSpan(0, 3),),
        (WordSpan(0, 1), WordSpan(1, 2)),
        np.array([[0.9], [0.7]]),
        np.array([0.1, 0.3]),
    )
    picture = draw_alignment(found)
    assert "汤姆 ← Tom 80%" in texts_of(picture)[1]
    [(width, height)] = re.findall(r'<rect class="hot"[^>]* width="([\d.]+)" height="([\d.]+)"', picture)
    assert float(height) == 2 * float(width)


def test_headings_lie_inside() -> None:
    for lang in TEXTS:
        tree = ElementTree.fromstring(draw_alignment(make(["a"], ["b"]), lang=lang))
        [at] = [float(node.get("x", "0")) for node in tree.iter() if node.text == TEXTS[lang]["left"]]
        assert at > 32 + 11.5 * 0.3 * len(TEXTS[lang]["left"])


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(InputError, match="Unknown language 'fr'"):
        draw_alignment(make(["a"], ["b"]), lang="fr")
    with pytest.raises(InputError, match="nothing to align"):
        draw_alignment(WordAttention("a", "", (WordSpan(0, 1),), (), np.zeros((0, 1)), np.zeros(0)))
    words = [f"w{n}" for n in range(LONGEST_SIDE + 1)]
    with pytest.raises(InputError, match=f"holds up to {LONGEST_SIDE} words and there are {LONGEST_SIDE + 1}"):
        draw_alignment(make(words, ["x"]))
    assert draw_alignment(make(words[:-1], words[:-1])).startswith("<svg")
