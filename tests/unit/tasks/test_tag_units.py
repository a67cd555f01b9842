"""Units of any text: disjoint, in order, each with a token of its own; and spans that come back as they went."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.examples import Span, TagExample
from qkv.tasks.tag_units import GivenUnits, Units, cut_units, fit_spans, tokenize_texts
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import TOKENS, make_tokenizer

CHARACTERS = [*TOKENS[:5], " ", "\n", *"the catLIVESé\u030112北京，.한👩\u200d"]
KINDS = ("wordpiece", "character", "word")


def tokenizer_of(kind: str) -> Tokenizer:
    if kind == "wordpiece":
        return make_tokenizer()
    if kind == "character":
        return Tokenizer.from_vocabulary(list(dict.fromkeys(CHARACTERS)), kind="character", lowercase=False)
    return Tokenizer.from_vocabulary(TOKENS, kind="word", lowercase=False)


def units(text: str, given: GivenUnits = None, by: str = "word", kind: str = "wordpiece") -> list[tuple[int, int]]:
    return of([text], [given], by, kind).spans()[0]


def of(texts: list[str], given: list[GivenUnits], by: str = "word", kind: str = "wordpiece") -> Units:
    return cut_units(tokenize_texts(tokenizer_of(kind), texts), texts, given, by)


def test_words_and_pieces() -> None:
    text = "Unhappyness didn't cross 北京!"
    tokens = [text[a:b] for a, b in units(text)]
    assert tokens == ["Unhappyness", "didn", "'", "t", "cross", "北", "京", "!"]
    assert [text[a:b] for a, b in units(text, by="piece")][:4] == ["Un", "happy", "ness", "didn"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cafe\u0301 a", ["cafe\u0301", "a"]),  # a combining accent, which an uncased model drops
        ("x\u0301\u0327\u0300", ["x\u0301\u0327\u0300"]),
        ("1\ufe0f\u20e3 a", ["1\ufe0f\u20e3", "a"]),  # keycap
        ("👩\u200d👩\u200d👧\u200d a", ["👩\u200d👩\u200d👧\u200d", "a"]),
        ("北\u200b京", ["北", "京"]),  # a zero-width space belongs to nobody
        ("\u0301a", ["a"]),
        ("한국 a", ["한국", "a"]),
        ("ＡＢ１２ the", ["ＡＢ１２", "the"]),
        ("שלום, the", ["שלום", ",", "the"]),
        ("  the \t\x00 cat ", ["the", "cat"]),
        ("", []),
        (" \n\u200b", []),
        ("[MASK] [SEP]", ["[MASK]", "[SEP]"]),
        ("龘䶮 a", ["龘", "䶮", "a"]),  # [UNK] twice
    ],
)
def test_characters_that_come_to_nothing(text: str, wanted: list[str]) -> None:
    assert [text[a:b] for a, b in units(text)] == wanted


def test_units_of_a_column_file_that_share_a_token_are_one() -> None:
    """A P E C on four lines, and one token for them all."""
    text = "在paris是"
    lines = [(place, place + 1) for place in range(len(text))]
    assert units(text, lines) == [(0, 1), (1, 6), (6, 7)]
    assert units(text, lines, kind="character") == lines


def test_units_of_a_column_file_stay_whole() -> None:
    text = "didn't U.S. 9.5"
    lines = [(0, 6), (7, 11), (12, 15)]
    assert units(text, lines) == lines
    assert units(text, lines, by="piece") == lines


def test_a_unit_without_a_token_is_left_out() -> None:
    assert units("the \x01 cat", [(0, 3), (4, 5), (6, 9)]) == [(0, 3), (6, 9)]


def test_texts_do_not_touch_each_other() -> None:
    texts = ["the", "", "\u0301cat", "##s", "cat\u0301"]
    assert of(texts, [None, None, None, None, [(0, 3)]]).spans() == [
        [(0, 3)],
        [],
        [(1, 4)],
        [(0, 1), (1, 2), (2, 3)],
        [(0, 4)],
    ]


def test_spans_inside_words_are_widened_and_the_earlier_has_the_unit() -> None:
    text = "unhappyness cat"
    example = TagExample(text, (Span(0, 2, "a"), Span(3, 6, "b"), Span(11, 15, "c")))
    words = of([text], [None])
    spans = fit_spans(words, [example])
    assert spans.first.tolist() == [0, 1, 1] and spans.last.tolist() == [0, 0, 1]
    assert not spans.exact.any()
    pieces = fit_spans(of([text], [None], by="piece"), [example])
    assert pieces.exact.tolist() == [True, False, False]
    assert pieces.first.tolist() == [0, 1, 3] and pieces.last.tolist() == [0, 1, 3]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=3), st.sampled_from(KINDS), st.sampled_from(["word", "piece"]))
def test_any_text(texts: list[str], kind: str, by: str) -> None:
    tokenizer = tokenizer_of(kind)
    tokens = tokenize_texts(tokenizer, texts)
    found = cut_units(tokens, texts, [None] * len(texts), by)
    assert (found.starts < found.ends).all()
    assert (found.ends[:-1] <= found.starts[1:]).all()
    assert len(found.first) == len(set(found.first.tolist())) and sorted(found.first) == found.first.tolist()
    assert (found.first <= found.last).all() and (found.last[:-1] < found.first[1:]).all()
    for text, ids, spans in zip(texts, tokens.ids, found.spans(), strict=True):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert bool(spans) == bool(ids)
    # every token that stands for a character lies in exactly one unit
    for start, end in zip(tokens.starts, tokens.ends, strict=True):
        if start < end:
            assert sum((found.starts <= start) & (end <= found.ends)) == 1


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1), st.data())
def test_any_cut_of_a_text_into_units(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    lines = list(itertools.pairwise(cuts))
    found = units(text, lines)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(found))
    # a unit is one or more of the file's, but for marks that follow it
    assert {start for start, _ in found} <= set(cuts)
