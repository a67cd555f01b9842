"""Write vectors of any number of texts to a file, in constant memory and atomically.

.npy is a float32 matrix with one row per text (`numpy.load(file, mmap_mode="r")`); .jsonl has one object per text; .tsv
one line of numbers per text; .csv and .xlsx have a column per number, .parquet a column of vectors. Decimals have
enough digits to restore the float32 value.

A text without tokens, or for word vectors without a known word, has no vector: it is an error that names file and line,
or skipped if requested. Rows of a table keep their columns and their order (`embed_rows`); one without a vector stays:
NaN in .npy, empty elsewhere.
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np

from qkv.api.embedder import Embeddings, TokenVectors
from qkv.api.model import Model
from qkv.api.table_files import Columns, PartLayout, TableWriter, check_table_library, find_kinds, table_file
from qkv.data.batch import Watch
from qkv.data.labelled.binary_tables import TABLE_FORMATS, table_library
from qkv.data.labelled.reader import TABLE_ENDINGS, Labelled, Row, labelled
from qkv.data.readers import COMPRESSED, STDIN, check_text_file, read_texts, stream_placed_texts
from qkv.errors import InputError, did_you_mean
from qkv.files import replaced_file
from qkv.models.family import ENCODES
from qkv.text.unknown import UnknownCounter

_Vector = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class _Writer(Protocol):
    """Takes parts in order, and completes the file at the end."""

    def add(self, texts: Sequence[str], part: Embeddings) -> None: ...
    def finish(self) -> None: ...


class NpyWriter:
    def __init__(self, file: BinaryIO, width: int, dtype: str = "<f4") -> None:
        self._file, self._width, self._dtype, self._rows = file, width, dtype, 0
        self._header()  # numpy leaves room in it for the number of rows, which is known only at the end

    def _header(self) -> None:
        shape = {"descr": self._dtype, "fortran_order": False, "shape": (self._rows, self._width)}
        np.lib.format.write_array_header_1_0(self._file, shape)

    def add(self, texts: Sequence[str], part: Embeddings) -> None:
        self.add_rows(part.vectors)

    def add_rows(self, rows: np.ndarray[tuple[int, ...], Any]) -> None:
        self._file.write(rows.astype(self._dtype, copy=False).tobytes())
        self._rows += len(rows)

    def finish(self) -> None:
        self._file.seek(0)
        self._header()


class JsonlWriter:
    def __init__(self, file: BinaryIO, width: int) -> None:
        self._file = file

    def add(self, texts: Sequence[str], part: Embeddings) -> None:
        for line in json_lines(texts, part):
            self._file.write(f"{line}\n".encode())

    def finish(self) -> None: ...


class TsvWriter:
    def __init__(self, file: BinaryIO, width: int) -> None:
        self._file = file

    def add(self, texts: Sequence[str], part: Embeddings) -> None:
        for vector in part.vectors:
            self._file.write(("\t".join(_decimals(vector)) + "\n").encode())

    def finish(self) -> None: ...


class _TableVectors:
    """Vectors as columns of a table, after the columns of the input."""

    def __init__(self, table: TableWriter, suffix: str, width: int, layout: PartLayout | None = None) -> None:
        self._table, self._suffix, self._width, self._layout = table, suffix, width, layout
        self.columns: Columns | None = None  # chosen by the first row

    def add(self, texts: Sequence[str], part: Embeddings) -> None:
        for text, numbers, vector in zip(texts, _counts(part), part.vectors, strict=True):
            self._table.write({"text": text} | numbers | self._columns(vector))

    def add_row(self, source: Labelled, row: Row, found: Mapping[str, Any], vector: _Vector | None) -> None:
        ours = {**found, **self._columns(vector)}
        record = {"text": row.examples[0].text} if row.record is None else row.record
        self._table.write(self._choose(source, list(ours)).join(record, ours))

    def _choose(self, source: Labelled, ours: Sequence[str]) -> Columns:
        if self.columns is None:
            layout = self._layout
            held = layout.held if layout is not None and layout.held else source.fields
            self.columns = Columns(held or ("text",), ours, open_ended=self._suffix == ".jsonl")
            self._table.types = self.columns.rename(source.types if layout is None else layout.types)
            if layout is not None:
                known = layout.kinds or find_kinds([{"text": ""}])
                own = {name: frozenset(["text" if name == "file" else "int"]) for name in ours}
                self._table.kinds = self.columns.kinds(known, own)
                if self._suffix == ".parquet":  # whose type says that all vectors have this length
                    arrow = table_library("arrow", Path(self._suffix))
                    self._table.types = {**self._table.types, "vector": arrow.list_(arrow.float32(), self._width)}
        return self.columns

    def lay_out(self, source: Labelled, found: Mapping[str, Any]) -> None:
        """Choose the columns before the first row: this file is a part of a table."""
        self._choose(source, list({**found, **self._columns(None)}))

    def _columns(self, vector: _Vector | None) -> dict[str, Any]:
        if self._suffix == ".parquet":
            return {"vector": vector}
        if self._suffix == ".jsonl":
            return {"vector": None if vector is None else [float(value) for value in _decimals(vector)]}
        values = [None] * self._width if vector is None else [Decimal(value) for value in _decimals(vector)]
        return {f"v{number}": value for number, value in enumerate(values)}

    def finish(self) -> None: ...


WRITERS: dict[str, Callable[[BinaryIO, int], _Writer]] = {".npy": NpyWriter, ".jsonl": JsonlWriter, ".tsv": TsvWriter}
TABLE_WRITERS = (".csv", ".parquet", ".xlsx")
"""Endings of tables; rows of a table are also written as .jsonl and .tsv."""


@contextmanager
def vector_file(path: Path, width: int) -> Iterator[_Writer]:
    """Open a file by its ending; it is complete when the block ends without an error, and absent otherwise."""
    check_name(path)
    suffix = path.suffix.lower()
    if suffix in TABLE_WRITERS:
        with table_file(path, suffix) as table:
            yield _TableVectors(table, suffix, width)
        return
    with replaced_file(path) as part, part.open("wb") as file:
        writer = WRITERS[path.suffix.lower()](file, width)
        yield writer
        writer.finish()


def check_name(path: Path) -> None:
    """Refuse a file that cannot be written, before the work starts."""
    if Path(os.path.expanduser(path)).is_dir():
        raise InputError(f"Cannot write {path}: it is a folder.")
    suffix, known = path.suffix.lower(), (*WRITERS, *TABLE_WRITERS)
    if suffix not in known:
        hint = did_you_mean(suffix, known)
        raise InputError(f"Cannot tell what to write into '{path.name}'.{hint} Use an ending of {', '.join(known)}.")
    check_table_library(path, suffix)


def json_lines(texts: Sequence[str], part: Embeddings) -> Iterator[str]:
    """One JSON object a text: text, n_tokens, n_windows, n_unknown, vector; for word vectors also n_without_vector."""
    for text, numbers, vector in zip(texts, _counts(part), part.vectors, strict=True):
        yield _line({"text": text} | numbers, f'"vector": {_list(vector)}')


def _counts(part: Embeddings) -> Iterator[dict[str, Any]]:
    """Yield the numbers of each text."""
    numbers = {"n_tokens": part.n_tokens, "n_windows": part.n_windows, "n_unknown": part.n_unknown}
    if part.n_without_vector is not None:
        numbers["n_without_vector"] = part.n_without_vector
    for row in range(len(part)):
        yield {name: int(of[row]) for name, of in numbers.items()}


def token_lines(texts: Sequence[str], part: Sequence[TokenVectors]) -> Iterator[str]:
    """One JSON object per text: text, n_windows, n_unknown, and tokens with token, start, end, vector (or null)."""
    for text, found in zip(texts, part, strict=True):
        tokens = (
            _line({"token": token, "start": start, "end": end}, f'"vector": {_list(vector) if has_one else "null"}')
            for token, (start, end), vector, has_one in zip(
                found.tokens, found.offsets, found.vectors, found.has_vector, strict=True
            )
        )
        yield _line(
            {"text": text, "n_windows": found.n_windows, "n_unknown": found.n_unknown},
            f'"tokens": [{", ".join(tokens)}]',
        )


def _line(fields: Mapping[str, object], last: str) -> str:
    return f"{json.dumps(fields, ensure_ascii=False)[:-1]}, {last}}}"


def _list(vector: _Vector) -> str:
    return f"[{', '.join(_decimals(vector))}]"


def _decimals(vector: _Vector) -> list[str]:
    return [f"{value:.9g}" for value in vector.tolist()]


# Texts to vectors.

Lacks = Callable[[str], str | None]
"""Why a text has no vector: `Model.lacks`."""
_Part = TypeVar("_Part", bound=Sized)


@dataclass(frozen=True)
class Written:
    """What a file of vectors holds and how long it took."""

    out: str
    n_texts: int
    n_tokens: int
    n_windows: int
    width: int
    seconds: float
    n_without_vector: int = 0  # words left out of the means
    n_unknown: int = 0  # tokens that the vocabulary lacks
    n_empty: int = 0  # rows of a table without a vector
    renamed: Mapping[str, str] = field(default_factory=dict)  # columns of the input with another name
    lost: Sequence[str] = ()  # fields of JSON lines that have no column


def file_texts(
    files: Sequence[Path], lacks: Lacks, skip_empty: bool = False, column: str | None = None
) -> Iterator[str]:
    """The texts of files in order; one without a vector is an error that names its line, or is left out.

    `column` is that of the texts in tables and JSON lines.
    """
    opened = {file: open_rows(file, column) for file in files if column is not None or is_table(file)}
    for file in files:
        if file not in opened:
            check_text_file(file)  # a wrong name is reported before the first text is read
    lines = (line for file in files for line in (_placed_rows(opened[file]) if file in opened else _placed(file)))
    return _with_vector(lines, lacks, skip_empty)


def _placed(file: Path) -> Iterator[tuple[str, str]]:
    return ((f"{file}, line {number}", text) for file, number, text in stream_placed_texts(file))


def _placed_rows(source: Labelled) -> Iterator[tuple[str, str]]:
    for row in source.rows():
        source.faults.clear()  # they would grow with the file
        yield str(row.place), row.examples[0].text if row.examples else ""


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name: csv, tsv, parquet, Arrow or Excel."""
    plain = Path(path.stem) if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower() in (*TABLE_ENDINGS, *TABLE_FORMATS)


