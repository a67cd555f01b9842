"""Text to ids and back, on the Rust library `tokenizers`: train, load, encode, decode, save.

Three kinds, which differ in what a token is:

    wordpiece   BERT's: words and pieces of words, every 汉字 by itself; an unknown character makes its word [UNK]
    word        whole words, punctuation marks, every 汉字; a word outside the vocabulary is [UNK]
    character   every code point by itself, spaces and line ends included, nothing cleaned away: without lower-casing,
                decoding gives back exactly the text, so a character model can write verse

In all three the special tokens [PAD] [UNK] [CLS] [SEP] [MASK] are recognised inside a text, as they are written here:
that is how a blank is given. Whoever feeds text in which "[SEP]" means those five characters takes it out first.

What this file does NOT do: show how it is done. `wordpiece.py` cuts a text as this one does, in plain Python, and
`vocabulary.py` learns the tokens.
"""

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from qkv.atomic import write_text
from qkv.errors import InputError, did_you_mean
from qkv.json_file import read_object
from qkv.vocabulary import Kind, check_kind, half_character, is_cased, learn_vocabulary, read_vocabulary
from qkv.wordpiece import CHINESE, CONTINUES, LONGEST_WORD, SPECIAL, UNKNOWN, WordPiece

# What a tokenizer_config.json calls the settings of a normalizer, and what a tokenizer.json calls them.
SETTINGS = (
    ("do_lower_case", "lowercase"),
    ("strip_accents", "strip_accents"),
    ("tokenize_chinese_chars", "handle_chinese_chars"),
)
# Spaces nobody writes: between two Chinese characters, and on either side of a Chinese punctuation mark.
_mark = "[\u3001-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
_needless = re.compile(f"(?<=[{CHINESE}]) (?=[{CHINESE}])|(?<={_mark}) | (?={_mark})")


@dataclass(frozen=True)
class Encoded:
    """One text or pair as tokens, four lists of one length.

    An offset is the span of characters a token came from: `text[start:end]`, or of the pair in segment 1. It is (0, 0)
    for special tokens added around the text; [UNK], and a [MASK] written in the text, have the span they stand for.
    When one character falls into several tokens (uncased 한 becomes its letters), each has the span of that character.
    """

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    tokens: list[str]


