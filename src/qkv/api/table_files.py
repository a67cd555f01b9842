"""Write tables row by row, in constant memory and atomically: csv, tsv, jsonl, parquet and xlsx.

The columns are those of the first row; what another row lacks is empty. A .csv has a byte order mark, because Excel
takes it for UTF-8 only with one. parquet and xlsx keep numbers, dates and truth values, and need the extra `tables`.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np

from qkv.data.labelled.binary_tables import table_library
from qkv.errors import InputError
from qkv.files import replaced_file

TABLES = {".jsonl": "JSON lines", ".csv": "a table", ".tsv": "a table", ".parquet": "parquet", ".xlsx": "Excel"}
"""Suffixes that can be written."""
_BATCH = 1024  # rows of a row group of parquet
_LONGEST_CELL, _MOST_ROWS = 32_767, 1_048_576  # of Excel
_LARGEST_INTEGER = 2**53  # of Excel, whose numbers are doubles
_INTEGERS = range(-(2**63), 2**63)  # of parquet
_TEXT = "text"
_TIMES = (date, time, timedelta)  # a datetime is a date


Kinds = Mapping[str, frozenset[str]]
"""Kinds of the values of columns (`find_kinds`)."""


class TableWriter(Protocol):
    types: Mapping[str, Any]  # of pyarrow, for columns whose type is known; used by parquet
    kinds: Kinds  # of columns whose values are known before they come; used by parquet

    def write(self, row: Mapping[str, Any]) -> None: ...


@contextmanager
def table_file(path: Path, suffix: str) -> Iterator[TableWriter]:
    """Open a table for writing; it gets its name when the block ends without an error, else nothing is left."""
    check_table_library(path, suffix)
    with replaced_file(path) as part:
        if suffix in (".parquet", ".xlsx"):
            library = _Parquet(path, part) if suffix == ".parquet" else _Excel(path, part)
            try:
                yield library
                library.finish()
            except BaseException:
                library.discard()
                raise
            return
        with part.open("w", encoding="utf-8-sig" if suffix == ".csv" else "utf-8", newline="") as stream:
            yield _JsonLines(stream) if suffix == ".jsonl" else _Cells(stream, "\t" if suffix == ".tsv" else ",")


def check_table_library(path: Path, suffix: str) -> None:
    """Raise before the work if the library for this file is missing."""
    if suffix in (".parquet", ".xlsx"):
        table_library(suffix.removeprefix("."), path)


class _JsonLines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.types: Mapping[str, Any] = {}
        self.kinds: Kinds = {}

    def write(self, row: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(json_value(row), ensure_ascii=False) + "\n")


class _Cells:
    def __init__(self, stream: TextIO, delimiter: str) -> None:
        self._stream, self._delimiter = stream, delimiter
        self._table: csv.DictWriter[str] | None = None
        self.types: Mapping[str, Any] = {}
        self.kinds: Kinds = {}

    def write(self, row: Mapping[str, Any]) -> None:
        if self._table is None:
            self._table = csv.DictWriter(
                self._stream, list(row), restval="", extrasaction="ignore", delimiter=self._delimiter,
                lineterminator="\n",
            )  # fmt: skip
            self._table.writeheader()
        self._table.writerow({name: format_cell(value) for name, value in row.items()})


class _Parquet:
    """The type of a column is that of its values so far; if others come, what was written is converted."""

    def __init__(self, path: Path, part: Path) -> None:
        self._path, self._part = path, part
        self._arrow, self._library = table_library("arrow", path), table_library("parquet", path)
        self._rows: list[Mapping[str, Any]] = []
        self._schema: Any = None
        self._writer: Any = None
        self._kinds: dict[str, set[str]] = {}  # of the values of each column so far
        self.types: Mapping[str, Any] = {}
        self.kinds: Kinds = {}

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        before = list(self.kinds) if self._schema is None else self._schema.names
        names = list(self._rows[0]) if self._schema is None and self._rows else before
        arrays = [self._array(name) for name in names]
        schema = self._arrow.schema([(name, one.type) for name, one in zip(names, arrays, strict=True)])
        if self._writer is None:
            self._writer = self._library.ParquetWriter(self._part, schema)
        elif schema != self._schema:
            self._convert(schema)
        self._schema = schema
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=schema))
        self._rows = []

    def _array(self, name: str) -> Any:
        """Return the values of a column, in its type if it is known, else in one that fits all values so far."""
        values = [row.get(name) for row in self._rows]
        kinds = self._kinds.setdefault(name, set(self.kinds.get(name, ())))
        kinds |= {_kind(value) for value in values if value is not None}
        try:
            if name in self.types:
                return self._arrow.array(values, type=self.types[name])
            return self._arrow.array([_for_arrow(value, kinds) for value in values], type=self._type(kinds))
        except (self._arrow.ArrowException, OverflowError, TypeError, ValueError):  # an integer of more than 64 bits
            kinds.add(_TEXT)
            return self._arrow.array([_for_arrow(value, kinds) for value in values], type=self._arrow.string())

    def _type(self, kinds: set[str]) -> Any:
        arrow = self._arrow
        if not kinds:
            return arrow.null()
        if kinds == {"int", "float"}:
            return arrow.float64()
        types = {
            "vector": arrow.list_(arrow.float32()), "bool": arrow.bool_(), "int": arrow.int64(),
            "float": arrow.float64(), "datetime": arrow.timestamp("us"), "date": arrow.date32(),
            "time": arrow.time64("us"),
        }  # fmt: skip
        return types.get(next(iter(kinds)), arrow.string()) if len(kinds) == 1 else arrow.string()

    def _convert(self, schema: Any) -> None:
        """Write the rows so far again, with other types."""
        self._writer.close()
        old = self._part.with_name(f"{self._part.name}.old")
        self._part.replace(old)
        self._writer = self._library.ParquetWriter(self._part, schema)
        try:
            with self._library.ParquetFile(old) as file:
                for batch in file.iter_batches(_BATCH):
                    self._writer.write_table(self._arrow.Table.from_batches([batch]).cast(schema))
        finally:
            old.unlink(missing_ok=True)

    def finish(self) -> None:
        if self._rows or self._schema is None:
            self._flush()
        self._writer.close()

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()


def find_kinds(records: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return the kinds of the values of each column, by which parquet chooses its type.

    >>> found = find_kinds([{"n": 1, "t": "a"}, {"n": 0.5, "t": None}, {"t": 2**70}])
    >>> sorted(found["n"]), sorted(found["t"])
    (['float', 'int'], ['text'])
    """
    found: dict[str, set[str]] = {}
    for record in records:
        add_kinds(found, record)
    return {name: frozenset(kinds) for name, kinds in found.items()}


