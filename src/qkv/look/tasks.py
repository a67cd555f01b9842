"""The view of tasks: the prediction of a fine-tuned model with all scores.

    classify   the score of every label and its calibrated probability; or one number
    tag        entities as character spans, each with the probability of this span and label
    answer     start and end probabilities of every token of the passage; and the best spans
    choice     the score and the probability of every choice

The predictions are those of `Model.predict`; the scores come from `Task.weighed`.
"""

from typing import Any

import torch

from qkv.api.predict import describe_empty, empty_part
from qkv.data.labelled.examples import Example, UnlabelledInput
from qkv.look.subject import Subject, list_views
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.family import HAS_TASK
from qkv.tasks.predictor import Solver
from qkv.tasks.table import AnyTask
from qkv.tasks.task import round_result

MOST_CHOICES = 26


@torch.inference_mode()
def run_task(subject: Subject, asked: Asked) -> Reply:
    """Fields: classify: text, and pair for text pairs; tag: text; answer: text and question; choice: choices, and text
    or question or both. Head: task, kind, calibration, n_tokens, n_windows, and the prediction (`classes`, `value`,
    `entities`, `answer` and `spans`, `choices`). Arrays: `scores` and `probabilities` in the order of the prediction;
    answer: `start` and `end` (C) and `tokens` (C, 2), the span of each."""
    solver = _require_solver(subject)
    made = solver.task
    example = _read_example(subject, made, asked)
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


def _require_solver(subject: Subject) -> Solver:
    if not subject.has(HAS_TASK):
        views = ", ".join(list_views(subject.facts))
        raise RefusalError(
            "no_task",
            f"{subject.title} is not fine-tuned for a task. Its views: {views}. To fine-tune a model: "
            f"qkv finetune classify --model {subject.name} --train FILE --out RUN.",
            model=subject.title,
            kind=subject.kind,
            views=views,
        )
    return subject.model.solver


def _read_example(subject: Subject, made: AnyTask, asked: Asked) -> Example:
    """An example from the fields of the task's examples; `choices` is a list, the others are texts."""
    fields = made.example.fields
    texts = {
        name: asked.text(name) if needed else asked.maybe_text(name)
        for name, needed in fields.items()
        if name != "choices"
    }
    if not any(texts.values()):
        raise RefusalError("empty", "'text' and 'question' are both empty.", field="text")
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
    example = made.example.of(UnlabelledInput(texts.get("text") or "", pair, texts.get("question") or "", choices))
    assert example is not None, "all required fields were read"
    return example


def _calibration(solver: Solver) -> dict[str, Any]:
    found = solver.calibration
    return {
        "temperature": round_result(found.temperature),
        "thresholds": {label: round_result(value) for label, value in found.thresholds.items()},
        "abstain_below": None if found.abstain_below is None else round_result(found.abstain_below),
    }
