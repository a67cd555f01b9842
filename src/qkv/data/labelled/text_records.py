"""Texts and text pairs with labels from records: rows of a table, or JSON objects.

A label keeps its spelling: 1 and 1.0 are different labels, true is "true". A list is several labels, and so is a cell
with a JSON list, '["a", "b"]', or with a separator given by the caller. White space around a label is removed. Text
pairs without agreement of the annotators, label "-" in SNLI and OCNLI, are dropped and reported; a single text may have
the label "-".
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from qkv.data.labelled.examples import Fault, Place, TextExample
from qkv.data.labelled.opened import Convert, ReportFault, Wanted, check_text, empty_text_fault
from qkv.data.labelled.tables import ask_for_columns, find_given_column, find_usual_column, find_usual_pair, quote_names
from qkv.errors import InputError

FlatRecord = Mapping[str, Any]

NOT_AGREED = "-"


def text_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    """role → column. Columns of text pairs are searched only if the text column was not given."""
    columns = {role: find_given_column(role, value, names, where) for role, value in wanted.columns.items()}
    if "text" not in columns:
        others = [name for name in names if name not in columns.values()]
        if "pair" not in columns and (pair := find_usual_pair(others)):
            columns["text"], columns["pair"] = pair
        elif found := find_usual_column("text", others, where):
            columns["text"] = found
    others = [name for name in names if name not in columns.values()]
    if "label" not in columns and (found := find_usual_column("label", others, where)):
        columns["label"] = found
    if "group" not in columns and (found := find_usual_column("group", others, where)):
        columns["group"] = found
    _fill_in(columns, names, where)
    return check_complete(wanted, columns, names, where)


def check_complete(wanted: Wanted, columns: dict[str, str], names: Sequence[str], where: str) -> dict[str, str]:
    """Return the columns; raise if a required one is missing."""
    if missing := wanted.labelling.missing(columns, wanted.needs_labels):
        raise InputError(
            f"{where}: no column has a usual name for the {' and the '.join(missing)}; there are {quote_names(names)}. "
            f"{ask_for_columns(*missing)}"
        )
    return columns


def _fill_in(columns: dict[str, str], names: Sequence[str], where: str) -> None:
    """If there are two columns and one role is known, assign the other role to the other column."""
    others = [name for name in names if name not in columns.values()]
    if len(names) == 2 and len(others) == 1 and find_usual_column("id", others, where) is None:
        for role, other in (("text", "label"), ("label", "text")):
            if role not in columns and other in columns:
                columns[role] = others[0]


def given_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    """role → column, as given by the caller; several columns of one role are separated by commas."""
    return {
        role: ",".join(find_given_column(role, one.strip(), names, where) for one in value.split(","))
        for role, value in wanted.columns.items()
    }


def text_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    text_column, pair_column = columns["text"], columns.get("pair")
    label_column, group_column = columns.get("label"), columns.get("group")

    def convert(line: int, record: FlatRecord, report: ReportFault) -> Iterator[TextExample]:
        place = wanted.place(line)
        text = read_string(record, text_column, place)
        pair = None if pair_column is None else read_string(record, pair_column, place)
        label = (
            None
            if label_column is None
            else read_label(record.get(label_column), place, label_column, wanted.separator)
        )
        if label is None and wanted.needs_labels:
            raise InputError(f"{place} has no label: {label_column!r} is empty. Add the label, or delete the line.")
        for column, value in ((text_column, text), (pair_column, pair)):
            if value is not None and not value.strip():
                report(empty_text_fault(place, repr(column)))
                return
        if label == NOT_AGREED and pair is not None:
            report(Fault(place, "no agreed label", f"the label is {label!r}: the annotators did not agree", "dropped"))
            return
        group = None if group_column is None else value_as_text(record.get(group_column))
        yield TextExample(text, pair, label, place, group)

    return convert


def read_string(record: FlatRecord, column: str, place: Place) -> str:
    """Return the text in a column."""
    value = record.get(column)
    if isinstance(value, str):
        return check_text(value, place, repr(column))
    if column not in record:
        raise InputError(f"{place} has no field {column!r}, only {quote_names(list(record))}.")
    if value is None:
        return ""
    if isinstance(value, bool | int | Decimal):  # a text such as 123 that a program stored as a number
        return value_as_text(value) or ""
    raise InputError(f"{place}: field {column!r} holds {_json_name(value)}, not a text.")


def value_as_text(value: Any) -> str | None:
    """Return a plain value with its spelling in the file; None if empty.

    >>> [value_as_text(value) for value in (True, Decimal("5.000"), " a ", "", None)]
    ['true', '5.000', 'a', None, None]
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return str(value)


def unpack_json_cell(value: Any) -> Any:
    """Decode a cell with a JSON list or object; return other values unchanged.

    >>> unpack_json_cell('["a", "b"]'), unpack_json_cell("[sic]"), unpack_json_cell(3)
    (['a', 'b'], '[sic]', 3)
    """
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return json.loads(value, parse_float=Decimal)
        except (ValueError, RecursionError):
            return value
    return value


def read_label(value: Any, place: Place, column: str, separator: str | None = None) -> str | tuple[str, ...] | None:
    """Return one label, a tuple of labels, or None. With a separator always a tuple.

    >>> read_label("b|a", Place("f", 1), "label", "|"), read_label("b|a", Place("f", 1), "label")
    (('b', 'a'), 'b|a')
    """
    value = unpack_json_cell(value)
    if separator and isinstance(value, str):
        value = value.split(separator) if value.strip() else None
    if isinstance(value, list):
        labels = [one for item in value if (one := _single(item, place, column)) is not None]
        return tuple(dict.fromkeys(labels))
    return _single(value, place, column)


def _json_name(value: Any) -> str:
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a value"


def _single(value: Any, place: Place, column: str) -> str | None:
    if isinstance(value, dict | list):
        name = _json_name(value)
        raise InputError(f"{place}: {column!r} holds {name}; a label must be a text, a number or a list of these.")
    label = value_as_text(value)
    return None if label is None else check_text(label, place, repr(column))
