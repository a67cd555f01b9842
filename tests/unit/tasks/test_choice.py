"""Multiple choice: every choice is held against the same text, and the softmax runs over the choices of an example."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.labelled.examples import ChoiceExample, Place
from qkv.errors import InputError
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.gpt.tokenizer import TaskTokenizer
from qkv.tasks.choice import SLOT, TARGET, WINDOWS, ChoiceFeatures, ChoiceResult, ChoiceTask
from qkv.tasks.predictor import infer
from qkv.tasks.task import Calibration, ChoiceSettings, Task
from qkv.tasks.transfer import TaskModel
from tests.support.folders import SMALL, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENIZER = make_tokenizer()
DRAW = np.random.default_rng(0)

LONG = "今天天气很好。" * 5 + "the cat sat on the mat 😀"
TOY = [
    ChoiceExample(LONG, "猫 on?", ("the mat", "the street"), 0),
    ChoiceExample(LONG, "天气?", ("坏", "大", "很好", "小 money"), 2),
    ChoiceExample("", "中国的首都?", ("上海", "北京", "paris"), 1),
    ChoiceExample("他欠我5万元", "元?", ("0", "1", "5 万"), 2),
    ChoiceExample("他欠我5万元", "元?", ("5 万", "1"), 0),
    ChoiceExample("😀", "", ("好 😀", "坏"), 0),
]


def built(*examples: ChoiceExample, max_length: int = 64, overlap: int = 4) -> ChoiceFeatures:
    return ChoiceTask(ChoiceSettings(overlap)).features(TOKENIZER, examples, max_length, training=True)


def small_model() -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(BertWithHeads(BertConfig(**SMALL, dropout=0.0, attention_dropout=0.0), ["choice"]), "choice")


def rows_of(features: ChoiceFeatures, rows: list[int]) -> list[str]:
    batch = features.rows.collate(np.array(rows))
    return [" ".join(map(TOKENIZER.token, part.tolist())) for part in batch.rows(batch.ids)]


def test_a_small_model_learns_to_choose_in_windows() -> None:
    task = ChoiceTask.learn(TOY, ChoiceSettings(), TOKENIZER)
    features = task.features(TOKENIZER, TOY, 32, training=True)
    assert features.n_windows.max() > 1
    model, objective = small_model(), task.objective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        batch = features.batch(np.arange(len(TOY)), DRAW)
        (objective.terms(model, batch)["choice"].loss / objective.counts(batch)["choice"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    scores = infer(model.eval(), features, 256)
    results = task.decode(features, scores, {}, Calibration())
    assert [result.choice for result in results] == [example.answer for example in TOY]
    assert [result.text for result in results] == ["the mat", "很好", "北京", "5 万", "5 万", "好 😀"]
    assert [len(result.probabilities) for result in results] == [2, 4, 3, 3, 2, 2]
    assert all(sum(result.probabilities) == pytest.approx(1) for result in results)
    assert [result.n_windows for result in results] == features.n_windows.tolist()
    scorer = task.scorer()
    scorer.add(TOY[:2], results[:2])
    scorer.add(TOY[2:], results[2:])
    scored = scorer.result()
    assert (scored.main, scored.value, scored.n) == ("accuracy", 1.0, 6)
    assert 0.5 < scored.intervals["accuracy"][0] < scored.intervals["accuracy"][1] == 1.0
    assert task.confidences(TOY, results).right.all()
    assert task.losses(features, scores, {}, 1.0).max() < 0.7


def test_rows_are_text_question_and_choice() -> None:
    features = built(ChoiceExample("猫 爱 吃 鱼", "猫?", ("鱼", "狗")), ChoiceExample(" ", "大?", ("小", "猫")))
    assert rows_of(features, [0, 1, 2]) == [
        "[CLS] 猫 爱 吃 鱼 [SEP] 猫 ? 鱼 [SEP]",
        "[CLS] 猫 爱 吃 鱼 [SEP] 猫 ? 狗 [SEP]",
        "[CLS] 大 ? [SEP] 小 [SEP]",  # no text: the question takes its place
    ]
    assert features.n_tokens.tolist() == [10, 6]


def test_a_gpt_reads_text_and_question_before_the_choice() -> None:
    tokenizer = TaskTokenizer(TOKENIZER)
    examples = ChoiceExample("猫 爱 吃 鱼", "猫?", ("鱼", "狗")), ChoiceExample(" ", "大?", ("小", "猫"))
    features = ChoiceTask(ChoiceSettings()).features(tokenizer, examples, 64, training=True)
    batch = features.rows.collate(np.array([1, 2]))
    assert [" ".join(map(tokenizer.token, part.tolist())) for part in batch.rows(batch.ids)] == [
        "[SEP] 猫 爱 吃 鱼 猫 ? <|delimiter|> 狗 <|extract|>",
        "[SEP] 大 ? <|delimiter|> 小 <|extract|>",
    ]
    assert features.n_tokens.tolist() == [10, 6]


def test_all_choices_are_held_against_the_same_windows() -> None:
    text = " ".join("我你他她欠万元今天气很好坏中国的首都是北京上海人")
    features = built(ChoiceExample(text, "猫?", ("狗", "大 小 大 小"), 1), max_length=20)
    n = int(features.n_windows[0])
    assert n > 2 and len(features.rows) == 2 * n
    texts = [row.split(" [SEP] ")[0] for row in rows_of(features, list(range(2 * n)))]
    assert texts[:n] == texts[n:]
    assert max(features.rows.lengths) <= 20
    assert set(" ".join(texts).split()) >= set(text.split())


def test_training_reads_at_most_four_windows_the_same_for_every_choice() -> None:
    text = "我 你 他 她 欠 " * 20
    features = built(
        ChoiceExample(text, "猫?", ("狗", "大", "小"), 2), ChoiceExample("猫", "猫?", ("狗", "大"), 0), max_length=20
    )
    n = int(features.n_windows[0])
    seen = set()
    for _ in range(20):
        batch = features.batch(np.array([1, 0]), DRAW)
        rows = features.rows.first_row[batch.examples.numpy()] + batch.windows.numpy()
        assert tuple(features.rows.lengths[rows].tolist()) == batch.lengths == tuple(sorted(batch.lengths))
        assert batch.labels[WINDOWS].tolist() == [[1, 1, 0], [4, 4, 4]]
        assert batch.labels[TARGET].tolist() == [0, 2]
        by_slot: dict[int, list[int]] = {}
        for row, slot in zip(rows.tolist(), batch.labels[SLOT].tolist(), strict=True):
            by_slot.setdefault(slot, []).append(row)
        assert set(by_slot) == {0, 1, 3, 4, 5}
        windows = [[row - k * n for row in sorted(by_slot[3 + k])] for k in range(3)]
        assert windows[0] == windows[1] == windows[2] and len(set(windows[0])) == 4
        assert (by_slot[0], by_slot[1]) == ([3 * n], [3 * n + 1])
        assert sum(batch.lengths) == features.unit_tokens.sum()
        seen |= set(windows[0])
    assert seen == set(range(n))  # other windows in other epochs


def test_the_loss_is_a_cross_entropy_over_mean_scores() -> None:
    features = built(*TOY, max_length=32)
    model = small_model().eval()
    task = ChoiceTask(ChoiceSettings(4))
    batch = features.batch(np.arange(len(TOY)), DRAW)
    assert features.n_windows.max() <= 4  # all windows are read, so that prediction sees the same
    term = task.objective().terms(model, batch)["choice"]
    scores = infer(model, features, 256)
    row, expected, right = 0, [], 0
    for example, windows in zip(TOY, features.n_windows.tolist(), strict=True):
        means = []
        for _ in example.choices:
            means.append(float(scores[row : row + windows].mean()))
            row += windows
        assert example.answer is not None
        expected.append(math.log(sum(map(math.exp, means))) - means[example.answer])
        right += int(np.argmax(means)) == example.answer
    assert term.loss.item() == pytest.approx(sum(expected), rel=1e-5)
    assert int(term.correct) == right
    assert task.losses(features, scores, {}, 1.0).tolist() == pytest.approx(expected, rel=1e-5)
    term.loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_temperature_divides_the_scores_of_choices() -> None:
    task = ChoiceTask(ChoiceSettings())
    features = built(ChoiceExample("猫", "?", ("狗", "大", "小"), 0), ChoiceExample("猫", "?", ("狗", "大"), 0))
    scores = np.array([[4], [2], [0], [1], [3]], np.float32)
    first, second = task.decode(features, scores, {}, Calibration(2.0, abstain_below=0.7))
    weights = np.exp([2.0, 1.0, 0.0])
    assert first.probabilities == pytest.approx(tuple(weights / weights.sum()))
    assert (first.choice, second.choice, first.abstained, second.abstained) == (0, 1, True, False)
    judged = task.judge(features.examples[1], second)
    assert (judged.expected, judged.answered, judged.right) == ("狗", "大", False)
    assert judged.loss == pytest.approx(math.log(1 + math.e)) and judged.confidence == second.probability
    assert json.loads(json.dumps(second.to_dict()))["choice"] == 1
    assert task.decode(built(), np.empty((0, 1), np.float32), {}, Calibration()) == []


def test_a_very_long_text() -> None:
    features = built(ChoiceExample("今天天气很好。" * 14_286, "天气?", ("好", "坏"), 0), max_length=64, overlap=16)
    assert features.n_tokens.tolist() == [100_002 + 4 + 3]
    assert features.batch(np.array([0]), DRAW).n_rows == 8


def test_a_task_comes_back_from_its_record() -> None:
    task: Task[ChoiceExample, ChoiceResult] = ChoiceTask(ChoiceSettings(overlap=7))
    assert ChoiceTask.restored((), json.loads(json.dumps(task.record()))).settings == ChoiceSettings(overlap=7)
    assert (task.outputs, task.labels, task.main, dict(task.extra_tensors())) == (1, (), "accuracy", {})


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"choices": ("a",), "answer": 0}, "c3.json, line 4: 1 choice; there must be at least two"),
        ({"choices": (), "answer": None}, "c3.json, line 4: 0 choices; there must be at least two"),
        ({"choices": ("a", "b"), "answer": None}, "c3.json, line 4: it is not said which of the 2 choices is right"),
        ({"choices": ("a", "b"), "answer": 2}, "c3.json, line 4: choice 2 is right, it says, but they run from 0 to 1"),
    ],
)
def test_examples_that_cannot_be_used_are_named(example: dict[str, Any], message: str) -> None:
    one = ChoiceExample("猫", "?", place=Place("c3.json", 4), **example)
    with pytest.raises(InputError, match=message):
        ChoiceTask(ChoiceSettings()).check([one])


def test_other_bad_input() -> None:
    long = ChoiceExample("猫 " * 40, "狗 " * 20, ("大", "小"), 0, place=Place("c3.json", 4))
    with pytest.raises(InputError, match="c3.json, line 4: the question with its longest choice has 21 tokens"):
        built(long, max_length=26)
    with pytest.raises(InputError, match="overlap must be at least 0"):
        ChoiceSettings(overlap=-1)
    with pytest.raises(InputError, match="no training example"):
        ChoiceTask.learn([], ChoiceSettings(), TOKENIZER)
    ChoiceTask(ChoiceSettings()).check([ChoiceExample("猫", "?", ("a", "b"))], needs_labels=False)
