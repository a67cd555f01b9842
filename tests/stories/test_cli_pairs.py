"""`qkv check --pairs` and `qkv evaluate --pairs`: what is printed, as text and as JSON, and what is refused."""

import json
from pathlib import Path

import pytest

from qkv.cli.main import main
from qkv.jobs.translate.training import TRANSLATING
from qkv.train.log import Silent
from tests.support.translation_runs import digit_files, settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: str(file) for name, file in digit_files(tmp_path_factory.mktemp("digits")).items()}


@pytest.fixture(scope="module")
def run(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    given = {name: Path(file) for name, file in files.items()}
    config = settings("transformer", given, "train.steps=2")
    return str(TRANSLATING.start(config, tmp_path_factory.mktemp("runs") / "run", Silent()).run)


def test_evaluate(run: str, files: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sides = tmp_path / "t.de", tmp_path / "t.en"
    rows = [line.split("\t") for line in Path(files["test"]).read_text().splitlines()]
    for number, side in enumerate(sides):
        side.write_text("".join(row[number] + "\n" for row in [*rows, ["1 猫", "2"], ["1 " * 40, "3"]]))
    out = tmp_path / "out.jsonl"
    assert main(["evaluate", run, "--pairs", *map(str, sides), "--out", str(out), "--against", run]) == 0
    printed = capfd.readouterr()
    for expected in (
        "t.de and t.en, 14 pairs:",
        "BLEU ",
        "tok:13a",
        "chrF2 ",
        "(95 %: ",
        "exactly the reference",
        "too long for the model, or have no tokens: 1; they count",
        f"{sides[0]}, line 14: ",
        "the vocabulary lacks a token of a text",
        f"against {run}: BLEU",
        "not significant",
    ):
        assert expected in printed.out, expected
    assert len(out.read_text().splitlines()) == 14 and "14 pairs, one line each" in printed.err
    assert main(["evaluate", run, "--pairs", *map(str, sides), "--json", "--decoding", "beams=1"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["decoding"]["beams"] == 1 and found["scores"]["pairs"] == 14 and found["not_translated"] == 1


def test_one_file_of_pairs(run: str, files: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    for words in ([files["train"]], ["--pairs", files["train"], "--columns", "1,2"]):
        assert main(["evaluate", run, *words, "--decoding", "beams=1"]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1] and "the model was trained on this file" in found[0]


def test_check(run: str, files: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--pairs", files["train"], "--dev", files["dev"], "--test", files["test"]]
    assert main([*words, "--more", files["dev"], files["test"], "--model", run, "-n", "1"]) == 1
    out = capfd.readouterr().out
    assert "training pairs" in out and "332" in out and f"{files['dev']}:1: the source is that of" in out
    assert "tokens, source" in out and "0 above 32" in out and "… and 31 more" in out
    assert main([*words, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["pairs"] == 300 and report["files"][2]["part"] == "test"
    assert main(["check", "--pairs", files["train"], "--model", str(Path(run) / "tokenizer")]) == 0
    assert "0 above 256" in capfd.readouterr().out
    assert main(["check", "--pairs", files["train"], "--model", "qkv-mini"]) == 0  # what has a name, and its limit
    assert "0 above 512" in capfd.readouterr().out
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"0123456789"]))
    assert main(["check", "--pairs", files["train"], "--model", str(vocabulary)]) == 0
    assert "0 above 256" in capfd.readouterr().out


def test_references_are_not_written_over(
    run: str, files: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [line.split("\t") for line in Path(files["test"]).read_text().splitlines()]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"source": one, "target": two}) + "\n" for one, two in rows))
    before = pairs.read_bytes()
    for words in (["--pairs", str(pairs)], [str(pairs)]):
        assert main(["evaluate", run, *words, "--out", str(tmp_path / "." / "pairs.jsonl")]) == 2
        assert "is also an input file" in capfd.readouterr().err
    assert pairs.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "{run}"], "Give sentence pairs to evaluate"),
        (["evaluate", "{run}", "{test}", "--pairs", "{test}"], "Give the pairs once, with --pairs"),
        (["evaluate", "{run}", "{test}", "--text", "1"], "--text: only for labelled files"),
        (["evaluate", "{run}", "--pairs", "a", "b", "c"], "one file with both sides, not 3: a, b, c"),
        (["evaluate", "{run}", "--pairs", "{test}", "--columns", "1"], "--columns takes two"),
        (["evaluate", "{run}", "--pairs", "{test}", "--decoding", "num_beams=2"], "Did you mean 'beams'?"),
        (["evaluate", "{run}", "--pairs", "{test}", "--language", "jp"], "Did you mean 'ja'?"),
        (["evaluate", "{run}", "--pairs", "{test}", "--out", "a.csv"], "ends in .jsonl"),
        (["evaluate", "{run}", "--pairs", "no.tsv"], "There is no file no.tsv"),
        (["check"], "Give a corpus or labelled files to check"),
        (["check", "--dev", "{dev}"], "give it with --pairs"),
        (["check", "{test}", "--pairs", "{test}"], "--pairs is checked alone"),
        (["check", "{test}", "--columns", "1,2"], "--columns is for --pairs"),
        (["check", "--pairs", "{test}", "--field", "x"], "leave out other files, --field"),
        (["check", "--pairs", "{test}", "{dev}", "--columns", "a,b"], "no file has both sides"),
        (["check", "--pairs", "{test}", "--columns", "a,b"], "no column is called 'a'"),
    ],
)
def test_what_is_refused(
    run: str, files: dict[str, str], words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(run=run, **files) for word in words]) == 2
    assert message in capfd.readouterr().err
