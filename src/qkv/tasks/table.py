"""The tasks by name: one literal table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qkv.errors import InputError, did_you_mean
from qkv.tasks import answer, choice, classify, tag
from qkv.tasks.task import Task
from qkv.text.tokenizer import Tokenizer

AnyTask = Task[Any, Any]
FOREIGN_READER = {"settings": {"max_answer_tokens": 50, "no_answer": "yes", "scorer": "squad"}}


@dataclass(frozen=True)
class Entry:
    chosen: Callable[[Sequence[Any], Any], type[AnyTask]]  # from training examples and settings, before `learn`
    learn: Callable[[Sequence[Any], Any, Tokenizer], AnyTask]
    restored: Callable[[Sequence[str], Mapping[str, Any]], AnyTask]
    head: str
    longest: int  # tokens of a window, where the model allows as many
    epochs: int  # of a large file, at least
    # the record of a folder that others fine-tuned, from its name, transformers' problem_type, how many outputs it has
    # and whether it reads two texts
    foreign: Callable[[str, object, int, bool], dict[str, Any]]


TASKS: dict[str, Entry] = {
    "classify": Entry(
        classify.choose_task, classify.learn, classify.restore_task, "sequence", 512, 3, classify.describe_foreign
    ),
    "tag": Entry(lambda *_: tag.TagTask, tag.TagTask.learn, tag.TagTask.restored, "token", 512, 4, lambda *_: {}),
    "answer": Entry(
        lambda *_: answer.AnswerTask,
        answer.AnswerTask.learn,
        answer.AnswerTask.restored,
        "span",
        384,
        2,
        lambda *_: FOREIGN_READER,
    ),
    "choice": Entry(
        lambda *_: choice.ChoiceTask,
        choice.ChoiceTask.learn,
        choice.ChoiceTask.restored,
        "choice",
        512,
        3,
        lambda *_: {},
    ),
}


def detect_task(record: Mapping[str, Any], heads: Sequence[str]) -> str | None:
    """The task that was put on a model, as its folder says, or else by its head."""
    told = record.get("task")
    if isinstance(told, str) and told in TASKS:
        return told
    return next((name for name, entry in TASKS.items() if entry.head in heads), None)


def find_task(name: str) -> Entry:
    if name not in TASKS:
        raise InputError(f"Unknown task '{name}'.{did_you_mean(name, TASKS)} Known: {', '.join(TASKS)}.")
    return TASKS[name]
