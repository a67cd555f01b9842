"""How well a language model predicts documents it was not trained on: perplexity, over the same tokens every time."""

from typing import Any

import torch
from torch import nn

from qkv.data.shards import Shards
from qkv.metrics.language import perplexity
from qkv.models.nnlm import NNLM
from qkv.objectives.next_token import Carrying, evaluated
from qkv.objectives.running_text import SpecialIds, StreamBatches, TextConfig

LEAST = 16  # pieces of a stream: a recurrent model begins each with nothing seen, which is not what it is asked for


class NextTokenEvaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self, held_out: Shards, special: SpecialIds, config: TextConfig, seen: int, rows: int, tokens: int
    ) -> None:
        self.count = 0  # of batches
        total = held_out.n_tokens
        if total < 2:
            return
        config = TextConfig(min(config.length, total - 1), config.ends)
        rows = max(1, min(rows, min(total, tokens) // (LEAST * config.length)))
        self.batches = StreamBatches(held_out, special, config, rows=rows, seen=seen, shuffle=False)
        self.count = min(self.batches.steps_per_epoch, -(-tokens // (rows * config.length)))

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, NNLM | Carrying)
        if isinstance(model, Carrying):  # with states of its own: those of the training go on afterwards
            device = next(model.parameters()).device
            model = Carrying(model.network, self.batches.streams).to(device).eval()
        with torch.inference_mode():
            loss, right, count = evaluated(model, (self.batches(step)[0] for step in range(self.count)))
        return {
            "next_loss": loss,
            "next_accuracy": right / max(1, count),
            "next_correct": right,
            "next_count": count,
            "next_perplexity": perplexity(loss),
        }
