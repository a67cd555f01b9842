"""Words and tags by the line: schemes, scripts, documents, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.column_files import join_words
from qkv.data.labelled.examples import Span, TagExample
from qkv.data.labelled.reader import Labelled, labelled
from qkv.errors import InputError


def opened(path: Path, text: str, **how: Any) -> Labelled:
    path.write_text(text, encoding="utf-8")
    return labelled(path, "tag", **how)


def examples(path: Path, text: str, **how: Any) -> list[TagExample]:
    return [one for one in opened(path, text, **how) if isinstance(one, TagExample)]


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
call NN I-NP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Tom NNP I-NP B-PER

-DOCSTART- -X- O O

BRUSSELS NNP I-NP I-LOC
"""


def test_conll(tmp_path: Path) -> None:
    source = opened(tmp_path / "eng.train", CONLL)
    assert source.describe() == "conll IOB1, text = column 1, label = column 4"
    first, second, third = source
    assert isinstance(first, TagExample) and isinstance(second, TagExample)
    assert first.text == "EU rejects German call" and first.units == ((0, 2), (3, 10), (11, 17), (18, 22))
    assert first.spans == (Span(0, 2, "ORG"), Span(11, 17, "MISC"))
    assert second.spans == (Span(0, 15, "PER"), Span(16, 19, "PER"))
    assert [(one.place.line, one.group) for one in (first, second, third)] == [
        (3, "document 1"),
        (8, "document 1"),
        (14, "document 2"),
    ]


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [("B I O B", "IOB2"), ("B E O S", "BIOES"), ("B M O S", "BMES"), ("I I O I", "IOB1"), ("B L O U", "BILOU")],
)
@pytest.mark.parametrize("between", ["\t", " "])
def test_schemes_and_separators(tmp_path: Path, tags: str, scheme: str, between: str) -> None:
    rows = [
        word + between + (tag if tag == "O" else f"{tag}-地名")
        for word, tag in zip("北京和沪", tags.split(), strict=True)
    ]
    source = opened(tmp_path / "a.txt", "\r\n".join(rows) + "\r\n\r\n")
    (one,) = source
    assert isinstance(one, TagExample)
    assert one.text == "北京和沪" and one.spans == (Span(0, 2, "地名"), Span(3, 4, "地名"))
    assert source.describe().startswith(f"conll {scheme}")


def test_words_become_text_again() -> None:
    assert join_words(list("iPhone很好"), "")[0] == "iPhone很好"
    assert join_words(["我们", "用", "Python", "3", "写", "New", "York", "."])[0] == "我们用Python 3写New York."
    assert join_words(["The", "cat", "."])[0] == "The cat ."
    assert join_words([]) == ("", ())


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), max_size=8), st.sampled_from([None, "", " "]))
def test_units_are_the_words(words: list[str], between: str | None) -> None:
    text, units = join_words(words, between)
    assert [text[start:end] for start, end in units] == words


def test_blanks_that_are_words_and_lines_that_are_comments(tmp_path: Path) -> None:
    (one,) = examples(tmp_path / "a.bio", "# id 7\n北\tB-LOC\n \tO\n京\tI-LOC\n")
    assert one.text == "北 京" and one.spans == (Span(0, 1, "LOC"), Span(2, 3, "LOC")) and one.place.line == 2
    (one,) = examples(tmp_path / "b.bio", "北 B\n  O\n京 B\n# O\n")
    assert one.text == "北 京#" and one.spans == (Span(0, 1, "entity"), Span(2, 3, "entity"))


def test_without_labels(tmp_path: Path) -> None:
    (one,) = examples(tmp_path / "a.bio", "北\n京\n", needs_labels=False)
    assert one.text == "北京" and one.spans is None and one.units == ((0, 1), (1, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\nb\n", r"line 2 has 1 columns.*the tag in column 2"),
        ("a\tO\nb\tO\nc\tNN\n", r"line 3: 'NN' is not a tag.*B-PER"),
        ("a\nb\n", "line 1: 'a' has no tag"),
    ],
)
def test_bad_lines(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        examples(tmp_path / "a.bio", text)


def test_given_columns(tmp_path: Path) -> None:
    text = "1\tEU\tI-ORG\tx\n2\tis\tO\tx\n"
    (one,) = examples(tmp_path / "a.bio", text, columns={"text": "2", "label": "3"})
    assert one.text == "EU is" and one.spans == (Span(0, 2, "ORG"),)
    with pytest.raises(InputError, match="must be a number from 1 to 4, not 'word'"):
        opened(tmp_path / "a.bio", text, columns={"text": "word"})


def test_words_after_many_characters_are_parted(tmp_path: Path) -> None:
    characters = "我 O\na O\nb O\n\n" * 250
    found = examples(
        tmp_path / "a.bio", characters + "New B-LOC\nYork I-LOC\nis O\nit O\n\n我 O\n用 O\niPhone B-X\n12 O\n"
    )
    assert {one.text for one in found[:250]} == {"我ab"}
    assert found[250].text == "New York is it" and found[250].spans == (Span(0, 8, "LOC"),)
    assert found[251].text == "我用iPhone 12"


WEIBO = """科0\tO
技1\tO
全0\tO
方1\tO
位2\tO

邓0\tB-PER.NOM
先0\tI-PER.NOM
生1\tI-PER.NOM
在0\tO
北0\tB-GPE.NAM
京1\tI-GPE.NAM
"""


def test_characters_with_their_index(tmp_path: Path) -> None:
    path = tmp_path / "weibo.conll"
    path.write_text(WEIBO, encoding="utf-8")
    source = labelled(path, "tag")
    first, second = source
    assert (first.text, second.text) == ("科技全方位", "邓先生在北京")
    assert [second.text[start:end] for start, end, _ in second.spanned()] == ["邓先生", "北京"]
    assert "as in 科0: the digits are dropped" in source.describe()
    path.write_text(WEIBO.replace("位2", "位7"), encoding="utf-8")  # not an index
    assert next(iter(labelled(path, "tag"))).text.startswith("科0")


def test_sentences_of_invisible_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("\u200b O\n\u200b B-X\n\nthe O\ncat B-X\n", encoding="utf-8")
    source = labelled(path, "tag")
    assert [one.text for one in source] == ["the cat"]
    assert [(fault.place.line, fault.kind, fault.action) for fault in source.faults] == [(1, "empty text", "dropped")]
