"""Backends of the Rust library `tokenizers`: built from a vocabulary, or inspected after loading from a file.

`tokenizer.py` uses them.
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
"""Kinds that can be trained, and one that can only be loaded."""
BYTE_PAIR: Literal["byte-pair"] = "byte-pair"
_MARKS = ("<|endoftext|>", "</s>", "<eos>")
"""Known end-of-text tokens of vocabularies without [SEP]."""
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
        # byte-pair encoding without merges splits a text into characters, faster than a pattern
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
    """Load a vocab.json with the merges.txt next to it: GPT-2's (bytes, no unknown token) or GPT's (lower-case words
    with a mark at the end of each)."""
    ids, merges = read_object(vocabulary), vocabulary.with_name("merges.txt")
    try:
        model = models.BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(
            f"{vocabulary} and {merges.name} next to it cannot be read: {error}. Copy both again."
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
    """Return the id of each special token, whether they may be put around a text, and, if they are not ours, the
    post-processor of the file.

    A byte-pair tokenizer has one end-of-text token, which is used for all of them. If it has none, all ids are that of
    the unknown token or 0, and they may not be put around a text.
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
            "Is it the vocabulary of a BERT? Otherwise add the missing tokens, one per line."
        )
    return ids, True, None


def special_token_ids(backend: tokenizers.Tokenizer, ids: Mapping[str, int]) -> frozenset[int]:
    """Return those of the ids that really are special tokens, not placeholders (see `special_ids`)."""
    known = {*SPECIAL, *_MARKS, getattr(backend.model, "unk_token", None)}
    return frozenset(number for number in ids.values() if backend.id_to_token(number) in known)


def special_token_template(backend: tokenizers.Tokenizer, begin: int, end: int, between: int | None = None) -> Any:
    """Return a post-processor that puts the tokens `begin` and `end` around a text or a text pair, and `between` (by
    default `end`) between the two texts. Offsets of byte-level tokens exclude the space before a word."""
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
    """Return the original tokenizer.json and the names of special tokens for transformers.

    `number` is the id of the end-of-text token or the unknown token; None if there is neither.
    """
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
        f"{file} holds a {name} tokenizer, as in XLM or T5; qkv reads WordPiece, byte-pair, word and character "
        "tokenizers. Is it the folder of a BERT or a GPT?"
    )


def state_of(part: Any) -> dict[str, Any]:
    """Return the entry of a backend part in tokenizer.json."""
    return json.loads(part.__getstate__()) if part is not None else {}


def find_normalizer(normalizer: Any, *types: str) -> dict[str, Any]:
    """Return the first normalizer of these types in a tokenizer.json, also inside a sequence, or {}."""
    inside = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    for one in inside if isinstance(inside, list) else [normalizer]:
        if isinstance(one, dict) and one.get("type") in types:
            return one
    return {}
