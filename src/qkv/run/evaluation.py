"""How a pretrained model does on documents it was not trained on: the two losses, and blanks that a person can read.

Rows, masks and blanks are drawn once, from a seed of their own: every evaluation of a run asks the same questions.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from qkv.batch import Batch
from qkv.data.shards import Shards
from qkv.metrics.language import perplexity
from qkv.models.bert import BertWithHeads
from qkv.objectives.pairs import instances
from qkv.objectives.pretraining import Pretraining, PretrainingBatches, evaluated
from qkv.tokenizer import Tokenizer

SEED = 20_181_011  # the day BERT was put on arXiv
SHORTEST, LONGEST = 8, 40  # tokens of a sentence that is shown with a blank


@dataclass(frozen=True)
class BlankedSentence:
    """A held-out sentence with one word hidden."""

    text: str
    answer: str
    batch: Batch
    place: int

    def filled(self, model: BertWithHeads, tokenizer: Tokenizer, k: int = 5) -> dict[str, Any]:
        batch = self.batch.to(next(model.parameters()).device)
        hidden = model.encoder(**batch.inputs()).hidden[self.place]
        best = model.predict("masked", hidden[None])[0].float().softmax(-1).topk(min(k, model.config.vocabulary_size))
        candidates = [
            [tokenizer.token(int(token)), round(float(probability), 4)]
            for token, probability in zip(best.indices, best.values, strict=True)
        ]
        return {"text": self.text, "answer": self.answer, "candidates": candidates}


class Evaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self, held_out: Shards, tokenizer: Tokenizer, batches: PretrainingBatches, objective: Pretraining, rows: int
    ) -> None:
        self.tokenizer, self.objective = tokenizer, objective
        pairs = batches.pairs
        if pairs.negatives == "document" and held_out.n_documents < 2:
            pairs = replace(pairs, negatives="corpus")  # a single held-out document has no other to borrow from
        drawn = instances(held_out, pairs, SEED, 0)
        draw = np.random.default_rng(SEED)
        chosen = draw.permutation(len(drawn))[:rows]
        build = batches.over(held_out)
        self.batches = [
            build.batch(drawn.take(part), draw)
            for part in np.array_split(chosen, max(1, len(chosen) // batches.rows))
            if len(part)
        ]
        longest = min(LONGEST, pairs.max_length - 2)  # with [CLS] and [SEP]
        self.blanks = blanked_sentences(held_out, tokenizer, draw, count=6, longest=longest)

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, BertWithHeads)
        result: dict[str, Any] = {}
        for name, (loss, correct, count) in evaluated(model, self.objective, self.batches).items():
            result |= {f"{name}_loss": loss, f"{name}_accuracy": correct / max(1, count)}
            result |= {f"{name}_correct": correct, f"{name}_count": count}
        result["masked_perplexity"] = perplexity(result["masked_loss"])
        result["samples"] = [blank.filled(model, self.tokenizer) for blank in self.blanks]
        return result


def blanked_sentences(
    held_out: Shards, tokenizer: Tokenizer, draw: np.random.Generator, count: int, longest: int = LONGEST
) -> list[BlankedSentence]:
    """Sentences of a length that reads well, from all over the held-out text, with one word of letters hidden."""
    offsets = held_out.sentence_offsets
    lengths = np.diff(offsets)
    suitable = np.flatnonzero((lengths >= SHORTEST) & (lengths <= longest))
    found: list[BlankedSentence] = []
    for sentence in draw.permutation(suitable)[: 10 * count]:
        start, length = offsets[sentence : sentence + 1], lengths[sentence : sentence + 1]
        ids = held_out.tokens(start, length)
        begins = np.append(held_out.word_starts(start, length), True)
        words = [
            place
            for place in range(len(ids))
            # a word of one token, so that one blank is the whole of it
            if begins[place] and begins[place + 1] and tokenizer.token(int(ids[place])).isalpha()
        ]
        if not words or int(tokenizer.unk_id) in ids:
            continue
        place = int(draw.choice(words))
        answer = tokenizer.token(int(ids[place]))
        ids[place] = tokenizer.mask_id
        row, segments = tokenizer.with_special(ids.tolist())
        text = tokenizer.decode(ids.tolist(), skip_special=False)
        found.append(BlankedSentence(text, answer, Batch.of([row], segments=[segments]), place + 1))
        if len(found) == count:
            break
    return found
