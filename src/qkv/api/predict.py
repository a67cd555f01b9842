"""Inputs and outputs of predictions: Python objects, texts and files to examples, and files of results.

Files of results are written atomically.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from qkv.api.embedder import html_table, is_missing
from qkv.api.table_files import Columns, PartLayout, TableWriter, find_kinds, format_cell, table_file
from qkv.data.labelled.binary_tables import TABLE_FORMATS
from qkv.data.labelled.examples import Example, Fault, Place, UnlabelledInput, is_two_texts
from qkv.data.labelled.opened import Wanted
from qkv.data.labelled.reader import Labelled, Row, labelled, labelling_for
from qkv.data.readers import STDIN, check_file, read_stdin_lines, read_whole
from qkv.errors import InputError, listed
from qkv.tasks.table import AnyTask
from qkv.text.languages import is_language
from qkv.text.tokenizer import Tokenizer

E = TypeVar("E", bound=Example)
_T = TypeVar("_T")


def make_examples(
    kind: type[E], items: Iterable[Any], tokenizer: Tokenizer, gaps: list[int] | None = None
) -> Iterator[E]:
    """Yield each item as an unlabelled example; an item of another form is an error with its number, from 1.

    An item without a text is an error, too; or its index is added to `gaps`, and it is left out.
    """
    for number, item in enumerate(items, 1):
        if gaps is not None and lacks_text(item):
            gaps.append(number - 1)
            continue
        example = item.unlabelled() if isinstance(item, kind) else kind.from_python(item)
        if example is None:
            shown = f"a {type(item).__name__}" if isinstance(item, Example) else repr(item)
            shown = shown if len(shown) <= 60 else shown[:57] + "…"
            raise InputError(f"Input {number} is {shown}; this model reads {kind.form}.")
        if name := empty_part(example, tokenizer):
            if gaps is None:
                raise InputError(f"Input {number}: {describe_empty(name)}.")
            gaps.append(number - 1)
            continue
        yield example


def lacks_text(item: Any) -> bool:
    """Whether a table has no value here, or only spaces, or so for one of two texts."""
    if isinstance(item, list | tuple) and len(item) == 2:
        return any(map(lacks_text, item))
    return not item.strip() if isinstance(item, str) else is_missing(item)


def fill_gaps(found: Iterable[_T], gaps: Collection[int]) -> list[_T | None]:
    """What was found for the items that are not at these indices, and None for those that are.

    >>> fill_gaps("ab", [0, 2])
    [None, 'a', None, 'b']
    """
    results = list(found)
    rest, missing = iter(results), set(gaps)
    return [None if index in missing else next(rest) for index in range(len(results) + len(missing))]


class Predictions(list[Any]):
    """Results of `Model.predict`, None for an input without a text: a list that a notebook shows as a table. `columns`
    are those of a DataFrame, and `frame_index` is its index."""

    def __init__(
        self, results: Iterable[Any] = (), columns: Mapping[str, str] | None = None, frame_index: Any = None
    ) -> None:
        super().__init__(results)
        self.columns, self.frame_index = dict(columns or {}), frame_index

    def to_pandas(self) -> Any:
        """A DataFrame with one row per input, without a value where the input had no text: `frame.join` adds it to the
        one that was asked."""
        rows = [{} if one is None else one.to_dict() for one in self]
        return import_module("pandas").DataFrame(rows, index=self.frame_index)

    def _repr_html_(self) -> str:
        rows = [{} if one is None else one.to_dict() for one in self[:_SHOWN]]
        names = list({name: None for row in rows for name in row if name not in UNTABLED})
        more = f", the first {_SHOWN}" if len(self) > _SHOWN else ""
        cells = [[format_cell(_flat(row.get(name))) for name in names] for row in rows]
        return html_table(names, cells, f"{len(self):,} predictions{more}")


_INPUT_ROLES = ("text", "context", "pair", "question", "choices")


def is_frame(value: Any) -> bool:
    """Whether this is a DataFrame: of pandas or like it."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy") and hasattr(value, "__getitem__")


