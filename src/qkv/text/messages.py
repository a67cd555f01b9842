"""Messages in the user's language: the language of the command line, and English sentences put into Chinese.

The code writes its messages in English. `messages.zh.json`, the one catalogue, maps English templates to Chinese ones:
`"There is no file {0}.{1}": "没有文件 {0}。{1!t}"`. A placeholder stands for an expression of the f-string and keeps
its value; `!t` marks a value that is a message itself, such as a hint. `tests/project/test_messages.py` compares the
catalogue with the source.
"""

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import resources
from itertools import islice
from typing import NamedTuple

from qkv.errors import InputError

LANGUAGES = ("en", "zh")
SYSTEM = "~ places in files, and errors of the operating system and of Python: translated in any value"
_KIND = re.compile("(error:|note:|warning:) ")
_PLACE = re.compile(r"\{(\d+)(!t)?\}")
_BETWEEN = {"; ": "；", ", ": "，", " and ": "和", " or ": "或"}
_SPACED = re.compile(r"( *)\{(?P<number>\d+)(?P<mark>!t)?\}( *)")
_HAN, _LETTER = re.compile("[\u4e00-\u9fff]"), re.compile(r"[\w\]\[/.'\"-]", re.ASCII)
_WIDE = re.compile("[\u3000-\u9fff\uff00-\uffef]")
_ENOUGH = 12  # characters that tell a message
_PROSE = re.compile("[a-z]+ [a-z]+ [a-z]+")
_NAMES = re.compile(r"[^\s,]+(?:(?:, | or | and )[^\s,]+)+")
_EXTENSION = re.compile(r"\.[^\W\d]")  # what it follows is the name of a file: pairs.csv
_JOINT = re.compile(r"\s|[,;:.] |\(")  # where a value may end and a message begin, without text between them
# Messages may quote texts of users: the search through them ends.
_LONGEST, _DEEPEST, _MOST = 3000, 4, 20  # characters of a message, messages in messages, places and parts

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


def write(message: str, err: bool = False) -> None:
    """Print a message in the user's language."""
    print(translate(message), file=sys.stderr if err else sys.stdout, flush=True)


def translate(message: str, lang: str | None = None) -> str:
    """Return the message in a language, by default the user's; an unknown message is returned unchanged.

    >>> translate("There is no model 'bsae'. Did you mean 'scratch:lstm'?", "zh")
    '没有模型「bsae」。是不是想写「scratch:lstm」？'
    """
    if (lang or language()) == "en" or not message:
        return message
    return "\n".join(map(_line, message.split("\n")))


def translate_at(place: str, message: str) -> str:
    """Translate a message that follows its place in a file: "has no label", as the end of "a.csv, line 2 has no label".

    >>> with speaking("zh"):
    ...     translate_at("a.csv, line 2", "has no label: 'y' is empty. Add the label, or delete the line.")
    "没有标签：'y' 是空的。请补上标签，或删去这一行。"
    """
    found, start = translate(message), translate(place)
    if _PROSE.search(found):  # it is not a message by itself
        for whole in (f"{place} {message}", f"{place}: {message}"):
            if (said := translate(whole)) != whole and said.startswith(start):
                return said.removeprefix(start).lstrip("： ")
    return found


def _line(line: str) -> str:
    bare = line.strip()
    found = _prefixed(bare) if bare else None
    return line if found is None else line.replace(bare, found, 1)


def _prefixed(message: str) -> str | None:
    """Translate a message, after "error: ", "note: " or "warning: " if it begins so."""
    kind = _KIND.match(message)
    said = message[kind.end() :] if kind else message
    found = _find(said, 0)
    if kind:
        return catalogue()[kind[1]] + (said if found is None else found.text)
    return None if found is None else found.text


class _Chinese(NamedTuple):
    text: str
    score: int  # characters of the English that are in the catalogue, less 1 for a message that is not


