"""Blanks and next sentences, against `Model.fill` and `Model.next_sentence`, and what cannot be filled."""

from pathlib import Path

import numpy as np
import pytest

from qkv.look.predictions import MOST_BLANKS, fill_blanks, find_blanks, score_next_sentence
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.text.tokenizer import Encoded
from tests.support.folders import make_folder
from tests.support.inside_folders import rnnlm

TEXT = "the cat sat on the mat because it was tired, 他欠我100万"


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(make_folder(tmp_path_factory.mktemp("fill") / "tiny"))


def filled(subject: Subject, **fields: object) -> Reply:
    return fill_blanks(subject, Asked(fields))


def span(word: str) -> str:
    return f"{TEXT.index(word)}-{TEXT.index(word) + len(word)}"


def refused(subject: Subject, ask: object, **fields: object) -> RefusalError:
    assert callable(ask)
    with pytest.raises(RefusalError) as caught:
        ask(subject, Asked(fields))
    return caught.value


def test_a_blank_in_the_text_is_what_the_model_fills(subject: Subject) -> None:
    text = "他欠我[MASK]万, the [MASK] was tired"
    reply = filled(subject, text=text, k=3)
    expected = subject.model.fill(text, 3)
    for found, blank in zip(reply.head["blanks"], expected, strict=True):
        assert (found["start"], found["end"]) == (blank.start, blank.end)
        assert [one["token"] for one in found["candidates"]] == [one.token for one in blank.candidates]
        assert [one["text"] for one in found["candidates"]] == [one.text for one in blank.candidates]
        assert found["truth"] is None, "nobody knows what was meant"
    chances = [[one.probability for one in blank.candidates] for blank in expected]
    np.testing.assert_allclose(reply.arrays["probabilities"], chances, atol=1e-6)
    assert Reply.from_bytes(reply.to_bytes()).head == reply.head


def test_a_hidden_word_is_filled_as_if_a_mask_stood_there(subject: Subject) -> None:
    reply = filled(subject, text=TEXT, k=4, hide=span("mat"))
    by_hand = filled(subject, text=TEXT.replace("mat", "[MASK]"), k=4)
    np.testing.assert_array_equal(reply.arrays["probabilities"], by_hand.arrays["probabilities"])
    (blank,) = reply.head["blanks"]
    assert TEXT[blank["start"] : blank["end"]] == "mat"
    assert blank["candidates"] == by_hand.head["blanks"][0]["candidates"]


def test_the_truth_has_its_chance_and_its_place_among_all_tokens(subject: Subject) -> None:
    size = subject.model.tokenizer.size
    (blank,) = filled(subject, text=TEXT, k=50, hide=span("欠")).head["blanks"]
    (every,) = subject.model.fill(TEXT.replace("欠", "[MASK]"), size)
    tokens = [one.token for one in every.candidates]
    assert blank["truth"]["token"] == "欠"
    assert blank["truth"]["rank"] == 1 + tokens.index("欠")
    assert blank["truth"]["probability"] == pytest.approx(every.candidates[tokens.index("欠")].probability, abs=1e-6)


def test_a_word_of_several_pieces_is_several_blanks(subject: Subject) -> None:
    reply = filled(subject, text="he was unhappyness", hide="7-18")
    assert [blank["truth"]["token"] for blank in reply.head["blanks"]] == ["un", "##happy", "##ness"]
    assert [blank["truth"]["text"] for blank in reply.head["blanks"]] == ["un", "happy", "ness"]
    assert len(reply.arrays["probabilities"]) == 3
    # a part of a word hides the pieces that it touches and no other
    part = filled(subject, text="he was unhappyness", hide="10-11")
    assert [blank["truth"]["token"] for blank in part.head["blanks"]] == ["##happy"]


def test_several_blanks_do_not_see_each_other(subject: Subject) -> None:
    both = filled(subject, text=TEXT, hide=f"{span('cat')}, {span('mat')}")
    assert [blank["truth"]["token"] for blank in both.head["blanks"]] == ["cat", "mat"]
    alone = filled(subject, text=TEXT, hide=span("cat"))
    assert not np.allclose(both.arrays["probabilities"][0], alone.arrays["probabilities"][0])


def test_what_the_vocabulary_lacks_has_no_truth(subject: Subject) -> None:
    (blank,) = filled(subject, text="the zebra sat", hide="4-9").head["blanks"]
    assert blank["truth"] is None and blank["candidates"]


def test_marks_around_a_text_are_no_blanks() -> None:
    encoded = Encoded([2, 7, 3], [0] * 3, [(0, 0), (0, 1), (0, 0)], ["[CLS]", "a", "[SEP]"])
    assert find_blanks(encoded, 4, [(0, 1)]) == [1]


def test_a_next_sentence_adds_up(subject: Subject) -> None:
    head = score_next_sentence(subject, Asked({"text": "the cat sat", "pair": "it was tired"})).head
    expected = subject.model.next_sentence("the cat sat", "it was tired")
    assert head["is_next"] == pytest.approx(expected.is_next, abs=1e-6)
    assert head["is_next"] + head["not_next"] == pytest.approx(1, abs=2e-6)


def test_what_cannot_be_filled(subject: Subject) -> None:
    assert refused(subject, fill_blanks, text=TEXT).code == "no_mask"
    assert refused(subject, fill_blanks, text=TEXT, hide="3-4").code == "no_mask", "only a space is hidden"
    assert refused(subject, fill_blanks, text=" ").code == "empty"
    assert refused(subject, fill_blanks, text="\u200b", hide="0-1").code == "empty"
    assert refused(subject, fill_blanks, text=TEXT, k=51, hide="0-3").code == "range"
    assert refused(subject, fill_blanks, text=TEXT, hide="0-3", mask="x").code == "field"
    for hide in ("3", "4-4", "5-4", f"0-{len(TEXT) + 1}", "a-b", "0-99999999"):
        assert refused(subject, fill_blanks, text=TEXT, hide=hide).code == "span", hide
    long = refused(subject, fill_blanks, text="the " * 70, hide="0-3")
    assert (long.code, long.about) == ("too_many_tokens", {"tokens": 72, "most": 64})
    assert refused(subject, score_next_sentence, text="a").code == "missing"
    assert refused(subject, score_next_sentence, text="the " * 40, pair="a " * 40).code == "too_many_tokens"


def test_only_so_many_blanks(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "long", max_length=100))
    text = "猫" * (MOST_BLANKS + 1)
    assert len(filled(subject, text=text, hide=f"0-{MOST_BLANKS}").head["blanks"]) == MOST_BLANKS
    error = refused(subject, fill_blanks, text=text, hide=f"0-{MOST_BLANKS + 1}")
    assert (error.code, error.about["most"]) == ("too_many_blanks", MOST_BLANKS)


def test_models_without_the_heads_are_refused(tmp_path: Path) -> None:
    plain = open_subject(make_folder(tmp_path / "plain", "BertModel"))
    error = refused(plain, fill_blanks, text="[MASK]")
    assert (error.code, error.about) == ("no_mask_head", {"model": "plain", "kind": "bert"})
    assert "BertModel" in str(error)
    masked = open_subject(make_folder(tmp_path / "masked", "BertForMaskedLM"))
    assert filled(masked, text="the [MASK]").head["blanks"]
    assert refused(masked, score_next_sentence, text="a", pair="the").code == "no_next_sentence"
    recurrent = rnnlm(tmp_path / "rnnlm", "lstm")
    assert refused(recurrent, fill_blanks, text="[MASK]").code == "no_mask_head"
    assert refused(recurrent, score_next_sentence, text="a", pair="b").code == "no_next_sentence"
