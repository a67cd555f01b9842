"""Any number of texts to vectors, with every text kept beside its vector: the work behind `qkv embed`.

A text of which nothing is left after tokenization has no vector, nor has one without a word that word vectors know. It
is named by its file and line, or left out where that is asked for; the same test decides both, and it is the model's.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qkv.data.readers import BOM, placed
from qkv.errors import InputError
from qkv.run.predict import Model
from qkv.run.results import Embeddings, TokenVectors
from qkv.run.vector_files import vector_file

Lacks = Callable[[str], str | None]
"""Why a text has no vector: `Model.lacks`."""
Part = TypeVar("Part", bound=Sized)


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


def file_texts(files: Sequence[Path], lacks: Lacks, skip_empty: bool = False) -> Iterator[str]:
    """The texts of files in order; one without a vector is an error that names its line, or is left out."""
    lines = ((f"{file}, line {number}", text) for file, number, text in placed(files))
    return _with_vector(lines, lacks, skip_empty)


def stream_texts(stream: Iterable[bytes], name: str, lacks: Lacks, skip_empty: bool = False) -> Iterator[str]:
    """The lines of an open stream of UTF-8; `name` is what a message calls it."""
    return _with_vector(_decoded(stream, name), lacks, skip_empty)


def _decoded(stream: Iterable[bytes], name: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number} is not UTF-8.") from error
        yield f"{name}, line {number}", (text.removeprefix(BOM) if number == 1 else text).rstrip("\r\n")


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
) -> Iterator[tuple[list[str], Embeddings]]:
    """`Model.embed_stream`, each part with its texts."""
    return _beside(texts, lambda kept: model.embed_stream(kept, pooling, normalize, layer=layer))


def token_parts(
    model: Model, texts: Iterable[str], normalize: bool = False, layer: int | None = None
) -> Iterator[tuple[list[str], list[TokenVectors]]]:
    """`Model.embed_tokens_stream`, each part with its texts."""
    return _beside(texts, lambda kept: model.embed_tokens_stream(kept, normalize, layer=layer))


def _beside(texts: Iterable[str], parts: Callable[[Iterator[str]], Iterator[Part]]) -> Iterator[tuple[list[str], Part]]:
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
) -> Written:
    """Write the vectors of texts as the ending of `out` says (see vector_files.py), whole or not at all.

    `progress` is told after each part how many texts it held.
    """
    began = time.perf_counter()
    n_texts = n_tokens = n_windows = n_without = 0
    with vector_file(out, model.config.width) as writer:
        for taken, part in embed_parts(model, texts, pooling, normalize, layer):
            writer.add(taken, part)
            n_texts += len(part)
            n_tokens += int(part.n_tokens.sum())
            n_windows += int(part.n_windows.sum())
            n_without += 0 if part.n_without_vector is None else int(part.n_without_vector.sum())
            if progress is not None:
                progress(len(part))
        if not n_texts:
            raise InputError("There is no text to embed: the input is empty.")
    seconds = round(time.perf_counter() - began, 3)
    return Written(str(out), n_texts, n_tokens, n_windows, model.config.width, seconds, n_without)
