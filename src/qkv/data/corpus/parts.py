"""A corpus prepared in parts, by tasks that may run anywhere: the same bytes as `prepare_corpus` writes alone.

Each task writes files that appear whole, and its marker last; a task whose marker is there is not repeated. The plan
depends on the files and settings alone, never on who works on it.

    OUT/unfinished.json                           what the corpus is made from; written first
    OUT/unfinished/part-000007-000.safetensors    encoded blocks of a part of a file
    OUT/unfinished/part-000007.json               marker: those files with their hashes, figures of each block
    OUT/unfinished/counts-000003.safetensors      how often each token is in the fourth shard of training documents
    OUT/unfinished/shard-000003.json              marker of the shards: size, SHA-256, totals

Which documents are held out depends on their numbers in the whole corpus, and where a shard ends on all blocks before
it. So the blocks are encoded first; `plan_shards` goes over their figures; then the shards are written.

What this file does NOT do: start processes. It is given `Tasks` (cluster.py), or runs them here.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from qkv.data.corpus.documents import SECTION_BLOCKS, Block, SourceFile, count_lines, read_part
from qkv.data.corpus.shards import STATE, pack_arrays, unpack_arrays
from qkv.data.corpus.workers import BlockEncoder, EncodedBlock, EncodeJob
from qkv.data.corpus.writer import Writer, count_tokens, is_held_out, sample_of
from qkv.data.stores import Store, check_name, open_store
from qkv.errors import InputError
from qkv.text.languages import COUNTED_LANGUAGES

WORK = "unfinished"  # folder of the parts
_COUNTED = ("bytes", "characters", *COUNTED_LANGUAGES)  # as in `Writer.counts`
_FIGURES = (*_COUNTED, "tokens", "sentences", "documents", "goes_on", "filled", "first", "last")
_PIECE_BLOCKS = 2 * SECTION_BLOCKS  # a section has some more blocks than those of full length
_TOGETHER = 64  # counts that one task adds up

_Item = TypeVar("_Item")
Figures = NDArray[np.int64]
"""(blocks, len(_FIGURES)); filled: documents with tokens; first, last: whether the first and last one have any."""


class Tasks(Protocol):
    """Where tasks run. `map` yields the number of each item and what was made of it, in any order."""

    def map(
        self, work: "Callable[[PartsJob, Any], Any]", job: "PartsJob", items: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]: ...


class HereAndNow:
    """Tasks in this process, one after the other."""

    def map(
        self, work: "Callable[[PartsJob, Any], Any]", job: "PartsJob", items: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]:
        for number, item in enumerate(items):
            yield number, work(job, item)


@dataclass(frozen=True)
class PartsJob:
    """What all tasks need."""

    out: str
    key: str  # hash of all that the corpus is made from; of another one, markers are not believed
    encode: EncodeJob
    sources: tuple[SourceFile, ...]
    sizes: tuple[int, ...]  # of the sources
    vocabulary_size: int
    hold_out: float
    shard_tokens: int
    block_bytes: int

    def store(self) -> Store:
        """Return the store of the corpus, once this machine is known to see it and to see the same sources."""
        store = open_store(self.out)
        if store.size(STATE) is None:
            raise InputError(
                f"{store.at(STATE)} is not seen by the machine {_machine()}. --out must be a folder that all machines "
                "of the cluster share, or in an object store."
            )
        return store


@dataclass(frozen=True)
class Part:
    """Some blocks of a source: one section of a plain file, or all of another one."""

    number: int
    source: int
    section: int

    @property
    def name(self) -> str:
        return f"{WORK}/part-{self.number:06d}"


@dataclass(frozen=True)
class Piece:
    """A file of encoded blocks, and which of them are wanted."""

    file: str
    sha256: str
    figures: Figures  # of all its blocks
    first: int
    end: int


@dataclass(frozen=True)
class ShardPlan:
    """The blocks of a shard of training documents and of one of held-out documents, and what is before them."""

    number: int
    pieces: tuple[Piece, ...]
    documents: int
    within: int | None  # see `Writer`
    earlier: tuple[int, int]  # shards of each part

    @property
    def name(self) -> str:
        return f"{WORK}/shard-{self.number:06d}"

    @property
    def counts(self) -> str:
        return f"{WORK}/counts-{self.number:06d}.safetensors"


def plan_parts(sources: Sequence[SourceFile], block_bytes: int) -> list[Part]:
    places = [(number, part) for number, one in enumerate(sources) for part in range(one.parts(block_bytes))]
    return [Part(number, *place) for number, place in enumerate(places)]


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """itertools.batched, which Python 3.11 has not."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


