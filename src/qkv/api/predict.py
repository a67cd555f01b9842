"""Inputs and outputs of predictions: Python objects, texts and files to examples, and files of results.

Files of results are written atomically.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from qkv.data.labelled.examples import Example, Fault, Place, UnlabelledInput, is_two_texts
from qkv.data.readers import STDIN, read_stdin_lines
from qkv.errors import InputError
from qkv.files import replaced_file
from qkv.tasks.table import AnyTask
from qkv.text.languages import is_language
from qkv.text.tokenizer import Tokenizer

E = TypeVar("E", bound=Example)


def make_examples(kind: type[E], items: Iterable[Any], tokenizer: Tokenizer) -> Iterator[E]:
    """Each item as an example without a label; an invalid one is an error with its number, counted from 1."""
    for number, item in enumerate(items, 1):
        example = item.unlabelled() if isinstance(item, kind) else kind.from_python(item)
        if example is None:
            shown = f"a {type(item).__name__}" if isinstance(item, Example) else repr(item)
            shown = shown if len(shown) <= 60 else shown[:57] + "…"
            raise InputError(f"Input {number} is {shown}; this model reads {kind.form}.")
        if name := empty_part(example, tokenizer):
            raise InputError(f"Input {number}: {describe_empty(name)}.")
        yield example


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

_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".conll", ".bio")
OPTIONS = {"question": "--question", "pair": "--with", "choices": "--choice"}
NEEDED = {"question": "a question: --question TEXT", "choices": "at least two choices: --choice TEXT --choice TEXT"}
"""What goes with typed texts, by the fields of an example, and what of it an example cannot do without."""
UNTABLED = ("n_best",)  # too much for a cell


class Inputs:
    """Examples without labels from any source; after the iteration, `faults` has those that were dropped.

    A text of which no token comes is left out, too: one such line must not stop a file of millions.
    """

    def __init__(self, source: Iterable[Example], tokenizer: Tokenizer) -> None:
        self._source, self._tokenizer = source, tokenizer
        self._own: list[Fault] = []

    @property
    def faults(self) -> list[Fault]:
        """The faults in the order of the input, as far as it was read."""
        return sorted([*getattr(self._source, "faults", ()), *self._own], key=lambda fault: fault.place)

    def __iter__(self) -> Iterator[Example]:
        self._own = []
        for example in self._source:
            name = empty_part(example, self._tokenizer)
            if name is None:
                yield example.unlabelled()
            else:
                self._own.append(Fault(example.place, "empty text", describe_empty(name), "dropped"))


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
) -> Inputs:
    """The inputs of the command line: one file, standard input (one text per line), or texts.

    A text without tokens is left out and listed; it is refused where no other was typed beside it.
    """
    if len(given) == 1 and given[0] != STDIN and is_file(given[0]):
        if question or pair or choices:
            raise InputError("--question, --with and --choice go with texts, not with a file.")
        from qkv.data.labelled.reader import labelled

        return Inputs(labelled(given[0], task.name, columns=columns, format=format, needs_labels=False), tokenizer)
    for name in given:
        check_is_text(name)
    if columns or format:
        raise InputError(f"Columns and a format are for a file, and '{given[0]}' is none.")
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


def check_is_text(name: str, languages: bool = False) -> None:
    """Refuse a text that is probably a file name: of a file among others, of a folder, or of a missing file.

    `languages`: files of translators may end in the two letters of a language, news.de.
    """
    if name in (STDIN, ""):  # to a Path, the empty text is the current folder
        return
    if is_file(name):
        raise InputError(f"{name} is a file, and stands among other texts. Give one file at a time.")
    if len(name) < 1_000 and "\0" not in name and Path(name).is_dir():
        raise InputError(f"{name} is a folder. Give a file of it, or texts.")
    ending = Path(name.removesuffix(".gz").removesuffix(".xz")).suffix.lower()
    known = ending in _ENDINGS or (languages and len(ending) == 3 and is_language(ending.removeprefix(".")))
    if known and " " not in name:
        raise InputError(f"There is no file {name}. (To have its name taken as a text, put a blank behind it.)")


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
    """An input and its result as one object."""
    line = {"line": example.place.line} if example.place.line else {}
    answered = result.to_dict()
    # a result's "text" is the answer, where the input's own is a passage
    return line | example.record() | answered


class ResultWriter(AbstractContextManager["ResultWriter"]):
    """Writes a .jsonl, .csv or .tsv file as results come; it appears under its name when complete.

    A table has the same columns for every input of a task: what an input does not have is an empty cell.
    """

    def __init__(self, path: Path, suffix: str, pairs: bool = True) -> None:
        """Without `pairs` a classifier's table has no column for the second text."""
        self.path, self.suffix, self.count = path, suffix, 0
        self._without = set(UNTABLED) if pairs else {*UNTABLED, "pair"}
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
            line = make_record(example, result)
            if self.suffix == ".jsonl":
                self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            else:
                self._row(line, [*example.columns, *result.to_dict()])
            self.count += 1

    def _row(self, line: Mapping[str, Any], columns: Sequence[str]) -> None:
        if self._table is None:  # a model's results have the same names, all of them
            names = [name for name in columns if name not in self._without]
            delimiter = "\t" if self.suffix == ".tsv" else ","
            self._table = csv.DictWriter(self._stream, names, restval="", delimiter=delimiter, lineterminator="\n")
            self._table.writeheader()
        self._table.writerow({name: _cell(value) for name, value in line.items() if name not in self._without})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._stream.close()
        return self._file.__exit__(kind, error, trace)


def _cell(value: Any) -> Any:
    """The content of a cell: a number or text, several labels separated by bars, anything else as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list) and all(isinstance(part, str) for part in value):
        return "|".join(value)
    if isinstance(value, dict | tuple | list):
        return json.dumps(value, ensure_ascii=False)
    return round(value, 6) if isinstance(value, float) else value
