"""bench/lineage.py: systems that are equally large, words that are guessed from no more than is said, figures and tests
from single examples, and nothing done twice."""

import json
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.examples import Answer, AnswerExample, Span, TagExample, TextExample
from qkv.data.shards import Shards
from qkv.run import elmo_config, gpt_config, pretrain_config, word2vec_config
from tests.bench_modules import ROOT, bench_module
from tests.lineage_runs import LENGTH, make_systems
from tests.small_run import make_shards

systems = bench_module("lineage_systems")
runs = bench_module("lineage_runs")
sides = bench_module("lineage_sides")
table = bench_module("lineage_table")
lineage = bench_module("lineage")

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIGURED: dict[str, Any] = {
    "word2vec": word2vec_config.configured,
    "elmo": elmo_config.configured,
    "gpt": gpt_config.configured,
    "bert": pretrain_config.configured,
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("lineage"))


@pytest.fixture(scope="module")
def work(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_systems(tmp_path_factory.mktemp("systems"), Shards.open(shards).tokenizer())


@pytest.mark.parametrize(("vocabulary_size", "size"), [(20_000, "mini"), (10_000, "tiny"), (30_000, "small")])
def test_systems_are_equally_large(vocabulary_size: int, size: str) -> None:
    found = systems.Shapes.equal(vocabulary_size, size)
    assert list(found.parameters) == list(systems.SYSTEMS)
    assert max(found.parameters.values()) < 1.02 * min(found.parameters.values())


@pytest.mark.parametrize("system", systems.SYSTEMS)
@pytest.mark.parametrize("budget", [systems.Budget(), systems.QUICK], ids=["whole", "quick"])
def test_trainings_are_told_what_they_know(system: str, budget: Any) -> None:
    shapes = systems.Shapes.equal(2_000, "tiny")
    config = CONFIGURED[system]("shards", None, {}, systems.settings(system, shapes, budget))
    words = systems.command(system, Path("shards"), Path("new"), shapes, budget)
    assert words[words.index("--minutes") + 1] == str(budget.minutes) and words[4:6] == ["pretrain", system]
    if system == "elmo":
        assert config.model.config(2_000).cell_width == shapes.elmo_cells
    elif system == "word2vec":
        assert config.model.width == shapes.word2vec_width


def test_a_training_that_was_begun_goes_on(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    shapes = systems.Shapes.equal(2_000, "tiny")
    words = systems.command("gpt", Path("shards"), tmp_path, shapes, systems.QUICK)
    assert words[-2:] == ["--resume", str(tmp_path)]


def test_windows_begin_with_a_sentence_and_share_nothing(shards: Path) -> None:
    corpus = Shards.open(shards)
    found = sides.windows(corpus, 20)
    starts = set(corpus.sentence_offsets.tolist())
    documents = set(corpus.sentence_offsets[corpus.document_offsets].tolist())
    assert all(begin in starts and 0 < size <= 20 and (begin in documents) == begins for begin, size, begins in found)
    assert sum(begins for _, _, begins in found) == corpus.n_documents
    ends = [begin + size for begin, size, _ in found]
    assert all(end <= begin for end, (begin, _, _) in zip(ends, found[1:], strict=False))


def test_blanks_are_whole_words(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "MARGIN", 4)
    corpus = Shards.open(shards)
    tokenizer = corpus.tokenizer()
    found = sides.blanks(corpus, tokenizer, 50, LENGTH)
    assert len(found) > 10 and found == sides.blanks(corpus, tokenizer, 50, LENGTH)
    for one in found:
        assert tokenizer.token(one.word).isalpha() and not tokenizer.token(one.ids[one.place + 1]).startswith("##")
        assert 4 <= one.place < len(one.ids) - 4 and len(one.ids) <= LENGTH - 2


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_who_is_asked_from_the_left_does_not_see_the_right(system: str, shards: Path, work: Path) -> None:
    text = sides.Text.of(shards, torch.device("cpu"))
    ids, others = tuple(range(10, 40)), tuple(range(40, 70))
    ways = sides.ASKED[system](text, work / system)
    assert set(ways) >= ({sides.LEFT} if system == "gpt" else {sides.LEFT, sides.BOTH})
    for begins in (True, False):
        asked = sides.Blank(ids, 12, begins)
        changed = {
            "word": replace(asked, ids=(*ids[:12], 99, *ids[13:])),
            "right": replace(asked, ids=(*ids[:13], *others[13:])),
            "left": replace(asked, ids=(*others[:12], *ids[12:])),
        }
        for side, answer in ways.items():
            with torch.no_grad():
                scores = answer([asked])
                same = {what: torch.allclose(answer([one]), scores, atol=1e-6) for what, one in changed.items()}
            assert same == {"word": True, "right": side != sides.BOTH, "left": False}, side


def test_the_mark_of_a_document_stands_before_one_alone(shards: Path, work: Path) -> None:
    text = sides.Text.of(shards, torch.device("cpu"))
    ids = tuple(range(10, 40))
    for system in ("gpt", "elmo"):
        left = sides.ASKED[system](text, work / system)[sides.LEFT]
        with torch.no_grad():
            first, inside = left([sides.Blank(ids, 12, True)]), left([sides.Blank(ids, 12, False)])
        assert not torch.allclose(first, inside)


def test_all_sides_of_all_languages(shards: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "MARGIN", 4)
    asked = (shards, {"en": shards}, work, systems.SYSTEMS, 20, LENGTH, "cpu")
    lines = list(sides.asked_all(*asked))
    assert len(lines) == 9 and {line["words"] for line in lines} == {20}
    assert all(line["accuracy"] == np.mean(line["right"]) for line in lines)
    found = table.sides_of(lines)["en"]
    assert found["gpt left"]["low"] <= found["gpt left"]["accuracy"] <= found["gpt left"]["high"]
    assert table.compared_sides(found, "bert both", "nobody") is None


def test_statistics_of_an_example() -> None:
    text = TextExample("x", label="T")
    assert runs.statistics_of(text, SimpleNamespace(label="T")) == [1, 1]
    tagged = TagExample("Tom in Rome", spans=(Span(0, 3, "PER"), Span(7, 11, "LOC")))
    said = SimpleNamespace(spans=(Span(0, 3, "PER"), Span(7, 11, "ORG"), Span(4, 6, "LOC")))
    assert runs.statistics_of(tagged, said) == [1, 3, 2]
    question = AnswerExample("Who?", "The cat sat.", answers=(Answer(0, "The cat"),))
    assert runs.statistics_of(question, SimpleNamespace(text="cat")) == [1.0, 1, 1]
    assert runs.statistics_of(question, SimpleNamespace(text="cat sat")) == [0.6667, 0, 1]


def lines_of(task: str, rows: dict[str, list[list[list[int]]]]) -> list[dict[str, Any]]:
    return [
        {"part": "finetune", "task": task, "system": system, "seed": seed, "statistics": one, "whole_seconds": 1.0}
        for system, seeds in rows.items()
        for seed, one in enumerate(seeds)
    ]


def test_figures_and_steps_of_the_lineage() -> None:
    half, most = [[1, 1], [0, 1]] * 100, [[1, 1], [1, 1], [1, 1], [0, 1]] * 50
    tags = [[2, 3, 4], [1, 1, 2]]
    lines = lines_of("sst2", {"word2vec": [half, half], "bert": [most]}) + lines_of("conll2003", {"gpt": [tags]})
    found = table.cells(lines)
    assert found["sst2", "word2vec"].value == 0.5 and found["sst2", "word2vec"].deviation == 0
    assert found["sst2", "bert"].low < 0.75 < found["sst2", "bert"].high and found["sst2", "bert"].deviation is None
    assert found["conll2003", "gpt"].value == 2 * 3 / (4 + 6)
    (step,) = table.steps(found)
    assert (step.earlier, step.later, step.is_sure) == ("word2vec", "bert", True)
    assert step.difference.difference == pytest.approx(0.25)
    (again,) = table.steps(table.cells(lines_of("sst2", {"gpt": [half], "bert": [half[::-1]]})))
    assert not again.is_sure


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    half, most = [[1, 1], [0, 1]] * 20, [[1, 1], [1, 1], [1, 1], [0, 1]] * 10
    lines = lines_of("sst2", {"word2vec": [half], "elmo": [half], "gpt": [most], "bert": [most]})
    side = {"part": "sides", "language": "zh", "words": 4}
    lines += [{**side, "system": "gpt", "side": "left", "accuracy": 0.25, "right": [1, 0, 0, 0]}]
    lines += [{**side, "system": "bert", "side": "both", "accuracy": 0.5, "right": [1, 1, 0, 0]}]
    lines += [{"part": "finetune", "task": "wic", "system": "gpt", "seed": 0, "error": "ValueError: no"}]
    summary = table.summed_up(lines)
    page = table.markdown(summary)
    assert "| sst2 dev, accuracy | 50.0 [" in page and "elmo → gpt" in page and "| gpt | 25.0 [" in page
    assert summary["failed"] == ["wic gpt 0: ValueError: no"] and "right" not in summary["sides"]["zh"][0]
    assert summary["side_differences"][0]["difference"] == 0.25
    file = tmp_path / "lineage.json"
    file.write_text(json.dumps(summary))
    subprocess.run([sys.executable, str(ROOT / "docs" / "lineage_figure.py"), str(file)], check=True)
    assert "SST-2" in (tmp_path / "lineage.svg").read_text() and "只看左边" in (tmp_path / "lineage.zh.svg").read_text()


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    for part in ("train", "test"):
        rows = [f"cat : the cat number {n}\tthe dog {n % 3}\t{'TF'[n % 2]}" for n in range(12)]
        file = runs.WIC.file(folder, "wic", part)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(lzma.compress("\n".join(["text\tpair\tlabel", *rows, ""]).encode()))
    return folder


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_a_run(system: str, work: Path, sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runs.SETS, "wic", replace(runs.WIC, max_length=32))
    run = runs.Run("wic", system, str(work / system / "model"), 0, "cpu", str(sets), most=8, scored=6, epochs=1.0)
    found = runs.fine_tuned(run)
    assert "error" not in found, found
    assert found["examples"] == {"train": 8, "scored": 6} and len(found["statistics"]) == 6
    assert found["scores"]["accuracy"] == pytest.approx(np.sum(found["statistics"], axis=0)[0] / 6)
    assert found["lr"] == (1e-3 if system in ("word2vec", "elmo") else runs.WIC.lr)
    assert (found["moving"] < found["parameters"]) == (system == "elmo")  # which gives features, and stays as it is


def test_a_failure_is_a_line_too(work: Path, tmp_path: Path) -> None:
    found = runs.fine_tuned(runs.Run("wic", "bert", str(work / "bert" / "model"), 0, "cpu", str(tmp_path)))
    assert "InputError" in found["error"] and "statistics" not in found


def test_nothing_is_done_twice(
    work: Path, sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = tmp_path / "before.jsonl", tmp_path / "lines.jsonl"
    done = [
        {"part": "finetune", "task": "wic", "system": name, "seed": 0, "whole_seconds": 1} for name in ("gpt", "elmo")
    ]
    done += [{**done[0], "system": "bert", "error": "x"}]  # what failed is tried again
    before.write_text("".join(json.dumps(line) + "\n" for line in done))
    words = ["finetune", "--quick", "--work", str(work), "--sets", str(sets), "--tasks", "wic", "--deadline", "0"]
    options = lineage.parsed([*words, "--before", str(before), "--lines", str(out)])
    lineage.finetune(options, lineage.Lines(options.lines, options.before))
    assert "2 runs are left" in (said := capsys.readouterr().out) and "not started" in said and not out.exists()
    lines = lineage.Lines(out, [before])
    lines.add({"part": "pretrain", "system": "bert"})
    monkeypatch.setattr(lineage, "trained", lambda *_: pytest.fail("it was trained before"))
    options = lineage.parsed(["pretrain", "--quick", "--systems", "bert", "--data", "x", "--deadline", "1"])
    lineage.pretrain(options, lineage.Lines(out, []))
    assert "done before" in capsys.readouterr().out
