"""The view of blanks: masked-token prediction and next-sentence prediction (BERT, §3.1).

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
from qkv.data.batch import Batch
from qkv.look.scene import check_length
from qkv.look.subject import Subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.family import FILLS, JUDGES_PAIRS, Ability
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
            raise RefusalError("empty", f"Nothing is left of '{name}' after tokenization. Write something.", field=name)
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
