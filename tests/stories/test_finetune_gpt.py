"""Whole fine-tuning runs of a GPT: every task in its shape, the next word beside it, and back from the folder."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.api.evaluate import evaluate_file
from qkv.api.model import load
from qkv.cli.main import main
from qkv.errors import InputError
from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune.data import read_data
from qkv.jobs.finetune.settings import FinetuneConfig, resolve_finetune_settings
from qkv.jobs.finetune.training import build_network, prepare_examples
from qkv.models.family import TAKES_HEAD
from qkv.models.table import open_model
from qkv.tasks.transfer import WEIGHT
from qkv.train.log import Silent
from qkv.train.loop import Trainer
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.small_run import Recorder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gpt(tmp_path_factory.mktemp("pretrained") / "gpt")


def config(model: Path, task: str, file: Path, transfer: str | None = None, **flags: Any) -> FinetuneConfig:
    given = {"data.train": str(file), "epochs": 2.0, "train.lr": 3e-3, "dropout": 0.0, **flags}
    return resolve_finetune_settings(task, str(model), transfer, None, given, ["train.threads=1", "texts_per_step=8"])


def file_of(folder: Path, task: str) -> Path:
    return sets.WRITERS[task](folder / ("data.csv" if task == "classify" else "data.json"))


def pairs_file(path: Path, numbers: bool) -> Path:
    """How much of the first is in the second, or whether they are the same."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["sentence1", "sentence2", "label"])
        for number in range(48):
            first, second = sets.ANIMALS[number % 3], sets.ANIMALS[(number // 3) % 3]
            same = float(first == second)
            rows.writerow([f"the {first} {number % 10}", f"the {second}", f"{same:.1f}" if numbers else int(same)])
    return path


@pytest.mark.parametrize("task", sets.WRITERS)
def test_every_task_from_file_to_prediction(tmp_path: Path, pretrained: Path, task: str) -> None:
    file, run = file_of(tmp_path, task), tmp_path / "run"
    epochs = {"choice": 12.0}.get(task, 8.0)
    done = finetune.FINETUNING.start(
        config(pretrained, task, file, epochs=epochs, **{"data.dev": str(file)}), run, Silent()
    )
    result = done.result
    assert result["dev"][result["main"]] > 0.75, result["dev"]
    assert result["language_model"]["weight"] == WEIGHT
    assert result["language_model"]["last_loss"] < result["language_model"]["first_loss"] - 1
    model = load(run)
    # the folder says what the run said, calibration and all
    told = [json.loads(line) for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    examples = read_data(config(pretrained, task, file, **{"data.dev": str(file)})).dev.examples
    found = [result for _, part in model.answer_stream(examples) for result in part]
    key = {"classify": "label", "tag": "entities", "answer": "text", "choice": "choice"}[task]
    if task != "tag":  # whose probabilities stand in its entities
        assert [getattr(one, key) for one in found] == [one[key] for one in told]
        # those of a run are calibrated by the other examples, and so a little different
        np.testing.assert_allclose([one.probability for one in found], [one["probability"] for one in told], atol=0.01)
    assert model.solver.calibration.to_dict() == model.record["calibration"]
    for one in model.predict(sets.unlabelled()[task]):
        json.dumps(one.to_dict())
    assert evaluate_file(run, file)["scores"][result["main"]] == pytest.approx(result["dev"][result["main"]])


@pytest.mark.parametrize("vocabulary", ["gpt2", "gpt"])
def test_other_vocabularies(tmp_path: Path, vocabulary: str) -> None:
    pretrained = make_gpt(tmp_path / "gpt", vocabulary)
    (pretrained / "LICENSE").write_text("MIT", encoding="utf-8")
    done = finetune.FINETUNING.start(
        config(pretrained, "classify", file_of(tmp_path, "classify"), epochs=8.0), tmp_path / "run", Silent()
    )
    assert done.result["dev"]["accuracy"] > 0.75
    assert load(tmp_path / "run").labels == ("animal", "place")
    assert (tmp_path / "run" / "model" / "LICENSE").read_text(encoding="utf-8") == "MIT"


def test_several_labels(tmp_path: Path, pretrained: Path) -> None:
    file = tmp_path / "several.jsonl"
    lines = [
        {"text": f"the {animal} sat on {place} {number}", "label": [animal, place][: 1 + number % 2]}
        for number in range(10)
        for animal in sets.ANIMALS
        for place in ("mat", "street")
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = finetune.FINETUNING.start(config(pretrained, "classify", file, epochs=8.0), tmp_path / "run", Silent())
    assert done.result["kind"] == "multi" and done.result["dev"]["micro_f1"] > 0.75
    (found,) = load(tmp_path / "run").predict(["the cat sat on mat 3"])
    assert "cat" in found.labels


def test_numbers_of_pairs_are_learned_in_both_orders(tmp_path: Path, pretrained: Path) -> None:
    file, run, told = pairs_file(tmp_path / "pairs.csv", numbers=True), tmp_path / "run", Recorder()
    result = finetune.FINETUNING.start(config(pretrained, "classify", file, epochs=20.0), run, told).result
    assert result["dev"]["pearson"] > 0.5
    assert any("both orders" in message for message in told.messages) and any(
        "both orders" in n for n in result["notes"]
    )
    model = load(run)
    assert model.record["task_record"]["settings"]["pairs"] == "both"
    there, back = model.predict([("the cat 3", "the dog"), ("the dog", "the cat 3")])
    assert there.value == pytest.approx(back.value, abs=1e-5)
    assert there.n_windows == 1 and there.n_tokens == 3 + 5
    told_again = [json.loads(line) for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    examples = read_data(config(pretrained, "classify", file)).dev.examples
    found = [one for _, part in model.answer_stream(examples) for one in part]
    np.testing.assert_allclose([one.value for one in found], [one["value"] for one in told_again], atol=1e-4)


def test_labels_of_pairs_keep_their_order_unless_told(tmp_path: Path, pretrained: Path) -> None:
    file, told = pairs_file(tmp_path / "pairs.csv", numbers=False), Recorder()
    settings = config(pretrained, "classify", file)
    ordered = prepare_examples(settings, open_model(pretrained), read_data(settings), told.message)
    assert any("--set classify.pairs=both" in message for message in told.messages)
    both = config(pretrained, "classify", file, **{"classify.pairs": "both"})
    turned = prepare_examples(both, open_model(pretrained), read_data(both), told.message)
    assert len(turned.train.rows) == 2 * len(ordered.train.rows)
    with pytest.raises(InputError, match="Unknown pairs 'bath'. Did you mean 'both'"):
        config(pretrained, "classify", file, **{"classify.pairs": "bath"})


def test_a_stopped_run_goes_on_to_the_same_weights(
    tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(pretrained, "classify", file_of(tmp_path, "classify"), dropout=0.1)
    finetune.FINETUNING.start(settings, tmp_path / "whole", Silent())
    advance = Trainer.advance

    def killed(self: Trainer[Any], *given: Any) -> None:
        if self.step == 9:
            raise KeyboardInterrupt
        advance(self, *given)

    monkeypatch.setattr(Trainer, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        finetune.FINETUNING.start(settings, tmp_path / "broken", Silent())
    monkeypatch.undo()
    assert finetune.FINETUNING.resume(tmp_path / "broken", Silent()).finished
    for name in ("model/model.safetensors", "log.jsonl", "predictions.jsonl"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_moves_and_what_the_next_word_counts(tmp_path: Path, pretrained: Path) -> None:
    file = file_of(tmp_path, "classify")

    def prepared(transfer: str | None = None, **flags: Any) -> Any:
        settings = config(pretrained, "classify", file, transfer, **flags)
        return prepare_examples(settings, open_model(pretrained), read_data(settings), lambda message: None)

    assert prepared().language_model_weight == prepared("top:1").language_model_weight == WEIGHT
    assert prepared("freeze").language_model_weight == prepared("features").language_model_weight == 0
    assert prepared(language_model_weight=0.0).language_model_weight == 0
    assert prepared(language_model_weight=2.0).language_model_weight == 2.0
    with pytest.raises(InputError, match="nothing of the language model moves"):
        prepared("freeze", language_model_weight=0.5)
    with pytest.raises(InputError, match="language_model_weight is 0 or more, not -1"):
        prepared(language_model_weight=-1.0)
    bert = make_folder(tmp_path / "bert", "BertModel")
    settings = replace(config(bert, "classify", file), language_model_weight=0.5)
    with pytest.raises(InputError, match="is no GPT: it predicts no next word"):
        finetune.FINETUNING.start(settings, tmp_path / "run", Silent())


def test_without_the_next_word_the_task_is_learned_alone(tmp_path: Path, pretrained: Path) -> None:
    settings = config(pretrained, "classify", file_of(tmp_path, "classify"), language_model_weight=0.0)
    result = finetune.FINETUNING.start(settings, tmp_path / "run", Silent()).result
    assert "language_model" not in result
    assert "language_model" not in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("transfer", ["freeze", "features", "top:1"])
def test_ways_of_transfer(tmp_path: Path, pretrained: Path, transfer: str) -> None:
    settings = config(pretrained, "classify", file_of(tmp_path, "classify"), transfer)
    finetune.FINETUNING.start(settings, tmp_path / "run", Silent())
    before, after = (
        open_model(one).ability(TAKES_HEAD).network.encoder.state_dict()
        for one in (pretrained, tmp_path / "run" / "model")
    )
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    if transfer == "top:1":
        assert moved and all(name.startswith(("blocks.1.", "norm.")) for name in moved)
    else:
        assert not moved


def test_training_goes_on_from_a_fine_tuned_one(tmp_path: Path, pretrained: Path) -> None:
    file, told = file_of(tmp_path, "classify"), Recorder()
    finetune.FINETUNING.start(config(pretrained, "classify", file), tmp_path / "run", Silent())
    begun = tmp_path / "run" / "model"
    settings = config(begun, "classify", file)
    prepared = prepare_examples(settings, open_model(begun), read_data(settings), told.message)
    network = build_network(prepared, settings.train.seed, told.message).network
    assert any("training continues from it" in message for message in told.messages)
    for name, value in open_model(begun).ability(TAKES_HEAD).network.state_dict().items():
        assert torch.equal(network.state_dict()[name], value), name
        assert network.state_dict()[name].is_contiguous(), name


def test_the_command_line(tmp_path: Path, pretrained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, out = file_of(tmp_path, "classify"), tmp_path / "run"

    def asked(*words: str, code: int = 0) -> str:
        assert main([*words]) == code
        return "".join(capfd.readouterr())

    begun = ("finetune", "classify", "--model", str(pretrained), "--train", str(file), "--out", str(out))
    assert "predict the next word" in asked(*begun, "--epochs", "1", "--set", "train.threads=1")
    assert "animal" in asked("predict", str(out), "the cat sat", "--json")
    assert "accuracy" in asked("evaluate", str(out), str(file))
    assert load(out).embed(["the cat sat", "他 欠 我"]).vectors.shape == (2, 32)
    assert "GPT" in asked("fill", "the [MASK]", "--model", str(out), code=2)
    shown = json.loads(asked("attention", "the cat", "--pair", "他 欠 我", "--model", str(out), "--json"))
    assert shown["name"] == "causal" and shown["n_tokens"] == 8  # three marks of tasks among them
    with pytest.raises(InputError, match="no vector of a text at"):
        load(out).embed("the cat", pooling="cls")
