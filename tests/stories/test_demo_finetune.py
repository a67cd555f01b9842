"""The messages of both languages to one model, and room made only where an earlier demonstration stood."""

import csv
import json
from pathlib import Path

import pytest

from qkv.cli import demo
from qkv.cli.demo import DEMO_LANGUAGES, DemoAnswer, examples_folder
from qkv.cli.main import main
from tests.stories.test_bad_input import fails
from tests.support.stand_in import stand_in

pytestmark = pytest.mark.usefixtures("one_thread")


def test_one_model_for_two_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path / "zoo", monkeypatch)
    monkeypatch.setattr(demo, "EPOCHS", 0.05)
    for part in ([], ["finetune"]):  # the second makes room
        assert main(["demo", *part, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Which token is behind [MASK]?") == 1
    with (tmp_path / "out" / "intents.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    both = []
    for language in DEMO_LANGUAGES:
        with (examples_folder() / f"intents.{language}.csv").open(encoding="utf-8", newline="") as stream:
            both.append(list(csv.reader(stream))[1:])
    assert rows == [["text", "label"], *(row for pair in zip(*both, strict=True) for row in pair)]
    assert "English: " in shown and "Chinese: " in shown
    surest = shown.split("The most confident predictions:")[-1].split("report.html")[0].strip().splitlines()
    texts = {text for text, _ in rows}
    assert len([line for line in surest if line in texts]) == 2 * demo.SHOWN
    assert (tmp_path / "out" / "finetune" / "model" / "LICENSE").is_file(), "what is adapted keeps the terms"
    assert (tmp_path / "out" / "finetune" / "report.html").is_file() and "qkv predict" in shown


def test_every_language_is_counted_by_itself(tmp_path: Path) -> None:
    answer = {"label": "a", "probability": 0.5, "expected": "a"}
    lines = [json.dumps(answer | {"line": line, "right": line == 4}) for line in (2, 3, 4)]
    (tmp_path / "predictions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = [("en", "one", "a"), ("zh", "二", "a"), ("en", "three", "a")]
    assert demo._answers(tmp_path, rows) == {
        "en": [DemoAnswer("one", "a", 0.5, "a", False), DemoAnswer("three", "a", 0.5, "a", True)],
        "zh": [DemoAnswer("二", "a", 0.5, "a", False)],
    }


@pytest.mark.parametrize("settings", ['train = "{there}/intents.csv"', 'train = "{out}/intents.csv"', "train =", ""])
def test_a_run_of_ones_own_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str) -> None:
    """Learned from a file of that name elsewhere, or from the demonstration's own with another model."""
    run = tmp_path / "out" / "finetune"
    run.mkdir(parents=True)
    text = f'model = "/models/bert"\n[data]\n{settings.format(there=tmp_path, out=run.parent)}\n'
    (run / "config.toml").write_text(text, encoding="utf-8")
    assert "is not from a demonstration" in fails(capsys, "demo", "finetune", "--out", run.parent)
    assert (run / "config.toml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["intents.csv", "finetune/mine.txt"])
def test_other_peoples_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("my own", encoding="utf-8")
    assert "is not from a demonstration" in fails(capsys, "demo", "finetune", "--out", tmp_path)
    assert file.read_text(encoding="utf-8") == "my own"
