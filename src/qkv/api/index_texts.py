"""Write a search index: texts of files or of Python, their passages, vectors, and a graph for approximate search.

The folder is described in index_folder.py. Texts are written first and are read from there for their vectors: so an
error in the last line of a file is found before the work, the number of texts is known, and memory stays bounded. The
graph alone is in memory as a whole while it is built.
"""

import json
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from qkv.api.embed_files import NpyWriter, embed_parts, is_table, open_rows
from qkv.api.embedder import CHARACTERS_PER_CHUNK, TEXTS_PER_CHUNK, is_missing
from qkv.api.index_folder import FORMAT, GRAPH_FILE, INDEX_FILE, OFFSET_FILE, PASSAGE_FILE, TEXT_FILE, VECTOR_FILE
from qkv.api.model import HUB_CACHE, Model
from qkv.api.predict import is_file, is_folder, is_frame, list_documents
from qkv.api.table_files import json_value
from qkv.data.batch import Watch, chunks
from qkv.data.labelled.opened import Wanted
from qkv.data.labelled.reader import Labelled, labelling_for
from qkv.data.readers import (
    STDIN,
    check_file,
    check_text_file,
    encoding_note,
    numbered_lines,
    read_stdin_lines,
    read_whole,
)
from qkv.data.windows import cut_windows
from qkv.errors import InputError, listed
from qkv.files import check_replaceable, replaced_folder, sha256_of, to_json, write_text
from qkv.models.family import ENCODES
from qkv.models.folders.hub import HUB, zoo_name
from qkv.text.tokenizer import Encoded
from qkv.text.unknown import UnknownCounter
from qkv.train.run_folder import folder_sha256

PASSAGE = 128
"""Tokens of a passage. Longer ones mix subjects in one vector."""
_LISTED = 5  # texts without a vector, of which the others are counted
_LONGEST_WORD = 40  # characters by which an end of a passage moves to the end of a word
_of_a_word = re.compile(r"[^\W\u2e80-\uffef]")  # 汉字 and kana are words of their own


# --- Texts, with where they are from.


@dataclass(frozen=True)
class Record:
    """A text of an index. `line` counts from 1; None for a document and for texts from Python."""

    text: str
    file: str = ""
    line: int | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}" if self.line else self.file


class Files:
    """The texts of files: lines, rows of tables, and documents. Names and columns are checked at once.

    `notes` say how a file is read, where that is not plain: its encoding, its sheet, the column of its texts, files
    that are left out.
    """

    def __init__(self, given: Sequence[str | Path], column: str | None = None, document: bool = False) -> None:
        """`column` is that of the texts in tables; with `document`, and for a folder, each file is one text."""
        self.files: list[Path] = []
        self.notes: list[str] = []
        self._documents: set[Path] = set()
        self._tables: dict[Path, Labelled] = {}
        for name in map(str, given):
            if name == STDIN or not is_folder(name):
                self._add(name, column, document)
                continue
            found, others = list_documents(name)
            for path in found:
                self._add_document(path)
            if others:
                self.notes.append(
                    f"{name}: files that do not end in .txt and are not read: {len(others):,} ({listed(others, 5)})"
                )

    def _add(self, name: str, column: str | None, document: bool) -> None:
        if name == STDIN:
            self.files.append(Path(name))
            return
        path = check_file(name)
        if document:
            self._add_document(path)
            return
        self.files.append(path)
        if column is not None or is_table(path) or ".json" in path.name.lower():
            source = self._tables[path] = open_rows(path, column)
            self._note(path, source.describe("text"))
        else:
            check_text_file(path)
            self._note(path, encoding_note(path))

    def _add_document(self, path: Path) -> None:
        self.files.append(path)
        self._documents.add(path)
        self._note(path, encoding_note(path))

    def _note(self, path: Path, note: str) -> None:
        if note:
            self.notes.append(f"{path}: {note}")

    def __iter__(self) -> Iterator[Record]:
        for file in self.files:
            if str(file) == STDIN:
                yield from (Record(line, "standard input", number) for number, line in read_stdin_lines())
            elif file in self._documents:
                yield Record(read_whole(file), str(file))
            elif file in self._tables:
                yield from _rows(self._tables[file])
            else:
                yield from (Record(line, str(file), number) for number, line in numbered_lines(file))


