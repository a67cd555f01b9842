"""Check labelled files before training: statistics, and problems with their file and line.

Like data/corpus/check.py, it continues after a problem, counts all and reports the first few of each kind. A hash of
every text is kept, not the texts. Files given as `against` (development and test sets) are compared with the others: a
text in both makes scores too good.

It reports lengths in characters and tokens; spans that begin or end inside a token; labels that are probably the same
("Sport" and "sport", "positve" and "positive"; it does not compare meanings: "not spam" and "no spam" are two labels);
and two spellings in one set of texts, full and half width, 简体 and 繁體, since a model reads rare spellings worse.
Traditional and simplified are distinguished by frequent characters that differ; a text without them is neither.
"""

import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from qkv.data.corpus.check import FAULTS, Finding
from qkv.data.labelled.examples import LARGEST_NUMBER, Example, Place, place_at
from qkv.data.labelled.opened import Labelling
from qkv.data.labelled.reader import UNUSABLE, Labelled, guess_task, labelled, labelling_for
from qkv.data.readers import AnyPath
from qkv.data.same_texts import SameTexts
from qkv.errors import InputError
from qkv.text.tokenizer import Encoded, Tokenizer
from qkv.text.unknown import UnknownCounter, UnknownFacts, count_unknown
from qkv.text.wordpiece import CHINESE

_AT_ONCE = 256  # examples tokenized together


@dataclass(frozen=True)
class Lengths:
    """Lengths of examples (both texts of a pair, a question with its text); in tokens including [CLS] and [SEP]."""

    median: int
    p90: int
    p99: int
    longest: int
    limit: int | None = None  # of the model, in tokens
    over: int = 0  # examples above it, which are read in windows


def summarise_lengths(values: "array[int]", limit: int | None = None) -> Lengths | None:
    if not values:
        return None
    numbers = np.frombuffer(values, np.uint32)
    median, p90, p99 = (int(value) for value in np.percentile(numbers, (50, 90, 99), method="higher"))
    over = 0 if limit is None else int(np.count_nonzero(numbers > limit))
    return Lengths(median, p90, p99, int(numbers.max()), limit, over)


