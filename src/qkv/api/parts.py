"""The plan of a large job over rows: the parts of its input, and the folder of their results.

A part is a range of rows of one file. Where parts begin is a pure function of the files and of two limits, never of the
machines that do them:

    parquet, Arrow          whole row groups (batches) up to the limits; a larger one is divided
    jsonl, csv, tsv, lines  rows up to the limits; a quoted cell over several lines is one row

Compressed text is divided too, but is unpacked from its beginning for each part. Files that are read whole (xlsx, JSON
documents, CoNLL) are refused. Planning reads every row of a text file as the local verb does, so that a row that cannot
be read is an error before the work; rows of tables are read with their part.

A part's key is a hash of the content of its rows (of a parquet or Arrow file: of the whole file), of where they are in
the input, and of the columns of the table that it belongs to. Its result is written whole (`part-00007.parquet`), then
its marker (`_done/part-00007.json`) with the key, the settings and the hash of the model. A part is done if its marker
says so and its file has the size that the marker states; nothing else is believed. `_summary.json` is written last.

What this file does NOT do: answer rows (part_jobs.py), or run anything anywhere (cluster.py).
"""

import fnmatch
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from qkv.api.table_files import Kinds, PartLayout, add_kinds
from qkv.data.labelled.binary_tables import TABLE_FORMATS, detect_binary, measure_pieces
from qkv.data.labelled.reader import TABLE_ENDINGS, Labelled, Row
from qkv.data.readers import COMPRESSED, RowStart, check_file, open_bytes
from qkv.data.stores import Store, StoredFile, check_name, is_url, open_store, place_of
from qkv.errors import InputError, listed, reading
from qkv.files import sha256_of, to_json

PART_FORMATS = (".parquet", ".jsonl")
"""What parts are written as: the ending of the folder's name, else parquet."""
MOST_ROWS, MOST_BYTES = 8192, 32 << 20
"""Of a part; a row that is larger is one by itself."""
DONE, SUMMARY = "_done", "_summary.json"
_AT_ONCE = 16  # questions to a store
_KEYED = 1  # changed when the same rows would be written in another way
_ENDINGS = {*TABLE_ENDINGS, *TABLE_FORMATS, ".jsonl", ".txt"}


class RowJob(Protocol):
    """What a verb does with the rows of its input: api/part_jobs.py has the three. It is pickled to those who do it."""

    @property
    def verb(self) -> str: ...

    @property
    def reads_documents(self) -> bool:
        """Whether a folder of .txt files is one text a file to this verb."""
        ...

    def settings(self) -> dict[str, Any]:
        """All that results depend on beside the input: the hash of the model, and the options by their names."""
        ...

    def open_file(self, path: Path) -> Labelled: ...

    def check(self, row: Row) -> None:
        """Refuse a row that the verb refuses, as far as that can be said without the model."""
        ...

    def open_model(self) -> "PartAnswerer": ...


class PartAnswerer(Protocol):
    """A model in memory, and how its verb writes the results of some rows."""

    def __call__(self, source: Labelled, layout: PartLayout, out: Path, suffix: str) -> dict[str, Any]:
        """Write the results of all rows of `source`; return facts about them, as JSON has them."""
        ...


# --- Files.


@dataclass(frozen=True)
class RowFile:
    """A file of the input."""

    place: str  # absolute, or a URL
    shown: str | None  # its name in the column `file`; None: it is the only one

    @contextmanager
    def at_hand(self) -> Iterator[Path]:
        """A path of this machine, where the file stays during the block; errors name the file, not a copy of it."""
        if not is_url(self.place):
            yield Path(self.place)
            return
        with _copied(StoredFile(self.place)) as path:
            try:
                yield path
            except InputError as error:
                raise InputError(str(error).replace(str(path), self.place)) from error


