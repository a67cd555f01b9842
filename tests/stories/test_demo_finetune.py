"""The headlines of both languages to one model, tested on others; files of users are never replaced."""

import csv
import json
from pathlib import Path

import pytest

from qkv.cli import demo
from qkv.cli.demo import DEMO_LANGUAGES, DESKS, UNSEEN, examples_folder
from qkv.cli.main import main
from qkv.models.folders import hub
from tests.stories.test_bad_input import fails
from tests.support.stand_in import stand_in

pytestmark = pytest.mark.usefixtures("one_thread")


def table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def test_one_model_for_two_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path / "zoo", monkeypatch)
    monkeypatch.setattr(demo, "EPOCHS", 0.05)
    out = tmp_path / "out"
    for part in ([], ["finetune"]):  # the second replaces the first
        assert main(["demo", *part, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("The word behind [MASK] ━") == 1 and "━━ 5  A classifier of your own ━" in shown
    both_names = {name: f"{english} {chinese}" for english, chinese in DESKS.items() for name in (english, chinese)}
    for kind in ("", ".test"):
        both = [table(examples_folder() / f"news.{language}{kind}.csv")[1:] for language in DEMO_LANGUAGES]
        rows = [[text, both_names[label]] for pair in zip(*both, strict=True) for text, label in pair]
        assert table(out / f"news{kind}.csv") == [["text", "label"], *rows]
        assert not {text for text, _ in rows} & set(UNSEEN)
    result = json.loads((out / "finetune" / "result.json").read_text(encoding="utf-8"))
    test, tf_idf = result["test"], result["baselines"]["test"][1]
    low, high = test["intervals"]["accuracy"]
    score = f"{test['accuracy']:.1%} of 150 new headlines right (95 % interval {low:.1%} to {high:.1%})"
    assert score in shown.splitlines()
    assert f"tf-idf with logistic regression {tf_idf['value']:.1%}" in shown
    counted = [line.split()[1] for line in shown.splitlines() if line.endswith("%)") and " of 75 right" in line][-2:]
    assert sum(map(int, counted)) == round(150 * test["accuracy"])
    for text in UNSEEN:
        assert any(f"{text}\n    {label} " in shown for label in both_names.values())
    assert (out / "finetune" / "model" / "LICENSE").is_file(), "a fine-tuned model keeps the licence"
    assert (out / "finetune" / "report.html").is_file()
    run = out / "finetune"
    assert shown.count(f"    qkv look {run} --compare qkv-mini\n") == 2  # elsewhere, `qkv look` would not find it
    ways = shown.rpartition("Try next:\n\n")[2].splitlines()
    assert [way.split()[:2] for way in ways] == [["qkv", "predict"], ["qkv", "fill"], ["qkv", "finetune"]]


def test_a_run_of_the_former_demonstration_is_replaced(tmp_path: Path) -> None:
    run, file = tmp_path / "finetune", tmp_path / "news.csv"
    run.mkdir()
    model = hub.FOLDER / hub.DEFAULT_MODEL
    text = f'model = "{model}"\n[data]\ntrain = "{tmp_path}/intents.csv"\n'
    (run / "config.toml").write_text(text, encoding="utf-8")
    demo._clear(run, {file: "text,label\n"})
    assert not run.exists()


@pytest.mark.parametrize("settings", ['train = "{there}/news.csv"', 'train = "{out}/news.csv"', "train =", ""])
def test_a_run_of_ones_own_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str) -> None:
    """Learned from a file of that name elsewhere, or from the demonstration's own with another model."""
    run = tmp_path / "out" / "finetune"
    run.mkdir(parents=True)
    text = f'model = "/models/bert"\n[data]\n{settings.format(there=tmp_path, out=run.parent)}\n'
    (run / "config.toml").write_text(text, encoding="utf-8")
    assert "is not from a demonstration" in fails(capsys, "demo", "finetune", "--out", run.parent)
    assert (run / "config.toml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["news.csv", "news.test.csv", "finetune/mine.txt"])
def test_other_peoples_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("my own", encoding="utf-8")
    assert "is not from a demonstration" in fails(capsys, "demo", "finetune", "--out", tmp_path)
    assert file.read_text(encoding="utf-8") == "my own"
