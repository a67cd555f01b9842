"""`SearchIndex`: find texts by meaning. A text is found by the cosine of its vector and that of the query.

An index is a folder with all that a search needs but the model; the files that were indexed may be moved:

    index.json      sizes, sources, and the model with the hash of its files; written last
    vectors.npy     (P, D) float16, unit length, mapped into memory
    passages.npy    (P, 3) int64: number of the text, start and end of the passage in characters
    texts.jsonl     one object a text: text, file, line, columns
    offsets.npy     (N + 1,) int64: where each line of texts.jsonl begins
    graph.usearch   only with `approximate`: a graph of neighbours (HNSW, Malkov and Yashunin 2016)

A text above `passage` tokens is cut into passages that overlap, as windows are (data/windows.py), at the ends of words.
Each has its vector; a text is as near to a query as its nearest passage.

Exact search multiplies the query with every vector. Blocks of vectors that fit a processor's cache become float32 one
after the other, so that memory stays bounded and each vector is read once from the mapped file, in half the bytes of a
float32 matrix.

Left out: adding texts to an index, filters by column, and keyword search.

Shapes: N texts, P passages, D width, Q queries, R rows of a block.
"""

import json
import os
import re
import warnings
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.api.embed_files import NpyWriter, embed_parts, is_table, open_rows
from qkv.api.embedder import CHARACTERS_PER_CHUNK, TEXTS_PER_CHUNK, html_table, is_missing
from qkv.api.model import HUB_CACHE, Model, load, load_for
from qkv.api.predict import is_file, is_folder, is_frame, list_documents
from qkv.api.table_files import json_value
from qkv.data.batch import Watch, chunks
from qkv.data.labelled.reader import Labelled
from qkv.data.labelled.tables import column_key, find_given_column, find_usual_column
from qkv.data.readers import STDIN, check_file, check_text_file, numbered_lines, read_stdin_lines, read_whole
from qkv.data.windows import cut_windows
from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import check_replaceable, read_object, replaced_folder, sha256_of, to_json, write_text
from qkv.models.family import ENCODES, HAS_TASK
from qkv.models.folders.hub import DEFAULT_MODEL, FOLDER, HUB
from qkv.text.tokenizer import Encoded
from qkv.text.unknown import UnknownCounter
from qkv.train.run_folder import folder_sha256

MANIFEST, VECTORS, PASSAGES = "index.json", "vectors.npy", "passages.npy"
TEXTS, OFFSETS, GRAPH = "texts.jsonl", "offsets.npy", "graph.usearch"
FORMAT = 1
"""Version of the folder."""
PASSAGE = 128
"""Tokens of a passage. Longer ones mix subjects in one vector (docs/search.md has what was measured)."""
CANDIDATES = 50
"""Texts that a reranker orders."""
_BLOCK_BYTES = 1 << 22  # of vectors in float32: a block that fits the cache
_SCORES = 1 << 23  # numbers of (R, Q) scores held at a time
_LISTED = 5  # texts without a vector, of which the others are counted
_FETCHED = 64  # least passages that a graph is asked for
_LONGEST_WORD = 40  # characters by which an end of a passage moves to the end of a word
_of_a_word = re.compile(r"[^\W\u2e80-\uffef]")  # 汉字 and kana are words of their own

