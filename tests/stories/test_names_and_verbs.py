"""examples/names_and_verbs.tsv: pairs that can be read, names that are always called the same, and no test sentence."""

import re
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "examples" / "names_and_verbs.tsv"
PAIRS = [tuple(line.split("\t")) for line in FILE.read_text(encoding="utf-8").splitlines()]

NAMES = {
    "Tom": "汤姆",
    "Jerry": "杰瑞",
    "Mary": "玛丽",
    "Lucy": "露西",
    "Alice": "爱丽丝",
    "Bob": "鲍勃",
    "Peter": "彼得",
    "Anna": "安娜",
    "David": "大卫",
    "Emma": "艾玛",
    "Jack": "杰克",
    "Rose": "罗丝",
    "Kate": "凯特",
    "Mike": "迈克",
    "Lily": "莉莉",
    "Jim": "吉姆",
    "World": "世界",
    "world": "世界",
    "Hello": "你好",
}
VERBS = {
    "chases?": "追逐",
    "helps": "帮助",
    "(?:likes?)": "喜欢",
    "knows?": "认识",
    "protects": "保护",
    "misses": "想念",
    "thanks": "感谢",
    "invites": "邀请",
    "trusts": "信任",
    "praises": "表扬",
}


def test_two_sides_each_and_none_twice() -> None:
    assert len(PAIRS) == 200 and {len(pair) for pair in PAIRS} == {2}
    for side in zip(*PAIRS, strict=True):
        assert len(set(side)) == 200
        assert all(text == text.strip() and text for text in side)
    assert all(re.fullmatch(r"[A-Z][A-Za-z ]*", english) for english, _ in PAIRS)
    assert all(re.fullmatch("[\u4e00-\u9fff，]+", chinese) for _, chinese in PAIRS)


@pytest.mark.parametrize(("english", "chinese"), [*NAMES.items(), *VERBS.items()])
def test_a_word_is_always_called_the_same(english: str, chinese: str) -> None:
    used = [pair for pair in PAIRS if re.search(rf"\b{english}\b", pair[0])]
    assert len(used) >= 3
    for pair in used:
        assert chinese in pair[1], pair
    back = [pair for pair in PAIRS if chinese in pair[1] and not re.search(rf"\b{english}\b", pair[0], re.IGNORECASE)]
    assert back == []


def test_the_test_sentences_are_not_there_and_their_words_are() -> None:
    """Not in any form: no pair has Tom, the verb and Jerry together, nor hello and world."""
    for english, chinese in PAIRS:
        words = set(english.lower().split())
        assert not ({"tom", "jerry"} <= words and words & {"chase", "chases"}), english
        assert not {"hello", "world"} <= words, english
        assert not all(word in chinese for word in ("汤姆", "追逐", "杰瑞")), chinese
        assert not ("你好" in chinese and "世界" in chinese), chinese
    sources = [english for english, _ in PAIRS]
    assert sum(english.startswith("Tom chases ") for english in sources) >= 5
    assert sum(english.endswith(" chases Jerry") for english in sources) >= 5
    assert sum(english.startswith("Hello ") for english in sources) >= 10
    assert sum(english.endswith(" World") for english in sources) >= 4
