"""Whole fine-tuning runs on tiny networks: every task, every way of transfer, exact resume, honest results."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.api.model import load
from qkv.data.batch import Batch
from qkv.data.labelled.examples import Span, TagExample, TextExample
from qkv.errors import InputError
from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune.data import hold_out, read_data
from qkv.jobs.finetune.settings import FinetuneConfig, resolve_finetune_settings
from qkv.jobs.finetune.training import TrainingBatches, build_network, prepare_examples
from qkv.jobs.lifecycle import Finished
from qkv.models.table import open_model
from qkv.tasks.predictor import Solver
from qkv.train.log import Silent
from qkv.train.loop import Trainer
from qkv.train.run_folder import Outcome
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder
from tests.support.near import assert_near
from tests.support.small_run import Recorder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel", dropout=0.1, initial_std=0.05)


def config(
    pretrained: Path, task: str, file: Path, transfer: Any = "full", dev: Any = None, **flags: Any
) -> FinetuneConfig:
    given = {"data.train": str(file), "epochs": 2.0, "train.lr": 3e-3, **flags}
    if dev is not None:
        given["data.dev"] = str(dev)
    return resolve_finetune_settings(
        task, str(pretrained), transfer, None, given, ["train.threads=1", "texts_per_step=8"]
    )


def run(out: Path, settings: FinetuneConfig) -> Finished:
    return finetune.FINETUNING.start(settings, out, Silent())


@pytest.mark.parametrize("task", sets.WRITERS)
def test_every_task_from_file_to_prediction(tmp_path: Path, pretrained: Path, task: str) -> None:
    file = sets.WRITERS[task](tmp_path / ("data.csv" if task == "classify" else "data.json"))
    done = run(tmp_path / "run", config(pretrained, task, file, epochs=25.0))
    assert done.finished
    result = done.result
    assert result["dev"][result["main"]] > 0.6, result["dev"]
    low, high = result["dev"]["intervals"][result["main"]]
    assert low <= result["dev"][result["main"]] <= high
    for name in ("config.toml", "log.jsonl", "predictions.jsonl", "report.html", "result.json", "model/qkv.json"):
        assert (tmp_path / "run" / name).is_file(), name
    assert not (tmp_path / "run" / "checkpoints").exists()
    model = load(tmp_path / "run")
    example: Any = {
        "classify": "the cat sat on 1",
        "tag": "he owes me cat is 😀 3",
        "answer": ("he sat", "the dog sat on mat ."),
        "choice": {"text": "the cat is tired", "question": "it", "choices": ["cat", "mat"]},
    }[task]
    (found,) = model.predict([example])
    assert found.n_tokens > 2 and found.n_windows == 1
    json.dumps(found.to_dict())


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_freeze_and_features_learn_the_same_head(tmp_path: Path, pretrained: Path, task: str) -> None:
    """The encoder says the same every time, so asking it once is as good as asking it in every epoch."""
    file = sets.WRITERS[task](tmp_path / ("data.csv" if task == "classify" else "data.json"))
    heads = []
    for way in ("freeze", "features"):
        run(tmp_path / way, config(pretrained, task, file, way))
        heads.append(load(tmp_path / way).network.state_dict())
    head = {"classify": "sequence", "tag": "token"}[task]
    torch.testing.assert_close(heads[0][f"heads.{head}.linear.weight"], heads[1][f"heads.{head}.linear.weight"])
    before = load(pretrained).network.state_dict()
    for name in before:
        if "pooler" not in name:
            torch.testing.assert_close(heads[0][name], before[name], rtol=0, atol=0)


def test_the_last_layers_move_alone(tmp_path: Path, pretrained: Path) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    run(tmp_path / "run", config(pretrained, "classify", file, "top:1"))
    before = load(pretrained).network.state_dict()
    after = load(tmp_path / "run").network.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.startswith(("encoder.blocks.1.", "encoder.pooler.")) for name in moved)


class Interrupted:
    """Batches that fail at a step, as a killed process would."""

    def __init__(self, step: int) -> None:
        self.step, self.plain = step, TrainingBatches.__call__

    def __call__(self, batches: TrainingBatches, step: int) -> Sequence[Batch]:
        if step == self.step:
            raise KeyboardInterrupt
        return self.plain(batches, step)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_broken_run_ends_like_a_whole_one(
    tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch, seeds: int
) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    settings = config(pretrained, "classify", file, seeds=seeds, epochs=4.0)
    # every evaluation is saved, so that there is something to go on from
    settings = replace(settings, train=replace(settings.train, patience=3))
    monkeypatch.setattr("qkv.jobs.finetune.training.SAVED", 1)
    run(tmp_path / "whole", settings)
    with monkeypatch.context() as patch:
        broken = Interrupted(5)
        patch.setattr(TrainingBatches, "__call__", lambda self, step: broken(self, step))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "broken", settings)
    assert finetune.FINETUNING.resume(tmp_path / "broken", Silent()).finished
    for name in ("model/model.safetensors", "predictions.jsonl", "model/qkv.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name
    logs = [f"seed-{number}/log.jsonl" for number in range(seeds)] if seeds > 1 else ["log.jsonl"]
    for log in logs:
        assert (tmp_path / "whole" / log).read_bytes() == (tmp_path / "broken" / log).read_bytes()
    assert finetune.FINETUNING.resume(tmp_path / "broken", Silent()).already


def test_changed_data_cannot_be_resumed(tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    broken = Interrupted(2)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingBatches, "__call__", lambda self, step: broken(self, step))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", config(pretrained, "classify", file))
    sets.write_texts(file, sets.texts(50))
    with pytest.raises(InputError, match="has changed since the run began"):
        finetune.FINETUNING.resume(tmp_path / "run", Silent())


def test_seeds_are_told_and_the_best_is_kept(tmp_path: Path, pretrained: Path) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    result = run(tmp_path / "run", config(pretrained, "classify", file, seeds=3)).result
    values = result["seeds"]["values"]
    assert len(values) == 3 and result["seeds"]["mean"] == pytest.approx(np.mean(values))
    assert values[result["seeds"]["best"]] == max(values) == pytest.approx(result["dev"]["accuracy"], abs=1e-4)


def test_long_texts_are_read_in_windows(tmp_path: Path, pretrained: Path) -> None:
    texts = [
        TextExample(f"{'the 1 2 3 4 ' * (40 if n < 6 else 1)} {'cat' if n % 2 else 'mat'} {n}", label=str(n % 2))
        for n in range(40)
    ]
    file = sets.write_texts(tmp_path / "data.csv", texts)
    done = run(tmp_path / "run", config(pretrained, "classify", file))
    model = load(tmp_path / "run")
    (found,) = model.predict(["the 1 2 3 4 " * 200])
    assert found.n_windows > 4 and found.n_tokens == 1002
    assert done.finished


def test_a_label_that_training_never_had(tmp_path: Path, pretrained: Path) -> None:
    train = sets.write_texts(tmp_path / "train.csv")
    rows = [TextExample("the cat", label="animal"), TextExample("a", label="aminal")]
    dev = sets.write_texts(tmp_path / "dev.csv", rows)
    with pytest.raises(InputError, match=r"dev.csv, line 3: the label 'aminal' .* Did you mean 'animal'"):
        run(tmp_path / "run", config(pretrained, "classify", train, dev=dev))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([TextExample("the cat", label="a")], "Every example|too few"),
        ([TextExample(f"the cat {n}", label="a") for n in range(9)], "has the label 'a': a classifier needs"),
        ([TextExample("the cat", label=str(n % 2)) for n in range(9)], "too few to hold some out"),
    ],
)
def test_data_that_cannot_be_learned_from(
    tmp_path: Path, pretrained: Path, rows: list[TextExample], message: str
) -> None:
    file = sets.write_texts(tmp_path / "train.csv", rows)
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", config(pretrained, "classify", file))
    assert not (tmp_path / "run").exists()


def test_the_same_texts_in_training_and_in_dev_are_told(tmp_path: Path, pretrained: Path) -> None:
    train = sets.write_texts(tmp_path / "train.csv")
    dev = sets.write_texts(tmp_path / "dev.csv", sets.texts(6))
    recorder = Recorder()
    finetune.FINETUNING.start(config(pretrained, "classify", train, dev=dev), tmp_path / "run", recorder)
    assert any("6 of 6 examples of dev.csv also stand in train.csv" in message for message in recorder.messages)


def test_class_weights(tmp_path: Path, pretrained: Path) -> None:
    rows = [TextExample(f"the cat {n % 9} {n // 9}", label="rare" if n % 10 == 0 else "often") for n in range(60)]
    file = sets.write_texts(tmp_path / "train.csv", rows)
    run(tmp_path / "run", config(pretrained, "classify", file, class_weights="auto"))
    with pytest.raises(InputError, match="class_weights auto is for classify and tag"):
        asked = sets.write_asked(tmp_path / "asked.json")
        run(tmp_path / "other", config(pretrained, "answer", asked, class_weights="auto"))


def test_regression_ends_in_the_users_own_numbers(tmp_path: Path, pretrained: Path) -> None:
    numbers = ("100.5", "900.5")
    rows = [TextExample(f"the {'cat' if n % 2 else 'mat'} {n % 9} {n // 9}", label=numbers[n % 2]) for n in range(80)]
    file = sets.write_texts(tmp_path / "train.csv", rows)
    result = run(tmp_path / "run", config(pretrained, "classify", file, epochs=15.0)).result
    assert result["kind"] == "regression" and result["dev"]["pearson"] > 0.8
    values = [one.value for one in load(tmp_path / "run").predict(["the cat 1", "the mat 1"])]
    assert abs(values[0] - 900.5) < 250 and abs(values[1] - 100.5) < 250


def test_any_number_of_labels(tmp_path: Path, pretrained: Path) -> None:
    lines = []
    for n in range(120):
        labels = [name for name, there in (("cat", n % 2), ("mat", n % 3 == 0)) if there]
        text = f"the {'cat' if n % 2 else 'a'} {'mat' if n % 3 == 0 else 'on'} {n % 10} {n // 10}"
        lines.append(json.dumps({"text": text, "label": labels}))
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    result = run(tmp_path / "run", config(pretrained, "classify", file, epochs=15.0)).result
    assert result["kind"] == "multi" and result["dev"]["micro_f1"] > 0.8
    assert set(result["calibration"]["thresholds"]) == {"cat", "mat"}


def test_what_a_run_works_out_cannot_be_set(tmp_path: Path, pretrained: Path) -> None:
    with pytest.raises(InputError, match="train.steps is worked out .* Set epochs instead"):
        resolve_finetune_settings("classify", str(pretrained), None, None, {}, ["train.steps=7"])
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nleast = 0.5\n", encoding="utf-8")
    with pytest.raises(InputError, match="train.least is worked out"):
        resolve_finetune_settings("classify", str(pretrained), None, recipe)


def test_a_flag_comes_after_a_recipe_and_rates_follow_from_both(tmp_path: Path, pretrained: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('transfer = "freeze"\n', encoding="utf-8")
    of_recipe = resolve_finetune_settings("classify", str(pretrained), None, recipe)
    of_flag = resolve_finetune_settings("classify", str(pretrained), "top:1", recipe)
    of_setting = resolve_finetune_settings("classify", str(pretrained), None, None, {}, ["transfer=features"])
    assert (of_recipe.transfer, of_flag.transfer, of_setting.transfer) == ("freeze", "top:1", "features")
    assert of_recipe.train.lr == of_setting.train.lr == 1e-3 > of_flag.train.lr


def test_numbers_and_groups_are_split_as_what_they_are(tmp_path: Path, pretrained: Path) -> None:
    rows = [TextExample(f"the cat {n % 9} {n}", label=str(n)) for n in range(60)]
    file = sets.write_texts(tmp_path / "whole.csv", rows)
    done = run(tmp_path / "run", config(pretrained, "classify", file, **{"classify.kind": "regression"}))
    assert done.result["examples"] == {"train": 54, "dev": 6}
    tagged = [
        TagExample(f"cat {n}", (Span(0, 3, "RARE" if n % 7 == 0 else "ANI"),), group=str(n // 6)) for n in range(60)
    ]
    for seed in range(20):
        out = hold_out(tagged, 0.2, seed)
        assert all(len({out[n] for n in range(60) if n // 6 == group}) == 1 for group in range(10))


def test_a_test_file_is_looked_at_before_training(tmp_path: Path, pretrained: Path) -> None:
    train = sets.write_texts(tmp_path / "train.csv")
    test = sets.write_texts(tmp_path / "test.csv", [TextExample("a cat", label="aminal")])
    with pytest.raises(InputError, match="test.csv, line 2: the label 'aminal'"):
        run(tmp_path / "run", config(pretrained, "classify", train, **{"data.test": str(test)}))
    assert not (tmp_path / "run").exists()


def test_a_changed_model_cannot_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make_folder(tmp_path / "mine", "BertModel")
    broken = Interrupted(2)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingBatches, "__call__", lambda self, step: broken(self, step))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", config(mine, "classify", sets.write_texts(tmp_path / "data.csv"), "freeze"))
    make_folder(mine, "BertModel", seed=1)
    with pytest.raises(InputError, match="mine has changed since the run began"):
        finetune.FINETUNING.resume(tmp_path / "run", Silent())


@pytest.mark.parametrize("crf", [False, True])
def test_class_weights_of_tags(tmp_path: Path, pretrained: Path, crf: bool) -> None:
    file = sets.write_tagged(tmp_path / "data.jsonl")
    settings = config(pretrained, "tag", file, "features", class_weights="auto", **{"tag.crf": crf})
    if crf:
        with pytest.raises(InputError):
            run(tmp_path / "run", settings)
        assert not (tmp_path / "run").exists()
    else:
        assert run(tmp_path / "run", settings).finished


@pytest.mark.parametrize("kind", ["regression", "crf"])
def test_a_run_begins_where_an_earlier_one_ended(tmp_path: Path, pretrained: Path, kind: str) -> None:
    """The head, in numbers of another mean; and what a CRF has beside its head."""
    task, flags, files = "tag", {"tag.crf": True}, [sets.write_tagged(tmp_path / "data.jsonl")] * 2
    if kind == "regression":
        task, flags, files = "classify", {}, []
        for low, high in ((100.5, 900.5), (2000.5, 2500.5)):
            rows = [
                TextExample(f"the {'cat' if n % 2 else 'mat'} {n}", label=str((low, high)[n % 2])) for n in range(60)
            ]
            files.append(sets.write_texts(tmp_path / f"{low}.csv", rows))
    run(tmp_path / "run", config(pretrained, task, files[0], epochs=6.0, **flags))
    earlier = load(tmp_path / "run").solver
    settings = config(tmp_path / "run" / "model", task, files[1], **flags)
    recorder = Recorder()
    prepared = prepare_examples(settings, open_model(tmp_path / "run" / "model"), read_data(settings), recorder.message)
    model = build_network(prepared, settings.train.seed, recorder.message).eval()
    assert any("training continues from it" in message for message in recorder.messages)
    later = Solver(model, prepared.task, earlier.tokenizer, earlier.max_length)
    examples = prepared.data.dev.examples
    found = [replace(earlier, calibration=later.calibration).answers(examples), later.answers(examples)]
    if kind == "regression":
        assert [one.value for one in found[1]] == pytest.approx([one.value for one in found[0]], rel=1e-4)
    else:
        assert any(value.abs().max() > 0 for value in model.extra.values())
        assert_near([one.to_dict() for one in found[1]], [one.to_dict() for one in found[0]])


def test_the_loss_decides_among_equals_alone(tmp_path: Path, pretrained: Path) -> None:
    rows = [TextExample(f"the {'cat' if n % 2 else 'mat'} {n}", label=f"{n % 2}00000.5") for n in range(40)]
    run(tmp_path / "run", config(pretrained, "classify", sets.write_texts(tmp_path / "data.csv", rows)))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    asked = [line["evaluation"] for line in lines if "evaluation" in line]
    assert asked and all(one["loss"] > 1e3 for one in asked)
    assert all(0 < one["pearson"] - one["selection"] < 1.01e-7 for one in asked)


def test_a_run_stopped_before_its_first_evaluation_tells_no_best(
    tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(pretrained, "classify", sets.write_texts(tmp_path / "data.csv"))
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self: Outcome(0, 1, finished=False, signal=15))
        assert not run(tmp_path / "run", settings).finished
    told = (tmp_path / "run" / "sessions.jsonl").read_text(encoding="utf-8")
    assert json.loads(told)["best"] is None and "Infinity" not in told
    assert finetune.FINETUNING.resume(tmp_path / "run", Silent()).finished


def test_what_is_held_at_a_time_counts_both_texts_of_a_pair() -> None:
    assert TextExample("12345", "678").characters() == 8 and TextExample("12345").characters() == 5
