"""The parts of a tokenizer of the Rust library: put together from a vocabulary, and recognised in a file.

What this file does NOT do: use them. `tokenizer.py` does.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from qkv.errors import InputError
from qkv.files import read_object, to_json
from qkv.text.vocabulary import Kind
from qkv.text.wordpiece import CONTINUES, LONGEST_WORD, SPECIAL, UNKNOWN

AnyKind = Kind | Literal["byte-pair"]
"""Kinds that can be learned, and one that is only read."""
BYTE_PAIR: Literal["byte-pair"] = "byte-pair"
_MARKS = ("<|endoftext|>", "</s>", "<eos>")
"""What a text ends with where there is no [SEP], by the name that its makers gave it."""
ENDS_WORD = "</w>"


def build_backend(
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


def byte_pairs(vocabulary: Path) -> tokenizers.Tokenizer:
    """From a vocab.json and the merges.txt beside it: GPT-2's, which cuts bytes and needs no word for the unknown, or
    GPT's, which cuts lower-case words and marks where one ends."""
    ids, merges = read_object(vocabulary), vocabulary.with_name("merges.txt")
    try:
        model = models.BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(
            f"{vocabulary} and {merges.name} beside it cannot be read: {error}. Copy both again."
        ) from error
    if any(token.endswith(ENDS_WORD) for token in ids):
        model.end_of_word_suffix = ENDS_WORD
        model.unk_token = "<unk>"
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.BPEDecoder(suffix=ENDS_WORD)
        return backend
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(mark, normalized=False) for mark in _MARKS if mark in ids])
    return backend


def special_ids(
    backend: tokenizers.Tokenizer, kind: AnyKind, source: str
) -> tuple[dict[str, int], bool, dict[str, Any] | None]:
    """The id of each special token, whether they may be put around a text, and, where they are others than ours, what
    the file itself does about them.

    A byte-pair tokenizer has one mark, which then stands for all; or none, and then it is the unknown word or the first
    that has their place, which nobody may put anywhere.
    """
    ids = {token: number for token in SPECIAL if (number := backend.token_to_id(token)) is not None}
    missing = [token for token in SPECIAL if token not in ids]
    if missing and kind == BYTE_PAIR:
        mark = next((mark for mark in _MARKS if backend.token_to_id(mark) is not None), None)
        number = backend.token_to_id(mark or getattr(backend.model, "unk_token", None) or "")
        return dict.fromkeys(SPECIAL, number or 0), mark is not None, state_of(backend.post_processor)
    if missing:
        raise InputError(
            f"{source} has no {' '.join(missing)}: a vocabulary needs all of {' '.join(SPECIAL)}. "
            "Is it the vocabulary of a BERT? Otherwise add the missing tokens, each on a line of its own."
        )
    return ids, True, None


def special_token_ids(backend: tokenizers.Tokenizer, ids: Mapping[str, int]) -> frozenset[int]:
    """Of these ids those of tokens that are no text: not that of a first token which only has their place."""
    known = {*SPECIAL, *_MARKS, getattr(backend.model, "unk_token", None)}
    return frozenset(number for number in ids.values() if backend.id_to_token(number) in known)


def special_token_template(backend: tokenizers.Tokenizer, begin: int, end: int, between: int | None = None) -> Any:
    """What puts the marks [CLS] and [SEP], or whatever has these ids, around a text or a pair; `between` the two of a
    pair stands another one, if there is one. And no token of bytes begins with the space before its word."""
    ids = {backend.id_to_token(number): number for number in (begin, end, end if between is None else between)}
    first, last, middle = (backend.id_to_token(number) for number in (begin, end, end if between is None else between))
    template = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {middle} $B:1 {last}:1",
        special_tokens=list(ids.items()),
    )
    if not isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        return template
    return processors.Sequence([processors.ByteLevel(trim_offsets=True), template])


def foreign_files(
    backend: tokenizers.Tokenizer, processor: dict[str, Any], has_marks: bool, number: int | None
) -> tuple[str, dict[str, str]]:
    """tokenizer.json as it came, and what transformers is to call the one mark, or the unknown word; None: neither."""
    state = json.loads(backend.to_str()) | {"post_processor": processor or None}
    if number is None:
        return to_json(state), {}
    names = ("bos_token", "eos_token", "unk_token") if has_marks else ("unk_token",)
    return to_json(state), dict.fromkeys(names, backend.id_to_token(number) or "")


def detect_kind(backend: tokenizers.Tokenizer, file: Path) -> AnyKind:
    if isinstance(backend.model, models.WordPiece):
        return "wordpiece"
    if isinstance(backend.model, models.WordLevel):
        return "word"
    if isinstance(backend.model, models.BPE):
        return BYTE_PAIR if state_of(backend.model)["merges"] else "character"
    name = type(backend.model).__name__
    raise InputError(
        f"{file} holds a {name} tokenizer, as XLM or T5 have; qkv reads WordPiece, byte-pair, word and character "
        "tokenizers. Is it the folder of a BERT or a GPT?"
    )


def state_of(part: Any) -> dict[str, Any]:
    """What a part of the backend would write into a tokenizer.json."""
    return json.loads(part.__getstate__()) if part is not None else {}


def find_normalizer(normalizer: Any, *types: str) -> dict[str, Any]:
    """The first normalizer of these types in a tokenizer.json, also inside a sequence; {} when there is none."""
    inside = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    for one in inside if isinstance(inside, list) else [normalizer]:
        if isinstance(one, dict) and one.get("type") in types:
            return one
    return {}
