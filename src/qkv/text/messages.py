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
_PLACE = re.compile(r"\{(\d+)(!t)?\}")
_BETWEEN = re.compile(r"(, | and |; | or )")
_CHINESE_BETWEEN = {", ": "，", " and ": "和", "; ": "；", " or ": "或"}
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
    whole = _find(message)
    return whole if whole is not None else "\n".join(_line(line) for line in message.split("\n"))


def _line(line: str) -> str:
    bare = line.strip()
    found = _find(bare) if bare else None
    return line if found is None else line.replace(bare, found, 1)


class _Template(NamedTuple):
    literals: list[str]  # one more than there are runs of placeholders
    runs: list[list[str]]  # placeholders without text between them
    chinese: str
    weight: int  # characters of text

    def matches(self, message: str) -> bool:
        """Whether every literal occurs, in order."""
        if not (message.startswith(self.literals[0]) and message.endswith(self.literals[-1])):
            return False
        at = 0
        for literal in self.literals:
            at = message.find(literal, at)
            if at < 0:
                return False
            at += len(literal)
        return True


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
            literals = pieces[::2]
            runs = [_PLACE.findall(run) for run in pieces[1::2]]
            found.append(
                _Template(literals, [[number for number, _ in run] for run in runs], chinese, sum(map(len, literals)))
            )
    return sorted(found, key=lambda one: -one.weight)


@cache
def _pattern(literals: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(.*?)".join(map(re.escape, literals)), re.DOTALL)


def _find(message: str) -> str | None:
    """Return the Chinese of a message that is in the catalogue."""
    message = message.strip()
    exact = catalogue().get(message)
    if exact is not None:
        return exact
    for template in _templates():
        if template.matches(message) and (found := _pattern(tuple(template.literals)).fullmatch(message)):
            translated = {number for number, mark in _PLACE.findall(template.chinese) if mark}
            values: dict[str, str] = {}
            for run, text in zip(template.runs, found.groups(), strict=True):
                values.update(zip(run, _split(text, [number in translated for number in run]), strict=True))
            return "".join(
                values[piece] if number % 3 == 1 else piece
                for number, piece in enumerate(_PLACE.split(template.chinese))
                if number % 3 < 2
            )
    return None


def _split(text: str, translated: Sequence[bool]) -> list[str]:
    """Divide a text among values without text between them: a translated one is empty or in the catalogue."""
    if len(translated) == 1:
        return [_value(text) if translated[0] else text]
    if len(text) > _LONGEST_RUN or not any(translated):
        return [text, *[""] * (len(translated) - 1)]
    first, *rest = translated
    for at in range(len(text) + 1):
        head, tail = text[:at], text[at:]
        if first and head and _find(head) is None:
            continue
        others = _split(tail, rest)
        if tail and rest == [True] and others == [tail]:
            continue
        return [_value(head) if first else head, *others]
    return [text, *[""] * len(rest)]


def _value(text: str) -> str:
    """Translate a value; a list is translated name by name."""
    found = _find(text)
    if found is not None or not text:
        return found or ""
    parts = _BETWEEN.split(text)
    names = [_find(name) for name in parts[::2]]
    if len(names) == 1 or not any(names):
        return text
    between = [_CHINESE_BETWEEN[one] for one in parts[1::2]]
    words = [name if name is not None else part for name, part in zip(names, parts[::2], strict=True)]
    return "".join(word + joint for word, joint in zip(words, [*between, ""], strict=True))
