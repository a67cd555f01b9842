"""Alignments: worked on paper, on both sides of nasty texts, with pieces of words and tokens across words."""

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.text.alignment import ALIGNMENT_METHODS, Alignment, WordAttention, WordSpan, align, word_attention, word_spans
from qkv.text.segmenter import Segmenter

BY_HAND = Segmenter(
    "by hand", {"汤姆追逐杰瑞": ["汤姆", "追逐", "杰瑞"], "你好": ["你好"], "世界": ["世界"]}.__getitem__
)


def words(text: str, segmenter: Segmenter | None = None) -> list[str]:
    return [text[slice(*span)] for span in word_spans(text, segmenter)]


@pytest.fixture
def tom() -> WordAttention:
    """Tom | chase | ##s | Jerry | [SEP] and 汤 | 姆 | 追 | 逐 | 杰 | 瑞"""
    attention = [
        [0.8, 0.1, 0.0, 0.1, 0.0],
        [0.6, 0.1, 0.1, 0.1, 0.1],
        [0.1, 0.3, 0.4, 0.1, 0.1],
        [0.0, 0.6, 0.3, 0.0, 0.1],
        [0.3, 0.1, 0.1, 0.5, 0.0],
        [0.1, 0.1, 0.0, 0.3, 0.5],
    ]
    source_tokens = [(0, 3), (4, 9), (9, 10), (11, 16), (0, 0)]
    return word_attention(attention, "Tom chases Jerry", source_tokens, "汤姆追逐杰瑞", [(n, n + 1) for n in range(6)])


def test_pieces_are_added_up_and_the_end_mark_is_kept_apart(tom: WordAttention) -> None:
    assert [tom.source[slice(*span)] for span in tom.source_words] == ["Tom", "chases", "Jerry"]
    assert np.allclose(tom.weights[2], [0.1, 0.7, 0.1]) and np.allclose(tom.rest, [0, 0.1, 0.1, 0.1, 0, 0.5])
    assert np.allclose(tom.weights.sum(1) + tom.rest, 1)


def test_characters_from_one_word_are_one_word(tom: WordAttention) -> None:
    found = align(tom)
    assert [(tom.source[slice(*link.source)], tom.target[slice(*link.target)]) for link in found] == [
        ("Tom", "汤姆"),
        ("chases", "追逐"),
        ("Jerry", "杰瑞"),
    ]
    assert [link.weight for link in found] == pytest.approx([0.7, 0.8, 0.4])
    assert [len(align(tom, least=least)) for least in (0.3, 0.5, 0.9)] == [3, 2, 0]
    assert found[1].to_dict(tom.source, tom.target) == {
        "source": {"text": "chases", "start": 4, "end": 10},
        "target": {"text": "追逐", "start": 2, "end": 4},
        "weight": 0.8,
    }


def test_with_a_segmenter_the_rows_are_words() -> None:
    spans = [(n, n + 1) for n in range(6)]
    attention = np.eye(6)
    found = word_attention(attention, "汤姆追逐杰瑞", spans, "汤姆追逐杰瑞", spans, BY_HAND)
    assert found.target_words == found.source_words == (WordSpan(0, 2), WordSpan(2, 4), WordSpan(4, 6))
    assert np.allclose(found.weights, np.eye(3)) and not found.by_character
    assert align(found) == [Alignment(WordSpan(n, n + 2), WordSpan(n, n + 2), 1.0) for n in (0, 2, 4)]


def test_words_side_by_side_in_the_same_place_stay_two_words() -> None:
    """汉字 of a segmenter's words, words with a space between, and marks are never run together."""
    spans = [(0, 1), (1, 2)]
    cut = Segmenter("characters", list)
    assert len(align(word_attention(np.ones((2, 1)), "a", [(0, 1)], "猫狗", spans, cut))) == 2
    assert len(align(word_attention(np.ones((2, 1)), "a", [(0, 1)], "猫狗", spans))) == 1
    assert len(align(word_attention(np.ones((2, 1)), "a", [(0, 1)], "猫。", spans))) == 2
    assert len(align(word_attention(np.ones((2, 1)), "a", [(0, 1)], "猫 狗", [(0, 1), (2, 3)]))) == 2


