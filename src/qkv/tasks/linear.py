"""Classification as a linear model: the targets of train/linear.py from labelled texts."""

from collections.abc import Sequence

import numpy as np

from qkv.data.labelled.examples import TextExample
from qkv.tasks.texts import TextTask
from qkv.train.linear import Classes, Labels, Numbers, Targets


def linear_targets(
    task: TextTask, examples: Sequence[TextExample], class_weights: Sequence[float] | None = None
) -> Targets:
    """What a linear model of these examples predicts. A class weight multiplies the loss of the examples of a class,
    and of several labels the loss of the examples that have the label, as in training by steps."""
    wanted = task.targets(examples).numpy()
    if task.numbers:
        return Numbers(wanted.astype(np.float64), np.ones(len(wanted)))
    weights = np.ones(task.outputs) if class_weights is None else np.asarray(class_weights, np.float64)
    if wanted.ndim == 1:
        return Classes(wanted, task.outputs, weights[wanted])
    return Labels(wanted.astype(np.float64), np.where(wanted > 0.5, weights, 1.0))