Source = Iterable[str | Path | Mapping[str, Any]]


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
    """The texts of files: lines, rows of tables, and documents. Names and columns are checked at once."""

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
            self.files += found
            self._documents |= set(found)
            if others:
                self.notes.append(
                    f"{name}: files that do not end in .txt and are not read: {len(others):,} ({listed(others, 5)})"
                )

    def _add(self, name: str, column: str | None, document: bool) -> None:
        path = Path(name) if name == STDIN else check_file(name)
        self.files.append(path)
        if document and name != STDIN:
            self._documents.add(path)
        elif name != STDIN and (column is not None or is_table(path) or ".json" in path.name.lower()):
            source = self._tables[path] = open_rows(path, column)
            if source.note:
                self.notes.append(f"{path}: {source.note}")
        elif name != STDIN:
            check_text_file(path)

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
    for number, item in enumerate(given, 1):
        if isinstance(item, str):
            yield Record(item)
            continue
        if not isinstance(item, Mapping):
            raise InputError(f"Text {number} is of type {type(item).__name__}; a text is a string.")
        names = [str(name) for name in item]
        where = f"Text {number}"
        if column is not None:
            chosen: str | None = find_given_column("text", column, names, where)
        else:
            chosen = find_usual_column("text", names, where)
        if chosen is None:
            raise InputError(f"Text {number} has no column of a usual name, only {', '.join(names)}: name it (text=…).")
        row = dict(zip(names, item.values(), strict=True))
        value = row.pop(chosen)
        if not isinstance(value, str) and not is_missing(value):
            raise InputError(f"Text {number} is of type {type(value).__name__}; a text is a string.")
        yield Record(value if isinstance(value, str) else "", columns=row)


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


# --- Hits.


@dataclass(frozen=True)
class Hit:
    """A text that was found: its characters start … end, which are all of it unless it was cut into passages."""

    score: float  # of the reranker if there is one, else the cosine
    similarity: float  # the cosine of the vectors
    text: str  # the passage
    start: int  # of the passage in the text, in characters
    end: int
    length: int  # of the whole text, which is `index[number].text`
    number: int  # of the text in the index, from 0
    file: str
    line: int | None
    columns: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Hits(list[Hit]):
    """The hits of one query, best first: a list that a notebook shows as a table."""

    def __init__(self, hits: Iterable[Hit] = (), query: str = "") -> None:
        super().__init__(hits)
        self.query = query

    def _repr_html_(self) -> str:
        rows = [(f"{one.score:.3f}", one.text, one.place, _columns_shown(one.columns)) for one in self]
        return html_table(("score", "text", "file", "columns"), rows, self.query)


def _columns_shown(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in columns.items() if value not in (None, ""))


# --- Building.


@dataclass
class Built:
    """What was read for an index."""

    n_texts: int = 0
    n_left_out: int = 0  # without a token, or without a known word
    left_out: list[str] = field(default_factory=list)  # the first of them
    notes: list[str] = field(default_factory=list)


def check_index_target(out: str | Path, overwrite: bool) -> None:
    """Raise before the work if an index cannot be written there."""
    check_replaceable(Path(out), _keeper(overwrite))


def _keeper(overwrite: bool) -> Callable[[Path], str | None]:
    def _reason_to_keep(folder: Path) -> str | None:
        if not (folder / MANIFEST).is_file():
            return "it is not a search index"
        return None if overwrite else "it is a search index already, and --overwrite was not given"

    return _reason_to_keep


def _write_texts(folder: Path, records: Iterable[Record], model: Model, built: Built) -> None:
    offsets = array("q", [0])
    with (folder / TEXTS).open("wb") as file:
        for number, one in enumerate(records, 1):
            if (lack := model.lacks(one.text)) is not None:
                built.n_left_out += 1
                if len(built.left_out) < _LISTED:
                    built.left_out.append(f"{one.place or f'Text {number}'} {lack}")
                continue
            content = {"text": one.text, "file": one.file, "line": one.line, "columns": json_value(one.columns)}
            offsets.append(offsets[-1] + file.write(json.dumps(content, ensure_ascii=False).encode() + b"\n"))
            built.n_texts += 1
    np.save(folder / OFFSETS, np.asarray(offsets))


