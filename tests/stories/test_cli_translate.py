"""The verbs: train translate, translate, info; their messages."""

import io
import json
import sys
from pathlib import Path

import pytest

from qkv.cli.main import main
from qkv.jobs.translate.training import TRANSLATING
from qkv.nn.cpu.precision import explain_no_int8
from qkv.train.log import Silent
from tests.support.folders import make_folder
from tests.support.translation_runs import SETTINGS, SMALL, digit_files, settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    files = digit_files(folder / "digits")
    config = settings("transformer", files, "train.steps=2")
    fixed = settings("seq2seq", files, "train.steps=2", "seq2seq.context=fixed")
    return {
        "transformer": TRANSLATING.start(config, folder / "transformer", Silent()).run,
        "fixed": TRANSLATING.start(fixed, folder / "fixed", Silent()).run,
    }


def test_train_and_translate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {name: str(file) for name, file in digit_files(tmp_path).items()}
    changes = [word for one in (*SETTINGS, *SMALL["transformer"], "train.steps=2") for word in ("--set", one)]
    run = tmp_path / "run"
    pairs = ["--pairs", files["train"], "--dev", files["dev"], "--test", files["test"], "--languages", "und-en"]
    assert main(["train", "translate", *pairs, "--out", str(run), *changes, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["finished"] and found["result"]["target_language"] == "en"
    assert main(["translate", str(run), "1 2 3", "4 5", "--json", "--beams", "3", "--n-best", "2"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["source"] for line in lines] == ["1 2 3", "4 5"] and len(lines[0]["n_best"]) == 2
    assert main(["train", "translate", "--resume", str(run)]) == 0
    assert "is finished" in capfd.readouterr().err


def test_two_files_after_one_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei\n")
    (tmp_path / "a.en").write_text("one\ntwo\n")
    run = str(tmp_path / "run")
    assert main(["train", "translate", "--pairs", str(tmp_path / "a.de"), str(tmp_path / "a.en"), "--out", run]) == 2
    assert "line 3 of" in capfd.readouterr().err


def test_the_example(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As it is, it takes half a minute and gets every row right (see the page on translation); here, its beginning."""
    words = ["train", "translate", "--example", "reverse", "--out", str(tmp_path / "run"), "--set", "train.steps=3"]
    assert main([*words, "--set", "decoding.beams=1", "--set", "decoding.max_length=3"]) == 0
    assert "test, 500 pairs" in capfd.readouterr().out and (tmp_path / "run" / "pairs" / "train.tsv").exists()


def test_alignments_and_a_picture(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "a.svg"
    words = ["translate", str(runs["transformer"]), "1 2 3 4", "--alignments", "--min-length", "4"]
    assert main([*words, "--picture", str(picture)]) == 0
    assert "→" in capfd.readouterr().out and picture.read_text().startswith("<svg")
    assert main([*words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    for link in found["alignments"]:
        for side, text in (("source", found["source"]), ("target", found["translation"])):
            assert text[link[side]["start"] : link[side]["end"]] == link[side]["text"]


def test_files_in_and_out(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.txt"
    source.write_text("1 2\n\n3 4 5\n")
    for name, lines in (("out.txt", 3), ("out.tsv", 3), ("out.jsonl", 3)):
        assert main(["translate", str(runs["transformer"]), str(source), "--out", str(tmp_path / name)]) == 0
        assert len((tmp_path / name).read_text().splitlines()) == lines
    assert (tmp_path / "out.txt").read_text().splitlines()[1] == ""  # of nothing comes nothing, in its place
    assert "3 translations" in capfd.readouterr().err


def test_a_name_is_no_text_and_a_source_is_not_overwritten(
    runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("1 2\n")
    for words, message in (
        ([str(tmp_path / "gone.txt")], "There is no file"),
        ([str(tmp_path)], "is a folder"),
        ([str(file), "1 2"], "is a file among other texts"),
        ([str(file), "--out", str(file)], "is also an input file and would be overwritten"),
    ):
        assert main(["translate", str(runs["transformer"]), *words]) == 2
        assert message in capfd.readouterr().err
    assert file.read_text() == "1 2\n"


def test_a_file_with_columns(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, found = str(runs["transformer"]), []
    for name, text in (
        ("in.tsv", "1 2\tx\n3\ty\n"),
        ("in.jsonl", '{"source": "1 2", "text": "x"}\n{"text": "3"}\n'),
        ("in.txt", "1 2\n3\n"),
    ):
        (tmp_path / name).write_text(text)
        assert main(["translate", run, str(tmp_path / name), "--json"]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1] == found[2] and found[0].count("\n") == 2
    (tmp_path / "pairs.txt").write_text("1 2\tx\n")
    assert main(["translate", run, str(tmp_path / "pairs.txt")]) == 2
    assert "pairs.txt, line 1 has tab-separated columns" in capfd.readouterr().err


def test_a_field_is_looked_for_among_the_keys(
    runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "source"}\n{"text": "3", "of": {"source": "x"}}\n{"\\u0073ource": "1 2", "text": "x"}\n')
    assert main(["translate", str(runs["transformer"]), str(file), "--json"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [json.loads(line)["source"] for line in lines] == ["source", "3", "1 2"]
    for line, message in (('{"source": ', "line 1 is not JSON"), ("[1]", "line 1 holds a list")):
        file.write_text(line + "\n")
        assert main(["translate", str(runs["transformer"]), str(file)]) == 2
        assert message in capfd.readouterr().err


def test_long_lines_are_named_by_file_and_line(
    runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, long = str(runs["transformer"]), "1 " * 40
    file = tmp_path / "in.jsonl"
    file.write_text(f'{{"text": "1"}}\n\n{{"text": "{long}"}}\n')
    assert main(["translate", run, str(file)]) == 2
    assert f"{file}, line 3 ('1 1" in capfd.readouterr().err


def test_nothing_is_translated_before_a_long_line_is_found(
    runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that comes late, and other lines that cannot be read; of standard input what was done is told."""
    monkeypatch.setattr("qkv.api.translator._CHUNK", 2)
    run, out = str(runs["transformer"]), tmp_path / "out.txt"
    out.write_text("before\n")
    file = tmp_path / "in.txt"
    for last, message in (("1 " * 40, "line 5 ('1 1"), ("1\t2", "line 5 has tab-separated columns")):
        file.write_text("1\n2\n3\n4\n" + last)
        for words in ([], ["--json"], ["--out", str(out)]):
            assert main(["translate", run, str(file), *words]) == 2
            printed = capfd.readouterr()
            assert not printed.out and f"{file}, {message}" in printed.err
        given = io.TextIOWrapper(io.BytesIO(b"1\n2\n3\n4\n" + b"1 " * 40))
        monkeypatch.setattr(sys, "stdin", given)
        assert main(["translate", run, "-", "--out", str(out)]) == 2
        assert f"The first 4 texts were translated, and nothing was written to {out}." in capfd.readouterr().err
        assert out.read_text() == "before\n" and sorted(one.name for one in tmp_path.iterdir()) == ["in.txt", "out.txt"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n3\n4\n" + b"1 " * 40)))
    assert main(["translate", run, "-", "--json"]) == 2
    printed = capfd.readouterr()
    assert len(printed.out.splitlines()) == 4 and "The first 4 texts were translated and printed." in printed.err


def test_unknown_words_are_told(runs: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    run = str(runs["transformer"])
    assert main(["translate", run, "1 猫", "猫 2 🐱", "3", "--json"]) == 0
    printed = capfd.readouterr()
    assert "lacks 3 tokens of 2 texts" in printed.err and "'猫' (2), '🐱'" in printed.err
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["n_unknown"] for line in lines] == [1, 2, 0]
    assert lines[1]["unknown"][0] == {"start": 0, "end": 1, "text": "猫"}
    assert main(["translate", run, "1 2"]) == 0
    assert "lacks" not in capfd.readouterr().err


def test_standard_input(
    runs: dict[str, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(data: bytes) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return main(["translate", str(runs["transformer"]), "-", "--json"])

    assert given(b"\xef\xbb\xbf1 2\r\n3\n") == 0
    assert [json.loads(line)["source"] for line in capfd.readouterr().out.splitlines()] == ["1 2", "3"]
    assert given(b"1\n" + b"1 " * 40) == 2
    assert "Standard input, line 2 (" in capfd.readouterr().err
    assert given(b"1\n\xff\n") == 2
    assert "Standard input, line 2 is not UTF-8" in capfd.readouterr().err


def test_translations_without_an_end_are_told_and_counted(
    runs: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    for texts, told, more in ((5, 5, False), (8, 5, True)):
        words = ["translate", str(runs["transformer"]), *["1 2 3"] * texts, "--max-length", "3", "--min-length", "2"]
        assert main([*words, "--repetition-penalty", "1e-9"]) == 0  # what was written is written again
        said = capfd.readouterr().err
        assert said.count("is unfinished after 3 tokens") == told
        assert ("and 3 more are unfinished, 8 in total" in said) == more


def test_a_picture_and_a_file(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, picture = tmp_path / "a.jsonl", tmp_path / "a.svg"
    words = ["translate", str(runs["transformer"]), "1 2 3 4", "--min-length", "4", "--picture", str(picture)]
    assert main([*words, "--out", str(out), "--alignments", "--n-best", "2"]) == 0
    found = json.loads(out.read_text())
    assert picture.read_text().startswith("<svg") and found["alignments"] and len(found["n_best"]) == 2


def test_pairs_may_be_named_by_a_setting_or_a_recipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Which is seen by the files that are looked for."""
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[bitext]\ntrain = ["no.de", "such.en"]\n')
    for words in (["--recipe", str(recipe)], ["--set", 'bitext.train=["no.de", "such.en"]']):
        assert main(["train", "translate", "--out", str(tmp_path / "run"), *words]) == 2
        assert "There is no file no.de" in capfd.readouterr().err


def test_info(runs: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(runs["transformer"])]) == 0
    assert "qkv-transformer" in capfd.readouterr().out
    assert main(["info", str(runs["fixed"]), "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["model_type"] == "qkv-seq2seq" and facts["config"]["context"] == "fixed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate", "{t}"], "Give texts or a file"),
        (["translate", "{t}", ""], "Text 1 is empty"),
        (["translate", "{t}", "1", "--precision", "int4"], "Unknown precision 'int4'. Did you mean 'int8'?"),
        pytest.param(
            ["translate", "{f}", "1", "--precision", "int8"],
            "is a recurrent network. Use fp32.",
            marks=pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8())),
        ),
        (["translate", "{t}", "1", "--beam", "4"], "There is no option --beam. Did you mean '--beams'?"),
        (["translate", "{t}", "1", "--decoding", "stoping=never"], "Unknown decoding option 'stoping'. Did you mean"),
        (["translate", "{t}", "1", "--decoding", "num_beams=4"], "Did you mean 'beams'?"),
        (["translate", "{t}", "1", "--decoding", "stopping"], "write KEY=VALUE"),
        (["translate", "{t}", "1", "--top-p", "0.5"], "top_p is for sampling"),
        (["translate", "{t}", "1", "--seed", "1"], "seed is for sampling"),
        (["translate", "{t}", "1", "--decoding", "n_best=abc"], "n_best"),
        (["translate", "{t}", "1", "--decoding", "n_best=[1]"], "n_best"),
        (["translate", "{t}", "1", "--out", "a.jsonl", "--json"], "Choose one: --json"),
        (["translate", "{t}", "1", "--out", "a.txt", "--alignments"], "A .txt file cannot hold --alignments"),
        (["translate", "{t}", "1", "--out", "a.tsv", "--n-best", "2"], "A .tsv file has one translation per text"),
        (["translate", "{t}", "1", "--out", "a.txt", "--decoding", "n_best=2"], "n_best is 2: write .jsonl"),
        (["translate", "{t}", "1 2", "3", "--picture", "a.svg"], "one text"),
        (["translate", "{t}", "1", "--picture", "a.png"], "ends in .svg"),
        (["translate", "{t}", "1", "--segmenter", "rjieba"], "--segmenter needs --alignments"),
        (["translate", "{t}", "nowhere.de"], "There is no file nowhere.de"),
        (["translate", "{t}", "1", "--alignments", "--segmenter", "jieba"], "rjieba"),
        (["translate", "{t}", "1", "--out", "a.doc"], "ends in .txt or .tsv or .jsonl"),
        (["translate", "{t}", "1 " * 40], "has 41 tokens, and the model of"),
        (["translate", "{t}", "1. 2.", "--split", "--n-best", "2"], "leave out n_best = 2"),
        (["translate", "{f}", "1 2", "--picture", "a.svg"], "no attention"),
        (["translate", "{t}/nowhere", "1"], "nowhere"),
        (["train", "translate", "--out", "run"], "Give sentence pairs with --pairs"),
        (["train", "translate", "--pairs", "x"], "and a new folder for the run with --out"),
        (["train", "translate", "--example", "revers", "--out", "run"], "Did you mean 'reverse'?"),
        (["train", "translate", "--example", "reverse", "--pairs", "x", "--out", "run"], "brings its own pairs"),
        (["train", "translate", "--pairs", "x", "--out", "run", "--model", "seqtoseq"], "Did you mean 'seq2seq'?"),
        (["train", "translate", "--pairs", "no", "such", "--out", "run"], "There is no file no"),
        (["train", "translate", "--pairs", "x", "--out", "run", "--languages", "deen"], "--languages takes two"),
        (["train", "translate", "--pairs", "x", "--out", "run", "--languages", "en-cn"], "Did you mean 'zh'?"),
        (["train", "translate", "--pairs", "x", "--out", "run", "--languages", "xx-en"], "'xx' is not a language code"),
        (["train", "translate", "--resume", "{t}", "--epochs", "3"], "leave out everything else"),
        (
            ["train", "translate", "--pairs", "x", "--out", "{t}"],
            "holds a finished run. Give another folder, or replace the run with --overwrite",
        ),
        (["pretrain", "--resume", "{t}"], "is a translation run: qkv train translate --resume"),
    ],
)
def test_what_is_refused(
    runs: dict[str, Path], words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    named = [word.replace("{t}", str(runs["transformer"])).replace("{f}", str(runs["fixed"])) for word in words]
    assert main(named) == 2
    assert message in capfd.readouterr().err


def test_other_verbs_say_who_does(runs: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", "a [MASK]", "--model", str(runs["transformer"])]) == 2
    said = capfd.readouterr().err
    assert "It holds a model that translates. It can translate (qkv translate" in said and "qkv attention" not in said


def test_a_run_that_is_not_finished(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_bytes((runs["transformer"] / "config.toml").read_bytes())
    assert main(["translate", str(tmp_path), "1"]) == 2
    assert f"not finished. Go on with it: qkv train translate --resume {tmp_path}" in capfd.readouterr().err


def test_other_models_do_not_translate(
    runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", str(make_folder(tmp_path / "bert")), "1"]) == 2
    assert (
        "bert cannot translate. It holds a BERT (BertForPreTraining). It can fill a blank (qkv fill"
        in capfd.readouterr().err
    )
