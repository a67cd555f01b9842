"""qkv search as a person and as a program uses it: index files, ask, rerank, and the messages for bad input."""

import json
import signal
from pathlib import Path

import pytest

from qkv.cli.main import main
from tests.support.folders import make_folder
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")

LINES = "the cat sat on the mat\n\n北京是中国的首都\n猫爱吃鱼\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    make_folder(folder / "bert")
    task_folder(folder / "pairs", "classify", labels=("0", "1"), paired=True)
    (folder / "notes.txt").write_text(LINES, encoding="utf-8")
    (folder / "table.csv").write_text("title,text\nA,the dog is tired\nB,人工智能\n", encoding="utf-8")
    (folder / "long.txt").write_text("the cat is tired because it was unhappy . " * 20, encoding="utf-8")
    files = [str(folder / name) for name in ("notes.txt", "table.csv", "long.txt")]
    assert main(["search", "index", *files, "--out", str(folder / "all"), "-m", str(folder / "bert")]) == 0
    return folder


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(words) == 0
    out, err = capsys.readouterr()
    return out, err


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "Traceback" not in err
    return err


def test_index_and_ask(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = str(tmp_path / "notes")
    out, err = said(capsys, "search", "index", "notes.txt", "--out", place, "-m", "bert")
    assert out == "" and f"{place}: 3 texts, 3 vectors of 32 numbers" in err and f"qkv search {place}" in err
    assert "texts without a vector, which are left out: 1 (notes.txt, line 2 is empty)" in err
    assert err.count("note: bert does not say that it compares sentences: for search take a sentence model") == 1
    _, err = said(capsys, "search", "index", "table.csv", "--out", str(tmp_path / "table"), "-m", "bert")
    assert "table.csv: csv, text = 'text'\n" in err
    out, err = said(capsys, "search", place, "猫爱吃鱼", "the cat sat on the mat", "-k", "1")
    assert "1.000" in out and "notes.txt:4" in out and "notes.txt:1" in out and err == ""
    document = json.loads(
        said(capsys, "search", "index", "notes.txt", "-o", place, "-m", "bert", "--overwrite", "--json")[0]
    )
    assert document == {
        "out": place, "n_texts": 3, "n_passages": 3, "n_left_out": 1, "width": 32,
        "model": str(Path("bert").resolve()),
    }  # fmt: skip
    assert "holds    a search index" in said(capsys, "info", place)[0]
    assert json.loads(said(capsys, "info", place, "--json")[0])["n_texts"] == 3
    (tmp_path / "notes" / "index.json").write_text('{"format": 1}', encoding="utf-8")
    assert "is damaged: it has no model" in failed(capsys, "info", place)
    (tmp_path / "notes" / "vectors.npy").unlink()  # any other folder may have an index.json
    assert "has no config.json" in failed(capsys, "info", place)


def test_json_and_passages(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "search", "all", "猫爱吃鱼", "the dog is tired", "-k", "2", "--json")[0].splitlines()
    first, second = map(json.loads, lines)
    assert first["query"] == "猫爱吃鱼" and first["hits"][0]["text"] == "猫爱吃鱼" and first["hits"][0]["line"] == 4
    assert second["hits"][0]["columns"] == {"title": "A"} and second["hits"][0]["file"].endswith("table.csv")
    out = said(capsys, "search", "all", "it was unhappy", "-k", "3", "--passages", "--json")[0]
    hits = json.loads(out)["hits"]
    assert [one["number"] for one in hits] == [5, 5, 5] and hits[0]["end"] - hits[0]["start"] < hits[0]["length"]
    assert "of 840" in said(capsys, "search", "all", "it was unhappy", "-k", "1")[0]
    _, err = said(capsys, "search", "all", "it was unhappy", "-k", "8", "--passages")
    assert "all are shown" not in err  # there are more passages than texts
    assert "the index has 6 texts: all are shown" in said(capsys, "search", "all", "it was unhappy", "-k", "8")[1]


def test_a_file_of_questions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("猫\n\nthe dog\n", encoding="utf-8")
    _, err = said(capsys, "search", "all", "-f", str(tmp_path / "q.txt"), "-k", "2", "-o", str(tmp_path / "hits.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(one["query"], one["query_line"], one["rank"]) for one in rows] == [
        ("猫", 1, 1), ("猫", 1, 2), ("the dog", 3, 1), ("the dog", 3, 2)
    ]  # fmt: skip
    assert "4 hits of 2 questions" in err and "lines without a question, which are left out: 1" in err
    words = ("search", "all", "-f", str(tmp_path / "q.txt"), "-k", "2", "-o", str(tmp_path / "hits.csv"), "--json")
    assert json.loads(said(capsys, *words)[0])["n_hits"] == 4
    assert (tmp_path / "hits.csv").read_text(encoding="utf-8-sig").startswith("query,query_line,rank,score,")
    for name in ("gbk.csv", "gbk.txt"):
        (tmp_path / name).write_bytes("text\n猫爱吃鱼的说法不对\n我们的人是中国人\n".encode("gb18030"))
        err = said(capsys, "search", "all", "-f", str(tmp_path / name), "-k", "1")[1]
        assert err.count("read as GB18030") == 1  # as for the files of an index
    assert "--text names a column" in failed(capsys, "search", "all", "猫", "--text", "x")
    assert "is also an input file" in failed(capsys, "search", "all", "-f", "notes.txt", "-o", "notes.txt")


def test_rerank(capsys: pytest.CaptureFixture[str]) -> None:
    hits = json.loads(said(capsys, "search", "all", "猫", "--rerank", "pairs", "-k", "3", "--json")[0])["hits"]
    assert [one["score"] for one in hits] == sorted((one["score"] for one in hits), reverse=True)
    assert all(one["score"] != one["similarity"] for one in hits)
    assert "has no label 'x'" in failed(capsys, "search", "all", "猫", "--rerank", "pairs", "--relevant", "x")
    assert "give it with --rerank" in failed(capsys, "search", "all", "猫", "--relevant", "1")
    assert "is not fine-tuned" in failed(capsys, "search", "all", "猫", "--rerank", "bert")


def test_a_folder_named_index(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, notes = str(Path("bert").resolve()), str(Path("notes.txt").resolve())
    monkeypatch.chdir(tmp_path)
    assert "--out INDEX.\n" in failed(capsys, "search", "index", "猫")
    _, err = said(capsys, "search", "index", notes, "--out", "index", "-m", model)
    assert "qkv search ./index" in err
    assert "猫爱吃鱼" in said(capsys, "search", "./index", "猫爱吃鱼", "-k", "1")[0]
    assert "qkv search ./index TEXT" in failed(capsys, "search", "index", "猫")


def test_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "Give questions" in failed(capsys, "search", "all")
    assert "The query ' ' is empty" in failed(capsys, "search", "all", " ")
    assert "There is no index al. Did you mean 'all'?" in failed(capsys, "search", "al", "猫")
    assert "bert is not a search index: it has no index.json" in failed(capsys, "search", "bert", "猫")
    there = failed(capsys, "search", "index", "notes.txt", "-o", "all", "-m", "bert")
    assert "all is a search index already: replace it with --overwrite, or give another folder." in there
    assert "it is not a search index" in failed(capsys, "search", "index", "notes.txt", "-o", "bert", "--overwrite")
    (tmp_path / "empty.txt").touch()
    words = ("search", "index", str(tmp_path / "empty.txt"), "-o", str(tmp_path / "x"), "-m", "bert")
    assert "There is no text to index: the input is empty." in failed(capsys, *words)
    assert "There is no file lost.txt" in failed(capsys, "search", "index", "lost.txt", "-o", str(tmp_path / "x"))
    assert "another model than pairs" in failed(capsys, "search", "all", "猫", "-m", "pairs")
    assert [one.name for one in tmp_path.iterdir()] == ["empty.txt"]
    out, err = said(capsys, "search", "all", "猫", "-k", "99")
    assert "k must be 1 or more" in failed(capsys, "search", "all", "猫", "-k", "0")
    assert "note: -k is 99, and the index has 6 texts: all are shown." in err and out.count("notes.txt") == 3


def test_interrupted(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.index_texts._write_vectors", lambda *given: signal.raise_signal(signal.SIGINT))
    assert main(["search", "index", "notes.txt", "-o", str(tmp_path / "x"), "-m", "bert"]) == 130
    assert list(tmp_path.iterdir()) == []


def test_help_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage: qkv search [OPTIONS]" in said(capsys, "search", "--help")[0]
    assert "Usage: qkv search index [OPTIONS]" in said(capsys, "search", "index", "--help")[0]
    assert "建索引" in said(capsys, "--lang", "zh", "search", "--help")[0]
    assert "There is no option --overwrit" in failed(capsys, "search", "index", "--overwrit")
