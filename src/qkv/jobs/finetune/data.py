"""The labelled data of a run: read, checked, and split into training, development and test set."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from qkv.data.labelled.check import find_typos
from qkv.data.labelled.examples import Example, Fault, Place, choose_held_out
from qkv.data.labelled.reader import RowError, labelled
from qkv.errors import InputError
from qkv.files import sha256_of
from qkv.jobs.finetune.facts import Leak
from qkv.jobs.finetune.settings import DataChoice, FinetuneConfig
from qkv.report.bilingual import Phrase
from qkv.tasks.table import TASKS
from qkv.text.messages import translate

_SLIPS = 5  # possible misspellings reported
_PARTS = ("train", "dev", "test")
MOST_HELD_OUT = 5_000
"""Maximum held-out examples: more would slow down every evaluation without need."""


@dataclass(frozen=True)
class DataPart:
    """The examples of one part (train, dev or test), with the faults of their file."""

    source: str
    examples: tuple[Any, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def n_dropped(self) -> int:
        return sum(fault.action == "dropped" for fault in self.faults)

    @property
    def n_mended(self) -> int:
        return sum(fault.action == "mended" for fault in self.faults)


@dataclass(frozen=True)
class LabelledData:
    train: DataPart
    dev: DataPart
    notes: tuple[Phrase, ...] = ()
    test: DataPart | None = None
    leaks: tuple[Leak, ...] = ()  # also among the notes


def pin_data(data: DataChoice) -> DataChoice:
    """Return the data settings with absolute paths and hashes, for a resume."""
    paths: dict[str, Any] = {
        name: str(_file(path)) for name in ("train", "dev", "test") if (path := getattr(data, name)) is not None
    }
    hashes: dict[str, Any] = {f"{name}_sha256": sha256_of(Path(paths[name])) for name in _PARTS if name in paths}
    return replace(data, **paths, **hashes)


def check_data_unchanged(data: DataChoice) -> None:
    for name in _PARTS:
        path, expected = getattr(data, name), getattr(data, f"{name}_sha256")
        if path is not None and expected is not None and sha256_of(_file(path)) != expected:
            raise InputError(
                f"{path} has changed since the run began: a resumed run would train on other examples than before. "
                "Put the file back, or begin another run."
            )


def read_data(config: FinetuneConfig, tell: Callable[[str], None] | None = None) -> LabelledData:
    """Read training, development and test set, with all their faults."""
    train = read_part(config.data.train, config, tell, weighted=True)
    notes = [*report_slips(train), *report_conflicts(train)]
    if config.data.dev is not None:
        dev = read_part(config.data.dev, config, tell)
    else:
        train, dev = _split_parts(train, config)
    leaks = report_leaks(train, dev, "dev")
    test = None
    if config.data.test is not None:
        test = read_part(config.data.test, config, tell)
        leaks += report_leaks(train, test, "test")
    return LabelledData(train, dev, (*notes, *(leak.text for leak in leaks)), test, tuple(leaks))


def _split_parts(train: DataPart, config: FinetuneConfig) -> tuple[DataPart, DataPart]:
    task = TASKS[config.task].load().chosen(train.examples, config.settings)
    task.check_labels(train.examples)  # report a file with one label, or with ids, before it is split
    kept, held = split_examples(train.examples, config.data, task.numbers)
    if not held or not kept:
        different = len({example.identity() for example in train.examples})
        raise InputError(
            f"{train.source} has {different:,} example{'s' if different != 1 else ''} that can be "
            "told apart: too few to hold some out. Add examples, or give others to measure with: --dev FILE."
        )
    return replace(train, examples=kept), DataPart(f"held out of {Path(train.source).name}", held)


def report_slips(train: DataPart) -> list[Phrase]:
    """Report labels that may be misspelt, or a header."""
    counts = count_labels(train.examples)
    found = []
    for typo in list(find_typos(counts))[:_SLIPS]:
        found.append(
            Phrase(
                f"The label '{typo.label}' ({counts[typo.label]}) may be a slip for '{typo.meant}' "
                f"({counts[typo.meant]}): {typo.why}. Both are learned as they stand.",
                f"标签“{typo.label}”（{counts[typo.label]} 条）可能是“{typo.meant}”（{counts[typo.meant]} 条）的笔误；"
                "两个都按原样学习。",
            )
        )
    return found


def report_conflicts(train: DataPart) -> list[Phrase]:
    """Report texts that are in the training file twice with different answers, as `qkv check` does."""
    first: dict[tuple[str, ...], Any] = {}
    found = [
        (example, known)
        for example in train.examples
        if example.weight > 0
        and (known := first.setdefault(example.identity(), example)).expected() != example.expected()
    ]
    if not found:
        return []
    (one, other), n, file = found[0], len(found), Path(train.source).name
    texts = "1 text is" if n == 1 else f"{n:,} texts are"
    return [
        Phrase(
            f"{texts} labelled otherwise than the same text further up in {file} (the first: {one.place.within}, as "
            f"{other.place.within}). All are learned as they stand; `qkv check {file}` lists them.",
            f"{file} 中有 {n:,} 条文本与前面的某条相同，标签却不同（第一处：{translate(one.place.within, 'zh')}，"
            f"与{translate(other.place.within, 'zh')}相同）。都按原样学习；`qkv check {file}` 会逐条列出。",
        )
    ]


def report_leaks(train: DataPart, other: DataPart, name: str) -> list[Leak]:
    """Report examples that are in the training set and in another part."""
    seen = {example.identity() for example in train.examples}
    both = [example for example in other.examples if example.identity() in seen]
    if not both:
        return []
    text = _leak(len(both), len(other.examples), other.source, train.source, both[0].place)
    return [Leak(name, len(both) / len(other.examples), text)]


def _leak(both: int, of: int, dev: str, train: str, place: Place) -> Phrase:
    here, there = Path(dev).name, Path(train).name
    first = f"在第 {place.line} 行" if place.unit == "line" else f"：{place.within}"
    return Phrase(
        f"{both:,} of {of:,} examples of {here} also stand in {there} (the first: {place.within}): "
        "scores on them are too good.",
        f"{here} 的 {of:,} 条样本中有 {both:,} 条也出现在 {there} 里（第一条{first}）：这些样本上的分数偏高。",
    )


def split_examples(
    examples: Sequence[Example], choice: DataChoice, numbers: bool
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Split examples into training and held-out ones."""
    chosen = hold_out(examples, choice.dev_share, choice.split_seed, numbers)
    return tuple(compress(examples, (not out for out in chosen))), tuple(compress(examples, chosen))


