"""Tiny labelled sets in the words of tests/support/folders.py, that a tiny network can learn in seconds."""

import csv
import json
from pathlib import Path
from typing import Any

from qkv.data.labelled.examples import AnswerExample, AnswerSpan, ChoiceExample, Place, Span, TagExample, TextExample

ANIMALS = ("cat", "dog", "animal")
PLACES = ("paris", "france", "street", "北 京", "上 海")
VERBS = ("sat", "is", "was")


def texts(count: int = 60) -> list[TextExample]:
    """Is it about an animal or a place? Said in two ways and two languages."""
    found = []
    for number in range(count):
        words, label = (ANIMALS, "animal") if number % 2 else (PLACES, "place")
        word = words[(number // 2) % len(words)]
        text = f"the {word} {VERBS[number % 3]} {'too' if number % 4 else 'on'} {'1 2 3 4 5 6 7 8 9'[: number % 17]}"
        found.append(TextExample(text, label=label, place=Place("texts.csv", number + 2)))
    return found


def write_texts(path: Path, examples: list[TextExample] | None = None) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["text", "label"])
        rows.writerows((example.text, example.label) for example in examples or texts())
    return path


def tagged(count: int = 60) -> list[TagExample]:
    found = []
    for number in range(count):
        word, label = (ANIMALS[number % 3], "ANI") if number % 2 else (PLACES[number % 3], "LOC")
        before = "he owes me " if number % 4 else "the "
        text = f"{before}{word} is 😀 {number % 10}"
        span = Span(len(before), len(before) + len(word), label)
        found.append(TagExample(text, (span,), place=Place("tags.jsonl", number + 1)))
    return found


def write_tagged(path: Path) -> Path:
    lines = [json.dumps({"text": e.text, "label": [list(span) for span in e.spans or ()]}) for e in tagged()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def asked(count: int = 48) -> list[AnswerExample]:
    """Who sat? Where? The answer is the word after "the", or the one after "on"."""
    found = []
    for number in range(count):
        who, where = ANIMALS[number % 3], ("mat", "street", "paris")[(number // 3) % 3]
        text = f"the {who} sat on {where} ."
        question, answer = ("who sat", who) if number % 2 else ("where", where)
        found.append(
            AnswerExample(
                question.replace("who", "he").replace("where", "it"),
                text,
                (AnswerSpan(text.index(answer), answer),),
                id=str(number),
                place=Place("asked.json", 1),
                group=str(number),
            )
        )
    return found


def write_asked(path: Path) -> Path:
    paragraphs = [
        {
            "context": e.text,
            "qas": [
                {
                    "id": e.id,
                    "question": e.question,
                    "answers": [{"text": a.text, "answer_start": a.start} for a in e.answers or ()],
                }
            ],
        }
        for e in asked()
    ]
    data = [{"title": str(number), "paragraphs": [one]} for number, one in enumerate(paragraphs)]
    path.write_text(json.dumps({"version": "1.1", "data": data}), encoding="utf-8")
    return path


def chosen(count: int = 96) -> list[ChoiceExample]:
    """Which of these stood in the text?"""
    words = (*ANIMALS, "mat", "street", "money")
    found = []
    for number in range(count):
        right = words[number % 6]
        wrong = words[(number + 1 + number % 5) % 6]
        choices = (right, wrong) if number % 2 else (wrong, right)
        text, answer = f"the {right} is tired {number % 10} {number // 10}", 0 if number % 2 else 1
        found.append(ChoiceExample(text, "it", choices, answer, str(number), Place("choice.jsonl", number + 1)))
    return found


def write_chosen(path: Path) -> Path:
    lines = [
        json.dumps({"context": e.text, "question": e.question, "choices": list(e.choices), "answer": e.answer})
        for e in chosen()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


WRITERS = {"classify": write_texts, "tag": write_tagged, "answer": write_asked, "choice": write_chosen}
"""For each task, what writes its set."""


def unlabelled(animal: str = "cat", place: str = "paris") -> dict[str, Any]:
    """For each task, what its models can be asked about these."""
    return {
        "classify": [f"the {animal} sat on 1", f"the {place} is too 1 2"],
        "tag": [f"he owes me {animal} is 😀 3"],
        "answer": [("he sat", f"the {animal} sat on mat .")],
        "choice": [{"text": f"the {animal} is tired", "question": "it", "choices": [animal, "mat"]}],
    }
