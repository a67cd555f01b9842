"""Spans from tags as conlleval reads them, and their figures; sequences and files worked by hand."""

import pytest

from qkv.metrics.intervals import wilson_interval
from qkv.metrics.spans import EntityChunk, EntityCounts, EntityScore, find_chunks

# tags → spans as start-end-label, the end being the first place after
IOB = {
    "": "",
    "O O": "",
    "B-X": "0-1-X",
    "I-X": "0-1-X",  # begins with I
    "O I-X I-X O": "1-3-X",  # I after O begins
    "B-X I-X I-X": "0-3-X",
    "I-X I-X": "0-2-X",
    "B-X B-X": "0-1-X 1-2-X",
    "I-X B-X I-X": "0-1-X 1-3-X",  # IOB1: B parts two of a kind
    "B-X I-Y": "0-1-X 1-2-Y",  # another label begins another
    "B-X I-Y I-X": "0-1-X 1-2-Y 2-3-X",
    "I-X I-X I-Y I-Y": "0-2-X 2-4-Y",
    "B-X O I-X": "0-1-X 2-3-X",
    "B-X O B-X I-X": "0-1-X 2-4-X",
    "B-X I-X B-Y I-Y I-X": "0-2-X 2-4-Y 4-5-X",
    "B-work-of-art I-work-of-art": "0-2-work-of-art",  # the first hyphen parts
    "B-地名 I-地名 O": "0-2-地名",
    "B I": "0-2-",  # no label is a label too
}
BIOES = {
    "S-X": "0-1-X",
    "B-X E-X": "0-2-X",
    "B-X I-X E-X O S-Y": "0-3-X 4-5-Y",
    "B-X E-X B-X E-X": "0-2-X 2-4-X",
    "S-X S-X": "0-1-X 1-2-X",
    "E-X": "0-1-X",  # never begun
    "O E-X O": "1-2-X",
    "I-X E-X": "0-2-X",
    "E-X E-X": "0-1-X 1-2-X",
    "E-X I-X": "0-1-X 1-2-X",
    "S-X I-X": "0-1-X 1-2-X",
    "S-X E-X": "0-1-X 1-2-X",
    "B-X O": "0-1-X",  # never ended
    "B-X S-X": "0-1-X 1-2-X",
    "B-X I-X S-X I-X": "0-2-X 2-3-X 3-4-X",
    "B-X E-Y": "0-1-X 1-2-Y",
    "B-X I-X B-X": "0-2-X 2-3-X",
}


def written(found: list[EntityChunk]) -> str:
    return " ".join(f"{start}-{end}-{label}" for start, end, label in found)


@pytest.mark.parametrize("tags", IOB)
def test_iob(tags: str) -> None:
    for scheme in ("IOB1", "IOB2", "BIOES"):  # they are written differently and read alike
        assert written(find_chunks(tags.split(), scheme)) == IOB[tags]


@pytest.mark.parametrize("tags", BIOES)
def test_bioes_and_bmes(tags: str) -> None:
    assert written(find_chunks(tags.split(), "BIOES")) == BIOES[tags]
    assert written(find_chunks(tags.replace("I-", "M-").split(), "BMES")) == BIOES[tags]


def test_tags_that_are_none() -> None:
    for tags, scheme in (("B-X E-X", "IOB2"), ("I-X", "BMES"), ("PER", "IOB1"), ("b-X", "IOB2"), ("-X", "IOB2")):
        with pytest.raises(ValueError, match=f"does not begin .*{scheme}"):
            find_chunks(tags.split(), scheme)
    with pytest.raises(ValueError, match="'IOB' is not one of IOB1, IOB2"):
        find_chunks(["O"], "IOB")


