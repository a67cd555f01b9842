"""Column files (CoNLL and similar): one word (or 汉字) and its tag per line, a blank line between sentences.

Columns are separated by tabs or spaces; the word is the first and the tag the last, unless the caller chooses others. A
line -DOCSTART- begins a new group. The words are joined to running text, and each is kept as a span of it (`units`):

    single characters only, in the sentence and
    at the beginning of the file                  nothing between them
    汉字 (or kana) in the sentence                a space only between two words of letters or digits: "用 Python 3"
    otherwise                                     a space

Tags are normalised to the spelling of `metrics.spans.find_chunks`:

    IOB1         I-PER; B-PER only where one PER follows another
    IOB2, BIO    B-PER begins, I-PER continues
    BIOES, BMES  also E-PER ends, S-PER is a single word; M continues; BILOU's L and U are E and S

All are read as by CoNLL's scorer, so any order of tags is accepted. A tag without a type (B, I, O) has the type
"entity".

Some Chinese files write each character with its index in its word, 科0 技1 全0 方1 位2 (Weibo NER, Peng and Dredze
2015). If all words at the beginning of a file are like that, the digits are dropped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, islice, pairwise
from typing import NamedTuple

from qkv.data.labelled.examples import Fault, Span, TagExample
from qkv.data.labelled.opened import Beginning, OpenedFile, ReportFault, Wanted, checked_lines, is_blank
from qkv.errors import InputError
from qkv.metrics.spans import find_chunks

ENTITY = "entity"
READ_AS = "BIOES"  # the scheme of normalised tags

_tag = re.compile(r"(?:O|([BIESMLU])(?:[-_](\S+))?)")
_same = {"L": "E", "U": "S", "M": "I"}


@cache
def normalise_tag(tag: str) -> str | None:
    """Return O, or B-, I-, E-, S- and a type; None if it is not a tag of these schemes.

    >>> normalise_tag("B_PER"), normalise_tag("M-地名"), normalise_tag("O"), normalise_tag("I"), normalise_tag("NN")
    ('B-PER', 'I-地名', 'O', 'I-entity', None)
    """
    found = _tag.fullmatch(tag)
    if found is None:
        return None
    if found[1] is None:
        return "O"
    return f"{_same.get(found[1], found[1])}-{found[2] or ENTITY}"


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """Return the name of the scheme, only for messages.

    >>> scheme_of([["I-PER", "O"]]), scheme_of([["B-PER", "I-PER"]]), scheme_of([["B-X", "E-X", "S-X"]])
    ('IOB1', 'IOB2', 'BIOES')
    """
    letters: set[str] = set()
    begins_with_i = False
    for tags in sentences:
        before = "O"
        for tag in tags:
            letters.add(tag[:1])
            begins_with_i = begins_with_i or (tag[:1] == "I" and before[1:] != tag[1:])
            before = tag
    if letters & {"L", "U"}:
        return "BILOU"
    if "M" in letters:
        return "BMES"
    if letters & {"E", "S"}:
        return "BIOES"
    return "IOB1" if begins_with_i else "IOB2"


DOCUMENT = "-DOCSTART-"

_unspaced = re.compile("[\u3400-\u9fff\uf900-\ufaff\u3040-\u30ff\U00020000-\U0003ffff]")  # 汉字 and kana
_latin_end, _latin_start = re.compile(r"[^\W_]\Z"), re.compile(r"[^\W_]")
_looked_at = 200  # sentences
_indexed = re.compile(r"(.)(0|[1-9]\d*)")  # 科0
_FEWEST_INDEXED = 4  # words


class Sentence(NamedTuple):
    rows: list[tuple[int, list[str]]]  # line and columns
    group: str | None


def looks_like_columns(start: Beginning) -> bool:
    """Whether the file looks like a column file: short rows that nearly all end with a tag."""
    filled = [line for line in start.lines[:400] if line.strip() and not line.startswith(DOCUMENT)]
    tagged = [
        columns for line in filled if len(columns := _split(line)) >= 2 and normalise_tag(columns[-1]) is not None
    ]
    short = sum(len(columns[0]) <= 60 for columns in tagged)
    return short >= 2 and short > 0.9 * len(filled)


def open_columns(start: Beginning, wanted: Wanted) -> OpenedFile:
    sample = list(islice(_sentences(enumerate(start.lines, 1)), _looked_at))
    if not start.whole and len(sample) > 1:
        sample.pop()
    widths = Counter(len(columns) for sentence in sample for _, columns in sentence.rows)
    if not widths:
        raise InputError(f"{wanted.path} has no line with a word.")
    width = max(widths, key=lambda one: (widths[one], one))
    word = _column(wanted, "text", 1, width)
    tag = _column(wanted, "label", width, width) if width > 1 or wanted.needs_labels else None
    if tag is not None and tag == word:
        raise InputError(
            f"{wanted.path}, line {sample[0].rows[0][0]}: {sample[0].rows[0][1][0]!r} has no tag. Each line must "
            "have a word, a tab or space, and its tag."
        )
    words = [[columns[word - 1] for _, columns in sentence.rows if len(columns) >= word] for sentence in sample]
    indexed = _are_indexed(words)
    single = indexed or all(len(one) == 1 for sentence in words for one in sentence)
    tags = (
        [] if tag is None else [[columns[tag - 1] for _, columns in one.rows if len(columns) >= tag] for one in sample]
    )
    guessed = not wanted.needs_labels and "label" not in wanted.columns
    if guessed and not all(normalise_tag(one) for sentence in tags for one in sentence):
        tag = None  # another column; labels are not required

    def units() -> Iterator[tuple[int, Sentence]]:
        for sentence in _sentences(checked_lines(wanted.path)):
            yield sentence.rows[0][0], sentence

    def convert(line: int, sentence: Sentence, report: ReportFault) -> Iterable[TagExample]:
        if indexed:
            sentence = _without_indices(sentence, word)
        return _example(wanted, line, sentence, word, tag, single, report)

    columns = {"text": str(word)} | ({} if tag is None else {"label": str(tag)})
    notes = [] if tag is None else [scheme_of(tags)]
    if indexed:
        notes.append(f"(characters with their index in the word as in {words[0][0]}: the digits are dropped)")
    return OpenedFile("conll", columns, " ".join(notes), units, convert)


def _are_indexed(sentences: Sequence[Sequence[str]]) -> bool:
    """Whether every word is a character and its index in a word: 0, or one more than the index before it.

    >>> _are_indexed([["科0", "技1", "全0", "方1", "位2"]]), _are_indexed([["T1", "A5", "B0", "C0"]])
    (True, False)
    """
    if sum(map(len, sentences)) < _FEWEST_INDEXED:
        return False
    starts = 0
    for words in sentences:
        before = -1
        for word in words:
            found = _indexed.fullmatch(word)
            if found is None or int(found[2]) not in (0, before + 1):
                return False
            before = int(found[2])
            starts += before == 0
    return starts > 0


def _without_indices(sentence: Sentence, word: int) -> Sentence:
    rows = []
    for number, columns in sentence.rows:
        found = _indexed.fullmatch(columns[word - 1]) if len(columns) >= word else None
        rows.append((number, columns if found is None else [*columns[: word - 1], found[1], *columns[word:]]))
    return Sentence(rows, sentence.group)


def _column(wanted: Wanted, role: str, usual: int, width: int) -> int:
    given = wanted.columns.get(role)
    if given is None:
        return usual
    if not given.isdigit() or not 1 <= int(given) <= width:
        raise InputError(
            f"{wanted.path}: its lines have {width} columns without names, so the {role} must be a number "
            f"from 1 to {width}, not {given!r}."
        )
    return int(given)


def _split(line: str) -> list[str]:
    if "\t" in line:
        return [line[0], *line[1:].split()] if line[0].isspace() else line.rstrip().split("\t")
    columns = line.split()
    # in files of characters a space may be a word: "  O"
    return [" ", *columns] if line[0] == " " and len(columns) == 1 else columns


def _sentences(numbered: Iterable[tuple[int, str]]) -> Iterator[Sentence]:
    rows: list[tuple[int, list[str]]] = []
    group, documents = None, 0
    for number, line in numbered:
        if not line or line.isspace():
            if rows:
                yield Sentence(rows, group)
            rows = []
        elif line.startswith(DOCUMENT):
            if rows:
                yield Sentence(rows, group)
            rows, documents = [], documents + 1
            group = f"document {documents}"
        else:
            columns = _split(line)
            comment = not rows and line.startswith("# ") and normalise_tag(columns[-1]) is None
            if not comment:
                rows.append((number, columns))
    if rows:
        yield Sentence(rows, group)


def _example(
    wanted: Wanted, line: int, sentence: Sentence, word: int, tag: int | None, single: bool, report: ReportFault
) -> Iterator[TagExample]:
    words, tags = [], []
    needed = max(word, tag or 0)
    for number, columns in sentence.rows:
        if len(columns) < needed:
            raise InputError(
                f"{wanted.place(number)} has {len(columns)} columns, but the word is in column {word}"
                + (f" and the tag in column {tag}. Add what is missing" if tag else ". Add what is missing")
                + ", or insert a blank line if a sentence ends there."
            )
        if not columns[word - 1]:
            raise InputError(f"{wanted.place(number)}: the word, column {word}, is empty. Add it, or delete the line.")
        words.append(columns[word - 1])
        if tag is not None:
            read = normalise_tag(columns[tag - 1])
            if read is None:
                raise InputError(
                    f"{wanted.place(number)}: {columns[tag - 1]!r} is not a tag. A tag is O, or B-, I-, E-, S- or M- "
                    "and a type, such as B-PER. If the tags are in another column, give its number as the label."
                )
            tags.append(read)
    # a file may begin with characters and continue with words
    text, units = join_words(words, "" if single and all(len(one) == 1 for one in words) else None)
    if is_blank(text):
        message = "the sentence has nothing but invisible characters"
        report(Fault(wanted.place(line), "empty text", message, "dropped"))
        return
    spans = None
    if tag is not None:
        spans = tuple(Span(units[first][0], units[end - 1][1], kind) for first, end, kind in find_chunks(tags, READ_AS))
    yield TagExample(text, spans, units, wanted.place(line), sentence.group)


def join_words(words: list[str], between: str | None = None) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Join words to a text; return it with the span of each. `between` separates them; None: by the rules above.

    >>> join_words(["我", "用", "Python", "3.12", "。"])
    ('我用Python 3.12。', ((0, 1), (1, 2), (2, 8), (9, 13), (13, 14)))
    >>> join_words(["EU", "rejects", "."])[0]
    'EU rejects .'
    """
    if between is None and any(map(_unspaced.search, words)):
        gaps = [_gap(before, word) for before, word in pairwise(words)]
        text = "".join(chain.from_iterable(zip(words, [*gaps, ""], strict=True)))
        steps = [len(word) + len(gap) for word, gap in zip(words, gaps, strict=False)]
    else:
        gap = " " if between is None else between
        text = gap.join(words)
        steps = [len(word) + len(gap) for word in words[:-1]]
    starts = accumulate(steps, initial=0)
    return text, tuple((start, start + len(word)) for start, word in zip(starts, words, strict=bool(words)))


def _gap(before: str, word: str) -> str:
    """Return a space between two words of letters or digits, unless both are single characters of a split word."""
    together = len(before) == len(word) == 1 or _unspaced.search(before) or _unspaced.search(word)
    return " " if not together and _latin_end.search(before) and _latin_start.match(word) else ""