def _rows(source: Labelled) -> Iterator[Record]:
    for row in source.rows():
        source.faults.clear()  # they would grow with the file
        place, column = row.place, source.columns.get("text")
        others = {name: value for name, value in (row.record or {}).items() if name != column}
        text = row.examples[0].text if row.examples else ""
        yield Record(text, place.file, place.number or place.line or None, others)


def _from_python(given: Iterable[Any], column: str | None) -> Iterator[Record]:
    """Texts, or mappings with a text and other columns."""
    found: dict[tuple[str, ...], str] = {}  # the column of the text, by the names of a mapping
    for number, item in enumerate(given, 1):
        if isinstance(item, str) or is_missing(item):
            yield Record(item if isinstance(item, str) else "")
            continue
        if not isinstance(item, Mapping):
            raise InputError(f"Text {number} is of type {type(item).__name__}; a text is a string.")
        row = {str(name): value for name, value in item.items()}
        names = tuple(row)
        if names not in found:
            found[names] = _text_column(names, column)
        text = row.pop(found[names])
        if not isinstance(text, str) and not is_missing(text):
            raise InputError(f"Text {number} is of type {type(text).__name__}; a text is a string.")
        yield Record(text if isinstance(text, str) else "", columns=row)


def _text_column(names: Sequence[str], column: str | None) -> str:
    labelling, given = labelling_for("classify"), {} if column is None else {"text": column}
    wanted = Wanted(Path("the texts"), labelling, given, needs_labels=False)
    return labelling.columns(wanted, names, "the texts")["text"]


def _open_source(given: Any, column: str | None, document: bool) -> tuple[Iterable[Record], list[Path], list[str]]:
    """The texts, the files they are in, and notes about those."""
    if is_frame(given):
        given = given.to_dict("records")
    items = [given] if isinstance(given, str | Path | Mapping) else given
    first: list[Any] = []
    if not isinstance(items, Files):
        items = iter(items)
        first = list(islice(items, 20))
        if any(isinstance(one, Path) for one in first):
            items = Files([*first, *items], column, document)
    if isinstance(items, Files):
        return items, [file for file in items.files if str(file) != STDIN], items.notes
    for text in first:
        if isinstance(text, str) and Path(text).suffix and is_file(text):
            raise InputError(f"{text} is a file: give pathlib.Path({text!r}) to index the texts in it.")

    def every() -> Iterator[Any]:
        yield from first
        yield from items

    return _from_python(every(), column), [], []


# --- Building.


@dataclass
class BuiltIndex:
    """What was read for an index."""

    n_texts: int = 0
    n_left_out: int = 0  # without a token, or without a known word
    left_out: list[str] = field(default_factory=list)  # the first of them
    notes: list[str] = field(default_factory=list)


def check_index_target(out: str | Path, overwrite: bool, option: str = "overwrite=True") -> None:
    """Raise before the work if an index cannot be written there. `option` is how the caller asks to replace one."""
    check_replaceable(Path(out), _keeper(overwrite, option))


def _keeper(overwrite: bool, option: str = "overwrite=True") -> Callable[[Path], str | None]:
    def _reason_to_keep(folder: Path) -> str | None:
        if not (folder / INDEX_FILE).is_file():
            return "it is not a search index"
        if not overwrite:
            raise InputError(f"{folder} is a search index already: replace it with {option}, or give another folder.")
        return None

    return _reason_to_keep


def _write_texts(folder: Path, records: Iterable[Record], model: Model, built: BuiltIndex) -> None:
    offsets = array("q", [0])
    with (folder / TEXT_FILE).open("wb") as file:
        for number, one in enumerate(records, 1):
            if (lack := model.lacks(one.text)) is not None:
                built.n_left_out += 1
                if len(built.left_out) < _LISTED:
                    built.left_out.append(f"{one.place or f'Text {number}'} {lack}")
                continue
            content = {"text": one.text, "file": one.file, "line": one.line, "columns": json_value(one.columns)}
            # half of a surrogate pair is an error where a text is tokenized, and may be in other columns
            line = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
            offsets.append(offsets[-1] + file.write(line + b"\n"))
            built.n_texts += 1
    np.save(folder / OFFSET_FILE, np.asarray(offsets))