class _Template(NamedTuple):
    literals: list[str]  # one more than there are runs
    runs: list[list[bool]]  # of placeholders without text between them: which are translated
    order: list[int]  # numbers of the placeholders
    chinese: str
    weight: int  # characters of text
    most: float  # the score that it can reach


@cache
def _sections() -> dict[str, dict[str, str]]:
    text = resources.files("qkv.text").joinpath("messages.zh.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = json.loads(text)
    return found


@cache
def catalogue() -> dict[str, str]:
    return {english: chinese for entries in _sections().values() for english, chinese in entries.items()}


@cache
def _templates() -> list[_Template]:
    """The templates with placeholders, those with most text first."""
    found = []
    for english, chinese in catalogue().items():
        pieces = re.split(r"((?:\{\d+\})+)", english)
        if len(pieces) > 1:
            translated = {number for number, mark in _PLACE.findall(chinese) if mark}
            numbers = [re.findall(r"\d+", run) for run in pieces[1::2]]
            weight = sum(map(len, pieces[::2]))
            found.append(
                _Template(
                    pieces[::2],
                    [[number in translated for number in run] for run in numbers],
                    [int(number) for run in numbers for number in run],
                    chinese,
                    weight,
                    math.inf if translated else weight,
                )
            )
    return sorted(found, key=lambda one: -one.weight)


@lru_cache(maxsize=1000)
def _find(message: str, depth: int) -> _Chinese | None:
    """Return the Chinese of a message: of the template that explains most of it, or sentence by sentence."""
    message = message.strip()
    exact = catalogue().get(message)
    if exact is not None:
        return _Chinese(exact, len(message))
    if depth > _DEEPEST or len(message) > _LONGEST:
        return None
    best = _of_sentences(message, depth + 1)
    for template in _templates():
        if best is not None and template.most <= best.score:
            continue
        first, last = template.literals[0], template.literals[-1]
        if not (message.startswith(first) and message.endswith(last)):
            continue
        if all(literal in message for literal in template.literals):
            found = _match(message, len(first), template, 0, depth + 1)
            score = 0 if found is None else found[1] + template.weight
            if found is None or score <= (0 if best is None else best.score):
                continue
            marks = [mark for run in template.runs for mark in run]
            kept = [value for value, mark in zip(found[0], marks, strict=True) if not mark]
            if template.weight < _ENOUGH and any(map(_PROSE.search, kept)):
                continue  # these few words are not what the message is about
            best = _Chinese(_fill(template.chinese, dict(zip(template.order, found[0], strict=True))), score)
    return best


def _of_sentences(message: str, depth: int) -> _Chinese | None:
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z'\d])", message)
    if not 1 < len(sentences) <= _MOST:
        return None
    found = [_find(sentence, depth) or _Chinese(sentence, -1) for sentence in sentences]
    score = sum(one.score for one in found)
    text = "".join(one.text + (" " if one.text[-1].isascii() else "") for one in found).rstrip()
    return _Chinese(text, score) if score > 0 else None


def _match(message: str, start: int, template: _Template, run: int, depth: int) -> tuple[list[str], int] | None:
    """Match the rest of a message, from the place of a run of values on; returns the values and their score. Where a
    literal occurs twice, as the full stop of "There is no file a.txt.", the best score tells which one is meant."""
    if run == len(template.runs):
        return ([], 0) if start == len(message) else None
    literal = template.literals[run + 1]
    last = run + 1 == len(template.runs)
    at = len(message) - len(literal) if last else message.find(literal, start)
    best: tuple[list[str], int] | None = None
    tried = 0
    while at >= start and tried < _MOST:
        tried += 1
        if not last and _EXTENSION.match(message, at + len(literal)) and literal[-1:].isalpha():
            at = message.find(literal, at + 1)
            continue
        values, score = _split(message[start:at], template.runs[run], depth)
        rest = _match(message, at + len(literal), template, run + 1, depth)
        if rest is not None and (best is None or score + rest[1] > best[1]):
            best = values + rest[0], score + rest[1]
        at = -1 if last else message.find(literal, at + 1)
    return best


def _split(text: str, translated: Sequence[bool], depth: int) -> tuple[list[str], int]:
    """Divide a text among values without text between them, and translate those that are messages."""
    first, *others = translated
    if not others:
        found = _value(text, depth) if first else _Chinese(_of_system(text), 0)
        return [found.text], found.score
    best: tuple[list[str], int] | None = None
    places = [place.start() for place in islice(_JOINT.finditer(text), _MOST)]
    for at in sorted({0, *places, len(text)}, reverse=not first) if any(translated) else [len(text)]:
        head = _value(text[:at], depth) if first else _Chinese(_of_system(text[:at].rstrip()), 0)
        rest, score = _split(text[at:], others, depth)
        if best is None or head.score + score > best[1]:
            best = [head.text, *rest], head.score + score
    assert best is not None
    return best


def _value(text: str, depth: int) -> _Chinese:
    """Translate a value, whole or as a list; what is not in the catalogue stays, and counts against the match."""
    text = text.strip()
    if not text:
        return _Chinese("", 0)
    best = _find(text, depth) or _Chinese(text, -1)
    for separator, chinese in _BETWEEN.items():
        parts = text.split(separator)
        if not 1 < len(parts) <= _MOST:
            continue
        names = [_name(part, depth) for part in parts]
        score = sum(one.score for one in names)
        if score > max(0, best.score):
            return _Chinese(chinese.join(one.text for one in names), score)
    return best


@cache
def _system() -> list[tuple[re.Pattern[str], str]]:
    entries = _sections()[SYSTEM]
    return [
        (re.compile(re.sub(r"\\{\d+\\}", "(.+)", re.escape(english))), re.sub(r"\{(\d+)\}", _group, chinese))
        for english, chinese in entries.items()
    ]


def _group(place: re.Match[str]) -> str:
    return f"\\g<{int(place[1]) + 1}>"


def _of_system(value: str) -> str:
    """Translate places in files, errors of the operating system and lists of names, which any value may be."""
    for pattern, chinese in _system() if len(value) < _LONGEST else ():
        if found := pattern.fullmatch(value):
            return found.expand(chinese)
    return value.replace(" or ", " 或 ").replace(" and ", " 和 ") if _NAMES.fullmatch(value) else value


def _name(part: str, depth: int) -> _Chinese:
    """Translate an item of a list, if enough of it is in the catalogue: others are names."""
    found = _find(part, depth)
    return found if found is not None and found.score >= min(_ENOUGH, len(part) / 2) else _Chinese(part, 0)


def _fill(chinese: str, values: dict[int, str]) -> str:
    """Put in the values; a space is between 汉字 and letters, and not between 汉字."""

    def fill(place: re.Match[str]) -> str:
        value = values[int(place["number"])]
        if not value or not (place["mark"] or _HAN.search(value[0] + value[-1])):
            return place[1] + value + place[4]
        before, after = chinese[: place.start()][-1:], chinese[place.end() :][:1]
        return _space(before, place[1], value[0]) + value + _space(value[-1], place[4], after)

    return _SPACED.sub(fill, chinese)


def _space(left: str, written: str, right: str) -> str:
    """The space between two characters, where the template has written one or not."""
    if len(written) > 1 or _meet(left, right):
        return written or " "
    return "" if _WIDE.fullmatch(left) or _WIDE.fullmatch(right) else written


def _meet(left: str, right: str) -> bool:
    """Whether one of two characters is a 汉字 and the other a letter, a digit or the like."""
    return bool(_LETTER.fullmatch(left) and _HAN.fullmatch(right)) or bool(
        _HAN.fullmatch(left) and _LETTER.fullmatch(right)
    )
