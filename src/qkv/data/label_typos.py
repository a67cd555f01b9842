"""Labels that are probably meant to be the same: "Sport" beside "sport", "positve" beside "positive".

What this does not know is meaning: "not spam" and "no spam" stay two labels.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

MOST_LABELS = 500  # every pair is compared
RARE = 0.02  # of the other label's count: a label with one letter more or less is taken for a slip only when rarer


class Typo(NamedTuple):
    label: str
    meant: str
    why: str


def typos(counts: Mapping[str, int]) -> Iterator[Typo]:
    """Of each pair that looks like one label, the rarer; of two equals, the one with doubled blanks.

    >>> list(typos({"positive": 900, "Positive": 3, "positve": 1, "negative": 800}))[0]
    Typo(label='Positive', meant='positive', why='case')
    """
    labels = sorted(counts, key=lambda label: (-counts[label], label != " ".join(label.split()), label))
    if len(labels) > MOST_LABELS:
        return
    for number, label in enumerate(labels):
        for meant in labels[:number]:
            if why := _why(label, meant, counts[label] <= max(2.0, RARE * counts[meant])):
                yield Typo(label, meant, why)
                break


def _why(label: str, other: str, rare: bool) -> str:
    if label.casefold() == other.casefold():
        return "case"
    a, b = unicodedata.normalize("NFKC", label), unicodedata.normalize("NFKC", other)
    if a == b:
        return "full or half width"
    if _bare(a) == _bare(b):
        return "case, blanks or marks"
    return "one character" if rare and _is_slip(a.casefold(), b.casefold()) else ""


def _bare(label: str) -> str:
    """Without case, blanks and marks; the sign of a number and what stands between digits count."""
    if label[:1] in "+-" or any(character.isdigit() for character in label):
        return label.casefold().replace(" ", "")
    return "".join(character for character in label.casefold() if character.isalnum()) or label


def _is_slip(a: str, b: str) -> bool:
    """One letter more, less, another, or two changed about; not a digit, which tells labels apart (class1, class2).

    >>> _is_slip("positve", "positive"), _is_slip("class1", "class2"), _is_slip("好评", "差评")
    (True, False, False)
    """
    if len(a) > len(b):
        a, b = b, a
    # Short labels are a letter apart on purpose: PER and ORG, 好评 and 差评, B and C.
    if len(a) < (3 if not a.isascii() else 4) or len(b) - len(a) > 1:
        return False
    start = next((place for place in range(len(a)) if a[place] != b[place]), len(a))
    if any(character.isdigit() for character in (a[start : start + 1] + b[start : start + 1])):
        return False
    if len(a) < len(b):
        return a[start:] == b[start + 1 :]
    swapped = a[start : start + 2][::-1] == b[start : start + 2] and a[start + 2 :] == b[start + 2 :]
    return a[start + 1 :] == b[start + 1 :] or swapped
