"""Columns and rows of csv and tsv files.

Columns are found by common names, by the caller's choice, or by their contents. Names are compared without case,
spaces, hyphens and underscores, full-width as half-width: "Text A" is text_a. If two columns are possible, the error
lists them and asks.

    csv   a cell in "quotes" may contain separators, line ends, and doubled quotes ("")
    tsv   cells are separated by tabs; quotes are ordinary characters, as in GLUE's files

Spreadsheets also write tabs with quotes: a file whose quoted cells are all well-formed and contain doubled quotes is
read that way, whatever its name. The separator is the one on which most rows agree. Python's csv module is not used,
because after an unclosed quote it reads to the end of the file.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from qkv.data.labelled.binary_tables import Sheet, cell_text
from qkv.data.labelled.opened import Beginning, checked_lines
from qkv.data.readers import FIRST_ROW, RowStart
from qkv.errors import InputError, did_you_mean

# first and second column of text pairs
_PAIRS = (
    "sentence1 sentence2, texta textb, text1 text2, text pair, text textpair, premise hypothesis, question1 question2, "
    "query1 query2, sent1 sent2, sentencea sentenceb, s1 s2, q1 q2, #1string #2string, query passage, query title, "
    "question sentence, 文本1 文本2, 句子1 句子2, 问题1 问题2, 前提 假设"
)
# for each role, names by rank: a later rank is used only if no name of an earlier one is present
USUAL_NAMES = {
    "text": (
        "text sentence content review texta sentence1 premise utterance message comment tweet "
        "文本 内容 句子 评论 正文 语句",
        "query question document doc body input article passage tokens words data 问题 文章 留言 消息 描述",
        "title subject summary 标题 摘要",
    ),
    "label": (
        "label labels goldlabel 标签 标注",
        "class category intent sentiment target emotion polarity topic quality 类别 分类 意图 情感 情绪 主题",
        "score rating stars similarity 评分 分数 得分 相似度",
    ),
    "group": ("group groupid 分组 组",),
    "id": ("id qid questionid queryid guid idx index 编号 序号",),
    "question": ("question query questiontext querytext 问题 提问",),
    "context": (
        "context passage paragraph contexttext 上下文 段落 篇章 原文",
        "article document text story content sentence 文章 文本 材料 内容",
    ),
    "answer": ("answer answers answertext 答案 回答", "label gold answerkey correct correctanswer"),
    "choices": ("choices options 选项", "choice candidates endings 候选"),
}
SPAN_NAMES = ("entities spans nertags tags ner 实体 标签序列", *USUAL_NAMES["label"][:1], "annotations label result")

_dropped = re.compile(r"[\s_\-]+")
_series = re.compile(r"(.*?)(\d|[a-h])")
_number = re.compile(r"[-+]?\d+(?:\.\d*)?")


def column_key(name: str) -> str:
    """
    >>> column_key("Text_A "), column_key("＃1 String")
    ('texta', '#1string')
    """
    return _dropped.sub("", unicodedata.normalize("NFKC", name).casefold())


_KNOWN = {*_PAIRS.replace(",", " ").split(), *" ".join(chain(*USUAL_NAMES.values())).split()}


def is_header(cells: Sequence[str], given: Mapping[str, str]) -> bool:
    """Whether the first row of a table is a header: it has a usual or given name, and no number.

    >>> is_header(["id", "text"], {}), is_header(["good", "1"], {}), is_header(["frage", "art"], {"text": "frage"})
    (True, False, True)
    """
    named = {name for value in given.values() for name in (value, *value.split(",")) if not name.isdigit()}
    return any(cell.strip() in named or column_key(cell) in _KNOWN for cell in cells) and may_be_header(cells)


def may_be_header(cells: Sequence[str]) -> bool:
    """Whether a row has no number."""
    return not any(_number.fullmatch(cell.strip()) for cell in cells)


def find_given_column(role: str, value: str, names: Sequence[str], where: str) -> str:
    """Return the column that the caller gave, by name or by number from 1."""
    if value in names:
        return value
    near = [name for name in names if column_key(name) == column_key(value)]
    if len(near) == 1:
        return near[0]
    if value.isdigit() and 1 <= int(value) <= len(names):
        return names[int(value) - 1]
    if value.isdigit():
        raise InputError(f"{where} has {len(names)} columns, so there is no column {value} for the {role}.")
    raise InputError(
        f"{where} has no column {value!r} for the {role}, only {quote_names(names)}.{did_you_mean(value, names)}"
    )


def find_usual_column(role: str, names: Sequence[str], where: str, ranks: Sequence[str] = ()) -> str | None:
    """Return the column with a usual name for this role, or None; two of the same rank are an error."""
    for rank in ranks or USUAL_NAMES[role]:
        usual = rank.split()
        found = [name for name in names if column_key(name) in usual]
        if len(found) > 1:
            raise InputError(f"{where}: {quote_names(found)} could each be the {role}. {ask_for_columns(role)}")
        if found:
            return found[0]
    return None


def find_usual_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the two columns of text pairs, or None.

    >>> find_usual_pair(["index", "sentence1", "sentence2", "label"]), find_usual_pair(["text", "label"])
    (('sentence1', 'sentence2'), None)
    """
    by_key = {column_key(name): name for name in names}
    for pair in _PAIRS.split(", "):
        first, second = pair.split()
        if first in by_key and second in by_key:
            return by_key[first], by_key[second]
    return None


