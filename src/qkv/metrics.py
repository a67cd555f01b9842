"""How good is it: figures that every job reports. Standard library only."""

import math


def wilson_interval(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Where the true rate lies, 95 % of the time for z = 1.96 (Wilson 1927).

    Unlike rate ± z·error it stays between 0 and 1, and is honest for few trials and for rates near the ends.

    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}: a count between 0 and all of them is due.")
    if n == 0:
        return 0.0, 1.0  # nothing is known
    rate, spread = successes / n, z * z / n
    centre = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / n + spread / (4 * n))
    # at the ends the sum is exact but for rounding
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def perplexity(loss: float) -> float:
    """Among how many equally likely tokens one would be as unsure; the loss is a mean in nats.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
