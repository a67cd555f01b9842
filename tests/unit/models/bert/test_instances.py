"""Training instances as text and as a page: readable without colour, aligned, and nothing left out."""

import re

import pytest
from rich.cells import cell_len

from qkv.errors import InputError
from qkv.models.bert.page import (
    IS_NEXT,
    KEPT,
    MASK,
    NOT_NEXT,
    RANDOM,
    DrawnLine,
    DrawnToken,
    Instance,
    draw_legend,
    draw_lines,
    group_words,
    instances_page,
)
from tests.unit.report.test_run_page import checked


def drawn(a: str, b: str = "", label: str | None = NOT_NEXT) -> Instance:
    """From a shorthand: words parted by spaces, pieces by |, a chosen piece as mask:x, r~x or =x."""
    tokens: list[DrawnToken] = []

    def add(text: str, segment: int, begins: bool = True, special: bool = False) -> None:
        treatment, token, original = None, text, text
        if text.startswith("mask:"):
            treatment, token, original = MASK, "[MASK]", text[5:]
        elif "~" in text:
            treatment, (token, original) = RANDOM, text.split("~")
        elif text.startswith("="):
            treatment, token, original = KEPT, text[1:], text[1:]
        tokens.append(DrawnToken(token, original, segment, len(tokens), begins, special, treatment))

    add("[CLS]", 0, special=True)
    for segment, text in enumerate((a, b) if b else (a,)):
        for word in text.split():
            for place, piece in enumerate(word.split("|")):
                add(piece, segment, begins=not place)
        add("[SEP]", segment, special=True)
    return Instance(tuple(tokens), label)


PAIR = drawn("巴|黎 是 mask:法 国 的 首|都", "the mask:play|mask:##ing =field banana~is wet")


def line_text(line: DrawnLine) -> str:
    return "".join(span.text for span in line).rstrip()


def text_of(drawn_lines: list[DrawnLine]) -> list[str]:
    return [line_text(line) for line in drawn_lines]


def test_as_a_person_would_draw_it() -> None:
    assert text_of(draw_lines(PAIR, 1, 76)) == [
        "1  NotNext: B comes from elsewhere",
        "    (17 tokens, 5 chosen: 3 [MASK], 1 random, 1 kept)",
        "A   0      1  2   3   4          5   6   7  8   9",
        "    [CLS]  巴·黎  是  [MASK]←法  国  的  首·都  [SEP]",
        "B   10   11          12            13       14           15   16",
        "    the  [MASK]←play·[MASK]←##ing  =field=  ~banana~←is  wet  [SEP]",
        "    predict  4: 法 ([MASK])  11: play ([MASK])  12: ##ing ([MASK])",
        "             13: field (kept)  14: is (random banana)",
    ]


@pytest.mark.parametrize("width", [36, 40, 61, 100, 200])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_width(width: int, lang: str) -> None:
    found = draw_lines(PAIR, 1, width, lang)
    rows = found[1:] if "(" in line_text(found[0]) else found[2:]
    assert max(cell_len(line_text(line)) for line in rows) <= width
    text = "".join(line_text(line)[4:] for line in rows)
    for token in PAIR.tokens:
        assert (f"{token.token}←{token.original}" if token.treatment == MASK else token.token) in text
    # a position stands over the column in which its token begins
    for over, under in zip(rows[0::2], rows[1::2], strict=False):
        if (
            "predict" in line_text(under)
            or "预测" in line_text(under)
            or "predict" in line_text(over)
            or "预测" in line_text(over)
        ):
            break
        above, at = line_text(over), 0
        starts = {}
        for span in under:
            starts[at] = span
            at += cell_len(span.text)
        for match in re.finditer(r"\d+", above):
            assert match.start() in starts, (above, line_text(under))


def test_a_word_longer_than_a_line_is_broken_at_its_pieces() -> None:
    long = drawn("|".join(["a" * 9] * 8), label=None)
    found = text_of(draw_lines(long, 1, 30))
    assert all(len(line) <= 30 for line in found[2:]) and "".join(found).count("a" * 9) == 8
    assert sum(line.startswith("    ·a") for line in found) >= 3, "it can be seen that the word goes on"


def test_what_cannot_be_seen_is_shown() -> None:
    odd = Instance((DrawnToken(" ", " ", 0, 0), DrawnToken("\n", "\x1b", 0, 1, treatment=RANDOM)))
    found = "\n".join(text_of(draw_lines(odd)))
    assert "␣" in found and "~␣~←�" in found and "\x1b" not in found


def test_words_are_grouped() -> None:
    assert [[token.token for token in word] for word in group_words(PAIR.tokens)][:4] == [
        ["[CLS]"],
        ["巴", "黎"],
        ["是"],
        ["[MASK]"],
    ]
    # a span that was cut inside a word goes on with a piece: it joins no special token
    cut = [DrawnToken("[CLS]", "[CLS]", 0, 0, special=True), DrawnToken("##a", "##a", 0, 1, begins_word=False)]
    assert len(group_words(cut)) == 2


def test_labels_and_languages() -> None:
    assert "IsNext" in line_text(draw_lines(drawn("a", "b", IS_NEXT))[0])
    assert "紧接着" in line_text(draw_lines(drawn("a", "b", IS_NEXT), lang="zh")[0])
    assert "一个片段" in line_text(draw_lines(drawn("a", label=None), lang="zh")[0])
    assert not any("predict" in line_text(line) for line in draw_lines(drawn("a b"))), (
        "nothing chosen, nothing to predict"
    )
    with pytest.raises(InputError, match="Unknown language"):
        draw_lines(PAIR, lang="de")


def test_the_legend_explains_every_mark() -> None:
    for lang in ("en", "zh"):
        found = text_of(draw_legend(60, lang))
        assert all(cell_len(line) <= 60 for line in found)
        assert all(mark in " ".join(found) for mark in ("[MASK]←x", "~r~←x", "=x=", "a·b", "A"))


def test_page() -> None:
    nasty = drawn("<b>|</span> mask:<script>alert(1)</script>", "x")
    page = instances_page([PAIR, nasty], "shards", ("epoch 0",), "zh")
    found = checked(page)
    assert found.shown.count("article") == 2 and found.shown.count("script") == 1
    assert "<script>alert(1)</script>" in found.texts
    assert page.count('class="piece mask"') == 5 and page.count('class="piece random"') == 2, "the legend has one each"
    assert "NotNext：B 来自别处" in page and "NotNext: B comes from elsewhere" in page
    assert not re.search(r"src=|href=|@import|url\(|https?:", page)


def test_plain_data() -> None:
    data = PAIR.to_dict()
    assert data["label"] == "NotNext" and data["n_tokens"] == len(data["tokens"])
    assert data["tokens"][4] == {
        "token": "[MASK]",
        "original": "法",
        "segment": 0,
        "position": 4,
        "begins_word": True,
        "special": False,
        "treatment": "mask",
    }
