"""Text to ids and back, on the Rust library `tokenizers`: train, load, encode, decode, save; and the files on disk.

Three kinds, which differ in what a token is:

    wordpiece   BERT's: words and subwords, every 汉字 by itself; an unknown character makes its word [UNK]
    word        whole words, punctuation marks, every 汉字; a word outside the vocabulary is [UNK]. With a segmenter
                (`segmenter.py`) Chinese words instead of 汉字
    character   every code point by itself, spaces and line ends included, without cleaning: unless lower-cased, a text
                decodes to exactly itself, so a character model can generate verse

Two more kinds can be loaded but not trained: byte-pair (GPT, RoBERTa) and unigram (XLM-R, ALBERT). A GPT
has one special token between texts or none; the others have BERT's five under names of their own, which are kept.

The first three recognise the special tokens [PAD] [UNK] [CLS] [SEP] [MASK] inside a text: this is how a blank is
written. Remove them from texts in which "[SEP]" means those five characters.

What this file does NOT do: explain the algorithms. `wordpiece.py` tokenizes in the same way in plain Python, and
`vocabulary.py` learns the tokens.
"""

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, pre_tokenizers

from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import check_replaceable, read_object, replaced_folder, to_json
from qkv.text.backend import (
    BYTE_PAIR,
    ROLES,
    UNIGRAM,
    AnyKind,
    build_backend,
    byte_pairs,
    detect_kind,
    find_normalizer,
    foreign_files,
    special_ids,
    special_token_ids,
    special_token_template,
    state_of,
)
from qkv.text.folding import add_folding, check_fold, fold_text, folds_before_bert
from qkv.text.segmenter import ChineseWords, is_known, segmenter_name, spans_before
from qkv.text.vocabulary import (
    HALF,
    SIZE,
    Kind,
    check_kind,
    choose_vocabulary,
    half_character,
    is_cased,
    learn_vocabulary,
    read_vocabulary,
)
from qkv.text.wordpiece import CHINESE, SPECIAL, WordPiece

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt"),
)
"""Files of a tokenizer folder. A folder with any other file is never replaced."""


def find_file(path: str | os.PathLike[str]) -> Path:
    """Return the tokenizer.json of a folder, else its vocab.txt, else its vocab.json with merges.txt.

    A path to a file is returned unchanged.
    """
    path = Path(os.path.expanduser(path))
    if path.is_file():
        return path
    if not path.is_dir():
        siblings = path.parent.iterdir() if path.parent.is_dir() else ()
        raise InputError(f"There is no tokenizer at {path}.{did_you_mean(path.name, (one.name for one in siblings))}")
    for name in ("tokenizer.json", "vocab.txt"):
        if (path / name).is_file():
            return path / name
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return path / "vocab.json"
    held = ", ".join(sorted(one.name for one in path.iterdir())) or "nothing"
    if pieces := [one.name for one in sorted(path.glob("*.model"))]:
        raise InputError(
            f"{path} has {pieces[0]}, and no tokenizer.json. Have transformers write one: "
            f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})."
        )
    raise InputError(
        f"{path} has neither tokenizer.json nor vocab.txt, only {held}. Copy one of the two there, or vocab.json and "
        "merges.txt for a GPT tokenizer."
    )


