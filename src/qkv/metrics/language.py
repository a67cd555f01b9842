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


def bits_per_character(loss: float, characters: float) -> float:
    """What a text costs that lost so much in all, in nats, and has so many characters: it does not matter how it was
    cut into tokens.

    >>> round(bits_per_character(100 * math.log(2), 50), 9)
    2.0
    """
    return loss / math.log(2) / characters if characters else math.nan
