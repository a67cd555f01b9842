"""Labels as scikit-learn's users hand them over, as the spellings that a task reads, and back.

    single    one label each: texts, whole numbers, true and false
    lists     any number of labels each, as lists
    columns   the same as a table of 0 and 1, a column a label: the form that scikit-learn itself understands
    numbers   what is to be learned is a number (kind="regression")

A label comes back as what it was: 3 as 3 and not as "3".
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError

KINDS = {"auto": None, "single": "single", "multi": "lists", "regression": "numbers"}
SEVERAL = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Labels:
    form: str
    classes: tuple[Any, ...]  # in order; () for numbers
    spelled: tuple[str | tuple[str, ...], ...] = ()  # of each example, as a task reads it

    def array(self) -> NDArray[Any]:
        """(L,) the classes; of their own type where they all have the same."""
        if len({type(one) for one in self.classes}) == 1:
            return np.array(self.classes)
        mixed = np.empty(len(self.classes), dtype=object)
        mixed[:] = self.classes
        return mixed


def labels_of(y: Any, kind: str) -> Labels:
    """
    >>> labels_of([1, 0, 1], "auto")
    Labels(form='single', classes=(0, 1), spelled=('1', '0', '1'))
    >>> labels_of([["好", "快"], []], "auto").spelled
    (('好', '快'), ())
    """
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, str) or not isinstance(y, Iterable):
        raise InputError(f"y is {y!r}; it has one label for every text, in a list.")
    if isinstance(y, np.ndarray) and y.ndim == 2:
        if y.shape[1] > 1 and kind in ("auto", "multi"):
            return _columns(y)
        y = y[:, 0] if y.shape[1] == 1 else y
    items = [_plain(item) for item in y]
    several = any(isinstance(item, SEVERAL) for item in items)
    form = KINDS[kind] or ("lists" if several else "single")
    if form == "numbers":
        return Labels(form, (), tuple(repr(_number(item, place)) for place, item in enumerate(items)))
    if form == "lists":
        rows = [tuple(item) if isinstance(item, SEVERAL) else (item,) for item in items]
    else:
        rows = [(item,) for item in items]
    found: dict[str, Any] = {}
    spelled = [tuple(_known(_plain(one), place, found, kind) for one in row) for place, row in enumerate(rows)]
    classes = _in_order(found.values())
    return Labels(form, classes, tuple(spelled) if form == "lists" else tuple(row[0] for row in spelled))


def spelling(label: Any) -> str:
    """
    >>> spelling(True), spelling(2.0), spelling(-3), spelling("好")
    ('true', '2', '-3', '好')
    """
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _columns(y: NDArray[Any]) -> Labels:
    if not np.isin(y, (0, 1)).all():
        raise InputError("y is a table, a column a label, and holds something else than 0 and 1.")
    spelled = tuple(tuple(str(column) for column in np.flatnonzero(row)) for row in y)
    return Labels("columns", tuple(range(y.shape[1])), spelled)


def _plain(item: Any) -> Any:
    """numpy's own numbers and arrays as Python's."""
    return item.tolist() if isinstance(item, np.generic | np.ndarray) else item


def _known(label: Any, place: int, found: dict[str, Any], kind: str) -> str:
    if label is None or label == "" or (isinstance(label, float) and math.isnan(label)):
        raise InputError(f"y[{place}] is {label!r}: every text needs a label. Leave texts without one out.")
    if not isinstance(label, str | int | float):
        raise InputError(
            f"y[{place}] is {label!r}; a label is a text, a whole number, true or false, or a list of them."
        )
    if isinstance(label, float) and not label.is_integer() and kind == "auto":
        raise InputError(f"y[{place}] is {label}: to learn a number rather than a class, set kind='regression'.")
    spelled = spelling(label)
    if found.setdefault(spelled, label) != label:
        raise InputError(f"y holds {found[spelled]!r} and {label!r}, which look the same when they are written down.")
    return spelled


def _number(item: Any, place: int) -> float:
    if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
        raise InputError(f"y[{place}] is {item!r}, and kind is 'regression', which learns numbers.")
    return float(item)


def _in_order(labels: Iterable[Any]) -> tuple[Any, ...]:
    found = list(labels)
    try:
        return tuple(sorted(found))
    except TypeError:  # names and numbers together
        return tuple(sorted(found, key=lambda label: (isinstance(label, str), spelling(label))))


def restored(form: str, classes: Sequence[Any]) -> Labels:
    """From what a saved folder says."""
    return Labels(form, tuple(classes))
