"""Questions with several choices, one of them right: C3, and flat records.

    C3      [[lines of the text …], [{"question", "choice": […], "answer"}], id]
    flat    {"context", "question", "choices": […], "answer"}, or a column for each choice (A B C D, choice1 choice2 …)

The answer is the text of a choice, a letter (A is the first), or a number, counted from 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qkv.data.columns import ask, choice_columns, given_column, listed, usual_column
from qkv.data.examples import ChoiceExample, Fault, Place
from qkv.data.json_values import Value, line_of_each
from qkv.data.opened import Convert, Told, Wanted, empty, shortened, sound
from qkv.data.text_records import Record, spelled, string, unpacked
from qkv.errors import InputError


def is_c3(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 2
        and isinstance(value[0], list)
        and isinstance(value[1], list)
        and all(isinstance(one, str) for one in value[0])
        and all(isinstance(one, dict) for one in value[1])
    )


def c3_reader(wanted: Wanted) -> Convert:
    def convert(line: int, unit: Value, told: Told) -> Iterator[ChoiceExample]:
        place = wanted.place(line)
        if not is_c3(unit.value):
            raise InputError(f'{place}: [[lines of the text], [{{"question", "choice", "answer"}}], id] was expected.')
        text = sound("\n".join(unit.value[0]), place, "the text")
        name = spelled(unit.value[2]) if len(unit.value) > 2 else None
        questions = unit.value[1]
        lines = line_of_each(unit.raw, line, "question", len(questions))
        for number, (one, at) in enumerate(zip(questions, lines, strict=True)):
            here = wanted.place(at)
            choices = _choices(one.get("choice", one.get("choices")), here)
            yield from _checked(
                wanted, here, text, string(one, "question", here), choices, one.get("answer"),
                f"{name}-{number}" if name else "", name or text, told,
            )  # fmt: skip

    return convert


def choice_roles(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    """role → column; choices in several columns are written with commas between."""
    given = dict(wanted.columns)
    columns = {}
    if (several := given.get("choices", "")) and several not in names and "," in several:
        columns["choices"] = ",".join(given_column("choices", one.strip(), names, where) for one in several.split(","))
        del given["choices"]
    columns |= {role: given_column(role, value, names, where) for role, value in given.items()}
    for role, other in (("text", "context"), ("label", "answer")):
        if role in columns:
            columns.setdefault(other, columns.pop(role))
    others = [name for name in names if name not in columns.values()]
    if "choices" not in columns:
        if each := choice_columns(others):
            columns["choices"] = ",".join(each)
        elif found := usual_column("choices", others, where):
            columns["choices"] = found
    for role in ("question", "context", "answer", "id", "group"):
        taken = {name for value in columns.values() for name in (value, *value.split(","))}
        if role not in columns and (found := usual_column(role, [one for one in names if one not in taken], where)):
            columns[role] = found
    needed = ["choices"] + (["answer"] if wanted.needs_labels else [])
    if missing := [role for role in needed if role not in columns]:
        raise InputError(
            f"{where}: no column has a usual name for the {' and the '.join(missing)}; there are {listed(names)}. "
            f"{ask(*missing)}"
        )
    return columns


def choice_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    """Of flat records."""
    each = [columns["choices"]] if columns["choices"] in names else columns["choices"].split(",")

    def convert(line: int, record: Record, told: Told) -> Iterator[ChoiceExample]:
        place = wanted.place(line)
        text, question = (  # either may be missing, from all records or from this one
            string(record, columns[role], place) if columns.get(role) in record else ""
            for role in ("context", "question")
        )
        if len(each) == 1:
            choices = _choices(record.get(each[0]), place)
        else:  # fewer choices than there are columns leave the last ones empty
            choices = [string(record, name, place) for name in each]
            while choices and not choices[-1].strip():
                choices.pop()
        answer = record.get(columns["answer"]) if "answer" in columns else None
        name = spelled(record.get(columns["id"])) if "id" in columns else None
        group = spelled(record.get(columns["group"])) if "group" in columns else text or None
        yield from _checked(wanted, place, text, question, choices, answer, name or "", group, told)

    return convert


def _choices(value: Any, place: Place) -> list[str]:
    value = unpacked(value)
    if isinstance(value, dict) and isinstance(value.get("text"), list):  # {"label": ["A", "B"], "text": […]}
        value = value["text"]
    if not isinstance(value, list):
        raise InputError(f"{place}: the choices must be a list of texts, not {value!r:.60}.")
    if any(isinstance(one, dict | list) for one in value):
        raise InputError(f"{place}: each choice must be a text; the choices are {value!r:.60}.")
    return [one if isinstance(one, str) else spelled(one) or "" for one in value]


def _checked(
    wanted: Wanted, place: Place, text: str, question: str, choices: list[str], answer: Any, name: str,
    group: str | None, told: Told,
) -> Iterator[ChoiceExample]:  # fmt: skip
    if len(choices) < 2:
        raise InputError(f"{place} has {len(choices)} choices; there must be at least two.")
    for number, choice in enumerate(choices, 1):
        if not sound(choice, place, "a choice").strip():
            told(empty(place, f"choice {number}"))
            return
    if not text.strip() and not question.strip():
        told(empty(place, "the question"))
        return
    right = answer_number(answer, choices, place)
    if right is None and wanted.needs_labels:
        raise InputError(f"{place} has no answer. Write which choice is right: its text, a letter, or a number from 0.")
    if right is not None and choices.count(choices[right]) > 1:
        message = f"the right choice {shortened(choices[right])} is there more than once, choice {right + 1} was taken"
        told(Fault(place, "choices", message, "noted"))
    yield ChoiceExample(text, question, tuple(choices), right, name, place, group)


def answer_number(answer: Any, choices: Sequence[str], place: Place) -> int | None:
    """Which choice is meant, counted from 0; None where the file does not say.

    >>> answer_number("B", ["red", "blue"], Place("a", 1)), answer_number(0, ["1", "0"], Place("a", 1))
    (1, 0)
    >>> answer_number("0", ["1", "0"], Place("a", 1))
    1
    """
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    written = spelled(answer)
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
    raise InputError(f"{place}: the answer {written!r:.60} is none of the {len(choices)} choices.{hint}")
