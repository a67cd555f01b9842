"""Write tables row by row, in constant memory and atomically: csv, tsv, jsonl, parquet and xlsx.

The columns are those of the first row; what another row lacks is empty. A .csv has a byte order mark, because Excel
takes it for UTF-8 only with one. parquet and xlsx need the extra `tables`.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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


class TableWriter(Protocol):
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

    def write(self, row: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(row, ensure_ascii=False, default=_json_value) + "\n")


class _Cells:
    def __init__(self, stream: TextIO, delimiter: str) -> None:
        self._stream, self._delimiter = stream, delimiter
        self._table: csv.DictWriter[str] | None = None

    def write(self, row: Mapping[str, Any]) -> None:
        if self._table is None:
            self._table = csv.DictWriter(
                self._stream, list(row), restval="", extrasaction="ignore", delimiter=self._delimiter,
                lineterminator="\n",
            )  # fmt: skip
            self._table.writeheader()
        self._table.writerow({name: format_cell(value) for name, value in row.items()})


class _Parquet:
    def __init__(self, path: Path, part: Path) -> None:
        self._path, self._part = path, part
        self._arrow, self._library = table_library("arrow", path), table_library("parquet", path)
        self._rows: list[Mapping[str, Any]] = []
        self._schema: Any = None
        self._writer: Any = None

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._schema is None:
            names = list(self._rows[0]) if self._rows else []
            fields = [(name, self._type([row.get(name) for row in self._rows])) for name in names]
            self._schema = self._arrow.schema(fields)
            self._writer = self._library.ParquetWriter(self._part, self._schema)
        arrays = [self._array(field) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []

    def _type(self, values: Sequence[Any]) -> Any:
        kinds = {type(value) for value in values if value is not None}
        arrow = self._arrow
        if kinds == {np.ndarray}:
            return arrow.list_(arrow.float32())
        if kinds == {bool}:
            return arrow.bool_()
        if kinds == {int}:
            return arrow.int64()
        return arrow.float64() if kinds and kinds <= {int, float, Decimal} else arrow.string()

    def _array(self, field: Any) -> Any:
        plain = (self._arrow.types.is_string, lambda value: None if value is None else _text(value))
        values = [row.get(field.name) for row in self._rows]
        if plain[0](field.type):
            values = [plain[1](value) for value in values]
        elif self._arrow.types.is_floating(field.type):
            values = [float(value) if isinstance(value, int | Decimal) else value for value in values]
        try:
            return self._arrow.array(values, type=field.type)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{self._path}: the column {field.name!r} has values of different types, which parquet does not "
                "allow: write .csv or .jsonl."
            ) from error

    def finish(self) -> None:
        if self._rows or self._schema is None:
            self._flush()
        self._writer.close()

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Excel:
    def __init__(self, path: Path, part: Path) -> None:
        self._path, self._part, self._count = path, part, 0
        self._library = table_library("xlsx", path)
        self._book = self._library.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("Sheet1")
        self._names: list[str] | None = None

    def write(self, row: Mapping[str, Any]) -> None:
        if self._names is None:
            self._names = list(row)
            self._append(self._names)
        self._append([_number_or_text(row.get(name)) for name in self._names])

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
        self._book.save(io.BytesIO())  # closes and removes its temporary files


def format_cell(value: Any) -> Any:
    """Return what a cell holds: a number or a text, several labels separated by bars, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list) and value and all(isinstance(part, str) for part in value):
        return "|".join(value)
    if isinstance(value, dict | tuple | list):
        return json.dumps(value, ensure_ascii=False, default=_json_value)
    return round(value, 6) if isinstance(value, float) else value


def _number_or_text(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else format_cell(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(format_cell(value))


def _json_value(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else float(value)


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