def frame_inputs(
    frame: Any, task: str, remembered: Mapping[str, str]
) -> tuple[list[dict[str, Any] | None], dict[str, str]]:
    """Return the rows of a DataFrame as inputs, {"text": …}, with "pair", "question" or "choices" if there are any,
    None where a value is missing; and the columns that they are from."""
    names = [str(name) for name in frame.columns]
    labelling = labelling_for(task)
    known = {role: name for role, name in remembered.items() if role in labelling.roles}
    wanted = Wanted(Path("the DataFrame"), labelling, {}, needs_labels=False, remembered=known).recall(names)
    columns = labelling.columns(wanted, names, "the DataFrame")
    inputs: dict[str, list[Any]] = {}
    for role in _INPUT_ROLES:
        if role in columns:
            parts = [columns[role]] if columns[role] in names else columns[role].split(",")
            cells = [frame[frame.columns[names.index(part)]].to_numpy().tolist() for part in parts]
            inputs["text" if role == "context" else role] = (
                cells[0] if len(cells) == 1 else [list(row) for row in zip(*cells, strict=True)]
            )
    rows = [_frame_input(dict(zip(inputs, row, strict=True))) for row in zip(*inputs.values(), strict=True)]
    return rows, {role: name for role, name in columns.items() if role in _INPUT_ROLES}


def _frame_input(row: dict[str, Any]) -> dict[str, Any] | None:
    """A row of a DataFrame; None if what a model must read is missing. As in files, a question with choices needs no
    text, and fewer choices than there are columns leave the last ones empty."""
    if isinstance(choices := row.get("choices"), list):
        while choices and is_missing(choices[-1]):
            choices = choices[:-1]
        row = {role: "" if is_missing(value) else value for role, value in row.items()} | {"choices": choices}
    missing = any(map(is_missing, [*row.values(), *(choices if isinstance(choices, list) else ())]))
    return None if missing or choices == [] else row


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
_LISTED = 20  # inputs without a text, of which the others are counted
_FIRST = ("label", "labels", "value", "probability")
_LISTS = (dict, list, tuple)
_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".conll", ".bio", *TABLE_FORMATS)
OPTIONS = {"question": "--question", "pair": "--with", "choices": "--choice"}
NEEDED = {"question": "a question: --question TEXT", "choices": "at least two choices: --choice TEXT --choice TEXT"}
"""Options that go with typed texts, by the fields of an example, and those of them that are required."""
UNTABLED = ("n_best",)  # too much for a cell


class Answered(NamedTuple):
    """One input and its result. A row without a text has no example and no result."""

    place: Place
    record: Mapping[str, Any] | None  # columns or fields of the input; None if it has none
    example: Example | None
    result: Any


