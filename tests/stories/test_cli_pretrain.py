"""qkv check, prepare, show and pretrain, as a person and as a program calls them."""

import json
from pathlib import Path

import pytest

import qkv
from qkv.cli.main import main
from qkv.data.corpus.check import CorpusReport, check_corpus
from tests.stories.test_bad_input import fails
from tests.support.corpora import write_corpus
from tests.support.small_run import SETTINGS, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = [word for setting in (*SETTINGS, "train.steps=4") for word in ("--set", setting)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """corpus.txt, tokenizer/ and shards/."""
    folder = tmp_path_factory.mktemp("cli")
    write_corpus(folder / "corpus.txt", 120)
    make_tokenizer().save(folder / "tokenizer")
    assert main([str(word) for word in preparation(folder, folder / "shards")]) == 0
    return folder


def preparation(folder: Path, out: Path) -> list[object]:
    return ["prepare", folder / "corpus.txt", "-t", folder / "tokenizer", "-o", out, "--hold-out", 0.05]


def done(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    return capsys.readouterr()


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_text("The cat sat. 猫坐着。\nA\ufffdb.\n\nCafÃ© closed.\nIt was.\n", encoding="utf-8")
    out, err = done(capsys, "check", file, code=1)
    assert err == ""
    assert "documents          2" in out and "Chinese" in out and f"1, {file.stat().st_size} bytes of text" in out
    assert "U+FFFD, the replacement for lost characters: 1" in out
    assert f"  {file}:2: in " in out and f"  {file}:4: in " in out
    document = json.loads(done(capsys, "check", file, "--json", code=1)[0])
    assert document == check_corpus(file, named=3).to_dict()
    assert list(document) == list(CorpusReport.__dataclass_fields__)
    assert document["findings"][0]["line"] == 2


def test_check_names_some_and_counts_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_text("好\ufffd。\n" * 9, encoding="utf-8")
    out, _ = done(capsys, "check", file, "-n", 2, code=1)
    assert f"{file}:2: " in out and f"{file}:3: " not in out and "… and 7 more" in out
    assert "note: one document only: negatives must come from the corpus" in out
    write_corpus(file, 3)
    assert "No errors found." in done(capsys, "check", file)[0]
    (tmp_path / "rows.jsonl").write_text('{"body": "好。"}\n')
    assert json.loads(done(capsys, "check", tmp_path / "rows.jsonl", "--field", "body", "--json")[0])["documents"] == 1


def test_check_of_a_file_that_is_damaged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"no gzip")
    out, _ = done(capsys, "check", tmp_path / "a.txt.gz", code=1)
    assert "files that cannot be read to the end: 1" in out and "a.txt.gz: " in out


def test_prepare(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    out, err = done(capsys, *preparation(folder, tmp_path / "shards"))
    assert out == "" and "119 documents" in err and "6 documents held out" in err and "sample.txt" in err
    again, quiet = done(capsys, *preparation(folder, tmp_path / "shards"), "--json")
    assert quiet == ""
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text(encoding="utf-8"))
    assert json.loads(again) == manifest
    words = preparation(folder, tmp_path / "shards")
    assert "hold_out" in fails(capsys, *words, "--hold-out", 0.2)
    assert done(capsys, *words, "--hold-out", 0.2, "--overwrite")[1].count("held out") == 1


def test_show(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    out, err = done(capsys, "show", folder / "shards", "-n", 2, "--max-length", 32)
    assert err == "" and out.startswith("1  ") and "\n2  " in out and "[CLS]" in out
    assert len(json.loads(done(capsys, "show", folder / "shards", "--json")[0])["instances"]) == 3


def test_pretrain(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    out, err = done(capsys, "pretrain", "bert", "--data", folder / "shards", "--out", run, *WORDS)
    assert out == ""
    assert f"{run / 'model'}: the model, for qkv and transformers" in err and "report.html" in err
    assert "step 4/4  loss " in err and "step 3: masked_loss " in err
    assert qkv.load(run / "model").config.layers == 1

    out, err = done(capsys, "pretrain", "--resume", run)
    assert (out, err) == ("", f"{run} is finished: 4 steps. Its model is {run / 'model'}.\n")
    document = json.loads(done(capsys, "pretrain", "--resume", run, "--json")[0])
    assert list(document) == ["run", "finished", "step", "steps", "model", "report", "evaluation"]
    assert (document["finished"], document["step"], document["steps"]) == (True, 4, 4)
    assert document["model"] == str(run / "model") and document["evaluation"]["masked_count"] > 0


def test_pretrain_with_a_recipe_and_flags(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("rows = 4\n[pairs]\nnegatives = 'none'\nmax_length = 16\n[train]\nsteps = 1\n")
    words = ["--data", folder / "shards", "--out", tmp_path / "run", "--recipe", recipe, "--size", "tiny"]
    out, _ = done(capsys, "pretrain", "bert", *words, "--device", "cpu", "--set", "model.layers=1", "--json")
    assert json.loads(out)["steps"] == 1
    config = qkv.load(tmp_path / "run" / "model").config
    assert (config.layers, config.width) == (1, 128)


PREPARE = ["prepare", "FOLDER/corpus.txt", "-o", "OUT", "-t", "FOLDER/tokenizer"]
TRAIN = ["pretrain", "bert", "--data", "FOLDER/shards", "--out", "OUT"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "FOLDER/corpus.text"], "corpus.text. Did you mean 'corpus.txt'?"),
        (["check"], "Give a corpus or labelled files"),
        (["check", "FOLDER/corpus.txt", "-n", "-1"], "-n must be 0 or more"),
        (["check", "FOLDER/corpus.txt", "--filed", "x"], "There is no option --filed. Did you mean '--field'?"),
        (["prepare", "FOLDER/corpus.txt", "-o", "OUT"], "Missing option '--tokenizer'"),
        (["prepare", "FOLDER/corpus.txt", "-o", "OUT", "-t", "FOLDER/tokeniser"], "Did you mean 'tokenizer'?"),
        (["prepare", "FOLDER/nothing.txt", "-o", "OUT", "-t", "FOLDER/tokenizer"], "nothing.txt"),
        ([*PREPARE, "--workers", "0"], "at least 1"),
        ([*PREPARE, "--hold-out", "2"], "hold_out is 2.0"),
        (["prepare", "FOLDER/corpus.txt", "-o", "FOLDER/corpus.txt", "-t", "FOLDER/tokenizer"], "is a file"),
        (["show", "FOLDER/shard"], "Did you mean 'shards'?"),
        (["show", "FOLDER"], "is not a prepared corpus"),
        (["pretrain"], "qkv pretrain bert|word2vec|elmo|nnlm|rnnlm|gpt --data SHARDS --out RUN"),
        (["pretrain", "brt", "--data", "FOLDER/shards", "--out", "OUT"], "Did you mean 'bert'?"),
        (["pretrain", "bert", "--data", "FOLDER/shards"], "with --out"),
        (["pretrain", "bert", "--data", "FOLDER/shard", "--out", "OUT"], "Did you mean 'shards'?"),
        ([*TRAIN, "--minutes", "0"], "minutes must be more than 0"),
        ([*TRAIN, "--size", "minni"], "Did you mean 'mini'?"),
        ([*TRAIN, "--recipe", "FOLDER/x.toml"], "no such file"),
        ([*TRAIN, "--set", "train.lr"], "write key=value"),
        ([*TRAIN, "--set", "train.setps=1"], "Did you mean 'steps'?"),
        (["pretrain", "bert", "--data", "FOLDER/shards", "--out", "FOLDER"], "is not an empty folder"),
        ([*TRAIN, "--init", "FOLDER/nil"], "There is no folder"),
        (["pretrain", "--resume", "FOLDER"], "is not a run: it has no config.toml"),
        (["pretrain", "--resume", "FOLDER", "--minutes", "0", "--set", "rows=1"], "leave out --minutes, --set"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    given = [word.replace("FOLDER", str(folder)).replace("OUT", str(tmp_path / "out")) for word in words]
    assert message in fails(capsys, *given)
    assert not (tmp_path / "out" / "config.toml").exists()