def hold_out(examples: Sequence[Example], share: float, seed: int, numbers: bool = False) -> list[bool]:
    """Return which examples to hold out, stratified by label unless they are `numbers`."""
    groups = [example.together() for example in examples]
    strata = ["" if numbers else example.stratum() for example in examples]
    chosen: list[bool] = choose_held_out(groups, strata, share, seed, MOST_HELD_OUT).tolist()
    while not numbers:
        # a label that only held-out examples have could not be learned: their groups go back, whole
        known = count_labels(example for example, out in zip(examples, chosen, strict=True) if not out)
        back = {
            group
            for example, group, out in zip(examples, groups, chosen, strict=True)
            if out and any(label not in known for label in example.labels())
        }
        if not back:
            break
        chosen = [out and group not in back for group, out in zip(groups, chosen, strict=True)]
    return chosen


def read_part(
    path: str, config: FinetuneConfig, tell: Callable[[str], None] | None = None, weighted: bool = False
) -> DataPart:
    """Read a file; `weighted`: also the column of weights, which is for training only."""
    columns = config.data.columns.given()
    source = labelled(
        path,
        config.task,
        columns=columns if weighted else {role: name for role, name in columns.items() if role != "weight"},
        format=config.data.format,
        separator=config.data.separator,
        lenient=config.data.skip_bad,
    )
    examples = tuple(read_rows(source))
    if not examples:
        dropped = f" ({len(source.faults)} were dropped: {source.faults[0].message})" if source.faults else ""
        raise InputError(f"{path} holds no example to learn from{dropped}.")
    # some tools write every label as a list; where all are lists of one, each is one label
    if all(example.several and len(example.labels()) == 1 for example in examples):
        examples = tuple(example.single() for example in examples)
    if tell is not None:
        skipped = sum(fault.action == "dropped" for fault in source.faults)
        left_out = f", {skipped:,} rows that cannot be used were left out: faults.jsonl" if skipped else ""
        tell(f"{path}: {len(examples):,} examples ({source.describe()}){left_out}")
    return DataPart(str(path), examples, tuple(source.faults))


def read_rows(source: Iterable[Example]) -> Iterator[Example]:
    """Yield the examples; the error of a row that cannot be used also says how to leave such rows out."""
    try:
        yield from source
    except RowError as error:
        raise InputError(f"{error} To leave out all rows that cannot be used, add --skip-bad.") from error


def count_labels(examples: Iterable[Example]) -> dict[str, int]:
    """Count the labels, most frequent first: each span, or questions with and without an answer."""
    return dict(Counter(label for example in examples for label in example.labels()).most_common())


def _file(path: str) -> Path:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        labelled(path, "classify")  # says what is wrong with the name
    return file
