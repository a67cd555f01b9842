"""Texts to compare: pairs, triplets, scored pairs and single texts, from files as people have them.

    texts         one text a row: a line of a text file, or a column of a table
    pairs         a text and one that belongs to it: question and passage, sentence and paraphrase or translation
    triplets      a pair and texts that do not belong to it
    scores        two texts and how alike they are, as a number of any scale

What a file holds follows from its columns, by usual names or as given; the readers are those of labelled files (csv,
tsv, jsonl, parquet, xlsx, also .gz and .xz). A field of JSON may be a list: several positives are as many pairs. SQuAD
and CMRC files are pairs of question and passage. Two files of a bitext (`data/pairs/files.py`) are written as one name,
A,B.

A `GroupTable` has the groups of a file as numbers of texts, and each different text once, tokenized. Groups are held
out by a hash of the side that repeats itself more (all questions of a passage together), and training groups that
share a text with them are dropped and reported.

Shapes: E groups, T different texts, K negatives of all groups.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from qkv.data.batch import Integers, chunks
from qkv.data.labelled.binary_tables import TABLE_FORMATS
from qkv.data.labelled.examples import NO_PLACE, Example, Fault, Place, UnlabelledInput, fold_text
from qkv.data.labelled.json_values import Value
from qkv.data.labelled.opened import Convert, Labelling, ReportFault, Wanted, empty_text_fault, is_blank
from qkv.data.labelled.question_files import count_questions, nested_questions
from qkv.data.labelled.reader import labelled
from qkv.data.labelled.record_files import FlatRecord, given_columns, read_string
from qkv.data.labelled.tables import USUAL_NAMES, column_key, find_usual_pair, quote_names
from qkv.data.pairs.files import PairFiles, hash_to_unit
from qkv.data.windows import Rows
from qkv.errors import InputError, did_you_mean
from qkv.text.segmenter import split_sentences
from qkv.text.tokenizer import Tokenizer

GROUP_ROLES = ("anchor", "positive", "score", "negative")
"""Columns, in the order in which they are given without their role."""
GROUP_KINDS = {
    "texts": "single texts",
    "pairs": "pairs",
    "triplets": "triplets",
    "scores": "scored pairs",
    "translations": "translations",
}
"""What a file holds, for messages; translations are pairs whose sides both learn a teacher's vector of the first."""
_NAMES = {
    "anchor": "anchor query question text1 texta sentence1 sentencea sent1 s1 q1 source src premise "
    "锚 查询 问题 提问 原文",
    "positive": "positive pos positives answer passage context paragraph text2 textb sentence2 sentenceb sent2 s2 q2 "
    "document target tgt translation response 正例 答案 回答 段落 篇章 译文",
    "score": "score similarity similarityscore relatednessscore label goldlabel rating 分数 得分 相似度 评分 标签",
}
"""Usual names, the first that a file has counts. A column whose name begins with `_NEGATIVE` is of negatives."""
_NEGATIVE = ("negative", "hardnegative", "neg", "负例")
_HEADER = ",".join(
    form for names in (*_NAMES.values(), "negative") for one in names.split() for form in (one, one.title())
)
"""A first row with one of these is a header."""
_AT_ONCE, _CHARACTERS = 8_192, 1 << 22  # texts tokenized together, and their characters


@dataclass(frozen=True)
class TextGroup(Example):
    form = "a text"
    fields: ClassVar[Mapping[str, bool]] = {"text": True}
    columns = ("line", "text")

    text: str
    positive: str | None = None
    negatives: tuple[str, ...] = ()
    score: float | None = None
    place: Place = NO_PLACE
    group: str | None = None

    @classmethod
    def of(cls, given: UnlabelledInput) -> Self:
        return cls(given.text, place=given.place)

    def labels(self) -> tuple[str, ...]:
        return ()

    def expected(self) -> object:
        return self.score

    def unlabelled(self) -> Self:
        return replace(self, score=None)

    @property
    def kind(self) -> str:
        if self.positive is None:
            return "texts"
        return "triplets" if self.negatives else "pairs" if self.score is None else "scores"

    def every_text(self) -> tuple[str, ...]:
        return (self.text, *(() if self.positive is None else (self.positive,)), *self.negatives)


