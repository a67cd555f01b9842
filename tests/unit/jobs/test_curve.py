"""qkv curve: points, draws, what is said about them, and going on after a stop. (Draws: jobs/curve.py.)"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.cli.main import main
from qkv.errors import InputError
from qkv.jobs import curve
from qkv.jobs.curve import CurveConfig, draw_order, sample_sizes
from qkv.jobs.finetune.settings import FinetuneConfig, resolve_finetune_settings
from qkv.train.log import Silent
from qkv.train.run_folder import Outcome
from tests.stories.test_bad_input import fails
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")

WHO, WHAT = "我你他她人猫狗鱼国京", ("爱吃鱼", "不爱狗", "有大猫", "在北京", "欠万元", "很好")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/ and labelled files."""
    folder = tmp_path_factory.mktemp("curve")
    make_folder(folder / "model")
    rows = [(who + what, "good" if "爱" in what or "好" in what else "bad") for who in WHO for what in WHAT]
    rows[7] = (rows[7][0], "rare")
    (folder / "train.csv").write_text("text,label\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")
    (folder / "dev.csv").write_text("text,label\n" + "".join(f"{a}！,{b}\n" for a, b in rows[:16]), encoding="utf-8")
    many = [{"text": text, "label": [c for c in "鱼狗猫万" if c in text]} for text, _ in rows]
    (folder / "many.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in many), encoding="utf-8"
    )
    numbers = [f"{text}\t{len(text) + 0.25 * place % 3}\n" for place, (text, _) in enumerate(rows)]
    (folder / "numbers.tsv").write_text("text\tlabel\n" + "".join(numbers), encoding="utf-8")
    tagged = "".join(f"{who} B-PER\n爱 O\n北 B-LOC\n京 I-LOC\n\n" for who in WHO * 3)
    (folder / "tagged.bio").write_text(tagged, encoding="utf-8")
    questions = [
        {"context": f"{who}爱{what}", "question": "爱？", "choices": [what, "万元", "5g"][: 2 + place % 2], "answer": 0}
        for place, who in enumerate(WHO * 2)
        for what in ("猫", "鱼")
    ]
    (folder / "choice.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in questions), encoding="utf-8"
    )
    return folder


def configured(folder: Path, task: str = "classify", train: str = "train.csv", **more: Any) -> CurveConfig:
    flags = {"data.train": str(folder / train), "epochs": 1.0, **more.pop("flags", {})}
    finetune = resolve_finetune_settings(task, str(folder / "model"), more.pop("transfer", "features"), None, flags)
    return CurveConfig(**{"shares": (0.3, 0.6, 1.0), "draws": 2, **more}, finetune=finetune)


class Told(Silent):
    def __init__(self, stop_at: str = "") -> None:
        self.messages: list[str] = []
        self.places: list[int] = []
        self.stop_at = stop_at

    def start(self, step: int, steps: int) -> None:
        self.places += [step, steps]

    def step(self, step: int, figures: Any) -> None:
        self.places.append(step)

    def message(self, text: str) -> None:
        self.messages.append(text)
        if self.stop_at and text.startswith(self.stop_at):
            raise KeyboardInterrupt


def test_a_whole_curve(folder: Path, tmp_path: Path) -> None:
    told = Told()
    finished = curve.CURVES.start(
        configured(folder, flags={"data.dev": str(folder / "dev.csv")}), tmp_path / "run", told
    )
    assert finished.finished and not (tmp_path / "run" / "points").exists()
    names = {"config.toml", "points.jsonl", "report.html", "result.json"}
    assert {file.name for file in (tmp_path / "run").iterdir()} == names
    result = finished.result
    assert [point["n"] for point in result["points"]] == [18, 36, 60]
    assert all(len(point["scores"]) == 2 and point["deviation"] is not None for point in result["points"])
    assert result["examples"] == {"train": 60, "dev": 16} and result["main"] == "accuracy"
    assert result["verdict"]["en"] and result["verdict"]["zh"] and 0 < result["baseline"] < 1
    lines = curve.read_points(tmp_path / "run")
    assert [(line["n"], line["draw"]) for line in lines] == [(n, draw) for draw in (0, 1) for n in (18, 36, 60)]
    read, _, *points = told.messages
    assert "train.csv: 60 examples (csv, text = 'text', label = 'label')" in read
    while points[0].endswith(")") or points[0].startswith("note: "):  # the dev file, and what was noticed
        points.pop(0)
    assert points[0] == "point 1 of 6: 18 of 60 examples, draw 1 of 2"
    first, total, *places = told.places
    assert first == 0 and places == sorted(places) and places[-1] == total
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Learning curve" in page and "学习曲线" in page


