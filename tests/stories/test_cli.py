"""Every verb, as a person and as a program calls it."""

import inspect
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import qkv
from qkv.api.model import Model
from qkv.cli.demo import demo
from qkv.cli.main import NOUNS, VERBS, main
from qkv.cli.terminal import progress
from qkv.cli.tokenize import train_tokenizer
from qkv.report.attention import AttentionMap
from qkv.text.tokenizer import Tokenizer
from tests.support.below_readers import make_elmo
from tests.support.folders import TOKENS, make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.task_folders import task_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_folder(tmp_path_factory.mktemp("folders") / "tiny"))


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints; it must succeed and keep quiet on standard error."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    first = said(capsys, "--help")
    assert "qkv demo\n" in first and "[MASK]" in first and "巴黎" in first
    for verb in [*VERBS, *NOUNS]:
        assert f"\n  {verb} " in first
        text = said(capsys, verb, "--help")
        if verb in VERBS:
            assert f"\n  qkv {verb}" in text, "a verb's help has commands to copy"
    assert said(capsys) == first, "no words, no scolding"
    assert "qkv tokenizer train corpus.txt" in said(capsys, "tokenizer", "train", "--help")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from qkv.cli.main import main; main(['--help']); main(['embed', '--help']);"
        "print([name for name in ('torch', 'numpy', 'rich', 'tokenizers') if name in sys.modules],"
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("verb", ["check", "tokenize", "info", "info shards"])
def test_verbs_that_compute_nothing_do_not_import_torch(verb: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("A first line. 一句话。\n\nAnother document.\n" * 9, encoding="utf-8")
    (tmp_path / "labels.csv").write_text("text,label\ngood,a\nbad,b\n", encoding="utf-8")
    Tokenizer.train(["a b c 一句话"], vocabulary_size=40, min_frequency=1).save(tmp_path / "tokenizer")
    prepare = "main(['prepare', 'corpus.txt', '--tokenizer', 'tokenizer', '--out', 'shards', '--workers', '1']);"
    words = {
        "check": "main(['check', 'corpus.txt']); main(['check', 'labels.csv'])",
        "tokenize": "main(['tokenize', 'a b']); main(['tokenizer', 'train', 'corpus.txt', '--out', 'new'])",
        "info": "main(['info', 'tokenizer']); main(['info', 'tokenizer', '--json'])",
        "info shards": f"{prepare} main(['info', 'shards'])",
    }
    code = f"import sys; from qkv.cli.main import main; {words[verb]}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version").startswith("qkv")


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_a_pipe_carries_utf8_whatever_the_machine_prefers(folder: str, encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "qkv", "tokenize", "猫😀", "-m", folder]
    done = subprocess.run(command, capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "😀" in done.stdout.decode("utf-8")
    done = subprocess.run([*command, "--json", "--pair", os.fsdecode(b"\xff")], capture_output=True, env=env)
    assert (done.returncode, done.stdout) == (2, b"") and "the byte 0xFF" in done.stderr.decode("utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="no such terminals on Windows")
def test_a_poor_terminal_gets_what_it_can_show(folder: str) -> None:
    import pty

    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "qkv", "tokenize", "猫 the", "-m", folder]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=env)
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "猫".encode() not in shown and b"?" in shown and b"the" in shown


