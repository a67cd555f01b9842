"""Sentence ends: worked examples in both languages, and that nothing is ever lost or counted twice."""

import lzma
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qkv.text.segmenter import split_sentences

# Each text is written with a ¶ where a sentence ends.
ENGLISH = [
    "The cat sat.¶ The dog barked!¶ Why?¶ Nobody knows.",
    "Mr. Smith met Dr. Jones, Prof. Lee and Gen. Grant in St. Louis.¶ They left.",
    "Tools (e.g. hammers, i.e. heavy ones) vs. none, cf. Table 2, etc. are sold.¶ Buy some.",
    "She lives in the U.S. Army base.¶ He left the U.S.¶ The end.",
    "At 5 p.m. Monday it rained.¶ It stopped at 9 a.m.¶ The sun came out.",
    "J. K. Rowling and George R. R. Martin write.¶ J. Doe does not.",
    "Pi is 3.14 and e is 2.718.¶ Version 2.0.1 is out.¶ See www.example.com or http://a.b/c?d=e.f for more.¶ Done.",
    "See No. 5, Fig. 2, Vol. IV, pp. 3–9 and Eq. B below.¶ No.¶ I will not.",
    "Born Jan. 31, 1900, ca. 1920 he left.¶ It was in Jan.¶ The snow fell.",
    "Wait... what?¶ Well...¶ Yes.¶ No… maybe.¶ Perhaps…¶ Never!",
    '"Stop!" he said.¶ "Why?"¶ She left.¶ (He stayed.)¶ “Good.”¶ ‘Fine.’¶ Over.',
    "What?!¶ No way!!!¶ Really?",
    "1. First comes this.¶ It is long.",
    "(a) is not (b).¶ 2.3. Methods are here.",
    "Apple Inc. and Acme Co. Ltd. merged with Foo Corp. today.¶ Fine.",
    "Yahoo! is a firm.¶ So is Jeopardy! in a way.",
    "He has a Ph.D. in maths.¶ He got the Ph.D.¶ Then he slept.",
    "Plan B.¶ The plan C. failed.",
    "It was 1990.¶ 25 people came.",
]
CHINESE = [
    "今天天气很好。¶我们去公园吧！¶好吗？¶好；¶走。",
    "他说：“你好。”¶她笑了。",
    "「走吧！」，他说。¶他走了。",
    "“真的吗？”，她问。¶没人回答……¶过了一会儿。",
    "圆周率是3.14。¶版本2.0已发布。",
    "他（生于1900年。）¶后来去了北京。",
    "什么？！¶不会吧！！！¶真的。",
    "他说：『好。』¶然后（笑）走了。】¶完",
    "我爱北京.¶他也爱!¶是吗?¶是的",
    "雅虎（Yahoo!）是公司，Yahoo!奇摩也是。",
    "甲｡¶乙",
    "等等…还没完。……¶完了……¶完",
]
MIXED = [
    "BERT是模型。¶It reads text.¶ 它很好用！¶Dr. Wang 说好。",
    "GPT-4.0发布了。¶See Fig. 3。¶谢谢 Mr. Li。",
    "标题\n¶第一段。¶第二句\n¶\n¶\n¶  A title\n¶A line. with small\n",
    "Hello。¶World！¶OK",
    "价格是$3.50/个。¶用pip install qkv==0.1.0安装。",
]


@pytest.mark.parametrize("marked", ENGLISH + CHINESE + MIXED)
def test_by_hand(marked: str) -> None:
    text = marked.replace("¶", "")
    expected = [sentence.strip() for sentence in marked.split("¶") if sentence.strip()]
    assert [text[start:end] for start, end in split_sentences(text)] == expected


def check(text: str) -> None:
    spans = split_sentences(text)
    after = 0
    for start, end in spans:
        assert text[after:start].strip() == "", "what lies between sentences is white space"
        assert start < end and text[start:end] == text[start:end].strip(), "a sentence has none around it"
        assert "\n" not in text[start:end], "a line end is always an end"
        after = end
    assert text[after:].strip() == ""


@settings(deadline=None)
@given(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(".!?…。！？；”\"') \n\r\tAa我1"))))
@example("")
@example(" \n ")
@example("\n.\n")
@example("。")
@example("a.\x1c\x85b\u2028")
def test_nothing_is_lost(text: str) -> None:
    check(text)


@pytest.mark.parametrize("folder", ["enwiki_text", "zhwiki_text"])
def test_nothing_is_lost_in_wikipedia(shared_data: Path, folder: str) -> None:
    with lzma.open(shared_data / folder / "valid-00.txt.xz", "rt", encoding="utf-8") as stream:
        text = stream.read(1_000_000)
    check(text)
    lengths = [end - start for start, end in split_sentences(text)]
    assert 25 < sum(lengths) / len(lengths) < 200


def test_a_line_has_the_same_sentences_wherever_it_stands() -> None:
    lines = [marked.replace("¶", "").split("\n")[0] for marked in ENGLISH + CHINESE + MIXED]
    alone = [[line[start:end] for start, end in split_sentences(line)] for line in lines]
    text = "\n".join(lines)
    assert [text[start:end] for start, end in split_sentences(text)] == [
        sentence for line in alone for sentence in line
    ]