def add_kinds(found: dict[str, set[str]], record: Mapping[str, Any]) -> None:
    """Add the kinds of the values of one row."""
    for name, value in record.items():
        kinds = found.setdefault(name, set())
        if value is not None:
            is_large = type(value) is int and value not in _INTEGERS
            kinds.add(_TEXT if is_large else _kind(value))


def _kind(value: Any) -> str:
    """Return the kind of a value: _TEXT for what is written as text."""
    kinds = (
        (np.ndarray, "vector"), (bool, "bool"), (int, "int"), ((float, Decimal), "float"), (datetime, "datetime"),
        (date, "date"), (time, "time"),
    )  # fmt: skip
    return next((name for kind, name in kinds if isinstance(value, kind)), _TEXT)


def _for_arrow(value: Any, kinds: set[str]) -> Any:
    """Return a value in the type for these kinds."""
    if value is None:
        return None
    if kinds <= {"int", "float"}:
        return float(value) if "float" in kinds else value
    return value if len(kinds) == 1 and _TEXT not in kinds else _text(value)


class _Excel:
    def __init__(self, path: Path, part: Path) -> None:
        self._path, self._part, self._count = path, part, 0
        self._library = table_library("xlsx", path)
        self._book = self._library.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("Sheet1")
        self._names: list[str] | None = None
        self.types: Mapping[str, Any] = {}
        self.kinds: Kinds = {}

    def write(self, row: Mapping[str, Any]) -> None:
        if self._names is None:
            self._names = list(row)
            self._append(self._names)
        self._append([_excel_value(row.get(name)) for name in self._names])

    def _append(self, values: Sequence[Any]) -> None:
        self._count += 1
        if self._count > _MOST_ROWS:
            raise InputError(f"{self._path}: an Excel sheet has at most {_MOST_ROWS:,} rows: write .csv or .parquet.")
        cells = []
        for number, value in enumerate(values):
            if isinstance(value, str):
                if len(value) > _LONGEST_CELL:
                    assert self._names is not None
                    raise InputError(
                        f"{self._path}, row {self._count}, column {self._names[number]!r} has {len(value):,} "
                        f"characters; a cell of Excel has at most {_LONGEST_CELL:,}: write .csv or .parquet."
                    )
                clean = self._library.cell.cell.ILLEGAL_CHARACTERS_RE.sub("\ufffd", value)
                cell = self._library.cell.WriteOnlyCell(self._sheet, clean)
                cell.data_type = "s"  # not a formula, whatever it begins with
                cells.append(cell)
            else:
                cells.append(value)
        self._sheet.append(cells)

    def finish(self) -> None:
        self._book.save(self._part)

    def discard(self) -> None:
        self._sheet.close()
        self._sheet._writer.cleanup()  # its temporary file; to save the rows would take as long as to write them


