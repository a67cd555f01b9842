"""Classification: which of three small tasks the training labels call for, and how they come back from a folder.

    single       one label of several         every label is a name (or a whole number)
    multi        any number of labels         labels are lists
    regression   a number                     every label is a number, and one at least has a decimal point

The files beside this one hold the tasks; `texts.py` says how texts are read.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qkv.config import merge
from qkv.data.examples import TextExample
from qkv.data.task_marks import marks_of
from qkv.errors import InputError
from qkv.tasks.multi_label import MultiLabel
from qkv.tasks.regression import Regression, as_number
from qkv.tasks.single_label import SingleLabel
from qkv.tasks.texts import ClassifySettings
from qkv.tokenizer import Tokenizer

Classify = SingleLabel | MultiLabel | Regression


def learn(examples: Sequence[TextExample], settings: ClassifySettings, tokenizer: Tokenizer) -> Classify:
    """The task that these training examples call for, with their labels."""
    paired = examples[0].pair is not None
    kind = kind_of(examples) if settings.kind == "auto" else settings.kind
    if paired and settings.pairs == "auto" and marks_of(tokenizer).leftward:
        # a number says how much two texts have of each other; of a label nobody knows whether it can be turned round
        settings = replace(settings, pairs="both" if kind == "regression" else "ordered")
    if kind == "regression":
        numbers = [Regression(settings, paired).target(example, str(example.place)) for example in examples]
        deviation = statistics.pstdev(numbers)
        if deviation == 0:
            raise InputError(
                f"Every label is {numbers[0]:g} ({examples[0].place.file or 'the training examples'}): there is "
                "nothing to learn from numbers that are all the same."
            )
        return Regression(settings, paired, statistics.fmean(numbers), deviation)
    if kind == "multi":
        found: Counter[str] = Counter()
        for example in examples:
            label = example.label or ()
            found.update((label,) if isinstance(label, str) else label)
        if not found:
            raise InputError("No training example has a label. Give the column that holds them: --label NAME.")
        return MultiLabel(in_order(found), settings, paired)
    return SingleLabel(in_order(label_counts(examples)), settings, paired)


def label_counts(examples: Sequence[TextExample]) -> Counter[str]:
    """How often each label stands there; labels that nobody could learn from are refused."""
    several = next((example for example in examples if not isinstance(example.label, str)), None)
    if several is not None:
        raise InputError(f"{several.place}: one label belongs here, not {several.label!r}. Or set --kind multi.")
    counts = Counter(str(example.label) for example in examples)
    if len(counts) < 2:
        only = next(iter(counts))
        raise InputError(
            f"Every example of {examples[0].place.file or 'the training examples'} has the label '{only}': a "
            "classifier needs at least two. Is it the right column? Give another with --label NAME, or add examples."
        )
    if len(counts) == len(examples) > 2:
        raise InputError(
            f"Every example of {examples[0].place.file or 'the training examples'} has a label of its own (the first: "
            f"'{examples[0].label}'): nothing can be learned from that. Is it the right column? Give it: --label NAME."
        )
    return counts


def restored(labels: Sequence[str], record: Mapping[str, Any]) -> Classify:
    """From what a saved folder holds. Without a word about pairs, single texts are read and pairs too."""
    settings = merge(ClassifySettings(), record.get("settings", {}), "qkv.json")
    paired = record.get("paired")
    kind = record.get("kind", "single")
    if kind == "regression":
        mean, deviation = float(record.get("mean", 0.0)), float(record.get("deviation", 1.0))
        return Regression(settings, paired, mean, deviation, float(record.get("spread", deviation)))
    return (MultiLabel if kind == "multi" else SingleLabel)(labels, settings, paired)


def kind_of_problem(problem: object, outputs: int) -> str:
    """What a head of others is for, by transformers' `problem_type` or, as there, by its number of outputs.

    >>> kind_of_problem("multi_label_classification", 3), kind_of_problem(None, 1), kind_of_problem(None, 2)
    ('multi', 'regression', 'single')
    """
    kinds = {task.problem: task.kind for task in (SingleLabel, MultiLabel, Regression)}
    return kinds.get(str(problem)) or ("regression" if outputs == 1 else "single")


def kind_of(examples: Sequence[TextExample]) -> str:
    """
    >>> kind_of([TextExample("a", label="1"), TextExample("b", label="0")])
    'single'
    >>> kind_of([TextExample("a", label="4.5"), TextExample("b", label="0")])
    'regression'
    """
    labels = [example.label for example in examples]
    if any(isinstance(label, tuple) for label in labels):
        return "multi"
    if all(as_number(label) is not None for label in labels) and any("." in str(label) for label in labels):
        return "regression"
    return "single"


def in_order(labels: Mapping[str, int]) -> tuple[str, ...]:
    """Numbers by size, names by the alphabet: the order of the head's outputs, the same on every machine.

    >>> in_order({"10": 1, "9": 1}), in_order({"好评": 1, "bad": 2})
    (('9', '10'), ('bad', '好评'))
    """
    numbers = {label: as_number(label) for label in labels}
    if all(number is not None for number in numbers.values()):
        return tuple(sorted(labels, key=lambda label: (numbers[label], label)))
    return tuple(sorted(labels))
