"""Masking: hand-worked words, then the rates as statistics. Each bound is five standard deviations."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qkv.errors import InputError
from qkv.models.bert.objective import KEPT, MASK, RANDOM, Masked, MaskingConfig, Vocabulary, mask_tokens

VOCABULARY = Vocabulary(size=1000, mask_id=4, special_ids=frozenset(range(5)))  # PAD UNK CLS SEP MASK


def rows_of(count: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[CLS] … [SEP] rows of ordinary tokens."""
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 1000, (count, length))
    ids[:, 0], ids[:, -1] = 2, 3
    return ids.ravel(), np.repeat(np.arange(count), length)


def masked(seed: int = 0, starts: NDArray[np.bool_] | None = None, **config: Any) -> tuple[NDArray[np.int64], Masked]:
    ids, rows = rows_of(400, 66)
    draw = np.random.default_rng(seed)
    return ids, mask_tokens(ids, rows, starts, VOCABULARY, MaskingConfig(**config), draw)


def near(successes: int, trials: int, share: float) -> bool:
    return abs(successes - trials * share) < 5 * (trials * share * (1 - share)) ** 0.5 + 1


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_rates_of_the_paper(rate: float) -> None:
    ids, result = masked(rate=rate)
    ordinary = 400 * 64
    assert near(len(result.chosen), ordinary, rate)
    for treatment, share in ((MASK, 0.8), (RANDOM, 0.1), (KEPT, 0.1)):
        assert near(int((result.treatment == treatment).sum()), len(result.chosen), share)
    assert (result.targets == ids[result.chosen]).all()


def test_what_is_done_to_each() -> None:
    ids, result = masked()
    now = result.ids[result.chosen]
    assert (now[result.treatment == MASK] == 4).all()
    assert (now[result.treatment == KEPT] == result.targets[result.treatment == KEPT]).all()
    other = result.treatment == RANDOM
    assert (now[other] != result.targets[other]).all()
    assert (now[other] >= 5).all()
    untouched = np.ones(len(ids), bool)
    untouched[result.chosen] = False
    assert (result.ids[untouched] == ids[untouched]).all()


def test_random_tokens_are_uniform_over_the_others() -> None:
    vocabulary = Vocabulary(size=9, mask_id=4, special_ids=frozenset(range(5)))  # ordinary: 5 6 7 8
    ids = np.full(40_000, 6)
    config = MaskingConfig(rate=0.5, treatment=(0.0, 1.0, 0.0))
    result = mask_tokens(ids, np.zeros(40_000, np.int64), None, vocabulary, config, np.random.default_rng(0))
    counts = np.bincount(result.ids[result.chosen], minlength=9)
    assert counts[6] == 0
    for token in (5, 7, 8):
        assert near(counts[token], len(result.chosen), 1 / 3)


def test_special_tokens_and_unknown_ones_are_never_chosen() -> None:
    ids = np.array([2, 1, 7, 1, 3, 8, 1, 3])
    for seed in range(50):
        result = mask_tokens(
            ids, np.zeros(8, np.int64), None, VOCABULARY, MaskingConfig(rate=0.9), np.random.default_rng(seed)
        )
        assert set(result.chosen) <= {2, 5}


def test_every_row_has_something_to_predict() -> None:
    ids, rows = rows_of(500, 4)
    result = mask_tokens(ids, rows, None, VOCABULARY, MaskingConfig(), np.random.default_rng(0))
    assert set(rows[result.chosen]) == set(range(500))


def test_a_row_without_ordinary_tokens_is_left_alone() -> None:
    ids = np.array([2, 3, 2, 7, 3])
    result = mask_tokens(ids, np.array([0, 0, 1, 1, 1]), None, VOCABULARY, MaskingConfig(), np.random.default_rng(0))
    assert result.chosen.tolist() == [3]
    nothing = mask_tokens(
        np.array([2, 3]), np.zeros(2, np.int64), None, VOCABULARY, MaskingConfig(), np.random.default_rng(0)
    )
    assert nothing.chosen.tolist() == []


def test_whole_words_are_chosen_together() -> None:
    """[CLS] un ##afford ##able 苹 果 很 [SEP]: three words, 8 ids."""
    ids = np.array([2, 10, 11, 12, 20, 21, 22, 3])
    starts = np.array([True, True, False, False, True, False, True, True])
    words = [{1, 2, 3}, {4, 5}, {6}]
    seen = set()
    for seed in range(300):
        result = mask_tokens(
            ids, np.zeros(8, np.int64), starts, VOCABULARY, MaskingConfig(rate=0.3), np.random.default_rng(seed)
        )
        chosen = set(result.chosen.tolist())
        for word in words:
            assert word <= chosen or not word & chosen
        seen.add(frozenset(chosen))
    assert {frozenset(word) for word in words} <= seen


def test_whole_words_keep_the_rate() -> None:
    """Words of one to five tokens: taking whole ones must not move the share of tokens."""
    draw = np.random.default_rng(1)
    ids, rows = rows_of(400, 66)
    starts = draw.random(len(ids)) < 0.4
    total = chosen = 0
    for seed in range(20):
        result = mask_tokens(ids, rows, starts, VOCABULARY, MaskingConfig(), np.random.default_rng(seed))
        chosen += len(result.chosen)
        total += 400 * 64
    # tokens of a word come together, so the spread is larger than a coin's: the mean word is 2.5 tokens
    assert abs(chosen / total - 0.15) < 0.002


def test_a_word_does_not_reach_over_a_separator_or_a_row() -> None:
    ids = np.array([2, 10, 3, 11, 3, 2, 12, 3])
    rows = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    starts = np.zeros(8, bool)  # a span cut in the middle of a word
    alone = 0
    for seed in range(100):
        result = mask_tokens(ids, rows, starts, VOCABULARY, MaskingConfig(), np.random.default_rng(seed))
        chosen = set(result.chosen.tolist())
        assert 6 in chosen
        alone += len(chosen & {1, 3}) == 1
    assert alone > 90


def test_the_draw_is_a_function_of_the_generator() -> None:
    one, other, third = masked(7)[1], masked(7)[1], masked(8)[1]
    assert (one.ids == other.ids).all() and (one.chosen == other.chosen).all()
    assert len(one.chosen) != len(third.chosen) or (one.chosen != third.chosen).any()


@pytest.mark.parametrize(
    ("config", "message"),
    [({"rate": 0.0}, "rate is a share"), ({"rate": 1.5}, "rate"), ({"treatment": (0.8, 0.1)}, "three shares")],
)
def test_configs_are_checked(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MaskingConfig(**config)
