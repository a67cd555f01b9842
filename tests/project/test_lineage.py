"""bench/lineage.py: systems that are equally large and trained as is said, words that are guessed from no more than is
said, runs, what is chosen, and nothing done twice. Figures from its lines: test_lineage_table.py."""

import json
import lzma
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.corpus.shards import Shards
from qkv.data.labelled.examples import AnswerExample, AnswerSpan, Span, TagExample, TextExample
from qkv.errors import InputError
from qkv.models.elmo.network import BothWays
from tests.support.bench_modules import ROOT, bench_module
from tests.support.lineage_runs import LENGTH, make_systems
from tests.support.small_run import configured, make_shards

systems = bench_module("lineage_systems")
training = bench_module("lineage_train")
runs = bench_module("lineage_runs")
sides = bench_module("lineage_sides")
choice = bench_module("lineage_choice")
lineage = bench_module("lineage")

pytestmark = pytest.mark.usefixtures("one_thread")


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
    assert found.elmo_cells % systems.ALIGNED == 0, "what a GPU multiplies fast"
    gap = abs(found.parameters["elmo"] - found.parameters["bert"])
    for cells in (found.elmo_cells - systems.ALIGNED, found.elmo_cells + systems.ALIGNED):
        config = systems.elmo_config(vocabulary_size, cells, found.elmo_width)
        assert abs(systems.counted(lambda config=config: BothWays(config)) - found.parameters["bert"]) >= gap


def config_of(system: str, budget: Any, shapes: Any) -> Any:
    return training.config_of(systems.told(system, Path("shards"), Path("new"), shapes, budget))


@pytest.mark.parametrize("system", systems.SYSTEMS)
@pytest.mark.parametrize("budget", [systems.Budget(), systems.QUICK], ids=["whole", "quick"])
def test_trainings_are_told_what_they_know(system: str, budget: Any) -> None:
    shapes = systems.Shapes.equal(2_000, budget.size)
    config = config_of(system, budget, shapes)
    assert config.train.minutes == budget.minutes and config.device == budget.device
    if system == "word2vec":
        assert config.model.width == shapes.word2vec_width
        return
    assert config.train.precision == ("bf16" if budget.device == "cuda" else "fp32")
    if system == "elmo":
        found = systems.counted(lambda: systems.BothWays(config.model.config(2_000)))
    elif system == "gpt":
        found = systems.counted(lambda: systems.GPT(config.model.config(2_000, config.length)))
    else:
        found = systems.counted(lambda: systems.Bert(config.model.config(2_000, config.pairs.max_length)))
    assert found == shapes.parameters[system]


def test_steps_may_be_given_instead_of_minutes() -> None:
    shapes = systems.Shapes.equal(2_000, "tiny")
    config = training.config_of(systems.told("elmo", Path("shards"), Path("new"), shapes, systems.QUICK, 1_089))
    assert config.train.minutes is None and config.train.steps == 1_089
    assert lineage.parsed(["pretrain", "--steps", "elmo=1089"]).steps == {"elmo": 1_089}
    with pytest.raises(SystemExit):
        lineage.parsed(["pretrain", "--steps", "elmo"])