def test_notes_about_a_folder_stand_beside_the_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = str(make_folder(tmp_path / "odd", vocabulary_size=len(TOKENS) + 3))
    commands = [["fill", "[MASK]", "-m", odd], ["embed", "a", "-m", odd], ["attention", "a", "-m", odd]]
    for words in [*commands, ["convert", odd, str(tmp_path / "new")]]:
        assert main([*words, "--json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out) and f"note: the token table has {len(TOKENS) + 3} rows" in err
    assert "rows" in said(capsys, "info", odd)


def test_fill(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    text = "他欠[MASK]100万, the [MASK]!"
    data = json.loads(said(capsys, "fill", text, "--model", folder, "-k", "2", "--json"))
    expected = qkv.load(folder).fill(text, 2)
    assert data["text"] == text and data["n_tokens"] == expected[0].n_tokens and data["n_windows"] == 1
    assert [text[blank["start"] : blank["end"]] for blank in data["blanks"]] == ["[MASK]", "[MASK]"]
    for blank, known in zip(data["blanks"], expected, strict=True):
        assert [one["token"] for one in blank["candidates"]] == [one.token for one in known.candidates]
        assert [one["probability"] for one in blank["candidates"]] == pytest.approx(
            [one.probability for one in known.candidates], abs=1e-6
        )
    shown = said(capsys, "fill", text, "--model", folder, "-k", "2")
    assert f"他欠{expected[0].best.text}100万" in shown and "blank at 2" in shown and "%" in shown


def test_fill_from_standard_input_and_environment(
    capsys: pytest.CaptureFixture[str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_MODEL", folder)
    type_in(monkeypatch, "我[MASK]你\n".encode())
    assert json.loads(said(capsys, "fill", "-", "--json"))["text"] == "我[MASK]你"


def test_embed_on_the_terminal(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    assert main(["embed", "a cat", "a dog", "猫", "--model", folder]) == 0
    shown, beside = capsys.readouterr()
    assert "does not say that it compares sentences" in beside and beside.count("\n") == 1
    similarity = qkv.load(folder).embed(["a cat", "a dog", "猫"]).similarity()
    assert f"{similarity[0, 1]:.2f}" in shown and "2  a dog" in shown
    assert said(capsys, "embed", "a cat", "--model", folder).startswith("32 numbers: ")
    assert main(["embed", "the cat " * 100, "--model", folder]) == 0
    assert "text 1 is 202 tokens long and was split into" in capsys.readouterr().err


def test_embed_as_json_lines(capsys: pytest.CaptureFixture[str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "a cat\r\n猫\n".encode())
    lines = [json.loads(line) for line in said(capsys, "embed", "-", "--json", "-m", folder).splitlines()]
    assert [line["text"] for line in lines] == ["a cat", "猫"]
    expected = qkv.load(folder).embed(["a cat", "猫"])
    np.testing.assert_allclose([line["vector"] for line in lines], expected.vectors, atol=2e-6)
    assert [line["n_tokens"] for line in lines] == expected.n_tokens.tolist()


@pytest.mark.parametrize("ending", [".npy", ".jsonl", ".tsv"])
def test_embed_files(capsys: pytest.CaptureFixture[str], folder: str, tmp_path: Path, ending: str) -> None:
    (tmp_path / "a.txt").write_text("a cat\n猫\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "the street"}\n', encoding="utf-8")
    out = tmp_path / f"vectors{ending}"
    words = ["embed", "-f", str(tmp_path / "a.txt"), "-f", str(tmp_path / "b.jsonl"), "-m", folder, "--normalize"]
    facts = json.loads(said(capsys, *words, "-o", str(out), "--json"))
    assert (facts["out"], facts["n_texts"], facts["n_windows"], facts["width"]) == (str(out), 3, 3, 32)
    if ending == ".npy":
        found = np.load(out)
    elif ending == ".tsv":
        found = np.loadtxt(out, delimiter="\t", dtype=np.float32)
    else:
        found = np.array([json.loads(line)["vector"] for line in out.read_text(encoding="utf-8").splitlines()])
    expected = qkv.load(folder).embed(["a cat", "猫", "the street"], normalize=True).vectors
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert main([*words, "-o", str(out)]) == 0
    assert "3 texts" in capsys.readouterr().err


def test_embed_in_half_precision(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    words = ["embed", "a cat", "--model", folder, "--json"]
    half, whole = (json.loads(said(capsys, *words, *more))["vector"] for more in (["--dtype", "bfloat16"], []))
    assert half != whole and np.abs(np.array(half) - whole).max() < 0.1


def test_embed_can_leave_out_empty_lines(capsys: pytest.CaptureFixture[str], folder: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a cat\n\n \n猫\n\u200b\n", encoding="utf-8")
    words = ["embed", "-f", str(tmp_path / "a.txt"), "-m", folder, "--json", "--skip-empty"]
    assert len(said(capsys, *words).splitlines()) == 2
    assert json.loads(said(capsys, *words, "--out", str(tmp_path / "v.npy")))["n_texts"] == 2


def test_tokenize(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    text, pair = "Unhappyness 😀他☃", "the cat"
    data = json.loads(said(capsys, "tokenize", text, "--pair", pair, "--model", folder, "--json"))
    assert data["n_tokens"] == len(data["tokens"])
    for token in data["tokens"]:
        assert token["text"] == (text, pair)[token["segment"]][token["start"] : token["end"]]
    assert [token["token"] for token in data["tokens"]][:5] == ["[CLS]", "un", "##happy", "##ness", "😀"]
    shown = said(capsys, "tokenize", text, "--tokenizer", folder)
    assert "[CLS]" in shown and f"{len(qkv.load(folder).tokenizer.encode(text).ids)} tokens" in shown


def test_tokenize_steps(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    steps = json.loads(said(capsys, "tokenize", "Dogs 猫", "--steps", "--model", folder, "--json"))["steps"]
    assert steps[0]["step"] == "text" and steps[-1]["parts"] == ["dog", "##s", "猫"]
    assert "##s" in said(capsys, "tokenize", "Dogs 猫", "--steps", "--model", folder)
    words = ["tokenize", "Dogs 猫", "--pair", "Cats", "--steps", "--model", folder]
    both = json.loads(said(capsys, *words, "--json"))
    assert both["steps"] == steps and both["pair"] == "Cats" and both["pair_steps"][-1]["parts"] == ["cat", "##s"]
    shown = said(capsys, *words)
    assert "the second text gives" in shown and "cat" in shown and "猫" in shown
    chinese = said(capsys, "--lang", "zh", *words[:2], "--steps", "--model", folder)
    assert "切成词元" in chinese and not re.search("clean|fold|pieces", chinese)


@pytest.mark.parametrize("kind", ["wordpiece", "word", "character"])
def test_tokenizer_train(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    (tmp_path / "corpus.txt").write_text("The cat sat. 猫坐着。\n" * 20, encoding="utf-8")
    words = ["tokenizer", "train", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "new"), "--kind", kind]
    facts = json.loads(said(capsys, *words, "--vocab-size", "60", "--json"))
    assert (facts["kind"], facts["n_texts"]) == (kind, 20)
    assert qkv.Tokenizer.load(tmp_path / "new").size == facts["size"] <= 60
    assert main(words) == 2, "a tokenizer is not replaced in silence"
    assert "already holds a tokenizer" in (error := capsys.readouterr().err) and "--overwrite" in error
    words += ["--overwrite"]
    assert "learned from 20 texts" in said(capsys, *words, "--vocab-size", "60", "--cased")
    said(capsys, *words, "--limit-alphabet", "3", "--min-frequency", "1")
    small = qkv.Tokenizer.load(tmp_path / "new")
    assert small.encode("猫", special=False).tokens == ["[UNK]"] or kind == "word"


def test_tokenizer_train_of_chinese_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("国王在北京。The cat\n" * 20, encoding="utf-8")
    words = ["tokenizer", "train", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "new"), "--kind", "word"]
    facts = json.loads(said(capsys, *words, "--segmenter", "rjieba", "--json"))
    assert facts["segmenter"].startswith("rjieba ") and facts["size"] == 5 + 6
    assert "(word, Chinese by rjieba" in said(capsys, *words, "--segmenter", "rjieba", "--overwrite")
    shown = json.loads(said(capsys, "tokenize", "北京的国王", "--model", str(tmp_path / "new"), "--json"))
    assert [token["text"] for token in shown["tokens"][1:-1]] == ["北京", "的", "国王"]


def test_one_default_size_of_a_vocabulary() -> None:
    ours = inspect.signature(qkv.Tokenizer.train).parameters["vocabulary_size"].default
    assert inspect.signature(train_tokenizer).parameters["vocabulary_size"].default == ours == 8000


def test_info(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str) -> None:
    labelled = make_folder(tmp_path / "labelled", "BertForSequenceClassification", labels=("好", "坏"))
    facts = json.loads(said(capsys, "info", str(labelled), "--json"))
    assert facts["architecture"] == "BertForSequenceClassification" and facts["labels"] == ["好", "坏"]
    shown = said(capsys, "info", str(labelled))
    assert "好, 坏" in shown and f"{facts['parameters']['total']:,}" in shown
    assert "masked, next_sentence" in said(capsys, "info", folder)


def test_convert(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str) -> None:
    new = tmp_path / "half"
    words = ["convert", folder, str(new), "--dtype", "float16", "--architecture", "BertForMaskedLM"]
    facts = json.loads(said(capsys, *words, "--json"))
    assert (facts["architecture"], facts["dtype"]) == ("BertForMaskedLM", "float16")
    np.testing.assert_allclose(qkv.load(new).embed("猫").vectors, qkv.load(folder).embed("猫").vectors, atol=0.05)
    assert "float16" in said(capsys, "convert", str(new), str(tmp_path / "again")), "the dtype stays as it was"
    before = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert main(["convert", folder, str(tmp_path / "again")]) == 2
    assert "already exists" in (error := capsys.readouterr().err) and "--overwrite" in error
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == before
    assert "float32" in said(capsys, "convert", folder, str(tmp_path / "again"), "--overwrite")


def test_convert_refuses_a_folder_of_others_before_it_reads_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    monkeypatch.setattr("qkv.models.table.open_model", None)  # not called
    assert main(["convert", folder, str(tmp_path), "--overwrite"]) == 2
    assert "thesis.txt, which is not part of a model" in capsys.readouterr().err


def test_convert_takes_a_run_and_names_what_it_cannot_take(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run / "model")
    (run / "config.toml").write_text('model_type = "bert"\n', encoding="utf-8")
    assert "BertForPreTraining" in said(capsys, "convert", str(run), str(tmp_path / "new"))
    elmo = make_elmo(tmp_path / "elmo")
    assert main(["convert", str(elmo), str(tmp_path / "other")]) == 2
    said_of_it = capsys.readouterr().err
    assert f"{elmo} is a model of type elmo" in said_of_it and "copy its folder" in said_of_it
    assert not (tmp_path / "other").exists()


def test_info_of_a_tokenizer_and_of_shards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    corpus, words, shards = tmp_path / "corpus.txt", str(tmp_path / "words"), str(tmp_path / "shards")
    corpus.write_text("The cat sat. 猫坐着。\n\n" * 20, encoding="utf-8")
    said(capsys, "tokenizer", "train", str(corpus), "--out", words, "--kind", "word", "--cased")
    shown = said(capsys, "info", words)
    assert "a tokenizer, no model" in shown and "by word, case kept" in shown and f"--tokenizer {words}" in shown
    assert json.loads(said(capsys, "info", words, "--json"))["holds"] == "tokenizer"
    assert main(["prepare", str(corpus), "--tokenizer", words, "--out", shards, "--segmenter", "none"]) == 0
    capsys.readouterr()
    assert "prepared corpus" in said(capsys, "info", shards)
    facts = json.loads(said(capsys, "info", shards, "--json"))
    assert (facts["documents"], facts["sources"], facts["segmenter"]) == (20, ["corpus.txt"], "none")


@pytest.mark.parametrize("stored", ["float64", "float16 and float32"])
def test_convert_says_when_the_dtype_does_not_stay(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str, stored: str
) -> None:
    source = Path(shutil.copytree(folder, tmp_path / "odd"))
    tensors = load_file(source / "model.safetensors")
    kinds = stored.split(" and ")
    tensors = {name: tensor.astype(kinds[n % len(kinds)]) for n, (name, tensor) in enumerate(tensors.items())}
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    assert main(["convert", str(source), str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert err == f"note: the weights are stored as {stored} and are written as float32\n" and "float32" in out
    assert "float16" in said(capsys, "convert", str(source), str(tmp_path / "half"), "--dtype", "float16")


def test_the_home_folder_may_be_written_as_a_tilde(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    facts = json.loads(said(capsys, "convert", folder, "~/new", "--json"))
    assert facts["path"] == str(tmp_path / "new")
    assert "猫" in said(capsys, "tokenize", "猫", "-m", "~/new")
    assert "猫" in said(capsys, "tokenize", "猫", "-m", "~/new/vocab.txt")
    (tmp_path / "a.txt").write_text("猫\n" * 9, encoding="utf-8")
    said(capsys, "embed", "-f", "~/a.txt", "-m", "~/new", "-o", "~/v.npy", "--json")
    said(capsys, "attention", "猫", "-m", "~/new", "-o", "~/a.svg", "--json")
    said(capsys, "tokenizer", "train", "~/a.txt", "--out", "~/t", "--kind", "character")
    assert {entry.name for entry in tmp_path.iterdir()} == {"new", "a.txt", "v.npy", "a.svg", "t"}


def test_attention(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str) -> None:
    words = ["attention", "the cat 他欠 <b>", "--model", folder]
    whole = AttentionMap.from_dict(json.loads(said(capsys, *words, "--json")))
    assert whole.attn.shape[:2] == (2, 4)
    one = AttentionMap.from_dict(json.loads(said(capsys, *words, "--layer", "1", "--head", "2", "--json")))
    assert (one.layers, one.heads) == ((1,), (2,))
    assert np.abs(one.bytes_of(1, 2).astype(int) - whole.bytes_of(1, 2)).max() <= 1
    shown = said(capsys, *words, "--token", "欠", "--layer", "0")
    assert "layer 0, head 0: 欠 looks at" in shown and "欠" in shown
    for name in ("a.svg", "a.html", "a.json"):
        assert main([*words, "--token", "cat", "--head", "1", "--lang", "zh", "--out", str(tmp_path / name)]) == 0
        assert name in capsys.readouterr().err
    ElementTree.parse(tmp_path / "a.svg")
    assert "第 1 层 · 第 1 头" in (tmp_path / "a.svg").read_text(encoding="utf-8"), "the last layer, when none is given"
    assert AttentionMap.load(tmp_path / "a.json").attn.shape[:2] == (2, 1)


def test_attention_of_a_gpt(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["attention", "the cat sat", "--model", str(make_gpt(tmp_path / "gpt"))]
    found = AttentionMap.from_dict(json.loads(said(capsys, *words, "--json")))
    assert found.name == "causal" and found.attn.shape == (2, 4, 4, 4) and not np.triu(found.attn, 1).any()
    assert "layer 1, head 0: cat looks at" in said(capsys, *words, "--token", "cat")
    said(capsys, *words, "--lang", "zh", "--out", str(tmp_path / "a.svg"), "--json")
    assert "因果注意力" in (tmp_path / "a.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "layers", "heads"),
    [("a.svg", [1], [0]), ("a.html", [0, 1], [0, 1, 2, 3]), ("a.json", [0, 1], [0, 1, 2, 3])],
)
def test_attention_writes_the_same_with_and_without_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str, name: str, layers: list[int], heads: list[int]
) -> None:
    out = tmp_path / name
    words = ["attention", "the cat", "--model", folder, "--out", str(out)]
    assert main(words) == 0
    assert name in capsys.readouterr().err
    before = out.read_bytes()
    facts = json.loads(said(capsys, *words, "--json"))
    assert facts == {"out": str(out), "layers": layers, "heads": heads, "n_tokens": 4}
    assert out.read_bytes() == before


def test_demo_prints_where_things_lie(capsys: pytest.CaptureFixture[str], minilm: Path) -> None:
    assert said(capsys, "demo", "--weights").strip() == str(minilm)
    assert (Path(said(capsys, "demo", "--data").strip()) / "intents.zh.csv").is_file()


def test_what_the_demo_leaves_is_ignored_and_cleaned() -> None:
    folder = str(inspect.signature(demo).parameters["out"].default)
    root = Path(__file__).resolve().parents[2]
    assert f"/{folder}/" in (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    (clean,) = re.findall(r"^clean:\n\trm -rf (.*)", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert folder in clean.split()


def test_a_reader_that_goes_away_is_no_error(folder: str) -> None:
    command = f"yes 'a cat' | head -5000 | {sys.executable} -m qkv embed - --json -m {folder} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == "" and json.loads(done.stdout)["text"] == "a cat"


def test_an_interrupt_is_quiet_and_leaves_nothing(folder: str, tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    command = [sys.executable, "-m", "qkv", "embed", "-", "-o", str(out), "-m", folder]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(600):
        if any(tmp_path.iterdir()):  # the draft is there: the work has begun
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
def test_sigterm_leaves_nothing_half_written(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hidden .part files stayed behind."""
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("the cat\nthe dog\n", encoding="utf-8")
    run = task_folder(tmp_path / "run", "classify")
    out.mkdir()

    drafts: list[list[str]] = []

    def ended(*_: object) -> None:
        drafts.append([path.suffix for path in out.iterdir()])
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Model, "_use_threads", ended)
    before = signal.getsignal(signal.SIGTERM)
    for words in (
        ["embed", "--file", str(texts), "--model", folder, "--out", str(out / "v.npy")],
        ["embed", "--file", str(texts), "--model", folder, "--out", str(out / "v.parquet")],
        ["predict", str(run), str(texts), "--out", str(out / "a.csv")],
        ["search", "index", str(texts), "--model", folder, "--out", str(out / "index")],
    ):
        with pytest.raises(SystemExit) as caught:
            raise SystemExit(main(words))
        assert caught.value.code == 128 + signal.SIGTERM, capsys.readouterr().err
        assert list(out.iterdir()) == [] and signal.getsignal(signal.SIGTERM) is before
    assert [".part"] in drafts


def test_progress_is_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("embed", 10) as advance:
        advance(5)
    assert capsys.readouterr().err == "", "nothing to say about a short job"
