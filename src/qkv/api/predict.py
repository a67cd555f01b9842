"""Inputs and outputs of predictions: Python objects, texts and files to examples, and files of results.

Files of results are written atomically.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from qkv.api.embedder import html_table
from qkv.api.table_files import TableWriter, format_cell, rename_taken, table_file
from qkv.data.labelled.binary_tables import TABLE_FORMATS
from qkv.data.labelled.examples import Example, Fault, Place, UnlabelledInput, is_two_texts
from qkv.data.labelled.opened import Wanted
from qkv.data.labelled.reader import Labelled, Row, labelled, labelling_for
from qkv.data.readers import STDIN, read_stdin_lines, read_whole
from qkv.errors import InputError
from qkv.tasks.table import AnyTask
from qkv.text.languages import is_language
from qkv.text.tokenizer import Tokenizer

E = TypeVar("E", bound=Example)


def make_examples(kind: type[E], items: Iterable[Any], tokenizer: Tokenizer) -> Iterator[E]:
    """Yield each item as an unlabelled example; an item of another form is an error with its number, from 1."""
    for number, item in enumerate(items, 1):
        example = item.unlabelled() if isinstance(item, kind) else kind.from_python(item)
        if example is None:
            shown = f"a {type(item).__name__}" if isinstance(item, Example) else repr(item)
            shown = shown if len(shown) <= 60 else shown[:57] + "…"
            raise InputError(f"Input {number} is {shown}; this model reads {kind.form}.")
        if name := empty_part(example, tokenizer):
            raise InputError(f"Input {number}: {describe_empty(name)}.")
        yield example


class Predictions(list[Any]):
    """Results of `Model.predict`: a list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [one.to_dict() for one in self[:_SHOWN]]
        names = list({name: None for row in rows for name in row if name not in UNTABLED})
        more = f", the first {_SHOWN}" if len(self) > _SHOWN else ""
        cells = [[format_cell(row.get(name)) for name in names] for row in rows]
        return html_table(names, cells, f"{len(self):,} predictions{more}")


def is_frame(value: Any) -> bool:
    """Whether this is a DataFrame: of pandas or like it."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy") and hasattr(value, "__getitem__")


def frame_inputs(frame: Any, task: str, remembered: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame as inputs: {"text": …}, with "pair", "question" or "choices" if there are any."""
    names = [str(name) for name in frame.columns]
    labelling = labelling_for(task)
    known = {role: name for role, name in remembered.items() if role in labelling.roles}
    wanted = Wanted(Path("the DataFrame"), labelling, {}, needs_labels=False, remembered=known).recall(names)
    columns = labelling.columns(wanted, names, "the DataFrame")
    inputs: dict[str, list[Any]] = {}
    for role in ("text", "context", "pair", "question", "choices"):
        if role in columns:
            parts = [columns[role]] if columns[role] in names else columns[role].split(",")
            cells = [_column(frame, names, part) for part in parts]
            inputs["text" if role == "context" else role] = (
                cells[0] if len(cells) == 1 else [list(row) for row in zip(*cells, strict=True)]
            )
    return [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]


def _column(frame: Any, names: Sequence[str], name: str) -> list[Any]:
    values: list[Any] = frame[frame.columns[names.index(name)]].to_numpy().tolist()
    return values


def is_one_input(inputs: Any, kind: type[Example], paired: bool | None) -> bool:
    """Whether this is a single input; a tuple of two texts is one for a model of text pairs.

    A list is always several inputs, and to a model of single texts (`paired` False) a tuple is, too.
    """
    if isinstance(inputs, tuple):
        return paired is not False and is_two_texts(inputs) and kind.from_python(inputs) is not None
    return isinstance(inputs, str | Mapping | Example)


def empty_part(example: Example, tokenizer: Tokenizer) -> str | None:
    """The name of a part without tokens; None if all parts have some."""
    return next((name for name, text in example.parts().items() if tokenizer.is_empty(text)), None)


def describe_empty(name: str) -> str:
    return f"the {name} is empty (nothing is left of it after tokenization)"


# Files.