def _read_texts(folder: Path) -> Iterator[tuple[int, str]]:
    with (folder / TEXT_FILE).open("rb") as file:
        for number, line in enumerate(file):
            yield number, json.loads(line)["text"]


def cut_passages(text: str, encoded: Encoded, starts: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Characters of the windows of a text, from the first to the last, moved to the ends of words where they overlap.

    No character of the text is outside all passages.
    """
    begins = [0, *(encoded.offsets[start][0] for start in starts[1:])]
    stops = [*(encoded.offsets[end - 1][1] for end in ends[:-1]), len(text)]
    for place in range(1, len(begins)):
        last = min(stops[place - 1], begins[place] + _LONGEST_WORD)
        begins[place] = _move(text, begins[place], last, 1)
        while begins[place] < last and text[begins[place]].isspace():
            begins[place] += 1
        stops[place - 1] = _move(text, stops[place - 1], max(begins[place], stops[place - 1] - _LONGEST_WORD), -1)
    return list(zip(begins, stops, strict=True))


def _move(text: str, place: int, last: int, step: int) -> int:
    """The next place between words, up to `last`; the same place if there is none.

    >>> _move("a wonderful day", 4, 12, 1), _move("a wonderful day", 4, 6, 1), _move("一个好日子", 2, 4, 1)
    (11, 4, 2)
    """
    for one in range(place, last + step, step):
        if not 0 < one < len(text) or not (_of_a_word.match(text[one - 1]) and _of_a_word.match(text[one])):
            return one
    return place


class _Passages:
    """Yields the passages of texts for their vectors, and writes where each is."""

    def __init__(self, model: Model, size: int, writer: NpyWriter) -> None:
        self._model, self._size, self._writer = model, size, writer
        # passages whose vectors are not there yet: the text, which of its passages, and how many it has
        self._waiting: deque[tuple[int, int, int]] = deque()

    def of(self, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
        for chunk in chunks(texts, TEXTS_PER_CHUNK, lambda one: len(one[1]), CHARACTERS_PER_CHUNK):
            encoded = self._model.tokenizer.encode_batch([text for _, text in chunk], special=False)
            pieces = cut_windows([len(one.ids) for one in encoded], self._size, self._size // 4)
            edges = np.searchsorted(pieces.examples, np.arange(len(chunk) + 1)).tolist()
            for (number, text), one, (first, last) in zip(chunk, encoded, pairwise(edges), strict=True):
                spans = cut_passages(text, one, pieces.starts[first:last].tolist(), pieces.ends[first:last].tolist())
                if len(spans) > 1:  # of word vectors: none of the words of a passage may have one
                    spans = [span for span in spans if self._model.lacks(text[slice(*span)]) is None]
                for place, (start, end) in enumerate(spans, 1):
                    self._writer.add_rows(np.array([[number, start, end]]))
                    self._waiting.append((number, place, len(spans)))
                    yield text[start:end]

    def done(self, passages: int) -> tuple[int, int, int]:
        """Of the next so many passages: the texts that end with them, and the part of the last text in passages."""
        number, place, total = [self._waiting.popleft() for _ in range(passages)][-1]
        return number + (place == total), place, total


def _write_vectors(
    folder: Path,
    model: Model,
    pooling: str,
    size: int,
    progress: Callable[[int], None] | None,
    unknown: UnknownCounter | None,
    watch: Watch | None,
) -> int:
    """Write the passages and their vectors; return the number of passages."""
    n_passages = done = 0
    if progress is not None:
        progress(0)
    with (folder / VECTOR_FILE).open("wb") as vectors, (folder / PASSAGE_FILE).open("wb") as places:
        rows, spans = NpyWriter(vectors, model.config.width, "<f2"), NpyWriter(places, 3, "<i8")
        passages = _Passages(model, size, spans)
        for _, part in embed_parts(model, passages.of(_read_texts(folder)), pooling, True, None, unknown, watch):
            rows.add_rows(part.vectors)
            n_passages += len(part)
            last, place, total = passages.done(len(part))
            if progress is not None and last > done:
                progress(last - done)
            done = last
            if watch is not None and place < total:
                watch(place, total)
        rows.finish()
        spans.finish()
    return n_passages


def _name_to_reopen(path: Path) -> str:
    """What finds a model again: the name of a shipped one, hf:owner/name, or the absolute path."""
    path = path.resolve()
    if zoo_name(path) is not None:
        return path.name
    if cached := HUB_CACHE.fullmatch("/".join(path.parts[-3:])):
        return HUB + cached["name"].replace("--", "/")
    return str(path)


def _choose_passage(model: Model, passage: int | None) -> int:
    most = model.opened.ability(ENCODES).sizes.max_length - 2
    if passage is None:
        return min(PASSAGE, most)
    if not 4 <= passage <= most:
        raise InputError(f"A passage of {passage} tokens is not possible: {model.name} reads 4 … {most} at once.")
    return passage


def _describe_nothing(built: BuiltIndex) -> str:
    if not built.n_left_out:
        return "There is no text to index: the input is empty."
    return f"There is no text to index: {built.left_out[0]}, and so are all {built.n_left_out:,} of the input."


# --- The approximate index.

_WITHOUT = "Without it leave --approximate out: exact search needs no library."


def import_usearch(advice: str) -> Any:
    try:
        return import_module("usearch.index")
    except ImportError:
        raise InputError(f"An approximate index needs usearch: pip install 'qkv[ann]'. {advice}") from None


def _write_graph(folder: Path, width: int) -> dict[str, Any]:
    library = import_usearch(_WITHOUT)
    how = {"connectivity": 16, "expansion_add": 128, "expansion_search": 64}
    graph = library.Index(ndim=width, metric="ip", dtype="f16", **how)
    vectors = np.load(folder / VECTOR_FILE, mmap_mode="r")
    for start in range(0, len(vectors), 1 << 16):
        block = vectors[start : start + (1 << 16)]
        graph.add(np.arange(start, start + len(block), dtype=np.uint64), np.asarray(block))
    graph.save(str(folder / GRAPH_FILE))
    return {"library": "usearch", "version": str(import_module("usearch").__version__), **how}


# --- All of it.


def write_index(
    source: Any,
    out: Path,
    model: Model,
    *,
    text: str | None = None,
    document: bool = False,
    passage: int | None = None,
    pooling: str | None = None,
    approximate: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    unknown: UnknownCounter | None = None,
    watch: Watch | None = None,
) -> BuiltIndex:
    """See `SearchIndex.build`."""
    check_index_target(out, overwrite)
    if approximate:
        import_usearch(_WITHOUT)
    records, files, notes = _open_source(source, text, document)
    size, pool = _choose_passage(model, passage), pooling or model.opened.sentence.pooling
    model.embed([], pooling=pool)  # an unknown pooling, or one that is not ours, is an error now
    built = BuiltIndex(notes=notes)
    with replaced_folder(out, _keeper(overwrite)) as fresh:
        _write_texts(fresh, records, model, built)
        if not built.n_texts:
            raise InputError(_describe_nothing(built))
        advance = None if progress is None else (lambda done: progress(done, built.n_texts))
        n_passages = _write_vectors(fresh, model, pool or "mean", size, advance, unknown, watch)
        width, path = model.config.width, model.opened.path
        graph = _write_graph(fresh, width) if approximate else None
        facts = {
            "format": FORMAT, "n_texts": built.n_texts, "n_passages": n_passages, "n_left_out": built.n_left_out,
            "width": width, "dtype": "float16", "passage_tokens": size,
            "model": {"name": _name_to_reopen(path), "sha256": folder_sha256(path), "pooling": pool or "mean"},
            "approximate": graph,
            "sources": [{"file": str(one), "size": one.stat().st_size, "sha256": sha256_of(one)} for one in files],
            "files": {one.name: one.stat().st_size for one in sorted(fresh.iterdir())},
        }  # fmt: skip
        write_text(fresh / INDEX_FILE, to_json(facts))
    return built
