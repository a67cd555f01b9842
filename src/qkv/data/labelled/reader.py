"""Read labelled files of any supported format as examples with file and line.

>>> labelled("train.tsv", "classify").describe()                                             # doctest: +SKIP
"tsv, text = 'sentence', label = 'label'"

The format is detected, columns are found by their usual names (tables.py), and `describe` states both.
Files are streamed, again for each iteration; only a JSON document is in memory. A file that cannot be used is an
`InputError`; dropped and repaired examples are in `faults`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import qkv.data.labelled.annotation_files as annotation_files
import qkv.data.labelled.question_files as question_files
import qkv.data.labelled.record_files as text_records
from qkv.data.labelled.binary_tables import detect_binary, open_record_table, open_sheet
from qkv.data.labelled.column_files import looks_like_columns, normalise_tag, open_columns
from qkv.data.labelled.examples import (
    AnswerExample,
    ChoiceExample,
    Example,
    Fault,
    Place,
    TagExample,
    TextExample,
    UnlabelledInput,
    place_at,
)
from qkv.data.labelled.json_values import Value, container_of, read_json_values
from qkv.data.labelled.opened import (
    ROLES,
    Beginning,
    BrokenUnit,
    Labelling,
    NoFieldError,
    OpenedFile,
    ReportFault,
    Wanted,
    checked_lines,
    empty_text_fault,
    read_beginning,
)
from qkv.data.labelled.record_files import open_json, open_records, open_table
from qkv.data.labelled.tables import (
    SPAN_NAMES,
    USUAL_NAMES,
    column_key,
    detect_sheet,
    detect_table,
    find_choice_columns,
    guess_columns,
)
from qkv.data.readers import FIRST_ROW, AnyPath, RowStart, check_file, encoding_note
from qkv.errors import InputError, did_you_mean

UNUSABLE = "unusable"  # kind of fault for an InputError in lenient mode
_LABEL_ROLES = ("label", "answer")  # columns that hold what is to be predicted


class RowError(InputError):
    """One row cannot be used; the others may be (`lenient`)."""


class Row(NamedTuple):
    place: Place
    record: Mapping[str, Any] | None  # its columns or fields; None if the format has none
    examples: list[Example]


class Labelled:
    """The examples of one file; each iteration starts from the beginning.

    `faults` are those of the latest iteration, complete when it has ended.
    """

    def __init__(
        self, path: Path, task: str, opened: OpenedFile, lenient: bool = False, needs_labels: bool = True
    ) -> None:
        """`lenient`: an unusable row is a fault instead of an error; without labels, so is one without a text."""
        self.path, self.task = path, task
        self.format, self.columns, self.unit = opened.format, opened.columns, opened.unit
        self.names = opened.names  # of a table's columns; () for other files
        self.fields, self.types = opened.fields, opened.types
        self.faults: list[Fault] = []
        self._opened, self._lenient, self._needs_labels = opened, lenient, needs_labels

    def __iter__(self) -> Iterator[Example]:
        return (example for row in self.rows() for example in row.examples)

    def rows(self) -> Iterator["Row"]:
        """Yield every row, record or sentence with its examples: none if it was dropped."""
        self.faults = []
        return self._rows(self.faults)

    @property
    def divides(self) -> bool:
        """Whether a part of the file can be read without what is before it."""
        return self._opened.units_from is not None

    def part(self, start: RowStart, rows: int) -> "Labelled":
        """So many rows from one on, as they are read in the whole file."""
        read = self._opened.units_from
        assert read is not None, "it divides"
        opened = self._opened._replace(units=lambda: islice(read(start), rows))
        return Labelled(self.path, self.task, opened, self._lenient, self._needs_labels)

    @property
    def note(self) -> str:
        """What is unusual about the file: "without a header", "read as GB18030"."""
        return self._opened.note

    @property
    def has_records(self) -> bool:
        """Whether rows have columns or fields of their own."""
        return self._opened.record is not None

    def _rows(self, faults: list[Fault]) -> Iterator["Row"]:
        convert, record = self._opened.convert, self._opened.record
        fits = False  # a labelled example was read, so the task fits; or another task was already suggested
        for number, unit in self._opened.units():
            place = place_at(str(self.path), number, self.unit)
            examples: list[Example] = []
            try:
                if isinstance(unit, BrokenUnit):
                    raise unit.error
                for example in convert(number, unit, faults.append):
                    fits = fits or bool(example.counted())  # an empty list may be labels or spans
                    examples.append(self._weighted(example, unit))
            except InputError as error:
                if isinstance(error, NoFieldError) and not self._needs_labels:
                    faults.append(Fault(place, "empty text", str(error), "dropped"))
                    yield Row(place, None if record is None else record(unit), [])
                    continue
                message = str(error) if fits else f"{error}{_other_task(self.path, self.task)}"
                fits = True
                if not self._lenient:
                    yield Row(place, None, examples)
                    raise RowError(message) from error
                faults.append(Fault(place, UNUSABLE, message, "dropped"))
            yield Row(place, None if record is None or isinstance(unit, BrokenUnit) else record(unit), examples)

    def _weighted(self, example: Example, unit: Any) -> Example:
        """The example with the weight of its row, if a column has weights."""
        column, record = self.columns.get("weight"), self._opened.record
        if column is None or record is None or not isinstance(example, TextExample | TagExample):
            return example
        return replace(example, weight=read_weight(record(unit).get(column), example.place, column))

    def describe(self, *roles: str) -> str:
        """Return the format and the columns (of these roles, else all) in one line, for people."""
        numbered = self.format == "conll" or "without a header" in self._opened.note
        shown = {role: name for role, name in self.columns.items() if not roles or role in roles}
        columns = [f"{role} = {f'column {name}' if numbered else repr(name)}" for role, name in shown.items()]
        return ", ".join([f"{self.format} {self._opened.note}".rstrip(), *columns])


def read_weight(value: Any, place: Place, column: str) -> float:
    """
    >>> read_weight("0.5", Place("f", 1), "w")
    0.5
    """
    try:
        weight = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise InputError(f"{place}: the weight in {column!r} is {value!r:.40}; a weight is a number, 0 or more.")
    return weight


def labelled(
    path: AnyPath,
    task: str | Labelling,
    *,
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    separator: str | None = None,
    needs_labels: bool = True,
    lenient: bool = False,
    remembered: Mapping[str, str] | None = None,
) -> Labelled:
    """Open a file for a task: "classify", "tag", "answer" or "choice"; or for examples of another kind.

    `columns` are the columns by role ({"text": "评论", "label": "3"}): a name of the header, or a number from 1.
    `separator` separates several labels in one cell, as in "sport|music". Without `needs_labels` a file may have no
    labels, and may be plain lines of text. `remembered` are columns that a model was trained with: they are used where
    the file has them and none was given.
    """
    labelling = labelling_for(task) if isinstance(task, str) else task
    file = check_file(path)
    known = {role: name for role, name in (remembered or {}).items() if role in labelling.roles and role != "weight"}
    if not needs_labels:
        known = {role: name for role, name in known.items() if role not in _LABEL_ROLES}
    given = _check_roles(columns or {}, labelling)
    wanted = Wanted(file, labelling, given, needs_labels, separator, remembered=known)
    try:
        opened = _open_file(wanted, format)
    except InputError as error:
        if needs_labels and format is None:
            raise InputError(f"{error}{_other_task(file, labelling.task)}") from error
        raise
    if "weight" in given and (opened.record is None or "weight" not in opened.columns):
        raise InputError(
            f"{file} is read as {opened.format}, which has no column of weights: give a table or jsonl, or leave "
            "--weight out."
        )
    if note := encoding_note(file):
        opened = opened._replace(note=", ".join(filter(None, [opened.note, note])))
    return Labelled(file, labelling.task, opened, lenient, needs_labels)


def _other_task(path: Path, task: str) -> str:
    """Return a hint to another task for which the file can be read, or ""; texts to compare are none of the tasks."""
    if task not in LABELLINGS:
        return ""
    try:
        other = guess_task(path)
        if other is None or other == task:
            return ""
        labelling, source = LABELLINGS[other], labelled(path, other)
        first = next(iter(source), None)
    except InputError:
        return ""
    if first is None:
        return ""
    stated = [] if labelling.spans or first.several else [part for label in first.labels() for part in label.split()]
    if stated and all(map(normalise_tag, stated)):
        return ""  # tags of words in a cell: the task is right, and something else is wrong
    return f" This looks like {labelling.about} ({source.format}): use the task {other} (qkv finetune {other} …)."


def _check_roles(columns: Mapping[str, str], labelling: Labelling) -> dict[str, str]:
    for role in columns:
        if role not in labelling.roles:
            known = did_you_mean(role, labelling.roles) if role not in ROLES else ""
            raise InputError(
                f"The task '{labelling.task}' has no column '{role}'.{known} It has {', '.join(labelling.roles)}."
            )
    return {role: str(value) for role, value in columns.items()}


def _open_file(wanted: Wanted, format: str | None) -> OpenedFile:
    found = check_format(format) if format is not None else None
    named = {**wanted.remembered, **wanted.columns}  # a row with one of these names is a header
    if binary := detect_binary(wanted.path):
        if binary == "xlsx":
            return open_table(detect_sheet(open_sheet(wanted.path), named), wanted)
        return open_records(open_record_table(wanted.path, binary), wanted)
    if found in BINARY:
        raise InputError(f"{wanted.path} is a text file, not {found}. Leave --format out.")
    start = read_beginning(wanted.path)
    if found is None:
        found = detect_format(start, wanted)
    if found in ("csv", "tsv"):
        return open_table(detect_table(start, found, named), wanted)
    if found in ("json", "jsonl"):
        return open_json(start, wanted, found)
    if found == "conll":
        if not wanted.labelling.spans:
            raise InputError(
                f"{start.path} has a word and its tag per line, which is for the task 'tag', not "
                f"'{wanted.labelling.task}'."
            )
        return open_columns(start, wanted)
    if wanted.needs_labels or not wanted.labelling.reads_lines:
        task = wanted.labelling.task
        raise InputError(f"{start.path} is read as plain lines, which have no labels; '{task}' needs labels here.")
    return _open_lines(wanted)


def _open_lines(wanted: Wanted) -> OpenedFile:
    def convert(line: int, text: str, report: ReportFault) -> Iterator[Example]:
        place = wanted.place(line)
        if not text.strip():
            report(empty_text_fault(place, "the line"))
        elif example := wanted.labelling.example.of(UnlabelledInput(text, place=place)):
            yield example

    def units(start: RowStart = FIRST_ROW) -> Iterator[tuple[int, str]]:
        return checked_lines(wanted.path, start)

    return OpenedFile("lines", {}, "", units, convert, units_from=units)


# --- Detect the format and the task of a labelled file, by its contents and, if ambiguous, by its name.
#
#     conll    a word and its tag per line           tag
#     csv tsv  rows of cells                         classify; tag, answer and choice too
#     parquet arrow xlsx                             the same (binary_tables.py)
#     jsonl    an object per line                    all tasks
#     json     a list, an object, several objects    all tasks; SQuAD, CMRC, C3, CLUENER, Label Studio
#     lines    a text per line, without labels       classify, tag

BINARY = ("parquet", "arrow", "xlsx")
_FORMATS = ("csv", "tsv", "jsonl", "json", "conll", "lines", *BINARY)
_SHAPES = {"squad": "json", "cmrc": "json", "c3": "json", "cluener": "json", "label-studio": "json", "doccano": "jsonl"}
"""Names of formats by contents; whether the file is json or jsonl is detected anyway."""

COLUMN_ENDINGS = (".conll", ".bio", ".iob", ".bioes", ".bmes", ".ner")
TABLE_ENDINGS = (".csv", ".tsv", ".tab")


def check_format(format: str) -> str | None:
    """Check the caller's format; return it, or None if json or jsonl must be detected."""
    name = format.lower()
    if name in _FORMATS:
        return name
    if name in _SHAPES:
        return None
    known = (*_FORMATS, *_SHAPES)
    raise InputError(f"There is no format '{format}'.{did_you_mean(name, known)} There are {', '.join(known)}.")


