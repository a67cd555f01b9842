"""Files of records, opened for a task: tables (csv, tsv) and JSON (jsonl, lists, SQuAD and similar).

The columns are determined once, from the beginning of the file; text_records.py, annotation_files.py and
question_files.py convert records to examples.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from qkv.data.labelled.examples import Example, Fault
from qkv.data.labelled.json_values import Value, container_of, read_json_values
from qkv.data.labelled.opened import Beginning, BrokenUnit, OpenedFile, ReportFault, Wanted, abbreviate
from qkv.data.labelled.tables import TableFile, ask_for_columns, detect_table, quote_names
from qkv.errors import InputError

_LOOKED_AT = 50  # records read for the names of fields


def open_table(start: Beginning, wanted: Wanted, format: str) -> OpenedFile:
    found = detect_table(start, format, wanted.columns)
    columns = _open_with_header(wanted, found) if found.header is not None else _open_without_header(wanted, found)
    names = found.names
    used = {name for value in columns.values() for name in (value, *value.split(","))}
    if twice := [name for name in used if names.count(name) > 1]:
        raise InputError(f"{wanted.path}: its header has {twice[0]!r} more than once. Rename the columns.")
    reader = wanted.labelling.reader(wanted, columns, names)
    needed = max((number for number, name in enumerate(names, 1) if name in used), default=1)
    # with given numbers, further columns do not matter; a guess or a name could be off by one
    extra_is_fine = found.header is None and bool(wanted.columns)

    def convert(line: int, cells: list[str], report: ReportFault) -> Iterator[Example]:
        if len(cells) != found.width:
            _check_width(wanted, line, cells, found, needed, extra_is_fine, report)
        yield from reader(line, dict(zip(names, cells, strict=False)), report)

    return OpenedFile(found.format, columns, found.note, found.rows, convert)


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
            raise InputError(
                f"{where} has no column {value!r}: its first line is not a header but {quote_names(found.sample[0])}. "
                f"Give the {role} as a number from 1 to {found.width}, or write a header."
            )
    if wanted.columns:
        columns = wanted.labelling.numbered(wanted, found.names, where)
    else:
        columns = wanted.labelling.guessed(found.sample, wanted.needs_labels) or {}
    missing = wanted.labelling.missing(columns, wanted.needs_labels)
    if not missing:
        return columns
    shown = "; ".join(f"{number}: {abbreviate(cell, 30)}" for number, cell in enumerate(found.sample[0], 1))
    raise InputError(
        f"{where} has no header, so it is unclear which column is the {' and which the '.join(missing)}. Its first "
        f"line has {shown}. {ask_for_columns(*missing).replace('NAME', 'NUMBER')}"
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


def open_json(start: Beginning, wanted: Wanted, container: str | None = None) -> OpenedFile:
    container = container or container_of(start) or "json"

    def units() -> Iterator[tuple[int, Value | BrokenUnit]]:
        return read_json_values(wanted.path, container)

    line, unit = next(units(), (0, None))
    if unit is None:
        raise InputError(f"{wanted.path} is an empty list.")
    if isinstance(unit, BrokenUnit):
        raise unit.error
    value = unit.value
    if nested := wanted.labelling.nested(wanted, value):
        format, reader = nested
        return OpenedFile(format, {}, "", units, reader)
    if not isinstance(value, dict):
        raise InputError(
            f"{wanted.place(line)}: an object such as {{{wanted.labelling.record}}} was expected, not "
            f"{unit.raw[:40]!r}."
        )
    names: dict[str, None] = {}
    for _, one in islice(units(), _LOOKED_AT):
        if isinstance(one, Value) and isinstance(one.value, dict):
            names |= dict.fromkeys(one.value)
    columns = wanted.labelling.columns(wanted, list(names), str(wanted.place(line)))
    reader = wanted.labelling.reader(wanted, columns, list(names))

    def convert(line: int, unit: Value, report: ReportFault) -> Iterator[Example]:
        record: Any = unit.value
        if not isinstance(record, dict):
            raise InputError(f"{wanted.place(line)}: an object was expected, not {unit.raw[:40]!r}.")
        yield from reader(line, record, report)

    shape = wanted.labelling.shape(value, columns.get("label"))
    return OpenedFile(shape or container, columns, "", units, convert)
