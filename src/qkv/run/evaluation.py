"""How a pretrained model does on documents it was not trained on: the two losses, and blanks that a person can read.

Rows, masks and blanks are drawn once, from a seed of their own: every evaluation of a run asks the same questions.
"""

from typing import Any

import numpy as np
from torch import nn

from qkv.data.shards import Shards
from qkv.metrics import perplexity
from qkv.models.bert import BertWithHeads
from qkv.objectives.pairs import instances
from qkv.objectives.pretraining import Pretraining, PretrainingBatches, evaluated
from qkv.tokenizer import Tokenizer

SEED = 20_181_011  # the day BERT was put on arXiv


class Evaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self, held_out: Shards, tokenizer: Tokenizer, batches: PretrainingBatches, objective: Pretraining, rows: int
    ) -> None:
        self.tokenizer, self.objective = tokenizer, objective
        pairs = batches.pairs
        if pairs.negatives == "document" and held_out.n_documents < 2:
            pairs = replace(pairs, negatives="corpus")  # one held-out document has no other to borrow from
        drawn = instances(held_out, pairs, SEED, 0)
        draw = np.random.default_rng(SEED)
        chosen = draw.permutation(len(drawn))[:rows]
        self.batches = [
            batches.over(held_out).batch(drawn.take(part), draw)
            for part in np.array_split(chosen, max(1, len(chosen) // batches.rows))
        ]
        self.blanks = _blanks(held_out, tokenizer, count=6)

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, BertWithHeads)
        result: dict[str, Any] = {}
        for name, (loss, correct, count) in evaluated(model, self.objective, self.batches).items():
            result |= {f"{name}_loss": loss, f"{name}_accuracy": correct / max(1, count)}
            result |= {f"{name}_correct": correct, f"{name}_count": count}
        result["masked_perplexity"] = perplexity(result["masked_loss"])
        result["samples"] = [blank.filled(model, self.tokenizer) for blank in self.blanks]
        return result
