"""Views with texts of their own: how one leaves their fields, takes a sentence along, and what they say of a bag."""

import pytest

from tests.browser.looking import CATS, OWN, Look


def test_escape_leaves_the_editor_of_sentences(look: Look) -> None:
    look.open("meanings").set(**OWN)
    look.page.locator("[data-view=meanings] .stack button", has_text="Edit").click()
    area = look.page.locator("[data-view=meanings] textarea")
    area.fill("\n".join(CATS[:2]))
    look.page.keyboard.press("Escape")
    assert area.count() == 0
    look.until("look.state.meanings.sentences.length === 2")  # and what was written is taken
    look.page.keyboard.press("5")
    assert look.ready("positions").state("view") == "positions"


@pytest.mark.parametrize(("view", "model"), [("meanings", "bert"), ("positions", "bert"), ("vectors", "word2vec")])
def test_escape_leaves_a_field(look: Look, view: str, model: str) -> None:
    look.open(view, model).set(**OWN)
    look.page.locator(f"[data-view={view}] input.field").first.focus()
    look.page.keyboard.press("Escape")
    assert look.page.evaluate("document.activeElement === document.body")


def test_the_sentence_of_other_views_is_offered(look: Look) -> None:
    look.open("meanings", text="a cat is on the street").set(**OWN)
    add = look.page.locator("[data-view=meanings] .add")
    assert "a cat is on the street" in add.inner_text()
    add.click()
    look.until("look.state.meanings.sentences.length === 5")
    assert look.ready("meanings").state("meanings")["sentences"][-1] == "a cat is on the street" and add.is_hidden()


@pytest.mark.parametrize("text", ["a dog is on the street", "they concatenate it", CATS[0]])
def test_a_sentence_without_the_word_or_here_already_is_not(look: Look, text: str) -> None:
    look.open("meanings", text=text).set(**OWN)
    assert look.page.locator("[data-view=meanings] .add").is_hidden()


def test_answers_of_an_analogy_are_cosines(look: Look) -> None:
    look.open("vectors", "word2vec").set(**OWN)
    assert "cosine to woman − man + king" in look.text("[data-view=vectors] .by")
    shown = look.page.locator("[data-view=vectors] .by ~ .bars .num").all_inner_texts()
    told = [one["to_target"] for one in look.numbers()["answers"]]
    assert shown == [f"{one:.3f}" for one in told] and all(abs(one) <= 1 for one in told)


def test_one_vector_a_word_has_no_course_over_layers(look: Look) -> None:
    look.open("positions", "word2vec").set(positions={"text": "the king the man", "other": "the man the king"})
    assert "none of them moves" in look.text("[data-view=positions] .chart")
    assert look.page.locator("[data-view=positions] .chart svg").count() == 0