# Columns


def _find_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    """role → column; of negatives all columns, separated by commas."""
    if wanted.columns:
        return _check_roles(given_columns(wanted, names, where), where)
    by_key = {column_key(name): name for name in reversed(names)}

    def usual(*roles: str) -> str | None:
        return next((by_key[key] for role in roles for key in role.split() if key in by_key), None)

    pair = find_usual_pair(names)
    anchor, positive = pair or (usual(_NAMES["anchor"]), usual(_NAMES["positive"]))
    alone = usual(*USUAL_NAMES["text"])
    if anchor is None or positive is None:
        if anchor is None and positive is None and alone is None and len(names) > 1:
            raise InputError(
                f"{where}: no column has a usual name; there are {quote_names(names)}. Name them: --columns "
                "anchor=NAME,positive=NAME (and score=NAME, negative=NAME), or --columns anchor=NAME for single texts."
            )
        anchor, positive = (anchor or alone, positive) if positive is not None else (anchor, None)
        if positive is None:
            return {"anchor": anchor or alone or names[0]}
        if anchor is None or anchor == positive:
            raise InputError(
                f"{where}: {positive!r} looks like the second text of a pair, and no column like the first; there are "
                f"{quote_names(names)}. Name both: --columns anchor=NAME,positive=NAME."
            )
    columns = {"anchor": anchor, "positive": positive}
    if negatives := [name for name in names if column_key(name).startswith(_NEGATIVE)]:
        columns["negative"] = ",".join(negatives)
    elif score := usual(_NAMES["score"]):
        columns["score"] = score
    return columns


def _check_roles(columns: dict[str, str], where: str) -> dict[str, str]:
    if "anchor" not in columns:
        raise InputError(f"{where}: --columns names no anchor, the first text: --columns anchor=NAME,positive=NAME.")
    if "positive" not in columns and len(columns) > 1:
        other = next(role for role in columns if role != "anchor")
        raise InputError(f"{where}: --columns names a {other} and no positive, the second text.")
    if {"score", "negative"} <= columns.keys():
        raise InputError(f"{where}: --columns names a score and negatives; a file has one of them.")
    return columns


def _guess(where: str, rows: Sequence[Sequence[str]], needs_labels: bool) -> dict[str, str]:
    """The columns of a table without a header: one text, two texts, or two texts and a number.

    >>> _guess("a.tsv", [["一只猫", "a cat", "4.5"]], False)
    {'anchor': '1', 'positive': '2', 'score': '3'}
    """
    width = max(map(len, rows))
    if width > 2 and all(len(row) > 2 and _is_number(row[2]) for row in rows):
        return {"anchor": "1", "positive": "2", "score": "3"}
    if width > 2:
        raise InputError(
            f"{where} has {width} columns without a header, and not all of the third are scores. Give the columns by "
            "number, such as --columns anchor=1,positive=2 (and score=3 or negative=3)."
        )
    return {"anchor": "1", "positive": "2"} if width == 2 else {"anchor": "1"}


def _is_number(cell: str) -> bool:
    try:
        return isfinite(float(cell))
    except ValueError:
        return False


def _reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    anchor_column, positive_column = columns["anchor"], columns.get("positive")
    negative_columns = columns["negative"].split(",") if "negative" in columns else []

    def convert(line: int, record: FlatRecord, report: ReportFault) -> Iterator[TextGroup]:
        place = wanted.place(line)
        anchor = read_string(record, anchor_column, place)
        positives = [None] if positive_column is None else _read_texts(record, positive_column, place)
        negatives = [text for one in negative_columns for text in _read_texts(record, one, place) if not is_blank(text)]
        score = _read_score(record.get(columns["score"]), columns["score"], place) if "score" in columns else None
        if is_blank(anchor):
            return report(empty_text_fault(place, repr(anchor_column)))
        for positive in positives or [""]:  # a list may be empty
            if positive is not None and is_blank(positive):
                report(empty_text_fault(place, repr(positive_column)))
            else:
                yield TextGroup(anchor, positive, tuple(negatives), score, place)

    return convert


