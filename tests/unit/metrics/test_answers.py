"""Answers as the official scorers of SQuAD and CMRC 2018 count them; values worked by hand from their rules."""

import pytest

from qkv.metrics.spans import SCORERS, cmrc_exact, cmrc_f1, cmrc_segments, squad_exact, squad_f1, squad_normalize

NORMALIZED = {
    "The  Eiffel\tTower.": "eiffel tower",
    "a an the": "",
    "Theatre another": "theatre another",  # articles are whole words
    "U.S.A.": "usa",
    "well-known": "wellknown",  # punctuation goes before articles do: no space is left
    "$1,000": "1000",
    "«the» “A”": "« » “ ”",  # only ASCII punctuation goes; an article leaves a space behind
    "The-an": "thean",
    "Ⅻ É": "ⅻ é",
    "巴黎，的": "巴黎，的",
}


@pytest.mark.parametrize("text", NORMALIZED)
def test_squad_normalize(text: str) -> None:
    assert squad_normalize(text) == NORMALIZED[text]


# prediction, accepted answers, exact, F1
SQUAD = [
    ("Denver Broncos", ["Denver Broncos", "The Denver Broncos"], 1, 1),
    ("the Denver broncos!", ["Denver Broncos"], 1, 1),
    ("Broncos", ["Denver Broncos"], 0, 2 / 3),  # 1 of 1, 1 of 2
    ("Broncos of Denver", ["Denver Broncos"], 0, 4 / 5),  # order does not matter: 2 of 3, 2 of 2
    ("to be or not to be", ["to be"], 0, 2 * (2 / 6) * 1 / (2 / 6 + 1)),  # a word counts as often as both have it
    ("to to", ["to be to be"], 0, 2 * 1 * (2 / 4) / (1 + 2 / 4)),
    ("Paris", ["London", "Paris, France", "in Paris"], 0, 2 / 3),  # the best of all
    ("Paris", ["London"], 0, 0),
    ("", ["London"], 0, 0),
    ("the", ["London"], 0, 0),
    ("", [], 1, 1),  # no answer, and none given
    ("the", [], 1, 1),  # nothing is left of it
    ("London", [], 0, 0),
    ("an", ["a", "London"], 0, 0),  # an accepted answer of which nothing is left is none
    ("an", ["a"], 1, 1),  # and none at all is the empty one
]


@pytest.mark.parametrize(("prediction", "answers", "exact", "f1"), SQUAD)
def test_squad(prediction: str, answers: list[str], exact: float, f1: float) -> None:
    assert squad_exact(prediction, answers) == exact
    assert squad_f1(prediction, answers) == pytest.approx(f1)


SEGMENTS = {
    "1998年，在北京": ["1998", "年", "在", "北", "京"],
    "《哈利·波特》": ["哈", "利", "波", "特"],
    "Windows XP系统": ["windows", "xp", "系", "统"],
    "“ABC”公司": ["abc", "公", "司"],
    "T-shirt": ["tshirt"],  # left out, it joins what it parted
    "等等……": ["等", "等", "……"],  # two characters in the script's list equal no single one
    "25.5%": ["25.5", "%"],
    "3,000.5米": ["3,000.5", "米"],
    "a,b": ["a", ",", "b"],
    "(WHO)组织": ["(", "who", ")", "组", "织"],
    'the "Blue Album"': ["the", "``", "blue", "album", "''"],
    '"B. vulgaris".': ["``", "b.", "vulgaris", "''", "."],
    "Queen's College": ["queen", "'s", "college"],
    "students' don't I'll": ["students", "'", "do", "n't", "i", "'ll"],
    "'tis 'quoted' cannot": ["'t", "is", "'", "quoted", "'", "can", "not"],
    "Inc.": ["inc", "."],
    "Terry A. Gates": ["terry", "a.", "gates"],
    "wait... what?": ["wait", "...", "what", "?"],
    "1990—2000": ["1990", "—", "2000"],
    "㐀𠮷乙": ["㐀𠮷", "乙"],  # rare 汉字 outside the script's range are words
    " ": [],
    "，。": [],
}


@pytest.mark.parametrize("text", SEGMENTS)
def test_cmrc_segments(text: str) -> None:
    assert cmrc_segments(text) == SEGMENTS[text]


CMRC = [
    ("北京大学", ["北京大学"], 1, 1),
    ("《北京大学》。", ["北京大学"], 1, 1),
    ("NBA球队", ["nba球队"], 1, 1),
    ("北京 大学", ["北京大学"], 0, 1),  # a space counts for exact match, not for segments
    ("在北京大学", ["北京大学"], 0, 2 * (4 / 5) * 1 / (4 / 5 + 1)),
    ("北大京学", ["北京大学"], 0, 1 / 4),  # the longest run is one segment: 1 of 4 and 1 of 4
    (
        "北京的大学",
        ["北京大学"],
        0,
        2 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4),
    ),  # a run of two; a subsequence would be four
    ("1998年", ["1999年"], 0, 1 / 2),  # a number is one segment
    ("上海", ["北京"], 0, 0),
    ("上海市", ["北京", "上海"], 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),  # the best of all
    ("", ["北京"], 0, 0),
    ("。", ["北京"], 0, 0),
    ("", [], 1, 1),
    ("北京", [], 0, 0),
]


@pytest.mark.parametrize(("prediction", "answers", "exact", "f1"), CMRC)
def test_cmrc(prediction: str, answers: list[str], exact: float, f1: float) -> None:
    assert cmrc_exact(prediction, answers) == exact
    assert cmrc_f1(prediction, answers) == pytest.approx(f1)


def test_a_long_answer_is_no_trouble() -> None:
    """Words that occur often are not junk to the search for the longest run."""
    text = "的" * 500 + "一二三"
    assert cmrc_f1(text, [text]) == 1
    assert cmrc_f1("的" * 500, [text]) == pytest.approx(2 * 500 / (500 + 503))


def test_by_name() -> None:
    assert SCORERS["squad"] == (squad_exact, squad_f1) and SCORERS["cmrc"] == (cmrc_exact, cmrc_f1)
