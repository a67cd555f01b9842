"""`qkv.look(model, text)` in a notebook, and what a model says it is."""

import html
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.errors import InputError
from qkv.look.page import LookPage, look
from qkv.report.attention import attention_page
from tests.golden.golden import MODELS


def test_a_page_for_a_cell(tmp_path: Path) -> None:
    page = look(MODELS / "bert", "the cat sat", view="fill")
    shown = page._repr_html_()
    assert shown.startswith('<iframe title="bert"') and shown.endswith("</iframe>")
    inside = html.unescape(shown.split('srcdoc="', 1)[1].removesuffix('"></iframe>'))
    assert inside == page.html and inside.startswith("<!doctype html>") and str(MODELS) not in inside
    assert page.save(tmp_path / "page.html").read_text("utf-8") == page.html
    assert "a page of" in repr(page)


def test_a_loaded_model_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = qkv.load(MODELS / "bert")
    monkeypatch.setattr("qkv.look.subject.open_model", lambda *_: pytest.fail("it was opened again"))
    page = qkv.look(model, "the cat")
    assert isinstance(page, LookPage) and page.title == "bert"
    assert isinstance(qkv.look(model, "the cat"), LookPage), "the package of the same name can be called, too"


def test_the_package_has_the_signature_of_the_function() -> None:
    package: Any = importlib.import_module("qkv.look")
    ours, theirs = inspect.signature(package), inspect.signature(look)
    assert [(one.name, one.default) for one in ours.parameters.values()] == [
        (one.name, one.default) for one in theirs.parameters.values()
    ]
    assert "save(file)" in (type(package).__call__.__doc__ or "")


def test_a_text_that_is_too_long_is_said() -> None:
    with pytest.warns(UserWarning, match="and bert reads 512 at most: its views refuse it"):
        look(MODELS / "bert", "the cat " * 300)


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="lang is 'de'; known: en, zh"):
        look(MODELS / "bert", lang="de")
    with pytest.raises(InputError, match="no view 'atention'. Did you mean 'attention'"):
        look(MODELS / "bert", view="atention")
    with pytest.raises(InputError, match="second text"):
        look(MODELS / "bert", pair="the cat")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "classify",
            "<qkv.Model classify: BertForSequenceClassification, 1 layers, 8 wide, 106 tokens, 5,666 parameters",
        ),
        ("word2vec", "<qkv.Model word2vec: model of type word2vec, 8 wide, 45 tokens"),
    ],
)
def test_a_model_says_what_it_is(name: str, said: str) -> None:
    assert repr(qkv.load(MODELS / name)).startswith(said) and repr(qkv.load(MODELS / name)).endswith(", on cpu>")


def test_attention_in_a_cell() -> None:
    found = qkv.load(MODELS / "bert").attention("the cat sat")
    shown = found._repr_html_()
    inside = html.unescape(shown.split('srcdoc="', 1)[1].removesuffix('"></iframe>'))
    assert shown.startswith("<iframe") and inside == attention_page(found)
