"""Where the sentence pairs of a translation run come from: files, which are read, split, tokenized and cached as token
ids, or reversed digits, made as an example.

Training pairs are read several times and never kept as text: for the split and errors, for the vocabulary, and as ids.
RUN/encoded.safetensors caches the ids of large files, since tokenizing dominates the time of a resume. Its key covers
everything the ids depend on: files, split, maximum length, tokenizers. A damaged or outdated cache is ignored, and a
cache that cannot be written is skipped. It is removed when the run is finished.

The digits are a language that a small model learns in less than a minute:

    3 1 4 1 5    →    5 1 4 1 3

With attention the model reads one position at a time, from right to left, as its alignment shows; with a fixed context
it must store every digit. Digits are separated by spaces, so that each is a token. The same seed gives the same pairs,
without duplicates.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from qkv.data.labelled.examples import Fault
from qkv.data.pairs.batching import EncodedPairs, EncodedSide, Languages, PairEncoding, encode_pairs
from qkv.data.pairs.files import Pair, PairFiles, choose_part, fold_to_letters
from qkv.errors import InputError
from qkv.files import replaced_file, replaced_folder, sha256_of, write_text
from qkv.jobs.translate.settings import BitextChoice, TranslateConfig
from qkv.text.languages import UNKNOWN_LANGUAGE, Letters, check_language, check_letters, is_language
from qkv.text.subwords import train_subwords
from qkv.text.tokenizer import Tokenizer

Arrays = Mapping[str, NDArray[Any]]
_NAMES = ("source.ids", "source.offsets", "target.ids", "target.offsets", "too_long", "nothing")
KEPT = "encoded.safetensors"
_WORTH = 100_000  # pairs; fewer are not kept
_FORMAT = 2
"""Of the file, and of the way in which pairs are read, held out and cut: what changes one of these counts it up."""


def make_ids_key(choice: BitextChoice, max_length: int, source: Tokenizer, target: Tokenizer) -> str | None:
    """A hash of everything the ids depend on; None if the files were not hashed."""
    if choice.sha256 is None:
        return None
    given = [len(files) for files in (choice.train, choice.more, choice.dev, choice.test)]
    shares = [choice.dev_share, choice.test_share]
    tokenizers = [one.files() for one in dict.fromkeys((source, target))]
    told = json.dumps([_FORMAT, choice.sha256, given, choice.columns, shares, max_length, tokenizers])
    return hashlib.sha256(told.encode()).hexdigest()


def cache_ids(run: Path, key: str | None, found: PairEncoding, tell: Callable[[str], None]) -> None:
    """Write the ids, atomically, if there are many and they are not cached yet.

    They save time and nothing else: where there is no room for them, `tell` hears of it.
    """
    file = run / KEPT
    if key is None or len(found.pairs) < _WORTH or _arrays_in(file, key) is not None:
        return
    arrays: dict[str, NDArray[Any]] = {
        **{f"{name}.ids": side.ids for name, side in _sides(found)},
        **{f"{name}.offsets": side.offsets for name, side in _sides(found)},
        "too_long": np.array(found.too_long, np.int64),
        "nothing": np.array(found.nothing, np.int64),
    }
    try:
        with replaced_file(file) as part:
            save_file(arrays, part, metadata={"key": key, "sha256": _digest(arrays)})
    except (InputError, SafetensorError) as error:  # a full disk is either, by who met it first
        tell(f"note: the token ids were not kept ({error}); going on with this run would cut its pairs again")


def read_cached_ids(run: Path, key: str | None) -> PairEncoding | None:
    """The ids that were cached under this key."""
    arrays = None if key is None else _arrays_in(run / KEPT, key)
    if arrays is None:
        return None
    source, target = (EncodedSide(arrays[f"{name}.ids"], arrays[f"{name}.offsets"]) for name in ("source", "target"))
    too_long, nothing = (tuple(arrays[name].tolist()) for name in ("too_long", "nothing"))
    return PairEncoding(EncodedPairs(source, target), too_long, nothing)


def clear_cached_ids(run: Path) -> None:
    (run / KEPT).unlink(missing_ok=True)


def _sides(found: PairEncoding) -> tuple[tuple[str, EncodedSide], tuple[str, EncodedSide]]:
    return ("source", found.pairs.source), ("target", found.pairs.target)


def _arrays_in(file: Path, key: str) -> Arrays | None:
    """The arrays of the file, if they have this key and are intact."""
    try:
        with safe_open(file, "numpy") as opened:
            told = opened.metadata() or {}
            if told.get("key") != key:
                return None
            arrays = {name: opened.get_tensor(name) for name in _NAMES}
    except (OSError, SafetensorError):  # not there, or cut short
        return None
    return arrays if _digest(arrays) == told.get("sha256") else None


def _digest(arrays: Arrays) -> str:
    """A hash of names, types, shapes and bytes."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