def open_rows(path: Path, column: str | None) -> Labelled:
    """Open a table or JSON lines; the text is in `column`, or in the column with a usual name."""
    source = labelled(path, "classify", columns={} if column is None else {"text": column}, needs_labels=False)
    if "pair" in source.columns:
        first, second = source.columns["text"], source.columns["pair"]
        raise InputError(f"{path} has two texts a row, {first!r} and {second!r}. Choose one with --text NAME.")
    return source


def stdin_texts(lacks: Lacks, skip_empty: bool = False) -> Iterator[str]:
    """The lines of standard input, as in `file_texts`."""
    return _with_vector(((place, text) for text, place in read_texts(STDIN)), lacks, skip_empty)


def _with_vector(lines: Iterable[tuple[str, str]], lacks: Lacks, skip_empty: bool) -> Iterator[str]:
    for place, text in lines:
        if (lack := lacks(text)) is None:
            yield text
        elif not skip_empty:
            raise InputError(f"{place} {lack}. Take it out, or add --skip-empty.")


def embed_parts(
    model: Model,
    texts: Iterable[str],
    pooling: str | None = None,
    normalize: bool | None = None,
    layer: int | None = None,
    unknown: UnknownCounter | None = None,
    watch: Watch | None = None,
) -> Iterator[tuple[list[str], Embeddings]]:
    """`Model.embed_stream`, each part with its texts; `unknown` counts their unknown tokens."""
    for taken, part in _beside(
        texts, lambda kept: model.embed_stream(kept, pooling, normalize, layer=layer, watch=watch)
    ):
        if unknown is not None:
            add_unknown(unknown, model, taken, part)
        yield taken, part


