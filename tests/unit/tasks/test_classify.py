"""Which kind of classification labels call for, and that the three kinds learn, pool and say what they should."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.labelled.examples import Place, TextExample
from qkv.errors import InputError
from qkv.models.bert.network import BertWithHeads
from qkv.tasks.classify import MultiLabel, Regression, SingleLabel, infer_label_kind, learn, restore_task
from qkv.tasks.predictor import infer
from qkv.tasks.task import Calibration, ClassifySettings, Task
from qkv.tasks.texts import TextTask, pool_windows
from qkv.tasks.transfer import TaskModel
from tests.support.folders import make_model, make_tokenizer

TOKENIZER = make_tokenizer()
ONE = [TextExample("the cat", label="a"), TextExample("他欠我 100 万", label="b"), TextExample("a mat", label="a")]
MANY = [TextExample("the cat", label=("x", "y")), TextExample("a", label=()), TextExample("mat", label="y")]
NUMBERS = [TextExample("the cat", label="1.5"), TextExample("a dog", label="3"), TextExample("mat", label="-2")]
LONG = "the cat sat on the mat " * 40


def network(task: TextTask) -> TaskModel:
    model = make_model("BertForSequenceClassification", labels=task.outputs)
    assert isinstance(model, BertWithHeads)
    return TaskModel(model, "sequence")


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["1", "0"], "single"),
        (["1.0", "0"], "regression"),
        (["好评", "差评"], "single"),
        (["1.0", "good"], "single"),
        ([("a",), "b"], "multi"),
    ],
)
def test_the_kind_follows_from_the_labels(labels: list[Any], kind: str) -> None:
    assert infer_label_kind([TextExample("x", label=label) for label in labels]) == kind


@pytest.mark.parametrize(("examples", "kind"), [(ONE, SingleLabel), (MANY, MultiLabel), (NUMBERS, Regression)])
def test_a_task_comes_back_from_its_record(examples: list[TextExample], kind: type[TextTask]) -> None:
    task = learn(examples, ClassifySettings(train_windows=2), TOKENIZER)
    assert isinstance(task, kind)
    typed: Task[TextExample, Any] = task
    again = restore_task(task.labels, typed.record())
    assert type(again) is kind and again.labels == task.labels and again.record() == typed.record()
    assert again.settings.train_windows == 2


@pytest.mark.parametrize("examples", [ONE, MANY, NUMBERS])
def test_the_loss_of_training_is_the_loss_of_calibration(examples: list[TextExample]) -> None:
    """One is torch over a packed batch, the other numpy over merged windows."""
    examples = [*examples, TextExample(LONG, label=examples[0].label)]
    task: Any = learn(examples, ClassifySettings(train_windows=100), TOKENIZER)
    model = network(task).eval()
    features = task.features(TOKENIZER, examples, 64, training=True)
    assert features.n_windows[-1] > 3
    batch = features.batch(np.arange(len(examples)), np.random.default_rng(0))
    objective = task.objective(None)
    with torch.inference_mode():
        term = objective.terms(model, batch)["classify"]
    scores = infer(model, features, 4096)
    losses = task.losses(features, scores, {}, 1.0)
    if losses is None:
        values = [result.value for result in task.decode(features, scores, {}, Calibration())]
        wanted = [float(str(example.label)) for example in examples]
        expected = np.sum(((np.array(values) - wanted) / task.deviation) ** 2)
    else:
        expected = losses.sum() / (len(task.labels) if isinstance(task, MultiLabel) else 1)
    assert float(term.loss) == pytest.approx(float(expected), rel=1e-4)
    assert objective.counts(batch) == {"classify": len(examples)}


def test_long_texts_train_on_a_capped_number_of_windows() -> None:
    task: Any = learn(ONE, ClassifySettings(train_windows=3), TOKENIZER)
    features = task.features(TOKENIZER, [TextExample(LONG, label="a"), ONE[1]], 64, training=True)
    drawn = [features.batch(np.array([0, 1]), np.random.default_rng(seed)) for seed in range(4)]
    assert all(batch.n_rows == 4 for batch in drawn)
    assert len({tuple(batch.windows.tolist()) for batch in drawn}) > 1  # other windows in other epochs
    assert features.unit_tokens[0] == 3 * features.rows.lengths[0]


def test_windows_weigh_the_same() -> None:
    scores = torch.tensor([[1.0, 0.0], [3.0, 0.0], [5.0, 5.0]])
    assert pool_windows(scores, torch.tensor([1, 1, 0]), 2).tolist() == [[5.0, 5.0], [2.0, 0.0]]
    assert pool_windows(scores, torch.tensor([2, 0, 1]), 3).tolist() == [[3.0, 0.0], [5.0, 5.0], [1.0, 0.0]]


def test_temperature_changes_how_sure_and_not_what() -> None:
    task: Any = learn(ONE, ClassifySettings(), TOKENIZER)
    features = task.features(TOKENIZER, ONE, 64, training=False)
    scores = infer(network(task), features, 4096)
    plain, cooler = (task.decode(features, scores, {}, Calibration(t, abstain_below=0.9)) for t in (1.0, 5.0))
    assert [one.label for one in plain] == [one.label for one in cooler]
    assert all(soft.probability <= sharp.probability for soft, sharp in zip(cooler, plain, strict=True))
    assert all(sum(one.probabilities.values()) == pytest.approx(1) for one in plain)
    assert all(one.abstained == (one.probability < 0.9) for one in plain)


def test_thresholds_decide_what_is_said() -> None:
    task: Any = learn(MANY, ClassifySettings(), TOKENIZER)
    features = task.features(TOKENIZER, MANY, 64, training=False)
    scores = infer(network(task), features, 4096)
    everything = task.decode(features, scores, {}, Calibration(thresholds={"x": 0.0, "y": 0.0}))
    nothing = task.decode(features, scores, {}, Calibration(thresholds={"x": 1.1, "y": 1.1}))
    assert all(one.labels == ("x", "y") for one in everything) and all(one.labels == () for one in nothing)


def test_a_number_is_folded_into_the_head() -> None:
    task: Any = learn(NUMBERS, ClassifySettings(), TOKENIZER)
    assert isinstance(task, Regression)
    model = network(task).eval()
    features = task.features(TOKENIZER, NUMBERS, 64, training=False)
    before = [one.value for one in task.decode(features, infer(model, features, 4096), {}, Calibration())]
    after = task.folded(model)
    scores = infer(model, features, 4096)
    assert scores[:, 0].tolist() == pytest.approx(before, abs=1e-5)
    assert [one.value for one in after.decode(features, scores, {}, Calibration())] == pytest.approx(before, abs=1e-5)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (TextExample("x", label="c", place=Place("f.csv", 7)), "f.csv, line 7: the label 'c' is not one"),
        (TextExample("x", pair="y", label="a", place=Place("f.csv", 7)), "f.csv, line 7: the model reads one text"),
        (TextExample("x", label=("a", "b"), place=Place("f.csv", 7)), "f.csv, line 7: one label belongs here"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line(example: TextExample, message: str) -> None:
    with pytest.raises(InputError, match=message):
        learn(ONE, ClassifySettings(), TOKENIZER).check([example])


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="Did you mean 'multi'"):
        ClassifySettings(kind="multy")
    with pytest.raises(InputError, match="Every label is 2"):
        learn([TextExample("a", label="2.0")] * 3, ClassifySettings(), TOKENIZER)
    with pytest.raises(InputError, match="No training example has a label"):
        learn([TextExample("a", label=())] * 3, ClassifySettings(), TOKENIZER)


@pytest.mark.parametrize("examples", [ONE, MANY, NUMBERS])
def test_weights_multiply_the_losses_of_their_texts(examples: list[TextExample]) -> None:
    """In a packed batch, with rows in another order and a text of several windows; weight 0 counts for nothing."""
    examples = [*examples, TextExample(LONG, label=examples[0].label)]
    given = [0.0, 3.0, 1.0, 4.0]
    weighted = [replace(one, weight=weight) for one, weight in zip(examples, given, strict=True)]
    task: Any = learn(examples, ClassifySettings(train_windows=100), TOKENIZER)
    model, draw = network(task), np.random.default_rng(0)
    order = np.array([2, 0, 3, 1])

    def term(chosen: list[TextExample], units: Any) -> Any:
        batch = task.features(TOKENIZER, chosen, 32, training=True).batch(units, draw)
        assert task.objective().counts(batch) == {"classify": len(units)}
        return task.objective().terms(model, batch)["classify"]

    alone = [float(term(examples, np.array([number])).loss.detach()) for number in range(4)]
    found = term(weighted, order)
    assert float(found.loss.detach()) == pytest.approx(
        sum(w / 2 * loss for w, loss in zip(given, alone, strict=True)), rel=1e-5
    )
    assert int(found.correct) == int(term(examples, order).correct)
    dev = task.features(TOKENIZER, weighted, 32, training=False)
    assert dev.weights is None, "scores count all alike"
    assert task.features(TOKENIZER, [replace(one, weight=7.0) for one in examples], 32, training=True).weights is None
