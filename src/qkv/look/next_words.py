"""The view of next words: what a language model expects after every token of a text, reading from left to right.

NNLM (Bengio et al. 2003) sees a few words, RNNLM (Mikolov et al. 2010) a state, GPT (Radford et al. 2018) everything to
the left. ELMo (Peters et al. 2018) is two such models: its backward side predicts the token before each, from the
right. The probabilities are those of the network over its whole vocabulary, without the temperature and the filters of
`qkv generate`; what a vocabulary has no token for is not among the candidates.

    surprise of a token   −log₂ p(token | those before it)        entropy of a position   −Σ p log₂ p, in bits

Not here: what BERT expects in the same place from both sides, which is a blank (predictions.py).

Shapes: T tokens, special tokens included; V vocabulary; k candidates.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.look.subject import Subject
from qkv.look.translating import spell_token
from qkv.look.wire import Asked, Reply, check_length, empty_refusal, to_float32
from qkv.models.family import PredictsNext
from qkv.report.attention import Token
from qkv.text.tokenizer import Encoded, Tokenizer

MOST_TOKENS = 256
"""Of a text: all positions are sent at once."""
MOST_CANDIDATES, DEFAULT_CANDIDATES = 50, 8
_NEAR = 6
"""Tokens beside a candidate that decide how it is written: with a space or without, and which bytes it completes."""


@torch.inference_mode()
def show_next_words(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, k. Head, for each direction: words (T, k), the candidates after (backward: before) each token as
    the vocabulary spells them, and texts, what each adds to the text; null for one that is no text (the end, [UNK], a
    part of a character). Arrays for each direction: {direction} (T, k), the probabilities of the candidates;
    {direction}_came (T,), the probability of the actual token, and {direction}_rank (T,), its rank from 0, -1 if there
    is none; {direction}_entropy (T,), in bits."""
    text, k = asked.text(), asked.number("k", 1, MOST_CANDIDATES, DEFAULT_CANDIDATES)
    asked.done()
    model, tokenizer = subject.predicts_next, subject.opened.tokenizer
    row = _encode(model, tokenizer, text)
    words, texts, arrays = dict[str, Any](), dict[str, Any](), dict[str, NDArray[Any]]()
    known = torch.tensor(list(tokenizer.vocabulary.values()))
    for direction, scores in model.scores(row).items():
        probabilities = scores.float().softmax(1)  # (T, V)
        named = known[known < probabilities.size(1)]  # a table may have rows without a token, and a task's own tokens
        best = probabilities[:, named].topk(min(k, len(named)))
        ids = named[best.indices].tolist()  # (T, k)
        words[direction] = [[spell_token(tokenizer, id) for id in candidates] for candidates in ids]
        texts[direction] = [
            [added_text(tokenizer, row.ids, place, id, direction) for id in candidates]
            for place, candidates in enumerate(ids)
        ]
        arrays[direction] = to_float32(best.values)
        arrays |= _score_actual_tokens(direction, probabilities, row.ids)
        arrays[f"{direction}_entropy"] = to_float32(torch.special.entr(probabilities).sum(1) / np.log(2))
    head = {"name": "next_words", "text": text, "tokens": describe_tokens(row, text), "words": words, "texts": texts}
    return Reply(head, arrays)


def added_text(tokenizer: Tokenizer, ids: Sequence[int], place: int, id: int, direction: str = "forward") -> str | None:
    """What a candidate adds to the text after the token at `place` (backward: before it), with a space if one belongs
    there; None if it adds no text.

    >>> tokenizer = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "sat", "我"])
    >>> [added_text(tokenizer, [2, 5], 1, id) for id in (6, 7, 8, 3)]
    ['s', ' sat', ' 我', None]
    >>> added_text(tokenizer, [2, 5], 1, 7, "backward"), added_text(tokenizer, [2, 8], 1, 8)
    ('sat ', '我')
    """
    if id in tokenizer.special_ids:
        return None
    if direction == "forward":
        beside = tokenizer.decode(ids[max(0, place + 1 - _NEAR) : place + 1])
        both = tokenizer.decode([*ids[max(0, place + 1 - _NEAR) : place + 1], id])
        added = both[len(beside) :] if both.startswith(beside) else ""
    else:
        beside = tokenizer.decode(ids[place : place + _NEAR])
        both = tokenizer.decode([id, *ids[place : place + _NEAR]])
        added = both[: len(both) - len(beside)] if both.endswith(beside) else ""
    return added if added and "\ufffd" not in added else None


def describe_tokens(row: Encoded, text: str) -> list[dict[str, Any]]:
    return [
        asdict(Token(token, text[start:end], start, end, special=start == end))
        for token, (start, end) in zip(row.tokens, row.offsets, strict=True)
    ]


def _encode(model: PredictsNext, tokenizer: Tokenizer, text: str) -> Encoded:
    found = tokenizer.encode(text, special=False)
    if not any(start < end for start, end in found.offsets):
        raise empty_refusal("text")
    begin = [] if model.begin_id is None else [model.begin_id]
    end = [] if model.end_id is None else [model.end_id]
    ids = [*begin, *found.ids, *end]
    most = min(MOST_TOKENS, model.max_length or MOST_TOKENS)
    check_length(len(ids), most, shown=most == MOST_TOKENS)
    before, after = ([tokenizer.token(id) for id in marks] for marks in (begin, end))
    offsets = [*[(0, 0)] * len(begin), *found.offsets, *[(0, 0)] * len(end)]
    return Encoded(ids, [0] * len(ids), offsets, [*before, *found.tokens, *after])


def _score_actual_tokens(direction: str, probabilities: Tensor, ids: Sequence[int]) -> dict[str, NDArray[Any]]:
    """(T, V) → probability and rank of the actual next (backward: previous) token; -1 where there is none."""
    vocabulary = probabilities.size(1)
    came, ranks = np.full(len(ids), -1, np.float32), np.full(len(ids), -1, np.int32)
    step = 1 if direction == "forward" else -1
    for place in range(len(ids)):
        if 0 <= place + step < len(ids) and (id := ids[place + step]) < vocabulary:  # otherwise it has no score
            row = probabilities[place]
            came[place], ranks[place] = float(row[id]), int((row > row[id]).sum())
    return {f"{direction}_came": came, f"{direction}_rank": ranks}
