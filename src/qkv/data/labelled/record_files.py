"""Files of records, opened for a task: tables (csv, tsv, xlsx, parquet) and JSON (jsonl, lists, SQuAD and similar).

The columns are determined once, from the beginning of the file; record_files.py, annotation_files.py and
question_files.py convert records to examples.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

from qkv.data.labelled.binary_tables import RecordTable, plain_value
from qkv.data.labelled.examples import Example, Fault, Place, TextExample
from qkv.data.labelled.json_values import Value, number_values, read_json_lines, read_json_values
from qkv.data.labelled.opened import (
    Beginning,
    BrokenUnit,
    Convert,
    NoFieldError,
    OpenedFile,
    ReportFault,
    Wanted,
    abbreviate,
    check_text,
    empty_text_fault,
)
from qkv.data.labelled.tables import (
    MOST_NAMES,
    TableFile,
    ask_for_columns,
    find_given_column,
    find_usual_column,
    find_usual_pair,
    may_be_header,
    quote_names,
)
from qkv.errors import InputError, did_you_mean

_LOOKED_AT = 50  # records read for the names of fields


def open_table(found: TableFile, wanted: Wanted) -> OpenedFile:
    """Open a table of plain cells: csv, tsv or a sheet of an Excel file."""
    wanted = wanted._replace(unit=found.unit).recall(found.names)
    columns = _open_with_header(wanted, found) if found.header is not None else _open_without_header(wanted, found)
    names = found.names
    used = {name for value in columns.values() for name in (value, *value.split(","))}
    if twice := [name for name in used if names.count(name) > 1]:
        raise InputError(f"{wanted.path}: its header has {twice[0]!r} more than once. Rename the columns.")
    reader = wanted.labelling.reader(wanted, columns, names)
    needed = max((number for number, name in enumerate(names, 1) if name in used), default=1)
    # with given numbers, further columns do not matter; a guess or a name could be off by one
    extra_is_fine = found.header is None and bool(wanted.columns)

    def convert(line: int, given: list[Any], report: ReportFault) -> Iterator[Example]:
        cells = found.texts(given)
        if len(cells) != found.width:
            _check_width(wanted, line, cells, found, needed, extra_is_fine, report)
        yield from reader(line, dict(zip(names, cells, strict=False)), report)

    keys = _different(names)
    return OpenedFile(
        found.format, columns, found.note, found.rows, convert, found.unit, keys, keys,
        record=lambda cells: dict(zip(keys, cells, strict=False)),
        units_from=found.rows if found.sheet is None else None,
    )  # fmt: skip


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """Number names that occur more than once.

    >>> _different(["a", "b", "a"])
    ('a', 'b', 'a_2')
    """
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(found)


def _open_with_header(wanted: Wanted, found: TableFile) -> dict[str, str]:
    names = [name for name in found.names if name]  # the index of a spreadsheet has no name
    return wanted.labelling.columns(wanted, names, str(wanted.path))


def _open_without_header(wanted: Wanted, found: TableFile) -> dict[str, str]:
    """Return columns by the given numbers, or else, for texts with labels, by the contents of columns."""
    where = str(wanted.path)
    if not found.sample:
        raise InputError(f"{where} has no row that can be read as {found.format}.")
    for role, value in wanted.columns.items():
        if not all(part.strip().isdigit() for part in value.split(",")):
            first = found.sample[0]
            if may_be_header(first):
                raise InputError(
                    f"{where} has no column {value!r}: its first line is {quote_names(first)}."
                    f"{did_you_mean(value, first)} Give the {role} as one of these names, or as a number from 1 to "
                    f"{found.width:,} if this line is not a header."
                )
            raise InputError(
                f"{where} has no column {value!r}: its first line is not a header but {quote_names(first)}. "
                f"Give the {role} as a number from 1 to {found.width:,}, or write a header."
            )
    if wanted.columns:
        columns = wanted.labelling.numbered(wanted, found.names, where)
    else:
        columns = wanted.labelling.guessed(found.sample, wanted.needs_labels) or {}
    missing = wanted.labelling.missing(columns, wanted.needs_labels)
    if not missing:
        return columns
    cells = found.sample[0]
    shown = "; ".join(f"{number}: {abbreviate(cell, 30)}" for number, cell in enumerate(cells[:MOST_NAMES], 1))
    more = f"; and {len(cells) - MOST_NAMES:,} more" if len(cells) > MOST_NAMES else ""
    unclear = f"it is unclear which column is the {' and which the '.join(missing)}"
    if not may_be_header(cells):
        raise InputError(
            f"{where} has no header, so {unclear}. Its first line has {shown}{more}. "
            f"{ask_for_columns(*missing).replace('NAME', 'NUMBER')}"
        )
    raise InputError(
        f"{where}: {unclear}: its first line, {shown}{more}, has no usual name of a column. "
        f"{ask_for_columns(*missing)[:-1]}: a name if this line is a header, or else a number."
    )


def _check_width(
    wanted: Wanted, line: int, cells: list[str], found: TableFile, needed: int, extra_is_fine: bool, report: ReportFault
) -> None:
    """Check a row whose number of cells differs from the number of columns."""
    if len(cells) < needed:
        way = "Add the missing cells"
    elif len(cells) < found.width or not any(cell.strip() for cell in cells[found.width :]):
        return  # the missing cells are not needed, or the extra cells are empty
    elif extra_is_fine:
        message = f"the row has {len(cells)} columns, most have {found.width}: the extra ones are not used"
        report(Fault(wanted.place(line), "extra columns", message, "noted"))
        return
    else:
        way = 'Put cells that contain a separator in "quotes"' if found.quoted else "Remove the tabs from the text"
    name = {"\t": "tabs", ",": "commas"}.get(found.separator, repr(found.separator))
    source = "the header has" if found.header else "most rows have"
    raise InputError(
        f"{wanted.place(line)} has {len(cells)} columns (separated by {name}), {source} {found.width}. {way}, or "
        "delete the line."
    )


def open_json(start: Beginning, wanted: Wanted, container: str) -> OpenedFile:
    if container == "json" and start.ending != ".jsonl" and sum(bool(line.strip()) for line in start.lines) == 1:
        wanted = wanted._replace(unit=wanted.labelling.counted)  # all would be on line 1

    def units() -> Iterator[tuple[int, Value | BrokenUnit]]:
        found = read_json_values(wanted.path, container)
        return found if wanted.unit == "line" else number_values(found, wanted.labelling.inner)

    line, unit = next(units(), (0, None))
    if unit is None:
        raise InputError(f"{wanted.path} is an empty list.")
    if isinstance(unit, BrokenUnit):
        raise unit.error
    value = unit.value
    if nested := wanted.labelling.nested(wanted, value):
        format, reader = nested
        return OpenedFile(format, {}, "", units, reader, wanted.unit)
    if not isinstance(value, dict):
        raise InputError(
            f"{wanted.place(line)}: an object such as {{{wanted.labelling.record}}} was expected, not "
            f"{unit.raw[:40]!r}."
        )
    names: dict[str, None] = {}
    for _, one in islice(units(), _LOOKED_AT):
        if isinstance(one, Value) and isinstance(one.value, dict):
            names |= dict.fromkeys(one.value)
    wanted = wanted.recall(list(names))
    columns = wanted.labelling.columns(wanted, list(names), str(wanted.place(line)))
    reader = wanted.labelling.reader(wanted, columns, list(names))

    def convert(line: int, unit: Value, report: ReportFault) -> Iterator[Example]:
        record: Any = unit.value
        if not isinstance(record, dict):
            raise InputError(f"{wanted.place(line)}: an object was expected, not {unit.raw[:40]!r}.")
        yield from reader(line, record, report)

    shape = wanted.labelling.shape(value, columns.get("label"))
    return OpenedFile(
        shape or container, columns, "", units, convert, wanted.unit, fields=tuple(names), record=_fields,
        units_from=partial(read_json_lines, wanted.path) if container == "jsonl" else None,
    )  # fmt: skip


def _fields(unit: Value) -> Mapping[str, Any]:
    return unit.value if isinstance(unit.value, dict) else {}


def open_records(table: RecordTable, wanted: Wanted) -> OpenedFile:
    """Open a table whose cells have types: parquet or Arrow."""
    wanted = wanted._replace(unit=table.unit).recall(table.names)
    columns = wanted.labelling.columns(wanted, table.names, str(wanted.path))
    reader = wanted.labelling.reader(wanted, columns, table.names)

    def convert(row: int, record: dict[str, Any], report: ReportFault) -> Iterable[Example]:
        return reader(row, {name: plain_value(value) for name, value in record.items()}, report)

    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    return OpenedFile(
        table.format, columns, "", table.rows, convert, table.unit, table.names, table.names, types,
        record=lambda record: record, units_from=table.rows,
    )  # fmt: skip


# --- Texts and text pairs with labels from records: rows of a table, or JSON objects.
#
# A label keeps its spelling: 1 and 1.0 are different labels, true is "true". A list is several labels, and so is a cell
# with a JSON list, '["a", "b"]', or with a separator given by the caller. White space around a label is removed. Text
# pairs without agreement of the annotators, label "-" in SNLI and OCNLI, are dropped and reported; a single text may
# have the label "-".

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
        raise NoFieldError(f"{place} has no field {column!r}, only {quote_names(list(record))}.")
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