def find_choice_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return columns with one choice each: A B C D, choice1 choice2, ending0 ending1 …

    >>> find_choice_columns(["question", "选项A", "选项B", "选项C", "answer"])
    ('选项A', '选项B', '选项C')
    """
    series: dict[str, list[str]] = {}
    for name in names:
        if found := _series.fullmatch(column_key(name)):
            series.setdefault(found[1], []).append(name)
    for start in ("", "choice", "option", "ending", "answer", "candidate", "sol", "opt", "选项", "候选"):
        if len(series.get(start, ())) >= 2:
            return tuple(sorted(series[start], key=column_key))
    return ()


def guess_columns(rows: Sequence[Sequence[str]], needs_labels: bool) -> dict[str, str] | None:
    """Guess the columns of a table without a header: one or two columns of texts, and one of labels.

    None if uncertain: other columns, few rows, texts as short as labels.

    >>> guess_columns([[f"text number {n}", str(n % 2)] for n in range(20)], needs_labels=True)
    {'text': '1', 'label': '2'}
    """
    width = max((widths := Counter(map(len, rows))), key=widths.__getitem__)
    if width == 1 and not needs_labels:
        return {"text": "1"}
    regular = [row for row in rows if len(row) == width]  # the others are reported when they are read
    if len(regular) < 0.9 * len(rows) or (needs_labels and len(rows) < 8):
        return None
    kinds = [_kind([row[number] for row in regular]) for number in range(width)]
    texts = [str(number + 1) for number, kind in enumerate(kinds) if kind == "text"]
    labels = [str(number + 1) for number, kind in enumerate(kinds) if kind == "label"]
    if (
        len(texts) + len(labels) != width
        or not 1 <= len(texts) <= 2
        or len(labels) > 1
        or (needs_labels and not labels)
    ):
        return None
    return dict(zip(("text", "pair"), texts, strict=False)) | ({"label": labels[0]} if labels else {})


def _kind(cells: Sequence[str]) -> str:
    different = len(set(cells))
    mean = sum(map(len, cells)) / len(cells)
    if max(map(len, cells)) <= 40 and different <= max(2, len(cells) // 4):
        return "label"
    if different > len(cells) // 2 and mean > 5 and not all(_number.fullmatch(cell) for cell in cells):
        return "text"
    return ""


MOST_NAMES = 20


def quote_names(names: Sequence[str]) -> str:
    """List names for a message, the first ones only if there are many."""
    shown = ", ".join(repr(name if len(name) <= 60 else name[:59] + "…") for name in names[:MOST_NAMES]) or "none"
    return f"{shown} and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else shown


def ask_for_columns(*roles: str) -> str:
    options = " and ".join(f"--{role} NAME" for role in roles)
    return f"Choose with {options} (in Python: columns={{{', '.join(f'{role!r}: NAME' for role in roles)}}})."


SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
ROWS_LOOKED_AT = 200
_ODD_HEADER = 0.2  # share of the rows that a first row of another width counts for
LONGEST_CELL = 10_000  # lines; a longer cell has an unclosed quote

_quoted_cell = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class TableFile:
    path: Path
    separator: str
    quoted: bool
    header: tuple[str, ...] | None
    width: int  # number of columns of the header, or else of most rows
    sample: tuple[tuple[str, ...], ...]  # rows from the beginning, without the header
    sheet: Sheet | None = None  # of an Excel file; None: a text file

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns: the header, or else numbers from 1."""
        return self.header or tuple(str(number) for number in range(1, self.width + 1))

    @property
    def format(self) -> str:
        return "xlsx" if self.sheet else "csv" if self.quoted else "tsv"

    @property
    def unit(self) -> str:
        return self.sheet.unit if self.sheet else "line"

    @property
    def note(self) -> str:
        """Unusual properties of the table."""
        notes = [] if self.header else ["without a header"]
        if self.sheet is not None:
            return ", ".join(filter(None, [self.sheet.note, *notes]))
        if self.separator != ("," if self.quoted else "\t"):
            notes.append(f"separated by {SEPARATORS.get(self.separator, repr(self.separator))}")
        return " ".join(notes)

    def rows(self, start: RowStart = FIRST_ROW) -> Iterator[tuple[int, list[Any]]]:
        """Yield line and cells of every row below the header; blank lines are skipped. `start` is for text files."""
        found: Iterator[tuple[int, list[Any]]]
        if self.sheet is not None:
            # empty cells at the end of a row are not stored
            found = ((number, cells + [None] * (self.width - len(cells))) for number, cells in self.sheet.rows())
        else:
            found = parse_rows(self.path, checked_lines(self.path, start), self.separator, self.quoted)
        if self.header is not None and start == FIRST_ROW:
            next(found, None)
        return found

    def texts(self, cells: list[Any]) -> list[str]:
        """Return the cells of a row as text, which those of a sheet need not be."""
        return cells if self.sheet is None else [cell_text(cell) for cell in cells]