def format_cell(value: Any) -> Any:
    """Return what a cell holds: a number or a text, several labels separated by bars, anything else as JSON.

    >>> format_cell(None), format_cell(True), format_cell(date(2026, 1, 2)), format_cell(("a", "b")), format_cell([1])
    ('', 'true', '2026-01-02', 'a|b', '[1]')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list) and value and all(isinstance(part, str) for part in value):
        return "|".join(value)
    if isinstance(value, dict | tuple | list | np.ndarray):
        return json.dumps(json_value(value), ensure_ascii=False)
    return value if isinstance(value, str | int | float) else str(_plain_text(value))


def _excel_value(value: Any) -> Any:
    """Return a value that Excel has, or a text: it has no time zones and no integers of more than 53 bits."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value if value.time() != time() else value.date()  # shown without 0:00:00
    if isinstance(value, bool) or (isinstance(value, _TIMES) and not getattr(value, "tzinfo", None)):
        return value
    if isinstance(value, Decimal | float) and math.isfinite(value):
        return float(value)
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_INTEGER else str(value)
    if value is None or (isinstance(value, Decimal | float) and math.isnan(value)):
        return None
    return str(format_cell(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(format_cell(value))


def _plain_text(value: Any) -> str:
    """
    >>> _plain_text(datetime(2026, 1, 2, 3)), _plain_text(b"\\xe4\\xbd\\xa0"), _plain_text(Decimal("1.50"))
    ('2026-01-02T03:00:00', '你', '1.50')
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if isinstance(value, date | time) else str(value)


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: no NaN, dates as text."""
    if isinstance(value, Mapping):
        return {str(name): json_value(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.number | np.bool_):
        return json_value(value.item())
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, float | Decimal):
        number = float(value)
        return number if math.isfinite(number) else None if math.isnan(number) else str(value)
    return value if value is None or isinstance(value, str | int) else _plain_text(value)


class Columns:
    """The columns of a table that is made of an input and results: first those of the input, renamed if need be."""

    def __init__(self, held: Sequence[str], ours: Sequence[str], open_ended: bool = False) -> None:
        """`open_ended`: rows may have fields that are not among `held`."""
        self._names, self._ours, self._open_ended = rename_taken(held, ours), ours, open_ended
        self.lost: dict[str, None] = {}  # fields that have no column

    @property
    def renamed(self) -> dict[str, str]:
        return {old: new for old, new in self._names.items() if old != new}

    def rename(self, types: Mapping[str, Any]) -> dict[str, Any]:
        return {self._names[name]: type for name, type in types.items() if name in self._names}

    def kinds(self, held: Kinds, ours: Kinds) -> Kinds:
        """The kinds of all columns in their order, from those of the input and of the results."""
        none: frozenset[str] = frozenset()
        return {new: held.get(old, none) for old, new in self._names.items()} | {
            name: ours.get(name, none) for name in self._ours
        }

    def join(self, record: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
        """Return a row of the table."""
        others = [name for name in record if name not in self._names]
        if not self._open_ended:
            if len(self.lost) < _BATCH:
                self.lost |= dict.fromkeys(others)
            return {new: record.get(old) for old, new in self._names.items()} | ours
        names = {old: new for old, new in self._names.items() if old in record}
        names |= rename_taken(others, [*self._ours, *self._names.values()])
        return {new: record[old] for old, new in names.items()} | ours


@dataclass(frozen=True)
class PartLayout:
    """What a table that is written in parts has in common, and where this part is: so that all have the same columns,
    of the same types, whatever their own rows hold."""

    held: Sequence[str] = ()  # columns of the input; (): those of this part's file
    types: Mapping[str, Any] = field(default_factory=dict)  # of pyarrow, where the input states them
    kinds: Kinds = field(default_factory=dict)  # of the values of the others, in all of the input
    before: int = 0  # rows of the input before this part
    file: str | None = None  # where there are several, the one that this part is of: column "file"


def rename_taken(names: Sequence[str], taken: Sequence[str]) -> dict[str, str]:
    """Map the names of input columns to those in the output: a name that a result has gets "input_" before it.

    >>> rename_taken(["id", "label"], ["label", "probability"])
    {'id': 'id', 'label': 'input_label'}
    """
    used, found = {*taken, *names}, {}
    for name in names:
        new = name
        while new in taken or (new != name and new in used):
            new = f"input_{new}"
        found[name] = new
        used.add(new)
    return found
