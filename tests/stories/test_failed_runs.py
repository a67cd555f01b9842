"""Fine-tuning runs that are made to fail, each in its own way: what the report and the terminal say of them is true."""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.terminal import print_result
from qkv.data.labelled.examples import TextExample
from qkv.errors import InputError
from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune.settings import default_settings, resolve_finetune_settings
from qkv.tasks.transfer import parse_transfer
from qkv.train.log import Silent
from qkv.train.loop import Trainer
from qkv.train.run_folder import read_lines
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder
from tests.support.small_run import Recorder

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = "the cat sat on mat he owes me is tired too dog animal paris france street 1 2 3 4 5 6 7 8 9".split()


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel", dropout=0.1, initial_std=0.05)


class Run:
    """A finished run: its result and the remarks of its report, as (level, English text)."""

    def __init__(self, out: Path, result: dict[str, Any]) -> None:
        self.out, self.result = out, result
        page = (out / "report.html").read_text(encoding="utf-8")
        items = re.findall(r'<li class="(good|note|warning|failure)"><b>.*?</b><span>(.*?)</span></li>', page, re.S)
        assert items
        self.remarks = [(level, _english(text)) for level, text in items]

    def said(self, words: str) -> list[str]:
        return [level for level, text in self.remarks if words in text]

    @property
    def levels(self) -> set[str]:
        return {level for level, _ in self.remarks}


def _english(html: str) -> str:
    return "".join(re.findall(r'<span lang="en">(.*?)</span>', html, re.S)) or html


def train(
    out: Path,
    pretrained: Path,
    rows: Sequence[TextExample],
    dev: Sequence[TextExample] | None = None,
    test: Sequence[TextExample] | None = None,
    epochs: float = 3.0,
    lr: float = 1e-3,
    settings: Sequence[str] = (),
) -> Run:
    out.mkdir()
    parts = {"train": rows, "dev": dev, "test": test}
    flags: dict[str, Any] = {"epochs": epochs, "train.lr": lr}
    for name, examples in parts.items():
        if examples is not None:
            flags[f"data.{name}"] = str(sets.write_texts(out / f"{name}.csv", list(examples)))
    config = resolve_finetune_settings(
        "classify", str(pretrained), None, None, flags, ["train.threads=1", "texts_per_step=8", *settings]
    )
    done = finetune.FINETUNING.start(config, out / "run", Silent())
    return Run(out / "run", done.result)


def noise(count: int, seed: int, labels: str = "ab") -> list[TextExample]:
    """Texts with labels that have nothing to do with them."""
    draw = random.Random(seed)
    return [TextExample(" ".join(draw.choices(WORDS, k=8)), label=draw.choice(labels)) for _ in range(count)]


def distinct(count: int) -> list[TextExample]:
    """Texts that can be learned, none of them twice."""
    return [TextExample(f"{row.text} {n}", label=row.label) for n, row in enumerate(sets.texts(count))]


def test_no_signal(tmp_path: Path, pretrained: Path) -> None:
    run = train(tmp_path / "a", pretrained, noise(60, 0), noise(80, 1), noise(80, 2))
    first, text = run.remarks[0]
    assert first in ("failure", "warning") and ("Nothing was learned" in text or "nothing shows" in text)
    assert "good" not in run.levels, run.remarks


def test_one_class_in_dev(tmp_path: Path, pretrained: Path) -> None:
    """The constant answer is right everywhere: no score can show that anything was learned."""
    dev = [TextExample(f"the cat sat {n} {n + 1}", label="animal") for n in range(40)]
    run = train(tmp_path / "a", pretrained, [*sets.texts(40), *dev[:5]], dev[5:])
    assert "good" not in run.levels and run.said("no example of place") == ["note"]
    assert not run.said("rarely true"), "a perfect score is no wonder here"


def test_one_class_at_all(tmp_path: Path, pretrained: Path) -> None:
    with pytest.raises(InputError, match="has the label 'a': a classifier needs at least two"):
        train(tmp_path / "a", pretrained, [TextExample(f"the cat {n}", label="a") for n in range(20)])


def test_a_leaked_test_set(tmp_path: Path, pretrained: Path) -> None:
    rows = distinct(60)
    run = train(tmp_path / "a", pretrained, rows[:40], rows[40:], rows[:20], epochs=10)
    assert "20 of 20 examples of test.csv also stand in train.csv" in run.remarks[0][1]
    assert run.remarks[0][0] == "warning" and "good" not in run.levels
    assert run.result["verdict"]["level"] != "good", "nor does the terminal say so"


def test_shuffled_labels(tmp_path: Path, pretrained: Path) -> None:
    rows = distinct(120)
    labels = [row.label for row in rows]
    random.Random(3).shuffle(labels)
    shuffled = [TextExample(row.text, label=label) for row, label in zip(rows, labels, strict=True)]
    run = train(tmp_path / "a", pretrained, shuffled[:60], shuffled[60:])
    assert run.remarks[0][0] in ("failure", "warning") and "good" not in run.levels


