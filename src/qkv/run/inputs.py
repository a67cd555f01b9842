"""What a person hands to `predict` in Python, as the examples of a task."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from qkv.data.examples import NOWHERE, AnswerExample, ChoiceExample, Example, TagExample, TextExample
from qkv.errors import InputError
from qkv.tokenizer import Tokenizer

FORMS = {
    "classify": 'a text, or a pair such as ("first", "second")',
    "tag": "a text",
    "answer": 'a pair (question, passage), or {"question": …, "text": …}',
    "choice": '{"text": …, "question": …, "choices": […]}',
}


KINDS = {"classify": TextExample, "tag": TagExample, "answer": AnswerExample, "choice": ChoiceExample}


def examples_of(task: str, items: Iterable[Any], tokenizer: Tokenizer) -> Iterator[Example]:
    """Each item as an example without a label; what cannot be one is told by its number, counted from 1."""
    for number, item in enumerate(items, 1):
        if isinstance(item, Example):
            if not isinstance(item, KINDS[task]):
                raise _wrong(task, item, number)
            example = without_labels(item)
        else:
            example = _example(task, item, number)
        if name := empty_part(example, tokenizer):
            raise InputError(f"Input {number}: {said_empty(name)}.")
        yield example


def without_labels(example: Example) -> Example:
    """What a model is shown when it is asked: a label is not looked at, be it one it knows or not."""
    if isinstance(example, TextExample):
        return replace(example, label=None)
    if isinstance(example, TagExample):
        return replace(example, spans=None)
    if isinstance(example, AnswerExample):
        return replace(example, answers=None, others=())
    return replace(example, answer=None)


def is_one_pair(inputs: Any, task: str, paired: bool | None) -> bool:
    """Whether a tuple of two texts is a single input: to a model that reads two texts it is.

    A list is always several inputs, and to a classifier of single texts (`paired` False) a tuple is, too.
    """
    reads_two = task == "answer" or (task == "classify" and paired is not False)
    return reads_two and isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(one, str) for one in inputs)


def empty_part(example: Example, tokenizer: Tokenizer) -> str | None:
    """Which part has not a single token: there is nothing to read, and any answer would be made up."""
    texts = {"text": example.text}
    if isinstance(example, TextExample) and example.pair is not None:
        texts["pair"] = example.pair
    elif isinstance(example, AnswerExample):
        texts["question"] = example.question
    elif isinstance(example, ChoiceExample):
        texts = {f"choice {n}": choice for n, choice in enumerate(example.choices, 1)}
    for name, text in texts.items():
        if tokenizer.is_empty(text):
            return name
    return None


def said_empty(name: str) -> str:
    return f"the {name} is empty (nothing is left of it after tokenization)"


def _example(task: str, item: Any, number: int) -> Example:
    if isinstance(item, Mapping):
        return _from_table(task, item, number)
    if task == "classify" and isinstance(item, str):
        return TextExample(item, place=NOWHERE)
    if task == "tag" and isinstance(item, str):
        return TagExample(item)
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, str) for part in item):
        if task == "classify":
            return TextExample(item[0], item[1])
        if task == "answer":
            return AnswerExample(question=item[0], text=item[1])
    raise _wrong(task, item, number)


def _from_table(task: str, item: Mapping[str, Any], number: int) -> Example:
    text = item.get("text", item.get("context", ""))
    question, choices = item.get("question", ""), item.get("choices", ())
    pair = item.get("pair")
    good = isinstance(text, str) and isinstance(question, str) and (pair is None or isinstance(pair, str))
    if good and task == "classify":
        return TextExample(text, pair)
    if good and task == "tag":
        return TagExample(text)
    if good and task == "answer" and question:
        return AnswerExample(question=question, text=text)
    if good and task == "choice" and len(choices) > 1 and all(isinstance(one, str) for one in choices):
        return ChoiceExample(text, question, tuple(choices))
    raise _wrong(task, item, number)


def _wrong(task: str, item: Any, number: int) -> InputError:
    shown = f"a {type(item).__name__}" if isinstance(item, Example) else repr(item)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return InputError(f"Input {number} is {shown}; this model reads {FORMS[task]}.")