class Inputs:
    """Unlabelled examples from any source, in bounded memory.

    A text without tokens is left out; a single such line does not stop a file of millions. `faults` are the first of
    those, `n_left_out` is their number; both are complete when all inputs were read.
    """

    def __init__(self, source: Iterable[Example] | Iterable[Row], tokenizer: Tokenizer, note: str = "") -> None:
        """`note` describes how a file was read, or what of a folder is not."""
        self._source, self._tokenizer, self.note = source, tokenizer, note
        self.faults: list[Fault] = []
        self.n_left_out = 0
        self.keeps_rows = False  # for `join`
        self._waiting: deque[Answered] = deque()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a table, the fields at the beginning of JSON records; () for other sources."""
        return getattr(self._source, "fields", ())

    @property
    def is_table(self) -> bool:
        return bool(getattr(self._source, "names", ()))

    @property
    def is_files(self) -> bool:
        return isinstance(self._source, Documents)

    @property
    def types(self) -> Mapping[str, Any]:
        """The types of the columns of a parquet or Arrow file."""
        return getattr(self._source, "types", {})

    @property
    def has_records(self) -> bool:
        """Whether a row without a text is written without a result: rows of tables, JSON records, files."""
        return bool(getattr(self._source, "has_records", False)) or self.is_files

    def _rows(self) -> Iterator[Row]:
        source = self._source.rows() if isinstance(self._source, Labelled) else self._source
        for row in source:
            yield row if isinstance(row, Row) else Row(row.place, None, [row])

    def __iter__(self) -> Iterator[Example]:
        self.faults, self.n_left_out = [], 0
        self._waiting.clear()
        for row in self._rows():
            self._note_faults()
            kept = False
            for example in row.examples:
                name = empty_part(example, self._tokenizer)
                if name is None:
                    kept = True
                    unlabelled = example.unlabelled()
                    if self.keeps_rows:
                        self._waiting.append(Answered(row.place, row.record, unlabelled, None))
                    yield unlabelled
                else:
                    self._leave_out(Fault(example.place, "empty text", describe_empty(name), "dropped"))
            if self.keeps_rows and not kept and row.record is not None:
                self._waiting.append(Answered(row.place, row.record, None, None))
        self._note_faults()

    def _note_faults(self) -> None:
        """Take over the faults of the file, which would grow with it."""
        if isinstance(self._source, Labelled):
            for fault in self._source.faults:
                self._leave_out(fault)
            self._source.faults.clear()

    def _leave_out(self, fault: Fault) -> None:
        if fault.action == "dropped":
            self.n_left_out += 1
            if len(self.faults) < _LISTED:
                self.faults.append(fault)

    def join(self, results: Iterable[Any]) -> Iterator[Answered]:
        """Yield the inputs with these results, the next ones in order, and rows without a text where they were."""
        for result in results:
            while self._waiting[0].example is None:
                yield self._waiting.popleft()
            yield self._waiting.popleft()._replace(result=result)

    def rest(self) -> Iterator[Answered]:
        """Yield the rows without a text after the last result."""
        while self._waiting:
            yield self._waiting.popleft()


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
        documents = Documents(given, task, question, pair, tuple(choices))
        return Inputs(documents, tokenizer, documents.note)
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


class Documents:
    """Files as one text each; of a folder every .txt file in it, by name."""

    def __init__(
        self, given: Sequence[str], task: AnyTask, question: str | None, pair: str | None, choices: tuple[str, ...]
    ) -> None:
        self._asked = task, question, pair, choices
        self._files: list[Path] = []
        others: list[str] = []
        for name in given:
            if not is_folder(name):
                self._files.append(check_file(name))
                continue
            texts, left = list_documents(name)
            self._files += texts
            others += left
        self.note = (
            f"files that do not end in .txt and are not read: {len(others):,} ({listed(others, 5)})" if others else ""
        )

    def __iter__(self) -> Iterator[Row]:
        for file in self._files:
            place = Place(str(file), 0)
            examples = _examples(self._asked[0], [(place, read_whole(file))], *self._asked[1:])
            yield Row(place, {"file": str(file)}, list(examples))


def list_documents(name: str) -> tuple[list[Path], list[str]]:
    """The .txt files of a folder, by name, and the names of its other files."""
    folder = Path(name).expanduser()
    found = sorted(one for one in folder.rglob("*") if one.is_file() and not one.name.startswith("."))
    texts = {file: None for file in found if file.suffix.lower() == ".txt"}
    if not texts:
        raise InputError(f"{name} has no .txt file. Give files, or a folder of .txt files, one document each.")
    return list(texts), [str(file.relative_to(folder)) for file in found if file not in texts]


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
    return name != "" and _is_path(name, Path.is_dir)


def is_file(name: str) -> bool:
    return _is_path(name, Path.is_file)


def _is_path(name: str, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(Path(name).expanduser())
    except (OSError, ValueError, RuntimeError):  # a text may be too long for a name, hold a NUL, or begin with ~
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

    Every row has the columns of the input (the text, if it is no table), then where it was (row, line), the result
    (label, probability, "p_" and each of `labels`), and further facts. Rows of tables, JSON records and documents
    without a text stay, without a result.
    """

    def __init__(
        self, path: Path, suffix: str, pairs: bool = True, labels: Sequence[str] = (), inputs: Inputs | None = None
    ) -> None:
        """Without `pairs` a classifier's table has no column for the second text."""
        self.path, self.suffix, self.count, self.empty = path, suffix, 0, 0
        self.columns: Columns | None = None
        self._pairs, self._labels, self._inputs = pairs, tuple(labels), inputs
        if inputs is not None:
            inputs.keeps_rows = True
        self._file = table_file(path, suffix)
        self._table: TableWriter
        self._before: list[Answered] = []  # rows without a result before the first one
        self._said: list[str] = []  # columns of the result
        self._rows = 0
        self._shown_file: str | None = None

    def __enter__(self) -> Self:
        self._table = self._file.__enter__()
        return self

    def lay_out(self, layout: PartLayout, example: Example, result: Any) -> None:
        """Choose the columns before the first row, by an example and its result that are not written: this file is a
        part of a table."""
        self._rows, self._shown_file = layout.before, layout.file
        one = Answered(Place(layout.file or "", 1), None, example, result)
        self._choose_columns(one, layout)

    def add(self, examples: Sequence[Any], results: Sequence[Any]) -> None:
        if self._inputs is None:
            found = zip(examples, results, strict=True)
            answered: Iterable[Answered] = (Answered(one.place, None, one, result) for one, result in found)
        else:
            answered = self._inputs.join(results)
        for one in answered:
            self._write(one)

    def facts(self) -> dict[str, Any]:
        """What was written, for a program."""
        renamed, lost = ({}, []) if self.columns is None else (self.columns.renamed, list(self.columns.lost))
        return {
            "out": str(self.path), "n_results": self.count, "n_empty": self.empty, "renamed": renamed, "lost": lost
        }  # fmt: skip

    def _write(self, one: Answered) -> None:
        if self.columns is None and one.result is None:
            self._before.append(one)
            return
        if self.columns is None:
            self._choose_columns(one)
        assert self.columns is not None
        self._rows += 1
        result = self._result(one.result)
        found = {"file": self._shown_file, "row": self._rows, "line": one.place.line or None} | result
        ours = {name: found.get(name) for name in self._said}
        self._table.write(self.columns.join(self._record(one), ours))
        if one.result is None:
            self.empty += 1
        else:
            self.count += 1

    def _result(self, result: Any) -> dict[str, Any]:
        """Return a result as columns: label and probability, the probability of each label, then the others."""
        if result is None:
            return {}
        found = result.to_dict()
        if self.suffix == ".jsonl":
            return dict(found)
        shares = found.get("probabilities")
        columns = {}
        if self._labels and isinstance(shares, dict):
            columns = {f"p_{label}": shares.get(label, 0.0) for label in self._labels}
            del found["probabilities"]
        lead = {name: found.pop(name) for name in _FIRST if name in found}
        return {name: _flat(value) for name, value in (lead | columns | found).items() if name not in UNTABLED}

    def _record(self, one: Answered) -> Mapping[str, Any]:
        if one.record is not None:
            return one.record
        assert one.example is not None, "an input without a record and without a text is left out"
        named: dict[str, Any] = dict.fromkeys(one.example.columns[1:]) if self.suffix != ".jsonl" else {}
        if not self._pairs:
            named.pop("pair", None)
        return named | one.example.record()

    def _choose_columns(self, first: Answered | None, layout: PartLayout | None = None) -> None:
        """Choose the columns by the first row with a result, if there is one."""
        is_table = self._inputs is not None and self._inputs.is_table
        is_files = self._inputs is not None and self._inputs.is_files
        numbers = ["row", "line"] if is_table else [] if is_files else ["line"]
        if self._shown_file is not None:
            numbers = ["file", *numbers]
        result = self._result(first.result) if first is not None else {}
        self._said = [*numbers, *result]
        seen = [self._record(one) for one in (*self._before, first) if one is not None]
        held = (self._inputs.names if self._inputs else ()) or tuple({name: None for one in seen for name in one})
        held = tuple(layout.held) if layout is not None and layout.held else held
        self.columns = Columns(held, self._said, open_ended=self.suffix == ".jsonl")
        if self._inputs is not None:
            self._table.types = self.columns.rename(self._inputs.types)
        if layout is not None:
            known = layout.kinds if layout.held else find_kinds(seen)
            ours = find_kinds([{"file": "", "row": 1, "line": 1} | result])
            self._table.types = self.columns.rename(layout.types)
            self._table.kinds = self.columns.kinds(known, ours)
        waiting, self._before = self._before, []
        for one in waiting:
            self._write(one)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None and self._inputs is not None:
            try:
                for one in self._inputs.rest():
                    self._write(one)
                if self.columns is None:
                    self._choose_columns(None)
            except BaseException as failed:
                self._file.__exit__(type(failed), failed, failed.__traceback__)
                raise
        return self._file.__exit__(kind, error, trace)


def _flat(value: Any) -> Any:
    """Return a value of a result for a cell: rounded numbers; objects and lists as one text."""
    return round(value, 6) if isinstance(value, float) else format_cell(value) if isinstance(value, _LISTS) else value