# --- Tasks


def encode_part(job: PartsJob, part: Part) -> dict[str, Any]:
    """Write the encoded blocks of a part, and return its marker."""
    store = job.store()
    if found := _read_marker(store, part.name, job.key):
        return found
    source = job.sources[part.source]
    _check_size(source, job.sizes[part.source])
    try:
        return _encode(job, store, part, 1)
    except InputError:
        if part.section:  # its lines were counted from the beginning of the part: find the error again
            first = next(read_part(source, part.source, part.section, job.block_bytes), None)
            _encode(job, store, part, 1 + count_lines(source, first.place.offset if first else 0))
        raise


def _check_size(source: SourceFile, expected: int) -> None:
    try:
        size = source.size
    except OSError as error:
        raise InputError(
            f"{source.path} cannot be read by the machine {_machine()}: {error.strerror}. Files must be in a folder "
            "that all machines of the cluster share, or in an object store."
        ) from None
    if size != expected:
        raise InputError(f"{source.path} changed while it was being prepared. Start again with --overwrite.")


def _encode(job: PartsJob, store: Store, part: Part, line: int) -> dict[str, Any]:
    encoder = _encoder(job.encode)
    source = job.sources[part.source]
    pieces: list[dict[str, Any]] = []
    sample = ""
    blocks = read_part(source, part.source, part.section, job.block_bytes, line)
    for some in _batched(((block, encoder(block)) for block in blocks), _PIECE_BLOCKS):
        name = f"{part.name}-{len(pieces):03d}.safetensors"
        packed, written = pack_arrays(_joined([result for _, result in some]))
        store.write(name, packed)
        figures = [_figures(block, result) for block, result in some]
        pieces.append({"file": name, "sha256": written.sha256, "blocks": figures})
        if some[0][0].place.offset == 0 and some[0][1].sample:
            sample = sample_of(some[0][1], encoder.tokenizer, source.path.name)
    _check_size(source, job.sizes[part.source])
    marker = {"key": job.key, "pieces": pieces, "sample": sample}
    store.write_text(f"{part.name}.json", json.dumps(marker, ensure_ascii=False) + "\n")
    return marker


@lru_cache(maxsize=1)
def _encoder(job: EncodeJob) -> BlockEncoder:
    """A process has many tasks and one encoder, whose cache of words makes it quick."""
    return BlockEncoder(job)


def _figures(block: Block, result: EncodedBlock) -> list[int]:
    filled = result.documents > 0
    found = (len(block.data), result.characters, *result.letters, len(result.tokens), len(result.sentences))
    more = (len(result.documents), block.goes_on, filled.sum(), filled[0], filled[-1])
    return [int(number) for number in (*found, *more)]


def _joined(results: Sequence[EncodedBlock]) -> dict[str, NDArray[Any]]:
    return {
        "tokens": np.concatenate([one.tokens for one in results]),
        "word_starts": np.packbits(np.concatenate([one.word_starts for one in results]), bitorder="little"),
        "sentences": np.concatenate([one.sentences for one in results]).astype(np.uint32),
        "documents": np.concatenate([one.documents for one in results]).astype(np.uint32),
    }