def add_unknown(unknown: UnknownCounter, model: Model, texts: Sequence[str], part: Embeddings) -> None:
    """Count the unknown tokens of texts; not of words that word vectors lack, which `n_without_vector` counts."""
    if part.n_without_vector is None:
        special = 2 if model.counts_special_tokens else 0
        for text, found, n_tokens in zip(texts, part.n_unknown.tolist(), part.n_tokens.tolist(), strict=True):
            unknown.add([text], found, n_tokens - special)


def token_parts(
    model: Model,
    texts: Iterable[str],
    normalize: bool = False,
    layer: int | None = None,
    unknown: UnknownCounter | None = None,
) -> Iterator[tuple[list[str], list[TokenVectors]]]:
    """`Model.embed_tokens_stream`, each part with its texts."""
    for taken, part in _beside(texts, lambda kept: model.embed_tokens_stream(kept, normalize, layer=layer)):
        if unknown is not None:
            for text, one in zip(taken, part, strict=True):
                unknown.add([text], one.n_unknown if one.has_vector.all() else 0, len(one))
        yield taken, part


def _beside(
    texts: Iterable[str], parts: Callable[[Iterator[str]], Iterator[_Part]]
) -> Iterator[tuple[list[str], _Part]]:
    waiting: list[str] = []

    def kept() -> Iterator[str]:
        for text in texts:
            waiting.append(text)
            yield text

    for part in parts(kept()):
        taken = waiting[: len(part)]
        del waiting[: len(part)]
        yield taken, part


