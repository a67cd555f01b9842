"""Questions with answers that stand in a text: SQuAD 1.1 and 2.0, CMRC 2018 in both its shapes, and flat records.

    article     {"title", "paragraphs": [{"context", "qas": [{"question", "answers": [{"text", "answer_start"}]}]}]}
    paragraph   the inner object alone; CMRC calls its fields context_text, query_text, query_id
    flat        question, context and answer in columns or fields; answers as above, as {"text": […], "answer_start":
                […]}, or as bare texts, which are looked for in the context

Where SQuAD 2.0 says is_impossible, the answers are none, whatever it calls plausible. An answer that does not stand at
its offset goes through mending.py; a question that loses all of its answers so is dropped, and told.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from qkv.data.columns import ask, given_column, key, listed, usual_column
from qkv.data.examples import Answer, AnswerExample, Fault, Place
from qkv.data.json_values import Value, line_of_each
from qkv.data.mending import placed_answer
from qkv.data.opened import Convert, Told, Wanted, empty, shortened, sound
from qkv.data.text_records import Record, spelled, string, unpacked
from qkv.errors import InputError

OFFSETS = ("answerstart", "start", "answeroffset", "答案起始")


def shape_of(value: Any) -> str:
    """squad, cmrc, or "" for flat records."""
    if isinstance(value, dict):
        if isinstance(value.get("paragraphs"), list):
            return "squad"
        if isinstance(value.get("qas"), list):
            return "cmrc" if "context_text" in value else "squad"
    return ""


def nested_reader(wanted: Wanted) -> Convert:
    """Of articles and of paragraphs."""

    def convert(line: int, unit: Value, told: Told) -> Iterator[AnswerExample]:
        place = wanted.place(line)
        article = unit.value
        if not shape_of(article):
            raise InputError(f'{place}: an article with "paragraphs", or a paragraph with "qas", was expected.')
        paragraphs = _objects(article.get("paragraphs", [article]), place, "paragraphs")
        asked = [_objects(one.get("qas"), place, "qas") for one in paragraphs]
        lines = iter(line_of_each(unit.raw, line, "question|query_text", sum(map(len, asked))))
        title = spelled(article.get("title"))
        for paragraph, questions in zip(paragraphs, asked, strict=True):
            context = _first(paragraph, ("context", "context_text"), place)
            sound(context, place, "the context")
            group = title or spelled(paragraph.get("id", paragraph.get("context_id"))) or context
            for question in questions:
                yield from _example(wanted, wanted.place(next(lines)), context, question, group, told)

    return convert


def _example(
    wanted: Wanted, place: Place, context: str, question: Record, group: str, told: Told
) -> Iterator[AnswerExample]:
    text = sound(_first(question, ("question", "query_text"), place), place, "the question")
    name = spelled(question.get("id", question.get("query_id"))) or ""
    answers = question.get("answers", question.get("answer"))
    if question.get("is_impossible") is True:
        answers = []
    yield from _checked(wanted, place, text, context, answers, name, group, told)


def _checked(
    wanted: Wanted, place: Place, question: str, context: str, answers: Any, name: str, group: str | None, told: Told
) -> Iterator[AnswerExample]:
    what = f"question {name}" if name else f"question {shortened(question)}"
    for part, value in (("the question", question), ("the context", context)):
        if not value.strip():
            told(empty(place, f"{what}: {part}"))
            return
    if answers is None:
        if wanted.needs_labels:
            raise InputError(
                f"{place}: {what} has no answers. Write them, or an empty list where the text does not answer it."
            )
        yield AnswerExample(question, context, None, name, place, group)
        return
    stated = [(sound(text, place, "the answer"), start) for text, start in _stated(answers, place) if text]
    faults: list[Fault] = []
    found = [one for text, start in stated if (one := placed_answer(context, text, start, place, what, faults.append))]
    kept: tuple[Answer, ...] | None = tuple(found)
    if stated and not found:
        message = f"{what}: the answer {shortened(stated[0][0])} does not stand in the text, nor does any other"
        if wanted.needs_labels:
            told(Fault(place, "answer", message, "dropped"))
            return
        # as in CMRC's test file, where they are made up
        faults, kept = [Fault(place, "answer", f"{message}: it counts as not labelled", "noted")], None
    for fault in faults:
        told(fault)
    texts = {answer.text for answer in found}
    others = tuple(dict.fromkeys(text for text, _ in stated if text not in texts)) if kept else ()
    yield AnswerExample(question, context, kept, name, place, group, others)


def _stated(answers: Any, place: Place) -> list[tuple[str, int | None]]:
    """Texts and offsets as the file gives them; an empty text stands for no answer."""
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
            raise InputError(f'{place}: an answer is {{"text": …, "answer_start": …}} or a text, not {answer!r:.60}.')
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
    raise InputError(f"{place}: the answer begins at {start!r}, which is not a whole number.")


def answer_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    columns = {role: given_column(role, value, names, where) for role, value in wanted.columns.items()}
    if "text" in columns:
        columns.setdefault("context", columns.pop("text"))
    for role in ("question", "context", "answer", "id", "group"):
        others = [name for name in names if name not in columns.values()]
        if role not in columns and (found := usual_column(role, others, where)):
            columns[role] = found
    needed = ["question", "context"] + (["answer"] if wanted.needs_labels else [])
    if missing := [role for role in needed if role not in columns]:
        raise InputError(
            f"{where}: no column has a usual name for the {' and the '.join(missing)}; there are {listed(names)}. "
            f"{ask(*missing)}"
        )
    return columns


def answer_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    """Of flat records."""
    offset = next((name for name in names if key(name) in OFFSETS), None)

    def convert(line: int, record: Record, told: Told) -> Iterator[AnswerExample]:
        place = wanted.place(line)
        question, context = (string(record, columns[role], place) for role in ("question", "context"))
        answers = unpacked(record.get(columns["answer"])) if "answer" in columns else None
        if isinstance(answers, str) and offset is not None:
            answers = {"text": answers, "answer_start": record.get(offset)}
        if record.get("is_impossible") is True:
            answers = []
        name = spelled(record.get(columns["id"])) if "id" in columns else None
        group = spelled(record.get(columns["group"])) if "group" in columns else context
        yield from _checked(wanted, place, question, context, answers, name or "", group, told)

    return convert


def _objects(value: Any, place: Place, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f'{place}: "{name}" must be a list of objects.')
    return value


def _first(record: Record, names: Sequence[str], place: Place) -> str:
    for name in names:
        if isinstance(record.get(name), str):
            return str(record[name])
    raise InputError(f"{place}: an object without {names[0]!r}; it has {listed(list(record))}.")