@pytest.mark.parametrize(
    ("task", "train", "transfer"),
    [
        ("classify", "many.jsonl", "features"),
        ("classify", "numbers.tsv", "features"),
        ("classify", "train.csv", "top:1"),
        ("tag", "tagged.bio", "features"),
        ("choice", "choice.jsonl", "features"),
    ],
)
def test_every_kind_of_task(folder: Path, tmp_path: Path, task: str, train: str, transfer: str) -> None:
    config = configured(folder, task, train, transfer=transfer, shares=(0.4, 1.0), draws=1)
    result = curve.CURVES.start(config, tmp_path / "run", Silent()).result
    assert len(result["points"]) == 2 and all(np.isfinite(point["mean"]) for point in result["points"])
    assert result["fit"]["reason"] == "few_sizes" and "cannot be estimated" in result["verdict"]["en"]


def test_vectors_that_are_shared_are_those_of_a_run_of_its_own(folder: Path, tmp_path: Path) -> None:
    """`freeze` runs the encoder at every step, `features` once for the whole curve; both learn the same head."""
    for train, task in (("train.csv", "classify"), ("tagged.bio", "tag"), ("choice.jsonl", "choice")):
        losses = []
        for transfer in ("freeze", "features"):
            config = configured(folder, task, train, transfer=transfer, shares=(0.5,), draws=1)
            curve.CURVES.start(config, tmp_path / f"{task}-{transfer}", Silent())
            losses.append([line["loss"] for line in curve.read_points(tmp_path / f"{task}-{transfer}")])
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_stopped_curve_goes_on(folder: Path, tmp_path: Path) -> None:
    config = configured(folder, draws=1)
    whole = curve.CURVES.start(config, tmp_path / "whole", Silent()).result
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        curve.CURVES.start(config, run, Told(stop_at="point 3 of 3: 54"))
    kept = (run / "points.jsonl").read_text(encoding="utf-8")
    assert len(kept.splitlines()) == 2 and not (run / "result.json").exists()
    with pytest.raises(InputError, match="qkv curve --resume"):
        curve.CURVES.start(config, run, Silent())
    told = Told()
    again = curve.CURVES.resume(run, told)
    assert again.finished and told.messages[0].startswith("point 3 of 3")
    assert (run / "points.jsonl").read_text(encoding="utf-8").startswith(kept)
    assert again.result["points"] == whole["points"] and again.result["fit"] == whole["fit"]
    assert curve.CURVES.resume(run, Silent()).already
    with pytest.raises(InputError, match="not a run"):
        curve.CURVES.resume(tmp_path, Silent())