_SHOWN = 20  # predictions in a notebook
_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".conll", ".bio", *TABLE_FORMATS)
OPTIONS = {"question": "--question", "pair": "--with", "choices": "--choice"}
NEEDED = {"question": "a question: --question TEXT", "choices": "at least two choices: --choice TEXT --choice TEXT"}
"""Options that go with typed texts, by the fields of an example, and those of them that are required."""
UNTABLED = ("n_best",)  # too much for a cell


class Answered(NamedTuple):
    """One input and its result. A row of a table without a text has no example and no result."""

    place: Place
    record: Mapping[str, Any] | None  # columns or fields of the input; None if it has none
    example: Example | None
    result: Any


class Inputs:
    """Unlabelled examples from any source; `faults` lists what was left out, complete when all were read.

    A text without tokens is left out; a single such line does not stop a file of millions.
    """

    def __init__(self, source: Iterable[Example], tokenizer: Tokenizer, note: str = "") -> None:
        """`note` describes how a file was read."""
        self._source, self._tokenizer, self.note = source, tokenizer, note
        self._own: list[Fault] = []
        self._waiting: deque[tuple[Place, Mapping[str, Any] | None, Example | None]] = deque()

    @property
    def faults(self) -> list[Fault]:
        """The faults in the order of the input, as far as it was read."""
        return sorted([*getattr(self._source, "faults", ()), *self._own], key=lambda fault: fault.place)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a table; () for other sources."""
        return getattr(self._source, "names", ())

    @property
    def has_records(self) -> bool:
        """Whether the rows of the source have columns or fields, which results are written next to."""
        return bool(getattr(self._source, "has_records", False))

    def _rows(self) -> Iterator[Row]:
        if isinstance(self._source, Labelled):
            return self._source.rows()
        return (Row(example.place, None, [example]) for example in self._source)

    def __iter__(self) -> Iterator[Example]:
        self._own = []
        self._waiting.clear()
        for row in self._rows():
            kept = False
            for example in row.examples:
                name = empty_part(example, self._tokenizer)
                if name is None:
                    kept = True
                    unlabelled = example.unlabelled()
                    self._waiting.append((row.place, row.record, unlabelled))
                    yield unlabelled
                else:
                    self._own.append(Fault(example.place, "empty text", describe_empty(name), "dropped"))
            if not kept and row.record is not None:
                self._waiting.append((row.place, row.record, None))

    def join(self, results: Iterable[Any]) -> Iterator[Answered]:
        """Yield the inputs with these results, the next ones in order, and rows without a text where they were."""
        for result in results:
            while self._waiting[0][2] is None:
                yield Answered(*self._waiting.popleft(), None)
            yield Answered(*self._waiting.popleft(), result)

    def rest(self) -> Iterator[Answered]:
        """Yield the rows without a text after the last result."""
        while self._waiting:
            yield Answered(*self._waiting.popleft(), None)


def open_inputs(
    task: AnyTask,
    given: Sequence[str],
    tokenizer: Tokenizer,
    *,
    question: str | None = None,
    pair: str | None = None,
    choices: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    document: bool = False,
    remembered: Mapping[str, str] | None = None,
) -> Inputs:
    """Open what the command line was given: one file, standard input (a text a line), documents, or texts.

    With `document`, and for a folder, each file is one text. A text without tokens is left out and listed; it is an
    error if no other was typed. `remembered` are the columns that the model was trained with.
    """
    folder = len(given) == 1 and is_folder(given[0])
    if document or folder:
        if columns or format:
            raise InputError("Columns and a format are for a file of many texts, not for documents.")
        return Inputs(_examples(task, read_documents(given), question, pair, tuple(choices)), tokenizer)
    if len(given) == 1 and given[0] != STDIN and is_file(given[0]):
        if question or pair or choices:
            raise InputError(
                "--question, --with and --choice go with texts, not with a file of many texts. If the whole file is "
                "one text, add --document."
            )
        source = labelled(
            given[0], task.name, columns=columns, format=format, needs_labels=False, remembered=remembered
        )
        return Inputs(source, tokenizer, source.note)
    for name in given:
        check_is_text(name)
    if columns or format:
        raise InputError(f"Columns and a format are for a file, and '{given[0]}' is not a file.")
    if list(given) == [STDIN]:
        lines = ((Place("standard input", number), line) for number, line in read_stdin_lines() if line.strip())
        return Inputs(_examples(task, lines, question, pair, tuple(choices)), tokenizer)
    if STDIN in given:
        raise InputError("Give - for standard input alone, without other texts.")
    texts = ((Place("", number), text) for number, text in enumerate(given, 1))
    typed = list(_examples(task, texts, question, pair, tuple(choices)))
    names = [empty_part(example, tokenizer) for example in typed]
    if all(names):
        raise InputError(f"Input 1: {describe_empty(names[0] or '')}.")
    return Inputs(typed, tokenizer)


def read_documents(given: Sequence[str]) -> Iterator[tuple[Place, str]]:
    """Yield each file as one text with its name; of a folder every .txt file in it, by name."""
    for name in given:
        if is_folder(name):
            folder = Path(name).expanduser()
            files = sorted(file for file in folder.rglob("*") if file.suffix.lower() == ".txt" and file.is_file())
            if not files:
                raise InputError(f"{name} has no .txt file. Give files, or a folder of .txt files, one document each.")
            yield from ((Place(str(file), 0), read_whole(file)) for file in files)
        else:
            yield Place(name, 0), read_whole(name)


def remembered_columns(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that were named when a model was trained, from the record in its folder."""
    columns = record.get("config", {}).get("data", {}).get("columns") or {}
    return {role: str(name) for role, name in columns.items() if name is not None}