def added_tokens(folder: Path, config: Mapping[str, Any]) -> dict[int, str]:
    """Read the tokens that older folders store separately from vocab.txt, in the order of their ids."""
    found: dict[int, str] = {}
    source = folder / "tokenizer_config.json"
    try:
        for number, token in (config.get("added_tokens_decoder") or {}).items():
            found[int(number)] = str(token["content"])
        if (source := folder / "added_tokens.json").is_file():
            found |= {int(number): token for token, number in read_object(source).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: the added tokens are not a table of ids and tokens ({error!r}).") from error
    return dict(sorted(found.items()))


def check_tokenizer_folder(folder: Path, overwrite: bool = True) -> None:
    """Raise before the work starts if `replace_files` would refuse the folder, or if it may not be overwritten."""
    check_replaceable(folder, _reason_to_keep)
    there = Path(os.path.expanduser(folder))
    if not overwrite and there.is_dir() and any(there.iterdir()):
        raise InputError(
            f"{folder} already holds a tokenizer. Give another folder, or overwrite this one with --overwrite."
        )


def replace_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write a folder of exactly these files; on an error the old folder is unchanged."""
    with replaced_folder(folder, _reason_to_keep) as fresh:
        for name, text in files.items():
            (fresh / name).write_text(text, encoding="utf-8", newline="\n")


def _reason_to_keep(folder: Path) -> str | None:
    held = sorted(entry.name for entry in folder.iterdir())
    if "config.json" in held:
        return "it is a model folder, and a model works only with its own tokenizer"
    foreign = [name for name in held if name not in FILES]
    return f"it holds {foreign[0]}, which is not part of a tokenizer" if foreign else None


# Settings of a normalizer: their names in tokenizer_config.json and in tokenizer.json.
_SETTINGS = (
    ("do_lower_case", "lowercase"),
    ("strip_accents", "strip_accents"),
    ("tokenize_chinese_chars", "handle_chinese_chars"),
)
# Spaces that Chinese text does not have: between two 汉字, and on either side of a Chinese punctuation mark.
_mark = "[\u3001-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
_needless = re.compile(f"(?<=[{CHINESE}]) (?=[{CHINESE}])|(?<={_mark}) | (?={_mark})")
# For other tools that load the folder.
_note = "Tokens are Chinese words: segment Chinese text and put spaces between its words before tokenizing."
_letter = re.compile(r"[^\W_]")
LONG = 100_000
"""Characters of a text from which it is encoded in parts: the library needs a kilobyte a token while it works."""
_EDGE = rf"[{CHINESE}]|[^\S\x0b\x0c\x1c-\x1f\x85]"  # BERT removes these control characters, and joins what is around
_last_edge, _first_edge = re.compile(f"(?s:.*)(?:{_EDGE})"), re.compile(_EDGE)


@dataclass(frozen=True)
class Encoded:
    """One text or text pair as tokens: four lists of equal length.

    An offset is the span of characters a token came from: `text[start:end]`, of the second text in segment 1. It is
    (0, 0) for special tokens added around the text; [UNK], and a [MASK] written in the text, have their own span.
    When one character becomes several tokens (uncased 한 becomes its letters), each has the span of that character.
    """

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    tokens: list[str]


class Marks(NamedTuple):
    """What stands around the texts that a model reads."""

    start: int
    between: tuple[int, ...]  # the two texts of a pair; RoBERTa has its [SEP] twice
    end: int
    leftward: bool = False  # a token has seen those before it and no others

    @property
    def around_pair(self) -> int:
        """How many stand around and between two texts."""
        return 2 + len(self.between)


class Tokenizer:
    """Immutable, so safe to use from several threads. Never truncates and never pads."""

    added: tuple[int, ...] = ()
    """Tokens that a task brings and no training has met yet (models/gpt/tokenizer.py)."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        kind: AnyKind,
        source: str = "The vocabulary",
        segmenter: str | None = None,
        named: Mapping[str, str] | None = None,
    ) -> None:
        """`named`: what the files beside a vocabulary call the special tokens, by role, and their tokenizer_class."""
        special = special_ids(backend, kind, source, named)
        ids, self.has_marks, self._foreign = special.ids, special.has_marks, special.own
        self._names = special.names
        self._class = (named or {}).get("tokenizer_class") if special.names else None
        if self._foreign is None:
            # only missing tokens, so that the settings of a foreign file stay unchanged
            known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
            backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL if token not in known])
        backend.no_truncation()
        backend.no_padding()
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in SPECIAL)
        self.marks = Marks(self.cls_id, special.between or (self.sep_id,), self.sep_id)
        backend.post_processor = special_token_template(backend, *self.marks[:3])
        self.backend = backend
        self.kind: AnyKind = kind
        self.special_ids = special_token_ids(backend, special)
        # of some vocabularies the one special token has every role, and a byte-level one spells everything
        is_own = self.unk_id in self.special_ids and (self.unk_id != self.sep_id or not self.has_marks)
        self.unknown_id = self.unk_id if is_own else None
        # Every token with its id, in the order of the ids, added tokens included. Ids need not be without gaps.
        self.vocabulary = dict(sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]))
        self.size: int = max(self.vocabulary.values()) + 1
        # puts spaces between Chinese words before the backend reads a text
        self.chinese = None
        if segmenter is not None:
            kept = [token.content for token in backend.get_added_tokens_decoder().values()]
            self.chinese = ChineseWords(segmenter, self.vocabulary, backend.normalizer, kept)
        self._settings = find_normalizer(state_of(backend.normalizer), "BertNormalizer", "Lowercase")
        self.lowercase: bool = self._settings.get("lowercase", bool(self._settings))
        # our own steps never delete a letter or digit; a foreign one may
        self._keeps_letters = folds_before_bert(backend) is not None or (
            state_of(backend.normalizer).get("type") in (None, "BertNormalizer", "Lowercase")
            and isinstance(backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer | None)
        )

    @property
    def segmenter(self) -> str | None:
        """The segmenter of Chinese words and its version at training time; None where each 汉字 is a token."""
        return None if self.chinese is None else self.chinese.name

    # Constructors

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Load from a folder with `tokenizer.json` or only `vocab.txt`, or from one such file.

        As in transformers, `tokenizer_config.json` in the same folder decides about lower-casing, accents and 汉字.
        Without it a tokenizer.json keeps its own settings, and a bare vocabulary is cased if any token has a capital
        letter (except tokens such as [unused1] or <S>). Truncation and padding settings of a tokenizer.json are
        dropped. A segmenter need not be installed until a Chinese text is encoded.
        """
        with reading(path):
            return cls._read(find_file(path))

    @classmethod
    def _read(cls, file: Path) -> "Tokenizer":
        config_file = file.parent / "tokenizer_config.json"
        config = read_object(config_file) if config_file.is_file() else {}
        settings = {name: config[key] for key, name in _SETTINGS if config.get(key) is not None}
        if wrong := [name for name, value in settings.items() if not isinstance(value, bool)]:
            raise InputError(f"{config_file}: {wrong[0]} is {settings[wrong[0]]!r}; it must be true or false.")
        if file.name == "vocab.json":
            return cls(byte_pairs(file), BYTE_PAIR, str(file), named=_named(file.parent, config))
        if file.suffix != ".json":
            tokens = read_vocabulary(file)
            backend = build_backend(tokens, "wordpiece", **{"lowercase": not is_cased(tokens), **settings})
            for number, token in added_tokens(file.parent, config).items():
                if backend.token_to_id(token) is None:
                    backend.add_tokens([token])
                if backend.token_to_id(token) != number:
                    raise InputError(f"{file} has no room for the added token {token!r} at its id {number}.")
            return cls(backend, "wordpiece", str(file))
        state = read_object(file)
        normalizer = find_normalizer(state.get("normalizer"), "BertNormalizer")
        # transformers ignores the other settings for these two classes
        if config.get("tokenizer_class") not in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            normalizer.update({"strip_accents": None} if "strip_accents" in config else {}, **settings)
        try:
            backend = tokenizers.Tokenizer.from_str(json.dumps(state))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{file} is not a readable tokenizer: {error}. Is the file complete?") from error
        kind = detect_kind(backend)
        segmenter = config.get("segmenter") if kind == "word" else None
        if segmenter is not None and not is_known(segmenter):
            raise InputError(
                f"{config_file}: segmenter is {segmenter!r}; only rjieba is known. Did a newer qkv save it?"
            )
        return cls(backend, kind, str(file), segmenter, _named(file.parent, config))

    @classmethod
    def from_vocabulary(
        cls,
        tokens: Sequence[str],
        kind: Kind = "wordpiece",
        lowercase: bool | None = None,
        segmenter: str | None = None,
    ) -> "Tokenizer":
        """Build from tokens in the order of their ids. `lowercase` defaults to what `load` infers for a vocab.txt."""
        check_kind(kind, segmenter)
        if len(set(tokens)) < len(tokens):
            raise InputError(f"The vocabulary holds {Counter(tokens).most_common(1)[0][0]!r} more than once.")
        if kind != "character" and (broken := [token for token in tokens if "\n" in token or not token]):
            raise InputError(f"{broken[0]!r} cannot be a token: a vocabulary file has one token per line.")
        return cls._of(tokens, kind, not is_cased(tokens) if lowercase is None else lowercase, segmenter)

    @classmethod
    def _of(
        cls, tokens: Sequence[str], kind: Kind, lowercase: bool, segmenter: str | None, fold: Sequence[str] = ()
    ) -> "Tokenizer":
        named = segmenter_name(segmenter)
        backend = build_backend(tokens, kind, lowercase, handle_chinese_chars=named is None)
        add_folding(backend, fold)
        return cls(backend, kind, segmenter=named)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        kind: Kind = "wordpiece",
        vocabulary_size: int = SIZE,
        lowercase: bool = True,
        *,
        min_frequency: int = 2,
        limit_alphabet: int | None = None,
        segmenter: str | None = None,
        fold: Sequence[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> "Tokenizer":
        """Learn a vocabulary in one pass over the texts; the same texts give the same vocabulary, ids included.

        Memory grows with the number of distinct words, not of texts, and is bounded: above four million words the
        rarest are dropped. The special tokens have ids 0 to 4.

        The default size suits some tens of megabytes of text and a small model; BERT's own vocabularies, learned from
        gigabytes, have 21,128 tokens (Chinese) to 30,522 (English).

        `limit_alphabet` is the number of initial characters, the most frequent first. By default they cover 99.99 % of
        the text, but fill at most half of the vocabulary, so that rare 汉字 do not displace words ("character": as
        many as fit, always with space and line end). `min_frequency` is the minimum count of a word ("word") or of a
        merged pair ("wordpiece"). `segmenter` ("rjieba"; only for "word") finds Chinese words. `fold`: "width",
        "emoji", "simplified" (unknown.py). `progress` is called with the number of texts read so far.
        """
        check_kind(kind, segmenter)
        check_fold(fold, kind, segmenter)
        texts = (fold_text(text, fold) for text in texts) if fold else texts
        tokens = learn_vocabulary(
            texts, kind, vocabulary_size, lowercase, min_frequency, limit_alphabet, segmenter, progress
        )
        return cls._of(tokens, kind, lowercase, segmenter, fold)

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        kind: Kind = "wordpiece",
        vocabulary_size: int = SIZE,
        lowercase: bool = True,
        *,
        min_frequency: int = 2,
        limit_alphabet: int | None = None,
        segmenter: str | None = None,
        fold: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learn a vocabulary from the counts of words or characters, in folded text; see `train`."""
        tokens = choose_vocabulary(counts, kind, vocabulary_size, min_frequency, limit_alphabet)
        return cls._of(tokens, kind, lowercase, segmenter, fold)

    def with_tokens(self, new: Sequence[str]) -> "Tokenizer":
        """A copy with more words in its vocabulary; old ids are unchanged."""
        state = json.loads(self.backend.to_str())
        vocabulary = state["model"]["vocab"]
        if len(vocabulary) != self.size:
            beyond = [token for token in self.vocabulary if token not in vocabulary] or ["…"]
            raise InputError(
                f"The vocabulary cannot be extended: it has gaps, or added tokens after its end ({listed(beyond)})."
            )
        vocabulary |= {token: number for number, token in enumerate(new, self.size)}
        grown = copy(self)
        grown.backend = tokenizers.Tokenizer.from_str(json.dumps(state))
        grown.vocabulary, grown.size = self.vocabulary | vocabulary, len(vocabulary)
        return grown

    # Text to ids

    def encode(self, text: str, pair: str | None = None, special: bool = True) -> Encoded:
        """`[CLS] text [SEP]` in segment 0 and `pair [SEP]` in segment 1, or without the special tokens."""
        return self.encode_batch([text], None if pair is None else [pair], special)[0]

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, special: bool = True
    ) -> list[Encoded]:
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts and {len(pairs)} second texts: each text needs its pair.")
        if special:
            self._check_marks()
        written = [texts] if pairs is None else [texts, pairs]
        if any(self._is_long(text) for one in written for text in one):
            seconds: Sequence[str | None] = [None] * len(texts) if pairs is None else pairs
            return [_joined(list(self.stream(a, b, special))) for a, b in zip(texts, seconds, strict=True)]
        try:
            read = [self._spaced(one) for one in written]
            inputs: Any = read[0] if pairs is None else list(zip(*read, strict=True))
            found = self.backend.encode_batch(inputs, add_special_tokens=special)
        except TypeError as error:
            raise _explain([*texts, *(pairs or ())], error) from error
        spans: Iterable[list[tuple[int, int]]] = (one.offsets for one in found)
        if self.chinese is not None:
            spans = map(_as_written, found, zip(*written, strict=True), zip(*read, strict=True))
        elif self.kind == UNIGRAM:
            spans = map(_without_space, found, zip(*written, strict=True))
        return [Encoded(one.ids, one.type_ids, offsets, one.tokens) for one, offsets in zip(found, spans, strict=True)]

    @property
    def _is_divisible(self) -> bool:
        """Whether a text has the same tokens in parts: what comes before a space or a 汉字 does not matter after it."""
        return self.kind == "character" or (
            self.chinese is None
            and folds_before_bert(self.backend) is not None
            and self._settings["handle_chinese_chars"]
        )

    def _is_long(self, text: object) -> bool:
        return isinstance(text, str) and len(text) > LONG and self._is_divisible

    def stream(self, text: str, pair: str | None = None, special: bool = True) -> Iterator[Encoded]:
        """Encode in parts of bounded size, which put together are what `encode` returns."""
        texts = (text,) if pair is None else (text, pair)
        if not any(map(self._is_long, texts)):
            yield self.encode(text, pair, special)
            return
        for one in texts:  # before the first part is used
            if half := HALF.search(one):
                raise half_character(half[0])
        marks = [[self.marks.start], list(self.marks.between if pair is not None else ()), [self.marks.end]]
        for segment, one in enumerate(texts):
            if special:
                self._check_marks()
                yield self._mark(marks[segment], 0)
            start = 0
            for part in _divided(one):
                found = self.backend.encode(part, add_special_tokens=False)
                offsets = [(first + start, last + start) for first, last in found.offsets]
                yield Encoded(found.ids, [segment] * len(found.ids), offsets, found.tokens)
                start += len(part)
        if special:
            yield self._mark(marks[-1], len(texts) - 1)

    def _mark(self, ids: list[int], segment: int) -> Encoded:
        return Encoded(ids, [segment] * len(ids), [(0, 0)] * len(ids), [self.token(number) for number in ids])

    def _spaced(self, texts: Sequence[str]) -> list[str]:
        return list(texts) if self.chinese is None else self.chinese.spaced(texts)

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode to ids only, without special tokens: the fast way for large amounts of text."""
        if any(map(self._is_long, texts)):
            return [[number for part in self.stream(text, special=False) for number in part.ids] for text in texts]
        try:
            return [one.ids for one in self.backend.encode_batch_fast(self._spaced(texts), add_special_tokens=False)]
        except TypeError as error:
            raise _explain(texts, error) from error

    def is_empty(self, text: str) -> bool:
        """Whether a text has no tokens: only spaces, combining marks without a letter, invisible characters."""
        # finding one letter is enough for most texts
        if self._keeps_letters and _letter.search(text):
            return False
        return not self.encode_ids([text])[0]

    def with_special(self, a: Sequence[int], b: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Return ids and segments of `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, or with other special tokens."""
        self._check_marks()
        start, between, end, _ = self.marks
        if b is None:
            return [start, *a, end], [0] * (len(a) + 2)
        first, second = [start, *a, *between], [*b, end]
        return first + second, [0] * len(first) + [1] * len(second)

    def _check_marks(self) -> None:
        if not self.has_marks:
            raise InputError("This vocabulary has no special token for the start and end of a text, such as [SEP].")

    # Ids to text

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return readable text. Unlike transformers, this removes the spaces between 汉字."""
        for number in ids:
            self.token(number)
        text: str = self.backend.decode([int(number) for number in ids], skip_special_tokens=skip_special)
        return self._tidied(text)

    def _tidied(self, text: str) -> str:
        return text if self.kind in ("character", BYTE_PAIR, UNIGRAM) else _needless.sub("", text)

    def token(self, id: int) -> str:
        token = self.backend.id_to_token(int(id)) if id >= 0 else None
        if token is None:
            raise InputError(f"There is no token with id {id}; the vocabulary has {self.size}.")
        return token

    def id(self, token: str) -> int | None:
        return self.backend.token_to_id(token)

    def plain(self) -> WordPiece:
        """Return the plain Python tokenizer with the same vocabulary and settings, which can show its steps."""
        folds = folds_before_bert(self.backend)
        if self.kind != "wordpiece" or folds is None:
            raise InputError("Steps can only be shown for a WordPiece tokenizer such as BERT's; this is another kind.")
        return WordPiece(
            self.vocabulary,
            self.lowercase,
            strip_accents=self._settings["strip_accents"],
            chinese=self._settings["handle_chinese_chars"],
            rewrite=partial(fold_text, fold=folds) if folds else None,
        )

    # To files

    def save(self, folder: str | os.PathLike[str], max_length: int | None = None) -> None:
        """Write a folder (see `files`) that transformers' AutoTokenizer can load; atomic.

        An existing folder is replaced if it is empty or holds only a tokenizer. The tokenizer of a model is saved with
        the model (`Model.save`).
        """
        replace_files(Path(folder), self.files(max_length))

    def files(self, max_length: int | None = None) -> dict[str, str]:
        """Return the contents of a tokenizer folder by file name. `max_length` is the model's, for tools that truncate.

        A character tokenizer has no `vocab.txt`, since one of its tokens is a line end.
        """
        names = self._names or dict(zip(ROLES, SPECIAL, strict=True))
        whole = self.backend.to_str(pretty=True) + "\n"
        if self._names:
            whole = to_json(json.loads(whole) | {"post_processor": self._foreign or None})
        elif self._foreign is not None:
            mark = self.unk_id if self.special_ids else None
            whole, names = foreign_files(self.backend, self._foreign, self.has_marks, mark)
        config: dict[str, Any] = {"tokenizer_class": self._class or "PreTrainedTokenizerFast", **names}
        if self.kind == "wordpiece" and folds_before_bert(self.backend) == ():  # a vocabulary and three settings
            config |= {"tokenizer_class": "BertTokenizer"} | {key: self._settings[name] for key, name in _SETTINGS}
        elif self.kind == "wordpiece" and self._settings.get("type") == "BertNormalizer":  # segments, as that has
            config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        if self.segmenter is not None:
            config |= {"segmenter": self.segmenter, "segmenter_note": _note}
        if max_length is not None:
            config["model_max_length"] = max_length
        files = {
            "tokenizer.json": whole,
            "tokenizer_config.json": to_json(config),
            "special_tokens_map.json": to_json(names),
        }
        if self.kind not in ("character", BYTE_PAIR, UNIGRAM):
            own = self.backend.get_vocab(with_added_tokens=False)
            files["vocab.txt"] = "".join(f"{token}\n" for token in sorted(own, key=own.__getitem__))
        return files


def vocabulary_line(found: Mapping[str, Any]) -> str:
    """The vocabulary in a line of `qkv info`."""
    chinese = f", Chinese by {found['segmenter']}" if found["segmenter"] else ""
    case = "lower case" if found["lowercase"] else "case kept"
    return f"{found['size']:,} tokens by {found['kind']}{chinese}, {case}"


def _divided(text: str) -> Iterator[str]:
    """Parts of at most `LONG` characters that end after a space or a 汉字; a longer word stays whole.

    >>> "".join(_divided("ab " * 100_000)) == "ab " * 100_000
    True
    """
    start = 0
    while len(text) - start > LONG:
        found = _last_edge.match(text, start, start + LONG) or _first_edge.search(text, start + LONG)
        end = found.end() if found else len(text)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _joined(parts: Sequence[Encoded]) -> Encoded:
    return Encoded(
        [number for one in parts for number in one.ids],
        [segment for one in parts for segment in one.segments],
        [span for one in parts for span in one.offsets],
        [token for one in parts for token in one.tokens],
    )


def _as_written(one: tokenizers.Encoding, texts: Sequence[str], read: Sequence[str]) -> list[tuple[int, int]]:
    """Map offsets in the texts with inserted spaces back to offsets in the original texts."""
    offsets, first, spans = one.offsets, 0, list[tuple[int, int]]()
    for segment, (text, spaced) in enumerate(zip(texts, read, strict=True)):
        last = first + one.type_ids.count(segment)
        spans += offsets[first:last] if text == spaced else spans_before(text, spaced, offsets[first:last])
        first = last
    return spans


def _without_space(one: tokenizers.Encoding, texts: Sequence[str]) -> list[tuple[int, int]]:
    """Offsets without the space before a word, which is part of its first token."""
    return [
        (start + (end > start and texts[side][start].isspace()), end)
        for (start, end), side in zip(one.offsets, one.type_ids, strict=True)
    ]


def _named(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """What the files beside a vocabulary call the special tokens, by role, and the class that they name."""
    file = folder / "special_tokens_map.json"
    said = {**(read_object(file) if file.is_file() else {}), **config}
    found: dict[str, str] = {}
    for name in (*ROLES, "tokenizer_class"):
        value = said.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found


def _explain(texts: Iterable[str], error: TypeError) -> Exception:
    """Return a clearer error for the library's "str is not a str"."""
    for text in texts:
        if not isinstance(text, str):
            return TypeError(f"A text must be a str, not {type(text).__name__}")
        if half := HALF.search(text):
            return half_character(half[0])
    return error


# Up to 0.22.1 the library warns when a process forks after using several threads, and continues with one thread. One
# is right for the child, which has no other threads; setting it in advance avoids the warning.
_SETTING = "TOKENIZERS_PARALLELISM"
_fork = threading.local()


def _before_fork() -> None:
    _fork.was_unset = _SETTING not in os.environ
    os.environ.setdefault(_SETTING, "false")


def _after_fork() -> None:
    if _fork.was_unset:
        os.environ.pop(_SETTING, None)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
