"""Which documents are held out, and that a shard may end anywhere."""

import numpy as np
import pytest

from qkv.data.corpus.writer import is_held_out


@pytest.mark.parametrize("share", [0.5, 0.1, 0.005, 0.001])
def test_as_many_are_held_out_as_asked_for(share: float) -> None:
    chosen = is_held_out(np.arange(200_000), share)
    assert chosen.mean() == pytest.approx(share, rel=1e-3)
    lots = np.flatnonzero(chosen) // round(1 / share)
    assert np.array_equal(lots, np.arange(len(lots))), "one of every lot"
    place = np.flatnonzero(chosen)[1:] % round(1 / share) / (round(1 / share) - 1)
    assert place.mean() == pytest.approx(0.5, abs=0.05), "at any place of it"


def test_it_depends_on_the_number_alone() -> None:
    everything = is_held_out(np.arange(1000), 0.01)
    assert (
        np.concatenate([is_held_out(np.arange(a, a + 7), 0.01) for a in range(0, 994, 7)]).tolist()
        == everything[:994].tolist()
    )


def test_small_corpora() -> None:
    assert np.flatnonzero(is_held_out(np.arange(5), 0.005)).tolist() == [2]
    assert not is_held_out(np.arange(2), 0.005).any()
    assert not is_held_out(np.arange(1000), 0.0).any()