def _read_texts(record: FlatRecord, column: str, place: Place) -> list[str]:
    value = record.get(column)
    return [read_string({column: one}, column, place) for one in (value if isinstance(value, list) else [value])]


def _read_score(value: Any, column: str, place: Place) -> float:
    """
    >>> _read_score("4.5", "score", Place("f", 1))
    4.5
    """
    try:
        score = float("nan") if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = float("nan")
    if not isfinite(score):
        raise InputError(
            f"{place}: the score in {column!r} is {value!r:.40}, and not a number. Correct it, delete the line, or "
            "name the columns that are read: --columns anchor=NAME,positive=NAME."
        )
    return score


def _nested(wanted: Wanted, value: Any) -> tuple[str, Convert] | None:
    """Question and passage of SQuAD and CMRC files."""
    found = nested_questions(wanted, value)
    if found is None:
        return None
    format, reader = found

    def convert(line: int, unit: Value, report: ReportFault) -> Iterator[TextGroup]:
        for example in reader(line, unit, lambda fault: None):  # answers are not used
            if is_blank(example.question) or is_blank(example.text):
                report(empty_text_fault(example.place, "the question or its passage"))
            else:
                yield TextGroup(example.question, example.text, place=example.place)

    return format, convert


_GROUPS = Labelling(
    task="embed",
    example=TextGroup,
    about="texts to compare",
    formats="csv, tsv or jsonl with two texts a row, or lines of text",
    record='"anchor": …, "positive": …',
    roles=GROUP_ROLES,
    needed=("score",),
    columns=_find_columns,
    reader=_reader,
    nested=_nested,
    numbered=lambda wanted, names, where: _check_roles(given_columns(wanted, names, where), where),
    counted="question",
    inner=count_questions,
)


# Files


@dataclass(frozen=True)
class GroupFile:
    """The groups of one file (or of the two files A,B of a bitext), all of one kind."""

    name: str  # as it was given
    kind: str  # of GROUP_KINDS
    groups: tuple[TextGroup, ...]
    faults: tuple[Fault, ...]
    about: str  # format and columns in one line

    @property
    def title(self) -> str:
        return Path(self.name.partition(",")[0]).name


def files_of(name: str) -> tuple[str, ...]:
    """The files of a name: itself, or the two of A,B."""
    parts = tuple(part.strip() for part in name.split(","))
    together = Path(name).expanduser()
    return parts if len(parts) == 2 and not together.exists() and all(parts) else (name,)


def parse_columns(given: Sequence[str], name: str) -> dict[str, str]:
    """The columns for a file, from `--columns`: of all files, or after the name of one file and a colon.

    >>> parse_columns(("1,2", "sts.csv:6,7,5"), "data/sts.csv")
    {'anchor': '6', 'positive': '7', 'score': '5'}
    >>> parse_columns(("anchor=q, negative=n1, negative=n2, positive=p",), "a.jsonl")
    {'anchor': 'q', 'negative': 'n1,n2', 'positive': 'p'}
    """
    chosen: str | None = None
    for one in given:
        file, columns_of_file = _split_columns(one, [name])
        if file in (name, Path(name).name):
            chosen = columns_of_file
            break
        if file is None:
            chosen = one
    columns: dict[str, str] = {}
    for number, part in enumerate(chosen.split(",") if chosen else ()):
        role, equals, column = part.partition("=")
        role, column = (role.strip(), column.strip()) if equals else (GROUP_ROLES[min(number, 2)], part.strip())
        if role not in GROUP_ROLES or not column:
            known = f"{', '.join(GROUP_ROLES)}.{did_you_mean(role, GROUP_ROLES)}"
            raise InputError(f"--columns {chosen}: write ROLE=NAME, where a role is one of {known}")
        if role in columns and role != "negative":
            raise InputError(f"--columns {chosen} names the {role} twice.")
        columns[role] = f"{columns[role]},{column}" if role in columns else column
    return columns