def detect_table(start: Beginning, format: str, given: Mapping[str, str]) -> TableFile:
    """Detect separator, quoting and header of a table; `given` are the columns that the caller named."""
    separator = _detect_separator(start, format)
    quoted = _is_quoted(start, separator)
    return _table(start.path, separator, quoted, list(_sample(start, separator, quoted)), given)


def detect_sheet(sheet: Sheet, given: Mapping[str, str]) -> TableFile:
    """Detect the header of a sheet of an Excel file."""
    sample = [[cell_text(cell) for cell in cells] for _, cells in islice(sheet.rows(), ROWS_LOOKED_AT)]
    return _table(sheet.path, ",", True, sample, given, sheet)


def _table(
    path: Path, separator: str, quoted: bool, sample: list[list[str]], given: Mapping[str, str],
    sheet: Sheet | None = None,
) -> TableFile:  # fmt: skip
    header = None
    if sample and (is_header(sample[0], given) or _is_above_numbers(sample)):
        header = tuple(cell.strip() for cell in sample.pop(0))
    widths = Counter(map(len, sample))
    width = len(header) if header else widths.most_common(1)[0][0] if widths else 0
    return TableFile(path, separator, quoted, header, width, tuple(map(tuple, sample)), sheet)


def _is_above_numbers(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has short, different names, one of them above a column of numbers.

    >>> _is_above_numbers([["Ticket", "Message"], ["17", "Where is it?"], ["18", "Hello"], ["19", "No"]])
    True
    """
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    names = [cell.strip() for cell in first]
    if len(rest) < 3 or len(set(names)) < len(names) or not all(0 < len(name) <= 40 for name in names):
        return False
    return may_be_header(names) and any(
        all(_number.fullmatch(row[column].strip()) for row in rest) for column in range(len(names))
    )


def _detect_separator(start: Beginning, format: str) -> str:
    usual = "\t" if format == "tsv" else ","
    best, most = usual, 0.0
    for separator in sorted(SEPARATORS, key=lambda one: one != usual):  # the usual one first: it wins a tie
        widths = [len(row) for row in _sample(start, separator, separator != "\t")]
        width, count = Counter(widths).most_common(1)[0] if widths else (0, 0)
        if width < 2:
            continue
        # a header has the columns of the rows: "text;score" above "gut;3,5" is not separated by commas
        share = count / len(widths) - (0.0 if widths[0] == width else _ODD_HEADER)
        if share > most + (0.0 if separator == "\t" else 0.05):
            best, most = separator, share
    return best


def _is_quoted(start: Beginning, separator: str) -> bool:
    if separator != "\t":
        return True
    doubled = 0
    for line in start.lines[:ROWS_LOOKED_AT]:
        for cell in line.split("\t"):
            if cell.startswith('"'):
                if not _quoted_cell.fullmatch(cell):
                    return False
                doubled += '""' in cell[1:-1]
    return doubled > 0


def _sample(start: Beginning, separator: str, quoted: bool) -> Iterator[list[str]]:
    """Yield the rows of the beginning, ignoring errors, since the last row may be truncated."""
    found = parse_rows(start.path, iter(enumerate(start.lines, 1)), separator, quoted)
    try:
        for _ in range(ROWS_LOOKED_AT):
            row = next(found, None)
            if row is None:
                return
            yield row[1]
    except InputError:
        return


def parse_rows(
    path: Path, lines: Iterator[tuple[int, str]], separator: str, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        if not line or line.isspace():
            continue
        if quoted and '"' in line:
            yield number, _parse_cells(path, number, line, lines, separator)
        else:
            yield number, line.split(separator)


def _parse_cells(path: Path, number: int, line: str, lines: Iterator[tuple[int, str]], separator: str) -> list[str]:
    """Parse a row with quotes; reads further lines if a quoted cell continues."""
    cells, place = [], 0
    while True:
        begin = place
        while line.startswith(" ", begin) and separator != " ":  # skip spaces before a quote
            begin += 1
        if not line.startswith('"', begin):
            end = line.find(separator, place)
            cells.append(line[place:] if end < 0 else line[place:end])
        else:
            cell, line, end = _parse_quoted(path, number, line, begin + 1, lines)
            cells.append(cell)
            rest = line.find(separator, end)
            between = line[end:] if rest < 0 else line[end:rest]
            if between.strip():
                raise InputError(
                    f"{path}, line {number}: after the quoted cell {cell[:30]!r} comes {between[:30]!r}, not the end "
                    'of the cell. Double the quotes inside a cell, and quote the whole cell: """So"", he said". '
                    "If quotes are plain characters in this file, separate its columns by tabs and name it .tsv."
                )
            end = rest
        if end < 0:
            return cells
        place = end + 1


def _parse_quoted(
    path: Path, number: int, line: str, place: int, lines: Iterator[tuple[int, str]]
) -> tuple[str, str, int]:
    """Return the cell that begins after a quote, the line where it ends, and the position after it."""
    parts: list[str] = []
    taken = 0
    while True:
        end = line.find('"', place)
        if end < 0:
            parts += (line[place:], "\n")
            following = next(lines, None)
            taken += 1
            if following is None or taken > LONGEST_CELL:
                raise InputError(
                    f"{path}, line {number}: the quote before {''.join(parts)[:30]!r} is never closed. Close it, or, "
                    "if quotes are plain characters in this file, separate its columns by tabs and name it .tsv."
                )
            line, place = following[1], 0
        elif line.startswith('"', end + 1):
            parts.append(line[place : end + 1])
            place = end + 2
        else:
            parts.append(line[place:end])
            return "".join(parts), line, end + 1
