"""The tasks by name: one literal table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qkv.errors import InputError, did_you_mean
from qkv.tasks import answer, choice, classify, tag
from qkv.tasks.task import Task
from qkv.text.tokenizer import Tokenizer

AnyTask = Task[Any, Any]


@dataclass(frozen=True)
class Entry:
    learn: Callable[[Sequence[Any], Any, Tokenizer], AnyTask]
    restored: Callable[[Sequence[str], Mapping[str, Any]], AnyTask]
    head: str
    longest: int  # tokens of a window, where the model allows as many


TASKS: dict[str, Entry] = {
    "classify": Entry(classify.learn, classify.restored, "sequence", 512),
    "tag": Entry(tag.Tag.learn, tag.Tag.restored, "token", 512),
    "answer": Entry(answer.Answer.learn, answer.Answer.restored, "span", 384),
    "choice": Entry(choice.Choice.learn, choice.Choice.restored, "choice", 512),
}


def task_named(name: str) -> Entry:
    if name not in TASKS:
        raise InputError(f"Unknown task '{name}'.{did_you_mean(name, TASKS)} Known: {', '.join(TASKS)}.")
    return TASKS[name]