def _split_columns(given: str, files: Sequence[str]) -> tuple[str | None, str]:
    """The file and the columns of one `--columns`; None for those of all files. A path may have a colon, too."""
    for file in files:
        if given.startswith(f"{file}:"):
            return file, given[len(file) + 1 :]
    before, colon, after = given.partition(":")
    return (before, after) if colon and "=" not in before else (None, given)


def pin_columns(given: Sequence[str], files: Sequence[str]) -> tuple[str, ...]:
    """Columns whose files, given as paths, are the absolute ones in `files`; an error if a file is not among them."""
    names = [Path(file).name for file in files]
    pinned: list[str] = []
    for one in given:
        file, columns = _split_columns(one, files)
        if file is None or file in names or file in files:
            pinned.append(one)
            continue
        path = str(Path(file).expanduser().resolve())
        if path not in files:
            raise InputError(
                f"--columns {one}: no file of this run is called {file!r}.{did_you_mean(file, names)} There are "
                f"{quote_names(names)}."
            )
        pinned.append(f"{path}:{columns}")
    return tuple(pinned)


def read_groups(name: str, columns: Sequence[str] = (), sentences: bool = False) -> GroupFile:
    """Read a file; with `sentences`, single texts are split into sentences."""
    if len(files_of(name)) == 2:
        return read_translations(name, "pairs")
    labelling = replace(_GROUPS, guessed=partial(_guess, name))
    given = parse_columns(columns, name)
    source = labelled(name, labelling, columns=given, needs_labels=False, remembered={"anchor": _HEADER})
    groups: list[TextGroup] = []
    for example in source:
        assert isinstance(example, TextGroup)
        if sentences and example.positive is None:
            texts = [example.text[start:end] for start, end in split_sentences(example.text)]
            groups += [replace(example, text=text) for text in texts if not is_blank(text)]
        else:
            groups.append(example)
    # blank lines between documents are no texts that someone forgot
    faults = [one for one in source.faults if source.format != "lines" or one.kind != "empty text"]
    if not groups:
        dropped = f" ({len(faults):,} rows were dropped: {faults[0].message})" if faults else ""
        raise InputError(f"{name} holds no text to learn from{dropped}.")
    kinds = dict.fromkeys(group.kind for group in groups)
    if set(kinds) == {"pairs", "triplets"}:  # some rows have no negative
        kinds = {"triplets": None}
    assert len(kinds) == 1, "a file has the same columns in all rows"
    return GroupFile(name, next(iter(kinds)), tuple(groups), tuple(faults), source.describe())


def read_translations(name: str, kind: str = "translations") -> GroupFile:
    """Read a bitext: two files A,B aligned by line, or one with both sides."""
    files = files_of(name)
    if len(files) == 1 and (suffix := Path(name).suffix.lower()) in (".csv", *TABLE_FORMATS):
        raise InputError(f"{name}: translations are tab-separated lines, .jsonl, or two files A,B; not {suffix}.")
    source = PairFiles.of(list(files))
    groups = tuple(TextGroup(pair.source, pair.target, place=pair.place) for pair in source)
    if not groups:
        raise InputError(f"{name} holds no pair with text on both sides.")
    about = "two files" if len(files) == 2 else "two columns"
    return GroupFile(name, kind, groups, tuple(source.faults), about)


def hold_out_groups(file: GroupFile, share: float) -> tuple[GroupFile, GroupFile]:
    """The file without a share of its groups, and these; what shares a text with a held-out group is dropped."""
    keys = [[fold_text(text) for text in (one.text, one.positive or one.text)] for one in file.groups]
    repeats_second = len({second for _, second in keys}) < len({first for first, _ in keys})
    held = [hash_to_unit(pair[repeats_second]) < share for pair in keys]
    known = {text for pair, out in zip(keys, held, strict=True) if out for text in pair}
    rest, chosen = (
        tuple(group for group, out in zip(file.groups, held, strict=True) if out == wanted) for wanted in (False, True)
    )
    return drop_known(replace(file, groups=rest), known), replace(file, groups=chosen, faults=())