@contextmanager
def _copied(stored: StoredFile) -> Iterator[Path]:
    """A copy of an object, which all processes of this machine share while one of them uses it."""
    root = Path(tempfile.gettempdir()) / f"qkv-inputs-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():  # its name can be guessed
        raise InputError(f"{root} belongs to another user. Remove it, or set TMPDIR on that machine.")
    entry = root / hashlib.sha256(f"{stored.url} {stored.version()}".encode()).hexdigest()[:24]
    _remove_unused(root, entry.name)
    with _held(entry) as share:
        path = entry / stored.name
        if not path.is_file():
            entry.mkdir(exist_ok=True)
            open_store(stored.url.removesuffix(f"/{stored.name}")).fetch(stored.name, path)
        share()
        yield path


@contextmanager
def _held(entry: Path, wait: bool = True) -> Iterator[Callable[[], None]]:
    """Hold an entry alone, and from the call of what is yielded on together with others. Without `wait`, an OSError if
    it is held by another process."""
    import fcntl  # not on Windows

    with entry.with_suffix(".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lambda: fcntl.flock(lock, fcntl.LOCK_SH)


def _remove_unused(root: Path, kept: str) -> None:
    """Remove the copies that no process holds; the empty files of their locks stay."""
    for entry in root.iterdir():
        if entry.is_dir() and entry.name != kept:
            with suppress(OSError), _held(entry, wait=False):
                shutil.rmtree(entry, ignore_errors=True)


def find_files(names: Sequence[str], out: str, reads_documents: bool = False) -> list[RowFile]:
    """The files of the input: files, folders and patterns (`data/*.csv`), of this machine or URLs, in the order given;
    those of a folder or a pattern by their names."""
    places: list[str] = []
    for name in names:
        found = _expand(name, reads_documents)
        if not found:
            raise InputError(f"{name} has no file to read: parquet, Arrow, jsonl, csv, tsv or txt.")
        places += found
    target = place_of(out) if is_url(out) else os.path.abspath(place_of(out))
    if inside := next((one for one in places if one.startswith(f"{target}/")), None):
        raise InputError(f"{inside} is in {out}, where the results go. Give another --out.")
    if len(places) == 1:
        return [RowFile(places[0], None)]
    parts = [PurePosixPath(one).parts for one in places]
    above = list(takewhile(lambda ways: len(set(ways)) == 1, zip(*(one[:-1] for one in parts), strict=False)))
    return [RowFile(one, "/".join(own[len(above) :])) for one, own in zip(places, parts, strict=True)]


def _expand(name: str, reads_documents: bool) -> list[str]:
    place = place_of(name)
    is_pattern = any(sign in place for sign in "*?[")
    if is_url(place):
        if is_pattern:
            root = "/".join(place.split("/")[: [any(s in one for s in "*?[") for one in place.split("/")].index(True)])
            store = open_store(root)
            return [url for one in store.names() if fnmatch.fnmatchcase(url := store.at(one), place)]
        above, _, last = place.rpartition("/")
        if open_store(above).size(last) is not None:
            return [place]
        store = open_store(place)
        found = [store.at(one) for one in _data_files(store.names())]
        if not found and not store.names():
            raise InputError(f"There is no file {name}, and no folder of that name.")
        return found
    path = Path(os.path.abspath(place))
    if is_pattern and not path.exists():
        top = Path(*path.parts[: [any(s in one for s in "*?[") for one in path.parts].index(True)])
        return sorted(str(one) for one in top.glob(str(path.relative_to(top))) if one.is_file())
    if not path.is_dir():
        return [str(check_file(path))]
    names = _data_files(sorted(one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()))
    if reads_documents and any(_ending(one) == ".txt" for one in names):
        raise InputError(
            f"{name} has .txt files, each of which is one text to this verb. To read a text a line on a cluster, give "
            f"'{name}/*.txt'; to read each as one text, leave --cluster out."
        )
    return [str(path / one) for one in names]


def _ending(name: str) -> str:
    path = PurePosixPath(name)
    return (PurePosixPath(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def _data_files(names: Sequence[str]) -> list[str]:
    """Without hidden files, and those of other programs that begin with _."""
    return [name for name in names if _ending(name) in _ENDINGS and not any(one[0] in "._" for one in name.split("/"))]


# --- Cuts.


class PartLimits(NamedTuple):
    rows: int = MOST_ROWS
    bytes: int = MOST_BYTES


class _Cut(NamedTuple):
    start: RowStart
    rows: int
    sha256: str  # of its content


@dataclass(frozen=True)
class CutFile:
    """A file of the input, as it was when it was planned."""

    file: RowFile
    size: int
    modified: int | None  # ns; None: of an object, whose copy is named by its version
    sha256: str
    read_as: tuple[str, ...]  # format, columns and remarks: what the reader found at its beginning
    fields: tuple[str, ...]
    open_ended: bool  # JSON lines: rows may have other fields
    types: Mapping[str, Any]  # of pyarrow; {}: its values have kinds instead
    kinds: Kinds
    cuts: tuple[_Cut, ...]

    @property
    def rows(self) -> int:
        return sum(cut.rows for cut in self.cuts)

    @property
    def note(self) -> str:
        """What is unusual about it: "without a header", "read as GB18030"."""
        return self.read_as[-1]


def cut_file(job: RowJob, file: RowFile, limits: PartLimits, suffix: str) -> CutFile:
    """Read a file and divide it. A row that the verb refuses is an error, which names it."""
    with file.at_hand() as path:
        before = _state(path)
        source = job.open_file(path)
        if not source.divides:
            raise InputError(
                f"{path} is read as {source.format}, which can only be read whole. With --cluster give parquet, Arrow, "
                "jsonl, csv, tsv or lines of text."
            )
        kinds: dict[str, set[str]] = {}
        if (format := detect_binary(path)) is not None:
            sha256 = sha256_of(path)
            cuts = [_Cut(RowStart(line), rows, sha256) for line, rows in _cut_table(path, format, limits)]
        else:
            wanted = kinds if suffix == ".parquet" and not source.names else None
            sha256, cuts = _cut_lines(path, _rows(job, source, wanted), limits)
            if source.names:  # cells are texts
                kinds = {name: {"text"} for name in source.names}
        if _state(path) != before:
            raise InputError(f"{path} has changed while it was read. Run the same command again.")
        size, modified = before
        columns = json.dumps(source.columns, ensure_ascii=False)
        read_as = (source.format, columns, *source.fields, source.note)
        known = {name: frozenset(kinds.get(name, ())) for name in source.fields} if not source.types else {}
        own = None if is_url(file.place) else modified
        open_ended = bool(source.fields) and not source.names and not source.types
        return CutFile(file, size, own, sha256, read_as, source.fields, open_ended, source.types, known, tuple(cuts))


def _state(path: Path) -> tuple[int, int]:
    with reading(path):
        found = path.stat()
    return found.st_size, found.st_mtime_ns


def _rows(job: RowJob, source: Labelled, kinds: dict[str, set[str]] | None) -> Iterator[int]:
    """The line of each row, after all that can be checked of it now."""
    for row in source.rows():
        source.faults.clear()  # they would grow with the file
        job.check(row)
        if kinds is not None and row.record is not None:
            add_kinds(kinds, row.record)
        yield row.place.line


def _cut_lines(path: Path, begins: Iterator[int], limits: PartLimits) -> tuple[str, list[_Cut]]:
    """Divide a text, given the line of each of its rows; the file is read a second time, beside them."""
    whole, own = hashlib.sha256(), hashlib.sha256()
    cuts: list[_Cut] = []
    start: RowStart | None = None
    rows = 0
    with open_bytes(path) as stream:
        line, byte = 1, 0
        for begin in begins:
            while line < begin:
                raw = stream.readline()
                whole.update(raw)
                own.update(raw)
                line, byte = line + 1, byte + len(raw)
            if start is not None and (rows >= limits.rows or byte - start.byte >= limits.bytes):
                cuts.append(_Cut(start, rows, own.hexdigest()))
                start = None
            if start is None:
                start, rows, own = RowStart(line, byte), 0, hashlib.sha256()
            rows += 1
        while raw := stream.read(1 << 20):
            whole.update(raw)
            own.update(raw)
    if start is not None:
        cuts.append(_Cut(start, rows, own.hexdigest()))
    return whole.hexdigest(), cuts


def _cut_table(path: Path, format: str, limits: PartLimits) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each part."""
    first, rows, size = 1, 0, 0
    for here, held in measure_pieces(path, format):
        if rows and (rows + here > limits.rows or size + held > limits.bytes):
            yield first, rows
            first, rows, size = first + rows, 0, 0
        rows, size = rows + here, size + held
        most = max(1, min(limits.rows, limits.bytes * rows // max(size, 1)))
        if rows > most:
            yield from ((begin, min(most, first + rows - begin)) for begin in range(first, first + rows, most))
            first, rows, size = first + rows, 0, 0
    if rows:
        yield first, rows


# --- The plan.


@dataclass(frozen=True)
class RowPart:
    """Some rows of a file, and all that whoever answers them must know."""

    number: int
    name: str  # of its result, without an ending
    file: CutFile
    start: RowStart
    rows: int
    layout: PartLayout
    key: str

    def open(self, job: RowJob, path: Path) -> Labelled:
        """Its rows, from its file or a copy of it; refused if that is not the file that was planned."""
        size, modified = _state(check_file(path))
        if size != self.file.size or (self.file.modified is not None and modified != self.file.modified):
            raise InputError(
                f"{path} has changed since the work was planned. Run the same command again: parts whose rows are the "
                "same are kept."
            )
        return job.open_file(path).part(self.start, self.rows)


@dataclass(frozen=True)
class RowPlan:
    suffix: str
    files: tuple[CutFile, ...]
    parts: tuple[RowPart, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


def plan_rows(files: Sequence[CutFile], suffix: str) -> RowPlan:
    """Number the parts of all files, and choose the columns that they have in common."""
    held: tuple[str, ...] = ()
    types: Mapping[str, Any] = {}
    kinds: Kinds = {}
    if suffix == ".parquet" and files:
        held, types, kinds = _common_columns(files)
    total = sum(len(file.cuts) for file in files)
    digits = max(5, len(str(total - 1)))
    parts: list[RowPart] = []
    before = 0
    for file in files:
        about = [*file.read_as, *held, *map(str, types.values()), *(",".join(sorted(one)) for one in kinds.values())]
        for cut in file.cuts:
            layout = PartLayout(held, types, kinds, before, file.file.shown)
            told = [_KEYED, cut.sha256, cut.start.line, cut.rows, before, file.file.shown, suffix, *about]
            key = hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()
            name = f"part-{len(parts):0{digits}}"
            parts.append(RowPart(len(parts), name, file, cut.start, cut.rows, layout, key))
            before += cut.rows
    return RowPlan(suffix, tuple(files), tuple(parts))


def _common_columns(files: Sequence[CutFile]) -> tuple[tuple[str, ...], Mapping[str, Any], Kinds]:
    """The columns of a table from several files: those of each; of JSON lines, whose fields differ, those of all."""
    first = files[0]
    if all(file.open_ended for file in files):
        held = tuple({name: None for file in files for name in file.fields})
        none: frozenset[str] = frozenset()
        return held, {}, {name: none.union(*(file.kinds.get(name, none) for file in files)) for name in held}
    for file in files[1:]:
        if (file.fields, file.open_ended) != (first.fields, first.open_ended):
            raise InputError(
                f"{first.file.place} has {_columns(first)}, and {file.file.place} has {_columns(file)}: they do not "
                "fit in one table. Give them apart, or write JSON lines: --out NAME.jsonl."
            )
        for name in first.fields:
            one, other = first.types.get(name, "text"), file.types.get(name, "text")
            if one != other:
                raise InputError(
                    f"The column {name!r} holds {one} in {first.file.place} and {other} in {file.file.place}. Give "
                    "them apart, or write JSON lines: --out NAME.jsonl."
                )
    return first.fields, first.types, first.kinds


def _columns(file: CutFile) -> str:
    return f"the columns {listed(map(repr, file.fields))}" if file.fields else "lines of text"


# --- The folder of results.


def suffix_of_parts(out: str) -> str:
    """The format of the parts, by the name of their folder: `answers.jsonl` for JSON lines, else parquet."""
    suffix = PurePosixPath(place_of(out)).suffix.lower()
    if suffix in PART_FORMATS:
        return suffix
    if suffix in (".csv", ".tsv", ".xlsx", ".txt", ".npy"):
        raise InputError(
            f"With --cluster, --out is a folder of parts, in parquet or, if its name ends in .jsonl, JSON lines; "
            f"'{PurePosixPath(out).name}' looks like a {suffix} file."
        )
    return ".parquet"


@dataclass(frozen=True)
class PartFolder:
    """Results and markers of parts, in a folder of this machine (or NFS) or of an object store."""

    out: str
    suffix: str
    settings: Mapping[str, Any]

    @cached_property
    def store(self) -> Store:
        return open_store(self.out)

    def file_of(self, part: RowPart) -> str:
        return f"{part.name}{self.suffix}"

    def check_target(self) -> dict[str, dict[str, Any]]:
        """The markers that are there, by the name of their part; a folder of other things is refused, and so is one
        with results of another command, which is named."""
        if not self.store.is_local and not self.store.is_shared:
            raise InputError(f"{self.out} is in the memory of this process, where no other can write. Give a folder.")
        if self.store.is_local and Path(self.store.where).is_file():
            raise InputError(f"{self.out} is a file. With --cluster, --out is a folder, new or of the same command.")
        names = self.store.names() if not self.store.is_local or Path(self.store.where).is_dir() else []
        markers = self._read_markers([name for name in names if name.startswith(f"{DONE}/") and name.endswith(".json")])
        others = [
            name for name in names if not name.startswith((f"{DONE}/", "part-")) and name not in (SUMMARY, ".lock")
        ]
        if others or (names and not markers and any(name.startswith("part-") for name in names)):
            raise InputError(f"{self.out} is not empty: it has {listed(others or names, 3)}. Give another --out.")
        for marker in markers.values():
            self._check_same(marker["settings"])
        return markers

    def _read_markers(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """By the name of their part; a damaged one is left out, so that its part is done again."""

        def read(name: str) -> dict[str, Any] | None:
            try:
                found = json.loads(self.store.read(name))
                return found if isinstance(found, dict) and {"key", "bytes", "settings"} <= set(found) else None
            except (UnicodeDecodeError, json.JSONDecodeError):
                return None

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = list(threads.map(read, names))
        return {PurePosixPath(name).stem: one for name, one in zip(names, found, strict=True) if one is not None}

    def _check_same(self, earlier: Mapping[str, Any]) -> None:
        now = json.loads(json.dumps(self.settings))
        for name in {**earlier, **now}:
            old, new = earlier.get(name), now.get(name)
            if old == new:
                continue
            if name == "model_sha256":
                raise InputError(
                    f"{self.out} has parts that another model has answered: the files of the model are not the same. "
                    "Give another --out, or the model as it was."
                )
            raise InputError(
                f"{self.out} has parts of another command: {name} was {_shown(old)} and is {_shown(new)} now. Give "
                "another --out, or the same options."
            )

    def take_over(self, plan: RowPlan, markers: Mapping[str, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """The markers of parts of this plan that are done, by number. Results of other rows are removed, unless all
        are: then this is another input, which is an error."""
        marked = [part for part in plan.parts if part.name in markers]
        with ThreadPoolExecutor(_AT_ONCE) as threads:  # a question to an object store takes long
            found = list(threads.map(lambda part: self.store.size(self.file_of(part)), marked))
        sizes = {part.number: size for part, size in zip(marked, found, strict=True)}
        done = {
            number: marker
            for number, size in sizes.items()
            if (marker := markers[plan.parts[number].name])["key"] == plan.parts[number].key and marker["bytes"] == size
        }
        kept = {plan.parts[number].name for number in done}
        stale = [name for name in markers if name not in kept]
        keys = {part.name: part.key for part in plan.parts}
        changed = [name for name, marker in markers.items() if marker["key"] != keys.get(name)]
        if changed and (len(changed) == len(markers) or self.store.exists(SUMMARY)):
            raise InputError(
                f"{self.out} has the results of other rows: the input has changed since they were written. Give "
                "another --out, or remove that folder."
            )
        for name in stale:
            self.store.remove(f"{DONE}/{name}.json")  # first: without a marker the file is nothing
        known = {self.file_of(plan.parts[number]) for number in done}
        for name in self.store.names() if markers else []:
            if name.startswith("part-") and name not in known:
                self.store.remove(name)
        return done

    def write(self, job: RowJob, answer: PartAnswerer, part: RowPart) -> dict[str, Any]:
        """Answer a part, write its results and then its marker, and return it."""
        with part.file.file.at_hand() as path:
            source = part.open(job, path)
            name = check_name(self.file_of(part))
            if self.store.is_local:
                file = Path(self.store.where) / name
                facts = answer(source, part.layout, file, self.suffix)
                sha256, size = sha256_of(file), file.stat().st_size
            else:
                with tempfile.TemporaryDirectory(prefix="qkv-part-") as folder:
                    file = Path(folder) / name
                    facts = answer(source, part.layout, file, self.suffix)
                    sha256, size = sha256_of(file), file.stat().st_size
                    self.store.put(name, file)
            part.open(job, path)  # it has not changed meanwhile
        marker = {
            "key": part.key,
            "file": name,
            "rows": part.rows,
            "bytes": size,
            "sha256": sha256,
            "facts": facts,
            "settings": dict(self.settings),
        }
        self.store.write_text(f"{DONE}/{part.name}.json", to_json(marker))
        return marker

    def remove_drafts(self) -> None:
        """Remove what processes that were killed had begun to write."""
        if self.store.is_local:
            for draft in Path(self.store.where).glob(".part-*.part*"):
                draft.unlink(missing_ok=True)

    def finish(self, plan: RowPlan, markers: Mapping[int, Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
        """Write the summary of what is done; it has no times, so that it is the same however the work went."""
        files = [
            {"file": one.file.place, "bytes": one.size, "sha256": one.sha256, "rows": one.rows} for one in plan.files
        ]
        parts = [
            {name: markers[part.number][name] for name in ("file", "rows", "bytes", "sha256")} for part in plan.parts
        ]
        document = {"settings": dict(self.settings), **facts, "inputs": files, "parts": parts}
        self.store.write_text(SUMMARY, to_json(document))


def _shown(value: Any) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def hash_model(folder: Path) -> str:
    """The hash of a model folder: of all its files, but for those that people read and hidden ones."""
    found = hashlib.sha256()
    with reading(folder):
        files = [folder] if folder.is_file() else sorted(one for one in folder.rglob("*") if one.is_file())
        for file in files:
            name = file.relative_to(folder.parent if folder.is_file() else folder).as_posix()
            if file.suffix not in (".md", ".html", ".log") and not any(one.startswith(".") for one in name.split("/")):
                found.update(f"{name} {sha256_of(file)}\n".encode())
    return found.hexdigest()