def test_mutual_links_are_the_best_both_ways() -> None:
    attention = [[0.9, 0.1], [0.6, 0.4]]
    found = word_attention(attention, "a b", [(0, 1), (2, 3)], "x y", [(0, 1), (2, 3)])
    assert align(found) == [
        Alignment(WordSpan(0, 1), WordSpan(0, 1), 0.9),
        Alignment(WordSpan(0, 1), WordSpan(2, 3), 0.6),
    ]
    assert align(found, "mutual") == [Alignment(WordSpan(0, 1), WordSpan(0, 1), 0.9)]
    with pytest.raises(InputError, match="Unknown alignment 'mutul'. Did you mean 'mutual'"):
        align(found, "mutul")


def test_mutual_links_are_among_the_others() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        weights = draw.dirichlet(np.ones(draw.integers(1, 7)), draw.integers(1, 7))
        either, both = (set(ALIGNMENT_METHODS[name](weights)) for name in ("argmax", "mutual"))
        assert both <= either and len(both) >= 1 and len(either) == len(weights)


def test_a_token_across_words_makes_one_of_them() -> None:
    found = word_attention([[0.7, 0.3]], "你好世界", [(0, 3), (3, 4)], "hello", [(0, 5)])
    assert [found.source[slice(*span)] for span in found.source_words] == ["你好世", "界"]
    cut = word_attention([[1.0]], "汤姆追逐杰瑞", [(1, 3)], "x", [(0, 1)], BY_HAND)
    assert cut.source_words == (WordSpan(0, 4), WordSpan(4, 6)) and cut.weights.tolist() == [[1.0, 0.0]]


def test_more_rows_and_columns_than_tokens() -> None:
    """A batch's longer rows and the end mark are columns; the end mark that was written is a row."""
    found = word_attention([[0.5, 0.3, 0.2, 0.0], [0.0, 0.0, 1.0, 0.0]], "a b", [(0, 1), (2, 3)], "x", [(0, 1)])
    assert found.weights.tolist() == [[0.5, 0.3]] and found.rest == pytest.approx([0.2])
    for shape in ((1, 1), (0, 2), (2,)):
        with pytest.raises(ValueError, match=r"for 1 × 2 tokens"):
            word_attention(np.zeros(shape), "a b", [(0, 1), (2, 3)], "x", [(0, 1)])


def test_nothing_to_align() -> None:
    empty = word_attention(np.zeros((0, 3)), "a b", [(0, 1), (2, 3)], "", [])
    assert align(empty) == [] and empty.weights.shape == (0, 2)
    assert align(word_attention(np.zeros((1, 0)), "", [], "x", [(0, 1)])) == []


def test_no_link_is_better_than_a_wrong_one() -> None:
    """A full stop that looked at the end of the text did not come from the last word, which got what was left."""
    spans = [(0, 1), (2, 3)]
    for to_words, linked in ((0.0, False), (0.3, False), (0.6, True)):
        found = word_attention([[0.0, to_words, 1 - to_words]], "a b", spans, ".", [(0, 1)])
        assert bool(align(found)) == linked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("it's well-known - 1,000.5 km", ["it's", "well-known", "-", "1,000.5", "km"]),
        ("ｆｕｌｌ　width", ["ｆｕｌｌ", "width"]),
        ("cafe\u0301 naïve", ["cafe\u0301", "naïve"]),
        ("👍🏽👨‍👩‍👧👍", ["👍🏽", "👨‍👩‍👧", "👍"]),
        ("🏳️‍🌈🇨🇳🇫🇷🇩x", ["🏳️‍🌈", "🇨🇳", "🇫🇷", "🇩", "x"]),
        ("🇨 🇳!‍ ?", ["🇨", "🇳", "!‍", "?"]),
        ("न‍म", ["न‍म"]),
        ("U.S.A. example.com v2.b end...", ["U.S.A", ".", "example.com", "v2", ".", "b", "end", ".", ".", "."]),
        ("第3.5节.汤姆.", ["第", "3.5", "节", ".", "汤", "姆", "."]),
        ("你好，𠮷world", ["你", "好", "，", "𠮷", "world"]),
        ("\u0301 x", ["\u0301", "x"]),
        ("ひらがな 한국어", ["ひらがな", "한국어"]),
        (" \t\n", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected
    assert "".join(expected) == "".join(text.split())


def test_chinese_words_of_a_segmenter() -> None:
    assert words("你好，世界3个", BY_HAND_OR_WHOLE) == ["你好", "，", "世界", "3", "个"]


BY_HAND_OR_WHOLE = Segmenter("by hand", lambda run: BY_HAND.cut(run) if run in ("你好", "世界") else [run])
