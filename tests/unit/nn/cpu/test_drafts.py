"""How far ahead to guess: far where guesses are right, not at all where they are wrong, and again after a while."""

from qkv.nn.cpu.speculative import COUNTS, OF_TRANSLATION, PATIENCE, Pace, worth


def test_worth_is_what_it_costs_by_hand() -> None:
    # all right: 4 tokens for 3 steps of 8 bits and one reading of four
    assert worth(3, 1.0) == 4 / (3 * 0.4 + 1.5 + 4 * 0.08)
    assert worth(7, 0.0) < worth(3, 0.0) < worth(0, 0.0) == 1
    assert [max(COUNTS, key=lambda count: worth(count, right)) for right in (0.5, 0.85, 0.95, 1.0)] == [0, 3, 7, 15]


def test_where_guesses_are_cheap_more_are_worth_it() -> None:
    assert worth(7, 0.95, OF_TRANSLATION) > worth(7, 0.95)
    pace = Pace(OF_TRANSLATION)
    for _ in range(7):
        pace.saw(False)
    assert pace.count() > 0 == max(COUNTS, key=lambda count: worth(count, pace.right))


def test_where_it_does_not_pay_it_is_tried_again() -> None:
    pace = Pace()
    for _ in range(200):
        pace.saw(False)
    assert [pace.count() for _ in range(PATIENCE + 1)] == [0] * PATIENCE + [COUNTS[1]]
    assert pace.count() == 0
