"""Whatever a person gets wrong: one clear message, exit code 2, no traceback, nothing half written."""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from qkv.cli.main import main
from tests.support.folders import make_folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("folders") / "tiny")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "models" / "tiny"))


@pytest.fixture(autouse=True)
def _no_model_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QKV_MODEL", raising=False)


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that must fail as a user expects it, and return its one message."""
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("error:") == 1 and err.endswith("\n")
    assert "Traceback" not in err and len(err.splitlines()) <= 4
    return err.removeprefix("error: ")


# Folders


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_with_a_file_missing(capsys: pytest.CaptureFixture[str], folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in fails(capsys, "fill", "[MASK]", "--model", folder)
    assert name in fails(capsys, "info", folder)


def test_a_folder_without_a_tokenizer(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    message = fails(capsys, "embed", "a", "b", "--model", folder)
    assert "tokenizer.json" in message and "vocab.txt" in message


@pytest.mark.parametrize("keep", [0, 4, 200, -1000, -1])
def test_a_truncated_weight_file(capsys: pytest.CaptureFixture[str], folder: Path, keep: int) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:keep])
    assert "model.safetensors" in fails(capsys, "embed", "a", "--model", folder)


def test_a_weight_that_is_missing_or_too_many(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    lost = next(name for name in tensors if name.endswith("intermediate.dense.weight"))
    save_file({name: tensor for name, tensor in tensors.items() if name != lost}, file)
    assert lost.removeprefix("bert.") in fails(capsys, "fill", "[MASK]", "--model", folder)
    save_file({**tensors, "surprise": np.zeros(3, np.float32)}, file)
    assert "surprise" in fails(capsys, "fill", "[MASK]", "--model", folder)


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")


def test_a_config_of_another_architecture(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    change_config(folder, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    message = fails(capsys, "fill", "[MASK]", "--model", folder)
    assert "gpt2" in message.lower()
    assert "gpt2" in fails(capsys, "info", folder).lower()


@pytest.mark.parametrize(
    ("name", "value"), [("hidden_act", ["gelu"]), ("architectures", [["x"]]), ("type_vocab_size", "two")]
)
def test_a_config_of_odd_values(capsys: pytest.CaptureFixture[str], folder: Path, name: str, value: object) -> None:
    change_config(folder, **{name: value})
    assert "config.json" in fails(capsys, "info", folder)


def test_a_config_that_is_not_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ', encoding="utf-8")
    assert "config.json" in fails(capsys, "info", folder)


def test_a_vocabulary_of_the_wrong_size(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("many\nmore\n")
    rows = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    assert f"{rows}" in fails(capsys, "fill", "[MASK]", "--model", folder)


def test_a_path_that_does_not_exist(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    wrong = folder.parent / "tinny"
    for words in (["fill", "[MASK]", "-m"], ["embed", "a", "-m"], ["info"], ["tokenize", "a", "-m"]):
        assert "Did you mean 'tiny'?" in fails(capsys, *words, wrong)
    assert "Did you mean 'tiny'?" in fails(capsys, "convert", wrong, folder.parent / "new")
    assert not (folder.parent / "new").exists()


def test_a_name_of_the_hub_is_not_looked_up_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hf:google-bert/bert-base-chinese" in fails(capsys, "info", "google-bert/bert-base-chinese")


def test_an_architecture_without_the_head(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain = make_folder(tmp_path / "plain", "BertModel")
    message = fails(capsys, "fill", "[MASK]", "--model", plain)
    assert "BertModel" in message and "embed texts" in message and "BertForMaskedLM" in message


# Texts


def test_a_text_without_a_blank(capsys: pytest.CaptureFixture[str], sound: Path) -> None:
    assert "巴黎是[MASK]国的首都" in fails(capsys, "fill", "the cat", "--model", sound)


@pytest.mark.parametrize("text", ["", "  ", "\u3000\n", "\u200b"])
def test_an_empty_text(capsys: pytest.CaptureFixture[str], sound: Path, text: str) -> None:
    assert "The text is empty" in fails(capsys, "fill", text, "--model", sound)
    assert "Text 2 is empty" in fails(capsys, "embed", "a", text, "--model", sound)
    assert "The text is empty" in fails(capsys, "attention", text, "--model", sound)
    assert "The second text is empty" in fails(capsys, "attention", "a", "--pair", text, "--model", sound)


def test_a_text_longer_than_the_model(capsys: pytest.CaptureFixture[str], sound: Path) -> None:
    long = "the cat " * 300
    message = fails(capsys, "fill", long + "[MASK]", "--model", sound)
    assert "603 tokens" in message and "64 at once" in message
    assert "602 tokens" in fails(capsys, "attention", long, "--model", sound)
    assert main(["embed", long, "--model", str(sound), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_windows"] > 1


# Files


def test_an_empty_line_is_named(capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "v.npy"
    file.write_text("a cat\n猫\n\na dog\n", encoding="utf-8")
    assert f"{file}, line 3 is empty" in fails(capsys, "embed", "-f", file, "-o", out, "-m", sound)
    file.write_text("a cat\n\u200b\n", encoding="utf-8")
    assert f"{file}, line 2 is empty" in fails(capsys, "embed", "-f", file, "-o", out, "-m", sound)
    file.write_text("", encoding="utf-8")
    assert "no text to embed" in fails(capsys, "embed", "-f", file, "-o", out, "-m", sound)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n\n{"text": "b"}\n\n{"text": ""}\n', encoding="utf-8")
    assert f"{rows}, line 5 is empty" in fails(capsys, "embed", "-f", rows, "-o", out, "-m", sound)


def test_a_file_that_is_not_utf8(
    capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "v.npy"
    file.write_bytes("一只猫\n".encode() + "他欠我钱,我不是\n".encode("gb18030"))  # two encodings
    for words in (
        ["embed", "-f", file, "-o", out, "-m", sound],
        ["tokenizer", "train", file, "--out", tmp_path / "new"],
    ):
        message = fails(capsys, *words)
        assert f"{file}, line 2" in message and "UTF-8" in message
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
    for words in (["embed", "-", "-m", sound], ["fill", "-", "-m", sound]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("他欠".encode("gb18030")), encoding="utf-8"))
        assert "Standard input" in fails(capsys, *words)


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").touch()
    for words in (["embed", "-m", sound, "-f"], ["tokenizer", "train", "--out", tmp_path / "new"]):
        assert "Did you mean 'texts.txt'?" in fails(capsys, *words, tmp_path / "text.txt")
    assert not (tmp_path / "new").exists()


def test_a_fault_late_in_a_file_leaves_the_old_result(
    capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path
) -> None:
    (tmp_path / "v.npy").write_bytes(b"old")
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n', encoding="utf-8")
    message = fails(capsys, "embed", "-f", tmp_path / "t.jsonl", "-o", tmp_path / "v.npy", "-m", sound)
    assert "line 2" in message and "Did you mean 'txt'" in message
    assert (tmp_path / "v.npy").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_where_one_may_not_write(capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "cannot be written" in fails(capsys, "embed", "a", "-o", locked / "v.npy", "-m", sound)
    assert "cannot be written" in fails(capsys, "attention", "a", "-o", locked / "a.svg", "-m", sound)


# Words of the command line


def given(*words: str) -> Callable[[Path], list[str]]:
    return lambda folder: [word.replace("FOLDER", str(folder)) for word in words]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (given("fil", "x"), "Did you mean 'fill'?"),
        (given("fill", "[MASK]", "--modle", "x"), "Did you mean '--model'?"),
        (given("fill"), "qkv fill --help"),
        (given("tokenizer"), "qkv tokenizer --help"),
        (given("fill", "[MASK]", "-k", "many", "-m", "FOLDER"), "-k"),
        (given("fill", "[MASK]", "-k", "0", "-m", "FOLDER"), "k must be 1 or more"),
        (given("embed", "-m", "FOLDER"), "--file"),
        (given("embed", "a", "-f", "b.txt", "-m", "FOLDER"), "one of the two"),
        (given("embed", "a", "--pooling", "max", "-m", "FOLDER"), "Known: mean, cls"),
        (given("embed", "a", "--out", "v.nyp", "-m", "FOLDER"), "Did you mean '.npy'?"),
        (given("embed", *["a"] * 13, "-m", "FOLDER"), "--out vectors.npy"),
        (given("embed", "a", "--device", "cuda:77", "-m", "FOLDER"), "'cpu'"),
        (given("embed", "a", "--device", "meta", "-m", "FOLDER"), "Use auto, cpu, cuda, cuda:0 or mps"),
        (given("embed", "a", "--dtype", "half", "-m", "FOLDER"), "Known: float32, bfloat16, float16"),
        (given("embed", "a", "--threads", "0", "-m", "FOLDER"), "threads"),
        (given("attention", "a", "--layer", "2", "-m", "FOLDER"), "layers 0 … 1"),
        (given("attention", "a", "--head", "-1", "-m", "FOLDER"), "heads 0 … 3"),
        (given("attention", "a", "--token", "b", "-m", "FOLDER"), "no token 'b'"),
        (given("attention", "a", "--token", "b", "--json", "-m", "FOLDER"), "no token 'b'"),
        (given("attention", "a", "--token", "b", "--out", "a.json", "-m", "FOLDER"), "no token 'b'"),
        (given("attention", "a", "--lang", "fr", "-m", "FOLDER"), "Known: en, zh"),
        (given("attention", "a", "--out", "a.png", "-m", "FOLDER"), ".svg or .html or .json"),
        (given("demo", "finetone"), "Did you mean 'finetune'?"),
        (given("convert", "FOLDER", "new", "--dtype", "float61"), "Did you mean 'float16'?"),
        (given("convert", "FOLDER", "new", "--architecture", "BertForMaskLM"), "BertForMaskedLM"),
        (given("convert", "FOLDER", "new", "--architecture", "BertForQuestionAnswering"), "span"),
        (given("tokenizer", "train", "FOLDER/vocab.txt", "--out", "new", "--kind", "words"), "wordpiece"),
        (given("tokenizer", "train", "FOLDER/vocab.txt", "--out", "new", "--vocab-size", "3"), "special tokens"),
        (given("tokenizer", "train", "FOLDER/vocab.txt", "--out", "new", "--min-frequency", "0"), "at least 1"),
        (given("tokenizer", "train", "FOLDER/vocab.txt", "--out", "FOLDER"), "it is a model folder"),
        (given("tokenizer", "train", "no.txt", "--out", "FOLDER"), "it is a model folder"),
    ],
)
def test_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
    sound: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: Callable[[Path], list[str]],
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert part in fails(capsys, *words(sound))
    assert not any(tmp_path.iterdir()), "nothing is half written"


@pytest.mark.parametrize("words", [["--help"], ["tokenize", "hello"], ["check", "FILE"], ["info", "qkv-mini"]])
def test_standard_output_that_takes_nothing(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\na,x\nb,y\n")
    run = [sys.executable, "-c", "import sys; from qkv.cli.main import main; sys.exit(main())"]
    run += [str(file) if word == "FILE" else word for word in words]
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "Standard output cannot be written: No space left" in done.stderr
    closed = shlex.join(run) + " >&-"
    done = subprocess.run(closed, shell=True, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and "Standard output is closed" in done.stderr


@pytest.mark.parametrize("verb", ["embed", "tokenize", "fill"])
def test_standard_input_that_is_closed(
    capsys: pytest.CaptureFixture[str], sound: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert "Standard input is closed" in fails(capsys, verb, "-", "-m", sound)
