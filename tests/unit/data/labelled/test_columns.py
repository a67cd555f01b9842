"""Which column is what: names, headers, and what stands in the columns."""

import pytest

from qkv.data.labelled.tables import find_choice_columns, find_usual_column, find_usual_pair, guess_columns, is_header
from qkv.errors import InputError


def test_names_in_order_of_rank() -> None:
    assert find_usual_column("text", ["title", "body", "text"], "f") == "text"
    assert find_usual_column("text", ["title", "body"], "f") == "body"
    assert find_usual_column("label", ["score", "类别"], "f") == "类别"
    assert find_usual_column("label", ["when"], "f") is None
    with pytest.raises(InputError, match="f: 'Text', 'content' could each be the text. Choose with --text NAME"):
        find_usual_column("text", ["Text", "content"], "f")


def test_pairs() -> None:
    assert find_usual_pair(["Premise", "Hypothesis"]) == ("Premise", "Hypothesis")
    assert find_usual_pair(["文本2", "文本1"]) == ("文本1", "文本2")
    assert find_usual_pair(["sentence1", "text_b"]) is None
    assert find_usual_pair(["text", "pair", "label"]) == ("text", "pair"), "the names of the roles themselves"


def test_headers() -> None:
    assert is_header(["内容", "标签"], {}) and is_header(["", "Text"], {})
    assert not is_header(["a good film", "1"], {}) and not is_header(["text", "1"], {})
    assert not is_header(["a", "b"], {"text": "2"})


def test_choices_in_columns() -> None:
    assert find_choice_columns(["id", "ending1", "ending0", "label"]) == ("ending0", "ending1")
    assert find_choice_columns(["sentence1", "sentence2", "a"]) == ()


def rows(*columns: str, number: int = 20) -> list[list[str]]:
    return [[column.format(n=n, m=n % 3) for column in columns] for n in range(number)]


def test_guessing() -> None:
    text, other, label = "this is text {n}", "and another {n}", "{m}"
    assert guess_columns(rows(text, label), True) == {"text": "1", "label": "2"}
    assert guess_columns(rows(label, text), True) == {"text": "2", "label": "1"}
    assert guess_columns(rows(text, other, label), True) == {"text": "1", "pair": "2", "label": "3"}
    assert guess_columns(rows(text, other), False) == {"text": "1", "pair": "2"}
    assert guess_columns([*rows(text, label), ["one", "more", "cell"]], True) == {"text": "1", "label": "2"}


@pytest.mark.parametrize(
    "columns",
    [("text {n} is", "other {n} is", "third {n} is", "{m}"), ("{m}", "{m}"), ("text {n} is", "{n}"), ("text {n} is",)],
)
def test_no_guess_where_there_is_a_doubt(columns: tuple[str, ...]) -> None:
    assert guess_columns(rows(*columns), True) is None
    assert guess_columns(rows("this is text {n}", "{m}", number=5), True) is None