def _blocks_of(piece: Piece, content: bytes) -> Iterator[tuple[EncodedBlock, bool]]:
    """Yield the wanted blocks of a piece, and whether each may continue a document."""
    arrays = unpack_arrays(np.frombuffer(content, np.uint8), piece.file)
    word_starts = np.unpackbits(arrays["word_starts"], count=len(arrays["tokens"]), bitorder="little").astype(np.bool_)
    tokens, sentences, documents = (_bounds(piece.figures, name) for name in ("tokens", "sentences", "documents"))
    for number in range(piece.first, piece.end):
        yield (
            EncodedBlock(
                tokens=arrays["tokens"][tokens[number] : tokens[number + 1]],
                word_starts=word_starts[tokens[number] : tokens[number + 1]],
                sentences=arrays["sentences"][sentences[number] : sentences[number + 1]].astype(np.int64),
                documents=arrays["documents"][documents[number] : documents[number + 1]].astype(np.int64),
                characters=0,  # these were counted
                letters=np.zeros(len(COUNTED_LANGUAGES), np.int64),
                sample=[],
            ),
            bool(_column(piece.figures, "goes_on")[number]),
        )


def _column(figures: Figures, name: str) -> NDArray[np.int64]:
    return figures[:, _FIGURES.index(name)]


def _bounds(figures: Figures, name: str) -> list[int]:
    return [0, *np.cumsum(_column(figures, name)).tolist()]


def write_shards(job: PartsJob, plan: ShardPlan) -> dict[str, Any]:
    """Write the shard of training documents and that of held-out ones, and return their marker."""
    store = job.store()
    if found := _read_marker(store, plan.name, job.key):
        return found
    writer = Writer(store, job.hold_out, job.shard_tokens)
    writer.documents, writer.within = plan.documents, plan.within
    for part, earlier in zip(writer.parts, plan.earlier, strict=True):
        part.earlier = earlier
    for piece in plan.pieces:
        content = store.read(piece.file) if store.exists(piece.file) else b""
        if hashlib.sha256(content).hexdigest() != piece.sha256:
            store.remove(f"{piece.file.rpartition('-')[0]}.json")  # its marker, so that it is made again
            raise InputError(f"{store.at(piece.file)} is damaged. Run the same command again, which repairs it.")
        for block, goes_on in _blocks_of(piece, content):
            writer.add_tokens(block, goes_on)
    counts = sum((count_tokens(one, job.vocabulary_size) for one in writer.parts[0].tokens), start=_none(job))
    writer.write()
    store.write(plan.counts, pack_arrays({"counts": counts})[0])
    marker = {"key": job.key, **{part.name: part.shards for part in writer.parts}}
    store.write_text(f"{plan.name}.json", json.dumps(marker) + "\n")
    return marker


def add_counts(job: PartsJob, names: Sequence[str]) -> NDArray[np.int64]:
    store, total = job.store(), _none(job)
    for name in names:
        total += unpack_arrays(np.frombuffer(store.read(name), np.uint8), name)["counts"]
    return total


def _none(job: PartsJob) -> NDArray[np.int64]:
    return np.zeros(job.vocabulary_size, np.int64)


def _machine() -> str:
    import socket

    return socket.gethostname()


# --- The plan of the shards


@dataclass
class _Open:
    """A shard to which blocks are added."""

    documents: int
    within: int | None
    earlier: tuple[int, int]
    tokens: int = 0
    parts: tuple[bool, bool] = (False, False)  # whether it has training documents, held-out documents


def plan_shards(markers: Iterable[Mapping[str, Any]], hold_out: float, shard_tokens: int) -> list[ShardPlan]:
    """Go over the figures of all blocks as `Writer` goes over the blocks."""
    plans: list[ShardPlan] = []
    pieces: list[Piece] = []
    documents, within = 0, None
    now = _Open(0, None, (0, 0))
    columns = [_FIGURES.index(name) for name in ("tokens", "documents", "goes_on", "filled", "first", "last")]

    def close() -> _Open:
        if not now.tokens:
            return now
        plans.append(ShardPlan(len(plans), tuple(pieces), now.documents, now.within, now.earlier))
        pieces.clear()
        train, valid = (before + has for before, has in zip(now.earlier, now.parts, strict=True))
        return _Open(documents, within, (train, valid))

    for marker in markers:
        for one in marker["pieces"]:
            figures = np.array(one["blocks"], np.int64).reshape(-1, len(_FIGURES))
            piece = Piece(check_name(one["file"]), one["sha256"], figures, 0, 0)
            for number, (tokens, parts, goes_on, filled, first, last) in enumerate(figures[:, columns].tolist()):
                continues = goes_on and within is not None and first
                begun = is_held_out(np.arange(documents, documents + filled - bool(continues)), hold_out)
                held = [*([within] if continues else []), *begun.tolist()]
                now.parts = (now.parts[0] or not all(held), now.parts[1] or any(held))
                documents += len(begun)
                if last:
                    within = int(held[-1])
                elif parts > 1 or not goes_on:
                    within = None
                now.tokens += tokens
                piece = replace(piece, end=number + 1)
                if now.tokens >= shard_tokens:
                    pieces.append(piece)
                    now = close()
                    piece = replace(piece, first=number + 1)
            if piece.first < piece.end:
                pieces.append(piece)
    close()
    return plans