# Pairs.

LOOKED_AT = 2_000  # pairs, for their language
_Tell = Callable[[str], None]


@dataclass(frozen=True)
class PairData:
    source: Tokenizer
    target: Tokenizer  # the same object, where both sides share one
    encoding: PairEncoding  # of what is trained on
    dev: tuple[Pair, ...]
    test: tuple[Pair, ...]
    faults: tuple[Fault, ...]

    @property
    def train(self) -> EncodedPairs:
        return self.encoding.pairs

    @property
    def languages(self) -> Languages:
        return Languages.of(self.source, self.target)


def pin_bitext(choice: BitextChoice) -> BitextChoice:
    """The settings with absolute paths and a hash, so that a resumed run finds the files from any folder and recognises
    them."""
    for name in ("train", "dev", "test"):
        if len(getattr(choice, name)) > 2:
            raise InputError(f"bitext.{name} are two files (source, target) or one with both sides.")
    if not choice.train:
        raise InputError("There are no pairs to train on: give two files, or one with both sides.")
    for name in ("source_language", "target_language"):
        if code := getattr(choice, name):
            check_language(code, f"bitext.{name} (--languages)")
    given = [files for files in (choice.train, choice.dev, choice.test, *((one,) for one in choice.more)) if files]
    for files in given:
        _open_pairs(files, choice)  # says what is missing or empty, before anything is read
    if choice.columns and all(len(files) == 2 for files in given):
        raise InputError(
            f"bitext.columns (--columns) are {' and '.join(choice.columns)}, and no file has both sides: of "
            f"{choice.train[0]} and {choice.train[1]} each is one. Leave the columns out."
        )

    def whole(files: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(Path(one).expanduser().resolve()) for one in files)

    choice = replace(
        choice,
        train=whole(choice.train),
        more=whole(choice.more),
        dev=whole(choice.dev),
        test=whole(choice.test),
    )
    return replace(choice, sha256=_hash(choice))


def check_bitext_unchanged(choice: BitextChoice) -> None:
    if choice.sha256 is not None and _hash(choice) != choice.sha256:
        files = ", ".join((*choice.train, *choice.more, *choice.dev, *choice.test))
        raise InputError(
            f"The pairs have changed since the run began: a resumed run would train on others than before. Put the "
            f"files back as they were ({files}), or begin another run."
        )


def _hash(choice: BitextChoice) -> str:
    found = (sha256_of(Path(one)) for one in (*choice.train, *choice.more, *choice.dev, *choice.test))
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def _open_pairs(files: tuple[str, ...], choice: BitextChoice) -> PairFiles:
    return PairFiles.of(files, choice.columns if len(files) == 1 else ())


