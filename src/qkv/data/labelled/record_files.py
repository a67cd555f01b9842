"""Files of records, opened for a task: tables (csv, tsv) and JSON (jsonl, lists, SQuAD and its kin).

Here the columns are settled, once, from the beginning of the file; what a record becomes is in text_records.py,
annotation_files.py, question_files.py and question_files.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from qkv.data.labelled import annotation_files, question_files
from qkv.data.labelled.examples import Example, Fault
from qkv.data.labelled.json_values import Value, container_of, json_values
from qkv.data.labelled.opened import Beginning, Broken, Convert, Opened, Told, Wanted, shortened
from qkv.data.labelled.tables import Table, ask, given_column, guessed, listed, table
from qkv.data.labelled.text_records import text_columns, text_reader
from qkv.errors import InputError

_LOOKED_AT = 50  # records, for the names of their fields
ROLES_OF = {
    "classify": ("text", "pair", "label", "group", "id"),
    "tag": ("text", "label", "group", "id"),
    "answer": ("question", "context", "text", "answer", "group", "id"),
    "choice": ("question", "context", "text", "choices", "answer", "label", "group", "id"),
}
"""Which columns may be given for a task; `text` is another word for the context, `label` for the answer."""


def _settled(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    if wanted.task == "classify":
        return text_columns(wanted, names, where)
    if wanted.task == "tag":
        return annotation_files.span_columns(wanted, names, where)
    if wanted.task == "answer":
        return question_files.answer_columns(wanted, names, where)
    return question_files.choice_roles(wanted, names, where)


def _reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    if wanted.task == "classify":
        return text_reader(wanted, columns)
    if wanted.task == "tag":
        return annotation_files.span_reader(wanted, columns)
    if wanted.task == "answer":
        return question_files.answer_reader(wanted, columns, names)
    return question_files.choice_reader(wanted, columns, names)


def open_table(start: Beginning, wanted: Wanted, format: str) -> Opened:
    found = table(start, format, wanted.columns)
    columns = _headed(wanted, found) if found.header is not None else _headless(wanted, found)
    names = found.names
    used = {name for value in columns.values() for name in (value, *value.split(","))}
    if twice := [name for name in used if names.count(name) > 1]:
        raise InputError(f"{wanted.path}: its header has {twice[0]!r} more than once. Give the columns other names.")
    reader = _reader(wanted, columns, names)
    needed = max((number for number, name in enumerate(names, 1) if name in used), default=1)
    # With numbers that were given, what stands behind them does not matter; a guess or a name could be off by one.
    extra_is_fine = found.header is None and bool(wanted.columns)

    def convert(line: int, cells: list[str], told: Told) -> Iterator[Example]:
        if len(cells) != found.width:
            _check_width(wanted, line, cells, found, needed, extra_is_fine, told)
        yield from reader(line, dict(zip(names, cells, strict=False)), told)

    return Opened(found.format, columns, found.note, found.rows, convert)


def _headed(wanted: Wanted, found: Table) -> dict[str, str]:
    names = [name for name in found.names if name]  # a spreadsheet's index has no name
    return _settled(wanted, names, str(wanted.path))


def _headless(wanted: Wanted, found: Table) -> dict[str, str]:
    """By numbers that were given, or else, for texts with labels, by what stands in the columns."""
    where = str(wanted.path)
    if not found.sample:
        raise InputError(f"{where} has no row that can be read as {found.format}.")
    if wanted.columns:
        for role, value in wanted.columns.items():
            if not all(part.strip().isdigit() for part in value.split(",")):
                raise InputError(
                    f"{where} has no column {value!r}: its first line is not a header but {listed(found.sample[0])}. "
                    f"Give the {role} as a number from 1 to {found.width}, or write a header."
                )
        columns = {}
        for role, value in wanted.columns.items():
            columns[role] = ",".join(given_column(role, one.strip(), found.names, where) for one in value.split(","))
        if wanted.task in ("answer", "choice"):
            return _settled(wanted, found.names, where)
        missing = [
            role for role in ("text", "label") if role not in columns and (role == "text" or wanted.needs_labels)
        ]
        if not missing:
            return columns
    elif wanted.task == "classify":
        if found.width == 1 and not wanted.needs_labels:
            return {"text": "1"}
        if columns := guessed(found.sample, wanted.needs_labels) or {}:
            return columns
        missing = ["text", "label"] if wanted.needs_labels else ["text"]
    else:
        missing = {
            "tag": ["text", "label"],
            "answer": ["question", "context", "answer"],
            "choice": ["choices", "answer"],
        }[wanted.task]
    shown = "; ".join(f"{number}: {shortened(cell, 30)}" for number, cell in enumerate(found.sample[0], 1))
    raise InputError(
        f"{where} has no header, and which column is the {' and which the '.join(missing)} cannot be told. Its first "
        f"line holds {shown}. {ask(*missing).replace('NAME', 'NUMBER')}"
    )


def _check_width(
    wanted: Wanted, line: int, cells: list[str], found: Table, needed: int, extra_is_fine: bool, told: Told
) -> None:
    """A row with another number of cells than there are columns."""
    if len(cells) < needed:
        way = "Write the missing cells"
    elif len(cells) < found.width or not any(cell.strip() for cell in cells[found.width :]):
        return  # what is missing is not needed; or only separators are too many
    elif extra_is_fine:
        message = f"the row has {len(cells)} columns, most have {found.width}: those behind are not used"
        told(Fault(wanted.place(line), "extra columns", message, "noted"))
        return
    else:
        way = 'Put cells with a separator in them into "quotes"' if found.quoted else "Take the tabs out of the text"
    name = {"\t": "tabs", ",": "commas"}.get(found.separator, repr(found.separator))
    source = "the header has" if found.header else "most rows have"
    raise InputError(
        f"{wanted.place(line)} has {len(cells)} columns (separated by {name}), {source} {found.width}. {way}, or take "
        "the line out."
    )


def open_json(start: Beginning, wanted: Wanted, container: str | None = None) -> Opened:
    container = container or container_of(start) or "json"

    def units() -> Iterator[tuple[int, Value | Broken]]:
        return json_values(wanted.path, container)

    line, unit = next(units(), (0, None))
    if unit is None:
        raise InputError(f"{wanted.path} holds an empty list: there is nothing in it.")
    if isinstance(unit, Broken):
        raise unit.error
    value = unit.value
    if wanted.task == "answer" and (shape := question_files.shape_of(value)):
        return Opened(shape, {}, "", units, question_files.nested_reader(wanted))
    if wanted.task == "choice" and question_files.is_c3(value):
        return Opened("c3", {}, "", units, question_files.c3_reader(wanted))
    if wanted.task in ("tag", "classify") and annotation_files.is_label_studio(value):
        return Opened("label-studio", {}, "", units, annotation_files.label_studio_reader(wanted))
    if not isinstance(value, dict):
        raise InputError(
            f"{wanted.place(line)}: an object such as {{{_example_of(wanted.task)}}} was expected, not "
            f"{unit.raw[:40]!r}."
        )
    names: dict[str, None] = {}
    for _, one in islice(units(), _LOOKED_AT):
        if isinstance(one, Value) and isinstance(one.value, dict):
            names |= dict.fromkeys(one.value)
    columns = _settled(wanted, list(names), str(wanted.place(line)))
    reader = _reader(wanted, columns, list(names))

    def convert(line: int, unit: Value, told: Told) -> Iterator[Example]:
        record: Any = unit.value
        if not isinstance(record, dict):
            raise InputError(f"{wanted.place(line)}: an object was expected, not {unit.raw[:40]!r}.")
        yield from reader(line, record, told)

    shape = annotation_files.shape_of(value, columns.get("label")) if wanted.task == "tag" else ""
    return Opened(shape or container, columns, "", units, convert)


def _example_of(task: str) -> str:
    return {
        "classify": '"text": …, "label": …',
        "tag": '"text": …, "label": [[start, end, type]]',
        "answer": '"question": …, "context": …, "answers": […]',
        "choice": '"question": …, "choices": […], "answer": …',
    }[task]
