"""`SearchIndex`: find texts by meaning. A text is found by the cosine of its vector and that of the query.

An index is a folder with all that a search needs but the model (index_folder.py); the files that were indexed may be
moved.

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
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.api.embedder import html_table, join_embeddings
from qkv.api.index_folder import GRAPH_FILE, OFFSET_FILE, PASSAGE_FILE, TEXT_FILE, VECTOR_FILE, read_manifest
from qkv.api.index_texts import BuiltIndex, Files, Record, import_usearch, write_index
from qkv.api.model import Model, load, load_for
from qkv.data.batch import Watch
from qkv.data.labelled.tables import column_key
from qkv.errors import InputError, did_you_mean
from qkv.models.family import ENCODES, HAS_TASK
from qkv.models.folders.hub import default_model
from qkv.text.unknown import UnknownCounter
from qkv.train.run_folder import folder_sha256

CANDIDATES = 50
"""Texts that a reranker orders."""
_BLOCK_BYTES = 1 << 22  # of vectors in float32: a block that fits the cache
_SCORES = 1 << 23  # numbers of (Q, R) scores held at a time
_FETCHED = 64  # least passages that a graph is asked for


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


# --- Searching.


class _Reranker:
    """A model that was fine-tuned on text pairs: a query and a text."""

    usual: ClassVar[frozenset[str]] = frozenset(
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
        self.built: BuiltIndex | None = None  # of an index that was built just now
        self._given, self._how = model, how
        # "c": pages are shared and the file is not changed; torch wants arrays that could be written
        self._vectors: NDArray[np.float16] = np.load(folder / VECTOR_FILE, mmap_mode="c")  # (P, D)
        self._passages: NDArray[np.int64] = np.load(folder / PASSAGE_FILE, mmap_mode="r")  # (P, 3)
        self._offsets: NDArray[np.int64] = np.load(folder / OFFSET_FILE, mmap_mode="r")  # (N + 1,)
        # mapped as well, so that texts and vectors stay those of one index if another takes its place
        self._texts = np.memmap(folder / TEXT_FILE, np.uint8, "r")

    @classmethod
    def build(
        cls,
        source: "str | Path | Mapping[str, Any] | Iterable[str | Path | Mapping[str, Any] | None] | Files",
        out: str | Path,
        model: "str | Path | Model | None" = None,
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

        `model` is by default qkv-sentences, or qkv-mini in a copy of qkv without it.

        A text above `passage` tokens (default 128) is cut into passages that overlap by a quarter. Texts without a
        token are left out: see `built`. `approximate` adds a graph for approximate search (extra `ann`).

        `progress` is called with the number of texts that were embedded since the last call, and that of all.
        """
        name = default_model(ENCODES.name) if model is None else model
        loaded = name if isinstance(name, Model) else load(name, device, threads)
        built = write_index(
            source,
            Path(out),
            loaded,
            text=text,
            document=document,
            passage=passage,
            pooling=pooling,
            approximate=approximate,
            overwrite=overwrite,
            progress=progress,
            unknown=unknown,
            watch=watch,
        )
        index = cls.open(out, loaded, device, threads)
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
        return cls(path, read_manifest(path), model, device=device, threads=threads)

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
        try:
            return Record(**json.loads(self._texts[start:end].tobytes()))
        except (ValueError, TypeError):
            raise InputError(
                f"{self.folder / TEXT_FILE}, line {number + 1} is damaged: build the index again."
            ) from None

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
    def search(
        self,
        query: str,
        k: int = 10,
        *,
        rerank: "str | Path | Model | None" = None,
        candidates: int = CANDIDATES,
        relevant: str | None = None,
        exact: bool = False,
        passages: bool = False,
    ) -> Hits: ...
    @overload
    def search(
        self,
        query: list[str] | tuple[str, ...],
        k: int = 10,
        *,
        rerank: "str | Path | Model | None" = None,
        candidates: int = CANDIDATES,
        relevant: str | None = None,
        exact: bool = False,
        passages: bool = False,
    ) -> list[Hits]: ...

    def search(
        self,
        query: str | list[str] | tuple[str, ...],
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
        if not isinstance(query, Iterable):
            raise InputError(f"The query is of type {type(query).__name__}; a query is a string, or a list of strings.")
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
        parts = self.model.embed_stream(queries, pooling=pooling, normalize=True)  # an empty query is an error
        found = join_embeddings(parts, self.model.name, self.model.config.width)
        return self.nearest(found.vectors, k, exact, passages)

    def nearest(
        self, vectors: NDArray[np.float32], k: int = 10, exact: bool = False, passages: bool = False
    ) -> list[list[tuple[float, int]]]:
        """For vectors (Q, D) of unit length: the similarities of the k nearest passages, and their rows in
        vectors.npy; without `passages` the nearest one of a text alone."""
        width = self._vectors.shape[1]
        if np.ndim(vectors) != 2 or np.shape(vectors)[1] != width:
            raise InputError(
                f"The vectors have the shape {np.shape(vectors)}; this index wants (number of vectors, {width})."
            )
        vectors = np.asarray(vectors, np.float32)
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
        asked = torch.from_numpy(np.ascontiguousarray(queries))  # (Q, D)
        block = torch.empty(rows, width)
        best: list[dict[int, tuple[float, int]]] = [{} for _ in queries]  # by text or row
        for first in range(0, len(self._vectors), span):
            stored = torch.from_numpy(self._vectors[first : first + span])
            scores = torch.empty(number, len(stored))  # (Q, R): the best of a row are found in one pass over it
            for start in range(0, len(stored), rows):
                part = stored[start : start + rows]
                scores[:, start : start + len(part)] = asked @ block[: len(part)].copy_(part).T
            self._keep_best(best, scores.numpy(), first, k, by_text)
        return [
            self._scored(query, [row for _, row in kept.values()])[:k]
            for query, kept in zip(queries, best, strict=True)
        ]

    def _keep_best(
        self, best: list[dict[int, tuple[float, int]]], scores: NDArray[np.float32], first: int, k: int, by_text: bool
    ) -> None:
        """Add the k best of these rows (Q, R), of which the first is `first`, to the best of each query."""
        starts = owners = np.arange(0)
        reduced = scores  # (Q, R), or (Q, texts)
        if by_text:
            owners = np.asarray(self._passages[first : first + scores.shape[1], 0])
            starts = np.flatnonzero(np.diff(owners, prepend=-1))  # where the passages of a text begin
            reduced = np.maximum.reduceat(scores, starts, axis=1)
        values, places = torch.from_numpy(reduced).topk(min(k, reduced.shape[1]), dim=1)
        for number, kept in enumerate(best):
            for score, place in zip(values[number].tolist(), places[number].tolist(), strict=True):
                row, owner = place, first + place
                if by_text:
                    end = starts[place + 1] if place + 1 < len(starts) else scores.shape[1]
                    row = int(starts[place] + scores[number, starts[place] : end].argmax())
                    owner = int(owners[row])
                if owner not in kept or kept[owner][0] < score:  # a text may go on in the next rows
                    kept[owner] = score, first + row
            if len(kept) > k:
                ordered = sorted(kept.items(), key=lambda one: (-one[1][0], one[0]))
                best[number] = dict(ordered[:k])

    def _scored(self, query: NDArray[np.float32], rows: Sequence[int]) -> _Found:
        """Rows by their cosine, which does not depend on how many queries were asked or in which block a row was."""
        vectors = self._vectors[np.asarray(rows, dtype=np.int64)].astype(np.float64)
        scores = (vectors * query.astype(np.float64)).sum(axis=1).clip(-1, 1)
        return sorted(zip(scores.tolist(), rows, strict=True), key=lambda one: (-one[0], one[1]))

    @cached_property
    def _graph(self) -> Any:
        if self.facts["approximate"] is None:
            return None
        try:
            library = import_usearch(f"{self.folder} is searched exactly, which takes longer.")
        except InputError as error:
            warnings.warn(str(error), stacklevel=2)
            return None
        return library.Index.restore(str(self.folder / GRAPH_FILE), view=True)

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
    found = [replace(one, score=score) for one, score in zip(hits, scores, strict=True)]
    return sorted(found, key=lambda one: (-one.score, -one.similarity))