def drop_known(file: GroupFile, known: Collection[str]) -> GroupFile:
    """The file without the groups that have one of these texts, folded, of held-out rows."""
    kept: list[TextGroup] = []
    faults = list(file.faults)
    for group in file.groups:
        if any(fold_text(text) in known for text in group.every_text()):
            faults.append(Fault(group.place, "held out", "a text of it is in a held-out row", "dropped"))
        else:
            kept.append(group)
    return replace(file, groups=tuple(kept), faults=tuple(faults))


# Groups as numbers


@dataclass(frozen=True)
class GroupTable:
    """Groups as numbers of texts; each different text is tokenized once."""

    kind: str
    rows: Rows  # of all texts
    texts: tuple[str, ...]  # (T,)
    same: Integers  # (T,) equal for texts that differ in case, width and white space at most
    anchors: Integers  # (E,)
    positives: Integers  # (E,) or (0,)
    negatives: Integers  # (K,) those of group e are at negative_offsets[e : e + 2]
    negative_offsets: Integers  # (E + 1,)
    scores: NDArray[np.float32]  # (E,) or (0,)
    faults: tuple[Fault, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.anchors)

    @cached_property
    def tokens(self) -> int:
        """Of one time through the groups."""
        places = np.concatenate([self.anchors, self.positives, self.negatives])
        return int(self.rows.n_tokens[places].sum())

    def negatives_of(self, groups: Integers) -> Integers:
        """The negatives of these groups, one after another."""
        begins, ends = self.negative_offsets[groups], self.negative_offsets[groups + 1]
        if not len(self.negatives):
            return self.negatives
        return np.concatenate([self.negatives[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])


def make_rows(ids: Sequence[Sequence[int]], tokenizer: Tokenizer, max_length: int) -> Rows:
    """Texts as rows of at most `max_length` tokens, windowed as `qkv embed` does."""
    return Rows(ids, tokenizer.marks, max_length=max_length, overlap=(max_length - 2) // 4)


def encode_texts(texts: Iterable[str], tokenizer: Tokenizer) -> list["array[int]"]:
    """Token ids without special tokens, four bytes each."""
    found: list[array[int]] = []
    for chunk in chunks(texts, _AT_ONCE, len, _CHARACTERS):
        found += [array("i", ids) for ids in tokenizer.encode_ids(chunk)]
    return found


def make_table(file: GroupFile, tokenizer: Tokenizer, max_length: int) -> GroupTable:
    """Number and tokenize the texts of a file; a group with a text of which no token is left is dropped."""
    numbers: dict[str, int] = {}
    for group in file.groups:
        for text in group.every_text():
            numbers.setdefault(text, len(numbers))
    ids = encode_texts(numbers, tokenizer)
    empty = {text for text, number in numbers.items() if not len(ids[number])}
    faults = tuple(
        Fault(group.place, "empty text", "nothing is left of a text after tokenization", "dropped")
        for group in file.groups
        if empty.intersection(group.every_text())
    )
    groups = [group for group in file.groups if not empty.intersection(group.every_text())]
    if not groups:
        raise InputError(f"{file.name}: nothing is left of its texts after tokenization with this model.")
    folded: dict[str, int] = {}
    same = np.array([folded.setdefault(fold_text(text), len(folded)) for text in numbers], np.int64)
    counts = np.array([len(group.negatives) for group in groups], np.int64)
    return GroupTable(
        file.kind,
        make_rows(ids, tokenizer, max_length),
        tuple(numbers),
        same,
        np.array([numbers[group.text] for group in groups], np.int64),
        np.array([numbers[group.positive] for group in groups if group.positive is not None], np.int64),
        np.array([numbers[text] for group in groups for text in group.negatives], np.int64),
        np.append(0, np.cumsum(counts)),
        np.array([group.score for group in groups if group.score is not None], np.float32),
        faults,
    )


def check_scores_differ(table: GroupTable, name: str) -> None:
    """Refuse scores from which no order follows."""
    if table.kind == "scores" and len(np.unique(table.scores)) < 2:
        raise InputError(
            f"{name}: all {len(table):,} scores are {table.scores[0]:g}, so nothing is more alike than the rest. Give "
            "pairs without a score: --columns anchor=NAME,positive=NAME."
        )