def check_is_text(name: str, languages: bool = False) -> None:
    """Refuse a text that is probably a file name: of a file among others, of a folder, or of a missing file.

    `languages`: files of translators may end in the two letters of a language, news.de.
    """
    if name in (STDIN, ""):  # to a Path, the empty text is the current folder
        return
    if is_file(name):
        raise InputError(f"{name} is a file among other texts. Give one file at a time.")
    if is_folder(name):
        raise InputError(f"{name} is a folder. Give a file of it, or texts.")
    ending = Path(name.removesuffix(".gz").removesuffix(".xz")).suffix.lower()
    known = ending in _ENDINGS or (languages and len(ending) == 3 and is_language(ending.removeprefix(".")))
    if known and " " not in name:
        raise InputError(f"There is no file {name}. (To have its name taken as a text, put a blank behind it.)")


def is_folder(name: str) -> bool:
    return name != "" and len(name) < 1_000 and "\0" not in name and Path(name).expanduser().is_dir()


def is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # a text may be too long for a name, or hold a NUL
        return False


def _examples(
    task: AnyTask, texts: Iterable[tuple[Place, str]], question: str | None, pair: str | None, choices: tuple[str, ...]
) -> Iterator[Example]:
    kind = task.example
    given = {"question": bool(question), "pair": bool(pair), "choices": bool(choices)}
    for name, what in NEEDED.items():
        if name in kind.fields and not (given | {"choices": len(choices) > 1})[name]:
            raise InputError(f"A model for '{task.name}' needs {what}.")
    if wrong := [OPTIONS[name] for name, is_given in given.items() if is_given and name not in kind.fields]:
        raise InputError(f"{' and '.join(wrong)} mean nothing to a model for '{task.name}'.")
    for place, text in texts:
        example = kind.of(UnlabelledInput(text, pair, question or "", choices, place))
        assert example is not None, "it has what it needs"
        yield example


def make_record(example: Example, result: Any) -> dict[str, Any]:
    """Return an input and its result as one object. A document has the name of its file instead of a line."""
    place = example.place
    named = {"line": place.line} if place.line else {"file": place.file} if place.file else {}
    # the "text" of a result is the answer; that of the input is a passage
    return named | example.record() | result.to_dict()


