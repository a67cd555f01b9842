"""`qkv look --save`: one file that opens from disk with the network off, and asks for nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qkv.cli.main import main
from tests.browser.looking import TEXT, Look, Room

MODELS = ("bert", "transformer", "word2vec", "rnnlm", "answer")


@pytest.fixture(scope="session")
def saved(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("saved") / "page.html"
    first, *others = (str(room.subjects[name].path) for name in MODELS)
    words = [word for other in others for word in ("--compare", other)]
    assert (
        main(["look", first, *words, "--text", TEXT, "--view", "attention", "--lang", "en", "--save", str(file)]) == 0
    )
    return file


def test_a_saved_page_from_disk_with_the_network_off(open_look: Callable[..., Look], saved: Path) -> None:
    look = open_look(offline=True)
    look.page.goto(saved.as_uri())
    look.ready("attention")
    found = look.numbers()
    shown = look.room.subjects["bert"].model.attention(TEXT, layers=found["layer"], heads=found["head"]).attn[0, 0]
    np.testing.assert_array_equal(found["attn"], shown.ravel())
    assert look.colours("[data-view=attention] .at-large canvas") > 30
    for layer, head in ((0, 1), (1, 2)):
        look.set(layer=layer, head=head)
        shown = look.room.subjects["bert"].model.attention(TEXT, layers=layer, heads=head).attn[0, 0]
        np.testing.assert_array_equal(look.numbers()["attn"], shown.ravel())
        assert look.page.locator("[data-refusal]:visible").count() == 0, "its steps are there too"
    assert {address.split(":")[0] for address in look.asked} <= {"file", "data", "blob"}


def test_every_view_of_a_saved_page(open_look: Callable[..., Look], saved: Path) -> None:
    look = open_look(offline=True)
    look.page.goto(saved.as_uri())
    look.ready("attention")
    for lang in ("en", "zh"):
        for view, model in (
            ("fill", "bert"),
            ("positions", "bert"),
            ("translation", "transformer"),
            ("vectors", "word2vec"),
            ("tasks", "answer"),
            ("recurrence", "rnnlm"),
            ("attention", "transformer"),
        ):
            look.set(view=view, model=MODELS.index(model), lang=lang)
            assert "not_saved" not in [
                node.get_attribute("data-refusal") for node in look.page.locator("[data-refusal]:visible").all()
            ], view
    assert {address.split(":")[0] for address in look.asked} <= {"file", "data", "blob"}


def test_what_was_not_recorded_is_said(open_look: Callable[..., Look], saved: Path) -> None:
    look = open_look(offline=True)
    look.page.goto(saved.as_uri())
    look.ready("attention").set(text="the dog owes me money")
    assert look.refusal() == "not_saved" and "qkv look" in look.text("[data-refusal]")
    look.set(text=TEXT)
    assert len(look.numbers()["attn"]) > 100


def test_views_of_which_nothing_was_recorded_are_closed(
    look: Look, open_look: Callable[..., Look], tmp_path: Path
) -> None:
    look.open("fill", text="the cat sat", **{"fill.hide": "4-7"})
    assert look.page.locator(".place[aria-disabled]").count() == 0
    look.page.locator("details.share summary").click()
    with look.page.expect_download() as download:
        look.page.locator("[data-act='save.page']").click()
    download.value.save_as(tmp_path / "own.html")
    other = open_look(offline=True)
    other.page.goto((tmp_path / "own.html").as_uri())
    other.ready("fill")
    assert other.page.locator(".place:not([aria-disabled])").evaluate_all("all => all.map(one => one.dataset.to)") == [
        "fill"
    ]
    assert "recorded" in (other.page.locator("[data-to=tasks]").get_attribute("title") or "")


def test_the_page_saves_itself(look: Look, open_look: Callable[..., Look], tmp_path: Path) -> None:
    look.open("attention", text="the dog owes me money", layer=1, head=1)
    look.set(view="fill")
    look.page.locator("details.share summary").click()
    with look.page.expect_download() as download:
        look.page.locator("[data-act='save.page']").click()
    download.value.save_as(tmp_path / "own.html")
    other = open_look(offline=True)
    other.page.goto((tmp_path / "own.html").as_uri())
    other.ready("fill")
    assert other.numbers() == look.numbers()
    other.set(view="attention")
    look.set(view="attention")
    assert other.numbers() == look.numbers()
