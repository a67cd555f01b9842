"""How well ELMo's two language models predict documents they were not trained on: perplexity, over the same tokens
every time and among the whole vocabulary."""

from typing import Any

import torch
from torch import nn

from qkv.data.shards import Shards
from qkv.metrics.language import perplexity
from qkv.objectives.both_directions import CarryingBoth, TwoWayBatches, evaluated
from qkv.objectives.running_text import Integers, SpecialIds, TextConfig
from qkv.run.next_token_evaluation import LEAST


class TwoWayEvaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self,
        held_out: Shards,
        special: SpecialIds,
        config: TextConfig,
        rows: int,
        tokens: int,
        sizes: Integers | None = None,
    ) -> None:
        """`sizes` (V,) are how many bytes each token has."""
        self.count = 0  # of batches
        total = held_out.n_tokens
        if total < 2:
            return
        config = TextConfig(min(config.length, total - 1), config.ends)
        rows = max(1, min(rows, min(total, tokens) // (LEAST * config.length)))
        self.batches = TwoWayBatches(held_out, special, config, rows=rows, shuffle=False, sizes=sizes)
        self.count = min(self.batches.steps_per_epoch, -(-tokens // (rows * config.length)))

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, CarryingBoth)
        device = next(model.parameters()).device
        own = CarryingBoth(model.network, self.batches.streams).to(device).eval()  # those of the training go on after
        with torch.inference_mode():
            found = evaluated(own, (self.batches.two_ways(step)[0] for step in range(self.count)))
        result: dict[str, Any] = {}
        for name, (loss, right, count) in found.items():
            result |= {f"{name}_loss": loss, f"{name}_accuracy": right / max(1, count)}
            result |= {f"{name}_correct": right, f"{name}_count": count, f"{name}_perplexity": perplexity(loss)}
        return result
