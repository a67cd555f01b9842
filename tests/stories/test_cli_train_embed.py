"""`qkv train embed`: from files to a folder that embeds; messages, a teacher, killed and resumed."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.cli.main import main
from qkv.train.run_folder import read_lines
from tests.support.folders import make_folder
from tests.support.forks import Forks

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = "the cat dog sat on mat he owes me money paris street 我 你 他 爱 吃 鱼 猫 狗 北 京 上 海".split()
SMALL = (
    *("batch=16", "train.threads=1", "train.log_every=2", "train.evaluate_every=4", "train.save_every=2"),
    *("tokens_at_once=128", "device=cpu"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT, a tiny teacher of another width, pairs, scores, triplets, texts and translations."""
    folder = tmp_path_factory.mktemp("embed")
    make_folder(folder / "bert")
    make_folder(folder / "teacher", "BertModel", seed=1, width=48)
    draw = np.random.default_rng(0)

    def texts(count: int) -> list[str]:
        return [" ".join(draw.choice(WORDS, draw.integers(3, 9))) for _ in range(count)]

    first, second, third = texts(120), texts(120), texts(120)
    rows = list(zip(first, second, third, strict=True))
    write(folder / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b, _ in rows))
    write(folder / "scores.csv", "sentence1,sentence2,score\n" + "".join(f"{a},{c},{len(b)}\n" for a, b, c in rows))
    triplets = ({"anchor": a, "positive": b, "negatives": [c]} for a, b, c in rows)
    write(folder / "triplets.jsonl", "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in triplets))
    write(folder / "texts.txt", "\n".join(texts(80)) + "\n")
    return folder


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def words(folder: Path, run: Path, *more: object, steps: int = 6) -> list[str]:
    settings = [word for one in SMALL for word in ("--set", one)]
    given = ["train", "embed", "--model", folder / "bert", "--out", run, "--steps", steps, *settings, *more]
    return [str(word) for word in given]


def result(capfd: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capfd.readouterr().out)["result"]


def test_every_kind_in_one_run(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [folder / name for name in ("pairs.tsv", "scores.csv", "triplets.jsonl")]
    more = ["--test", folder / "scores.csv", "--set", "widths=[8,16]", "--json"]
    assert main(words(folder, tmp_path / "run", "--data", *files, *more, steps=24)) == 0
    found = result(capfd)
    assert {name: one["kind"] for name, one in found["files"]["train"].items()} == {
        "pairs.tsv": "pairs",
        "scores.csv": "scores",
        "triplets.jsonl": "triplets",
    }
    assert found["test"]["scores.csv"]["main"] == "spearman" and found["dev"]["pairs.tsv"]["main"] == "mrr"
    assert set(found["widths"]) == {"8", "16"} and set(found["before"]["dev"]) == set(found["dev"])
    low, high = found["dev"]["pairs.tsv"]["intervals"]["mrr"]
    assert low <= found["dev"]["pairs.tsv"]["mrr"] <= high
    run = tmp_path / "run"
    assert sorted(one.name for one in run.iterdir() if not one.name.startswith("tensorboard")) == [
        *("config.toml", "faults.jsonl", "log.jsonl", "model", "report.html", "result.json", "sessions.jsonl"),
        "timing.jsonl",
    ]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert log[0]["step"] == 0 and "pairs.tsv: mrr" in log[0]["evaluation"]
    assert {"pairs_loss", "scores_loss"} <= {key for line in log for key in line}
    assert "before training" in (run / "report.html").read_text(encoding="utf-8")
    assert "spearman, scores.csv" in (run / "model" / "README.md").read_text(encoding="utf-8")


def test_it_learns_and_the_folder_embeds_as_it_was_trained(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every word has another word for its translation; held-out pairs are found better than before."""
    lines = [line.split("\t")[0] for line in (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()]
    other = dict(zip(WORDS, WORDS[::-1], strict=True))
    pairs = (f"{line}\t{' '.join(other[word] for word in line.split())}\n" for line in lines)
    write(tmp_path / "a.tsv", "".join(pairs))
    more = ["--data", tmp_path / "a.tsv", "--set", "train.lr=3e-3", "--json"]
    assert main(words(folder, tmp_path / "run", *more, steps=40)) == 0
    found = result(capfd)
    assert found["dev"]["a.tsv"]["mrr"] > found["before"]["dev"]["a.tsv"]["mrr"] + 0.1
    model = qkv.load(tmp_path / "run" / "model")
    vectors = model.embed(["the cat", "猫 狗"]).vectors
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert main(["embed", "the cat", "the dog", "--model", str(tmp_path / "run"), "--json"]) == 0
    printed = [json.loads(line)["vector"] for line in capfd.readouterr().out.splitlines()]
    assert np.allclose(printed[0], vectors[0], atol=1e-5)


def test_a_teacher_of_another_width(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = [
        "--teacher",
        folder / "teacher",
        "--parallel",
        folder / "pairs.tsv",
        "--data",
        folder / "texts.txt",
        "--set",
        f"teacher_vectors={tmp_path / 'vectors'}",
        "--set",
        "relations=0.5",
        "--json",
    ]
    assert main(words(folder, tmp_path / "run", *more, steps=60)) == 0
    captured = capfd.readouterr()
    found = json.loads(captured.out)["result"]
    assert "48 numbers become 32 by principal components" in captured.err
    # the teacher was turned towards the student, so that they agree well from the beginning
    assert found["dev"]["texts.txt"]["cosine"] > found["before"]["dev"]["texts.txt"]["cosine"] > 0.5
    assert "accuracy_at_1_forward" in found["dev"]["pairs.tsv"] and found["teacher"] == "teacher"
    assert not (tmp_path / "run" / "vectors").exists() and len(list((tmp_path / "vectors").iterdir())) > 1
    assert str(tmp_path) not in (tmp_path / "run" / "model" / "qkv.json").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_gives_the_same_vectors(folder: Path, tmp_path: Path, pooling: str) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    run = tmp_path / "run"
    assert main(words(folder, run, "--data", folder / "pairs.tsv", "--set", f"pooling={pooling}")) == 0
    texts = ["the cat sat on the mat", "他爱吃鱼", "北京 😀 5g", "one"]
    theirs = sentence_transformers.SentenceTransformer(str(run / "model"), device="cpu").encode(texts)
    ours = qkv.load(run / "model").embed(texts).vectors
    assert np.abs(theirs - ours).max() <= 1e-5


def refused(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], *more: object) -> str:
    run = tmp_path / "run"
    assert main(words(folder, run, *more)) == 2
    assert not run.exists()
    said = capfd.readouterr().err.splitlines()
    assert "Traceback" not in "\n".join(said)
    return said[-1]


def test_bad_input(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "empty.csv", "")
    write(tmp_path / "one.tsv", "the cat\t猫\n")
    write(tmp_path / "nan.csv", "sentence1,sentence2,score\nthe cat,猫,1\nthe dog,狗,nan\n")
    write(tmp_path / "same.csv", "sentence1,sentence2,score\n" + "the cat,猫,1\nthe dog,狗,1\n")
    flat = "".join(f"the cat {number},猫 {number},{int(number == 7)}\n" for number in range(60))
    write(tmp_path / "flat.csv", f"sentence1,sentence2,score\n{flat}")
    write(tmp_path / "equal.tsv", "the cat\t猫\n" * 60)
    for given, message in (
        (["--data", tmp_path / "equal.tsv"], "all 60 rows are the same"),
        (["--data", tmp_path / "flat.csv"], "has 60 rows: too few to hold some out"),
        (["--data", tmp_path / "gone.csv"], "There is no file"),
        (["--data", folder / "pairs.tsv", "--columns", "pears.tsv:1,2"], "no file of this run is called 'pears.tsv'"),
        (["--data", folder / "pairs.tsv", "--set", "dropout=2"], "dropout is a share from 0 to less than 1, not 2"),
        (["--data", folder / "pairs.tsv", "--set", "train.recompute=true"], "train.recompute does nothing here"),
        (["--data", tmp_path / "empty.csv"], "is empty"),
        (["--data", tmp_path / "one.tsv"], "too few to hold some out"),
        (["--data", tmp_path / "nan.csv"], "line 3: the score in 'score' is 'nan'"),
        (["--data", folder / "pairs.tsv", "--dev", tmp_path / "same.csv"], "all 2 scores are 1"),
        (["--data", folder / "texts.txt"], "only a teacher's vectors can be learned"),
        (["--parallel", folder / "pairs.tsv"], "--parallel is for a teacher's vectors"),
        (["--data", folder / "pairs.tsv", "--teacher", folder / "teacher"], "no file has texts for it to teach"),
        (["--data", folder / "pairs.tsv", "--columns", "anchor=1,positive=9"], "no column 9"),
        (["--data", folder / "pairs.tsv", "--set", "widths=[64]"], "64 is not between 0 and 32"),
        (["--data", folder / "pairs.tsv", "--set", "max_length=128"], "reads 64 tokens at most"),
        (["--data", folder / "pairs.tsv", "--epochs", 2], "both say how long to train"),
        (["--data", folder / "pairs.tsv", "--recipe", "gpt"], "is a recipe of qkv pretrain gpt"),
    ):
        assert message in refused(folder, tmp_path, capfd, *given), given
    assert main(["--lang", "zh", *words(folder, tmp_path / "run", "--data", tmp_path / "nan.csv")]) == 2
    assert "不是数。请改正" in (said := capfd.readouterr().err) and "classify" not in said
    assert main(["train", "embed", "--data", str(folder / "pairs.tsv")]) == 2
    assert "--out" in capfd.readouterr().err


def test_few_rows_are_not_proof(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of scored rows more are held out than the share, or none; the number of rows is said, in Chinese too."""
    lines = (folder / "scores.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    write(tmp_path / "few.csv", "".join(lines[:13]))
    write(tmp_path / "some.csv", "".join(lines[:61]))
    write(tmp_path / "pairs.csv", (folder / "pairs.tsv").read_text(encoding="utf-8").replace("\t", ","))
    files = [tmp_path / name for name in ("few.csv", "some.csv", "pairs.csv")]
    assert main(["--lang", "en", *words(folder, tmp_path / "run", "--data", *files, steps=2)]) == 0
    said = capfd.readouterr()
    assert "few.csv is not evaluated: of 12 rows" in said.err
    assert "few.csv (dev" not in said.out and "some.csv (dev, rows: 1" in said.out
    assert "rows are few to judge by" in said.out
    assert main(["--lang", "zh", *words(folder, tmp_path / "run", "--overwrite", "--data", *files, steps=2)]) == 0
    said = capfd.readouterr()
    assert "训练前：some.csv spearman" in said.err and ", pairs.csv mrr" in said.err
    assert "accuracy_at_1_back" not in said.err, "of each file its main figure"
    assert "对 .csv" not in said.err and "（95 %：" in said.out and "提示：只有 9" in said.out
    assert "few to judge by" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_rows_that_are_held_out_of_one_file_are_not_trained_on_in_another(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were, with a note. Also columns by a relative path; a file that is gone at the resume."""
    first, second = (tmp_path / name / "pairs.tsv" for name in ("a", "b"))
    for file in (first, second):
        file.parent.mkdir()
        write(file, (folder / "pairs.tsv").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    more = ["--data", "a/pairs.tsv", "b/pairs.tsv", "--columns", "a/pairs.tsv:1,2", "b/pairs.tsv:2,1"]
    assert main(words(folder, tmp_path / "run", *more, steps=2)) == 0
    said = capfd.readouterr().err
    assert "that share a text with held-out ones are dropped" in said and "are trained on" not in said
    assert read_lines(tmp_path / "run" / "faults.jsonl")
    record = (tmp_path / "run" / "model" / "qkv.json").read_text(encoding="utf-8")
    assert '"pairs.tsv:2,1"' in record and str(tmp_path) not in record
    (tmp_path / "run" / "result.json").unlink()
    first.unlink()
    assert main(["train", "embed", "--resume", str(tmp_path / "run")]) == 2
    assert "There is no file" in capfd.readouterr().err


def test_a_run_is_not_replaced_unless_asked(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    begin = words(folder, tmp_path / "run", "--data", folder / "pairs.tsv", steps=2)
    assert main(begin) == 0
    assert main(begin) == 2 and "holds a finished run" in capfd.readouterr().err
    assert main([*begin, "--overwrite"]) == 0
    assert main(["train", "embed", "--resume", str(tmp_path / "run")]) == 0
    assert "is finished" in capfd.readouterr().err
    assert main(["train", "translate", "--resume", str(tmp_path / "run")]) == 2
    assert "qkv train embed --resume" in capfd.readouterr().err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are those of Unix")
def test_killed_and_resumed_it_ends_with_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    forks = Forks(tmp_path)
    more = ["--teacher", folder / "teacher", "--parallel", folder / "pairs.tsv", "--data"]
    more += [folder / "texts.txt", folder / "triplets.jsonl", "--set", "dropout=0.1"]
    try:
        assert forks.run(*words(folder, tmp_path / "whole", *more, steps=30)) == 0
        run = tmp_path / "killed"
        begin = words(folder, run, *more, steps=30)
        killed = [
            forks.run(*(begin if not number else ["train", "embed", "--resume", run]), signal_at=moment)
            for number, moment in enumerate(
                [holds(run / "config.toml"), *(longer(run / "log.jsonl", lines) for lines in (3, 9))]
            )
        ]
        assert killed.count(-signal.SIGKILL) >= 2
        assert forks.run("train", "embed", "--resume", run) == 0
    finally:
        forks.close()
    for name in ("log.jsonl", "model/model.safetensors", "model/README.md"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    results = [json.loads((one / "result.json").read_text()) for one in (run, tmp_path / "whole")]
    assert {**results[0], "seconds": 0} == {**results[1], "seconds": 0}


def holds(file: Path) -> Callable[[], bool]:
    return file.exists


def longer(file: Path, lines: int) -> Callable[[], bool]:
    def found() -> bool:
        time.sleep(0.01)
        return file.exists() and file.read_bytes().count(b"\n") > lines

    return found
