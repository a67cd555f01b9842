"""Ranges of rows in flat arrays, as indices. Without torch, which a process that encodes a corpus need not import."""

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated indices of all ranges: starts[0], starts[0] + 1, …, starts[1], …

    >>> ranges(np.array([10, 20, 30]), np.array([2, 0, 3])).tolist()
    [10, 11, 30, 31, 32]
    """
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)
    # a cumulative sum: 1 inside a range, a jump at its beginning (np.repeat would hold the interpreter lock)
    steps = np.ones(int(ends[-1]), np.int64)
    steps[0] = starts[0]
    steps[ends[:-1]] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, out=steps)
