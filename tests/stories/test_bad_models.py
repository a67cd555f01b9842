"""Folders that are damaged or absurd: one sentence and exit code 2, in bounded time and memory."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
from qkv.cli.main import main
from qkv.data.labelled.examples import TextExample
from qkv.models.folders.weights import check_sizes
from qkv.models.word2vec.files import write_vector_file
from tests.golden.golden import MODELS

DEEP = "[" * 100_000
ASK = {
    "transformer": ["translate", "{}", "1 2"],
    "seq2seq": ["translate", "{}", "1 2"],
    "rnnlm": ["generate", "{}", "the"],
    "cnn": ["predict", "{}", "the cat"],
}
SIZES = [
    ("elmo", "layers"),
    ("elmo", "width"),
    ("elmo", "highways"),
    ("elmo", "filters"),
    ("rnnlm", "layers"),
    ("rnnlm", "width"),
    ("nnlm", "hidden_width"),
    ("cnn", "inner_width"),
    ("cnn", "layers"),
    ("transformer", "encoder_layers"),
    ("transformer", "inner_width"),
    ("seq2seq", "layers"),
    ("seq2seq", "cell_width"),
    ("gpt", "n_layer"),
    ("gpt", "n_embd"),
    ("word2vec", "width"),
    ("bert", "num_hidden_layers"),
    ("bert", "intermediate_size"),
]


def ask(name: str, folder: Path) -> list[str]:
    return [word.format(folder) for word in ASK.get(name, ["embed", "the cat", "--model", "{}"])]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and "Traceback" not in said
    return said


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_sizes_that_the_weights_do_not_have(
    name: str, size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    shutil.copytree(MODELS / name, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    huge = [10**9] if isinstance(config.get(size), list) else 10**9
    # of an ELMo the cells must be wider than what they are projected to
    more = {"cell_width": 10**9 + 1} if (name, size) == ("elmo", "width") else {}
    (folder / "config.json").write_text(json.dumps(config | {size: huge} | more), "utf-8")
    for words in (["info", str(folder)], ask(name, folder)):
        assert size in refused(words, capsys) or more


@pytest.mark.parametrize("name", ["cnn", "rnn"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("embedding_width", -1),
        ("inner_width", -1),
        ("inner_width", 0),
        ("kernels", [-1]),
        ("kernels", []),
        ("dropout", -1),
        ("dropout", float("nan")),
        ("head_dropout", 5),
    ],
)
def test_values_that_no_encoder_has(
    name: str, field: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    shutil.copytree(MODELS / name, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {field: value}), "utf-8")
    said = refused(ask("cnn", folder), capsys)
    assert field in said and "config.json" in said


def test_sizes_that_do_not_matter_are_left_alone() -> None:
    check_sizes({"max_length": 10**9, "kind": "lookup", "inner_width": 128, "tied": True}, {}, Path("config.json"))


@pytest.mark.parametrize("name", ["bert", "elmo", "gpt", "transformer", "seq2seq", "cnn", "word2vec", "nnlm", "rnnlm"])
@pytest.mark.parametrize("file", ["config.json", "qkv.json", "model.safetensors"])
def test_json_that_nests_too_deeply(name: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / name
    shutil.copytree(MODELS / name, folder)
    if not (folder / file).exists():
        pytest.skip(f"{name} has no {file}")
    header = DEEP.encode()
    is_json = file.endswith(".json")
    (folder / file).write_bytes(header if is_json else len(header).to_bytes(8, "little") + header)
    for words in (["info", str(folder)], ask(name, folder)):
        assert file in refused(words, capsys)


TEXT = ["the cat", "--model", "{}"]
FILE = "text,label\nthe cat,a\na dog,b\n"
LOADING = {
    "bert": [
        ["fill", "the [MASK] sat", "--model", "{}"],
        ["next", "the cat", "a dog", "--model", "{}"],
        ["embed", *TEXT],
        ["attention", *TEXT],
        ["search", "index", "{}.csv", "--out", "{}.new", "--model", "{}"],
        ["finetune", "classify", "--model", "{}", "--train", "{}.csv", "--out", "{}.new"],
        ["train", "embed", "--model", "{}", "--data", "{}.pairs.csv", "--out", "{}.new"],
        ["convert", "{}", "{}.new"],
        ["look", "{}", "--save", "{}.html"],
    ],
    "classify": [["predict", "{}", "the cat"], ["evaluate", "{}", "{}.csv"]],
    "tag": [["predict", "{}", "the cat"]],
    "answer": [["predict", "{}", "the cat", "--question", "who"]],
    "gpt": [["generate", "{}", "the"], ["embed", *TEXT], ["look", "{}", "--save", "{}.html"]],
    "transformer": [["translate", "{}", "1 2"], ["look", "{}", "--save", "{}.html"]],
    "seq2seq": [["translate", "{}", "1 2"], ["look", "{}", "--save", "{}.html"]],
    "word2vec": [
        ["similar", "cat", "--model", "{}"],
        ["embed", *TEXT],
        ["finetune", "classify", "--model", "{}", "--train", "{}.csv", "--out", "{}.new"],
        ["convert", "{}", "{}.txt"],
        ["look", "{}", "--save", "{}.html"],
    ],
    "nnlm": [["similar", "cat", "--model", "{}"], ["look", "{}", "--save", "{}.html"]],
    "rnnlm": [["generate", "{}", "the"], ["embed", *TEXT]],
    "elmo": [["embed", *TEXT], ["look", "{}", "--save", "{}.html"]],
    "cnn": [["predict", "{}", "the cat"]],
}


@pytest.mark.parametrize("name", LOADING)
def test_every_verb_says_that_weights_are_not_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    shutil.copytree(MODELS / name, folder)
    weights = load_file(folder / "model.safetensors")
    broken = max(weights, key=lambda one: weights[one].numel())
    weights[broken].view(-1)[-3] = float("nan")
    weights[broken].view(-1)[-5] = float("inf")
    save_file(weights, folder / "model.safetensors")
    (tmp_path / f"{name}.csv").write_text(FILE, "utf-8")
    (tmp_path / f"{name}.pairs.csv").write_text("anchor,positive\n" + "the cat,a cat\na dog,the dog\n" * 9, "utf-8")
    for words in LOADING[name]:
        assert main([word.format(folder) for word in words]) == 2
        said = capsys.readouterr().err.splitlines()[-1]  # some say first how they read a file
        assert said.startswith(f"error: {folder / 'model.safetensors'}: 2 of the"), words
        assert f"weights in {broken} are NaN or infinite" in said
    assert not [one for one in tmp_path.iterdir() if one.suffix in (".new", ".txt", ".html")]


def test_pretraining_from_weights_that_are_not_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(MODELS / "bert", tmp_path / "bert")
    weights = {
        name: tensor * float("nan") for name, tensor in load_file(tmp_path / "bert" / "model.safetensors").items()
    }
    save_file(weights, tmp_path / "bert" / "model.safetensors")
    (tmp_path / "texts.txt").write_text("the cat sat\nthe dog\n\na cat\n" * 9, "utf-8")
    shards = str(tmp_path / "shards")
    assert main(["prepare", str(tmp_path / "texts.txt"), "--tokenizer", str(tmp_path / "bert"), "--out", shards]) == 0
    capsys.readouterr()
    words = ["pretrain", "bert", "--data", shards, "--init", str(tmp_path / "bert"), "--out", str(tmp_path / "run")]
    assert "are NaN or infinite" in refused(words, capsys)


@pytest.mark.parametrize("suffix", [".txt", ".bin"])
def test_a_file_of_vectors_that_are_not_numbers(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"vectors{suffix}"
    write_vector_file(file, ["cat", "dog"], torch.tensor([[1.0, 2.0], [float("nan"), 1.0]]))
    said = refused(["similar", "cat", "--model", str(file)], capsys)
    assert str(file) in said and "'dog'" in said


@pytest.mark.parametrize("words", [["similar", "\udcff\udcfe"], ["analogy", "the", "\udcff", "cat"]])
def test_words_that_are_not_utf8(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "the byte 0xFF" in refused([*words, "--model", str(MODELS / "word2vec")], capsys)


def test_a_long_line_is_tokenized_part_by_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the cat 北京 " * 400
    assert main(["tokenize", text, "--pair", "a cat", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("qkv.text.tokenizer.LONG", 100)
    assert main(["tokenize", text, "--pair", "a cat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == whole and whole["n_tokens"] == len(whole["tokens"]) == 1605
    assert main(["tokenize", text]) == 0
    assert capsys.readouterr().out.endswith("\n1602 tokens\n")


def test_long_texts_report_their_windows() -> None:
    seen: list[tuple[int, int]] = []
    model = qkv.load(MODELS / "classify")
    list(model.embed_stream(["the cat " * 12_000], watch=lambda done, total: seen.append((done, total))))
    done = [one for one, _ in seen]
    assert len(done) > 1 and done == sorted(done) and done[-1] == seen[-1][1]
    seen.clear()
    examples = [TextExample("the cat " * 12_000)]
    list(model.answer_stream(examples, watch=lambda done, total: seen.append((done, total))))
    assert seen[-1][0] == seen[-1][1] > 32
    seen.clear()
    list(model.embed_stream(["the cat"] * 50, watch=lambda done, total: seen.append((done, total))))
    assert not seen, "short texts need no such lines"