def flat(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in asdict(config).items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return found


LOGGING = {"train.minutes", "train.log_every", "train.evaluate_every", "train.save_every"}
DIFFERENCES: dict[str, set[str]] = {
    "word2vec": {"model.width", "train.lr"},
    "elmo": {"model.filters", "model.cell_width", "text.ends"},
    "gpt": {"model.max_length", "rows", "train.optimizer", "train.warmup"},
    "bert": {"model.layers", "model.inner_width", "model.dropout", "pairs.max_length", "pairs.usual_length", "rows"},
}


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_trainings_are_their_recipes_but_for_what_is_told(system: str) -> None:
    config = config_of(system, systems.Budget(), systems.Shapes.equal(20_000, "mini"))
    own = configured(system, "shards", ROOT / "src" / "qkv" / "zoo" / "recipes" / systems.RECIPES[system])
    theirs, ours = flat(own), flat(config)
    changed = {key for key in ours if ours[key] != theirs[key]} - LOGGING - {"device"}
    assert changed == DIFFERENCES[system]


def test_one_dropout_for_all_and_one_loop_for_both_transformers() -> None:
    shapes = systems.Shapes.equal(20_000, "mini")
    found = {system: config_of(system, systems.Budget(), shapes) for system in systems.SYSTEMS}
    dropouts = {key: value for one in found.values() for key, value in flat(one).items() if "dropout" in key}
    assert len(dropouts) == 3 and set(dropouts.values()) == {0.0}
    loops = [
        {name: getattr(found[system].train, name) for name in ("optimizer", "lr", "warmup", "weight_decay", "schedule")}
        for system in ("gpt", "bert")
    ]
    assert loops[0] == loops[1] and loops[0]["optimizer"] == "muon" and found["elmo"].train.optimizer == "adamw"
    assert found["gpt"].rows * found["gpt"].length == found["bert"].rows * found["bert"].pairs.max_length
    assert runs.WIC.lr == runs.TASKS["sst2"].lr and "wic" not in runs.TASKS


def test_a_folder_of_another_budget_is_not_gone_on_with(tmp_path: Path) -> None:
    systems.check_budget("gpt", tmp_path, systems.QUICK)
    (tmp_path / "gpt").mkdir()
    systems.check_budget("gpt", tmp_path, systems.QUICK)
    with pytest.raises(InputError, match="another --work"):
        systems.check_budget("gpt", tmp_path, replace(systems.QUICK, minutes=7.0))
    (tmp_path / "bert").mkdir()
    with pytest.raises(InputError, match="nobody wrote down"):
        systems.check_budget("bert", tmp_path, systems.QUICK)


def test_a_training_that_was_begun_goes_on(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = systems.Shapes.equal(Shards.open(shards).tokenizer().size, "tiny")
    words = systems.told("gpt", shards, tmp_path / "gpt", shapes, systems.QUICK)
    del words["flags"]["train.minutes"]
    words["settings"] += ["train.steps=2", "rows=2", "model.layers=1", "model.width=16", "model.heads=2"]
    monkeypatch.setattr(sys, "argv", ["lineage_train.py", json.dumps(words)])
    training.main()
    before = systems.weights_of(tmp_path / "gpt")
    training.main()
    assert systems.weights_of(tmp_path / "gpt") == before
    words["data"] = words["out"] = str(tmp_path / "nothing")
    monkeypatch.setattr(sys, "argv", ["lineage_train.py", json.dumps(words)])
    with pytest.raises(SystemExit, match="nothing"):
        training.main()


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


def test_sides_are_asked_of_whom_they_were_not(
    shards: Path, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sides, "MARGIN", 4)
    monkeypatch.setattr(lineage, "QUICK", replace(systems.QUICK, length=LENGTH))
    other = make_shards(tmp_path / "other", 100)
    out = tmp_path / "lines.jsonl"
    words = ["sides", "--quick", "--work", str(work), "--data", str(shards), "--words", "20", "--lines", str(out)]
    first = [*words, "--held-out", f"en={other}", "--systems", "gpt"]
    lineage.main(first)
    lineage.main(first)
    assert "en: 0 of 2 done before" in (said := capsys.readouterr().out) and "en: 2 of 2 done before" in said
    lineage.main([*words, "--held-out", f"en={other}"])
    lines = lineage.Lines(out, []).found
    assert len(lines) == 9 and {line["words"] for line in lines} == {20}
    assert all(line["accuracy"] == np.mean(line["right"]) for line in lines)
    assert {line["side"] for line in lines if line["system"] == sides.ONE_WORD} == {sides.NEITHER}
    lineage.main([*first, "--words", "10"])  # fewer words are other words
    assert len(lineage.Lines(out, []).found) == 11


def test_text_that_was_learned_from_is_no_test(shards: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(shards, tmp_path / "copy")
    for place in (shards, copied):
        with pytest.raises(InputError, match="what was learned from"):
            sides.check_held_out(shards, {"en": place})
    with pytest.raises(InputError, match="no shards"):
        sides.check_held_out(shards, {"en": tmp_path})


def test_statistics_of_an_example() -> None:
    text = TextExample("x", label="T")
    assert runs.statistics_of(text, SimpleNamespace(label="T")) == [1, 1]
    tagged = TagExample("Tom in Rome", spans=(Span(0, 3, "PER"), Span(7, 11, "LOC")))
    said = SimpleNamespace(spans=(Span(0, 3, "PER"), Span(7, 11, "ORG"), Span(4, 6, "LOC")))
    assert runs.statistics_of(tagged, said) == [1, 3, 2]
    question = AnswerExample("Who?", "The cat sat.", answers=(AnswerSpan(0, "The cat"),))
    assert runs.statistics_of(question, SimpleNamespace(text="cat")) == [1.0, 1, 1]
    assert runs.statistics_of(question, SimpleNamespace(text="cat sat")) == [0.6667, 0, 1]
    other = replace(question, text="A dog sat.")
    assert runs.groups_of([question, other, replace(question, question="What?")]) == [0, 1, 0]
    assert runs.groups_of([text]) is None


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


def parsed(work: Path, sets: Path, *words: str) -> Any:
    return lineage.parsed(["finetune", "--quick", "--work", str(work), "--sets", str(sets), "--tasks", "wic", *words])


def done(options: Any, task: str, system: str, **more: Any) -> dict[str, Any]:
    """The line of a run that went well."""
    run = lineage.a_run(options, task, system, 0, "cpu")
    return {**replace(run, **more).key, "whole_seconds": 1.0, "scores": {"accuracy": 0.5}}


def test_nothing_is_done_twice(
    work: Path, sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = tmp_path / "before.jsonl", tmp_path / "lines.jsonl"
    options = parsed(work, sets, "--deadline", "0", "--before", str(before), "--lines", str(out))
    kept = [done(options, "wic", "elmo"), done(options, "wic", "word2vec", epochs=2.0)]  # the latter is another run
    kept += [{**done(options, "wic", "bert"), "error": "x"}]  # what failed is tried again
    before.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert lineage.finetune(options, lineage.Lines(options.lines, options.before)) == 0
    said = capsys.readouterr().out
    assert "5 runs are left" in said and "not started" in said and not out.exists()  # 3, and 2 to choose by
    options.most, options.quick = 7, False
    lineage.finetune(options, lineage.Lines(options.lines, options.before))
    assert "6 runs are left" in capsys.readouterr().out
    assert lineage.parsed(["table"]).work != lineage.parsed(["table", "--quick"]).work

    monkeypatch.setattr(lineage, "trained", lambda *_: pytest.fail("it was trained before"))
    lines = lineage.Lines(out, [])
    words = ["pretrain", "--quick", "--work", str(work), "--systems", "bert", "--data", "x"]
    options = lineage.parsed([*words, "--deadline", "1"])
    line = {"part": "pretrain", "system": "bert", "weights": systems.weights_of(work / "bert")}
    lines.add(line | {"budget": asdict(replace(options.budget, minutes=3.0))})
    assert lineage.pretrain(options, lines) == 0 and "not started" in capsys.readouterr().out
    lines.add(line | {"budget": asdict(options.budget)})
    assert lineage.pretrain(options, lines) == 0 and "done before" in capsys.readouterr().out


def test_a_training_that_fails_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(system: str, *_: Any) -> dict[str, Any]:
        if system == "gpt":
            raise subprocess.CalledProcessError(1, "qkv")
        return {"part": "pretrain", "system": system, "steps": 1, "seconds": 1.0, "evaluation": {}}

    monkeypatch.setattr(lineage, "trained", fails)
    with pytest.raises(SystemExit) as ended:
        lineage.main(["pretrain", "--quick", "--work", str(tmp_path), "--data", "x", "--systems", "gpt", "bert"])
    assert ended.value.code == 1
    assert [line["system"] for line in lineage.Lines(tmp_path / "lines.jsonl", []).found] == ["bert"]


class InThisProcess(ThreadPoolExecutor):
    def __init__(self, workers: int, *_: Any) -> None:
        super().__init__(1)


def test_gpt_waits_for_what_is_chosen(
    work: Path, sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []
    scores = {0.5: 0.7, 0.0: 0.8}

    def ran(run: Any) -> dict[str, Any]:
        started.append(run)
        found = {**run.key, "whole_seconds": 9_000.0 if run.system == "bert" else 1.0, "steps": 1, "seconds": 1.0}
        if run.system == "bert":
            return found | {"error": "ValueError: no"}
        return found | {"scores": {"accuracy": scores[run.language_model_weight] if run.part == "choose" else 0.6}}

    monkeypatch.setattr(lineage, "fine_tuned", ran)
    monkeypatch.setattr(lineage, "ProcessPoolExecutor", InThisProcess)
    options = parsed(work, sets, "--systems", "gpt", "bert", "--seeds", "0", "1", "--deadline", "600")
    lines = lineage.Lines(tmp_path / "lines.jsonl", [])
    assert lineage.finetune(options, lines) == 2  # a long failure keeps no later run from being started
    assert [(run.part, run.task) for run in started[:2]] == [("choose", "sst2")] * 2
    learned = [run.language_model_weight for run in started[2:] if run.system == "gpt"]
    assert learned == [0.0, 0.0] and all(run.language_model_weight is None for run in started if run.system == "bert")
    started.clear()
    assert lineage.finetune(parsed(work, sets, "--systems", "gpt", "--seeds", "0", "1"), lines) == 0
    assert not started and "0 runs are left" in capsys.readouterr().out
    deciding = choice.choices(lineage.a_run(options, "wic", "gpt", 1, "cpu"))
    equal = [{**run.key, "scores": {"accuracy": 0.5}} for run in deciding]
    lines.found = equal[:1]
    assert choice.chosen(deciding, lines) is None
    lines.found = equal
    assert choice.chosen(deciding, lines) == 0.5


def test_what_is_chosen_is_chosen_on_training_examples(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runs.SETS, "sst2", replace(runs.SETS["sst2"], max_length=32))
    file = runs.SETS["sst2"].file(tmp_path, "sst2", "train")
    file.parent.mkdir()
    rows = [f"the film number {n} is {'good' if n % 2 else 'bad'}\t{n % 2}" for n in range(60)]
    file.write_bytes(lzma.compress("\n".join(["sentence\tlabel", *rows, ""]).encode()))  # and there is no dev part
    run = runs.Run("wic", "gpt", str(work / "gpt" / "model"), 0, "cpu", str(tmp_path), most=16, scored=4, epochs=1.0)
    for one in choice.choices(run):
        found = runs.fine_tuned(one)
        assert "error" not in found, found
        assert found["examples"] == {"train": 16, "scored": 4} and "statistics" not in found
        assert found["settings"]["language_model_weight"] == one.language_model_weight and found["part"] == "choose"


def test_it_runs_without_what_the_machine_with_the_gpu_lacks() -> None:
    program = (
        "import sys; sys.modules |= dict.fromkeys(('pydantic', 'rjieba', 'transformers')); "
        "sys.path[:0] = ['bench', 'src']; import lineage, lineage_train; print(lineage.parsed(['table']).part)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "table\n"
