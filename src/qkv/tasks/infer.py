"""Features to scores: rows sorted by length, packed up to a budget of tokens, back in their own order."""

import numpy as np
import torch

from qkv.data.batching import plan
from qkv.data.ranges import ranges
from qkv.tasks.model import VECTORS, TaskModel
from qkv.tasks.task import Features, Scores
from qkv.tasks.vectors import Vectors


@torch.inference_mode()
def infer(model: TaskModel, features: Features, tokens_per_batch: int, precision: torch.dtype | None = None) -> Scores:
    """(R, L) for a head that reads rows, (N, L) for one that reads tokens; rows in order, as the features have them.

    `precision` is what matrix products are computed in on a GPU, as in training; None is what the weights are in.
    """
    rows = features.rows
    device = next(model.parameters()).device
    begins = np.cumsum(rows.lengths) - rows.lengths
    found: Scores | None = None
    model.eval()
    for chosen in plan(rows.lengths, tokens_per_batch):
        labels = {VECTORS: features.of(chosen)} if isinstance(features, Vectors) else None
        batch = rows.collate(chosen, labels).to(device, non_blocking=True)
        with torch.autocast(device.type, precision or torch.bfloat16, enabled=precision is not None):
            scores = model.scores(batch)
        values = scores.float().cpu().numpy()
        if found is None:
            found = np.empty((len(rows) if model.reads_rows else int(rows.lengths.sum()), values.shape[1]), np.float32)
        found[chosen if model.reads_rows else ranges(begins[chosen], rows.lengths[chosen])] = values
    assert found is not None, "there is at least one row"
    return found
