"""Questions with answers in a text (SQuAD 1.1 and 2.0, CMRC 2018, flat records) or with choices (C3, flat records).

    article     {"title", "paragraphs": [{"context", "qas": [{"question", "answers": [{"text", "answer_start"}]}]}]}
    paragraph   the inner object alone; CMRC's fields are context_text, query_text, query_id
    flat        question, context and answer in columns or fields; answers as above, as {"text": […], "answer_start":
                […]}, or as plain texts, which are searched in the context

If SQuAD 2.0 says is_impossible, there is no answer; plausible answers are ignored. An answer that is not at its offset
is repaired by opened.py; a question without any answer left is dropped and reported.

    C3          [[lines of the text …], [{"question", "choice": […], "answer"}], id]
    choices     {"context", "question", "choices": […], "answer"}, or one column per choice (A B C D, choice1 choice2 …)

The answer is the text of a choice, a letter (A is the first), or a number from 0.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from qkv.data.labelled.examples import AnswerExample, AnswerSpan, ChoiceExample, Fault, Place
from qkv.data.labelled.json_values import Value, line_of_each
from qkv.data.labelled.opened import (
    Convert,
    ReportFault,
    Wanted,
    abbreviate,
    check_text,
    empty_text_fault,
    locate_answer,
)
from qkv.data.labelled.record_files import FlatRecord, check_complete, read_string, unpack_json_cell, value_as_text
from qkv.data.labelled.tables import column_key, find_choice_columns, find_given_column, find_usual_column, quote_names
from qkv.errors import InputError

OFFSETS = ("answerstart", "start", "answeroffset", "答案起始")


def question_format(value: Any) -> str:
    """Return squad, cmrc, or "" for flat records."""
    if isinstance(value, dict):
        if isinstance(value.get("paragraphs"), list):
            return "squad"
        if isinstance(value.get("qas"), list):
            return "cmrc" if "context_text" in value else "squad"
    return ""


ReadQuestions = Callable[[int, Any, ReportFault], Iterator[AnswerExample]]
"""A `Convert` of which every example is a question with its passage."""


def nested_questions(wanted: Wanted, value: Any) -> tuple[str, ReadQuestions] | None:
    """Return the format and reader of a file that begins with this value; None for flat records."""
    return (shape, nested_reader(wanted)) if (shape := question_format(value)) else None


def count_questions(value: Any) -> int:
    """Return the number of questions of an article, a paragraph or a text of C3; of anything else 1."""
    if is_c3(value):
        return len(value[1])
    if not question_format(value):
        return 1
    paragraphs = value.get("paragraphs", [value])
    return sum(len(one["qas"]) for one in paragraphs if isinstance(one, dict) and isinstance(one.get("qas"), list))


def _numbers(wanted: Wanted, unit: Value, first: int, names: str, count: int) -> Sequence[int]:
    """Return the line of each question of a value, or its number in a document on one line."""
    return line_of_each(unit.raw, first, names, count) if wanted.unit == "line" else range(first, first + count)


def nested_reader(wanted: Wanted) -> ReadQuestions:
    """Return a reader of articles and paragraphs."""

    def convert(line: int, unit: Value, report: ReportFault) -> Iterator[AnswerExample]:
        place = wanted.place(line)
        article = unit.value
        if not question_format(article):
            raise InputError(f'{place}: an article with "paragraphs", or a paragraph with "qas", was expected.')
        paragraphs = _objects(article.get("paragraphs", [article]), place, "paragraphs")
        asked = [_objects(one.get("qas"), place, "qas") for one in paragraphs]
        lines = iter(_numbers(wanted, unit, line, "question|query_text", sum(map(len, asked))))
        title = value_as_text(article.get("title"))
        for paragraph, questions in zip(paragraphs, asked, strict=True):
            context = _first(paragraph, ("context", "context_text"), place)
            check_text(context, place, "the context")
            group = title or value_as_text(paragraph.get("id", paragraph.get("context_id"))) or context
            for question in questions:
                yield from _example(wanted, wanted.place(next(lines)), context, question, group, report)

    return convert


def _example(
    wanted: Wanted, place: Place, context: str, question: FlatRecord, group: str, report: ReportFault
) -> Iterator[AnswerExample]:
    text = check_text(_first(question, ("question", "query_text"), place), place, "the question")
    name = value_as_text(question.get("id", question.get("query_id"))) or ""
    answers = question.get("answers", question.get("answer"))
    if question.get("is_impossible") is True:
        answers = []
    yield from _make_answer_example(wanted, place, text, context, answers, name, group, report)


def _make_answer_example(
    wanted: Wanted,
    place: Place,
    question: str,
    context: str,
    answers: Any,
    name: str,
    group: str | None,
    report: ReportFault,
) -> Iterator[AnswerExample]:
    what = f"question {name}" if name else f"question {abbreviate(question)}"
    for part, value in (("the question", question), ("the context", context)):
        if not value.strip():
            report(empty_text_fault(place, f"{what}: {part}"))
            return
    if answers is None:
        if wanted.needs_labels:
            raise InputError(f"{place}: {what} has no answers. Add them, or [] if the text does not answer it.")
        yield AnswerExample(question, context, None, name, place, group)
        return
    stated = [(check_text(text, place, "the answer"), start) for text, start in _read_stated(answers, place) if text]
    faults: list[Fault] = []
    found = [one for text, start in stated if (one := locate_answer(context, text, start, place, what, faults.append))]
    kept: tuple[AnswerSpan, ...] | None = tuple(found)
    if stated and not found:
        message = f"{what}: neither the answer {abbreviate(stated[0][0])} nor any other is in the text"
        if wanted.needs_labels:
            report(Fault(place, "answer", message, "dropped"))
            return
        # as in CMRC's test file, whose answers are dummies
        faults, kept = [Fault(place, "answer", f"{message}: treated as unlabelled", "noted")], None
    for fault in faults:
        report(fault)
    texts = {answer.text for answer in found}
    others = tuple(dict.fromkeys(text for text, _ in stated if text not in texts)) if kept else ()
    yield AnswerExample(question, context, kept, name, place, group, others)


def _read_stated(answers: Any, place: Place) -> list[tuple[str, int | None]]:
    """Return texts and offsets as stated in the file; an empty text means no answer."""
    if isinstance(answers, dict) and isinstance(answers.get("text"), list):
        texts, starts = answers["text"], answers.get("answer_start", [None] * len(answers["text"]))
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise InputError(f'{place}: "text" and "answer_start" of the answers are not lists of equal length.')
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    found: list[tuple[str, int | None]] = []
    for answer in answers if isinstance(answers, list) else [answers]:
        if isinstance(answer, Mapping):
            text, start = answer.get("text"), answer.get("answer_start", answer.get("start"))
        else:
            text, start = answer, None
        if text is None or isinstance(text, bool | list | dict):
            raise InputError(
                f'{place}: an answer must be {{"text": …, "answer_start": …}} or a text, not {answer!r:.60}.'
            )
        found.append((text if isinstance(text, str) else str(text), _offset(start, place)))
    return found


def _offset(start: Any, place: Place) -> int | None:
    if start is None or start == "":
        return None
    if isinstance(start, str | int | Decimal):
        try:
            number = float(start)  # some programs write 12.0
        except (ValueError, OverflowError):
            number = math.nan
        if number.is_integer() and abs(number) < 2**53:
            return int(number)
    raise InputError(f"{place}: the answer begins at {start!r}, which is not an integer.")


def answer_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    columns = {role: find_given_column(role, value, names, where) for role, value in wanted.columns.items()}
    if "text" in columns:
        columns.setdefault("context", columns.pop("text"))
    for role in ("question", "context", "answer", "id", "group"):
        others = [name for name in names if name not in columns.values()]
        if role not in columns and (found := find_usual_column(role, others, where)):
            columns[role] = found
    return check_complete(wanted, columns, names, where)


def answer_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    """Return a reader of flat records."""
    offset = next((name for name in names if column_key(name) in OFFSETS), None)

    def convert(line: int, record: FlatRecord, report: ReportFault) -> Iterator[AnswerExample]:
        place = wanted.place(line)
        question, context = (read_string(record, columns[role], place) for role in ("question", "context"))
        answers = unpack_json_cell(record.get(columns["answer"])) if "answer" in columns else None
        if isinstance(answers, str) and offset is not None:
            answers = {"text": answers, "answer_start": record.get(offset)}
        if record.get("is_impossible") is True:
            answers = []
        name = value_as_text(record.get(columns["id"])) if "id" in columns else None
        group = value_as_text(record.get(columns["group"])) if "group" in columns else context
        yield from _make_answer_example(wanted, place, question, context, answers, name or "", group, report)

    return convert


def _objects(value: Any, place: Place, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f'{place}: "{name}" must be a list of objects.')
    return value


def _first(record: FlatRecord, names: Sequence[str], place: Place) -> str:
    for name in names:
        if isinstance(record.get(name), str):
            return str(record[name])
    raise InputError(f"{place}: an object without {names[0]!r}; it has {quote_names(list(record))}.")


def is_c3(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 2
        and isinstance(value[0], list)
        and isinstance(value[1], list)
        and all(isinstance(one, str) for one in value[0])
        and all(isinstance(one, dict) for one in value[1])
    )


def nested_choices(wanted: Wanted, value: Any) -> tuple[str, Convert] | None:
    """Return the format and reader of a file that begins with this value; None for flat records."""
    return ("c3", c3_reader(wanted)) if is_c3(value) else None


def c3_reader(wanted: Wanted) -> Convert:
    def convert(line: int, unit: Value, report: ReportFault) -> Iterator[ChoiceExample]:
        place = wanted.place(line)
        if not is_c3(unit.value):
            raise InputError(f'{place}: [[lines of the text], [{{"question", "choice", "answer"}}], id] was expected.')
        text = check_text("\n".join(unit.value[0]), place, "the text")
        name = value_as_text(unit.value[2]) if len(unit.value) > 2 else None
        questions = unit.value[1]
        lines = _numbers(wanted, unit, line, "question", len(questions))
        for number, (one, at) in enumerate(zip(questions, lines, strict=True)):
            here = wanted.place(at)
            choices = _choices(one.get("choice", one.get("choices")), here)
            yield from _make_choice_example(
                wanted, here, text, read_string(one, "question", here), choices, one.get("answer"),
                f"{name}-{number}" if name else "", name or text, report,
            )  # fmt: skip

    return convert


def choice_roles(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    """role → column; several columns of choices are separated by commas."""
    given = dict(wanted.columns)
    columns = {}
    if (several := given.get("choices", "")) and several not in names and "," in several:
        columns["choices"] = ",".join(
            find_given_column("choices", one.strip(), names, where) for one in several.split(",")
        )
        del given["choices"]
    columns |= {role: find_given_column(role, value, names, where) for role, value in given.items()}
    for role, other in (("text", "context"), ("label", "answer")):
        if role in columns:
            columns.setdefault(other, columns.pop(role))
    others = [name for name in names if name not in columns.values()]
    if "choices" not in columns:
        if each := find_choice_columns(others):
            columns["choices"] = ",".join(each)
        elif found := find_usual_column("choices", others, where):
            columns["choices"] = found
    for role in ("question", "context", "answer", "id", "group"):
        taken = {name for value in columns.values() for name in (value, *value.split(","))}
        if role not in columns and (
            found := find_usual_column(role, [one for one in names if one not in taken], where)
        ):
            columns[role] = found
    return check_complete(wanted, columns, names, where)


def choice_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    """Return a reader of flat records."""
    each = [columns["choices"]] if columns["choices"] in names else columns["choices"].split(",")

    def convert(line: int, record: FlatRecord, report: ReportFault) -> Iterator[ChoiceExample]:
        place = wanted.place(line)
        text, question = (  # either may be missing, from all records or from this one
            read_string(record, columns[role], place) if columns.get(role) in record else ""
            for role in ("context", "question")
        )
        if len(each) == 1:
            choices = _choices(record.get(each[0]), place)
        else:  # fewer choices than there are columns leave the last ones empty
            choices = [read_string(record, name, place) for name in each]
            while choices and not choices[-1].strip():
                choices.pop()
        answer = record.get(columns["answer"]) if "answer" in columns else None
        name = value_as_text(record.get(columns["id"])) if "id" in columns else None
        group = value_as_text(record.get(columns["group"])) if "group" in columns else text or None
        yield from _make_choice_example(wanted, place, text, question, choices, answer, name or "", group, report)

    return convert


def _choices(value: Any, place: Place) -> list[str]:
    value = unpack_json_cell(value)
    if isinstance(value, dict) and isinstance(value.get("text"), list):  # {"label": ["A", "B"], "text": […]}
        value = value["text"]
    if not isinstance(value, list):
        raise InputError(f"{place}: the choices must be a list of texts, not {value!r:.60}.")
    if any(isinstance(one, dict | list) for one in value):
        raise InputError(f"{place}: each choice must be a text; the choices are {value!r:.60}.")
    return [one if isinstance(one, str) else value_as_text(one) or "" for one in value]


def _make_choice_example(
    wanted: Wanted, place: Place, text: str, question: str, choices: list[str], answer: Any, name: str,
    group: str | None, report: ReportFault,
) -> Iterator[ChoiceExample]:  # fmt: skip
    if len(choices) < 2:
        raise InputError(f"{place} has {len(choices)} choices; there must be at least two.")
    for number, choice in enumerate(choices, 1):
        if not check_text(choice, place, "a choice").strip():
            report(empty_text_fault(place, f"choice {number}"))
            return
    if not text.strip() and not question.strip():
        report(empty_text_fault(place, "the question"))
        return
    right = answer_number(answer, choices, place)
    if right is None and wanted.needs_labels:
        raise InputError(f"{place} has no answer. Add the right choice: its text, a letter, or a number from 0.")
    if right is not None and choices.count(choices[right]) > 1:
        message = f"the right choice {abbreviate(choices[right])} occurs more than once, choice {right + 1} is used"
        report(Fault(place, "choices", message, "noted"))
    yield ChoiceExample(text, question, tuple(choices), right, name, place, group)


def answer_number(answer: Any, choices: Sequence[str], place: Place) -> int | None:
    """Return the number of the right choice, from 0; None if it is not stated.

    >>> answer_number("B", ["red", "blue"], Place("a", 1)), answer_number(0, ["1", "0"], Place("a", 1))
    (1, 0)
    >>> answer_number("0", ["1", "0"], Place("a", 1))
    1
    """
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    written = value_as_text(answer)
    if written is None:
        return None
    if isinstance(answer, str):
        if answer in choices:
            return choices.index(answer)
        stripped = [choice.strip() for choice in choices]
        if written in stripped:
            return stripped.index(written)
        if len(written) == 1 and "A" <= written.upper() <= "Z" and ord(written.upper()) - ord("A") < len(choices):
            return ord(written.upper()) - ord("A")
    if written.isdigit() and int(written) < len(choices):
        return int(written)
    hint = " Numbers count from 0." if written.isdigit() else ""
    raise InputError(f"{place}: the answer {written!r:.60} is not one of the {len(choices)} choices.{hint}")