class TrainingPairs:
    """The training pairs: `train` and `more` without what is held out of `train`. Each iteration starts from the
    beginning.

    Whatever the hash holds out is new to the model on both sides: a pair that has the source or the translation of a
    held-out one is left out (`known`). A short sentence is the translation of many, and a model that has written it
    before would be judged by its memory. Where dev or test were given as files, nothing is taken away for them.
    """

    def __init__(self, choice: BitextChoice) -> None:
        self.files = _open_pairs(choice.train, choice)
        self.more = [_open_pairs((file,), choice) for file in choice.more]
        self.shares = (0.0 if choice.dev else choice.dev_share, 0.0 if choice.test else choice.test_share)
        self.held: dict[str, list[Pair]] = {"dev": [], "test": []}
        if any(self.shares):
            for pair in self.files:
                if (part := choose_part(pair.source, *self.shares)) in self.held:
                    self.held[part].append(pair)
        pairs = [*self.held["dev"], *self.held["test"]]
        self._sources = {fold_to_letters(pair.source) for pair in pairs}
        self._targets = {fold_to_letters(pair.target) for pair in pairs}
        self.known: list[Fault] = []  # of the last time through

    def __iter__(self) -> Iterator[Pair]:
        self.known = []
        for file in (self.files, *self.more):
            for pair in file:
                if file is self.files and any(self.shares) and choose_part(pair.source, *self.shares) != "train":
                    continue
                if side := self._held_out(pair):
                    message = f"its {side} is that of a pair which was held out"
                    self.known.append(Fault(pair.place, "held out", message, "dropped"))
                else:
                    yield pair

    def _held_out(self, pair: Pair) -> str:
        """The side of a pair that was held out; "" if neither was."""
        if self._targets and fold_to_letters(pair.target) in self._targets:
            return "target"
        return "source" if self._sources and fold_to_letters(pair.source) in self._sources else ""

    @property
    def faults(self) -> list[Fault]:
        """The faults of the last iteration, without `known`."""
        return [fault for file in (self.files, *self.more) for fault in file.faults]


def read_pairs(config: TranslateConfig, out: Path, tell: _Tell) -> tuple[TranslateConfig, PairData]:
    """All pairs of a run, and the settings with the languages filled in."""
    choice = config.bitext
    pairs = TrainingPairs(choice)
    held = dict(pairs.held)
    faults: list[Fault] = []
    for name in ("dev", "test"):
        if files := getattr(choice, name):
            given = _open_pairs(files, choice)
            held[name] = list(given)
            faults += given.faults
            if not held[name]:
                raise InputError(f"{given.name}: there is no pair with text on both sides.")
    seen = _scan_pairs(pairs, held)
    faults = [*pairs.faults, *faults]
    if not seen.count:
        why = "that has not a side of one that was held out" if pairs.known else "with text on both sides"
        raise InputError(f"{pairs.files.name}: there is no pair {why} to train on.")
    if not held["dev"] and pairs.shares[0]:
        raise InputError(
            f"{pairs.files.name} has {seen.count:,} pairs, of which none fell to dev (bitext.dev_share = "
            f"{choice.dev_share:g}). Give others to measure with (--dev), or raise the share."
        )
    choice = _with_languages(choice, seen.first)
    _tell_faults(faults, tell)
    if pairs.known:
        tell(
            f"note: pairs with the source or the translation of a held-out one: {len(pairs.known):,}; they are not "
            "trained on (faults.jsonl)"
        )
        faults += pairs.known
    for message in seen.trained_on:
        tell(message)
    source, target = _tokenizers(config, out, pairs, tell)
    found = read_cached_ids(out, make_ids_key(config.bitext, config.max_length, source, target))
    found = found or encode_pairs(pairs, Languages.of(source, target), config.max_length)
    faults += dropped_faults(pairs, found, config.max_length)
    if found.too_long:
        tell(
            f"note: {len(found.too_long):,} of {seen.count:,} pairs have more than {config.max_length - 1} tokens on a "
            "side and are left out (faults.jsonl). max_length can be raised."
        )
    if not len(found.pairs):
        raise InputError(f"{pairs.files.name}: every pair is longer than max_length = {config.max_length} tokens.")
    data = PairData(source, target, found, tuple(held["dev"]), tuple(held["test"]), tuple(faults))
    return replace(config, bitext=choice), data


def write_held_out(out: Path, config: TranslateConfig, data: PairData) -> None:
    """Write the held-out pairs to files that people and other programs can read."""
    for name, given, pairs in (("dev", config.bitext.dev, data.dev), ("test", config.bitext.test, data.test)):
        if pairs and not given:
            lines = (f"{_cell(pair.source)}\t{_cell(pair.target)}\n" for pair in pairs)
            (out / "held-out").mkdir(parents=True, exist_ok=True)
            write_text(out / "held-out" / f"{name}.tsv", "".join(lines))


def _cell(text: str) -> str:
    return re.sub(r"[\t\r\n]", " ", text)


