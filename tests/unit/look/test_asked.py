"""Fields of a question: read once, checked where they are read, and none left over."""

import pytest

from qkv.look.wire import TEXT_LIMIT, Asked, RefusalError


def code(read: object) -> str:
    assert callable(read)
    with pytest.raises(RefusalError) as caught:
        read()
    return caught.value.code


def test_texts() -> None:
    assert Asked({"text": " 他 "}).text() == " 他 "
    assert Asked({"pair": "a"}).text("pair") == "a"
    assert Asked({"text": "a" * TEXT_LIMIT}).text() == "a" * TEXT_LIMIT
    for fields, expected in (
        ({}, "missing"),
        ({"text": None}, "kind"),
        ({"text": 3}, "kind"),
        ({"text": "\u3000\n"}, "empty"),
        ({"text": "a" * (TEXT_LIMIT + 1)}, "too_long"),
    ):
        assert code(Asked(fields).text) == expected


def test_a_refusal_names_the_field_and_its_limit() -> None:
    with pytest.raises(RefusalError, match="'word' has 7 characters; the maximum is 5") as caught:
        Asked({"word": "letters"}).text("word", longest=5)
    assert caught.value.about == {"field": "word", "length": 7, "most": 5}


def test_a_text_that_may_be_missing() -> None:
    for fields in ({}, {"pair": None}, {"pair": " "}):
        asked = Asked(fields)
        assert asked.maybe_text("pair") is None
        asked.done()
    assert Asked({"pair": "a"}).maybe_text("pair") == "a"
    assert code(lambda: Asked({"pair": 1}).maybe_text("pair")) == "kind"


def test_lists_of_texts() -> None:
    assert Asked({"words": ["a", "b"]}).texts("words", most=2) == ["a", "b"]
    for given, expected in (
        ([], "number"),
        (["a"] * 3, "number"),
        ("a", "kind"),
        (["a", 1], "kind"),
        (["a", ""], "empty"),
        (["a", "long"], "too_long"),
    ):
        assert code(lambda given=given: Asked({"words": given}).texts("words", most=2, longest=3)) == expected


def test_numbers() -> None:
    assert Asked({"k": 5}).number("k", 1, 5) == 5
    assert Asked({}).number("k", 1, 5, default=3) == 3
    assert Asked({"k": None}).number("k", 1, 5, default=3) == 3
    for given, expected in (
        (0, "range"),
        (6, "range"),
        (True, "kind"),
        (2.0, "kind"),
        ("2", "kind"),
        (10**30, "range"),
    ):
        assert code(lambda given=given: Asked({"k": given}).number("k", 1, 5)) == expected
    assert code(lambda: Asked({}).number("k", 1, 5)) == "missing"
    assert Asked({}).maybe_number("layer", 0, 3) is None and Asked({"layer": 0}).maybe_number("layer", 0, 3) == 0


def test_choices() -> None:
    kinds = ("self", "cross")
    assert Asked({"kind": "cross"}).choice("kind", kinds) == "cross"
    assert Asked({}).choice("kind", kinds, "self") == "self"
    with pytest.raises(RefusalError, match="Did you mean 'cross'\\? Known: self, cross"):
        Asked({"kind": "corss"}).choice("kind", kinds)


def test_what_nobody_reads_is_a_mistake() -> None:
    asked = Asked({"text": "a", "lyer": 1})
    asked.text()
    asked.maybe_number("layer", 0, 3)
    with pytest.raises(RefusalError, match="'lyer'. Did you mean 'layer'"):
        asked.done()
