"""A tiny BERT learns to tag a handful of texts by heart: features, loss, scores and decoding are of one piece."""

import numpy as np
import pytest
import torch

from qkv.data.labelled.examples import Span, TagExample
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.tasks.predictor import infer
from qkv.tasks.tag import TagTask
from qkv.tasks.task import Calibration, TagSettings
from qkv.tasks.transfer import TaskModel
from tests.support.folders import SMALL, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENIZER = make_tokenizer()
WORDS = {"北京": "LOC", "上海": "LOC", "Paris": "LOC", "Huawei": "ORG", "Nokia": "ORG", "他": "PER", "她": "PER"}
SHORT = [
    "他在北京，她在上海。",
    "Paris is the capital of France!",
    "Nokia owes Huawei money",
    "北京上海",  # two neighbours of one label
    "the unhappyness of the cat",
    "今天天气很好",
    "她爱吃鱼，他不爱",
    "",
]
LONG = "他爱吃鱼。she was tired. Huawei在上海不在北京，" * 12


def example(text: str) -> TagExample:
    found = [
        Span(at, at + len(word), label)
        for word, label in WORDS.items()
        for at in range(len(text))
        if text.startswith(word, at)
    ]
    return TagExample(text, tuple(sorted(found)))


def trained(task: TagTask, examples: list[TagExample], max_length: int, steps: int) -> tuple[TaskModel, list[float]]:
    torch.manual_seed(0)
    network = BertWithHeads(BertConfig(**(SMALL | {"dropout": 0.0})), [task.head], labels=task.outputs)
    model = TaskModel(network, task.head, task.extra_tensors())
    features = task.features(TOKENIZER, examples, max_length, training=True)
    objective = task.objective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    draw, losses = np.random.default_rng(0), list[float]()
    for _ in range(steps):
        batch = features.batch(draw.permutation(len(features.unit_tokens)), draw)
        term = objective.terms(model, batch)["tag"]
        loss = term.loss / objective.counts(batch)["tag"]
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
            assert not missing, "every parameter gets a gradient"
        optimizer.step()
        losses.append(loss.item())
    assert int(term.correct) == objective.counts(batch)["tag"]
    return model.eval(), losses


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize(("texts", "max_length"), [(SHORT, 64), ([*SHORT, LONG], 24)], ids=["short", "windows"])
def test_a_tiny_bert_learns_by_heart(crf: bool, texts: list[str], max_length: int) -> None:
    examples = [example(text) for text in texts]
    task = TagTask.learn(examples, TagSettings(crf=crf, overlap=6), TOKENIZER)
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    model, losses = trained(task, examples, max_length, steps=50)
    assert losses[-1] < 0.05 < 1.0 < losses[0]

    features = task.features(TOKENIZER, examples, max_length, training=False)
    scores = infer(model, features, tokens_per_batch=100)
    results = task.decode(features, scores, model.extra_arrays(), Calibration())
    assert [result.spans for result in results] == [example.spans for example in examples]
    assert [result.n_windows > 1 for result in results] == [text == LONG for text in texts]
    scorer = task.scorer()
    scorer.add(examples, results)
    assert scorer.result().value == 1.0
    sure = task.confidences(examples, results)
    assert sure.right.all() and sure.confidence.min() > 0.5
    # of texts in one window, training and decoding say the same
    if crf and max_length == 64:
        training = task.features(TOKENIZER, examples, max_length, training=True)
        batch = training.batch(np.arange(len(texts)), np.random.default_rng(0))
        with torch.no_grad():
            loss = task.objective().terms(model, batch)["tag"].loss.item()
        assert sum(result.loss for result in results) == pytest.approx(loss, rel=1e-3)

    # asked without labels, in another company, the answers are the same
    alone = task.features(TOKENIZER, [TagExample(text) for text in texts[::-1]], max_length, training=False)
    again = task.decode(alone, infer(model, alone, 10_000), model.extra_arrays(), Calibration())
    assert [result.spans for result in again[::-1]] == [result.spans for result in results]


def test_class_weights_multiply_the_loss_of_their_tags() -> None:
    examples = [example(text) for text in SHORT[:3]]
    task = TagTask.learn(examples, TagSettings(), TOKENIZER)
    network = BertWithHeads(BertConfig(**SMALL), [task.head], labels=task.outputs)
    model = TaskModel(network, task.head).eval()
    features = task.features(TOKENIZER, examples, 64, training=True)
    batch = features.batch(np.arange(3), np.random.default_rng(0))
    plain = task.objective().terms(model, batch)["tag"].loss
    same = task.objective([1.0] * task.outputs).terms(model, batch)["tag"].loss
    double = task.objective([2.0] * task.outputs).terms(model, batch)["tag"].loss
    only_names = task.objective([0.0] + [1.0] * (task.outputs - 1)).terms(model, batch)["tag"].loss
    assert torch.isclose(plain, same) and torch.isclose(double, 2 * plain)
    assert 0 < only_names.item() < plain.item()


def test_a_plain_tagger_and_a_crf_without_transitions_agree_on_losses() -> None:
    """Cross entropy is a chain whose every step is allowed."""
    examples = [example(text) for text in SHORT]
    plain, crf = (TagTask.learn(examples, TagSettings(crf=one), TOKENIZER) for one in (False, True))
    features = plain.features(TOKENIZER, examples, 64, training=False)
    scores = np.random.default_rng(0).normal(0, 1, (int(features.rows.lengths.sum()), 7)).astype(np.float32)
    nothing = {name: np.zeros(shape, np.float32) for name, shape in crf.extra_tensors().items()}
    assert plain.losses(features, scores, {}, 1.0) == pytest.approx(crf.losses(features, scores, nothing, 1.0))


def test_a_crf_keeps_its_precision_under_autocast() -> None:
    """A path of a hundred units in bf16 would be worth nothing."""
    examples = [example(LONG)]
    task = TagTask.learn(examples, TagSettings(crf=True), TOKENIZER)
    network = BertWithHeads(
        BertConfig(**(SMALL | {"max_length": 512, "dropout": 0.0})), [task.head], labels=task.outputs
    )
    model = TaskModel(network, task.head, task.extra_tensors())
    features = task.features(TOKENIZER, examples, 512, training=True)
    batch = features.batch(np.arange(1), np.random.default_rng(0))
    with torch.autocast("cpu", torch.bfloat16):
        scores = model.scores(batch)
        term = task.objective().terms(model, batch)["tag"]
    assert scores.dtype == torch.bfloat16 and term.loss.dtype == torch.float32
    term.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    exact = task.losses(features, scores.detach().float().numpy(), model.extra_arrays(), 1.0)
    assert term.loss.item() == pytest.approx(exact.sum(), rel=1e-4)
