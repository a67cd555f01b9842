"""Which format a labelled file has: by what stands in it, and by its name where that leaves a choice.

conll    a word and its tag a line             tag
csv tsv  rows of cells                         classify; tag, answer and choice too
jsonl    an object a line                      all tasks
json     a list, an object, objects in a row   all tasks; SQuAD, CMRC, C3, CLUENER, Label Studio
lines    a text a line, without labels         classify, tag
"""

from qkv.data.beginning import Beginning
from qkv.data.column_files import looks_like_columns
from qkv.data.json_values import container_of
from qkv.data.opened import Wanted
from qkv.errors import InputError, did_you_mean

FORMATS = ("csv", "tsv", "jsonl", "json", "conll", "lines")
SHAPES = {"squad": "json", "cmrc": "json", "c3": "json", "cluener": "json", "label-studio": "json", "doccano": "jsonl"}
"""What people call a file by its contents; how it is packed is found out all the same."""

COLUMN_ENDINGS = (".conll", ".bio", ".iob", ".bioes", ".bmes", ".ner")
TABLE_ENDINGS = (".csv", ".tsv", ".tab")


def given_format(format: str) -> str | None:
    """A format that the caller named; None where its packing is still to be found."""
    name = format.lower()
    if name in FORMATS:
        return name
    if name in SHAPES:
        return None
    known = (*FORMATS, *SHAPES)
    raise InputError(f"There is no format '{format}'.{did_you_mean(name, known)} There are {', '.join(known)}.")


def sniffed(start: Beginning, wanted: Wanted) -> str:
    """One of FORMATS."""
    if container := container_of(start):
        return container
    if start.ending in (".json", ".jsonl"):
        raise InputError(f"{start.path} is not JSON: it begins with {start.text.strip()[:30]!r}.")
    if wanted.task == "tag" and start.ending not in TABLE_ENDINGS and looks_like_columns(start):
        return "conll"
    if wanted.task == "tag" and start.ending in COLUMN_ENDINGS:
        return "conll"
    filled = [line for line in start.lines[:200] if line.strip()]
    tabs = sum("\t" in line for line in filled) > 0.9 * len(filled)
    if start.ending in TABLE_ENDINGS:
        return "csv" if start.ending == ".csv" else "tsv"
    unlabelled = not wanted.needs_labels and wanted.task in ("classify", "tag")
    if tabs and wanted.task != "tag":
        return "tsv"
    if unlabelled and not wanted.columns:
        return "lines"
    if wanted.columns and wanted.task != "tag":
        return "csv"
    raise InputError(_cannot_tell(start, wanted.task))


def _cannot_tell(start: Beginning, task: str) -> str:
    line, text = next((number, line) for number, line in enumerate(start.lines, 1) if line.strip())
    known = {
        "classify": "csv, tsv or jsonl with a text and a label",
        "tag": "CoNLL columns (a word, a tab, its tag) or jsonl with spans",
        "answer": "SQuAD or CMRC JSON, or jsonl with question, context and answers",
        "choice": "jsonl with question, choices and answer",
    }[task]
    return (
        f"{start.path} is in no format that '{task}' reads: {known}. Its line {line} is {text[:60]!r}. "
        "If you know better, say so with --format."
    )