class TokenLengths:
    """Counts tokens, some hundred examples together."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: list[tuple[int, Example]] = []
        self.unknown = UnknownCounter(tokenizer)

    def add(self, source: int, example: Example) -> Iterator[tuple[int, Example, int, str]]:
        """Add an example; yield counted ones with number of tokens and a span that ends inside a token, or ""."""
        self._waiting.append((source, example))
        if len(self._waiting) >= _AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, Example, int, str]]:
        waiting, self._waiting = self._waiting, []
        texts: dict[str, int] = {}
        for _, example in waiting:
            texts.update((part, len(texts)) for part in example.texts() if part and part not in texts)
        encoded = self._tokenizer.encode_batch(list(texts), special=False)
        for source, example in waiting:
            first, second = example.texts()
            ids = [encoded[texts[part]].ids for part in (first, second) if part]
            n_tokens = sum(map(len, ids))
            self.unknown.add(
                [part for part in (first, second) if part],
                sum(count_unknown(self._tokenizer, one) for one in ids),
                n_tokens,
            )
            count = n_tokens + (3 if second else 2)
            yield source, example, count, _cut_span(example, encoded[texts[first]]) if example.spanned() else ""


def _cut_span(example: Example, encoded: Encoded) -> str:
    """Describe the first span that begins or ends inside a token."""
    starts = {start for start, _ in encoded.offsets}
    ends = {end for _, end in encoded.offsets}
    for start, end, label in example.spanned():
        if start not in starts or end not in ends:
            return f"{label} {example.text[start:end]!r} at {start}–{end}"
    return ""


_MOST_LABELS = 500  # since every pair is compared
RARE = 0.02  # of the other label's count: one different letter is a typo only if the label is rarer than this


class Typo(NamedTuple):
    label: str
    meant: str
    why: str


def find_typos(counts: Mapping[str, int]) -> Iterator[Typo]:
    """Yield the rarer label of each pair that looks like one label; if equally frequent, the one with double spaces.

    >>> list(find_typos({"positive": 900, "Positive": 3, "positve": 1, "negative": 800}))[0]
    Typo(label='Positive', meant='positive', why='case')
    """
    labels = sorted(counts, key=lambda label: (-counts[label], label != " ".join(label.split()), label))
    if len(labels) > _MOST_LABELS:
        return
    for number, label in enumerate(labels):
        for meant in labels[:number]:
            if why := _why(label, meant, counts[label] <= max(2.0, RARE * counts[meant])):
                yield Typo(label, meant, why)
                break


def _why(label: str, other: str, rare: bool) -> str:
    if label.casefold() == other.casefold():
        return "case"
    a, b = unicodedata.normalize("NFKC", label), unicodedata.normalize("NFKC", other)
    if a == b:
        return "full or half width"
    if _bare(a) == _bare(b):
        return "case, blanks or marks"
    return "one character" if rare and _is_slip(a.casefold(), b.casefold()) else ""


def _bare(label: str) -> str:
    """Remove case, spaces and punctuation, but keep the sign of a number and punctuation between digits."""
    if label[:1] in "+-" or any(character.isdigit() for character in label):
        return label.casefold().replace(" ", "")
    return "".join(character for character in label.casefold() if character.isalnum()) or label


def _is_slip(a: str, b: str) -> bool:
    """Whether two labels differ by one inserted, deleted, replaced or swapped letter, but not a digit.

    >>> _is_slip("positve", "positive"), _is_slip("class1", "class2"), _is_slip("好评", "差评")
    (True, False, False)
    """
    if len(a) > len(b):
        a, b = b, a
    # short labels differ by a letter on purpose: 好评 and 差评, B and C
    if len(a) < (3 if not a.isascii() else 4) or len(b) - len(a) > 1:
        return False
    start = next((place for place in range(len(a)) if a[place] != b[place]), len(a))
    if any(character.isdigit() for character in (a[start : start + 1] + b[start : start + 1])):
        return False
    if len(a) < len(b):
        return a[start:] == b[start + 1 :]
    swapped = a[start : start + 2][::-1] == b[start : start + 2] and a[start + 2 :] == b[start + 2 :]
    return a[start + 1 :] == b[start + 1 :] or swapped


_pairs = (
    "这這 个個 们們 来來 时時 说說 国國 会會 对對 过過 学學 发發 还還 进進 种種 问問 间間 见見 长長 现現 开開 关關 "
    "动動 样樣 应應 当當 从從 给給 让讓 头頭 点點 实實 话話 电電 车車 东東 马馬 门門 书書 买買 卖賣 读讀 认認 识識 "
    "请請 谢謝 爱愛 觉覺 听聽 写寫 语語 钱錢 亲親 难難 欢歡 乐樂 师師 体體 务務 业業 产產 价價 质質 员員 场場 条條 "
    "华華 经經 结結 总總 线線 组組 细細 红紅 绝絕 级級 约約 纪紀 机機 权權 计計 记記 议議 论論 设設 调調 证證 评評 "
    "试試 题題 飞飛 饭飯 馆館 环環 战戰 选選 连連 运運 达達 远遠 边邊 适適 热熱 灯燈 尔爾 岁歲 变變 图圖 团團 园園 "
    "圆圓 坏壞 处處 备備 复復 够夠 奖獎 妈媽 孙孫 宝寶 审審 宽寬 导導 层層 币幣 带帶 帮幫 库庫 张張 强強 归歸 态態 "
    "怀懷 怜憐 恶惡 惊驚 户戶 报報 担擔 拥擁 择擇 换換 损損 摄攝 数數 断斷 显顯 杀殺"
)
SIMPLIFIED = "".join(sorted({pair[0] for pair in _pairs.split()}))
TRADITIONAL = "".join(sorted({pair[1] for pair in _pairs.split()}))

_simplified, _traditional = re.compile(f"[{SIMPLIFIED}]"), re.compile(f"[{TRADITIONAL}]")
_full_letters, _half_letters = re.compile("[０-９Ａ-Ｚａ-ｚ]"), re.compile("[0-9A-Za-z]")
_full_marks, _half_marks = re.compile("[，；：？！]"), re.compile(f"(?<=[{CHINESE}])[,;:?!](?=[{CHINESE}\\s]|$)")

FORMS: Mapping[str, tuple[str, str]] = {
    "script": ("simplified characters", "traditional characters"),
    "letters": ("half-width letters or digits", "full-width letters or digits"),
    "marks": ("full-width marks ，；：？！", "half-width marks ,;:?! between 汉字"),
}
"""The two variants of each property, as returned by `script_variants`."""


def script_variants(text: str) -> list[tuple[str, int, str]]:
    """Return the properties of a text, their variant (0 or 1 of FORMS), and the first character that shows it.

    A text with both variants counts as 1; of 简 and 繁 the more frequent counts.

    >>> script_variants("这是ＡＢＣ。"), script_variants("這個問題"), script_variants("plain")
    ([('script', 0, '这'), ('letters', 1, 'Ａ')], [('script', 1, '這')], [('letters', 0, 'p')])
    """
    found = []
    if text.isascii():
        return [("letters", 0, one[0])] if (one := _half_letters.search(text)) else []
    simplified, traditional = _simplified.findall(text), _traditional.findall(text)
    if len(simplified) != len(traditional):
        way = int(len(traditional) > len(simplified))
        found.append(("script", way, (traditional if way else simplified)[0]))
    for thing, usual, other in (("letters", _half_letters, _full_letters), ("marks", _full_marks, _half_marks)):
        if sign := other.search(text):
            found.append((thing, 1, sign[0]))
        elif sign := usual.search(text):
            found.append((thing, 0, sign[0]))
    return found


LABELLED_FINDINGS = {
    "unreadable": "files that cannot be read to the end",
    "unusable": "rows that cannot be used: training stops at the first of them, or leaves them out with --skip-bad",
    "large number": "numbers that are too large to be learned: training stops at the first of them",
    "leak": "texts that are also in the training files: scores on them are too good",
    "conflict": "repeated texts with another label",
    "label typo": "labels that look like a typo of another",
    "unknown label": "labels that do not occur in the training files",
    "empty text": "examples without a text, which are dropped",
    "no agreed label": "examples whose annotators did not agree, which are dropped",
    "not annotated": "examples that were never annotated, which are dropped",
    "answer": "answers that are not at the stated position",
    "answer place": "answers without a stated position that occur in the text more than once",
    "span": "spans that are not at the stated position",
    "span overlap": "overlapping spans, which no tagger here can learn",
    "span blank": "spans that begin or end with white space",
    "span cut": "spans that begin or end inside a token of the model",
    "choices": "questions whose right choice occurs twice",
    "several annotations": "tasks with several annotations",
    "extra columns": "rows with more columns than the others",
    "repeated": "repeated texts with the same label",
    "lost characters": "U+FFFD, the replacement for lost characters",
    "mojibake": "wrongly decoded text, such as Ã© for é or 锟斤拷",
    "control": "control characters, which are dropped",
    "script": "texts in the rarer of simplified and traditional characters",
    "letters": "texts in the rarer of full-width and half-width letters and digits",
    "marks": "texts with the rarer of full-width and half-width punctuation",
    "long": "examples longer than the model's limit, which are read in windows",
}
REMARKS = ("repeated", "script", "letters", "marks", "long")
"""Findings that are no faults."""
_NAMED = 20  # findings of each kind in the report
_FEW = 10  # labels with fewer examples are noted
_UNEVEN = 20  # ratio of the most to the least frequent label that is noted


@dataclass(frozen=True)
class FileFacts:
    path: str
    against: bool
    read_as: str  # format and columns, for people
    examples: int
    dropped: int
    mended: int


@dataclass(frozen=True)
class LabelledReport:
    task: str
    files: list[FileFacts]
    examples: int  # for training; those of `against` are counted in `files`
    labels: dict[str, int]  # of the training examples, most frequent first; each span counts
    numbers: dict[str, float] | None  # smallest, mean, largest, if the labels are regression targets
    characters: Lengths | None
    tokens: Lengths | None  # if a tokenizer was given
    unknown: UnknownFacts | None  # what its vocabulary lacks
    counts: dict[str, int]  # number of findings of each kind
    findings: list[Finding]  # the first of each kind
    notes: list[str]
    sound: bool  # no findings, and usable for training: examples with different labels
    has_faults: bool  # something is wrong; not if all findings are remarks

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_labelled(
    paths: AnyPath | Iterable[AnyPath],
    task: str | None = None,
    *,
    against: Sequence[AnyPath] = (),
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    separator: str | None = None,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
    named: int = _NAMED,
    progress: Callable[[float, str], None] | None = None,
) -> LabelledReport:
    """Check training files, and compare the files `against` with them.

    By default the task is guessed from the first file. With a tokenizer, lengths are counted in tokens and spans are
    compared with token boundaries; `max_length` is the model's limit.
    """
    files = [paths] if isinstance(paths, str) or not isinstance(paths, Iterable) else list(paths)
    if not files:
        raise InputError("no files were given: there is nothing to check.")
    if task is None and (task := guess_task(files[0]) or ("classify" if columns else None)) is None:
        raise InputError(f"{files[0]} does not look labelled. Give its task: classify, tag, answer or choice.")
    check = _Check(labelling_for(task), len(files), tokenizer, max_length, named)
    sources = [*files, *against]
    for number, path in enumerate(sources):
        source = check.opened(path, columns, format, separator)
        check.file(number, source)
        if progress is not None:
            progress((number + 1) / len(sources), f"{check.files[-1].examples:,} examples")
    return check.report()


class _Check:
    def __init__(
        self, labelling: Labelling, training: int, tokenizer: Tokenizer | None, limit: int | None, named: int
    ) -> None:
        self.labelling, self.training, self.limit, self.named = labelling, training, limit, named
        self.counts: Counter[str] = Counter()
        self.findings: dict[str, list[Finding]] = {kind: [] for kind in LABELLED_FINDINGS}
        self.files: list[FileFacts] = []
        self.units: list[str] = []  # that the examples of each file are counted in
        self.notes: list[str] = []
        self.useless = False  # no line is wrong, but nothing can be learned
        self.labels: Counter[str] = Counter()
        self.labels_against: Counter[str] = Counter()
        self.label_places: defaultdict[str, list[Place]] = defaultdict(list)  # first places of each label
        self.places_against: defaultdict[str, list[Place]] = defaultdict(list)
        self.texts = SameTexts()
        self.characters, self.tokens = array("I"), array("I")
        self.token_lengths = None if tokenizer is None else TokenLengths(tokenizer)
        self.ways: dict[str, tuple[Counter[int], dict[int, list[tuple[Place, str]]]]] = {
            thing: (Counter(), {0: [], 1: []}) for thing in FORMS
        }
        self.several = False  # some example has a list of labels
        self._last_text = ""

    def found(self, kind: str, place: Place, message: str) -> None:
        self.counts[kind] += 1
        if len(self.findings[kind]) < self.named:
            self.findings[kind].append(_finding(kind, place, message))

    def opened(
        self, path: AnyPath, columns: Mapping[str, str] | None, format: str | None, separator: str | None
    ) -> Labelled:
        """Open a file with labels or, if it has none, without: its texts can still be checked."""
        given: dict[str, Any] = {"columns": columns, "format": format, "separator": separator, "lenient": True}
        try:
            return labelled(path, self.labelling.task, **given)
        except InputError as error:
            try:
                source = labelled(path, self.labelling.task, needs_labels=False, **given)
            except InputError:
                raise error from None
            if "label" in source.columns or source.format == "lines":
                raise
            self.useless_because(f"No labels were found; only the texts were checked. {error}")
            return source

    def file(self, number: int, source: Labelled) -> None:
        count = 0
        self.units.append(source.unit)
        try:
            for example in source:
                count += 1
                self.example(number, example)
        except InputError as error:
            self.found("unreadable", Place(str(source.path), 0), _without(str(source.path), str(error)))
        actions = Counter(fault.action for fault in source.faults)
        for fault in source.faults:
            action = "" if fault.action == "noted" or fault.kind == UNUSABLE else f" ({fault.action})"
            self.found(fault.kind, fault.place, _without(str(fault.place), fault.message) + action)
        facts = FileFacts(
            str(source.path), number >= self.training, source.describe(), count, actions["dropped"], actions["mended"]
        )
        self.files.append(facts)
        if not count:
            self.useless_because(f"{source.path} has 0 examples.")
        if self.token_lengths is not None:
            self.count_tokens(self.token_lengths.rest())

    def useless_because(self, note: str) -> None:
        self.useless = True
        self.notes.append(note)

    def example(self, number: int, example: Example) -> None:
        first, second = example.texts()
        self.characters.append(len(first) + len(second or ""))
        at = example.place.number or example.place.line
        self.texts.add(hash(example.identity()), number, at, hash(example.expected()))
        for text in (first, second):
            if text and text is not self._last_text:
                self.writing(text, example.place)
        self._last_text = example.text  # the next question is often about the same text
        self.label(number, example)
        self.spans(example)
        if self.token_lengths is not None:
            self.count_tokens(self.token_lengths.add(number, example))

    def label(self, number: int, example: Example) -> None:
        self.several = self.several or example.several
        counts = self.labels if number < self.training else self.labels_against
        places = self.label_places if number < self.training else self.places_against
        for label in example.counted():
            counts[label] += 1
            if len(places[label]) < (1 if number < self.training else max(1, self.named)):
                places[label].append(example.place)

    def spans(self, example: Example) -> None:
        before = None
        for span in sorted(example.spanned()):
            said = f"{span.label} {example.text[span.start : span.end]!r:.40} at {span.start}–{span.end}"
            if example.text[span.start].isspace() or example.text[span.end - 1].isspace():
                self.found("span blank", example.place, said)
            if before is not None and span.start < before.end:
                self.found("span overlap", example.place, f"{said} and {before.label} at {before.start}–{before.end}")
            if before is None or span.end > before.end:
                before = span

    def writing(self, text: str, place: Place) -> None:
        if not text.isascii() or not text.isprintable():
            for kind, pattern in FAULTS.items():
                if sign := pattern.search(text):
                    self.found(kind, place, f"in {text[max(0, sign.start() - 15) : sign.end() + 15]!r}")
        for thing, way, character in script_variants(text):
            counts, first = self.ways[thing]
            counts[way] += 1
            if len(first[way]) < self.named:
                first[way].append((place, character))

    def count_tokens(self, counted: Iterable[tuple[int, Example, int, str]]) -> None:
        for _, example, count, cut in counted:
            self.tokens.append(count)
            if self.limit is not None and count > self.limit:
                self.found("long", example.place, f"has {count:,} tokens, the limit is {self.limit:,}")
            if cut:
                self.found("span cut", example.place, cut)

    def report(self) -> LabelledReport:
        names = [facts.path for facts in self.files]
        for same in self.texts.repeated():
            leak = same.source >= self.training > same.first_source
            kind = "leak" if leak else "conflict" if same.other_label else "repeated"
            first = place_at(names[same.first_source], same.first_line, self.units[same.first_source])
            place = place_at(names[same.source], same.line, self.units[same.source])
            differs = leak and same.other_label
            self.found(kind, place, f"the same as {first}, with another label" if differs else f"the same as {first}")
        numbers = self.numbers()
        if numbers is None and self.labelling.classes:
            self.label_findings()
        self.way_findings()
        return LabelledReport(
            task=self.labelling.task,
            files=self.files,
            examples=sum(facts.examples for facts in self.files if not facts.against),
            labels={} if numbers else dict(self.labels.most_common()),
            numbers=numbers,
            characters=summarise_lengths(self.characters),
            tokens=summarise_lengths(self.tokens, self.limit),
            unknown=None if self.token_lengths is None else self.token_lengths.unknown.facts(),
            counts={kind: self.counts[kind] for kind in LABELLED_FINDINGS if self.counts[kind]},
            findings=[finding for findings in self.findings.values() for finding in findings],
            notes=self.notes,
            sound=not (self.useless or self.counts.total()),
            has_faults=self.useless or any(kind not in REMARKS for kind, count in self.counts.items() if count),
        )

    @property
    def one_label_each(self) -> bool:
        """Whether each text has one label; otherwise the score is F1."""
        return not self.labelling.spans and not self.several

    def numbers(self) -> dict[str, float] | None:
        """Return statistics of regression targets: all labels are numbers, some with a decimal point; else None."""
        if not self.one_label_each or not any("." in label for label in self.labels):
            return None
        try:
            values = [(float(label), count) for label, count in self.labels.items()]
        except ValueError:
            return None
        for label in self.labels:
            if abs(float(label)) > LARGEST_NUMBER:
                self.found("large number", self.label_places[label][0], label)
        mean = sum(value * count for value, count in values) / self.labels.total()
        return {"smallest": min(values)[0], "mean": mean, "largest": max(values)[0]}

    def label_findings(self) -> None:
        places = {**self.places_against, **self.label_places}
        everywhere = self.labels + self.labels_against
        for typo in find_typos(everywhere):
            count, other = everywhere[typo.label], everywhere[typo.meant]
            message = f"{typo.label!r} ({count:,}): is {typo.meant!r} ({other:,}) meant? ({typo.why})"
            self.found("label typo", places[typo.label][0], message)
        if self.labels:
            for label in sorted(self.labels_against.keys() - self.labels.keys()):
                for place in self.places_against[label]:
                    self.found("unknown label", place, f"{label!r} ({self.labels_against[label]:,})")
                self.counts["unknown label"] += self.labels_against[label] - len(self.places_against[label])
        if len(self.labels) == 1 and self.one_label_each:
            label, count = self.labels.most_common(1)[0]
            who = "The only example has the label" if count == 1 else f"All {count:,} examples have one label,"
            self.useless_because(f"{who} {label!r}: there is nothing to distinguish.")
        spans, trained_on = self.labelling.spans, any(facts.examples and not facts.against for facts in self.files)
        if spans and not self.labels and trained_on:
            self.useless_because("No example has a span: there is nothing to find.")
        things = "spans" if spans else "examples"
        if len(self.labels) > 1:
            (most, large), *_, (least, small) = self.labels.most_common()
            if large >= _UNEVEN * small:
                advice = "look at the F1 of each label; the overall F1 says little about the rare ones."
                self.notes.append(
                    f"{most!r} has {large:,} {things}, {least!r} has {small:,}: "
                    + ("class weights will matter, and accuracy says little." if self.one_label_each else advice)
                )
            few = [label for label, count in self.labels.items() if count < _FEW]
            if few and len(self.labels) > len(few):
                shown = ", ".join(map(repr, few[:10])) + (" …" if len(few) > 10 else "")
                self.notes.append(f"{len(few)} of {len(self.labels)} labels have fewer than {_FEW} {things}: {shown}.")

    def way_findings(self) -> None:
        """Report the rarer variant of each property."""
        for thing, (counts, first) in self.ways.items():
            if counts[0] and counts[1]:
                rarer = int(counts[1] <= counts[0])
                self.counts[thing] = counts[rarer]
                usual = f"{FORMS[thing][rarer]}; {counts[1 - rarer]:,} texts have {FORMS[thing][1 - rarer]}"
                self.findings[thing] = [_finding(thing, place, f"{sign!r}: {usual}") for place, sign in first[rarer]]


def _finding(kind: str, place: Place, message: str) -> Finding:
    return Finding(kind, place.file, place.line, message, place.within if place.line else "")


def _without(place: str, message: str) -> str:
    """Remove the place from the beginning of a message, since a finding has its own place."""
    return message.removeprefix(place).lstrip(":, ") if message.startswith(place) else message
