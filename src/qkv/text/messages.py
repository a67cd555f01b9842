"""Messages in the user's language: the language of the command line, and English sentences put into Chinese.

The code writes its messages in English. `messages.zh.json`, the one catalogue, maps English templates to Chinese ones:
`"There is no file {0}.{1}": "没有文件 {0}。{1!t}"`. A placeholder stands for an expression of the f-string and keeps
its value; `!t` marks a value that is a message itself, such as a hint. `tests/project/test_messages.py` compares the
catalogue with the source.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import NamedTuple

from qkv.errors import InputError

LANGUAGES = ("en", "zh")
_KIND = re.compile("(error:|note:|warning:) ")
_PLACE = re.compile(r"\{(\d+)(!t)?\}")
_BETWEEN = {"; ": "；", ", ": "，", " and ": "和", " or ": "或"}
_LONGEST_RUN = 4000  # characters in which two values without a separator are told apart

_chosen: str | None = None  # by --lang


def language() -> str:
    """The language of messages: --lang, then QKV_LANG, then the locale (LC_ALL, LC_MESSAGES, LANG); else English."""
    if _chosen is not None:
        return _chosen
    if ours := os.environ.get("QKV_LANG"):
        return check_language(ours, "QKV_LANG")
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if re.match(r"zh(?![a-z])", locale) else "en"


def check_language(name: str, source: str) -> str:
    """
    >>> check_language("zh_CN.UTF-8", "QKV_LANG")
    'zh'
    """
    found = re.match(r"(en|zh)(?![a-z])", name.lower())
    if found is None:
        raise InputError(f"{source} is '{name}': write {' or '.join(LANGUAGES)}.")
    return found[1]


@contextmanager
def speaking(lang: str | None) -> Iterator[None]:
    """Use a language inside the block; None: that of the environment."""
    global _chosen
    before, _chosen = _chosen, lang
    try:
        yield
    finally:
        _chosen = before


def translate(message: str, lang: str | None = None) -> str:
    """Return the message in a language, by default the user's; an unknown message is returned unchanged.

    >>> translate("There is no model 'bsae'. Did you mean 'scratch:lstm'?", "zh")
    "没有模型 'bsae'。是不是想写 'scratch:lstm'？"
    """
    if (lang or language()) == "en" or not message:
        return message
    whole = _prefixed(message)
    return whole if whole is not None else "\n".join(map(_line, message.split("\n")))


def _line(line: str) -> str:
    bare = line.strip()
    found = _prefixed(bare) if bare else None
    return line if found is None else line.replace(bare, found, 1)


def _prefixed(message: str) -> str | None:
    """Translate a message, after "error: ", "note: " or "warning: " if it begins so."""
    kind = _KIND.match(message)
    said = message[kind.end() :] if kind else message
    found = _value(said, lenient=False)
    if found is None:
        found = _find(said, lenient=True)
    return f"{catalogue()[kind[1]]}{found or said}" if kind else found


class _Template(NamedTuple):
    literals: list[str]  # one more than there are runs
    runs: list[list[bool]]  # of placeholders without text between them: which are translated
    order: list[int]  # numbers of the placeholders
    chinese: str
    weight: int  # characters of text


@cache
def catalogue() -> dict[str, str]:
    text = resources.files("qkv.text").joinpath("messages.zh.json").read_text(encoding="utf-8")
    return {english: chinese for entries in json.loads(text).values() for english, chinese in entries.items()}


@cache
def _templates() -> list[_Template]:
    """The templates with placeholders, those with most text first."""
    found = []
    for english, chinese in catalogue().items():
        pieces = re.split(r"((?:\{\d+\})+)", english)
        if len(pieces) > 1:
            translated = {number for number, mark in _PLACE.findall(chinese) if mark}
            numbers = [re.findall(r"\d+", run) for run in pieces[1::2]]
            found.append(
                _Template(
                    pieces[::2],
                    [[number in translated for number in run] for run in numbers],
                    [int(number) for run in numbers for number in run],
                    chinese,
                    sum(map(len, pieces[::2])),
                )
            )
    return sorted(found, key=lambda one: (-one.weight, -len(one.order)))


def _find(message: str, lenient: bool = False, least: float = 0.0) -> str | None:
    """Return the Chinese of a message that is in the catalogue.

    lenient: values that are not in the catalogue, such as a message of another library, stay as they are
    least: the share of the message that must be literal, or a message in it must be known
    """
    message = message.strip()
    exact = catalogue().get(message)
    if exact is not None:
        return exact
    for template in _templates():
        if template.weight < least * len(message) and not any(map(any, template.runs)):
            continue
        literals = template.literals
        if not (message.startswith(literals[0]) and message.endswith(literals[-1])):
            continue
        if all(literal in message for literal in literals):
            values = _match(message, len(literals[0]), template, 0, lenient=False)
            if values is None and lenient:
                values = _match(message, len(literals[0]), template, 0, lenient=True)
            if values is not None:
                return _fill(template, values)
    return None


def _match(message: str, start: int, template: _Template, run: int, lenient: bool) -> list[str] | None:
    """Match the rest of a message, from the place of a run of values on. A translated value is empty or known: where
    a literal occurs twice, as the full stop of "There is no file a.txt.", this tells which one is meant."""
    if run == len(template.runs):
        return [] if start == len(message) else None
    literal = template.literals[run + 1]
    last = run + 1 == len(template.runs)
    at = len(message) - len(literal) if last else message.find(literal, start)
    while at >= start:
        values = _split(message[start:at], template.runs[run], lenient)
        rest = None if values is None else _match(message, at + len(literal), template, run + 1, lenient)
        if values is not None and rest is not None:
            return values + rest
        at = -1 if last else message.find(literal, at + 1)
    return None


def _split(text: str, translated: Sequence[bool], lenient: bool) -> list[str] | None:
    """Divide a text among values without text between them, and translate those that are messages."""
    first, *others = translated
    if not others:
        value = _value(text, lenient) if first else text
        return None if value is None else [value]
    if len(text) > _LONGEST_RUN or not any(translated):
        return [text, *[""] * len(others)]
    for at in range(len(text) + 1):
        head = _value(text[:at], lenient) if first else text[:at]
        rest = None if head is None else _split(text[at:], others, False)
        if head is not None and rest is not None:
            return [head, *rest]
    return [text, *[""] * len(others)] if lenient else None


def _value(text: str, lenient: bool) -> str | None:
    """Translate a value, sentence by sentence or name by name; if nothing in it is in the catalogue, it is None, or
    lenient as it is."""
    if not text.strip():
        return ""
    whole = _find(text, lenient)
    if whole is not None:
        return whole
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z])", text.strip())
    known = [_find(sentence, lenient) for sentence in sentences] if len(sentences) > 1 else [None]
    if None not in known:
        return "".join(filter(None, known))
    for separator, chinese in _BETWEEN.items():
        parts = text.strip().split(separator)
        names = [_find(name, least=0.5) for name in parts] if len(parts) > 1 else []
        if any(names):
            return chinese.join(name or _value(part, True) or part for name, part in zip(names, parts, strict=True))
    return text if lenient else None


def _fill(template: _Template, values: list[str]) -> str:
    by_number = dict(zip(template.order, values, strict=True))
    return _PLACE.sub(lambda place: by_number[int(place[1])], template.chinese)
