"""`qkv check` on labelled files; corpora are checked as before."""

import json
from pathlib import Path

import pytest

from qkv.cli.main import main

TRAIN = "text,label\na good film,pos\na bad film,neg\na good film,neg\nanother,Pos\n"


class Check:
    """Runs the verb; what it printed lies in `out` and `err`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: object, code: int = 0) -> str:
        assert main(["check", *map(str, arguments)]) == code
        out, self.err = self._capsys.readouterr()
        return out


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(capsys)


def test_a_labelled_file(tmp_path: Path, check: Check) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text(TRAIN)
    test.write_text("text,label\na bad film,neg\n")
    out = check(train, "--against", test, code=1)
    for expected in ("classify", "csv, text = 'text', label = 'label'", "█", f"{train}:4: the same as", f"{test}:2:"):
        assert expected in out
    report = json.loads(check(train, "--json", code=1))
    assert report["labels"] == {"neg": 2, "pos": 1, "Pos": 1}
    assert report["counts"] == {"conflict": 1, "label typo": 1}


def test_labels_that_are_no_words_of_the_file_are_translated(tmp_path: Path, check: Check) -> None:
    asked = tmp_path / "asked.json"
    answers: list[list[dict[str, object]]] = [[{"text": "a cat", "answer_start": 0}], []]
    questions = [{"id": str(n), "question": f"who {n}?", "answers": one} for n, one in enumerate(answers)]
    asked.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a cat sat", "qas": questions}]}]}))
    out = check(asked, "--lang", "zh")
    assert "有答案" in out and "无答案" in out and "answered" not in out
    assert json.loads(check(asked, "--json", "--lang", "zh"))["labels"] == {"answered": 1, "no answer": 1}
    labelled = tmp_path / "labelled.csv"
    labelled.write_text("text,label\na call,answered\na letter,no answer\n")
    assert "answered" in check(labelled, "--lang", "zh"), "a word of the file"


def test_lengths_by_a_model(tmp_path: Path, minilm: Path, check: Check) -> None:
    (tmp_path / "a.csv").write_text(TRAIN.replace("another", "long " * 600))
    out = check(tmp_path / "a.csv", "--model", minilm, code=1)
    assert "1 above the model's 512, which are split into windows" in out
    assert f"{tmp_path / 'a.csv'}:5: has 602 tokens" in out
    found = json.loads(check(tmp_path / "a.csv", "--tokenizer", minilm / "vocab.txt", "--json", code=1))
    assert found["tokens"]["longest"] == 602
    (tmp_path / "a.csv").write_text("text,label\na good film,pos\n" + "long " * 600 + ",neg\n")
    check(tmp_path / "a.csv", "--model", minilm)  # a long text is no error


def test_columns_and_task(tmp_path: Path, check: Check) -> None:
    (tmp_path / "a.txt").write_text("pos\tx\ta film\nneg\ty\tanother film\n")
    assert "text = column 3, label = column 1" in check(tmp_path / "a.txt", "--text", "3", "--label", "1")
    check(tmp_path / "a.txt", "--task", "classify", code=2)
    assert "Choose with --text NAME and --label NAME" in check.err and "or else a number" in check.err


def test_a_corpus_as_before(tmp_path: Path, check: Check) -> None:
    (tmp_path / "a.txt").write_text("A line.\n\nAnother\twith a tab.\n")
    assert "documents" in check(tmp_path / "a.txt")
    (tmp_path / "b.jsonl").write_text('{"text": "A document."}\n')
    assert "documents" in check(tmp_path / "b.jsonl")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe broken\n")
    assert "not UTF-8" in check(tmp_path / "c.txt", code=1)
    (tmp_path / "d.txt").write_bytes("今天天气很好。\n\n我们去公园吧。\n我们走。\n".encode("gb18030"))
    assert f"{tmp_path / 'd.txt'}: read as GB18030." in check(tmp_path / "d.txt")


def test_a_field_is_that_of_a_corpus(tmp_path: Path, check: Check) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "A film.", "label": "pos", "body": "One.\\n\\nTwo."}\n')
    assert "classify" in check(tmp_path / "a.jsonl", code=1)  # of one label nothing can be learned
    report = json.loads(check(tmp_path / "a.jsonl", "--field", "body", "--json"))
    assert report["characters"] == len("One.") + len("Two.") and "task" not in report
    check(tmp_path / "a.jsonl", "--field", "body", "--task", "classify", code=2)
    assert "--field is for a corpus" in check.err


def test_files_that_are_not_there_or_not_readable(tmp_path: Path, check: Check) -> None:
    check(tmp_path / "a.csv", code=2)
    assert "There is no file" in check.err
    (tmp_path / "a.csv").write_bytes("评论,标签\n".encode() + "很好,差\n".encode("gb18030"))
    check(tmp_path / "a.csv", code=2)
    assert "iconv -f gb18030" in check.err
    (tmp_path / "a.csv").write_bytes("评论,标签\n很好,好评\n太慢了,差评\n".encode("gb18030"))
    assert "2 examples (csv read as GB18030, text = '评论', label = '标签')" in check(tmp_path / "a.csv")


def test_the_last_line_says_whether_there_are_errors(tmp_path: Path, check: Check) -> None:
    repeated = "text,label\na good film,pos\na bad film,neg\na good film,pos\n"
    for name, text in (("a.csv", repeated), ("a.txt", "A line.\n" + "x" * 1_200 + ".\n\nTwo. Three.\n")):
        (tmp_path / name).write_text(text)
        out = check(tmp_path / name)
        assert "\nNo errors found, only remarks.\n" in out, "of repetitions and lengths"
    (tmp_path / "a.csv").write_text("text,label\na good film,pos\na bad film,neg\n")
    assert "\nNo errors found.\n" in check(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(TRAIN)
    assert "No errors found" not in check(tmp_path / "a.csv", code=1)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.xlsx"])
def test_a_file_with_a_header_only(tmp_path: Path, check: Check, name: str) -> None:
    """A fault for check; finetune cannot begin."""
    file, run = tmp_path / name, tmp_path / "run"
    if name.endswith("xlsx"):
        book = pytest.importorskip("openpyxl").Workbook()
        book.active.append(["text", "label"])
        book.save(file)
    else:
        file.write_text("text\tlabel\n" if name.endswith("tsv") else "text,label\n")
    assert f"{file} has 0 examples" in check(file, code=1)
    assert main(["finetune", "classify", "--train", str(file), "--out", str(run)]) == 2
    assert not run.exists()
