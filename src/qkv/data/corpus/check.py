"""Check a corpus before training: statistics, and problems with their file and line.

Unlike other readers, a check does not stop at the first problem: it counts all and reports the first few of each kind.
The files are read once, a block at a time; only a hash of every document and every long line is kept, to find
repetitions.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qkv.data.corpus.documents import Block, Documents, SourceFile, open_sources, read_blocks, read_documents
from qkv.data.readers import AnyPath, encoding_note
from qkv.data.same_texts import SameTexts
from qkv.errors import InputError
from qkv.text.languages import COUNTED_LANGUAGES, Letters, language_shares
from qkv.text.segmenter import split_sentences

CORPUS_FINDINGS = {
    "unreadable": "files that cannot be read to the end",
    "encoding": "lines that are not UTF-8",
    "object": "lines of a .jsonl file without a text",
    "lost characters": "U+FFFD, the replacement for lost characters",
    "mojibake": "wrongly decoded text, such as Ã© for é or 锟斤拷",
    "control": "control characters, which are dropped",
    "empty document": "documents without a word",
    "long document": "documents longer than 100,000 characters",
    "long sentence": "sentences longer than 1,000 characters: line ends or punctuation may be missing",
    "repeated document": "repeated documents",
    "repeated line": "repeated long lines",
}
REMARKS = ("long document", "long sentence", "repeated document", "repeated line")
"""Findings that are no faults."""
LONG_DOCUMENT, LONG_SENTENCE, LONG_LINE = 100_000, 1_000, 50  # characters
_NAMED = 20  # findings of each kind in the report

# continuation bytes of UTF-8, read as Windows-1252
_after = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# é becomes Ã©, ’ becomes â€™, 中国 becomes ä¸­å›½. 锟斤拷 is U+FFFD in UTF-8 read as GBK, 烫烫烫 is unused memory. The
# first characters are matched first, which makes the search fast.
_mojibake = re.compile(
    rf"[ÃÂâä-éï锟烫屯](?:(?<=[ÃÂ]){_after}|(?<=â)€{_after}|(?<=[ä-é]){_after}{{2}}[ä-é]{_after}{{2}}|"
    "(?<=锟)斤拷|(?<=烫)烫烫|(?<=屯)屯屯|(?<=ï)»¿)"
)
_control = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_lost = re.compile("\ufffd")
FAULTS = {"lost characters": _lost, "mojibake": _mojibake, "control": _control}

_word = re.compile(r"\w")


@dataclass(frozen=True)
class Finding:
    kind: str  # a key of CORPUS_FINDINGS, LABELLED_FINDINGS or PAIR_FINDINGS
    file: str
    line: int
    message: str
    place: str = ""  # within the file: "line 3", "question 7"; "": the whole file


@dataclass(frozen=True)
class CorpusReport:
    files: int
    bytes: int  # of text, uncompressed
    documents: int
    sentences: int
    characters: int
    languages: dict[str, float]  # share of the letters
    longest_document: int  # characters
    single_sentence_documents: int
    counts: dict[str, int]  # number of findings of each kind
    findings: list[Finding]  # the first of each kind
    limits: list[str]  # problems for next-sentence prediction; files that are not UTF-8

    has_faults: bool  # something is wrong; not if all findings are remarks

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_corpus(
    paths: AnyPath | Iterable[AnyPath],
    field: str = "text",
    named: int = _NAMED,
    progress: Callable[[float], None] | None = None,
) -> CorpusReport:
    """Check files, with at most `named` findings of each kind. `progress` is called with the share read so far."""
    files = open_sources(paths)
    if not files:
        raise InputError("no files were given: there is nothing to check.")
    check = _Check(files, field, named)
    for number, source in enumerate(files):
        try:
            for block in read_blocks([source]):
                check.block(number, block)
                if progress is not None:
                    progress((number + block.share) / len(files))
        except InputError as error:
            check.found("unreadable", number, 0, str(error))
        check.end_of_file(number)
    return check.report()


@dataclass
class _Document:
    """The current document."""

    line: int = 0  # first line of its text; 0: none yet
    hash: int = 0
    sentences: int = 0
    characters: int = 0
    words: bool = False


class _Check:
    def __init__(self, files: list[SourceFile], field: str, named: int) -> None:
        self.files, self.field, self.named = files, field, named
        self.counts: Counter[str] = Counter()
        self.findings: dict[str, list[Finding]] = {kind: [] for kind in CORPUS_FINDINGS}
        self.letters, self.by_language = Letters(), np.zeros(len(COUNTED_LANGUAGES), np.int64)
        self.bytes = self.documents = self.sentences = self.characters = self.longest = self.single = 0
        self.seen_documents, self.seen_lines = SameTexts(), SameTexts()
        self.document = _Document()
        self.limits: list[str] = []
        self._before = (0, 0)  # documents and long lines before the current file

    def found(self, kind: str, source: int, line: int, message: str) -> None:
        self.counts[kind] += 1
        if len(self.findings[kind]) < self.named:
            place = f"line {line}" if line else ""
            self.findings[kind].append(Finding(kind, str(self.files[source].path), line, message, place))

    def block(self, source: int, block: Block) -> None:
        content = read_documents(block, self.field, lambda kind, line, message: self.found(kind, source, line, message))
        text = content.text
        self.bytes += len(block.data)
        self.by_language += self.letters.count(text)
        lines = _Lines(block, content)
        self.faults(source, text, lines)
        spans = np.array(split_sentences(text), np.int64).reshape(-1, 2)
        lengths = spans[:, 1] - spans[:, 0]
        for start in spans[lengths > LONG_SENTENCE, 0].tolist():
            self.found("long sentence", source, lines.at(start), f"begins {text[start : start + 40]!r}")
        part = np.searchsorted(np.array(content.begins), spans[:, 0], side="right") - 1
        sentences = np.bincount(part, minlength=len(content.begins)).tolist()
        characters = np.bincount(part, lengths, minlength=len(content.begins)).astype(int).tolist()
        ends = [*content.begins[1:], len(text)]
        for number, (begin, end) in enumerate(zip(content.begins, ends, strict=True)):
            if number or not block.goes_on:
                self.end_of_document(source)
            self.document.sentences += sentences[number]
            self.document.characters += characters[number]
            self.lines(source, text[begin:end], begin, lines)

    def lines(self, source: int, text: str, begin: int, lines: "_Lines") -> None:
        """Process the part of a document that begins at `begin` of its block."""
        document, start = self.document, begin
        for line in text.split("\n"):
            if content := line.strip():
                document.line = document.line or lines.at(begin)
                document.hash = hash((document.hash, content))
                document.words = document.words or _word.search(content) is not None
                if len(content) >= LONG_LINE:
                    self.seen_lines.add(hash(content), source, lines.at(begin))
            begin += len(line) + 1
        if lines.is_object and not document.line:
            document.line = lines.at(start)

    def faults(self, source: int, text: str, lines: "_Lines") -> None:
        """Report one finding per line and kind."""
        for kind, pattern in FAULTS.items():
            last = 0
            for found in pattern.finditer(text):
                line = lines.at(found.start())
                if line != last:
                    around = text[max(0, found.start() - 15) : found.end() + 15]
                    self.found(kind, source, line, f"in {around!r}")
                last = line

    def end_of_document(self, source: int) -> None:
        document, self.document = self.document, _Document()
        if not document.line:
            return
        if not document.words:
            self.found("empty document", source, document.line, "has no letter and no digit")
            return
        self.documents += 1
        self.sentences += document.sentences
        self.characters += document.characters
        self.longest = max(self.longest, document.characters)
        self.single += document.sentences == 1
        self.seen_documents.add(document.hash, source, document.line)
        if document.characters > LONG_DOCUMENT:
            self.found("long document", source, document.line, f"has {document.characters:,} characters")

    def end_of_file(self, source: int) -> None:
        self.end_of_document(source)
        documents, lines = self.documents - self._before[0], len(self.seen_lines) - self._before[1]
        if documents == 1 and lines > 100 and self.files[source].kind == ".txt":
            self.limits.append(
                f"{self.files[source].path} has no blank line: its {lines:,} long lines are one document. If each is a "
                "document, put blank lines between them."
            )
        self._before = self.documents, len(self.seen_lines)

    def report(self) -> CorpusReport:
        for kind, seen in (("repeated document", self.seen_documents), ("repeated line", self.seen_lines)):
            for one in seen.repeated():
                first = f"the same as {self.files[one.first_source].path}, line {one.first_line}"
                self.found(kind, one.source, one.line, first)
        return CorpusReport(
            files=len(self.files),
            bytes=self.bytes,
            documents=self.documents,
            sentences=self.sentences,
            characters=self.characters,
            languages=language_shares(self.by_language),
            longest_document=self.longest,
            single_sentence_documents=self.single,
            counts={kind: self.counts[kind] for kind in CORPUS_FINDINGS if self.counts[kind]},
            findings=[finding for findings in self.findings.values() for finding in findings],
            limits=[*self.limits, *self.pairs(), *self.encodings()],
            has_faults=not self.documents or any(kind not in REMARKS for kind, count in self.counts.items() if count),
        )

    def encodings(self) -> list[str]:
        """Return how files that are not UTF-8 are read."""
        return [f"{file.path}: {note}." for file in self.files if (note := encoding_note(file.path))]

    def pairs(self) -> list[str]:
        """Return problems for next-sentence prediction."""
        if not self.documents:
            return ["there is no text to train on."]
        limits = []
        if self.documents == 1:
            limits.append("one document only: negatives must come from the corpus (negatives = corpus).")
        if self.single:
            share = f"{self.single:,} of {self.documents:,} documents"
            limits.append(f"{share} have one sentence only: their segments are two halves of a sentence.")
        return limits


class _Lines:
    """Maps positions in a block to line numbers of its file."""

    def __init__(self, block: Block, content: Documents) -> None:
        self.is_object = block.source.kind == ".jsonl"
        self._block, self._content = block, content
        self._ends: list[int] | None = None

    def at(self, place: int) -> int:
        if self.is_object:
            return self._content.lines[bisect_right(self._content.begins, place) - 1]
        if self._ends is None:
            codes = np.frombuffer(self._content.text.encode("utf-32-le"), np.uint32)
            self._ends = np.flatnonzero(codes == 10).tolist()
        return self._block.place.line + bisect_right(self._ends, place - 1)
