"""Where Chinese words begin, so that whole words can be masked (Cui et al. 2019, "Pre-Training with Whole Word Masking
for Chinese BERT").

BERT reads Chinese character by character. A segmenter is asked once, while a corpus is prepared, and sees nothing but
runs of 汉字: its answer moves no token and changes no id.

What this file does NOT do: segment. See `segmenter.py`.
"""

from collections.abc import Sequence

import numpy as np

from qkv.segmenter import Segmenter


def word_starts(runs: Sequence[str], segmenter: Segmenter) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """For every character of every run, in order: does a word begin here?

    >>> by_hand = {"我爱北京": ["我", "爱", "北京"], "天安门": ["天安门"]}
    >>> word_starts(list(by_hand), Segmenter("by hand", by_hand.__getitem__))
    array([ True,  True,  True, False,  True, False, False])
    """
    if not runs:
        return np.zeros(0, np.bool_)
    words = segmenter.words(runs)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    starts = np.zeros(lengths.sum(), np.bool_)
    starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    ends = np.cumsum(np.fromiter(map(len, runs), np.int64, len(runs)) + 1) - 1
    return np.delete(starts, ends[:-1])  # the line ends between the runs
