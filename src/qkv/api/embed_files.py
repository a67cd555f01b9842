"""Write vectors of any number of texts to a file, in constant memory and atomically.

.npy is a float32 matrix with one row per text (`numpy.load(file, mmap_mode="r")`); .jsonl has one object per text; .tsv
one line of numbers per text. Decimals have enough digits to restore the float32 value.

A text without tokens, or for word vectors without a known word, has no vector: it is an error that names file and line,
or skipped if requested.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import numpy as np

from qkv.api.embedder import Embeddings, TokenVectors
from qkv.api.model import Model
from qkv.data.batch import Watch
from qkv.data.readers import STDIN, read_texts, stream_placed_texts
from qkv.errors import InputError, did_you_mean
from qkv.files import replaced_file
from qkv.text.unknown import UnknownCounter


class _Writer(Protocol):
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


WRITERS: dict[str, Callable[[BinaryIO, int], _Writer]] = {".npy": NpyWriter, ".jsonl": JsonlWriter, ".tsv": TsvWriter}


@contextmanager
def vector_file(path: Path, width: int) -> Iterator[_Writer]:
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
    """One JSON object a text: text, n_tokens, n_windows, n_unknown, vector; of word vectors also n_without_vector."""
    numbers = {"n_tokens": part.n_tokens, "n_windows": part.n_windows, "n_unknown": part.n_unknown}
    if part.n_without_vector is not None:
        numbers["n_without_vector"] = part.n_without_vector
    for row, (text, vector) in enumerate(zip(texts, part.vectors, strict=True)):
        yield _line({"text": text} | {name: int(of[row]) for name, of in numbers.items()}, f'"vector": {_list(vector)}')


def token_lines(texts: Sequence[str], part: Sequence[TokenVectors]) -> Iterator[str]:
    """One JSON object a text: text, n_windows, n_unknown, tokens, each of them token, start, end, vector (or null)."""
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


def _list(vector: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> str:
    return f"[{', '.join(_decimals(vector))}]"


def _decimals(vector: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> list[str]:
    return [f"{value:.9g}" for value in vector.tolist()]


# Texts to vectors.

Lacks = Callable[[str], str | None]
"""Why a text has no vector: `Model.lacks`."""
_Part = TypeVar("_Part", bound=Sized)


@dataclass(frozen=True)
class _Written:
    """What a file of vectors holds and how long it took."""

    out: str
    n_texts: int
    n_tokens: int
    n_windows: int
    width: int
    seconds: float
    n_without_vector: int = 0  # words left out of the means
    n_unknown: int = 0  # tokens that the vocabulary lacks


def file_texts(files: Sequence[Path], lacks: Lacks, skip_empty: bool = False) -> Iterator[str]:
    """The texts of files in order; one without a vector is an error that names its line, or is left out."""
    lines = ((f"{file}, line {number}", text) for file, number, text in stream_placed_texts(files))
    return _with_vector(lines, lacks, skip_empty)


def stdin_texts(lacks: Lacks, skip_empty: bool = False) -> Iterator[str]:
    """The lines of standard input, likewise."""
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
) -> _Written:
    """Write the vectors of texts as the ending of `out` says (see embed_files.py), whole or not at all.

    `progress` is told after each part how many texts it held.
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
    return _Written(str(out), n_texts, n_tokens, n_windows, model.config.width, seconds, n_without, n_unknown)
