"""Tables that are not text: parquet, Arrow (Feather) and Excel files, and the libraries that read and write them.

    parquet, arrow   pyarrow; rows are read in batches
    xlsx             openpyxl; the first sheet with a row

Cells keep their types, so that they can be written as they are; `plain_value` and `cell_text` convert them for readers.
The libraries are in the extra `tables` and imported when such a file is opened. Rows are counted from 1, those of a
sheet including its header, as Excel shows them.
"""

import math
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from qkv.data.readers import FIRST_ROW, RowStart
from qkv.errors import InputError

TABLE_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".xlsx": "xlsx", ".xlsm": "xlsx"}
"""Suffix → format."""
_BATCH = 4096  # rows


def detect_binary(path: Path) -> str | None:
    """Return parquet, arrow or xlsx by the first bytes of a file, or by its name; None for a text file."""
    try:
        with path.open("rb") as stream:
            start = stream.read(8)
    except OSError:
        return None  # the reader of text files says what is wrong
    suffix = path.suffix.lower()
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"ARROW1") or (suffix in (".arrow", ".feather") and start.startswith(b"\xff\xff\xff\xff")):
        return "arrow"
    if start.startswith(b"PK\x03\x04") and _is_workbook(path):
        return "xlsx"
    if start.startswith(b"\xd0\xcf\x11\xe0") and suffix in (".xls", ".xlsx"):
        raise InputError(f"{path} is in Excel's old format, or encrypted: save it as .xlsx or .csv.")
    if found := TABLE_FORMATS.get(suffix):
        raise InputError(f"{path} is not {'an' if found[0] in 'ax' else 'a'} {found} file: it begins with {start!r}.")
    return None


def _is_workbook(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as packed:
            return any(name.startswith("xl/") for name in packed.namelist())
    except zipfile.BadZipFile:
        return path.suffix.lower() in TABLE_FORMATS


def table_library(format: str, path: Path) -> Any:
    """Import the library for a format."""
    try:
        if format == "xlsx":
            return import_module("openpyxl")
        return import_module("pyarrow.parquet") if format == "parquet" else import_module("pyarrow")
    except ImportError:
        library = "openpyxl" if format == "xlsx" else "pyarrow"
        raise InputError(
            f"{path}: {format} files need {library}, which is not installed: pip install 'qkv[tables]'."
        ) from None


@contextmanager
def _reading_table(path: Path, format: str) -> Iterator[None]:
    """Turn errors of the libraries into one sentence."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise InputError(f"{path} cannot be read as {format}: {reason.rstrip('.')}.") from error


@dataclass(frozen=True)
class RecordTable:
    """Rows of a parquet or Arrow file as records with values of Python."""

    path: Path
    format: str
    names: tuple[str, ...]
    schema: Any  # of pyarrow
    rows: Callable[..., Iterator[tuple[int, dict[str, Any]]]]  # from the beginning at each call, or from a `RowStart`
    unit = "row"


def open_record_table(path: Path, format: str) -> RecordTable:
    library = table_library(format, path)
    with _reading_table(path, format), _batches(library, path, format) as (schema, _):
        names = tuple(schema.names)
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path} has the column {twice[0]!r} more than once. Rename the columns.")

    def rows(start: RowStart = FIRST_ROW) -> Iterator[tuple[int, dict[str, Any]]]:
        with _reading_table(path, format), _batches(library, path, format, start.line - 1) as (_, batches):
            for number, batch in batches:
                # a batch of an Arrow file may be the whole table
                for begin in range(max(0, start.line - 1 - number), len(batch), _BATCH):
                    yield from enumerate(batch.slice(begin, _BATCH).to_pylist(), number + begin + 1)

    return RecordTable(path, format, names, schema, rows)


@contextmanager
def _batches(
    library: Any, path: Path, format: str, skipped: int = 0
) -> Iterator[tuple[Any, Iterator[tuple[int, Any]]]]:
    """Open a file; yield its schema, and its batches of rows with the number of rows before each. Row groups that end
    before `skipped` rows are not read."""
    if format == "parquet":
        with library.ParquetFile(path) as file:
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            before, first = 0, 0
            while first < len(sizes) and before + sizes[first] <= skipped:
                before, first = before + sizes[first], first + 1
            wanted = range(first, len(sizes))
            yield file.schema_arrow, _counted(file.iter_batches(batch_size=_BATCH, row_groups=wanted), before)
        return
    with library.memory_map(str(path)) as source:
        try:
            file = library.ipc.open_file(source)
        except library.ArrowInvalid:  # the stream format, as in caches of `datasets`
            source.seek(0)
            stream = library.ipc.open_stream(source)
            yield stream.schema, _counted(iter(stream), 0)
            return
        yield file.schema, _counted((file.get_batch(number) for number in range(file.num_record_batches)), 0)


def measure_pieces(path: Path, format: str) -> list[tuple[int, int]]:
    """Return rows and bytes of each row group of a parquet file, or of each batch of an Arrow file."""
    library = table_library(format, path)
    with _reading_table(path, format):
        if format == "parquet":
            with library.ParquetFile(path) as file:
                groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
                return [(group.num_rows, group.total_byte_size) for group in groups]
        with _batches(library, path, format) as (_, batches):
            return [(len(batch), batch.nbytes) for _, batch in batches]


def _counted(batches: Iterator[Any], before: int) -> Iterator[tuple[int, Any]]:
    for batch in batches:
        yield before, batch
        before += len(batch)


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it: numbers with a decimal point as `Decimal`, times as text, NaN as null."""
    if isinstance(value, float):
        return None if math.isnan(value) else Decimal(repr(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    return {key: plain_value(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class Sheet:
    """The first sheet of an Excel file that has a row."""

    path: Path
    title: str
    others: int  # further sheets, which are not read

    @property
    def unit(self) -> str:
        return f"sheet {self.title!r}, row"

    @property
    def note(self) -> str:
        """Which sheet is read, if there are several."""
        return f"reading only sheet {self.title!r} of {self.others + 1}" if self.others else ""

    def rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield number and cells of every row that is not empty, without empty cells at the end."""
        with _reading_table(self.path, "xlsx"), _workbook(self.path) as book:
            yield from _filled(book[self.title])


def open_sheet(path: Path) -> Sheet:
    with _reading_table(path, "xlsx"), _workbook(path) as book:
        sheets = book.worksheets
        found = next((sheet for sheet in sheets if next(_filled(sheet), None) is not None), None)
        if found is None:
            raise InputError(f"{path} is empty: none of its sheets has a row.")
        return Sheet(path, found.title, len(sheets) - 1)


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    library = table_library("xlsx", path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and validations, which are not used
        book = library.load_workbook(path, read_only=True, data_only=True)
    try:
        yield book
    finally:
        book.close()


def _filled(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    sheet.reset_dimensions()  # some programs state wrong ones
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells = list(row)
        while cells and cells[-1] in (None, ""):
            cells.pop()
        if any(cell_text(cell).strip() for cell in cells):
            yield number, cells


def cell_text(value: Any) -> str:
    """Return a cell as text; empty cells are "".

    >>> cell_text(None), cell_text(True), cell_text(3), cell_text(2.50), cell_text(date(2026, 1, 2))
    ('', 'true', '3', '2.5', '2026-01-02')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)
