"""What a fine-tuned model says about a text, with all that it weighed: classes, entities, answers, choices.

    classify   the score of every label, and its probability at the temperature that was fitted; or one number
    tag        entities as characters of the text, each with the probability of just this span with this label
    answer     for every token of the passage how likely the answer starts there, and ends there; and the best spans
    choice     the score and the probability of every choice

An answer's probability is a softmax over spans, whose score is start plus end over the temperature. If every span were
allowed, that would be the product of two softmaxes over tokens: these are what is shown under the words, with [CLS],
which stands for no answer, among them where a passage need not answer. A token that lies in several windows counts with
its best score, as its spans do, and no answer with its worst (tasks/answer.py).

What this file does NOT do: decide anything. What is said is what `Model.predict` says.

Shapes: L labels, C tokens of a passage, R rows (windows), N tokens of all rows.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.api.predict import empty_part, said_empty
from qkv.data.batch import ranges
from qkv.data.labelled.examples import AnswerExample, ChoiceExample, Example, TagExample, TextExample
from qkv.look.subject import Subject, describe_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.tasks.answer import NO_ANSWER, Answer, AnswerResult
from qkv.tasks.answer_features import AnswerFeatures
from qkv.tasks.choice import ChoiceFeatures, ChoiceResult
from qkv.tasks.classify import Classification, Labels, softmax
from qkv.tasks.predictor import Solver
from qkv.tasks.table import TASKS
from qkv.tasks.tag import Tag, TagResult
from qkv.tasks.task import Scores
from qkv.tasks.texts import TextFeatures, TextTask

MOST_CHOICES = 26
MOST_SPANS = 8
"""Of an answer's candidates."""
_DIGITS = 6  # of a number in a head; the arrays have them all

_Floats = NDArray[np.float64]


@torch.inference_mode()
def task(subject: Subject, asked: Asked) -> Reply:
    """Fields: of a classifier text, and pair where it reads two; of a tagger text; of a reader text and question; of a
    chooser choices, and text or question or both. Head: task, kind, calibration, n_tokens, n_windows, and what is said
    (`classes`, `value`, `entities`, `answer` and `spans`, `choices`). Arrays: `scores` and `probabilities` in the order
    of what is said; of a reader `start` and `end` (C) and `tokens` (C, 2), the characters of each."""
    solver = _solver(subject)
    example = _example(subject, solver, asked)
    asked.done()
    if name := empty_part(example, solver.tokenizer):
        raise RefusalError("empty", f"Here {said_empty(name)}. Write something.", field=name)
    solver.task.check([example], needs_labels=False)
    features = solver.features([example])
    scores = solver.scores(features)
    (said,) = solver.task.decode(features, scores, solver.model.extra_arrays(), solver.calibration)
    head: dict[str, Any] = {
        "task": solver.task.name,
        "kind": getattr(solver.task, "kind", solver.task.name),
        "calibration": _calibration(solver),
        "n_tokens": said.n_tokens,
        "n_windows": said.n_windows,
    }
    if isinstance(solver.task, Tag):
        return Reply(head | _entities(solver.task, said))
    if isinstance(solver.task, Answer):
        assert isinstance(features, AnswerFeatures)
        return _answer(head, solver, features, scores, said)
    if isinstance(solver.task, TextTask):
        assert isinstance(features, TextFeatures)
        return _classes(head, solver.task, solver.task.pooled(features, scores)[0], said)
    assert isinstance(features, ChoiceFeatures)
    return _choices(head, features.examples[0].choices, features.pooled(scores)[0], said)


def _solver(subject: Subject) -> Solver:
    heads = {entry.head for entry in TASKS.values()}
    if subject.kind not in ("bert", "gpt", "reader") or not heads & set(subject.model.network.heads):
        views = ", ".join(describe_subject(subject)["views"])
        raise RefusalError(
            "no_task",
            f"No task was put on {subject.title}. It can show {views}. To put one on a model: "
            f"qkv finetune classify --model {subject.name} --train FILE --out RUN.",
            model=subject.title,
            kind=subject.kind,
            views=views,
        )
    return subject.model.solver


