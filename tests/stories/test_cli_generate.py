"""`qkv generate`: prompts from everywhere, texts to everywhere, and its messages."""

import io
import json
from pathlib import Path

import pytest

from qkv.cli.generate import resolve_generation
from qkv.cli.main import main
from qkv.errors import InputError
from tests.support.folders import make_folder, make_tokenizer
from tests.unit.api.test_generate import make_gpt

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_gpt(tmp_path_factory.mktemp("gpt") / "gpt", make_tokenizer(), {"job": "pretrain"}))


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def test_one_text_is_shown_as_it_grows(gpt: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["generate", gpt, "the cat", "--max-length", "8", "--seed", "3"]
    assert main(words) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("the cat") and len(shown) > len("the cat\n")
    assert main([*words, "--json"]) == 0
    (text,) = json.loads(capfd.readouterr().out)["texts"]
    assert shown == f"the cat{text['text']}\n"
    assert main(["generate", gpt, "--max-length", "5"]) == 0  # from nothing
    assert capfd.readouterr().out.strip()


def test_several_texts_have_numbers(gpt: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", gpt, "the cat", "--n", "2", "--max-length", "4"]) == 0
    assert [line for line in capfd.readouterr().out.splitlines() if "---" in line] == ["--- 1", "--- 2"]
    assert main(["generate", gpt, "the cat", "他", "--beams", "2", "--n", "2", "--max-length", "4"]) == 0
    out = capfd.readouterr().out
    assert [line for line in out.splitlines() if "---" in line] == ["--- 1.1", "--- 1.2", "--- 2.1", "--- 2.2"]


def test_files_in_and_out(gpt: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines, objects, out = tmp_path / "in.txt", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines.write_text("the cat\n他 zebra\n", encoding="utf-8")
    objects.write_text('{"prompt": "the cat"}\n\n{"text": "他 zebra"}\n', encoding="utf-8")
    found = []
    for file in (lines, objects):
        assert main(["generate", gpt, "--file", str(file), "--out", str(out), "--greedy"]) == 0
        err = capfd.readouterr().err
        assert "2 texts from 2 prompts" in err and "1 of 4 tokens (25.0 %) are unknown" in err
        found.append([json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()])
    assert found[0] == found[1] and [one["prompt"] for one in found[0]] == ["the cat", "他 zebra"]
    assert main(["generate", gpt, "--file", str(lines), "--out", str(tmp_path / "out.txt"), "--greedy"]) == 0
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").startswith("the cat")


def test_standard_input(gpt: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    type_in(monkeypatch, "the cat\n他\n".encode())
    assert main(["generate", gpt, "-", "--max-length", "3"]) == 0
    assert capfd.readouterr().out.startswith("the cat\n他")  # one prompt of two lines
    type_in(monkeypatch, "the cat\n他\n".encode())
    assert main(["generate", gpt, "--file", "-", "--max-length", "3", "--json"]) == 0
    assert [json.loads(line)["prompt"] for line in capfd.readouterr().out.splitlines()] == ["the cat", "他"]


def test_a_byte_order_mark_is_no_prompt(
    gpt: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (["-"], ["--file", "-"]):
        type_in(monkeypatch, b"\xef\xbb\xbfthe cat\n")
        assert main(["generate", gpt, *words, "--max-length", "3", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["prompt"] == "the cat"


def test_how_tokens_are_chosen() -> None:
    assert resolve_generation({}, False).temperature == 0.8
    assert resolve_generation({"temperature": 1.0}, False).top_k is None
    assert resolve_generation({"beams": 3, "n_best": 2}, False).hypotheses == 3
    assert not resolve_generation({"sample": False}, False).sample
    for wanted, greedy, message in (
        ({"seed": 1}, True, "seed is for sampling, and --greedy"),
        ({"beams": 2, "top_k": 4}, False, "top_k is for sampling, and --beams"),
        ({"beams": 2}, True, "Choose one"),
        ({"n_best": 2}, True, "gives one text"),
        ({"beams": 2, "n_best": 3}, False, "n_best 3 needs at least as many beams"),
    ):
        with pytest.raises(InputError, match=message):
            resolve_generation(wanted, greedy)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["   "], "has no token"),
        ([""], "Prompt 1 is empty. Write something, or leave the prompt out"),
        (["the " * 30], "has 31 tokens, and the model of"),
        (["the", "--max-length", "100"], "leaves room for 23 of the 24"),
        (["the", "--temprature", "1"], "There is no option --temprature. Did you mean '--temperature'?"),
        (["the", "--decoding", "stoping=never"], "Unknown decoding option 'stoping'. Did you mean 'stopping'?"),
        (["the", "--decoding", "do_sample=true"], "Did you mean 'sample'?"),
        (["the", "--top-p", "2"], "top_p is a probability"),
        (["the", "--decoding", "max_ratio=2"], "max_ratio is for models that translate"),
        (["the", "--greedy", "--decoding", "sample=true"], "sample and --greedy exclude each other"),
        (["the", "--beams", "2", "--decoding", "sample=true"], "sample and --beams exclude each other"),
        (["the", "--length-penalty", "2"], "length_penalty compares texts of one prompt, and there is one"),
        (["the", "--greedy", "--decoding", "length_formula=gnmt"], "length_formula compares texts of one prompt"),
        (["the", "--n", "2", "--decoding", "stopping=never"], "stopping is for beam search: add --beams"),
        (["the", "--min-length", "30"], "leaves room for 23, and min_length 30"),
        (["the", "--precision", "int4"], "Unknown precision 'int4'"),
        (["the", "-"], "Give - for standard input alone"),
        (["the", "--file", "x"], "Choose one: prompts, or --file"),
        (["the", "--json", "--out", "x.jsonl"], "Choose one: --json"),
        (["the", "--out", "x.doc"], "ends in .txt or .jsonl"),
    ],
)
def test_mistakes(gpt: str, words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", gpt, *words]) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and err.startswith("error: ") and err.count("\n") == 1


def test_nothing_from_standard_input(
    gpt: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    type_in(monkeypatch, b"")
    assert main(["generate", gpt, "-"]) == 2
    assert "Standard input is empty" in capfd.readouterr().err


def test_unknown_tokens_are_told_of_every_text(gpt: str, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--json"], []):  # the second is shown while it grows
        assert main(["generate", gpt, "the zebra", "--max-length", "3", *words]) == 0
        assert "1 of 2 tokens (50.0 %) are unknown to the model; they stand for: zebra." in capfd.readouterr().err


def test_guesses_ahead_change_nothing(gpt: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    for precision in ("fp32", "drafted"):
        assert main(["generate", gpt, "the cat", "--max-length", "9", "--greedy", "--precision", precision]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1]


def test_mistakes_in_files(gpt: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "in.txt", tmp_path / "out.txt"
    for text, message in (("the\n\ncat\n", "line 2 is empty"), ("the\n" + "cat " * 30, "in.txt, line 2 (")):
        file.write_text(text)
        assert main(["generate", gpt, "--file", str(file), "--out", str(out)]) == 2
        assert message in capfd.readouterr().err and not out.exists()
    assert main(["generate", gpt, "--file", str(file), "--out", str(file)]) == 2
    assert "would be overwritten" in capfd.readouterr().err


def test_a_bert_is_told_what_it_can_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = make_folder(tmp_path / "bert")
    assert main(["generate", str(folder), "the cat"]) == 2
    assert f"qkv fill TEXT --model {folder}" in capfd.readouterr().err
