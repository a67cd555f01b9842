"""Every verb that reads texts says which characters the model does not know."""

import json
from pathlib import Path

import pytest

import qkv
from qkv.cli.main import main
from qkv.jobs.finetune.remarks import remark_unknown
from qkv.text.unknown import UnknownCounter, UnknownFacts
from tests.golden.golden import MODELS

DOLL, JAR = "🪆🪆🪆", "🫙🫙🫙"  # emoji that qkv-mini has no tokens for, as it has none for 亍
CLASSIFY, TAG, ANSWER, CHOICE = (str(MODELS / name) for name in ("classify", "tag", "answer", "choice"))


def test_python_results_count_unknown_tokens() -> None:
    model = qkv.load()
    assert model.embed([DOLL, "a cat", "亍，好"]).n_unknown.tolist() == [3, 0, 1]
    assert [one.n_unknown for one in model.embed_tokens([DOLL, "a cat"])] == [3, 0]
    assert model.fill("亍，[MASK]好")[0].n_unknown == 1
    assert model.next_sentence("亍。", "好。").n_unknown == 1
    assert [one.n_unknown for one in qkv.load(CLASSIFY).predict(["the cat", DOLL, "the 嗯"])] == [0, 1, 1]
    assert [one.n_unknown for one in qkv.load(TAG).predict(["the cat", "the 嗯"])] == [0, 1]
    assert qkv.load(ANSWER).predict(("嗯", "the cat 嗯"))[0].n_unknown == 2
    found = qkv.load(CHOICE).predict({"text": "the 嗯", "question": "嗯", "choices": ["cat", "嗯嗯"]})
    assert found[0].n_unknown == 4


def test_long_texts_count_each_unknown_token_once() -> None:
    (found,) = qkv.load(CLASSIFY).predict("the 嗯 " * 600)
    assert found.n_windows > 1 and found.n_unknown == 600


@pytest.mark.parametrize(
    "words",
    [
        ["embed", DOLL, JAR],
        ["embed", DOLL, JAR, "--json"],
        ["embed", DOLL, "--tokens"],
        ["fill", f"{DOLL} [MASK] {JAR}"],
        ["next", DOLL, JAR],
        ["predict", CLASSIFY, "the cat", DOLL],
        ["predict", CLASSIFY, "the cat", DOLL, "--json"],
        ["predict", TAG, DOLL],
    ],
)
def test_verbs_say_it_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "unknown to the model" in line]
    assert len(said) == 1 and "🪆" in said[0]


def test_foldings_that_a_model_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", "the ｃａｔ", "cat🪆", "--model", CLASSIFY]) == 0
    assert f"qkv convert {CLASSIFY} NEW --fold width,emoji." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("驌", "--fold simplified."),
        ("ＡＢＣ good🪆驌", "--fold simplified."),
        ("亍", "A model with another vocabulary may know them."),
        ("good🪆", "A model with another vocabulary may know them."),
    ],
)
def test_every_note_has_a_remedy(text: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """None that the model has: qkv-mini folds width and emoji."""
    assert main(["embed", text, "一只猫"]) == 0
    said = capsys.readouterr().err
    assert said.rstrip().endswith(remedy) and "; they stand for: " in said


def test_a_note_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("opencc")
    assert main(["embed", "驌驦", "一只猫", "--lang", "zh"]) == 0
    assert (
        "对应的原文：驌, 驦。转换一份能多认得一些的：qkv convert qkv-sentences NEW --fold simplified。"
        in capsys.readouterr().err
    )


def test_the_remedy_helps(tmp_path: Path) -> None:
    pytest.importorskip("opencc")
    assert main(["convert", "qkv-mini", str(tmp_path / "mine"), "--fold", "width,simplified"]) == 0
    before, after = qkv.load(), qkv.load(tmp_path / "mine")
    assert before.embed("驌，臺灣ＡＢＣ").n_unknown.tolist() == [1]
    assert after.embed("驌，臺灣ＡＢＣ").n_unknown.tolist() == [0]
    assert (after.embed("驌，臺灣ＡＢＣ").vectors == before.embed("骕，台湾abc").vectors).all()
    counter = UnknownCounter(after.tokenizer)
    counter.add(["驦"], 1, 1)
    assert counter.facts().folds == [], "it simplifies already"
    text = "李明在臺灣，說「這個」。"
    spans = [text[start:end] for start, end in after.tokenizer.encode(text, special=False).offsets]
    assert spans == list(text), "spans are those of the text as written"


def test_nothing_is_said_where_all_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", "a cat", "一只猫"]) == 0
    assert "unknown" not in capsys.readouterr().err


def test_embedded_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text(f"a cat\n{DOLL}\n", encoding="utf-8")
    assert main(["embed", "--file", str(texts), "--out", str(tmp_path / "v.npy"), "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["n_unknown"] == 3 and "in 1 of 2 texts, 1 of them wholly" in found.err


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    file = tmp_path / "texts.csv"
    rows = [("the cat", "animal"), (DOLL, "place"), ("亍亍 the", "animal"), ("the street", "place")] * 4
    file.write_text("text,label\n" + "".join(f"{text} {n},{label}\n" for n, (text, label) in enumerate(rows)), "utf-8")
    return file


def test_check_with_a_model(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(labelled), "--model", "qkv-mini", "--json"])
    unknown = json.loads(capsys.readouterr().out)["unknown"]
    assert unknown["n_unknown"] == 20 and unknown["most_frequent"] == {"🪆": 12, "亍": 8}
    main(["check", str(labelled), "--model", "qkv-mini"])
    assert "unknown tokens" in (said := capsys.readouterr().out) and "🪆 (12), 亍 (8)" in said
    assert "A model with another vocabulary may know them." in said


def test_evaluate(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", CLASSIFY, str(labelled), "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["n_unknown"] >= 12 and "unknown to the model" in found.err


def test_finetune_says_it_and_the_report_remarks_it(
    labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["finetune", "classify", "--train", str(labelled), "--model", CLASSIFY, "--out", str(run), "--epochs", "1"]
    assert main(words) == 0
    assert "unknown to the model" in capsys.readouterr().err
    assert json.loads((run / "result.json").read_text("utf-8"))["unknown"]["n_unknown"] > 0
    assert "It cannot tell these apart" in (run / "report.html").read_text("utf-8")


def test_the_remark_has_its_figures() -> None:
    remark = remark_unknown(UnknownFacts(10, 200, 30, 4, 1, {"嗯": 20, "怼": 10}))
    assert remark is not None and "30 tokens (15.0" in str(remark.text.en) and "嗯 (20), 怼 (10)" in str(remark.text.zh)
    assert "may know them." in str(remark.text.en) and "换一个词表不同的模型" in str(remark.text.zh)
    assert remark_unknown(UnknownFacts(10, 2000, 1, 1, 0, {"嗯": 1})) is None
