"""The Chinese catalogue against the source: every message of the command line has its Chinese, no entry is left over.

The templates that lack it, ready to be filled in: PYTHONPATH=src python -m tests.support.message_templates
"""

import json
import re
from collections import Counter

import pytest

from qkv.text.messages import catalogue, translate
from tests.support.message_templates import SOURCE, Collector, Template

ELSEWHERE = "~"
"""Begins the name of the section for messages of other libraries, and for those that are put together at run time."""


@pytest.fixture(scope="module")
def templates() -> dict[str, Template]:
    return Collector().templates


@pytest.fixture(scope="module")
def sections() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((SOURCE / "text" / "messages.zh.json").read_text(encoding="utf-8"))
    return found


def test_every_message_has_its_chinese(templates: dict[str, Template]) -> None:
    missing = [f"{one.places[0]}: {text}" for text, one in templates.items() if text not in catalogue()]
    assert not missing, "\n".join(
        [
            "Add these to src/qkv/text/messages.zh.json, in the section of their folder:",
            *sorted(missing),
            "As JSON: PYTHONPATH=src python -m tests.support.message_templates",
        ]
    )


def test_no_entry_is_left_over(templates: dict[str, Template], sections: dict[str, dict[str, str]]) -> None:
    own = [text for name, entries in sections.items() if not name.startswith(ELSEWHERE) for text in entries]
    assert not [text for text in own if text not in templates]
    twice = [
        text
        for text, number in Counter(text for entries in sections.values() for text in entries).items()
        if number > 1
    ]
    assert not twice


def test_entries_are_in_the_section_of_their_folder(
    templates: dict[str, Template], sections: dict[str, dict[str, str]]
) -> None:
    assert list(sections) == sorted(sections)
    for name, entries in sections.items():
        assert list(entries) == sorted(entries), name
        if not name.startswith(ELSEWHERE):
            assert {templates[text].folder for text in entries if text in templates} == {name}


def test_placeholders_agree(templates: dict[str, Template]) -> None:
    """Every value is in the Chinese too, and a value that is a message is translated."""
    for text, template in templates.items():
        chinese = catalogue().get(text, text)
        found = dict(re.findall(r"\{(\d+)(!t)?\}", chinese))
        assert set(found) <= {str(number) for number in range(len(template.marks))}, chinese
        for number, mark in enumerate(template.marks):
            ending = mark == "grammar" or re.search(rf"[a-z]\{{{number}\}}", text)  # of a plural
            assert str(number) in found or ending, f"{{{number}}} is lost: {text} → {chinese}"
            if mark == "message" and str(number) in found:
                assert found[str(number)], f"{{{number}}} is a message, write {{{number}!t}}: {text} → {chinese}"


def test_chinese_is_chinese(sections: dict[str, dict[str, str]]) -> None:
    entries = [pair for name, section in sections.items() if not name.startswith(ELSEWHERE) for pair in section.items()]
    assert not [text for text, chinese in entries if not re.search(r"[\u3001-\u9fff\uff00-\uffef]", chinese)]
    doubled = [chinese for _, chinese in entries if re.search(r"[，。：；]{2}|[，。：；] |\.。", chinese)]
    assert not doubled


def test_every_template_is_recognised(templates: dict[str, Template]) -> None:
    """A message with values is translated by its own entry, not by another that happens to fit."""
    wrong = []
    for text, template in templates.items():
        english = []
        for number, mark in enumerate(template.marks):
            after_value = f"}}{{{number}}}" in text
            value = _VALUES.get(mark, "" if after_value else f"v{number}w")
            english.append(f" {value}" if after_value and value else value)
        message = _filled(text, english)
        chinese = [catalogue().get(value.strip(), value) for value in english]
        wanted = _filled(catalogue().get(text, ""), chinese)
        if "".join(translate(message, "zh").split()) != "".join(wanted.split()):
            wrong.append(f"{message}\n  {translate(message, 'zh')}\n  {wanted}")
    assert not wrong, "\n".join(wrong)


def _filled(template: str, values: list[str]) -> str:
    return re.sub(r"\{(\d+)(!t)?\}", lambda place: values[int(place[1])], template)


_VALUES = {"message": "No errors found.", "grammar": ""}


def test_nothing_in_english_bypasses_the_catalogue() -> None:
    """Prose of the terminal goes through `write` and `say`; `typer.echo` prints what must stay as it is."""
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted((SOURCE / "cli").glob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"(typer\.echo|\bprint)\(f?\"[^\"{}]*[a-z]{3,} [a-z]{2,}", line)
    ]
    assert not found