# --- The driver


@dataclass(frozen=True)
class InParts:
    """What `prepare_parts` returns: the shards of each part of the corpus, and figures for the manifest."""

    shards: dict[str, list[dict[str, Any]]]
    counts: dict[str, int]
    token_counts: NDArray[np.int64]
    samples: list[str]


def prepare_parts(job: PartsJob, tasks: Tasks, done: Callable[[float, dict[str, int]], None], sampled: int) -> InParts:
    """Encode all parts and write all shards. `done` is called with the share of the work, and with totals so far."""
    store = open_store(job.out)
    parts = plan_parts(job.sources, job.block_bytes)
    markers = _read_markers(store, [part.name for part in parts], job.key)
    totals = dict.fromkeys(_FIGURES, 0)
    missing = [part for part in parts if part.number not in markers]

    def add(marker: Mapping[str, Any]) -> None:
        for piece in marker["pieces"]:
            for name, total in zip(_FIGURES, np.array(piece["blocks"]).sum(0).tolist(), strict=True):
                totals[name] += total

    for marker in markers.values():
        add(marker)
    done(0.8 * len(markers) / len(parts), totals)
    for number, marker in tasks.map(encode_part, job, missing):
        markers[missing[number].number] = marker
        add(marker)
        done(0.8 * len(markers) / len(parts), totals)
    ordered = [markers[part.number] for part in parts]
    plans = plan_shards(ordered, job.hold_out, job.shard_tokens)
    if not plans:
        return InParts({"train": [], "valid": []}, {}, _none(job), [])
    written = _read_markers(store, [plan.name for plan in plans], job.key)
    absent = [plan for plan in plans if plan.number not in written]
    for number, marker in tasks.map(write_shards, job, absent):
        written[absent[number].number] = marker
        done(0.8 + 0.2 * len(written) / len(plans), totals)
    counted = tasks.map(add_counts, job, list(_batched((plan.counts for plan in plans), _TOGETHER)))
    return InParts(
        {name: [shard for plan in plans for shard in written[plan.number][name]] for name in ("train", "valid")},
        {name: totals[name] for name in _COUNTED},
        sum((counts for _, counts in counted), start=_none(job)),
        [sample for marker in ordered if (sample := marker["sample"])][:sampled],
    )


def remove_parts(store: Store) -> None:
    """Remove the folder of the parts."""
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(store.remove, store.names(WORK)))
    store.remove_folder(WORK)


def _read_marker(store: Store, name: str, key: str) -> dict[str, Any] | None:
    if not store.exists(f"{name}.json"):
        return None
    try:
        found: dict[str, Any] = json.loads(store.read(f"{name}.json"))
    except ValueError as error:
        raise InputError(f"{store.at(f'{name}.json')} is damaged: {error}. Start again with --overwrite.") from None
    return found if found.get("key") == key else None


def _read_markers(store: Store, names: Sequence[str], key: str) -> dict[int, dict[str, Any]]:
    """Return the markers that are there, by number."""
    there = set(store.names(WORK))
    wanted = [(number, name) for number, name in enumerate(names) if f"{name}.json" in there]
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda one: _read_marker(store, one[1], key), wanted))
    return {number: marker for (number, _), marker in zip(wanted, found, strict=True) if marker is not None}
