"""Sample fillings of a run's evaluations, turned so that one blank's answers stand side by side as training went on."""

import math
from typing import Any

from qkv.report.bilingual import Phrase
from qkv.report.run_log import RunLog, number
from qkv.report.run_page import Answers, Sample

SHOWN_TIMES = 4
"""Moments of the training that stand side by side."""
SHOWN_CANDIDATES = 4


def fillings(log: RunLog) -> tuple[Sample, ...]:
    """Every sample of the last evaluation, as it was answered then and at a few moments before."""
    with_samples = [
        (step, found["samples"]) for step, found in log.evaluations if isinstance(found.get("samples"), list)
    ]
    if not with_samples:
        return ()
    places = moments(len(with_samples))
    shown = [(step, _by_text(samples)) for step, samples in (with_samples[place] for place in places)]
    found = []
    for text, last in _by_text(with_samples[-1][1]).items():
        answers = tuple(
            Answers(Phrase(f"step {step:,}", f"第 {step:,} 步"), _candidates(samples[text]))
            for step, samples in shown
            if text in samples
        )
        expected = last.get("answer")
        found.append(Sample(text, str(expected) if expected is not None else None, answers))
    return tuple(found)


def moments(n: int) -> list[int]:
    """Which of n evaluations are shown. Early in a run answers change fastest, so they lie closer together there.

    >>> moments(1), moments(3), moments(10)
    ([0], [0, 1, 2], [0, 1, 4, 9])
    """
    return sorted({round((n - 1) * (time / (SHOWN_TIMES - 1)) ** 2) for time in range(SHOWN_TIMES)})


def _by_text(samples: list[Any]) -> dict[str, dict[str, Any]]:
    return {str(one["text"]): one for one in samples if isinstance(one, dict) and "text" in one}


def _candidates(sample: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    pairs = sample.get("candidates")
    known = (
        [pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2] if isinstance(pairs, list) else []
    )
    shares = [(str(token), number(share)) for token, share in known]
    return tuple((token, min(1.0, max(0.0, share))) for token, share in shares if math.isfinite(share))[
        :SHOWN_CANDIDATES
    ]