def _example(subject: Subject, solver: Solver, asked: Asked) -> Example:
    name = solver.task.name
    if name == "answer":
        return AnswerExample(question=asked.text("question"), text=asked.text())
    if name == "tag":
        return TagExample(asked.text())
    if name == "choice":
        text, question = asked.maybe_text("text") or "", asked.maybe_text("question") or ""
        if not text + question:
            raise RefusalError("empty", "Neither 'text' nor 'question' has anything in it.", field="text")
        choices = tuple(asked.texts("choices", most=MOST_CHOICES))
        if len(choices) < 2:
            raise RefusalError("few_choices", "'choices' has one text; two at least are needed.", field="choices")
        return ChoiceExample(text, question, choices)
    text, pair = asked.text(), asked.maybe_text("pair")
    paired: bool | None = getattr(solver.task, "paired", None)
    if pair is not None and paired is False:
        raise subject.refusal("no_pair", "which reads single texts")
    if pair is None and paired:
        raise RefusalError(
            "needs_pair", f"{subject.title} was trained with pairs: give the second text.", model=subject.title
        )
    return TextExample(text, pair)


def _calibration(solver: Solver) -> dict[str, Any]:
    found = solver.calibration
    return {
        "temperature": _rounded(found.temperature),
        "thresholds": {label: _rounded(value) for label, value in found.thresholds.items()},
        "abstain_below": None if found.abstain_below is None else _rounded(found.abstain_below),
    }


def _classes(head: dict[str, Any], made: TextTask, scores: _Floats, said: Any) -> Reply:
    """The most probable first."""
    if not isinstance(said, Classification | Labels):
        return Reply(head | {"value": _rounded(said.value)}, {"scores": scores.astype(np.float32)})
    chosen = (said.label,) if isinstance(said, Classification) else said.labels
    classes = [
        {"label": label, "probability": _rounded(probability), "said": label in chosen}
        for label, probability in said.probabilities.items()
    ]
    head |= {"classes": classes, "abstained": isinstance(said, Classification) and said.abstained}
    order = [made.ids[label] for label in said.probabilities]
    probabilities = np.array(list(said.probabilities.values()), np.float32)
    return Reply(head, {"scores": scores[order].astype(np.float32), "probabilities": probabilities})


def _entities(made: Tag, said: TagResult) -> dict[str, Any]:
    return {
        "labels": list(made.tags.labels),
        "entities": [one._asdict() | {"probability": _rounded(one.probability)} for one in said.entities],
        "probability": _rounded(said.probability),
    }


def _answer(
    head: dict[str, Any], solver: Solver, features: AnswerFeatures, scores: Scores, said: AnswerResult
) -> Reply:
    assert isinstance(solver.task, Answer)
    ends, nothing = _ends(features, scores, solver.task.no_answer)
    weighed = ends if nothing is None else np.concatenate([nothing[:, None], ends], 1)  # (2, C), or one more
    chances = softmax(weighed / solver.calibration.temperature).astype(np.float32)
    tokens = chances if nothing is None else chances[:, 1:]
    head |= {
        "answer": {
            "text": said.text,
            "start": said.start,
            "end": said.end,
            "probability": _rounded(said.probability),
            "abstained": said.abstained,
        },
        "spans": [one._asdict() | {"probability": _rounded(one.probability)} for one in said.n_best[:MOST_SPANS]],
        "nothing": None
        if nothing is None
        else {
            "probability": _rounded(said.no_answer_probability),
            "start": _rounded(float(chances[0, 0])),
            "end": _rounded(float(chances[1, 0])),
            "said_from": solver.calibration.thresholds.get(NO_ANSWER),
        },
    }
    spans = np.stack([features.passages.starts, features.passages.ends], 1).astype(np.int32)
    return Reply(head, {"start": tokens[0], "end": tokens[1], "tokens": spans})


def _ends(features: AnswerFeatures, scores: Scores, no_answer: bool) -> tuple[_Floats, _Floats | None]:
    """(2, C) start and end scores of the passage's tokens; and (2,) of no answer, where there may be none."""
    rows = features.rows
    begins = np.cumsum(rows.lengths) - rows.lengths  # (R,) of the rows in the scores
    places = ranges(begins + rows.b_begins(np.arange(len(rows))), rows.b.lengths)
    found = np.full((len(features.passages.starts), 2), -np.inf)  # (C, 2)
    np.maximum.at(found, ranges(rows.b.starts, rows.b.lengths), scores[places].astype(np.float64))
    if not no_answer:
        return found.T, None
    least = scores[begins + features.nothing].astype(np.float64)  # (R, 2)
    return found.T, least[least.sum(1).argmin()]


def _choices(head: dict[str, Any], choices: tuple[str, ...], scores: _Floats, said: ChoiceResult) -> Reply:
    """In the order they were given."""
    listed = [
        {"text": text, "probability": _rounded(probability), "said": number == said.choice}
        for number, (text, probability) in enumerate(zip(choices, said.probabilities, strict=True))
    ]
    arrays = {"scores": scores.astype(np.float32), "probabilities": np.array(said.probabilities, np.float32)}
    return Reply(head | {"choices": listed, "abstained": said.abstained}, arrays)


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
