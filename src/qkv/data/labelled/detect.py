"""Detect the format and the task of a labelled file, by its contents and, if ambiguous, by its name.

conll    a word and its tag per line           tag
csv tsv  rows of cells                         classify; tag, answer and choice too
jsonl    an object per line                    all tasks
json     a list, an object, several objects    all tasks; SQuAD, CMRC, C3, CLUENER, Label Studio
lines    a text per line, without labels       classify, tag
"""

from itertools import islice

import qkv.data.labelled.annotation_files as annotation_files
import qkv.data.labelled.question_files as question_files
from qkv.data.labelled.column_files import looks_like_columns
from qkv.data.labelled.json_values import Value, container_of, read_json_values
from qkv.data.labelled.opened import Beginning, Wanted, read_beginning
from qkv.data.labelled.tables import SPAN_NAMES, USUAL_NAMES, column_key, detect_table, find_choice_columns
from qkv.data.readers import AnyPath
from qkv.errors import InputError, did_you_mean

_FORMATS = ("csv", "tsv", "jsonl", "json", "conll", "lines")
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
    records = [value for value in values if isinstance(value, dict)]
    names = list({name: None for record in records for name in record})
    if task := _of_names(names):
        return task
    for name in names:
        if column_key(name) in _spans and any(_is_spans(record.get(name)) for record in records):
            return "tag"
    labelled = any(column_key(name) in _labels for name in names)
    return "classify" if labelled or container == "json" else None


def _of_names(names: list[str] | tuple[str, ...]) -> str | None:
    keys = {column_key(name) for name in names}
    if keys & set(_choices) or find_choice_columns(names):
        return "choice"
    if keys & set(USUAL_NAMES["question"][0].split()) and keys & set(USUAL_NAMES["context"][0].split()):
        return "answer"
    return "tag" if keys & {"tokens", "words"} and keys & _spans else None


def _is_spans(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], list | dict))


_spans = {name for rank in SPAN_NAMES for name in rank.split()}
_labels = {name for rank in USUAL_NAMES["label"][:2] for name in rank.split()}  # a score alone may be anything
_choices = USUAL_NAMES["choices"][0].split()
