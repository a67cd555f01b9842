"""Many ranges as one array of indices, the way numpy likes to gather and to scatter."""

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """starts[0], starts[0] + 1, …, starts[1], …: each range's indices, end to end.

    >>> ranges(np.array([10, 20, 30]), np.array([2, 0, 3])).tolist()
    [10, 11, 30, 31, 32]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
