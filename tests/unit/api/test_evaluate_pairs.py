"""A model on pairs: the figures of the training again, every line, another model, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qkv.api.evaluate import _check_comparable, evaluate_pairs
from qkv.api.translator import load_translator
from qkv.errors import InputError
from qkv.jobs.translate.training import TRANSLATING
from qkv.metrics.translation import chrf
from qkv.train.log import Silent
from tests.support.translation_runs import digit_files, settings

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return digit_files(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def runs(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for name, steps, way in (
        ("little", 2, "und-und"),
        ("more", 30, "und-und"),
        ("other", 1, "de-en"),
        ("french", 1, "fr-en"),
    ):
        source, target = way.split("-")
        languages = [f"bitext.source_language={source}", f"bitext.target_language={target}"]
        config = settings("transformer", files, f"train.steps={steps}", "train.lr=0.01", *languages)
        found[name] = TRANSLATING.start(config, folder / name, Silent()).run
    return found


def test_the_figures_of_the_training_come_out_again(runs: dict[str, Path], files: dict[str, Path]) -> None:
    found = evaluate_pairs(runs["more"], [files["test"]])
    trained = json.loads((runs["more"] / "result.json").read_text())["scores"]["test"]
    assert found["scores"] == trained and found["scores"]["pairs"] == 12
    assert "tok:13a" in found["scores"]["bleu_signature"] and found["scores"]["chrf_signature"]
    for name in ("bleu", "chrf"):
        low, high = found["scores"][f"{name}_interval"]
        assert low <= found["scores"][name] <= high
    assert found["against"] is None and not found["is_training_file"] and found["decoding"]["beams"] == 2
    assert evaluate_pairs(runs["little"], [files["train"]])["is_training_file"]
    json.dumps(found)


def test_two_files_and_every_line(runs: dict[str, Path], files: dict[str, Path], tmp_path: Path) -> None:
    rows = [line.split("\t") for line in files["test"].read_text().splitlines()]
    rows[2][1] = ""  # no reference: it does not count
    rows[4][0] = "1 " * 40  # too long: it counts, with nothing
    rows[5][0] = "1 猫 2"
    sides = tmp_path / "t.de", tmp_path / "t.zh"
    for number, side in enumerate(sides):
        side.write_text("".join(row[number] + "\n" for row in rows))
    out = tmp_path / "out.jsonl"
    found = evaluate_pairs(runs["more"], sides, language="zh", out=out)
    assert found["scores"]["pairs"] == 11 and found["dropped"] == 1 and found["not_translated"] == 1
    assert "tok:zh" in found["scores"]["bleu_signature"] and found["target_language"] == "zh"
    assert found["faults"][0].startswith(f"{sides[0]}, line 3: the target is empty")
    assert f"{sides[0]}, line 5: " in found["faults"][1]
    assert found["unknown"] == {"texts": 1, "pieces": 1, "most_frequent": {"猫": 1}}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["line"] for line in lines] == [1, 2, *range(4, 13)]
    assert lines[3]["translation"] == "" and lines[3]["chrf"] == 0 and lines[4]["unknown"] == ["猫"]
    for line in lines:
        assert line["chrf"] == pytest.approx(chrf([line["translation"]], [line["reference"]]).value, abs=1e-4)


def test_beside_another_model(runs: dict[str, Path], files: dict[str, Path]) -> None:
    found = evaluate_pairs(runs["more"], [files["test"]], against=runs["little"])
    other = evaluate_pairs(runs["little"], [files["test"]])
    against = found["against"]
    assert against["figure"] == "BLEU" and against["value"] == other["scores"]["bleu"]
    assert against["difference"] == pytest.approx(found["scores"]["bleu"] - against["value"])
    same = evaluate_pairs(runs["more"], [files["test"]], against=runs["more"])["against"]
    assert same["difference"] == 0 and same["p"] == 1
    with pytest.raises(InputError, match="only models for the same languages are comparable"):
        evaluate_pairs(runs["french"], [files["test"]], against=runs["other"])


@pytest.mark.parametrize(
    ("one", "two", "alike"),
    [("zh", "zh-CN", True), ("zh_TW", "zh-CN", True), ("und", "zh", True), ("", "zh", True), ("zh", "ja", False)],
)
def test_which_languages_are_the_same(runs: dict[str, Path], one: str, two: str, alike: bool) -> None:
    first, other = (replace(load_translator(runs["little"]), target_language=code) for code in (one, two))
    if alike:
        _check_comparable("a", first, "b", other)
    else:
        with pytest.raises(InputError, match=f"a is for und → {one}, and b for und → {two}"):
            _check_comparable("a", first, "b", other)


def test_a_language_that_nobody_named_is_looked_for(runs: dict[str, Path], tmp_path: Path) -> None:
    """Chinese references of a model that was trained as und are counted by 汉字."""
    file = tmp_path / "pairs.tsv"
    file.write_text("1 2\t一只猫在睡觉\n3 4\t两只狗在跑\n", encoding="utf-8")
    found = evaluate_pairs(runs["little"], [file])
    assert found["target_language"] == "zh" and "tok:zh" in found["scores"]["bleu_signature"]
    assert "tok:13a" in evaluate_pairs(runs["little"], [file], language="und")["scores"]["bleu_signature"]
    with pytest.raises(InputError, match=r"^language \(--language\): 'tw' is Twi, .* Did you mean 'zh-TW'"):
        evaluate_pairs(runs["little"], [file], language="tw")


def test_a_model_with_a_code_that_is_a_slip(runs: dict[str, Path], tmp_path: Path, monkeypatch: Patch) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("1 2\t고양이가 잔다\n", encoding="utf-8")
    loaded = replace(load_translator(runs["little"]), target_language="kr")
    monkeypatch.setattr("qkv.api.evaluate.load_translator", lambda *_: loaded)
    with pytest.raises(InputError, match=r"\(--language gives another\): 'kr' is Kanuri, .* Did you mean 'ko'"):
        evaluate_pairs("a", [file])
    assert evaluate_pairs("a", [file], language="und")["target_language"] == "und"


def test_without_sacrebleu(
    runs: dict[str, Path], files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.metrics.translation.is_available", lambda: False)
    found = evaluate_pairs(runs["more"], [files["test"]], against=runs["little"], out=tmp_path / "a.jsonl")
    assert "bleu" not in found["scores"] and found["against"]["figure"] == "exact"
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 12


def test_what_is_refused(runs: dict[str, Path], files: dict[str, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty.tsv"
    empty.write_text("1\t\n")
    with pytest.raises(InputError, match="there is no pair with text on both sides"):
        evaluate_pairs(runs["more"], [empty])
    with pytest.raises(InputError, match="'cn' is not a language code. Did you mean 'zh'"):
        evaluate_pairs(runs["more"], [files["test"]], language="cn")
    with pytest.raises(InputError, match="decoding.sample draws by chance"):
        evaluate_pairs(
            runs["more"],
            [files["test"]],
            decoding=lambda translator: replace(translator.decoding, beams=1, sample=True),
        )
    with pytest.raises(InputError, match="Give two files"):
        evaluate_pairs(runs["more"], ["a", "b", "c"])
