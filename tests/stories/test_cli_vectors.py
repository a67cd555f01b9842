"""The verbs that ask word vectors, as a person and as a program calls them."""

import json
from pathlib import Path

import pytest

from qkv.api.vector_scores import load_vectors
from qkv.cli.info import convert_vectors
from qkv.cli.main import main
from tests.support.below_readers import make_nnlm
from tests.support.folders import make_folder
from tests.support.near import assert_near
from tests.support.word_vectors import make_vectors_folder, small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_vectors_folder(tmp_path_factory.mktemp("vectors") / "model"))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QKV_VECTORS", raising=False)
    monkeypatch.delenv("QKV_DATA", raising=False)


def said(capsys: pytest.CaptureFixture[str], *words: str, error: str = "") -> str:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert (error in err) if error else err == ""
    return out


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "Traceback" not in err
    return err


def test_similar(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    shown = said(capsys, "similar", "king", "猫", "-m", folder, "-k", "2")
    assert (
        "neighbours of king" in shown
        and "0.707" in shown
        and "man" in shown
        and "neighbours of 猫" in shown
        and "cat" in shown
    )
    lines = said(capsys, "similar", "king", "猫", "-m", folder, "-k", "2", "--json").splitlines()
    first, second = (json.loads(line) for line in lines)
    assert first["word"] == "king" and [one["word"] for one in first["neighbours"]] == ["man", "queen"]
    assert first["neighbours"][0]["similarity"] == pytest.approx(0.5**0.5)
    assert second["neighbours"][0]["word"] == "cat"


def test_one_unknown_word_loses_no_answer(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    words = ("similar", "zzzz", "king", "unseen", "-m", folder, "-k", "1")
    shown = said(capsys, *words, error="'zzzz' is not among the 6 words of")
    assert "neighbours of king" in shown and "zzzz" not in shown
    said(capsys, *words, error="'unseen' has no vector")
    assert main([*words, "--json"]) == 0
    first, second, third = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["word"] == "zzzz" and "not among" in first["error"] and "neighbours" not in first
    assert second["neighbours"][0]["word"] == "man" and "never seen in training" in third["error"]
    message = failed(capsys, "similar", "zzzz", "qeen", "-m", folder)
    assert "'zzzz' is not among" in message and "Near it: queen" in message
    assert main(["similar", "zzzz", "-m", folder, "--json"]) == 2
    assert "not among" in json.loads(capsys.readouterr().out)["error"]
    assert "must be at least 1" in failed(capsys, "similar", "king", "-m", folder, "-k", "0")


def test_analogy(capsys: pytest.CaptureFixture[str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_VECTORS", folder)
    shown = said(capsys, "analogy", "man", "king", "woman", "-k", "1")
    assert "man is to king as woman is to" in shown and "queen" in shown
    data = json.loads(said(capsys, "analogy", "man", "king", "woman", "--method", "multiply", "--json"))
    assert data["answers"][0]["word"] == "queen" and (data["a"], data["method"]) == ("man", "multiply")


def test_evaluate_vectors(capsys: pytest.CaptureFixture[str], folder: str, tmp_path: Path) -> None:
    questions, pairs, foreign = (tmp_path / name for name in ("questions.txt", "pairs.tsv", "foreign.txt"))
    questions.write_text(": family\nman king woman queen\nman king boy prince\n: gram1\nman men king kings\n")
    pairs.write_text("king\tman\t9\nking\tqueen\t5\nking\tcat\t1\n")
    foreign.write_text("ä\tö\t1\nking\tman\t2\n")  # of one pair there is no correlation
    files = [word for file in (questions, pairs, foreign) for word in ("--data", str(file))]
    words = ("evaluate-vectors", "--model", folder, *files)
    shown = " ".join(said(capsys, *words, error="hardly covered by this vocabulary: foreign\n").split())
    assert "questions 100.0% 1 33.3% 3" in shown and "family 100.0% 1 50.0% 2" in shown and "gram1 – 0 0.0% 1" in shown
    assert "pairs 1.000" in shown and "100.0% 3" in shown
    data = json.loads(said(capsys, *words, "--json"))
    assert (data["n_words"], data["width"], data["method"], data["most"]) == (6, 4, "add", 300_000)
    assert data["analogies"][0]["accuracy"] == 1.0 and data["analogies"][0]["sections"][0]["coverage"] == 0.5
    assert [one["spearman"] for one in data["similarities"]] == [1.0, None]


def test_bad_input(capsys: pytest.CaptureFixture[str], folder: str, tmp_path: Path) -> None:
    assert "Near it: queen" in failed(capsys, "similar", "qeen", "-m", folder)
    assert "no method 'ad'" in failed(capsys, "analogy", "man", "king", "woman", "-m", folder, "--method", "ad")
    assert "There is no file or folder" in failed(capsys, "analogy", "a", "b", "c", "-m", str(tmp_path / "lost"))
    bert = str(make_folder(tmp_path / "bert"))
    assert "holds a BERT" in failed(capsys, "similar", "king", "-m", bert)
    (tmp_path / "cut.bin").write_bytes(b"2 2\nking \0\0\0\0")
    assert "ends at byte 13, inside the vector of 'king'" in failed(
        capsys, "similar", "king", "-m", str(tmp_path / "cut.bin")
    )
    data = tmp_path / "data.txt"
    data.write_text("a b c\n")
    assert "data.txt, line 1" in failed(capsys, "evaluate-vectors", "-m", folder, "-d", str(data))
    data.write_text("a b 1\n")
    words = ("evaluate-vectors", "-m", folder, "-d", str(data))
    assert "--most is 0" in failed(capsys, *words, "--most", "0")
    assert "no method" in failed(capsys, *words, "--method", "plus")


def test_no_test_sets(
    capsys: pytest.CaptureFixture[str], folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Give the test sets: --data" in failed(capsys, "evaluate-vectors", "-m", folder)


def test_notes_stand_beside_the_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "twice.txt").write_text("3 2\na 1 0\nb 1 1\na 0 1\n")
    shown = said(capsys, "similar", "a", "-m", str(tmp_path / "twice.txt"), error="note: ")
    assert "0.707" in shown


def test_converting(capsys: pytest.CaptureFixture[str], folder: str, tmp_path: Path) -> None:
    convert_vectors(folder, tmp_path / "v.bin.gz", as_json=False)
    assert "6 words, 4 numbers each" in capsys.readouterr().out
    convert_vectors(str(tmp_path / "v.bin.gz"), tmp_path / "back", as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert (data["n_words"], data["width"], data["left_out"]) == (6, 4, [])
    assert_near(load_vectors(tmp_path / "back").neighbours("king", 2), small().neighbours("king", 2))


def test_the_verbs_for_every_model_take_vectors_too(
    capsys: pytest.CaptureFixture[str], folder: str, tmp_path: Path
) -> None:
    shown = said(capsys, "info", folder)
    assert "word2vec" in shown and "tokens by word" in shown
    assert json.loads(said(capsys, "info", folder, "--json"))["model_type"] == "word2vec"
    file = tmp_path / "vectors.txt"
    assert str(file) in said(capsys, "convert", folder, str(file))
    assert len(load_vectors(str(file))) == len(load_vectors(folder))
    nnlm = str(make_nnlm(tmp_path / "nnlm"))
    assert "numbers each" in said(capsys, "convert", nnlm, str(tmp_path / "nnlm.vec"))
    word = load_vectors(tmp_path / "nnlm.vec").words[0]
    assert said(capsys, "similar", word, "-m", nnlm) == said(capsys, "similar", word, "-m", str(tmp_path / "nnlm.vec"))
    file.write_text("important", encoding="utf-8")
    assert "--overwrite" in failed(capsys, "convert", folder, str(file))
    assert file.read_text(encoding="utf-8") == "important"
    said(capsys, "convert", folder, str(file), "--overwrite")
    said(capsys, "convert", str(file), str(tmp_path / "again"))
    assert "--overwrite" in failed(capsys, "convert", str(file), str(tmp_path / "again"))
    assert "leave out all options" in failed(capsys, "convert", folder, str(tmp_path / "x.txt"), "--dtype", "float16")
