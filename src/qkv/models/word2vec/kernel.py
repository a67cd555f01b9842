"""word2vec's inner loop, compiled by numba (extra `fast`): skip-gram and CBOW with negative sampling.

One thread is deterministic: what it does is a function of its arguments, the seed among them. Several threads may work
on the same two matrices at a time without locks (Recht et al. 2011, "Hogwild!"): now and then one overwrites what
another has just added, which sparse steps forgive.

Where the time goes, and what is done about it:

- All inputs of a window meet the same outputs, the word in the middle and its negatives (Ji et al. 2016, "Parallelizing
  Word2Vec in Shared and Distributed Memory"). Each row of the Context matrix is fetched once a window instead of once a
  pair, and what was a row of dot products is a small matrix product: GROUP outputs against one input, in registers.
- A compiler turns a loop into vector instructions when it can see that what is read is not what is written. So rows are
  copied into one scratch array, in which every distance is a number known when the loop is compiled.
- A negative is drawn in constant time (alias method; see models/word2vec/objective.py) and not by bisection.

What this file does NOT do: read shards, know words, set the learning rate. `models/word2vec/pretrain.py` does. Without
numba `models/word2vec/objective.py` trains the same model through torch.

Shapes: V vocabulary, D width, N outputs of a window (1 + negatives, filled up to whole groups).
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.nn.cpu.compiled import KERNEL_SETTINGS, compile_cached, numba

GROUP = 6  # outputs that meet an input at a time: the usual five negatives and the word itself
OBSERVED = 16  # of so many windows the loss of one is taken: a logarithm costs more than a step

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float32]


class Tables(NamedTuple):
    """The tables to draw from; built by models/word2vec/objective.py."""

    keep: NDArray[np.uint64]  # (V,) of 2³², the chance that a word of the text stays in it
    thresholds: NDArray[np.uint64]  # (V,) of 2³², the chance that a negative is what was drawn, and
    aliases: _Integers  # (V,) what it is otherwise


Learn = Callable[..., tuple[float, int]]
"""learn(tokens, sentences, tables, embedding, context, window, lr_first, lr_last, seed) → loss, pairs it was taken of.

`tokens` are ids, `sentences` (S + 1,) where each sentence begins among them, and the end; `embedding` and `context`
(V, D) float32 are changed in place. The learning rate goes from one value to the other on the way.
"""


inlined: Callable[[Any], Any] = numba.njit(inline="always", **KERNEL_SETTINGS) if numba else lambda function: function
zero, one = np.float32(0), np.float32(1)
half, low = np.uint64(32), np.uint64(0xFFFFFFFF)


def _draw(state: NDArray[np.uint64]) -> np.uint64:
    """64 bits: xorshift64* (Vigna 2016)."""
    bits = state[0]
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    state[0] = bits
    return bits * np.uint64(0x2545F4914F6CDD1D)


def _below(bits: np.uint64, limit: int) -> np.int64:
    """0 … limit − 1, by the upper half of the bits."""
    return np.int64((bits >> half) * np.uint64(limit) >> half)


def _scores(scratch: _Floats, width: int, at: int, source: int, found: _Floats, first: int) -> None:
    """The input at `source` against the GROUP outputs from `at` on."""
    s0 = s1 = s2 = s3 = s4 = s5 = zero
    for d in range(width):
        x = scratch[source + d]
        s0 += x * scratch[at + d]
        s1 += x * scratch[at + width + d]
        s2 += x * scratch[at + 2 * width + d]
        s3 += x * scratch[at + 3 * width + d]
        s4 += x * scratch[at + 4 * width + d]
        s5 += x * scratch[at + 5 * width + d]
    found[first], found[first + 1], found[first + 2] = s0, s1, s2
    found[first + 3], found[first + 4], found[first + 5] = s3, s4, s5


def _spread(
    scratch: _Floats, width: int, at: int, sums: int, source: int, errors: _Floats, first: int, change: _Floats
) -> None:
    """The errors of GROUP outputs: times the input, into the outputs' sums; times the outputs, into `change`."""
    e0, e1, e2 = errors[first], errors[first + 1], errors[first + 2]
    e3, e4, e5 = errors[first + 3], errors[first + 4], errors[first + 5]
    for d in range(width):
        x = scratch[source + d]
        scratch[sums + d] += e0 * x
        scratch[sums + width + d] += e1 * x
        scratch[sums + 2 * width + d] += e2 * x
        scratch[sums + 3 * width + d] += e3 * x
        scratch[sums + 4 * width + d] += e4 * x
        scratch[sums + 5 * width + d] += e5 * x
        change[d] += (
            e0 * scratch[at + d]
            + e1 * scratch[at + width + d]
            + e2 * scratch[at + 2 * width + d]
            + e3 * scratch[at + 3 * width + d]
            + e4 * scratch[at + 4 * width + d]
            + e5 * scratch[at + 5 * width + d]
        )