def embed_to_file(
    model: Model,
    texts: Iterable[str],
    out: Path,
    pooling: str | None = None,
    normalize: bool | None = None,
    layer: int | None = None,
    progress: Callable[[int], None] | None = None,
    unknown: UnknownCounter | None = None,
    watch: Watch | None = None,
) -> Written:
    """Write the vectors of texts as the ending of `out` says (see embed_files.py), whole or not at all.

    `progress` is called after each part with its number of texts.
    """
    began = time.perf_counter()
    n_texts = n_tokens = n_windows = n_without = n_unknown = 0
    with vector_file(out, model.config.width) as writer:
        for taken, part in embed_parts(model, texts, pooling, normalize, layer, unknown, watch):
            writer.add(taken, part)
            n_texts += len(part)
            n_tokens += int(part.n_tokens.sum())
            n_windows += int(part.n_windows.sum())
            n_without += 0 if part.n_without_vector is None else int(part.n_without_vector.sum())
            n_unknown += int(part.n_unknown.sum())
            if progress is not None:
                progress(len(part))
        if not n_texts:
            raise InputError("There is no text to embed: the input is empty.")
    seconds = round(time.perf_counter() - began, 3)
    return Written(str(out), n_texts, n_tokens, n_windows, model.config.width, seconds, n_without, n_unknown)


def embed_rows(
    model: Model,
    source: Labelled,
    out: Path,
    pooling: str | None = None,
    normalize: bool | None = None,
    layer: int | None = None,
    progress: Callable[[int], None] | None = None,
    skip_empty: bool = False,
    unknown: UnknownCounter | None = None,
    watch: Watch | None = None,
    layout: PartLayout | None = None,
) -> Written:
    """Write the vectors of the rows of a table, after its columns and with the row number.

    A row without a vector keeps its place, unless `skip_empty`. With `layout`, the file is a part of a table, which may
    have no vector; then the source may also be lines of text, of which one without a vector is an error.
    """
    began = time.perf_counter()
    width = model.config.width
    before = 0 if layout is None else layout.before
    totals = {"n_texts": 0, "n_tokens": 0, "n_windows": 0, "n_without_vector": 0, "n_unknown": 0, "n_empty": 0}
    waiting: deque[tuple[int, Row, bool]] = deque()  # rows that were read and not written yet

    def texts() -> Iterator[str]:
        for number, row in enumerate(source.rows(), before + 1):
            source.faults.clear()  # they would grow with the file
            text = row.examples[0].text if row.examples else ""
            lack = model.lacks(text)
            has_vector = lack is None
            if lack is not None and row.record is None and not skip_empty:
                raise InputError(f"{row.place} {lack}. Take it out, or add --skip-empty.")
            if has_vector or not skip_empty:
                waiting.append((number, row, has_vector))
            if has_vector:
                yield text

    suffix = out.suffix.lower()
    check_name(out)
    with ExitStack() as stack:
        if suffix == ".npy":
            matrix = NpyWriter(stack.enter_context(stack.enter_context(replaced_file(out)).open("wb")), width)
        else:
            table = _TableVectors(stack.enter_context(table_file(out, suffix)), suffix, width, layout)

        def place(number: int) -> dict[str, Any]:
            shown = {} if layout is None or layout.file is None else {"file": layout.file}
            return {**shown, "row": number} if source.has_records else shown

        def write(numbers: Mapping[str, Any], vector: _Vector | None) -> None:
            number, row, _ = waiting.popleft()
            if suffix == ".npy":
                matrix.add_rows(np.full((1, width), np.nan, np.float32) if vector is None else vector[None])
            else:
                table.add_row(source, row, {**place(number), **numbers}, vector)
            for name, value in numbers.items():
                totals[name] += value or 0
            totals["n_texts" if vector is not None else "n_empty"] += 1

        empty = dict.fromkeys(["n_tokens", "n_windows", "n_unknown"])
        if model.opened.ability(ENCODES).known is not None:  # words may be without a vector
            empty["n_without_vector"] = None
        if layout is not None:
            table.lay_out(source, {**place(0), **empty})
        for _, part in embed_parts(model, texts(), pooling, normalize, layer, unknown, watch):
            for numbers, vector in zip(_counts(part), part.vectors, strict=True):
                while not waiting[0][2]:
                    write(empty, None)
                write(numbers, vector)
            if progress is not None:
                progress(len(part))
        while waiting:
            write(empty, None)
        if not totals["n_texts"] and layout is None:
            raise InputError("There is no text to embed: the input is empty.")
        if suffix == ".npy":
            matrix.finish()
    seconds = round(time.perf_counter() - began, 3)
    columns = None if suffix == ".npy" else table.columns
    renamed, lost = ({}, []) if columns is None else (columns.renamed, list(columns.lost))
    return Written(str(out), width=width, seconds=seconds, renamed=renamed, lost=lost, **totals)
