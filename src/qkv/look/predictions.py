"""The views of blanks (masked-token and next-sentence prediction; BERT, §3.1) and of tasks.

A blank is a [MASK] in the text, or a token hidden by the character spans of `hide` ("13-18 25-26", ends exclusive). For
a hidden token the reply has its truth: the original token, its probability and its rank. All blanks are predicted at
once and independently.

Not here: a search for the best combination of several blanks.
"""

import re
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.api.embedder import BlankCandidate
from qkv.api.model import Model
from qkv.api.predict import describe_empty, empty_part
from qkv.data.batch import Batch
from qkv.data.labelled.examples import Example, UnlabelledInput
from qkv.look.subject import Subject, list_views
from qkv.look.wire import Asked, RefusalError, Reply, check_length, empty_refusal
from qkv.models.family import FILLS, HAS_TASK, JUDGES_PAIRS, Ability
from qkv.tasks.predictor import Solver
from qkv.tasks.table import AnyTask
from qkv.tasks.task import round_result
from qkv.text.tokenizer import Encoded, Tokenizer

SPAN = re.compile(r"(\d{1,7})-(\d{1,7})")
MOST_CANDIDATES = 50
MOST_BLANKS = 64
DEFAULT_CANDIDATES = 8
_DIGITS = 6  # of a probability in the head; arrays are exact


@torch.inference_mode()
def fill_blanks(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, k, hide. Head: blanks, each with its span, its candidates and, if known, its truth. Array
    `probabilities` (blanks, k), in the order of the candidates."""
    text, k, hide = asked.text(), asked.number("k", 1, MOST_CANDIDATES, DEFAULT_CANDIDATES), asked.maybe_text("hide")
    asked.done()
    model = _require(subject, FILLS, "no_mask_head")
    tokenizer, spans = model.tokenizer, _parse_spans(hide or "", len(text))
    encoded = _encode(model, text)
    places = find_blanks(encoded, tokenizer.mask_id, spans)
    if not places:
        mask = tokenizer.token(tokenizer.mask_id)
        raise RefusalError("no_mask", f"No word of the text is hidden. Write {mask} where one is missing.", mask=mask)
    if len(places) > MOST_BLANKS:
        raise RefusalError(
            "too_many_blanks",
            f"{len(places)} tokens are hidden; the maximum is {MOST_BLANKS}.",
            blanks=len(places),
            most=MOST_BLANKS,
        )
    chances, tokens = _compute_probabilities(subject, encoded, places)  # (blanks, known tokens)
    best = chances.topk(min(k, chances.shape[1]))
    blanks = []
    for row, place in enumerate(places):
        found = zip(tokens[best.indices[row]].tolist(), best.values[row].tolist(), strict=True)
        blanks.append(
            {
                "token": place,
                "start": encoded.offsets[place][0],
                "end": encoded.offsets[place][1],
                "candidates": [_candidate(tokenizer, token, probability) for token, probability in found],
                "truth": _truth(tokenizer, encoded.ids[place], chances[row], tokens),
            }
        )
    head = {"text": text, "blanks": blanks, "n_tokens": len(encoded.ids), "mask": tokenizer.token(tokenizer.mask_id)}
    return Reply(head, {"probabilities": best.values.cpu().numpy().astype(np.float32)})


def score_next_sentence(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, pair. Head: is_next and not_next, which sum to 1."""
    text, pair = asked.text(), asked.text("pair")
    asked.done()
    model = _require(subject, JUDGES_PAIRS, "no_next_sentence")
    _encode(model, text, pair)
    return Reply({key: _round(value) for key, value in asdict(model.next_sentence(text, pair)).items()})


def find_blanks(encoded: Encoded, mask: int, spans: list[tuple[int, int]]) -> list[int]:
    """Indices of the blanks: [MASK] tokens, and tokens with a character in one of the spans.

    >>> encoded = Encoded([2, 7, 8, 4, 3], [0] * 5, [(0, 0), (0, 2), (2, 5), (6, 12), (0, 0)], ["…"] * 5)
    >>> find_blanks(encoded, 4, []), find_blanks(encoded, 4, [(0, 5)]), find_blanks(encoded, 4, [(4, 6)])
    ([3], [1, 2, 3], [2, 3])
    """
    return [
        place
        for place, (number, (start, end)) in enumerate(zip(encoded.ids, encoded.offsets, strict=True))
        if number == mask or any(start < last and first < end for first, last in spans)
    ]


def _parse_spans(spelled: str, length: int) -> list[tuple[int, int]]:
    found = []
    for part in spelled.replace(",", " ").split():
        match = SPAN.fullmatch(part)
        first, last = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 0 <= first < last <= length:
            raise RefusalError(
                "span",
                f"'{part[:40]}' in 'hide' is not a span of the text's {length} characters; 0-3 hides the first three.",
                field="hide",
                length=length,
            )
        found.append((first, last))
    return found


def _require(subject: Subject, ability: Ability[Any], code: str) -> Model:
    if not subject.has(ability):
        what = ", ".join(filter(None, (subject.facts.document.get("architecture"), "and")))
        raise subject.refusal(code, f"{what} has no weights to {ability.what}")
    return subject.model


def _encode(model: Model, text: str, pair: str | None = None) -> Encoded:
    for name, one in {"text": text, "pair": pair}.items():
        if one is not None and model.tokenizer.is_empty(one):
            raise empty_refusal(name)
    encoded = model.tokenizer.encode(text, pair)
    check_length(len(encoded.ids), model.config.max_length)
    return encoded


def _compute_probabilities(subject: Subject, encoded: Encoded, places: list[int]) -> tuple[Tensor, Tensor]:
    """(blanks, V): the probability of each token in each blank; (V,): the token ids."""
    fills, ids = subject.opened.ability(FILLS), list(encoded.ids)
    for place in places:
        ids[place] = fills.mask_id
    # (blanks, rows of the table)
    scores = fills.scores(Batch.of([ids], segments=[encoded.segments]), torch.tensor(places))
    # a table padded to a round size has rows without a token
    tokens = torch.tensor(list(subject.model.tokenizer.vocabulary.values()))
    return scores.float().softmax(-1)[:, tokens], tokens


def _truth(tokenizer: Tokenizer, number: int, chances: Tensor, tokens: Tensor) -> dict[str, Any] | None:
    """The original token of a blank; None for a [MASK] in the text and for unknown words."""
    if number in (tokenizer.mask_id, tokenizer.unk_id):
        return None
    own = chances[tokens == number][0]
    return {**_candidate(tokenizer, number, float(own)), "rank": 1 + int((chances > own).sum())}


def _candidate(tokenizer: Tokenizer, number: int, probability: float) -> dict[str, Any]:
    spelling = tokenizer.token(number)
    text = spelling.removeprefix("##") if tokenizer.kind == "wordpiece" else spelling
    return asdict(BlankCandidate(spelling, text, _round(probability)))


def _round(value: float) -> float:
    return round(value, _DIGITS)


# --- The view of tasks: the prediction of a fine-tuned model with all scores.
#
#     classify   the score of every label and its calibrated probability; or one number
#     tag        entities as character spans, each with the probability of this span and label
#     answer     start and end probabilities of every token of the passage; and the best spans
#     choice     the score and the probability of every choice
#
# The predictions are those of `Model.predict`; the scores come from `Task.weighed`.

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