def _softplus(score: float) -> float:
    """log(1 + exp(score)). A word that fills its own window can have a score below −88, where exp overflows."""
    return score if score > 80 else math.log1p(math.exp(score))


_surprise = inlined(_softplus)


def _loss(scores: _Floats, count: int) -> float:
    """−log σ(score) for the word itself, −log σ(−score) for a negative."""
    loss = _surprise(-scores[0])
    for output in range(1, count):
        loss += _surprise(scores[output])
    return loss


draw, below, scores, spread, loss_of = map(inlined, (_draw, _below, _scores, _spread, _loss))


@cache
def compile_kernel(width: int, negatives: int, cbow: bool) -> Learn:
    """Compiles on the first call (some seconds)."""
    D, K = width, negatives
    N = -(-(1 + K) // GROUP) * GROUP
    SUMS, INPUT = N * D, 2 * N * D  # the scratch array: N outputs, N sums of what to add to them, the input

    def learn(
        tokens: NDArray[Any],
        sentences: _Integers,
        tables: Tables,
        embedding: _Floats,
        context: _Floats,
        window: int,
        lr_first: float,
        lr_last: float,
        seed: int,
    ) -> tuple[float, int]:
        keep, thresholds, aliases = tables
        V = len(keep)
        longest = 0
        for sentence in range(len(sentences) - 1):
            longest = max(longest, sentences[sentence + 1] - sentences[sentence])
        words = np.empty(longest, np.int64)
        near = np.empty(2 * window, np.int64)
        outputs = np.empty(N, np.int64)
        errors = np.empty(N, np.float32)
        scratch = np.zeros((2 * N + 1) * D, np.float32)
        change = np.empty(D, np.float32)
        state = np.empty(1, np.uint64)
        state[0] = np.uint64(seed) | np.uint64(1)  # never all zeros, from which xorshift does not come back
        loss, observed, windows = 0.0, 0, 0
        total = max(1, sentences[-1] - sentences[0])
        for sentence in range(len(sentences) - 1):
            lr = np.float32(lr_first + (lr_last - lr_first) * ((sentences[sentence] - sentences[0]) / total))
            n = 0
            for place in range(sentences[sentence], sentences[sentence + 1]):
                token = tokens[place]
                if draw(state) >> half < keep[token]:
                    words[n] = token
                    n += 1
            for place in range(n):
                reach = 1 + below(draw(state), window)
                m = 0
                for other in range(max(0, place - reach), min(n, place + reach + 1)):
                    if other != place:
                        near[m] = words[other]
                        m += 1
                if m == 0:
                    continue
                outputs[0] = words[place]
                count = 1
                for _ in range(K):
                    bits = draw(state)
                    word = below(bits, V)
                    if bits & low >= thresholds[word]:
                        word = aliases[word]
                    if word != outputs[0]:
                        outputs[count] = word
                        count += 1
                for output in range(count):
                    row = context[outputs[output]]
                    for d in range(D):
                        scratch[output * D + d] = row[d]
                for d in range(count * D, N * D):  # an output of zeros moves nothing
                    scratch[d] = zero
                for d in range(N * D):
                    scratch[SUMS + d] = zero
                windows += 1
                share = one / np.float32(m)
                if cbow:
                    for d in range(D):
                        scratch[INPUT + d] = zero
                        change[d] = zero
                    for i in range(m):
                        row = embedding[near[i]]
                        for d in range(D):
                            scratch[INPUT + d] += share * row[d]
                for i in range(1 if cbow else m):  # the mean of all, or every input by itself
                    row = change if cbow else embedding[near[i]]
                    if not cbow:
                        for d in range(D):
                            scratch[INPUT + d] = row[d]
                    for group in range(N // GROUP):
                        scores(scratch, D, group * GROUP * D, INPUT, errors, group * GROUP)
                    if windows % OBSERVED == 1:
                        loss += loss_of(errors, count)
                        observed += 1
                    for output in range(N):
                        errors[output] = -lr / (one + math.exp(-errors[output]))
                    errors[0] += lr  # (target − σ(score)) · lr
                    for group in range(N // GROUP):
                        at = group * GROUP * D
                        spread(scratch, D, at, SUMS + at, INPUT, errors, group * GROUP, row)
                if cbow:
                    for i in range(m):
                        row = embedding[near[i]]
                        for d in range(D):
                            row[d] += change[d]  # all of it, not a share: see models/word2vec/objective.py
                for output in range(count):
                    row = context[outputs[output]]
                    for d in range(D):
                        row[d] += scratch[SUMS + output * D + d]
        return loss, observed

    compiled: Learn = compile_cached(learn)
    return compiled