def dropped_faults(pairs: Iterable[Pair], found: PairEncoding, max_length: int, said: str = "{}") -> list[Fault]:
    """The faults of the pairs that were not encoded; `said` is the wording around each message."""
    if not found.too_long and not found.nothing:
        return []
    long, empty = set(found.too_long), set(found.nothing)
    faults = []
    for number, pair in enumerate(pairs):
        if number in long:
            message = said.format(f"more than {max_length - 1} tokens on a side")
            faults.append(Fault(pair.place, "too long", message, "dropped"))
        elif number in empty:
            message = said.format("nothing is left of a side after tokenization")
            faults.append(Fault(pair.place, "empty text", message, "dropped"))
    return faults


def _tell_faults(faults: list[Fault], tell: _Tell) -> None:
    for fault in faults[:5]:
        tell(f"note: {fault.place}: {fault.message}; the pair is left out")
    if len(faults) > 5:
        tell(f"note: … and {len(faults) - 5:,} more pairs are left out (faults.jsonl)")


@dataclass(frozen=True)
class _Seen:
    count: int
    first: list[Pair]
    trained_on: list[str]  # how much of what a model is measured by it is trained on; for a person


def _scan_pairs(pairs: TrainingPairs, held: dict[str, list[Pair]]) -> _Seen:
    """Read the training pairs once: their number, the first of them, and notes about texts of dev and test among
    them."""
    sides = {
        (name, number): {fold_to_letters(pair[:2][number]) for pair in found}
        for name, found in held.items()
        for number in (0, 1)
    }
    wanted = [sides["dev", number] | sides["test", number] for number in (0, 1)]
    known: tuple[set[str], set[str]] = (set(), set())
    first: list[Pair] = []
    count = 0
    for pair in pairs:
        count += 1
        if len(first) < LOOKED_AT:
            first.append(pair)
        for number in (0, 1):
            if wanted[number] and (key := fold_to_letters(pair[:2][number])) in wanted[number]:
                known[number].add(key)
    told = [
        f"note: {'references' if number else 'texts'} of {name} that are trained on as well: "
        f"{len(texts & known[number]):,} of {len(texts):,}"
        for (name, number), texts in sides.items()
        if texts & known[number]
    ]
    return _Seen(count, first, told)


def _with_languages(choice: BitextChoice, pairs: list[Pair]) -> BitextChoice:
    """The settings with the codes of both languages: as given, or detected."""
    found = detect_languages(choice.train, pairs)
    source, target = choice.source_language or found[0], choice.target_language or found[1]
    check_letters(source, (pair.source for pair in pairs), "bitext.source_language (--languages)")
    check_letters(target, (pair.target for pair in pairs), "bitext.target_language (--languages)")
    return replace(choice, source_language=source, target_language=target)


def detect_languages(files: Sequence[str], pairs: Sequence[Pair]) -> tuple[str, str]:
    """The codes of both languages, from the names of two files (train.de.gz) or from the script of these pairs.

    Names count only where both are codes, and two: train.in beside train.out is no Indonesian.
    """
    named = [_ending(Path(one)) for one in files]
    if len(named) == 2 and all(named) and named[0] != named[1]:
        return named[0], named[1]
    return _by_letters([pair.source for pair in pairs]), _by_letters([pair.target for pair in pairs])


def _ending(path: Path) -> str:
    """
    >>> [_ending(Path(name)) for name in ("train.de.gz", "zh.txt", "corpus.txt", "train.cn")]
    ['de', 'zh', '', '']
    """
    parts = [part for part in path.name.lower().split(".") if part not in ("gz", "xz", "txt", "tok", "clean")]
    return parts[-1] if parts and len(parts[-1]) == 2 and is_language(parts[-1]) else ""


def _by_letters(texts: list[str]) -> str:
    chinese, latin, other = np.sum([Letters().count(" ".join(texts))], axis=0).tolist()
    return "zh" if chinese > latin + other else UNKNOWN_LANGUAGE


