"""Labelled files, whatever their format, as examples that know their file and line.

>>> labelled("train.tsv", "classify").describe()                                             # doctest: +SKIP
"tsv, text = 'sentence', label = 'label'"

The format is found out (detect.py), the columns by their usual names (tables.py), and both are stated. Files are read
as a stream, again for each iteration; a JSON document is held as text. What cannot be used at all is an `InputError`;
an example that is dropped or mended stands in `faults`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from qkv.data.labelled.column_files import normalise_tags, open_columns
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

UNUSABLE = "unusable"  # the kind of fault that an InputError becomes in a lenient reading


class Labelled:
    """The examples of one file, from the beginning each time it is iterated over.

    `faults` belong to the latest iteration and are complete when it has ended.
    """

    def __init__(self, path: Path, task: str, opened: OpenedFile, lenient: bool = False) -> None:
        """`lenient`: a row that cannot be used is a fault, not an error. A check reads so; training does not."""
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
        fits = False  # the task: an example with a label was read, or it was asked already whether another fits better
        for line, unit in self._opened.units():
            try:
                if isinstance(unit, BrokenUnit):
                    raise unit.error
                for example in convert(line, unit, faults.append):
                    fits = fits or bool(example.counted())  # empty lists do not tell labels from spans
                    yield example
            except InputError as error:
                said = str(error) if fits else f"{error}{_other_task(self.path, self.task)}"
                fits = True
                if not self._lenient:
                    raise InputError(said) from error
                faults.append(Fault(Place(str(self.path), line), UNUSABLE, said, "dropped"))

    def describe(self) -> str:
        """One line for people: the format and which column is what."""
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

    `columns` name the columns by role ({"text": "评论", "label": "3"}): by the header's name, or by number from 1.
    `separator` stands between several labels of one cell, as in "sport|music". Without `needs_labels` a file may have
    none, and plain lines of text will do.
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
    """For a file that cannot be read for its task: the task it can be read for, in words; or nothing."""
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
    if stated and all(map(normalise_tags, stated)):
        return ""  # tags for words, in a cell: it is for the task that was named, and something else is wrong
    return f" This looks like {labelling.about} ({source.format}): use the task {other} (qkv finetune {other} …)."


def _check_roles(columns: Mapping[str, str], labelling: Labelling) -> dict[str, str]:
    for role in columns:
        if role not in labelling.roles:
            known = did_you_mean(role, labelling.roles) if role not in ROLES else ""
            raise InputError(
                f"A column for '{role}' is not used by '{labelling.task}'.{known} Used are "
                f"{', '.join(labelling.roles)}."
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
                f"{start.path} has a word and its tag a line, which is for the task 'tag', not "
                f"'{wanted.labelling.task}'."
            )
        return open_columns(start, wanted)
    if wanted.needs_labels or not wanted.labelling.reads_lines:
        task = wanted.labelling.task
        raise InputError(f"{start.path} is read as plain lines, which have no labels: '{task}' needs them here.")
    return _open_lines(wanted)


def _open_lines(wanted: Wanted) -> OpenedFile:
    def convert(line: int, text: str, told: ReportFault) -> Iterator[Example]:
        place = wanted.place(line)
        if not text.strip():
            told(empty_text_fault(place, "the line"))
        elif example := wanted.labelling.example.of(UnlabelledInput(text, place=place)):
            yield example

    return OpenedFile("lines", {}, "", lambda: checked_lines(wanted.path), convert)
