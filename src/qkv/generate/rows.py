"""Which rows go on where, so that few of them change their places: a row that moves takes its keys and values along."""

from collections.abc import Sequence


def close_ranks(stays: Sequence[bool]) -> list[int]:
    """The places of those that stay. Those at the end fill the holes, and nobody else moves.

    >>> close_ranks([True, False, True, True, True])
    [0, 4, 2, 3]
    """
    n = sum(stays)
    last = [place for place in range(n, len(stays)) if stays[place]]
    return [place if stays[place] else last.pop() for place in range(n)]


def keep_places(wanted: Sequence[int]) -> list[int]:
    """In which order to take items, each of which would like a place below their number: one gets its wish if no item
    before it had the same.

    >>> keep_places([2, 2, 0])  # the first item stays at 2, the last at 0, and the other has to move
    [2, 1, 0]
    """
    order = [-1] * len(wanted)
    moving = []
    for item, place in enumerate(wanted):
        if place < len(order) and order[place] < 0:
            order[place] = item
        else:
            moving.append(item)
    return [item if item >= 0 else moving.pop() for item in order]
