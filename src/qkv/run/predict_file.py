"""Predictions for texts and files: where they come from, and files of results that are written whole or not at all."""

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from qkv.atomic import replaced_file
from qkv.data.examples import AnswerExample, ChoiceExample, Example, Fault, Place, TagExample, TextExample
from qkv.data.labelled import labelled
from qkv.errors import InputError

STDIN = "-"


class Inputs:
    """Examples without labels, from anywhere; what was left out stands in `faults` when all have gone by."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._own: list[Fault] = []

    @property
    def faults(self) -> list[Fault]:
        return getattr(self._source, "faults", self._own)

    def __iter__(self) -> Iterator[Example]:
        return iter(self._source)


def inputs_of(
    task: str,
    given: Sequence[str],
    *,
    question: str | None = None,
    pair: str | None = None,
    choices: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
) -> Inputs:
    """What the command line was given: one file, standard input (a text a line), or texts."""
    if len(given) == 1 and given[0] != STDIN and _is_file(given[0]):
        if question or pair or choices:
            raise InputError("--question, --with and --choice go with texts, not with a file.")
        return Inputs(labelled(given[0], task, columns=columns, format=format, needs_labels=False))
    if columns or format:
        raise InputError(f"Columns and a format are for a file, and '{given[0]}' is none.")
    texts: Any = given
    if list(given) == [STDIN]:
        texts = _stdin_lines()
    elif STDIN in given:
        raise InputError("Give - for standard input alone, without other texts.")
    return Inputs(_examples(task, texts, question, pair, tuple(choices)))


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # a text may be too long for a name, or hold a NUL
        return False


def _stdin_lines() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            line = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"Standard input, line {number} is not UTF-8 at byte {error.start + 1}.") from None
        if line.strip():
            yield line


def _examples(
    task: str, texts: Any, question: str | None, pair: str | None, choices: tuple[str, ...]
) -> Iterator[Example]:
    if task in ("answer", "choice") and not question:
        raise InputError(f"A model for '{task}' needs a question: --question TEXT.")
    if task == "choice" and len(choices) < 2:
        raise InputError("A model for 'choice' needs at least two choices: --choice TEXT --choice TEXT.")
    unused = {"--question": question and task not in ("answer", "choice"), "--with": pair and task != "classify"}
    unused["--choice"] = bool(choices) and task != "choice"
    if wrong := [name for name, is_wrong in unused.items() if is_wrong]:
        raise InputError(f"{' and '.join(wrong)} mean nothing to a model for '{task}'.")
    for number, text in enumerate(texts, 1):
        place = Place("", number)
        if task == "classify":
            yield TextExample(text, pair, place=place)
        elif task == "tag":
            yield TagExample(text, place=place)
        elif task == "answer":
            yield AnswerExample(question or "", text, place=place)
        else:
            yield ChoiceExample(text, question or "", choices, place=place)


def record(example: Any, result: Any) -> dict[str, Any]:
    """An input and what was said about it, as one object."""
    found: dict[str, Any] = {"line": example.place.line} if example.place.line else {}
    if isinstance(example, AnswerExample | ChoiceExample):
        if example.id:
            found["id"] = example.id
        found["question"] = example.question
        if isinstance(example, ChoiceExample):
            found["choices"] = list(example.choices)
    else:
        found["text"] = example.text
        if isinstance(example, TextExample) and example.pair is not None:
            found["pair"] = example.pair
    answered = result.to_dict()
    # a result's "text" is the answer, where the input's own is a passage
    return found | answered


class Written(AbstractContextManager["Written"]):
    """A .jsonl, .csv or .tsv file that grows as results come, and is there when all have."""

    def __init__(self, path: Path, suffix: str) -> None:
        self.path, self.suffix, self.count = path, suffix, 0
        self._file = replaced_file(path)
        self._stream: TextIO
        self._table: Any = None

    def __enter__(self) -> Self:
        part = self._file.__enter__()
        try:
            # Excel takes a csv for UTF-8 only with a byte order mark
            encoding = "utf-8-sig" if self.suffix == ".csv" else "utf-8"
            self._stream = part.open("w", encoding=encoding, newline="")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}.") from error
        return self

    def add(self, examples: Sequence[Any], results: Sequence[Any]) -> None:
        for example, result in zip(examples, results, strict=True):
            line = record(example, result)
            if self.suffix == ".jsonl":
                self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            else:
                self._row(line)
            self.count += 1

    def _row(self, line: Mapping[str, Any]) -> None:
        flat = {name: _cell(value) for name, value in line.items() if name not in ("n_best",)}
        if self._table is None:
            delimiter = "\t" if self.suffix == ".tsv" else ","
            self._table = csv.DictWriter(self._stream, list(flat), delimiter=delimiter, lineterminator="\n")
            self._table.writeheader()
        self._table.writerow(flat)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._stream.close()
        return self._file.__exit__(kind, error, trace)


def _cell(value: Any) -> Any:
    """What a cell holds: a number or a text as it is, several labels with bars between, anything else as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list) and all(isinstance(part, str) for part in value):
        return "|".join(value)
    if isinstance(value, dict | tuple | list):
        return json.dumps(value, ensure_ascii=False)
    return round(value, 6) if isinstance(value, float) else value