def detect_format(start: Beginning, wanted: Wanted) -> str:
    """Return one of _FORMATS."""
    if container := container_of(start):
        return container
    if start.ending in (".json", ".jsonl"):
        raise InputError(f"{start.path} is not JSON: it begins with {start.text.strip()[:30]!r}.")
    spans = wanted.labelling.spans
    if spans and start.ending not in TABLE_ENDINGS and looks_like_columns(start):
        return "conll"
    if spans and start.ending in COLUMN_ENDINGS:
        return "conll"
    filled = [line for line in start.lines[:200] if line.strip()]
    tabs = sum("\t" in line for line in filled) > 0.9 * len(filled)
    if start.ending in TABLE_ENDINGS:
        return "csv" if start.ending == ".csv" else "tsv"
    if tabs and not spans:
        return "tsv"
    if not wanted.needs_labels and wanted.labelling.reads_lines and not wanted.columns:
        return "lines"
    if wanted.columns and not spans:
        return "csv"
    line, text = next((number, line) for number, line in enumerate(start.lines, 1) if line.strip())
    raise InputError(
        f"{start.path} has no format that '{wanted.labelling.task}' reads: {wanted.labelling.formats}. Its line "
        f"{line} is {text[:60]!r}. If the format is known, give it with --format."
    )