# Word, expected, answered. Counted by hand:
#   PER expected 3 (Tom Lee; Ann; Bo), answered 3 (Tom; Ann; Bo), right 2
#   LOC expected 2 (Rome; New York), answered 3 (Rome; York; Oslo), right 1
#   ORG expected 1 (Bank), answered 0
FILE = """
Tom B-PER B-PER
Lee I-PER O
saw O O
Ann B-PER I-PER
Bo B-PER B-PER
. O O

In O O
Rome I-LOC B-LOC
New B-LOC O
York I-LOC I-LOC

Bank B-ORG O
of O O
Oslo O B-LOC
"""


def counted(text: str) -> EntityCounts:
    counts = EntityCounts()
    for sentence in text.strip().split("\n\n"):
        rows = [line.split() for line in sentence.splitlines()]
        counts.add(find_chunks([row[1] for row in rows]), find_chunks([row[2] for row in rows]))
    return counts


def test_a_file_by_hand() -> None:
    counts = counted(FILE)
    assert counts.documents == 3 and counts.labels == ("LOC", "ORG", "PER")
    assert counts.micro() == EntityScore(3 / 6, 3 / 6, 0.5, right=3, answered=6, expected=6)
    each = counts.per_label()
    assert each["PER"] == EntityScore(2 / 3, 2 / 3, 2 / 3, 2, 3, 3)
    assert each["LOC"] == EntityScore(1 / 3, 1 / 2, 2 / 5, 1, 3, 2)
    assert each["ORG"] == EntityScore(0, 0, 0, 0, 0, 1)
    assert counts.macro_f1() == pytest.approx((2 / 3 + 2 / 5 + 0) / 3)
    assert counts.values() == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "macro_f1": counts.macro_f1()}


def test_an_end_or_a_label_that_is_wrong_is_wrong_twice() -> None:
    counts = EntityCounts()
    counts.add([(0, 5, "PER")], [(0, 4, "PER")])
    counts.add([(0, 5, "PER")], [(0, 5, "LOC")])
    assert counts.micro() == EntityScore(0, 0, 0, 0, 2, 2)


def test_spans_of_any_kind_that_may_overlap() -> None:
    counts = EntityCounts()
    counts.add([EntityChunk(0, 5, "PER"), EntityChunk(0, 9, "ORG")], [(0, 9, "ORG"), (0, 9, "ORG")])
    assert counts.micro()[3:] == (1, 1, 2)


def test_nothing() -> None:
    counts = EntityCounts()
    assert counts.micro() == EntityScore(0, 0, 0, 0, 0, 0) and counts.macro_f1() == 0 and counts.labels == ()
    counts.add([], [])
    assert counts.documents == 1 and set(counts.values().values()) == {0.0}
    assert set(counts.intervals(draws=10).values()) == {(0.0, 0.0)}


def test_intervals() -> None:
    counts = EntityCounts()
    for document in range(300):
        expected = [(0, 2, "PER"), (3, 4, "LOC")]
        counts.add(expected, expected if document % 5 else [(0, 2, "PER"), (3, 5, "LOC")])
    values, found = counts.values(), counts.intervals()
    assert values["f1"] == pytest.approx(0.9)
    # of one document in five half is wrong: the standard error is √(0.2 · 0.8 / 300) / 2 = 0.0115
    assert found["f1"] == pytest.approx((0.9 - 1.96 * 0.0115, 0.9 + 1.96 * 0.0115), abs=0.004)
    for name, (low, high) in found.items():
        assert low < values[name] < high


def test_all_found_is_not_certainty() -> None:
    counts = EntityCounts()
    for _ in range(5):
        counts.add([(0, 2, "PER"), (3, 4, "LOC")], [(0, 2, "PER"), (3, 4, "LOC")])
    assert counts.intervals() == dict.fromkeys(counts.values(), (wilson_interval(10, 10)[0], 1.0))


def test_none_found_is_not_certainty() -> None:
    counts = EntityCounts()
    for _ in range(5):
        counts.add([(0, 2, "PER"), (3, 4, "LOC")], [(0, 1, "PER")])
    found = counts.intervals(draws=10)
    assert found["f1"] == found["recall"] == found["macro_f1"] == wilson_interval(0, 10)
    assert found["precision"] == wilson_interval(0, 5)
