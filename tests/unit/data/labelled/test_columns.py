"""Which column is what: names, headers, and what stands in the columns."""

import pytest

from qkv.data.labelled.tables import choice_columns, guessed, is_header, usual_column, usual_pair
from qkv.errors import InputError


def test_names_in_order_of_rank() -> None:
    assert usual_column("text", ["title", "body", "text"], "f") == "text"
    assert usual_column("text", ["title", "body"], "f") == "body"
    assert usual_column("label", ["score", "类别"], "f") == "类别"
    assert usual_column("label", ["when"], "f") is None
    with pytest.raises(InputError, match="f: 'Text', 'content' could each be the text. Say which with --text NAME"):
        usual_column("text", ["Text", "content"], "f")


def test_pairs() -> None:
    assert usual_pair(["Premise", "Hypothesis"]) == ("Premise", "Hypothesis")
    assert usual_pair(["文本2", "文本1"]) == ("文本1", "文本2")
    assert usual_pair(["sentence1", "text_b"]) is None


def test_headers() -> None:
    assert is_header(["内容", "标签"], {}) and is_header(["", "Text"], {})
    assert not is_header(["a good film", "1"], {}) and not is_header(["text", "1"], {})
    assert not is_header(["a", "b"], {"text": "2"})


def test_choices_in_columns() -> None:
    assert choice_columns(["id", "ending1", "ending0", "label"]) == ("ending0", "ending1")
    assert choice_columns(["sentence1", "sentence2", "a"]) == ()


def rows(*columns: str, number: int = 20) -> list[list[str]]:
    return [[column.format(n=n, m=n % 3) for column in columns] for n in range(number)]


def test_guessing() -> None:
    text, other, label = "this is text {n}", "and another {n}", "{m}"
    assert guessed(rows(text, label), True) == {"text": "1", "label": "2"}
    assert guessed(rows(label, text), True) == {"text": "2", "label": "1"}
    assert guessed(rows(text, other, label), True) == {"text": "1", "pair": "2", "label": "3"}
    assert guessed(rows(text, other), False) == {"text": "1", "pair": "2"}
    assert guessed([*rows(text, label), ["one", "more", "cell"]], True) == {"text": "1", "label": "2"}


@pytest.mark.parametrize(
    "columns",
    [("text {n} is", "other {n} is", "third {n} is", "{m}"), ("{m}", "{m}"), ("text {n} is", "{n}"), ("text {n} is",)],
)
def test_no_guess_where_there_is_a_doubt(columns: tuple[str, ...]) -> None:
    assert guessed(rows(*columns), True) is None
    assert guessed(rows("this is text {n}", "{m}", number=5), True) is None