def guess_task(path: AnyPath) -> str | None:
    """Return classify, tag, answer or choice; None for a corpus: plain text, or JSON lines without a label."""
    file = check_file(path)
    if binary := detect_binary(file):
        if binary == "xlsx":
            return _of_names(detect_sheet(open_sheet(file), {}).header or ()) or "classify"
        return _of_records([record for _, record in islice(open_record_table(file, binary).rows(), 20)]) or "classify"
    start = read_beginning(path)
    if container := container_of(start):
        return _of_json(start, container)
    if start.ending in TABLE_ENDINGS:
        found = detect_table(start, "csv" if start.ending == ".csv" else "tsv", {})
        return _of_names(found.header or ()) or "classify"
    if start.ending in COLUMN_ENDINGS or looks_like_columns(start):
        return "tag"
    return None


def _of_json(start: Beginning, container: str) -> str | None:
    try:
        found = islice(read_json_values(start.path, container), 20)
        values = [one.value for _, one in found if isinstance(one, Value)]
    except InputError:
        return None if container == "jsonl" else "classify"  # the reader reports the error
    first = values[0] if values else None
    if question_files.question_format(first):
        return "answer"
    if question_files.is_c3(first):
        return "choice"
    if annotation_files.is_label_studio(first):
        return "tag" if any('"labels"' in one or "'labels'" in one for one in map(str, values)) else "classify"
    task = _of_records([value for value in values if isinstance(value, dict)])
    return task or ("classify" if container == "json" else None)


