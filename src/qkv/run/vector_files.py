"""Vectors to a file while they are made: any number of them in the memory of one part, and complete or not there.

.npy is one float32 matrix, a row a text (`numpy.load(file, mmap_mode="r")`); .jsonl one object a text, with the text;
.tsv one line of numbers a text. Decimal numbers have as many digits as float32 needs to come back unchanged.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from qkv.atomic import replaced_file
from qkv.errors import InputError, did_you_mean
from qkv.run.results import Embeddings, TokenVectors


class Writer(Protocol):
    """Takes part after part, in order, and closes the file's format when all have come."""

    def add(self, texts: Sequence[str], part: Embeddings) -> None: ...
    def finish(self) -> None: ...


class NpyWriter:
    def __init__(self, file: BinaryIO, width: int) -> None:
        self._file, self._width, self._rows = file, width, 0
        self._header()  # numpy leaves room in it for the number of rows, which is known only at the end

    def _header(self) -> None:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._width)}
        np.lib.format.write_array_header_1_0(self._file, shape)

    def add(self, texts: Sequence[str], part: Embeddings) -> None:
        self._file.write(part.vectors.astype("<f4", copy=False).tobytes())
        self._rows += len(part)

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


WRITERS: dict[str, Callable[[BinaryIO, int], Writer]] = {".npy": NpyWriter, ".jsonl": JsonlWriter, ".tsv": TsvWriter}


@contextmanager
def vector_file(path: Path, width: int) -> Iterator[Writer]:
    """Open a file by its ending; it takes its name when the block ends without an error, else nothing is left."""
    check_name(path)
    with replaced_file(path) as part, part.open("wb") as file:
        writer = WRITERS[path.suffix.lower()](file, width)
        yield writer
        writer.finish()


def check_name(path: Path) -> None:
    """Refuse a file we could not write before the work starts."""
    if Path(os.path.expanduser(path)).is_dir():
        raise InputError(f"Cannot write {path}: it is a folder.")
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        hint = did_you_mean(suffix, WRITERS)
        raise InputError(f"Cannot tell what to write into '{path.name}'.{hint} Use an ending of {', '.join(WRITERS)}.")


def json_lines(texts: Sequence[str], part: Embeddings) -> Iterator[str]:
    """One JSON object a text: text, n_tokens, n_windows, vector; of word vectors also n_without_vector."""
    numbers = {"n_tokens": part.n_tokens, "n_windows": part.n_windows}
    if part.n_without_vector is not None:
        numbers["n_without_vector"] = part.n_without_vector
    for row, (text, vector) in enumerate(zip(texts, part.vectors, strict=True)):
        yield _line({"text": text} | {name: int(of[row]) for name, of in numbers.items()}, f'"vector": {_list(vector)}')


def token_lines(texts: Sequence[str], part: Sequence[TokenVectors]) -> Iterator[str]:
    """One JSON object a text: text, n_windows, tokens, each of them token, start, end, vector (null: it has none)."""
    for text, found in zip(texts, part, strict=True):
        tokens = (
            _line({"token": token, "start": start, "end": end}, f'"vector": {_list(vector) if has_one else "null"}')
            for token, (start, end), vector, has_one in zip(
                found.tokens, found.offsets, found.vectors, found.has_vector, strict=True
            )
        )
        yield _line({"text": text, "n_windows": found.n_windows}, f'"tokens": [{", ".join(tokens)}]')


def _line(fields: Mapping[str, object], last: str) -> str:
    return f"{json.dumps(fields, ensure_ascii=False)[:-1]}, {last}}}"


def _list(vector: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> str:
    return f"[{', '.join(_decimals(vector))}]"


def _decimals(vector: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> list[str]:
    return [f"{value:.9g}" for value in vector.tolist()]