class Tokenizer:
    """Safe to use from several threads; nothing changes after construction. Never cuts a text and never pads one."""

    def __init__(self, backend: tokenizers.Tokenizer, kind: Kind, source: str = "the vocabulary") -> None:
        ids = {token: number for token in SPECIAL if (number := backend.token_to_id(token)) is not None}
        if missing := [token for token in SPECIAL if token not in ids]:
            raise InputError(
                f"{source} has no {' '.join(missing)}: a vocabulary needs all of {' '.join(SPECIAL)}. "
                "Is it the vocabulary of a BERT? Otherwise add the missing tokens, each on a line of its own."
            )
        # Only what is not there yet, so that the settings of a foreign file stay as they are.
        known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL if token not in known])
        backend.no_truncation()
        backend.no_padding()
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in SPECIAL)
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", self.cls_id), ("[SEP]", self.sep_id)],
        )
        self.backend = backend
        self.kind: Kind = kind
        self.special_ids = frozenset(ids.values())
        # Every token with its id, in the order of the ids, added tokens included. Ids need not be without gaps.
        self.vocabulary = dict(sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]))
        self.size: int = max(self.vocabulary.values()) + 1
        self._settings = _find(_state(backend.normalizer), "BertNormalizer", "Lowercase")
        self.lowercase: bool = self._settings.get("lowercase", bool(self._settings))

    # Ways to get one

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """From a folder with `tokenizer.json` or only `vocab.txt`, or from one such file.

        What `tokenizer_config.json` beside it says of lower-casing, accents and 汉字 counts, as in transformers. Where
        it says nothing, a tokenizer.json speaks for itself, and a bare vocabulary is taken as cased if any of its
        pieces has a capital letter ([unused1], <S> and the like aside). Truncation and padding kept in a
        tokenizer.json are dropped.
        """
        file = _find_file(Path(path))
        config_file = file.parent / "tokenizer_config.json"
        config = read_object(config_file) if config_file.is_file() else {}
        settings = {name: config[key] for key, name in SETTINGS if config.get(key) is not None}
        if wrong := [name for name, value in settings.items() if not isinstance(value, bool)]:
            raise InputError(f"{config_file}: {wrong[0]} is {settings[wrong[0]]!r}; it must be true or false.")
        if file.suffix != ".json":
            tokens = read_vocabulary(file)
            backend = _build(tokens, "wordpiece", **{"lowercase": not is_cased(tokens), **settings})
            for number, token in _added(file.parent, config).items():
                if backend.token_to_id(token) is None:
                    backend.add_tokens([token])
                if backend.token_to_id(token) != number:
                    raise InputError(f"the added token {token!r} should have id {number}, which does not fit {file}.")
            return cls(backend, "wordpiece", str(file))
        state = read_object(file)
        normalizer = _find(state.get("normalizer"), "BertNormalizer")
        # These two classes take a tokenizer.json as it is, whatever else the settings hold.
        if config.get("tokenizer_class") not in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            normalizer.update({"strip_accents": None} if "strip_accents" in config else {}, **settings)
        try:
            backend = tokenizers.Tokenizer.from_str(json.dumps(state))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{file} is not a tokenizer that can be read: {error}. Was it cut short?") from error
        return cls(backend, _kind_of(backend, file), str(file))

    @classmethod
    def from_vocabulary(
        cls, tokens: Sequence[str], kind: Kind = "wordpiece", lowercase: bool | None = None
    ) -> "Tokenizer":
        """Ids in the order given. `lowercase` left out is decided from the tokens, as `load` does for a vocab.txt."""
        check_kind(kind)
        if len(set(tokens)) < len(tokens):
            raise InputError(f"the vocabulary holds {Counter(tokens).most_common(1)[0][0]!r} more than once.")
        if kind != "character" and (broken := [token for token in tokens if "\n" in token or not token]):
            raise InputError(f"{broken[0]!r} cannot be a token: a vocabulary file has one token a line.")
        return cls(_build(tokens, kind, not is_cased(tokens) if lowercase is None else lowercase), kind)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        kind: Kind = "wordpiece",
        vocabulary_size: int = 30_000,
        lowercase: bool = True,
        *,
        min_frequency: int = 2,
        limit_alphabet: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> "Tokenizer":
        """Learn a vocabulary from texts, read once; the same texts give the same vocabulary, ids included.

        Memory follows the number of distinct words, not of texts, and is bounded: when more than four million words are
        held, the rarest are forgotten. The special tokens have ids 0 to 4.

        `limit_alphabet` is how many characters the vocabulary starts from, the most frequent first. Left out, it is as
        many as cover 99.99 % of the text, but half of the vocabulary at most, so that rare 汉字 do not crowd out words
        ("character": as many as there is room for, space and line end always among them). `min_frequency` is how often
        a word ("word") or a pair to be joined ("wordpiece") must occur. `progress` is told how many texts were read.
        """
        tokens = learn_vocabulary(
            texts, kind, vocabulary_size, lowercase, min_frequency, limit_alphabet, progress=progress
        )
        return cls(_build(tokens, kind, lowercase), kind)

    # Text to ids

    def encode(self, text: str, pair: str | None = None, special: bool = True) -> Encoded:
        """`[CLS] text [SEP]` in segment 0 and `pair [SEP]` in segment 1, or without the special tokens."""
        return self.encode_batch([text], None if pair is None else [pair], special)[0]

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, special: bool = True
    ) -> list[Encoded]:
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts and {len(pairs)} pairs: each text needs its pair.")
        inputs: Any = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        try:
            found = self.backend.encode_batch(inputs, add_special_tokens=special)
        except TypeError as error:
            raise _explain([*texts, *(pairs or ())], error) from error
        return [Encoded(one.ids, one.type_ids, one.offsets, one.tokens) for one in found]

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The quick way for large amounts of text: ids alone, without special tokens."""
        try:
            return [one.ids for one in self.backend.encode_batch_fast(list(texts), add_special_tokens=False)]
        except TypeError as error:
            raise _explain(texts, error) from error

    def with_special(self, a: Sequence[int], b: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Ids and segments of `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`."""
        ids = [self.cls_id, *a, self.sep_id]
        segments = [0] * len(ids)
        if b is not None:
            ids += [*b, self.sep_id]
            segments += [1] * (len(b) + 1)
        return ids, segments

    # Ids to text

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Readable text. Unlike in transformers, the spaces that would stand between 汉字 are taken out again."""
        for number in ids:
            self.token(number)
        text: str = self.backend.decode([int(number) for number in ids], skip_special_tokens=skip_special)
        return text if self.kind == "character" else _needless.sub("", text)

    def token(self, id: int) -> str:
        token = self.backend.id_to_token(int(id)) if id >= 0 else None
        if token is None:
            raise InputError(f"there is no token with id {id}; the vocabulary has {self.size}.")
        return token

    def id(self, token: str) -> int | None:
        return self.backend.token_to_id(token)

    def plain(self) -> WordPiece:
        """The readable twin with the same vocabulary and settings, to show the steps of tokenization."""
        if not self._is_berts:
            raise InputError("the steps can be shown for a tokenizer that works as BERT's does; this one does not.")
        return WordPiece(
            self.vocabulary,
            self.lowercase,
            strip_accents=self._settings["strip_accents"],
            chinese=self._settings["handle_chinese_chars"],
        )

    @property
    def _is_berts(self) -> bool:
        """Whether a vocabulary and three settings say all there is to say."""
        return (
            self.kind == "wordpiece"
            and self._settings.get("type") == "BertNormalizer"
            and isinstance(self.backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        )

    # To files

    def save(self, folder: str | os.PathLike[str], max_length: int | None = None) -> None:
        """Write what transformers' AutoTokenizer reads. `max_length` is the model's, for tools that cut by it.

        `vocab.txt` is left out for characters: a line end is one of them, and cannot stand on a line.
        """
        names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
        if self._is_berts:
            config |= {"tokenizer_class": "BertTokenizer"} | {key: self._settings[name] for key, name in SETTINGS}
        if max_length is not None:
            config["model_max_length"] = max_length
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.kind != "character":
                own = self.backend.get_vocab(with_added_tokens=False)
                write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in sorted(own, key=own.__getitem__)))
            write_text(folder / "special_tokens_map.json", json.dumps(names, indent=2) + "\n")
            write_text(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
            write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True) + "\n")
        except OSError as error:
            raise InputError(f"cannot write a tokenizer to {folder}: {error.strerror}.") from error


def _build(
    tokens: Sequence[str],
    kind: Kind,
    lowercase: bool,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool = True,
) -> tokenizers.Tokenizer:
    ids = {token: number for number, token in enumerate(tokens)}
    if kind == "character":
        # Byte-pair encoding with no pairs to join cuts a text into its characters, and quicker than a pattern would.
        backend = tokenizers.Tokenizer(models.BPE(ids, [], unk_token=UNKNOWN))
        if lowercase:
            backend.normalizer = normalizers.Lowercase()
        backend.decoder = decoders.Fuse()
        return backend
    if kind == "word":
        backend = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    else:
        model = models.WordPiece(
            ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD, continuing_subword_prefix=CONTINUES
        )
        backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=handle_chinese_chars
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=CONTINUES)
    return backend


def _kind_of(backend: tokenizers.Tokenizer, file: Path) -> Kind:
    if isinstance(backend.model, models.WordPiece):
        return "wordpiece"
    if isinstance(backend.model, models.WordLevel):
        return "word"
    if isinstance(backend.model, models.BPE) and not _state(backend.model)["merges"]:
        return "character"
    name = type(backend.model).__name__
    raise InputError(
        f"{file} holds a {name} tokenizer, as GPT-2, RoBERTa or XLM have; qkv reads WordPiece, word and character "
        "tokenizers. Is it the folder of a BERT?"
    )


def _state(part: Any) -> dict[str, Any]:
    """What a part of the backend would write into a tokenizer.json."""
    return json.loads(part.__getstate__()) if part is not None else {}


def _find(normalizer: Any, *types: str) -> dict[str, Any]:
    """The first normalizer of these types in a tokenizer.json, also inside a sequence; {} when there is none."""
    for one in (normalizer or {}).get("normalizers", [normalizer or {}]):
        if one.get("type") in types:
            return one
    return {}


def _find_file(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        siblings = path.parent.iterdir() if path.parent.is_dir() else ()
        raise InputError(f"there is no tokenizer at {path}.{did_you_mean(path.name, (one.name for one in siblings))}")
    for name in ("tokenizer.json", "vocab.txt"):
        if (path / name).is_file():
            return path / name
    held = ", ".join(sorted(one.name for one in path.iterdir())) or "nothing"
    raise InputError(f"{path} has neither tokenizer.json nor vocab.txt, only {held}. Copy one of the two there.")


def _added(folder: Path, config: dict[str, Any]) -> dict[int, str]:
    """Tokens that older folders keep beside their vocab.txt, in the order of their ids."""
    found = {int(number): token["content"] for number, token in config.get("added_tokens_decoder", {}).items()}
    if (folder / "added_tokens.json").is_file():
        found |= {number: token for token, number in read_object(folder / "added_tokens.json").items()}
    return dict(sorted(found.items()))


def _explain(texts: Iterable[str], error: TypeError) -> Exception:
    """What the library means when it says that a str is not a str."""
    for text in texts:
        if not isinstance(text, str):
            return TypeError(f"a text must be a str, not {type(text).__name__}")
        if half := re.search("[\ud800-\udfff]", text):
            return half_character(half[0])
    return error


# Up to 0.22.1 the library warns when a process forks after it has used several threads, and works on with one. One is
# right in the child, where the other threads do not exist; so that is said beforehand, and nothing is left to warn of.
_SETTING = "TOKENIZERS_PARALLELISM"
_said = threading.local()


def _before_fork() -> None:
    _said.here = _SETTING not in os.environ
    os.environ.setdefault(_SETTING, "false")


def _after_fork() -> None:
    if _said.here:
        os.environ.pop(_SETTING, None)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