def _of_records(records: list[dict[str, Any]]) -> str | None:
    names = list({name: None for record in records for name in record})
    if task := _of_names(names):
        return task
    for name in names:
        if column_key(name) in _spans and any(_is_spans(record.get(name)) for record in records):
            return "tag"
    return "classify" if any(column_key(name) in _labels for name in names) else None


def _of_names(names: list[str] | tuple[str, ...]) -> str | None:
    keys = {column_key(name) for name in names}
    if keys & _choices or find_choice_columns(names):
        return "choice"
    if keys & set(USUAL_NAMES["question"][0].split()) and keys & set(USUAL_NAMES["context"][0].split()):
        return "answer"
    return "tag" if keys & {"tokens", "words"} and keys & _spans else None


def _is_spans(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], list | dict))


_spans = set(" ".join(SPAN_NAMES).split())
_labels = set(" ".join(USUAL_NAMES["label"][:2]).split())  # a score alone may be anything
_choices = set(USUAL_NAMES["choices"][0].split())


# --- The table of labellings: how the examples of each task are written in files.

_TEXTS = Labelling(
    task="classify",
    example=TextExample,
    about="texts with a label each",
    formats="csv, tsv or jsonl with a text and a label",
    record='"text": …, "label": …',
    roles=("text", "pair", "label", "group", "id", "weight"),
    needed=("text", "label"),
    columns=text_records.text_columns,
    reader=text_records.text_reader,
    nested=annotation_files.nested_annotations,
    numbered=text_records.given_columns,
    guessed=guess_columns,
    classes=True,
)
_SPANS = Labelling(
    task="tag",
    example=TagExample,
    about="texts with labelled spans",
    formats="CoNLL columns (a word, a tab, its tag) or jsonl with spans",
    record='"text": …, "label": [[start, end, type]]',
    roles=("text", "label", "group", "id", "weight"),
    needed=("text", "label"),
    columns=annotation_files.span_columns,
    reader=annotation_files.span_reader,
    nested=annotation_files.nested_annotations,
    numbered=text_records.given_columns,
    shape=annotation_files.name_span_records,
    classes=True,
    spans=True,
)
_QUESTIONS = Labelling(
    task="answer",
    example=AnswerExample,
    about="questions about texts",
    formats="SQuAD or CMRC JSON, or jsonl with question, context and answers",
    record='"question": …, "context": …, "answers": […]',
    roles=("question", "context", "text", "answer", "group", "id"),
    needed=("question", "context", "answer"),
    columns=question_files.answer_columns,
    reader=question_files.answer_reader,
    nested=question_files.nested_questions,
    counted="question",
    inner=question_files.count_questions,
    numbered=question_files.answer_columns,
)
_CHOICES = Labelling(
    task="choice",
    example=ChoiceExample,
    about="questions with choices",
    formats="jsonl with question, choices and answer",
    record='"question": …, "choices": […], "answer": …',
    roles=("question", "context", "text", "choices", "answer", "label", "group", "id"),
    needed=("choices", "answer"),
    columns=question_files.choice_roles,
    reader=question_files.choice_reader,
    nested=question_files.nested_choices,
    counted="question",
    inner=question_files.count_questions,
    numbered=question_files.choice_roles,
)

LABELLINGS = {"classify": _TEXTS, "tag": _SPANS, "answer": _QUESTIONS, "choice": _CHOICES}


def labelling_for(task: str) -> Labelling:
    if task not in LABELLINGS:
        hint = did_you_mean(task, LABELLINGS)
        raise InputError(f"There is no task '{task}'.{hint} There are {', '.join(LABELLINGS)}.")
    return LABELLINGS[task]
