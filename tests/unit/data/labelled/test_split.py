"""Holding out: by label, by group, and the same on every machine."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.examples import choose_held_out, fold_text


def test_every_label_by_its_share() -> None:
    strata = ["a"] * 100 + ["b"] * 20 + ["c"] * 2 + ["d"]
    chosen = choose_held_out([str(n) for n in range(len(strata))], strata, 0.1, 0, 5000)
    out = Counter(label for label, is_out in zip(strata, chosen, strict=True) if is_out)
    assert out == {"a": 10, "b": 2}  # of two a share of 0.1 is none, and the only "d" is needed for training


def test_many_small_labels_do_not_add_up_to_more_than_the_share() -> None:
    strata = [str(n % 500) for n in range(1500)]
    chosen = choose_held_out([str(n) for n in range(1500)], strata, 0.1, 0, 5000)
    assert chosen.sum() == 150
    assert choose_held_out([str(n) for n in range(1500)], strata, 0.5, 0, most=40).sum() == 40


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from("xyz")), min_size=1, max_size=60),
    st.floats(0.05, 0.5),
    st.integers(0, 3),
)
def test_groups_stay_whole_and_every_label_can_be_learned(
    items: list[tuple[int, str]], share: float, seed: int
) -> None:
    groups, strata = [str(group) for group, _ in items], [label for _, label in items]
    chosen = choose_held_out(groups, strata, share, seed, 5000)
    assert all(len({bool(chosen[n]) for n, g in enumerate(groups) if g == group}) == 1 for group in groups)
    trained = {label for label, is_out in zip(strata, chosen, strict=True) if not is_out}
    assert trained == set(strata)
    assert (chosen == choose_held_out(groups, strata, share, seed, 5000)).all()


def test_no_more_than_asked_for() -> None:
    chosen = choose_held_out([str(n) for n in range(10_000)], [""] * 10_000, 0.5, 0, most=100)
    assert chosen.sum() == 100


def test_folded_texts_are_what_people_compare() -> None:
    assert fold_text("Ｈｅｌｌｏ　世界！") == fold_text("hello 世界!")
    assert fold_text("a") != fold_text("b")
