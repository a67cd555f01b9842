"""How far ahead to guess: far where guesses are right, not at all where they are wrong, and again after a while."""

from qkv.nn.cpu.speculative import DRAFT_LENGTHS, PATIENCE, TRANSLATION_COSTS, Pace, expected_speed


def test_worth_is_what_it_costs_by_hand() -> None:
    # all right: 4 tokens for 3 steps of 8 bits and one reading of four
    assert expected_speed(3, 1.0) == 4 / (3 * 0.4 + 1.5 + 4 * 0.08)
    assert expected_speed(7, 0.0) < expected_speed(3, 0.0) < expected_speed(0, 0.0) == 1
    assert [max(DRAFT_LENGTHS, key=lambda count: expected_speed(count, right)) for right in (0.5, 0.85, 0.95, 1.0)] == [
        0,
        3,
        7,
        15,
    ]


def test_where_guesses_are_cheap_more_are_worth_it() -> None:
    assert expected_speed(7, 0.95, TRANSLATION_COSTS) > expected_speed(7, 0.95)
    pace = Pace(TRANSLATION_COSTS)
    for _ in range(7):
        pace.saw(False)
    assert pace.count() > 0 == max(DRAFT_LENGTHS, key=lambda count: expected_speed(count, pace.right))


def test_where_it_does_not_pay_it_is_tried_again() -> None:
    pace = Pace()
    for _ in range(200):
        pace.saw(False)
    assert [pace.count() for _ in range(PATIENCE + 1)] == [0] * PATIENCE + [DRAFT_LENGTHS[1]]
    assert pace.count() == 0
