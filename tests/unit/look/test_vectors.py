"""Neighbours and analogies are those of `qkv similar` and `qkv analogy`; the parallelogram and the map by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.api.embedder import scale_to_unit
from qkv.cli.main import main
from qkv.look import vectors
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.metrics.numbers import principal
from tests.support.below_readers import make_nnlm
from tests.support.folders import make_folder
from tests.support.word_vectors import SMALL, make_vectors_folder, random_vectors

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(make_vectors_folder(tmp_path_factory.mktemp("table") / "table"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    path = tmp_path_factory.mktemp("file") / "vectors.bin"
    random_vectors(300, 12).save(path)
    return open_subject(path)


def ask(name: str, subject: Subject, **fields: Any) -> Reply:
    return Reply.from_bytes(getattr(vectors, f"show_{name}")(subject, Asked(fields)).to_bytes())


def refused(name: str, subject: Subject, **fields: Any) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        getattr(vectors, f"show_{name}")(subject, Asked(fields))
    return caught.value


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_neighbours_of_qkv_similar(file: Subject, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask("neighbours", file, word="w7", k=9)
    expected = said(capsys, "similar", "w7", "-k", "9", "--json", "--model", str(file.path))["neighbours"]
    assert [one["word"] for one in found.head["neighbours"]] == [one["word"] for one in expected]
    np.testing.assert_allclose(found.arrays["cosine"], [one["similarity"] for one in expected], atol=1e-6)
    assert (found.head["rank"], found.head["words"], found.head["width"]) == (7, 300, 12)


def test_answers_of_qkv_analogy(file: Subject, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("add", "multiply"):
        found = ask("analogy", file, a="w1", b="w2", c="w3", k=4, method=method)
        flags = ("-k", "4", "--method", method, "--json", "--model", str(file.path))
        expected = said(capsys, "analogy", "w1", "w2", "w3", *flags)["answers"]
        assert [one["word"] for one in found.head["answers"]] == [one["word"] for one in expected]
        assert [one["score"] for one in found.head["answers"]] == pytest.approx(
            [one["score"] for one in expected], abs=1e-6
        )


def test_the_parallelogram(table: Subject, file: Subject) -> None:
    found = ask("analogy", table, a="man", b="king", c="woman")
    assert found.head["answers"][0]["word"] == "queen"
    for one in (found, ask("analogy", file, a="w1", b="w2", c="w3")):
        a, b, c, goal = one.arrays["points"][:4]
        np.testing.assert_allclose(b - a, goal - c, atol=1e-5, err_msg="opposite sides are equal")
        np.testing.assert_allclose(one.arrays["above"][:4], 0, atol=1e-5, err_msg="the corners lie in their plane")
        assert not a.any() and c[1] == pytest.approx(0, abs=1e-6) and c[0] > 0 and b[1] > 0
    unit = scale_to_unit(file.vectors.vectors[[1, 2, 3, file.vectors.rows[one.head["answers"][0]["word"]]]].numpy())
    answer = unit[3] - unit[0]
    distance = np.hypot(np.linalg.norm(one.arrays["points"][4]), one.arrays["above"][4])
    assert distance == pytest.approx(np.linalg.norm(answer), abs=1e-5), "on the plane and above it, by Pythagoras"
    assert np.linalg.norm(b - a) == pytest.approx(np.linalg.norm(unit[1] - unit[0]), abs=1e-5), "nothing is distorted"
    target = unit[1] - unit[0] + unit[2]
    cosine = float(unit[3] @ target / np.linalg.norm(target))
    assert one.head["answers"][0]["to_target"] == pytest.approx(cosine, abs=1e-5)


def test_a_word_twice_has_a_flat_parallelogram(table: Subject) -> None:
    found = ask("analogy", table, a="man", b="man", c="woman")
    assert np.isfinite(found.arrays["points"]).all() and not found.arrays["points"][:4, 1].any()


def test_a_map_is_a_plain_analysis(file: Subject) -> None:
    found = ask("word_map", file, most=50)
    assert found.head["words"] == [f"w{row}" for row in range(50)] and found.head["of"] == 300
    unit = scale_to_unit(file.vectors.vectors[:50].numpy())
    expected = principal(unit.astype(np.float64))
    np.testing.assert_allclose(np.abs(found.arrays["points"]), np.abs(expected.places), atol=1e-4)
    assert found.head["variance"] == pytest.approx(expected.shares.tolist(), abs=1e-4)
    alike = unit @ unit.T - 2 * np.eye(50)
    assert (found.arrays["nearest"][:, 0] == alike.argmax(1)).all()
    np.testing.assert_allclose(found.arrays["nearest_cosine"][:, 0], alike.max(1), atol=1e-5)


def test_words_that_were_named_come_first(table: Subject, file: Subject) -> None:
    found = ask("word_map", file, most=5, words="w200 nobody w3")
    assert found.head["words"] == ["w200", "w3", "w0", "w1", "w2"]
    assert (found.head["named"], found.head["missing"]) == (2, ["nobody"])
    everybody = ask("word_map", table).head["words"]
    assert everybody == [word for word in SMALL if word != "unseen"], "a row of zeros has no place"
    assert ask("word_map", table, script="letters").head["words"] == [word for word in everybody if word != "猫"]
    assert ask("word_map", table, script="chinese", words="cat").head["words"] == ["cat", "猫"]


def test_the_table_of_a_bengio_model(tmp_path: Path) -> None:
    subject = open_subject(make_nnlm(tmp_path / "model"))
    assert len(ask("neighbours", subject, word="cat", k=3).head["neighbours"]) == 3


def test_refusals(table: Subject, tmp_path: Path) -> None:
    missing = refused("neighbours", table, word="quen")
    assert (missing.code, missing.about["near"], missing.about["word"]) == ("word_not_found", "queen", "quen")
    assert "Near it: queen." in str(missing)
    assert refused("analogy", table, a="man", b="kings", c="woman").about["word"] == "kings"
    assert refused("neighbours", table, word="unseen").code == "word_not_found", "training never met it"
    assert refused("neighbours", table, word="").code == "empty"
    assert refused("neighbours", table, word="cat", k=51).code == "range"
    assert refused("analogy", table, a="man", b="king", c="woman", method="ad").code == "unknown"
    assert refused("word_map", table, script="chinese").code == "number", "one word alone"
    bert = open_subject(make_folder(tmp_path / "bert"))
    assert refused("neighbours", bert, word="cat").code == "no_vectors"
    zeros = tmp_path / "zeros.txt"
    zeros.write_text("2 2\nnone 0 0\nsome 1 0\n", encoding="utf-8")
    assert refused("neighbours", open_subject(zeros), word="none").code == "no_vectors"
