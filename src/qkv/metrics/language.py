"""Figures of language models. What a loss is taken over is its objective's matter."""

import math


def perplexity(loss: float) -> float:
    """Among how many equally likely tokens one would be as unsure; the loss is a mean in nats.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
