"""Answers and spans that are somewhere else than stated."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.examples import AnswerSpan, Fault, Place, Span
from qkv.data.labelled.opened import locate_answer, locate_span

HERE = Place("f", 3)
TEXT = "ab cd ab ef ab"


def answer(text: str, start: int | None) -> tuple[AnswerSpan | None, list[str]]:
    told: list[Fault] = []
    found = locate_answer(TEXT, text, start, HERE, "question 1", told.append)
    return found, [fault.action for fault in told]


def span(start: int, end: int, stated: str | None) -> tuple[Span | None, list[str]]:
    told: list[Fault] = []
    return locate_span(TEXT, start, end, "X", stated, HERE, told.append), [fault.action for fault in told]


def test_answers() -> None:
    assert answer("ab", 6) == (AnswerSpan(6, "ab"), [])
    assert answer("ab", 7) == (AnswerSpan(6, "ab"), ["mended"])  # the nearest
    assert answer("ab", 11) == (AnswerSpan(12, "ab"), ["mended"])
    assert answer("ab", -1) == (AnswerSpan(0, "ab"), ["mended"])
    assert answer("cd", None) == (AnswerSpan(3, "cd"), [])
    assert answer("ab", None) == (AnswerSpan(0, "ab"), ["noted"])
    assert answer("zz", 0) == (None, ["mended"])  # the example goes on without it


def test_spans() -> None:
    assert span(3, 5, None) == (Span(3, 5, "X"), [])
    assert span(3, 5, "cd") == span(3, 4, "cd") == (Span(3, 5, "X"), [])  # files count the end in, or do not
    assert span(4, 6, "cd") == (Span(3, 5, "X"), ["mended"])
    for start, end, stated in ((0, 0, None), (-1, 2, None), (10, 15, None), (1, 3, "ab"), (0, 2, "zz"), (0, 2, "")):
        assert span(start, end, stated) == (None, ["dropped"])


@settings(deadline=None)
@given(st.text(max_size=30), st.text(min_size=1, max_size=3), st.integers(-2, 40))
def test_an_answer_always_stands_where_it_is_put(context: str, text: str, start: int) -> None:
    told: list[Fault] = []
    found = locate_answer(context, text, start, HERE, "q", told.append)
    if found is None:
        assert text not in context and told
    else:
        assert context[found.start : found.start + len(found.text)] == text
        assert bool(told) == (found.start != start)
