"""What a file is labelled for, told from the file itself; or that it is a corpus, which is labelled for nothing."""

from itertools import islice

from qkv.data import annotation_files, choice_files, question_files
from qkv.data.beginning import Beginning, beginning
from qkv.data.column_files import looks_like_columns
from qkv.data.columns import SPANS, USUAL, choice_columns, key
from qkv.data.json_values import Value, container_of, json_values
from qkv.data.readers import AnyPath
from qkv.data.sniff import COLUMN_ENDINGS, TABLE_ENDINGS
from qkv.data.tables import table
from qkv.errors import InputError


def guessed_task(path: AnyPath) -> str | None:
    """classify, tag, answer or choice; None for a corpus: plain text, or JSON lines without a label."""
    start = beginning(path)
    if container := container_of(start):
        return _of_json(start, container)
    if start.ending in TABLE_ENDINGS:
        found = table(start, "csv" if start.ending == ".csv" else "tsv", {})
        return _of_names(found.header or ()) or "classify"
    if start.ending in COLUMN_ENDINGS or looks_like_columns(start):
        return "tag"
    return None


def _of_json(start: Beginning, container: str) -> str | None:
    try:
        found = islice(json_values(start.path, container), 20)
        values = [one.value for _, one in found if isinstance(one, Value)]
    except InputError:
        return None if container == "jsonl" else "classify"  # whoever reads it says what is wrong
    first = values[0] if values else None
    if question_files.shape_of(first):
        return "answer"
    if choice_files.is_c3(first):
        return "choice"
    if annotation_files.is_label_studio(first):
        return "tag" if any('"labels"' in one or "'labels'" in one for one in map(str, values)) else "classify"
    records = [value for value in values if isinstance(value, dict)]
    names = list({name: None for record in records for name in record})
    if task := _of_names(names):
        return task
    for name in names:
        if key(name) in _spans and any(_is_spans(record.get(name)) for record in records):
            return "tag"
    labelled = any(key(name) in _labels for name in names)
    return "classify" if labelled or container == "json" else None


def _of_names(names: list[str] | tuple[str, ...]) -> str | None:
    keys = {key(name) for name in names}
    if keys & set(_choices) or choice_columns(names):
        return "choice"
    if keys & set(USUAL["question"][0].split()) and keys & set(USUAL["context"][0].split()):
        return "answer"
    return "tag" if keys & {"tokens", "words"} and keys & _spans else None


def _is_spans(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], list | dict))


_spans = {name for rank in SPANS for name in rank.split()}
_labels = {name for rank in USUAL["label"][:2] for name in rank.split()}  # a score alone may be anything
_choices = USUAL["choices"][0].split()
