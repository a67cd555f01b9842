"""Check translation pairs before training: statistics, and problems with their file and line.

Like data/labelled/check.py, it continues after a problem, counts all and reports the first few of each kind. Hashes and
lengths of each pair are kept, not the texts. Pairs of the development and test sets are compared with the training
pairs: a text in both makes scores too good. Texts are the same if they have the same letters and digits (files.py).

What this file does NOT do: decide whether one side translates the other. It finds misaligned lines by their lengths.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qkv.data.corpus.check import FAULTS, Finding
from qkv.data.labelled.check import Lengths, summarise_lengths
from qkv.data.labelled.examples import Place
from qkv.data.pairs.batching import Languages
from qkv.data.pairs.files import SIDES, Pair, PairFiles, fold_to_letters
from qkv.data.same_texts import SameTexts
from qkv.errors import InputError

PAIR_FINDINGS = {
    "unreadable": "files that cannot be read to the end, or have different lengths",
    "empty": "pairs with an empty side, which are dropped",
    "leak": "pairs of dev or test whose source is also in the training pairs: scores on them are too good",
    "leak of a reference": "pairs of dev or test whose translation is also in the training pairs",
    "shared": "pairs of test whose source is also in dev",
    "repeated": "repeated pairs",
    "untranslated": "pairs whose two sides are the same text",
    "uneven": "pairs with an unusual ratio of lengths: lines may be misaligned",
    "lost characters": "U+FFFD, the replacement for lost characters",
    "mojibake": "wrongly decoded text, such as Ã© for é or 锟斤拷",
    "control": "control characters, which are dropped",
    "long": "pairs with a side longer than the model, which are dropped",
}
REMARKS = ("repeated", "long")
"""Findings that are no faults."""
TRAINED_ON = ("train", "more")
_NAMED = 20  # findings of each kind in the report
_AT_ONCE = 1_024  # pairs tokenized together
_UNEVEN = 4.0  # times longer or shorter than the usual ratio in these files
_SHORT = 20  # characters: shorter sides may have any ratio
SAME = 10  # characters: shorter texts may be the same in two languages
_Tell = Callable[[float, str], None]


@dataclass(frozen=True)
class PairFacts:
    name: str
    part: str  # train, more, dev or test
    pairs: int
    dropped: int


@dataclass(frozen=True)
class PairReport:
    files: list[PairFacts]
    pairs: int  # for training; those of dev and test are counted in `files`
    characters: dict[str, Lengths | None]  # by side
    tokens: dict[str, Lengths | None]  # by side, with the end token; if a tokenizer was given
    ratio: float | None  # median ratio of characters, translation / source
    several: int  # pairs with a repeated source and another translation, which is no problem
    counts: dict[str, int]  # number of findings of each kind
    findings: list[Finding]  # the first of each kind
    notes: list[str]
    sound: bool  # no findings, and there are training pairs
    has_faults: bool  # something is wrong; not if all findings are remarks

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_pairs(
    parts: Mapping[str, Sequence[PairFiles]],
    *,
    languages: Languages | None = None,
    max_length: int | None = None,
    named: int = _NAMED,
    progress: _Tell | None = None,
) -> PairReport:
    """Check pairs by part: train, more, dev, test. With `languages`, lengths are also counted in tokens.

    `max_length` is the model's limit, with the end token. Without `languages` it gives an upper bound of long pairs.
    """
    files = [(part, one) for part in (*TRAINED_ON, "dev", "test") for one in parts.get(part, ())]
    check = _Check(files, languages, max_length, named)
    for number in range(len(files)):
        check.file(number)
        if progress is not None:
            progress((number + 1) / len(files), f"{len(check.lines):,} pairs")
    return check.report()


class _Check:
    def __init__(
        self, files: Sequence[tuple[str, PairFiles]], languages: Languages | None, limit: int | None, named: int
    ) -> None:
        self.files, self.languages, self.limit, self.named = files, languages, limit, named
        self.counts: Counter[str] = Counter()
        self.findings: dict[str, list[Finding]] = {kind: [] for kind in PAIR_FINDINGS}
        self.facts: list[PairFacts] = []
        self.notes: list[str] = []
        self.numbers, self.lines = array("I"), array("I")  # file and line of every pair
        self.characters = (array("I"), array("I"))
        self.tokens = (array("I"), array("I"))
        self.sources, self.targets, self.both = SameTexts(), SameTexts(), SameTexts()
        self.waiting: list[Pair] = []

    def found(self, kind: str, place: Place, message: str) -> None:
        self.counts[kind] += 1
        if len(self.findings[kind]) < self.named:
            self.findings[kind].append(
                Finding(kind, place.file, place.line, message, place.within if place.line else "")
            )

    def file(self, number: int) -> None:
        part, source = self.files[number]
        before = len(self.lines)
        try:
            for pair in source:
                self.pair(number, pair)
        except InputError as error:
            if len(self.lines) == before and not source.faults:
                raise  # nothing could be read: wrong columns, or not a file of pairs
            self.found("unreadable", Place(source.name, 0), str(error).removeprefix(source.name).lstrip(",: "))
        for fault in source.faults:
            self.found("empty", fault.place, fault.message)
        self.count_tokens()
        pairs = len(self.lines) - before
        self.facts.append(PairFacts(source.name, part, pairs, len(source.faults)))
        if not pairs:
            self.notes.append(f"{source.name} has no pair with text on both sides.")

    def pair(self, number: int, pair: Pair) -> None:
        self.numbers.append(number)
        self.lines.append(pair.place.line)
        keys = [hash(fold_to_letters(text)) for text in pair[:2]]
        self.sources.add(keys[0], number, pair.place.line, label=keys[1])
        self.targets.add(keys[1], number, pair.place.line)
        self.both.add(hash((keys[0], keys[1])), number, pair.place.line)
        for lengths, side, text in zip(self.characters, SIDES, pair[:2], strict=True):
            lengths.append(len(text))
            if not text.isascii() or not text.isprintable():
                for kind, pattern in FAULTS.items():
                    if sign := pattern.search(text):
                        shown = text[max(0, sign.start() - 15) : sign.end() + 15]
                        self.found(kind, pair.place, f"in the {side}: {shown!r}")
        text = pair.source.strip()
        if text == pair.target.strip() and len(text) >= SAME and any(map(str.isalpha, text)):
            self.found("untranslated", pair.place, repr(text[:60]))
        if self.languages is not None:
            self.waiting.append(pair)
            if len(self.waiting) >= _AT_ONCE:
                self.count_tokens()

    def count_tokens(self) -> None:
        if self.languages is None:
            return
        sources = self.languages.source.encode_ids([pair.source for pair in self.waiting])
        targets = self.languages.target.encode_ids([pair.target for pair in self.waiting])
        for pair, *rows in zip(self.waiting, sources, targets, strict=True):
            counts = [len(row) + 1 for row in rows]
            for lengths, count in zip(self.tokens, counts, strict=True):
                lengths.append(count)
            if self.limit is not None and max(counts) > self.limit:
                message = f"{counts[0]:,} and {counts[1]:,} tokens; the limit is {self.limit:,} (max_length)"
                self.found("long", pair.place, message)
        self.waiting = []

    def report(self) -> PairReport:
        several = self.same_texts()
        ratio = self.uneven()
        if self.languages is None and self.limit is not None and len(self.lines):
            longer = np.maximum(*(np.frombuffer(side, np.uint32) for side in self.characters)) >= self.limit
            if count := int(np.count_nonzero(longer)):
                self.notes.append(
                    f"{count:,} pairs have a side of {self.limit:,} characters or more: those with as many "
                    "tokens are dropped in training (max_length). With a tokenizer (--model) they are counted."
                )
        trained_on = sum(facts.pairs for facts in self.facts if facts.part in TRAINED_ON)
        lacking = not trained_on or not all(facts.pairs for facts in self.facts)
        return PairReport(
            files=self.facts,
            pairs=trained_on,
            characters={side: summarise_lengths(lengths) for side, lengths in zip(SIDES, self.characters, strict=True)},
            tokens={
                side: summarise_lengths(lengths, self.limit) for side, lengths in zip(SIDES, self.tokens, strict=True)
            },
            ratio=ratio,
            several=several,
            counts={kind: self.counts[kind] for kind in PAIR_FINDINGS if self.counts[kind]},
            findings=[finding for findings in self.findings.values() for finding in findings],
            notes=self.notes,
            sound=not lacking and not self.counts.total(),
            has_faults=lacking or any(kind not in REMARKS for kind, count in self.counts.items() if count),
        )

    def place(self, number: int, line: int) -> Place:
        return Place(str(self.files[number][1].files[0]), line)

    def is_trained_on(self, number: int) -> bool:
        return self.files[number][0] in TRAINED_ON

    def same_texts(self) -> int:
        """Report leaks and repetitions; return how many repeated sources have another translation."""
        several = 0
        for same in self.sources.repeated():
            if self.is_trained_on(same.first_source) and not self.is_trained_on(same.source):
                kind = "leak"
            elif self.files[same.first_source][0] != self.files[same.source][0] == "test":
                kind = "shared"
            else:
                several += same.other_label
                continue
            where = f"the source is that of {self.place(same.first_source, same.first_line)}"
            self.found(kind, self.place(same.source, same.line), where)
        for same in self.targets.repeated():
            if self.is_trained_on(same.first_source) and not self.is_trained_on(same.source):
                where = f"the translation is that of {self.place(same.first_source, same.first_line)}"
                self.found("leak of a reference", self.place(same.source, same.line), where)
        for same in self.both.repeated():
            if self.files[same.first_source][0] == self.files[same.source][0] or self.is_trained_on(same.source):
                where = f"the same as {self.place(same.first_source, same.first_line)}"
                self.found("repeated", self.place(same.source, same.line), where)
        return several

    def uneven(self) -> float | None:
        """Return the usual ratio of lengths, and report the pairs far from it."""
        if not len(self.lines):
            return None
        source, target = (np.frombuffer(side, np.uint32).astype(np.float64) for side in self.characters)
        ratios = np.log(target) - np.log(source)
        usual = float(np.median(ratios))
        # short pairs may have any ratio; both sides are measured in characters of the source
        far = (np.abs(ratios - usual) > math.log(_UNEVEN)) & (np.maximum(source, target / math.exp(usual)) > _SHORT)
        for row in np.flatnonzero(far).tolist():
            message = f"{int(source[row]):,} characters, and {int(target[row]):,} in the translation"
            self.found("uneven", self.place(self.numbers[row], self.lines[row]), message)
        return math.exp(usual)
