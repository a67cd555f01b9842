"""Where a word is found, and what is drawn of it: the model's own vectors, one point of a table, pieces, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.api.embedder import scale_to_unit
from qkv.look.meanings import compare_meanings, find_spans
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.metrics.numbers import principal
from tests.support.below_readers import make_elmo, make_nnlm
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import translator
from tests.support.word_vectors import make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")

SENTENCES = ["The cat sat on the mat.", "he is a CAT", "no such animal", "cat, the cat!"]
CAT = [(0, 4, 7), (1, 8, 11), (3, 0, 3), (3, 9, 12)]  # sentence, characters


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(make_folder(tmp_path_factory.mktemp("bert") / "bert"))


def ask(subject: Subject, word: str = "cat", sentences: list[str] | None = None, **fields: Any) -> Reply:
    asked = {"word": word, "sentences": SENTENCES if sentences is None else sentences} | fields
    return Reply.from_bytes(compare_meanings(subject, Asked(asked)).to_bytes())


def refused(subject: Subject, **fields: Any) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        compare_meanings(subject, Asked({"word": "cat", "sentences": SENTENCES} | fields))
    return caught.value


@pytest.mark.parametrize(
    ("word", "text", "spans"),
    [
        ("it", "It bit its tail: it.", [(0, 2), (17, 19)]),
        ("Python", "python和Python都是", [(0, 6), (7, 13)]),
        ("苹果", "苹果树上的苹果", [(0, 2), (5, 7)]),
        ("100", "他欠我100万, 1000", [(3, 6)]),
        ("a.b", "a.b axb", [(0, 3)]),
        ("C++", "C++ and c++.", [(0, 3), (8, 11)]),
        ("new york", "New York, new  york", [(0, 8)]),
        ("😀", "ok😀😀", [(2, 3), (3, 4)]),
        ("ß", "STRASSE", []),
    ],
)
def test_a_word_is_its_characters(word: str, text: str, spans: list[tuple[int, int]]) -> None:
    assert find_spans(word, text) == spans


def test_points_are_of_the_models_own_vectors(bert: Subject) -> None:
    found = ask(bert)
    places = [(one["sentence"], one["start"], one["end"]) for one in found.head["occurrences"]]
    assert places == CAT and found.head["without"] == [2] and found.head["layers"] == [0, 1, 2]
    assert not found.head["one_point"]
    for layer in range(3):
        read = bert.model.embed_tokens(SENTENCES, layer=layer)
        vectors = np.stack([read[number].vectors[read[number].offsets.index((a, b))] for number, a, b in CAT])
        expected = principal(vectors)
        points = found.arrays["points"][layer]
        np.testing.assert_allclose(np.abs(points), np.abs(expected.places), atol=1e-4)
        np.testing.assert_allclose(found.arrays["variance"][layer], expected.shares, atol=1e-4)
        unit = scale_to_unit(vectors)
        np.testing.assert_allclose(found.arrays["cosine"][layer], unit @ unit.T, atol=1e-5)


def test_one_place_is_no_proof_of_one_point(bert: Subject, tmp_path: Path) -> None:
    for sentences in (["the cat sat"], ["the cat sat", "the cat sat"]):
        found = ask(bert, sentences=sentences)
        assert not found.arrays["points"].any() and not found.head["one_point"], "another sentence would move it"
    table = open_subject(make_vectors_folder(tmp_path / "table"))
    assert not ask(table, sentences=["the cat sat"]).head["one_point"]
    assert ask(table, sentences=["the cat sat", "a cat"]).head["one_point"]


def test_characters_beyond_the_first_plane_count_once(bert: Subject) -> None:
    found = ask(bert, sentences=["😀😀 the cat", "𠮷 a cat"])
    assert [(one["start"], one["end"]) for one in found.head["occurrences"]] == [(7, 10), (4, 7)]


def test_one_layer_alone(bert: Subject) -> None:
    found, every = ask(bert, layer=1), ask(bert)
    assert found.head["layers"] == [1] and found.arrays["points"].shape == (1, 4, 2)
    np.testing.assert_allclose(np.abs(found.arrays["points"][0]), np.abs(every.arrays["points"][1]), atol=1e-5)


def test_pieces_are_averaged_and_named(bert: Subject) -> None:
    found = ask(bert, "unhappyness", ["the unhappyness was", "unhappyness is bad"])
    assert [one["pieces"] for one in found.head["occurrences"]] == [["un", "##happy", "##ness"]] * 2
    read = bert.model.embed_tokens(["the unhappyness was", "unhappyness is bad"], layer=2)
    means = np.stack([read[0].vectors[1:4].mean(0), read[1].vectors[:3].mean(0)])
    unit = scale_to_unit(means)
    np.testing.assert_allclose(found.arrays["cosine"][2], unit @ unit.T, atol=1e-5)
    chinese = ask(bert, "中国", ["中国的首都是北京", "我爱中国"])
    assert chinese.head["occurrences"][1] == {
        "sentence": 1,
        "start": 2,
        "end": 4,
        "written": "中国",
        "pieces": ["中", "国"],
    }


@pytest.mark.parametrize("make", [make_vectors_folder, make_nnlm])
def test_a_table_has_one_point(tmp_path: Path, make: Any) -> None:
    found = ask(open_subject(make(tmp_path / "model")))
    assert found.head["one_point"] and not found.arrays["points"].any()
    np.testing.assert_allclose(found.arrays["cosine"], 1, atol=1e-6)


def test_a_file_of_vectors_and_words_that_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("2 2\ncat 1 0\ncats 0 1\n", encoding="utf-8")
    subject = open_subject(file)
    found = ask(subject, "cat", ["a cat", "the CAT"])
    assert found.head["one_point"] and len(found.head["occurrences"]) == 2
    error = refused(subject, word="catz", sentences=["a catz"])
    assert (error.code, error.about["near"]) == ("no_vector", "cat, cats")


def test_characters_where_a_table_lacks_the_word(tmp_path: Path) -> None:
    vectors: Any = {"苹": (1.0, 0.0, 0.0, 0.0), "果": (0.0, 1.0, 0.0, 0.0), "king": (0.0, 0.0, 1.0, 1.0)}
    subject = open_subject(make_vectors_folder(tmp_path / "model", **vectors))
    found = ask(subject, "苹果", ["苹果很好", "吃苹果"])
    assert found.head["occurrences"][0]["pieces"] == ["苹", "果"] and found.head["one_point"]
    assert refused(subject, word="苹果", sentences=["苹 果"]).code == "word_not_found"
    assert refused(subject, word="苹树", sentences=["苹树"]).code == "no_vector", "half of it is not it"


@pytest.mark.parametrize("make", [make_elmo, make_gpt])
def test_others_have_clouds(tmp_path: Path, make: Any) -> None:
    found = ask(open_subject(make(tmp_path / "model")))
    assert found.arrays["points"].shape == (3, 4, 2) and not found.head["one_point"]
    if make is make_elmo:  # below the layers it is spelled, and no sentence is seen
        assert not found.arrays["points"][0].any() and found.arrays["points"][1].any()


def test_what_no_vocabulary_knows(tmp_path: Path) -> None:
    subject = translator(tmp_path / "model", "transformer")
    found = ask(subject, "zebra cat", ["zebra cat", "the zebra cat"])
    assert [one["pieces"] for one in found.head["occurrences"]] == [["cat"], ["cat"]]
    assert refused(subject, word="zebra", sentences=["a zebra"]).code == "no_vector"


def test_refusals(bert: Subject) -> None:
    assert refused(bert, word="dogs").code == "word_not_found"
    assert refused(bert, word=" ").code == "empty"
    assert refused(bert, sentences=[]).code == "number"
    assert refused(bert, sentences=["cat"] * 61).code == "number"
    assert refused(bert, sentences=["cat " * 64]).code == "too_many_tokens"
    assert refused(bert, sentences=["cat " * 30] * 10).code == "number", "of occurrences"
    assert refused(bert, layer=3).code == "range"
    assert refused(bert, wrod="cat").code == "field"