def test_a_point_that_is_stopped_is_no_point(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> Outcome:
        return Outcome(0, 1, finished=False, signal=2)

    monkeypatch.setattr(curve, "train_point", stopped)
    found = curve.CURVES.start(configured(folder), tmp_path / "run", Silent())
    assert (found.finished, found.signal, found.run) == (False, 2, tmp_path / "run")
    assert curve.read_points(tmp_path / "run") == []


def test_a_file_that_changed_is_told(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_bytes((folder / "train.csv").read_bytes())
    with pytest.raises(KeyboardInterrupt):
        curve.CURVES.start(configured(folder, flags={"data.train": str(file)}), tmp_path / "run", Told("point 1"))
    file.write_text(file.read_text(encoding="utf-8") + "新,good\n", encoding="utf-8")
    with pytest.raises(InputError, match="has changed since"):
        curve.CURVES.resume(tmp_path / "run", Silent())


def test_settings() -> None:
    for wrong, message in (({"shares": (0.0, 1.0)}, "above 0"), ({"shares": ()}, "above 0"), ({"draws": 0}, "draws")):
        with pytest.raises(InputError, match=message):
            CurveConfig(**wrong)
    with pytest.raises(InputError, match="--draws instead of seeds"):
        CurveConfig(finetune=FinetuneConfig(seeds=3))


def test_sizes() -> None:
    assert sample_sizes((0.1, 0.2, 1.0), 1000, 5) == (100, 200, 1000)
    assert sample_sizes((0.001, 0.002, 1.0), 1000, 5) == (8, 1000)
    assert sample_sizes((0.1, 1.0), 20, 150) == (20,)


def labels_in(labels: Sequence[Sequence[str]], order: Any) -> list[str]:
    return [label for number in order for label in labels[number]]


def test_a_draw_has_every_label_and_each_by_its_share() -> None:
    labels = [["often"]] * 800 + [["sometimes"]] * 195 + [["rare"]] * 4 + [["once"]]
    for draw in range(5):
        order = draw_order(labels, 0, draw)
        assert sorted(order.tolist()) == list(range(1000))
        assert set(labels_in(labels, order[:8])) == {"often", "sometimes", "rare", "once"}
        found = labels_in(labels, order[:100])
        assert 76 <= found.count("often") <= 82 and 16 <= found.count("sometimes") <= 22
    assert (draw_order(labels, 0, 1) == draw_order(labels, 0, 1)).all()
    assert (draw_order(labels, 0, 1) != draw_order(labels, 0, 2)).any()
    assert (draw_order(labels, 1, 1) != draw_order(labels, 0, 1)).any()


def test_a_draw_of_several_labels_and_of_none() -> None:
    labels = [["a", "b"], ["b"], [], ["c"], ["a"]] * 40 + [["d", "e"]]
    for draw in range(5):
        assert set(labels_in(labels, draw_order(labels, 0, draw)[:5])) == set("abcde")
    assert sorted(draw_order([[]] * 9, 0, 0).tolist()) == list(range(9))


def words(folder: Path, out: Path) -> list[object]:
    small = ["--shares", "0.5,1", "--draws", 1, "--epochs", 1, "--transfer", "features"]
    return ["curve", "classify", "-m", folder / "model", "--train", folder / "train.csv", "-o", out, *small]


def test_the_command(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    assert main([str(word) for word in words(folder, tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    assert "point 2 of 2" in err and "report.html" in err
    assert out.startswith("examples") and "accuracy" in out and "cannot be estimated" in out
    assert main(["curve", "--resume", str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["finished"] and len(document["result"]["points"]) == 2
    assert main([str(word) for word in [*words(folder, tmp_path / "other"), "--set", "train.seed=3", "--json"]]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(tmp_path / "other")


def test_the_command_stopped(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve, "train_point", lambda *_: Outcome(0, 1, finished=False, signal=2))
    assert main([str(word) for word in words(folder, tmp_path / "run")]) == 130
    assert f"qkv curve --resume {tmp_path / 'run'}" in capsys.readouterr().err


def test_wrong_words(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    assert "Did you mean 'classify'" in fails(capsys, "curve", "clasify", "--train", "x", "-o", tmp_path / "run")
    assert "Name the task" in fails(capsys, "curve")
    assert "--train" in fails(capsys, "curve", "classify")
    assert "--kind is for classify" in fails(
        capsys, "curve", "tag", "--train", "x", "-o", tmp_path / "run", "--kind", "multi"
    )
    assert "leave out everything else" in fails(capsys, "curve", "--resume", tmp_path, "--draws", 3)
    usual = words(folder, tmp_path / "run")
    assert "with commas" in fails(capsys, *usual, "--shares", "0.1;1")
    assert "above 0" in fails(capsys, *usual, "--shares", "10,100")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert "not an empty folder" in fails(capsys, *words(folder, tmp_path / "taken"))
