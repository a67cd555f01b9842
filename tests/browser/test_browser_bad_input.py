"""What cannot be shown: the page says so in the place of the picture, in the reader's language, and goes on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.cli.main import main
from tests.browser.looking import MODELS, OWN, TEXT, Look
from tests.support.folders import make_folder

NO_CANVAS = "HTMLCanvasElement.prototype.getContext = () => null;"


def goes_on(look: Look) -> None:
    """After a refusal another view is drawn as ever."""
    look.set(view="attention", model=look.room.index("bert"), text=TEXT, pair="")
    assert look.page.locator("[data-refusal]:visible").count() == 0
    assert len(look.numbers()["attn"]) > 100


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_text(look: Look, lang: str) -> None:
    look.open("attention", lang=lang)
    models = {"attention": "bert", "fill": "bert", "translation": "transformer", "recurrence": "rnnlm", "tasks": "tag"}
    for view, model in models.items():
        look.set(view=view, model=look.room.index(model), text="  ")
        assert look.refusal() == "empty", view
        assert ("文本" in look.text("[data-refusal]:visible")) == (lang == "zh"), view
    goes_on(look)


def test_a_text_of_nothing_but_marks(look: Look) -> None:
    look.open("attention", text="\u200b\u200b")
    assert look.refusal() == "empty"
    goes_on(look)


@pytest.mark.parametrize("view", ["attention", "fill", "tasks"])
def test_a_hundred_thousand_characters(look: Look, view: str) -> None:
    look.open(view, "tag" if view == "tasks" else "bert")
    look.set(text="the cat " * 12_500)
    if view == "tasks":
        assert look.numbers()["answers"][0]["head"]["n_windows"] > 100, "a tagger reads texts of any length"
    else:
        assert look.refusal() == "too_many_tokens" and "25,002" in look.text("[data-refusal]")
    look.set(text="the cat " * 12_501)
    assert look.refusal() == "too_long" and "100,008" in look.text("[data-refusal]")
    goes_on(look)


LACKING = (
    ("attention", "word2vec", "no_attention"),
    ("attention", "elmo", "no_attention"),
    ("fill", "plain", "no_mask_head"),
    ("fill", "gpt", "no_mask_head"),
    ("translation", "bert", "no_translation"),
    ("vectors", "bert", "no_vectors"),
    ("tasks", "bert", "no_task"),
    ("recurrence", "bert", "no_recurrence"),
)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_model_that_lacks_what_a_view_shows(look: Look, lang: str) -> None:
    look.open("positions", lang=lang)
    for view, model, code in LACKING:
        index = look.room.index(model)
        look.set(view=view, model=index)
        assert look.refusal() == code, (view, model)
        assert look.room.subjects[model].title in look.text("[data-refusal]:visible")
        look.page.locator(f"[data-view={view}] button").last.click()  # what it can show, or who can
        look.until(f"look.state.view !== {view!r} || look.state.model !== {index}")
        look.ready(look.state("view"))
        assert look.page.locator(".lacking").count() == 0, (view, model)


def test_kinds_have_names(look: Look) -> None:
    for lang, name in (("en", "word vectors"), ("zh", "词向量")):
        look.open("attention", "word2vec", lang=lang)
        assert name in look.text("[data-refusal]") and "table" not in look.text("[data-refusal]")
        assert name in look.page.locator(".chooser select option:checked").first.inner_text()


def test_a_browser_without_a_canvas(open_look: Callable[..., Look]) -> None:
    look = open_look(script=NO_CANVAS)
    look.open("fill").set(**OWN)
    for view, model in MODELS.items():
        look.set(view=view, model=look.room.index(model))
        assert look.page.locator("canvas:visible").count() == 0, f"{view}: nothing can be drawn on it"
        if view in ("attention", "positions", "vectors", "recurrence"):  # the others are made of words and lines
            assert look.refusal() == "no_canvas", view
            assert look.page.locator("#stage table tr").count() > 2, f"{view}: the numbers stand in a table"


def test_the_server_has_gone(open_look: Callable[..., Look]) -> None:
    look = open_look(allowed=("ERR_INTERNET_DISCONNECTED",))
    look.open("attention")
    look.page.context.set_offline(True)
    look.set(text="the dog")
    assert look.refusal() == "server_gone"
    look.page.context.set_offline(False)
    look.page.locator("[data-refusal] button").click()
    look.until("look.numbers().left?.some(one => one.token === 'dog')")


def test_an_address_full_of_nonsense(look: Look) -> None:
    look.page.goto(look.room.address + "#view=nothing&model=99&compare=77&layer=-3&head=x&text=%E0%A4%A&lang=fr&fill=3")
    look.ready("attention")
    assert look.state("model") == 0 and len(look.numbers()["attn"]) > 100


def test_a_half_written_folder_is_refused_before_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, half = make_folder(tmp_path / "whole"), make_folder(tmp_path / "half")
    weights = half / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    assert main(["look", str(whole), "--compare", str(half), "--no-browser", "--port", "0"]) == 2
    assert str(half) in capsys.readouterr().err
    weights.unlink()
    assert main(["look", str(whole), "--compare", str(half), "--no-browser", "--port", "0"]) == 2
    assert str(half) in capsys.readouterr().err