def test_too_hot_a_rate(tmp_path: Path, pretrained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every text gets the same answer: a red remark, a line on the terminal, and what to try."""
    rows = distinct(90)
    run = train(tmp_path / "a", pretrained, rows[:50], rows[50:], lr=1.0)
    level, text = run.remarks[0]
    assert level == "failure" and "Nothing was learned" in text and "--lr 0.3" in text
    assert "good" not in run.levels
    print_result(run.result)
    assert capsys.readouterr().out.startswith("Nothing was learned: accuracy is")


def test_a_second_attempt_saves_a_run_with_too_hot_a_default(
    tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, told = distinct(120), Recorder()
    parts = {"train": rows[:70], "dev": rows[70:]}
    monkeypatch.setattr("qkv.jobs.finetune.settings.RATES", {"": ((512, 0.09),)})
    monkeypatch.setattr("qkv.jobs.finetune.training.choose_epochs", lambda *_: 4.0)
    flags = {f"data.{name}": str(sets.write_texts(tmp_path / f"{name}.csv", part)) for name, part in parts.items()}
    config = resolve_finetune_settings(
        "classify", str(pretrained), None, None, flags, ["train.threads=1", "texts_per_step=8"]
    )
    result = finetune.FINETUNING.start(config, tmp_path / "run", told).result
    assert [one for one in told.messages if "Starting again from the initial weights with learning rate 0.0297" in one]
    assert result["failure"] is None and result["dev"]["accuracy"] > 0.8


@pytest.mark.parametrize(("width", "rate"), [(256, 2e-4), (384, 1e-4), (512, 1e-4), (768, 5e-5), (1024, 2e-5)])
def test_the_default_rate_by_width(width: int, rate: float) -> None:
    for task in ("classify", "tag"):
        assert default_settings(task, parse_transfer("full", 12), "cpu", width)["train"]["lr"] == rate
    assert default_settings("classify", parse_transfer("features", 12), "cpu", width)["train"]["lr"] == 1e-3


def test_numbers_without_signal(tmp_path: Path, pretrained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A regression had no baseline, and did not say that it took the labels as numbers."""
    draw = random.Random(5)
    rows = [TextExample(" ".join(draw.choices(WORDS, k=8)), label=f"{draw.gauss(3, 1):.2f}") for _ in range(100)]
    run = train(tmp_path / "a", pretrained, rows[:50], rows[50:])
    assert [one["key"] for one in run.result["baselines"]["dev"]] == ["constant"]
    assert run.remarks[0][0] in ("failure", "warning") and "always answering the mean" in run.remarks[0][1]
    assert "good" not in run.levels and any("--kind single" in note for note in run.result["notes"])
    print_result(run.result)
    out = capsys.readouterr().out
    assert "optimistic" in out and "--test FILE" in out and "always answering the mean" in out


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def train_on(out: Path, task: str, pretrained: Path, parts: dict[str, str], *settings: str) -> Run:
    flags: dict[str, Any] = {"epochs": 2.0, **{f"data.{name}": file for name, file in parts.items()}}
    given = ["train.threads=1", "texts_per_step=8", *settings]
    config = resolve_finetune_settings(task, str(pretrained), None, None, flags, given)
    return Run(out, finetune.FINETUNING.start(config, out, Silent()).result)


def test_several_labels_without_signal(tmp_path: Path, pretrained: Path) -> None:
    """Thresholds that give every text most labels were 21 points above the only baseline, in green."""
    draw = random.Random(6)
    parts = {
        name: write_lines(
            tmp_path / f"{name}.jsonl",
            [
                {"text": " ".join(draw.choices(WORDS, k=8)), "label": [one for one in "abcd" if draw.random() < 0.4]}
                for _ in range(count)
            ],
        )
        for name, count in (("train", 60), ("dev", 40), ("test", 60))
    }
    run = train_on(tmp_path / "run", "classify", pretrained, parts)
    assert [one["key"] for one in run.result["baselines"]["test"]] == ["constant", "tf-idf"]
    assert run.remarks[0][0] in ("failure", "warning") and "always answering “" in run.remarks[0][1]
    assert "good" not in run.levels


def test_choices_without_signal(tmp_path: Path, pretrained: Path) -> None:
    """A fourth right of four choices was called neither good nor bad."""
    draw = random.Random(7)
    parts = {
        name: write_lines(
            tmp_path / f"{name}.jsonl",
            [
                {"question": "the cat", "choices": draw.sample(WORDS, 4), "answer": draw.randrange(4)}
                for _ in range(count)
            ],
        )
        for name, count in (("train", 40), ("dev", 40))
    }
    run = train_on(tmp_path / "run", "choice", pretrained, parts)
    assert run.remarks[0][0] in ("failure", "warning") and "always taking choice" in run.remarks[0][1]
    assert "good" not in run.levels


def test_answers_without_signal(tmp_path: Path, pretrained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was beside the score where every question has an answer."""
    draw = random.Random(8)
    texts = [" ".join(draw.sample(WORDS, 10)) for _ in range(70)]
    rows = [{"question": "the cat", "context": text, "answer": draw.choice(text.split())} for text in texts]
    cuts = {"train": rows[:30], "dev": rows[30:50], "test": rows[50:]}
    parts = {name: write_lines(tmp_path / f"{name}.jsonl", some) for name, some in cuts.items()}
    run = train_on(tmp_path / "run", "answer", pretrained, parts)
    for part in ("dev", "test"):
        assert [one["key"] for one in run.result["baselines"][part]] == ["overlap"]
    value, best = run.result["test"]["f1"], run.result["baselines"]["test"][0]["value"]
    assert (run.result["verdict"]["level"] == "good") == (run.result["test"]["intervals"]["f1"][0] > best)
    if value < best:
        print_result(run.result | {"failure": None})
        said = capsys.readouterr().out.splitlines()[0]
        assert said.startswith("warning: F1 is") and "the words next to those of the question" in said


def test_too_few_examples(tmp_path: Path, pretrained: Path) -> None:
    run = train(tmp_path / "a", pretrained, sets.texts(8), sets.texts(20)[8:14], epochs=10)
    assert run.said("few to judge by") == ["warning"] and run.said("fewer than 20 training examples")
    clear = run.result["dev"]["intervals"]["accuracy"][0] > run.result["baseline"]["accuracy"]
    assert "good" not in run.levels or clear


def test_duplicate_texts(tmp_path: Path, pretrained: Path) -> None:
    """The same text is never in two parts of a split, so a high score is not a leak."""
    rows = [TextExample(f"the {word} sat", label=label) for word, label in [("cat", "a"), ("street", "b")] * 30]
    with pytest.raises(InputError, match="too few to hold some out"):
        train(tmp_path / "a", pretrained, rows)
    run = train(tmp_path / "b", pretrained, rows[:30], rows[30:], epochs=10)
    assert "30 of 30 examples of dev.csv also stand in train.csv" in run.remarks[0][1] and "good" not in run.levels


def test_scores_that_are_all_equal(tmp_path: Path, pretrained: Path) -> None:
    """A network that gives every text the same scores: at most one label is ever answered."""
    rows = distinct(120)
    run = train(tmp_path / "a", pretrained, rows[:60], rows[60:], lr=1e-12, epochs=1)
    assert "good" not in run.levels and run.remarks[0][0] in ("failure", "warning")
    silent = [label for label in run.result["dev"]["labels"].values() if label["recall"] == 0]
    assert len(silent) == len(run.said("Never given as an answer"))


def test_a_label_that_is_missing_in_dev(tmp_path: Path, pretrained: Path) -> None:
    rows = [*sets.texts(60), *(TextExample(f"he owes me {n}", label="debt") for n in range(9))]
    run = train(tmp_path / "a", pretrained, rows, sets.texts(90)[60:])
    assert run.said("Dev has no example of debt") == ["note"]


def test_a_loss_that_is_nan(tmp_path: Path, pretrained: Path) -> None:
    with pytest.raises(InputError, match=r"is NaN or infinite at step \d+ .* Set a lower train.lr"):
        train(tmp_path / "a", pretrained, sets.texts(60), lr=30.0)
    assert not (tmp_path / "a" / "run" / "result.json").exists()


def test_a_second_attempt_of_a_tagger(tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a run that found no entity after half of its steps starts again with a third of the rate; killed and
    resumed it ends with the same bytes."""
    file, told = sets.write_tagged(tmp_path / "data.json"), Recorder()
    monkeypatch.setattr("qkv.jobs.finetune.settings.RATES", {"": ((512, 1e-7),)})  # too low to learn anything
    monkeypatch.setattr("qkv.jobs.finetune.settings.RETRY", 1.0)
    monkeypatch.setattr("qkv.jobs.finetune.training.SAVED", 1)
    monkeypatch.setattr("qkv.jobs.finetune.training.choose_epochs", lambda *_: 2.0)
    config = resolve_finetune_settings(
        "tag", str(pretrained), None, None, {"data.train": str(file)}, ["train.threads=1", "texts_per_step=8"]
    )
    assert config.train.retry == 1.0
    whole = finetune.FINETUNING.start(config, tmp_path / "whole", told)
    assert [one for one in told.messages if "nothing was learned yet. Starting again" in one]
    (session,) = read_lines(tmp_path / "whole" / "sessions.jsonl")
    log = read_lines(tmp_path / "whole" / "log.jsonl")
    (again,) = [line["step"] for line in log if "restart" in line]
    assert session["restarted_at"] == again and session["to"] == again + whole.steps
    assert whole.result["failure"]["en"].startswith("Nothing was learned: F1 is 0.0")
    assert "--lr 3e-08" in whole.result["failure"]["en"]
    assert json.loads((tmp_path / "whole" / "result.json").read_text())["failure"]["zh"].startswith("什么也没学到")

    plain = Trainer.advance

    def advance(self: Any, batches: Any, lr: float) -> None:
        if self.step == again + 2:
            raise KeyboardInterrupt
        plain(self, batches, lr)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "advance", advance)
        finetune.FINETUNING.start(config, tmp_path / "broken", Silent())
    assert finetune.FINETUNING.resume(tmp_path / "broken", Silent()).finished
    for name in ("model/model.safetensors", "predictions.jsonl", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name
