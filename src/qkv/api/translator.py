"""Translate with a trained model: a run of `qkv train translate`, its model folder, or the folder of an OPUS-MT model.

Texts are translated in batches, sorted by length, and come back in the order they were given. A text that is longer
than what the model was made for is refused, or translated sentence by sentence if that is asked for: never cut.

>>> translator = load_translator("run")                                          # doctest: +SKIP
>>> translator.translate(["Ein Mann liest."])[0].text                             # doctest: +SKIP
'A man is reading.'
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from qkv.data.batch import chunks
from qkv.data.labelled.binary_tables import detect_binary, open_record_table
from qkv.data.labelled.examples import TextExample, place_at
from qkv.data.labelled.opened import OpenedFile, ReportFault
from qkv.data.labelled.reader import Labelled
from qkv.data.readers import COMPRESSED, FIRST_ROW, RowStart, check_file, field_of, numbered_lines
from qkv.errors import InputError
from qkv.models.family import TRANSLATES, Loading, Opened, Translates
from qkv.models.folders.hub import default_model, locate
from qkv.models.folders.own import CONFIG
from qkv.models.table import describe_model, open_model
from qkv.search.decoding import Hypothesis
from qkv.search.options import GenerateConfig
from qkv.tasks.translate import source_spans, target_spans, translate_batch
from qkv.text.alignment import Alignment, WordAttention, align, word_attention
from qkv.text.languages import (
    UNKNOWN_LANGUAGE,
    base_of,
    check_language,
    detect_language,
    in_latin,
    language_name,
)
from qkv.text.segmenter import Segmenter
from qkv.text.segmenter import split_sentences as sentences
from qkv.train.device import device_named, use_threads

_CHUNK = 1_024  # texts of a stream that are sorted and translated together
_CHARACTERS = 1 << 20  # or so many characters
_NAMED = 2  # texts that are too long and are named beside the first


@dataclass(frozen=True)
class TranslationCandidate:
    """One translation of a text."""

    text: str
    score: float  # what candidates are ranked by
    log_probability: float
    finished: bool  # False: it was stopped because it was too long
    n_tokens: int
    attention: WordAttention | None = field(default=None, repr=False)  # None: not asked for, or none to be had

    @property
    def alignments(self) -> list[Alignment]:
        return [] if self.attention is None else align(self.attention)


@dataclass(frozen=True)
class Translation:
    source: str
    candidates: tuple[TranslationCandidate, ...]  # best first
    n_tokens: int  # of the source
    n_parts: int = 1  # above 1: sentences that were translated one by one
    unknown: tuple[tuple[int, int], ...] = ()  # characters of the source that the vocabulary has no token for
    foreign: str = ""  # the language of a text that the model does not read; the text is then left as it is

    @property
    def best(self) -> TranslationCandidate:
        return self.candidates[0]

    @property
    def text(self) -> str:
        return self.best.text

    @property
    def unknown_words(self) -> list[str]:
        return [self.source[start:end] for start, end in self.unknown]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        best = self.best
        found: dict[str, Any] = {
            "source": self.source,
            "translation": best.text,
            "score": round(best.score, 6),
            "log_probability": round(best.log_probability, 6),
            "finished": best.finished,
            "n_source_tokens": self.n_tokens,
            "n_tokens": best.n_tokens,
            "n_parts": self.n_parts,
            "n_unknown": len(self.unknown),
            "unknown": [{"start": start, "end": end, "text": self.source[start:end]} for start, end in self.unknown],
        }
        if self.foreign:
            found["foreign"] = self.foreign
        if len(self.candidates) > 1:
            found["n_best"] = [{"translation": one.text, "score": round(one.score, 6)} for one in self.candidates]
        if best.attention is not None:
            found["alignments"] = [one.to_dict(self.source, best.text) for one in best.alignments]
        return found


def left_as_it_is(text: str, language: str) -> Translation:
    """For a text in a language that the model does not read."""
    return Translation(text, (TranslationCandidate(text, 0.0, 0.0, True, 0),), 0, foreign=language)


class TranslationSources(NamedTuple):
    """Texts made ready to be translated: pieces are texts, or sentences of texts, in order."""

    texts: Sequence[str]
    parts: list[list[tuple[int, int]]]  # of each text, the characters of its pieces
    pieces: list[str]
    ids: list[list[int]]  # of each piece
    full: list[int]  # pieces that have words
    sources: list[list[int]]  # the ids of those
    keys: list[int]  # for drawing: see `translate_batch`


@dataclass(frozen=True)
class Translator(Translates):
    path: Path = Path()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, opened: Opened) -> "Translator":
        """Of a folder that is open already."""
        return cls(**vars(opened.ability(TRANSLATES)), path=opened.path, notes=opened.notes)

    def translate(
        self,
        texts: Sequence[str],
        decoding: GenerateConfig | None = None,
        *,
        alignments: bool = False,
        segmenter: Segmenter | None = None,
        split: bool = False,
        progress: Callable[[int], None] | None = None,
        first: int = 0,
        places: Sequence[str] | None = None,
    ) -> list[Translation]:
        """The best translations of each text. `split` translates sentence by sentence.

        `segmenter`: of alignments, what Chinese words are; without one each 汉字 is a word.
        `first`: how many texts came before these, by which they are counted and what is drawn by chance differs.
        `places`: what messages call each text; else by its number.
        """
        config = decoding or self.decoding
        if split and (alignments or config.n_best > 1):
            what = "alignments" if alignments else f"n_best = {config.n_best}"
            raise InputError(f"Sentence by sentence there is one translation and no alignment: leave out {what}.")
        read = self.prepare(texts, split=split, first=first, places=places)
        found = translate_batch(self.network, self.languages, read.sources, config, keys=read.keys, progress=progress)
        return self.finish(read, found, alignments=alignments, segmenter=segmenter)

    # `translate` in three steps, for callers that run batches of several lists of texts (qkv.serve).

    def prepare(
        self, texts: Sequence[str], *, split: bool = False, first: int = 0, places: Sequence[str] | None = None
    ) -> "TranslationSources":
        """Check, split and tokenize texts; arguments as of `translate`."""
        if isinstance(texts, str):
            raise InputError("Give a list of texts: translate([text]).")
        for number, text in enumerate(texts, first + 1):
            if not isinstance(text, str):
                raise InputError(f"Text {number} is of type {type(text).__name__}; a text is a string.")
        parts = [_sentences(text) if split else [(0, len(text))] for text in texts]
        pieces = [(number, text[start:end]) for number, text in enumerate(texts) for start, end in parts[number]]
        keys = [_key(first + number, part) for number, spans in enumerate(parts) for part in range(len(spans))]
        ids = self._read([piece for _, piece in pieces])
        long = [place for place, row in enumerate(ids) if len(row) > self.max_length]
        if long:
            number, piece = pieces[long[0]]
            called = f"Text {first + number + 1}" if places is None else places[number]
            raise self._too_long(called, piece, len(ids[long[0]]), split)
        full = [place for place, row in enumerate(ids) if len(row) > 1]  # the others are nothing but an end
        return TranslationSources(
            texts,
            parts,
            [piece for _, piece in pieces],
            ids,
            full,
            [ids[place] for place in full],
            [keys[place] for place in full],
        )

    def run_batch(
        self, sources: Sequence[Sequence[int]], keys: Sequence[int], decoding: GenerateConfig
    ) -> list[list[Hypothesis]]:
        """The n best of each source; they may be those of several lists of texts."""
        return translate_batch(self.network, self.languages, sources, decoding, keys=keys)

    def finish(
        self,
        read: "TranslationSources",
        found: Sequence[Sequence[Hypothesis]],
        *,
        alignments: bool = False,
        segmenter: Segmenter | None = None,
    ) -> list[Translation]:
        """One translation a text, from what was found for `read.sources`."""
        ids = read.ids
        candidates: list[list[TranslationCandidate]] = [
            [TranslationCandidate("", 0.0, 0.0, True, 0)] for _ in read.pieces
        ]
        for place, hypotheses in zip(read.full, found, strict=True):
            candidates[place] = [self._candidate(read.pieces[place], one, alignments, segmenter) for one in hypotheses]
        results, at = [], 0
        for text, spans in zip(read.texts, read.parts, strict=True):
            mine = slice(at, at + len(spans))
            at += len(spans)
            tokens = sum(map(len, ids[mine]))
            unknown = tuple(
                (begin + start, begin + end)
                for (begin, last), row in zip(spans, ids[mine], strict=True)
                for start, end in self.languages.unknown(text[begin:last], row)
            )
            if len(spans) == 1:
                found_here = tuple(candidates[mine.start])
            else:
                found_here = (_join(text, spans, [one[0] for one in candidates[mine]]),)
            results.append(Translation(text, found_here, tokens, len(spans), unknown))
        return results

    def check(self, texts: Iterable[tuple[str, str]], *, split: bool = False) -> int:
        """Refuse texts that are too long before any is translated; return the number of texts.

        Each comes with what messages call it, as for `stream_placed`. All are looked at, a few in memory at a time: the
        error describes the first that is too long, and counts the others.
        """
        count = 0
        first: tuple[str, str, int] | None = None
        others: list[str] = []  # the places of two, and how many come after
        more = 0
        for chunk in chunks(texts, _CHUNK, lambda one: len(one[0]), _CHARACTERS):
            count += len(chunk)
            pieces = [
                (number, text[start:end])
                for number, (text, _) in enumerate(chunk)
                for start, end in (_sentences(text) if split else [(0, len(text))])
            ]
            last = None  # the text that was counted last: however many of its sentences are too long, it is one
            for (number, piece), row in zip(pieces, self._read([piece for _, piece in pieces]), strict=True):
                if len(row) <= self.max_length or number == last:
                    continue
                last, place = number, chunk[number][1]
                if first is None:
                    first = place, piece, len(row)
                elif len(others) < _NAMED:
                    others.append(place)
                else:
                    more += 1
        if first is not None:
            raise self._too_long(*first, split, others, more)
        return count

    def stream(self, texts: Iterable[str], decoding: GenerateConfig | None = None, **how: Any) -> Iterator[Translation]:
        """`translate` for any number of texts, in bounded memory."""
        placed = ((text, f"Text {number}") for number, text in enumerate(texts, 1))
        return self.stream_placed(placed, decoding, **how)

    def stream_placed(
        self, texts: Iterable[tuple[str, str]], decoding: GenerateConfig | None = None, *, first: int = 0, **how: Any
    ) -> Iterator[Translation]:
        """`stream` for texts with their names for messages, such as a file and a line; `first` as in `translate`."""
        for chunk in chunks(texts, _CHUNK, lambda one: len(one[0]), _CHARACTERS):
            alone, places = [text for text, _ in chunk], [place for _, place in chunk]
            yield from self.translate(alone, decoding, first=first, places=places, **how)
            first += len(chunk)

    def _read(self, texts: Sequence[str]) -> list[list[int]]:
        return self.languages.read(texts)

    def _too_long(
        self, place: str, piece: str, tokens: int, split: bool, others: Sequence[str] = (), more: int = 0
    ) -> InputError:
        begins = _begin(piece)
        way = (
            "Shorten it: nothing is cut in silence."
            if split
            else "Have it translated sentence by sentence (--split, in Python split=True): nothing is cut in silence."
        )
        what = f"has a sentence ({begins!r}) of {tokens:,}" if split else f"({begins!r}) has {tokens:,}"
        too = f" Too long as well: {'; '.join(others)}{f'; and {more:,} more' if more else ''}." if others else ""
        return InputError(
            f"{place} {what} tokens, and the model of {self.path} was made for {self.max_length:,} at most.{too} {way}"
        )

    def _candidate(
        self, source: str, found: Hypothesis, alignments: bool, segmenter: Segmenter | None
    ) -> TranslationCandidate:
        text, spans = target_spans(self.languages.target, found.tokens)
        attention = None
        if alignments and found.attention is not None:
            weights = found.attention.float().cpu().numpy()
            read = source_spans(self.languages.source, source)
            attention = word_attention(weights, source, read, text, spans, segmenter)
        n_tokens = len(found.tokens) + found.finished
        return TranslationCandidate(text, found.score, found.log_probability, found.finished, n_tokens, attention)


def load_translator(
    name: str | Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    precision: str = "fp32",
    *,
    source: str = "",
    target: str = "",
) -> Translator:
    """Load a run, a model folder, an OPUS-MT folder, hf:owner/name from the hub, or a model that comes with qkv, by its
    name or by its languages: load_translator(source="en", target="zh"). `precision` is that of a Transformer on a CPU
    (nn/cpu/precision.py)."""
    use_threads(threads)
    if name is None:
        if not source and not target:
            raise InputError('Name a model, or a language: load_translator(source="en") or (target="zh").')
        for code, what in ((source, "source"), (target, "target")):
            check_language(code or UNKNOWN_LANGUAGE, what)
        name, source, target = default_model(TRANSLATES.name, source, target), "", ""
    opened = open_model(locate(name), Loading(device=device_named(device), precision=precision))
    check_direction(opened.path, opened.ability(TRANSLATES), source, target)
    return Translator.of(opened)


def keep_foreign(
    texts: Iterator[tuple[str, str]],
    is_foreign: Callable[[str], str],
    translate: Callable[[Iterator[tuple[str, str]]], Iterator[Translation]],
) -> Iterator[Translation]:
    """Translate what the model reads; the other texts stay as they are, in their places."""
    ahead: deque[Translation | None] = deque()  # of what was read; None: the next of the translations

    def read() -> Iterator[tuple[str, str]]:
        for text, place in texts:
            language = is_foreign(text)
            ahead.append(left_as_it_is(text, language) if language else None)
            if not language:
                yield text, place

    for one in translate(read()):
        while (kept := ahead.popleft()) is not None:
            yield kept
        yield one
    yield from filter(None, ahead)


_FIELDS = ("source", "text")
"""Where the texts are: the first that a JSON line or a table has."""


def open_texts(name: str | Path) -> Labelled:
    """Open a file of texts to translate: lines, the first column of a .tsv, or the field or column source or text of a
    .jsonl, parquet or Arrow file. Empty texts are texts."""
    path = check_file(name)
    if (format := detect_binary(path)) in ("parquet", "arrow"):
        return _open_table_texts(path, format)
    ending = Path(path.stem if path.suffix.lower() in COMPRESSED else path.name).suffix.lower()

    def units(start: RowStart = FIRST_ROW) -> Iterator[tuple[int, str]]:
        lines = numbered_lines(path, start)
        return ((number, line) for number, line in lines if line.strip()) if ending == ".jsonl" else lines

    def convert(number: int, line: str, report: ReportFault) -> list[TextExample]:
        place = place_at(str(path), number, "line")
        if ending == ".jsonl":
            line = field_of(line, str(place), *_FIELDS)
        elif ending == ".tsv":
            line = line.split("\t")[0]
        elif "\t" in line:
            raise InputError(
                f"{place} has tab-separated columns. Name the file .tsv to translate its first column, or give a "
                "file with texts only."
            )
        return [TextExample(line, place=place)]

    found = {".jsonl": "jsonl", ".tsv": "tsv"}.get(ending, "lines")
    return Labelled(path, "", OpenedFile(found, {}, "", units, convert, units_from=units), needs_labels=False)


def _open_table_texts(path: Path, format: str) -> Labelled:
    table = open_record_table(path, format)
    column = next((name for name in _FIELDS if name in table.names), None)
    if column is None:
        raise InputError(
            f"{path} has no column {' or '.join(map(repr, _FIELDS))}, only {', '.join(map(repr, table.names))}. Rename "
            "the column of the texts."
        )

    def convert(number: int, record: dict[str, Any], report: ReportFault) -> list[TextExample]:
        place, text = place_at(str(path), number, table.unit), record[column]
        if text is not None and not isinstance(text, str):
            raise InputError(f"{place}: {column!r} is {text!r:.40}, and not a text.")
        return [TextExample(text or "", place=place)]

    return Labelled(
        path, "", OpenedFile(format, {}, "", table.rows, convert, table.unit, units_from=table.rows), needs_labels=False
    )


def resolve_decoding(translator: Translator, wanted: dict[str, Any]) -> GenerateConfig:
    """Return the decoding options of the model, updated by `wanted`."""
    own = {key: value for key, value in asdict(translator.decoding).items() if value is not None}
    if wanted.get("sample"):
        own["beams"] = 1
    elif "beams" not in wanted and isinstance(n_best := wanted.get("n_best"), int):
        own["beams"] = max(own["beams"], n_best)
    config = GenerateConfig.of(own | wanted)
    if "seed" in wanted and not config.sample:
        raise InputError("seed is for sampling: add --sample, or leave --seed out.")
    return config


def translates(name: str | Path) -> bool:
    """Whether a folder holds a translation model; nothing is loaded."""
    place = locate(name)
    return (place / CONFIG).is_file() and TRANSLATES in describe_model(place).abilities


def check_direction(path: Path, model: Translates, source: str, target: str) -> None:
    """Refuse languages that the user names and a model does not translate; "" are not named."""
    for code, own, which in ((source, model.source_language, "from"), (target, model.target_language, "to")):
        check_language(code or UNKNOWN_LANGUAGE, f"--{which}")
        if code and not base_of(own):
            raise InputError(f"{path} does not say which languages it translates: leave --{which} {code} out.")
        if code and base_of(own) != base_of(code):
            raise InputError(
                f"{path} translates {model.source_language or '?'} → {model.target_language or '?'}, not {which} "
                f"{language_name(code)}. Leave --{which} out, or give another model."
            )


def choose_translator(texts: Iterable[tuple[str, str]], source: str = "", target: str = "") -> str:
    """The name of qkv's own model for texts, by the languages that the user names ("": not named) and by what the first
    text with letters looks like. Texts come with what messages call them."""
    for code, which in ((source, "from"), (target, "to")):
        check_language(code or UNKNOWN_LANGUAGE, f"--{which}")
    seen = ((place, _begin(text), detect_language(text)) for text, place in texts)
    place, text, found = next((one for one in seen if one[2]), ("", "", ""))
    if not (found or source or target):
        raise InputError("The text has no letters to tell its language by: add --to zh or --to en.")
    if source and found and base_of(source) != found and not (in_latin(source) and in_latin(found)):
        raise InputError(
            f"{place} ({text!r}) looks like {language_name(found)}, not like {language_name(source)}: leave --from "
            f"{source} out."
        )
    if found and not source and found == base_of(target):
        raise InputError(f"{place} ({text!r}) is {language_name(found)} already, which --to {target} asks for.")
    try:
        return default_model(TRANSLATES.name, source or found, target)
    except InputError as error:
        if source or not found:
            raise
        way = " If it is English, add --from en." if in_latin(found) else ""
        raise InputError(f"{place} ({text!r}) looks like {language_name(found)}. {error}{way}") from None


def _begin(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _key(number: int, part: int) -> int:
    """A key that is unique for a sentence of a text in a stream."""
    return number + (part << 40)


def _sentences(text: str) -> list[tuple[int, int]]:
    return sentences(text) or [(0, len(text))]


def _join(text: str, spans: Sequence[tuple[int, int]], parts: Sequence[TranslationCandidate]) -> TranslationCandidate:
    """The translations of several sentences as one, with the original line ends between them, or a space if words need
    one."""
    written = ""
    for number, part in enumerate(parts):
        if number:
            between = text[spans[number - 1][1] : spans[number][0]]
            lines = between.count("\n")
            needs_space = bool(written) and bool(part.text) and max(written[-1], part.text[0]) < "⺀"
            written += "\n" * lines if lines else " " * needs_space
        written += part.text
    return TranslationCandidate(
        written,
        sum(part.score for part in parts),
        sum(part.log_probability for part in parts),
        all(part.finished for part in parts),
        sum(part.n_tokens for part in parts),
    )