def _tokenizers(config: TranslateConfig, out: Path, pairs: TrainingPairs, tell: _Tell) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides: those of the run, those that were given, or new ones from its pairs."""
    choice, kept = config.tokenizer, out / "tokenizer"
    if choice.joint and choice.target is not None:
        raise InputError("tokenizer.joint is one for both sides, and tokenizer.target was given: set joint = false.")
    if not choice.joint and (choice.source is None) != (choice.target is None):
        raise InputError("Give tokenizers for both sides, or for none: tokenizer.source and tokenizer.target.")
    if choice.joint:
        if kept.is_dir() or choice.source is not None:
            joint = Tokenizer.load(kept if kept.is_dir() else str(choice.source))
        else:
            tell("learning a vocabulary from both sides")
            texts = (text for pair in pairs for text in (pair.source, pair.target))
            joint = train_subwords(texts, choice.size, min_frequency=choice.min_frequency)
        return joint, joint
    found = []
    for number, side in enumerate(("source", "target")):
        given = (choice.source, choice.target)[number]
        if kept.is_dir() or given is not None:
            found.append(Tokenizer.load(kept / side if kept.is_dir() else str(given)))
        else:
            tell(f"learning the vocabulary of the {side}")
            found.append(train_subwords(_side(pairs, number), choice.size, min_frequency=choice.min_frequency))
    return found[0], found[1]


def _side(pairs: TrainingPairs, number: int) -> Iterator[str]:
    return (pair.target if number else pair.source for pair in pairs)


def cache_pairs(out: Path, config: TranslateConfig, data: PairData, tell: _Tell) -> None:
    """Cache the ids of the training pairs if there are many, for resumed runs."""
    cache_ids(out, make_ids_key(config.bitext, config.max_length, data.source, data.target), data.encoding, tell)


def save_tokenizers(out: Path, data: PairData) -> None:
    """Save both tokenizers in the run for resuming, atomically."""
    if data.source is data.target:
        data.source.save(out / "tokenizer")
        return
    with replaced_folder(out / "tokenizer", lambda before: None) as fresh:
        data.source.save(fresh / "source")
        data.target.save(fresh / "target")


# Example pairs: rows of digits and the same digits reversed.

SHORTEST, LONGEST = 3, 10


class DigitPair(NamedTuple):
    source: str
    target: str


def digit_pairs(count: int, seed: int = 0, shortest: int = SHORTEST, longest: int = LONGEST) -> list[DigitPair]:
    """`count` distinct pairs of `shortest` to `longest` digits, with lengths as evenly distributed as possible.

    >>> digit_pairs(2, shortest=3, longest=4)
    [DigitPair(source='6 5 2 3', target='3 2 5 6'), DigitPair(source='0 0 1', target='1 0 0')]
    """
    if not 1 <= shortest <= longest:
        raise InputError(f"Rows of {shortest} to {longest} digits cannot be: give 1 ≤ shortest ≤ longest.")
    # at least: beyond 19 digits there are more rows than anyone can ask for
    there_are = sum(10**length for length in range(min(shortest, 19), min(longest, 19) + 1))
    if not 0 <= count <= there_are:
        raise InputError(
            f"{count} different rows of {shortest} to {longest} digits were asked for, and there are {there_are}. "
            "Ask for fewer, or for longer ones."
        )
    draw = np.random.default_rng(seed)
    left = {length: 10**length for length in range(shortest, longest + 1)}  # rows not yet drawn
    found: dict[str, None] = {}  # in the order in which they were drawn
    while len(found) < count:
        lengths = [length for length, rows in left.items() if rows]
        digits = draw.integers(0, 10, lengths[int(draw.integers(len(lengths)))])
        row = " ".join(map(str, digits.tolist()))
        if row not in found:
            found[row] = None
            left[len(digits)] -= 1
    return [DigitPair(row, row[::-1]) for row in found]


def write_digit_pairs(
    folder: str | os.PathLike[str],
    train: int = 20_000,
    dev: int = 500,
    test: int = 500,
    seed: int = 0,
    shortest: int = SHORTEST,
    longest: int = LONGEST,
) -> dict[str, Path]:
    """Write train.tsv, dev.tsv and test.tsv, one pair per line, without overlap."""
    sizes = {"train": train, "dev": dev, "test": test}
    pairs = iter(digit_pairs(sum(sizes.values()), seed, shortest, longest))
    files = {name: Path(folder) / f"{name}.tsv" for name in sizes}
    # those of dev and test are drawn first: more or other training pairs change no figure's sentences
    for name in ("test", "dev", "train"):
        lines = (f"{source}\t{target}\n" for source, target in islice(pairs, sizes[name]))
        files[name].parent.mkdir(parents=True, exist_ok=True)
        write_text(files[name], "".join(lines))
    return files
