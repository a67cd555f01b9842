"""What a fine-tuned model says about a text, with all that it weighed: classes, entities, answers, choices.

    classify   the score of every label, and its probability at the temperature that was fitted; or one number
    tag        entities as characters of the text, each with the probability of just this span with this label
    answer     for every token of the passage how likely the answer starts there, and ends there; and the best spans
    choice     the score and the probability of every choice

What this file does NOT do: decide anything. What is said is what `Model.predict` says, and each task knows what it
weighed (`Task.weighed`).
"""

from typing import Any

import torch

from qkv.api.predict import describe_empty, empty_part
from qkv.data.labelled.examples import Example, Given
from qkv.look.subject import Subject, views_of
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.family import HAS_TASK
from qkv.tasks.predictor import Solver
from qkv.tasks.table import AnyTask
from qkv.tasks.task import round_result

MOST_CHOICES = 26


@torch.inference_mode()
def task(subject: Subject, asked: Asked) -> Reply:
    """Fields: of a classifier text, and pair where it reads two; of a tagger text; of a reader text and question; of a
    chooser choices, and text or question or both. Head: task, kind, calibration, n_tokens, n_windows, and what is said
    (`classes`, `value`, `entities`, `answer` and `spans`, `choices`). Arrays: `scores` and `probabilities` in the order
    of what is said; of a reader `start` and `end` (C) and `tokens` (C, 2), the characters of each."""
    solver = _solver(subject)
    made = solver.task
    example = _example(subject, made, asked)
    asked.done()
    if name := empty_part(example, solver.tokenizer):
        raise RefusalError("empty", f"Here {describe_empty(name)}. Write something.", field=name)
    made.check([example], needs_labels=False)
    features = solver.features([example])
    scores = solver.scores(features)
    (said,) = made.decode(features, scores, solver.model.extra_arrays(), solver.calibration)
    weighed = made.weighed(features, scores, said, solver.calibration)
    head: dict[str, Any] = {
        "task": made.name,
        "kind": made.kind or made.name,
        "calibration": _calibration(solver),
        "n_tokens": said.n_tokens,
        "n_windows": said.n_windows,
    }
    return Reply(head | weighed.head, weighed.arrays)


def _solver(subject: Subject) -> Solver:
    if not subject.has(HAS_TASK):
        views = ", ".join(views_of(subject.facts))
        raise RefusalError(
            "no_task",
            f"No task was put on {subject.title}. It can show {views}. To put one on a model: "
            f"qkv finetune classify --model {subject.name} --train FILE --out RUN.",
            model=subject.title,
            kind=subject.kind,
            views=views,
        )
    return subject.model.solver


def _example(subject: Subject, made: AnyTask, asked: Asked) -> Example:
    """From the fields of the task's examples; `choices` is a list, the others are texts."""
    fields = made.example.fields
    texts = {
        name: asked.text(name) if needed else asked.maybe_text(name)
        for name, needed in fields.items()
        if name != "choices"
    }
    if not any(texts.values()):
        raise RefusalError("empty", "Neither 'text' nor 'question' has anything in it.", field="text")
    choices = asked.texts("choices", most=MOST_CHOICES) if "choices" in fields else []
    if len(choices) == 1:
        raise RefusalError("few_choices", "'choices' has one text; two at least are needed.", field="choices")
    pair = texts.get("pair")
    if pair is not None and made.paired is False:
        raise subject.refusal("no_pair", "which reads single texts")
    if pair is None and "pair" in fields and made.paired:
        raise RefusalError(
            "needs_pair", f"{subject.title} was trained with pairs: give the second text.", model=subject.title
        )
    example = made.example.of(Given(texts.get("text") or "", pair, texts.get("question") or "", choices))
    assert example is not None, "all that it needs was asked for"
    return example


def _calibration(solver: Solver) -> dict[str, Any]:
    found = solver.calibration
    return {
        "temperature": round_result(found.temperature),
        "thresholds": {label: round_result(value) for label, value in found.thresholds.items()},
        "abstain_below": None if found.abstain_below is None else round_result(found.abstain_below),
    }
