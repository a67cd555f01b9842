"""Read labelled files of any supported format as examples with file and line.

>>> labelled("train.tsv", "classify").describe()                                             # doctest: +SKIP
"tsv, text = 'sentence', label = 'label'"

The format is detected (detect.py), columns are found by their usual names (tables.py), and `describe` states both.
Files are streamed, again for each iteration; only a JSON document is in memory. A file that cannot be used is an
`InputError`; dropped and repaired examples are in `faults`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from qkv.data.labelled.column_files import normalise_tag, open_columns
from qkv.data.labelled.detect import check_format, detect_format, guess_task
from qkv.data.labelled.examples import Example, Fault, Place, UnlabelledInput
from qkv.data.labelled.kinds import LABELLINGS, labelling_for
from qkv.data.labelled.opened import (
    ROLES,
    Beginning,
    BrokenUnit,
    Labelling,
    OpenedFile,
    ReportFault,
    Wanted,
    checked_lines,
    empty_text_fault,
    read_beginning,
)
from qkv.data.labelled.record_files import open_json, open_table
from qkv.data.readers import AnyPath
from qkv.errors import InputError, did_you_mean

UNUSABLE = "unusable"  # kind of fault for an InputError in lenient mode


class Labelled:
    """The examples of one file; each iteration starts from the beginning.

    `faults` are those of the latest iteration, complete when it has ended.
    """

    def __init__(self, path: Path, task: str, opened: OpenedFile, lenient: bool = False) -> None:
        """`lenient`: an unusable row is a fault instead of an error, as needed for checks."""
        self.path, self.task = path, task
        self.format, self.columns = opened.format, opened.columns
        self.faults: list[Fault] = []
        self._opened, self._lenient = opened, lenient

    def __iter__(self) -> Iterator[Example]:
        return self._examples(self._new_faults())

    def _new_faults(self) -> list[Fault]:
        self.faults = []
        return self.faults

    def _examples(self, faults: list[Fault]) -> Iterator[Example]:
        convert = self._opened.convert
        fits = False  # a labelled example was read, so the task fits; or another task was already suggested
        for line, unit in self._opened.units():
            try:
                if isinstance(unit, BrokenUnit):
                    raise unit.error
                for example in convert(line, unit, faults.append):
                    fits = fits or bool(example.counted())  # an empty list may be labels or spans
                    yield example
            except InputError as error:
                message = str(error) if fits else f"{error}{_other_task(self.path, self.task)}"
                fits = True
                if not self._lenient:
                    raise InputError(message) from error
                faults.append(Fault(Place(str(self.path), line), UNUSABLE, message, "dropped"))

    def describe(self) -> str:
        """Return the format and the columns in one line, for people."""
        numbered = self.format == "conll" or "without a header" in self._opened.note
        columns = [f"{role} = {f'column {name}' if numbered else repr(name)}" for role, name in self.columns.items()]
        return ", ".join([f"{self.format} {self._opened.note}".rstrip(), *columns])


def labelled(
    path: AnyPath,
    task: str,
    *,
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    separator: str | None = None,
    needs_labels: bool = True,
    lenient: bool = False,
) -> Labelled:
    """Open a file for a task: "classify", "tag", "answer" or "choice".

    `columns` are the columns by role ({"text": "评论", "label": "3"}): a name of the header, or a number from 1.
    `separator` separates several labels in one cell, as in "sport|music". Without `needs_labels` a file may have no
    labels, and may be plain lines of text.
    """
    labelling = labelling_for(task)
    start = read_beginning(path)
    wanted = Wanted(start.path, labelling, _check_roles(columns or {}, labelling), needs_labels, separator)
    try:
        opened = _open_file(start, wanted, format)
    except InputError as error:
        if needs_labels and format is None:
            raise InputError(f"{error}{_other_task(start.path, task)}") from error
        raise
    return Labelled(start.path, task, opened, lenient)


def _other_task(path: Path, task: str) -> str:
    """Return a hint to another task for which the file can be read, or ""."""
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


def _open_file(start: Beginning, wanted: Wanted, format: str | None) -> OpenedFile:
    found = check_format(format) if format is not None else None
    if found is None:
        found = detect_format(start, wanted)
    if found in ("csv", "tsv"):
        return open_table(start, wanted, found)
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

    return OpenedFile("lines", {}, "", lambda: checked_lines(wanted.path), convert)