def _read_texts(folder: Path) -> Iterator[tuple[int, str]]:
    with (folder / TEXTS).open("rb") as file:
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
        self._waiting: deque[int] = deque()  # texts of passages whose vectors are not there yet

    def of(self, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
        for chunk in chunks(texts, TEXTS_PER_CHUNK, lambda one: len(one[1]), CHARACTERS_PER_CHUNK):
            encoded = self._model.tokenizer.encode_batch([text for _, text in chunk], special=False)
            pieces = cut_windows([len(one.ids) for one in encoded], self._size, self._size // 4)
            edges = np.searchsorted(pieces.examples, np.arange(len(chunk) + 1)).tolist()
            for (number, text), one, (first, last) in zip(chunk, encoded, pairwise(edges), strict=True):
                spans = cut_passages(text, one, pieces.starts[first:last].tolist(), pieces.ends[first:last].tolist())
                for start, end in spans:
                    passage = text[start:end]
                    if len(spans) > 1 and self._model.lacks(passage) is not None:
                        continue  # of word vectors: none of its words has one
                    self._writer.add_rows(np.array([[number, start, end]]))
                    self._waiting.append(number)
                    yield passage

    def texts_done(self, passages: int) -> int:
        """The number of the last text of which these passages are the next."""
        return [self._waiting.popleft() for _ in range(passages)][-1]


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
    with (folder / VECTORS).open("wb") as vectors, (folder / PASSAGES).open("wb") as places:
        rows, spans = NpyWriter(vectors, model.config.width, "<f2"), NpyWriter(places, 3, "<i8")
        passages = _Passages(model, size, spans)
        for _, part in embed_parts(model, passages.of(_read_texts(folder)), pooling, True, None, unknown, watch):
            rows.add_rows(part.vectors)
            n_passages += len(part)
            last = passages.texts_done(len(part)) + 1
            if progress is not None:
                progress(last - done)
            done = last
        rows.finish()
        spans.finish()
    return n_passages


def _name_to_reopen(path: Path) -> str:
    """What finds a model again: the name of a shipped one, hf:owner/name, or the absolute path."""
    path = path.resolve()
    if path.parent == FOLDER:
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


# --- The approximate index.


def _import_usearch(advice: str) -> Any:
    try:
        return import_module("usearch.index")
    except ImportError:
        raise InputError(f"An approximate index needs usearch: pip install 'qkv[ann]'. {advice}") from None


def _write_graph(folder: Path, width: int) -> dict[str, Any]:
    library = _import_usearch("Without it leave --approximate out: exact search needs no library.")
    how = {"connectivity": 16, "expansion_add": 128, "expansion_search": 64}
    graph = library.Index(ndim=width, metric="ip", dtype="f16", **how)
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    for start in range(0, len(vectors), 1 << 16):
        block = vectors[start : start + (1 << 16)]
        graph.add(np.arange(start, start + len(block), dtype=np.uint64), np.asarray(block))
    graph.save(str(folder / GRAPH))
    return {"library": "usearch", "version": str(import_module("usearch").__version__), **how}


# --- Searching.


class _Reranker:
    """A model that was fine-tuned on text pairs: a query and a text."""

    usual = set(
        "1 true yes y relevant match matched duplicate same similar paraphrase equivalent entailment entails positive "
        "label1 是 相关 相似 匹配 相同 同义 蕴含 正例".split()
    )
    """Labels that say that two texts belong together, as `column_key` writes them."""

    def __init__(self, model: Model, relevant: str | None = None) -> None:
        self.model, task = model, model.solver.task
        if "pair" not in task.example.fields or task.paired is False:
            raise InputError(
                f"{model.name} does not read text pairs, so it cannot rerank. Fine-tune a model on a file of queries, "
                "texts and labels: qkv finetune classify --train FILE --text QUERY --pair TEXT --out RUN."
            )
        self.label = None if task.numbers else self._choose(model.labels, relevant)

    def _choose(self, labels: Sequence[str], relevant: str | None) -> str:
        if relevant is not None:
            if relevant not in labels:
                hint = did_you_mean(relevant, labels)
                raise InputError(f"{self.model.name} has no label '{relevant}'.{hint} It has {', '.join(labels)}.")
            return relevant
        found = [label for label in labels if column_key(label) in self.usual]
        if len(found) != 1:
            raise InputError(
                f"Which label of {self.model.name} says that a text fits the query? It has {', '.join(labels)}: name "
                "it with --relevant LABEL (relevant=…)."
            )
        return found[0]

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        results = self.model.predict([(query, text) for text in texts])
        return [float(one.value if self.label is None else one.probabilities[self.label]) for one in results]


_Found = list[tuple[float, int]]
"""Similarities and rows of the passages of one query, best first."""


class SearchIndex:
    """An index of texts; made by `SearchIndex.build`, and read again by `SearchIndex.open`.

    >>> index = SearchIndex.build(["A cat sleeps.", "Rates rose."], "index")             # doctest: +SKIP
    >>> SearchIndex.open("index").search("kitten", k=1)[0].text                          # doctest: +SKIP
    'A cat sleeps.'
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], model: "str | Path | Model | None", **how: Any) -> None:
        """See `open`."""
        self.folder, self.facts = folder, facts
        self.built: Built | None = None  # of an index that was built just now
        self._given, self._how = model, how
        # "c": pages are shared and the file is not changed; torch wants arrays that could be written
        self._vectors: NDArray[np.float16] = np.load(folder / VECTORS, mmap_mode="c")  # (P, D)
        self._passages: NDArray[np.int64] = np.load(folder / PASSAGES, mmap_mode="r")  # (P, 3)
        self._offsets: NDArray[np.int64] = np.load(folder / OFFSETS, mmap_mode="r")  # (N + 1,)

    @classmethod
    def build(
        cls,
        source: "str | Path | Mapping[str, Any] | Source | Files",
        out: str | Path,
        model: "str | Path | Model" = DEFAULT_MODEL,
        *,
        text: str | None = None,
        document: bool = False,
        passage: int | None = None,
        pooling: str | None = None,
        approximate: bool = False,
        overwrite: bool = False,
        device: str = "auto",
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        unknown: UnknownCounter | None = None,
        watch: Watch | None = None,
    ) -> "SearchIndex":
        """Index texts, and write the index to the folder `out`, whole or not at all.

        `source`: texts; mappings with a text and other columns, or a DataFrame; or files as `pathlib.Path`: a text a
        line (.txt), csv, tsv, jsonl, parquet, xlsx, folders of documents. `text` names the column of the texts; the
        others are kept and are part of a hit. With `document` each file is one text.

        A text above `passage` tokens (default 128) is cut into passages that overlap by a quarter. Texts without a
        token are left out: see `built`. `approximate` adds a graph for approximate search (extra `ann`).

        `progress` is called with the number of texts that were embedded since the last call, and that of all.
        """
        check_index_target(out, overwrite)
        if approximate:
            _import_usearch("Without it leave --approximate out: exact search needs no library.")
        records, files, notes = _open_source(source, text, document)
        loaded = model if isinstance(model, Model) else load(model, device, threads)
        size, pool = _choose_passage(loaded, passage), pooling or loaded.opened.sentence.pooling
        loaded.embed([], pooling=pool)  # an unknown pooling, or one that is not ours, is an error now
        built = Built(notes=notes)
        with replaced_folder(Path(out), _keeper(overwrite)) as fresh:
            _write_texts(fresh, records, loaded, built)
            if not built.n_texts:
                raise InputError(_describe_nothing(built))
            advance = None if progress is None else (lambda done: progress(done, built.n_texts))
            n_passages = _write_vectors(fresh, loaded, pool or "mean", size, advance, unknown, watch)
            width = loaded.config.width
            graph = _write_graph(fresh, width) if approximate else None
            path = loaded.opened.path
            facts = {
                "format": FORMAT, "n_texts": built.n_texts, "n_passages": n_passages, "n_left_out": built.n_left_out,
                "width": width, "dtype": "float16", "passage_tokens": size,
                "model": {"name": _name_to_reopen(path), "sha256": folder_sha256(path), "pooling": pool or "mean"},
                "approximate": graph,
                "sources": [{"file": str(one), "size": one.stat().st_size, "sha256": sha256_of(one)} for one in files],
                "files": {one.name: one.stat().st_size for one in sorted(fresh.iterdir())},
            }  # fmt: skip
            write_text(fresh / MANIFEST, to_json(facts))
        index = cls.open(out, loaded)
        index.built = built
        return index

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: "str | Path | Model | None" = None,
        device: str = "auto",
        threads: int | None = None,
    ) -> "SearchIndex":
        """Open an index. Its model is loaded for the first query, from where it was when the index was built; `model`
        is another place for the same files."""
        path = Path(os.path.expanduser(folder))
        return cls(path, _read_manifest(path), model, device=device, threads=threads)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        facts = self.facts
        return (
            f"<qkv.SearchIndex {self.folder.name}: {len(self):,} texts, {len(self._vectors):,} passages × "
            f"{facts['width']}, {Path(facts['model']['name']).name}>"
        )

    def __getitem__(self, number: int) -> Record:
        """The whole text of this number, with where it is from."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"text {number} of an index of {len(self)}")
        number %= len(self)
        start, end = (int(self._offsets[one]) for one in (number, number + 1))
        with reading(self.folder / TEXTS), (self.folder / TEXTS).open("rb") as file:
            file.seek(start)
            line = file.read(end - start)
        try:
            return Record(**json.loads(line))
        except (ValueError, TypeError):
            raise InputError(f"{self.folder / TEXTS}, line {number + 1} is damaged: build the index again.") from None

    @cached_property
    def model(self) -> Model:
        """The model of the queries: that of the texts, checked by the hash of its files."""
        expected = self.facts["model"]
        name = expected["name"] if self._given is None else self._given
        if isinstance(name, Model):
            loaded = name
        else:
            try:
                loaded = load(name, **self._how)
            except InputError as error:
                if self._given is not None:
                    raise
                raise InputError(
                    f"{self.folder} was built with the model {name}, which cannot be opened: {error} Give the same "
                    "model with --model FOLDER."
                ) from error
        if (found := folder_sha256(loaded.opened.path)) != expected["sha256"]:
            raise InputError(
                f"{self.folder} was built with another model than {loaded.name}: the SHA-256 of the files of "
                f"{expected['name']} was {expected['sha256'][:9]}…, this one's is {found[:9]}…. Vectors of two models "
                "cannot be compared: give that model with --model, or build the index again."
            )
        return loaded

    @overload
    def search(self, query: str, k: int = 10, **how: Any) -> Hits: ...
    @overload
    def search(self, query: Iterable[str], k: int = 10, **how: Any) -> list[Hits]: ...

    def search(
        self,
        query: str | Iterable[str],
        k: int = 10,
        *,
        rerank: "str | Path | Model | None" = None,
        candidates: int = CANDIDATES,
        relevant: str | None = None,
        exact: bool = False,
        passages: bool = False,
    ) -> Hits | list[Hits]:
        """The k texts nearest to a query, best first; of several queries a list for each.

        `rerank` is a model that was fine-tuned on text pairs (a classifier, whose label `relevant` counts, or a
        regressor): it orders the nearest `candidates` anew. `exact` leaves the graph of an approximate index aside.
        With `passages` each passage of a text is a hit of its own, instead of the nearest one alone.
        """
        queries = [query] if isinstance(query, str) else list(query)
        if k < 1:
            raise InputError(f"k must be 1 or more, not {k}.")
        for number, one in enumerate(queries, 1):
            if not isinstance(one, str):
                raise InputError(f"Query {number} is of type {type(one).__name__}; a query is a string.")
            if lack := self.model.lacks(one):
                raise InputError(f"The query {one!r:.60} {lack}: give it a word.")
        ranker = None
        if rerank is not None:
            loaded = rerank if isinstance(rerank, Model) else load_for(HAS_TASK, rerank, **self._how)
            ranker = _Reranker(loaded, relevant)
        wanted = max(k, candidates) if ranker else k
        found = self._nearest(queries, wanted, exact, passages)
        hits = [self._hits(*one) for one in zip(queries, found, strict=True)]
        if ranker is not None:
            hits = [Hits(_reranked(one, ranker)[:k], one.query) for one in hits]
        return hits[0] if isinstance(query, str) else hits

    def _nearest(self, queries: Sequence[str], k: int, exact: bool, passages: bool) -> list[_Found]:
        if not queries:
            return []
        pooling = self.facts["model"]["pooling"]
        vectors = self.model.embed(queries, pooling=pooling, normalize=True).vectors  # (Q, D)
        by_text = not passages and len(self._vectors) > len(self)
        graph = None if exact else self._graph
        if graph is not None:
            return [self._by_graph(graph, one, k, by_text) for one in vectors]
        found: list[_Found] = []
        for start in range(0, len(vectors), _most_queries(k)):
            found += self._scan(vectors[start : start + _most_queries(k)], k, by_text)
        return found

    def _scan(self, queries: NDArray[np.float32], k: int, by_text: bool) -> list[_Found]:
        """Exact search: the k best rows of each query; with `by_text` at most one a text."""
        width, number = self._vectors.shape[1], len(queries)
        rows = max(1, _BLOCK_BYTES // (4 * width))
        span = max(rows, _SCORES // number // rows * rows)  # rows whose scores are held: whole blocks
        turned = torch.from_numpy(np.ascontiguousarray(queries.T))  # (D, Q)
        block = torch.empty(rows, width)
        best: list[dict[int, tuple[float, int]]] = [{} for _ in queries]  # by text or row
        for first in range(0, len(self._vectors), span):
            stored = torch.from_numpy(self._vectors[first : first + span])
            scores = torch.empty(len(stored), number)
            for start in range(0, len(stored), rows):
                part = stored[start : start + rows]
                torch.mm(block[: len(part)].copy_(part), turned, out=scores[start : start + len(part)])
            self._keep_best(best, scores.numpy(), first, k, by_text)
        return [
            self._scored(query, [row for _, row in kept.values()])[:k]
            for query, kept in zip(queries, best, strict=True)
        ]

    def _keep_best(
        self, best: list[dict[int, tuple[float, int]]], scores: NDArray[np.float32], first: int, k: int, by_text: bool
    ) -> None:
        """Add the k best of these rows (R, Q), of which the first is `first`, to the best of each query."""
        starts = owners = np.arange(0)
        reduced = scores  # (R, Q), or (texts, Q)
        if by_text:
            owners = np.asarray(self._passages[first : first + len(scores), 0])
            starts = np.flatnonzero(np.diff(owners, prepend=-1))  # where the passages of a text begin
            reduced = np.maximum.reduceat(scores, starts, axis=0)
        values, places = torch.from_numpy(reduced).topk(min(k, len(reduced)), dim=0)
        for number, kept in enumerate(best):
            for score, place in zip(values[:, number].tolist(), places[:, number].tolist(), strict=True):
                row, owner = place, first + place
                if by_text:
                    end = starts[place + 1] if place + 1 < len(starts) else len(scores)
                    row = int(starts[place] + scores[starts[place] : end, number].argmax())
                    owner = int(owners[row])
                if owner not in kept or kept[owner][0] < score:  # a text may go on in the next rows
                    kept[owner] = score, first + row
            if len(kept) > k:
                ordered = sorted(kept.items(), key=lambda one: (-one[1][0], one[0]))
                best[number] = dict(ordered[:k])

    def _scored(self, query: NDArray[np.float32], rows: Sequence[int]) -> _Found:
        """Rows by their cosine, which does not depend on how many queries were asked or in which block a row was."""
        vectors = self._vectors[np.asarray(rows, dtype=np.int64)].astype(np.float64)
        scores = (vectors * query.astype(np.float64)).sum(axis=1)
        return sorted(zip(scores.tolist(), rows, strict=True), key=lambda one: (-one[0], one[1]))

    @cached_property
    def _graph(self) -> Any:
        if self.facts["approximate"] is None:
            return None
        try:
            library = _import_usearch(f"{self.folder} is searched exactly, which takes longer.")
        except InputError as error:
            warnings.warn(str(error), stacklevel=2)
            return None
        return library.Index.restore(str(self.folder / GRAPH), view=True)

    def _by_graph(self, graph: Any, query: NDArray[np.float32], k: int, by_text: bool) -> _Found:
        """Approximate search; similarities are exact."""
        asked = max(_FETCHED, 2 * k)
        while True:
            keys = graph.search(query, min(asked, len(self._vectors))).keys
            found = self._scored(query, [int(key) for key in keys])
            if by_text:
                first: dict[int, tuple[float, int]] = {}
                for one in found:
                    first.setdefault(int(self._passages[one[1], 0]), one)
                found = list(first.values())
            if len(found) >= k or asked >= len(self._vectors):
                return found[:k]
            asked *= 4

    def _hits(self, query: str, found: _Found) -> Hits:
        hits = Hits(query=query)
        for score, row in found:
            number, start, end = self._passages[row].tolist()
            whole = self[number]
            hits.append(
                Hit(
                    score, score, whole.text[start:end], start, end, len(whole.text), number, whole.file, whole.line,
                    whole.columns,
                )
            )  # fmt: skip
        return hits


def _most_queries(k: int) -> int:
    return max(1, min(256, 16_384 // k))


def _reranked(hits: Hits, ranker: _Reranker) -> list[Hit]:
    scores = ranker.scores(hits.query, [one.text for one in hits])
    found = [Hit(**{**vars(one), "score": score}) for one, score in zip(hits, scores, strict=True)]
    return sorted(found, key=lambda one: (-one.score, -one.similarity))


def _describe_nothing(built: Built) -> str:
    if not built.n_left_out:
        return "There is no text to index: the input is empty."
    return f"There is no text to index: {built.left_out[0]}, and so are all {built.n_left_out:,} of the input."


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Check the files of an index against its index.json."""
    advice = "qkv search index FILES --out INDEX builds one."
    with reading(folder):
        if not folder.is_dir():
            near = [one.name for one in folder.parent.iterdir() if one.is_dir()] if folder.parent.is_dir() else []
            raise InputError(f"There is no index {folder}.{did_you_mean(folder.name, near)} {advice}")
        if not (folder / MANIFEST).is_file():
            if (folder / VECTORS).is_file():
                raise InputError(f"{folder} is not whole: {MANIFEST}, which is written last, is missing. {advice}")
            raise InputError(f"{folder} is not a search index: it has no {MANIFEST}. {advice}")
    facts = read_object(folder / MANIFEST)
    if facts.get("format") != FORMAT:
        raise InputError(
            f"{folder / MANIFEST} has the format {facts.get('format')!r}; this version of qkv reads {FORMAT}. Build the "
            "index again."
        )
    missing = [one for one in ("model", "files", "width", "n_texts", "n_passages", "approximate") if one not in facts]
    if missing:
        raise InputError(f"{folder / MANIFEST} is damaged: it has no {missing[0]}. Build the index again.")
    for name, size in facts["files"].items():
        with reading(folder / name):
            found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            had = "is missing" if found is None else f"has {found:,} bytes"
            raise InputError(
                f"{folder} is not whole: {name} {had}, and had {size:,} when it was written. Copy or build it again."
            )
    return facts