class ResultWriter(AbstractContextManager["ResultWriter"]):
    """Writes results as they come to a .jsonl, .csv, .tsv, .parquet or .xlsx file; the file is complete or absent.

    The rows of a table, and JSON records, keep their columns, in order, before those of the result; their row number is
    in the column "row". `labels` get a column each, "p_" and the label, with its probability.
    """

    def __init__(
        self, path: Path, suffix: str, pairs: bool = True, labels: Sequence[str] = (), inputs: Inputs | None = None
    ) -> None:
        """Without `pairs` a classifier's table has no column for the second text."""
        self.path, self.suffix, self.count, self.empty = path, suffix, 0, 0
        self.renamed: dict[str, str] = {}  # input columns with another name, since a result has theirs
        self._without = set(UNTABLED) if pairs else {*UNTABLED, "pair"}
        self._labels, self._inputs = tuple(labels), inputs
        self._file = table_file(path, suffix)
        self._table: TableWriter
        self._before: list[Answered] = []  # rows without a result before the first one
        self._columns: tuple[dict[str, str], list[str]] | None = None  # input name → output name; result columns
        self._rows = 0

    def __enter__(self) -> Self:
        self._table = self._file.__enter__()
        return self

    def add(self, examples: Sequence[Any], results: Sequence[Any]) -> None:
        if self._inputs is None or not self._inputs.has_records:
            for example, result in zip(examples, results, strict=True):
                self._write_plain(example, result)
            return
        for one in self._inputs.join(results):
            self._write_row(one)

    def _write_plain(self, example: Any, result: Any) -> None:
        line = make_record(example, result)
        shares = self._shares(result.to_dict())
        if self.suffix == ".jsonl":
            self._table.write(line)
        else:
            first = ["file"] if "file" in line else ["line"]
            names = [*first, *example.columns[1:], *result.to_dict()]
            row = {name: line.get(name) for name in names if name not in self._without}
            self._table.write({name: _flat(name, value) for name, value in row.items()} | shares)
        self.count += 1

    def _shares(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Return a column for the probability of each label."""
        found = result.get("probabilities")
        return {f"p_{label}": found.get(label, 0.0) for label in self._labels} if isinstance(found, dict) else {}

    def _write_row(self, one: Answered) -> None:
        if one.result is None and self._columns is None:
            self._before.append(one)
            return
        if self._columns is None:
            self._choose_columns(one)
        assert self._columns is not None
        names, said = self._columns
        self._rows += 1
        result = {} if one.result is None else one.result.to_dict()
        shares = self._shares(result)
        ours: dict[str, Any] = {"row": self._rows, "line": one.place.line}
        found = {name: result.get(name, shares.get(name, ours.get(name))) for name in said}
        record = one.record or {}
        if self.suffix == ".jsonl":
            kept = {new: record[old] for old, new in names.items() if old in record}
            rest = {rename_taken([name], said)[name]: value for name, value in record.items() if name not in names}
            self._table.write(kept | rest | found)
        else:
            kept = {new: record.get(old) for old, new in names.items()}
            self._table.write(kept | {name: _flat(name, value) for name, value in found.items()})
        if one.result is None:
            self.empty += 1
        else:
            self.count += 1

    def _choose_columns(self, first: Answered | None) -> None:
        """Choose the columns by the first result: of the input, label and probability, each label, then the others."""
        assert self._inputs is not None
        said: list[str] = []
        if first is not None:
            result = first.result.to_dict()
            shares = {} if self.suffix == ".jsonl" else self._shares(result)
            lead = [name for name in result if name in ("label", "labels", "probability", "value")]
            others = [name for name in result if name not in lead and (self.suffix == ".jsonl" or name not in UNTABLED)]
            said = [*lead, *shares, *others]
        numbers = ["row", "line"] if self._inputs.names else ["line"]
        said = [*said, *numbers] if self.suffix != ".jsonl" else [*numbers, *said]
        seen = [one.record or {} for one in (*self._before, first) if one is not None]
        held = self._inputs.names or tuple({name: None for record in seen for name in record})
        names = rename_taken(held, said)
        self.renamed = {old: new for old, new in names.items() if old != new}
        self._columns = names, said
        waiting, self._before = self._before, []
        for one in waiting:
            self._write_row(one)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None and self._inputs is not None and self._inputs.has_records:
            try:
                for one in self._inputs.rest():
                    self._write_row(one)
                if self._columns is None:
                    self._choose_columns(None)
            except BaseException as failed:
                self._file.__exit__(type(failed), failed, failed.__traceback__)
                raise
        return self._file.__exit__(kind, error, trace)


def _flat(name: str, value: Any) -> Any:
    """Return a value of a result for a cell: objects and lists as one text."""
    return format_cell(value) if isinstance(value, dict | list | tuple) else value
