"""Backends of the Rust library `tokenizers`: built from a vocabulary, or inspected after loading from a file.

`tokenizer.py` uses them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from qkv.errors import InputError
from qkv.files import read_object, to_json
from qkv.text.vocabulary import Kind
from qkv.text.wordpiece import CONTINUES, LONGEST_WORD, SPECIAL, UNKNOWN

AnyKind = Kind | Literal["byte-pair", "unigram"]
"""Kinds that can be trained, and two that can only be loaded."""
BYTE_PAIR: Literal["byte-pair"] = "byte-pair"
UNIGRAM: Literal["unigram"] = "unigram"
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""What transformers calls the places of the special tokens, in the order of SPECIAL."""
_OTHERS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""The names that RoBERTa's makers gave to them."""
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
    """Load a vocab.json with the merges.txt next to it: GPT-2's or RoBERTa's (bytes, no unknown token) or GPT's
    (lower-case words with a mark at the end of each)."""
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
    if all(mark in ids for mark in _OTHERS):
        *marks, mask = _OTHERS
        backend.add_special_tokens([AddedToken(mark, normalized=False) for mark in marks])
        backend.add_special_tokens([AddedToken(mask, lstrip=True, normalized=False)])
        backend.post_processor = processors.RobertaProcessing(
            *(("</s>", ids["</s>"]), ("<s>", ids["<s>"])), trim_offsets=True, add_prefix_space=False
        )
        return backend
    backend.add_special_tokens([AddedToken(mark, normalized=False) for mark in _MARKS if mark in ids])
    return backend


class Special(NamedTuple):
    """The special tokens of a vocabulary, and what a file itself does about them where they are others than ours."""

    ids: dict[str, int]  # by our names of them
    has_marks: bool  # they may be put around a text
    own: dict[str, Any] | None  # the file's post-processor; None: ours
    between: tuple[int, ...] | None = None  # the two texts of a pair; None: a [SEP]
    names: Mapping[str, str] | None = None  # by role, where they are not ours and all there


def special_ids(
    backend: tokenizers.Tokenizer, kind: AnyKind, source: str, named: Mapping[str, str] | None = None
) -> Special:
    """`named`: what the files beside a vocabulary call them, by role.

    A byte-pair tokenizer may have one mark, which then stands for all; or none, and then it is the unknown word or the
    first that has their place, which nobody may put anywhere.
    """
    ids = {token: number for token in SPECIAL if (number := backend.token_to_id(token)) is not None}
    missing = [token for token in SPECIAL if token not in ids]
    if not missing:
        return Special(ids, True, None)
    names = dict(named or {})
    for role, ours, other in zip(ROLES, SPECIAL, _OTHERS, strict=True):
        there = [name for name in (names.get(role), ours, other) if name and backend.token_to_id(name) is not None]
        names |= {role: there[0]} if there else {}
    roles = {ours: backend.token_to_id(names.get(role, "")) for role, ours in zip(ROLES, SPECIAL, strict=True)}
    ids = {ours: number for ours, number in roles.items() if number is not None}
    if len(ids) == len(ROLES):
        return Special(ids, True, state_of(backend.post_processor), _between(backend), names)
    if kind == BYTE_PAIR:
        mark = next((mark for mark in _MARKS if backend.token_to_id(mark) is not None), None)
        number = backend.token_to_id(mark or getattr(backend.model, "unk_token", None) or "")
        return Special(dict.fromkeys(SPECIAL, number or 0), mark is not None, state_of(backend.post_processor))
    raise InputError(
        f"{source} has no {' '.join(missing)}: a vocabulary needs all of {' '.join(SPECIAL)}. "
        "Is it the vocabulary of a BERT? Otherwise add the missing tokens, each on a line of its own."
    )


def _between(backend: tokenizers.Tokenizer) -> tuple[int, ...] | None:
    """What the file's own post-processor puts between the texts of a pair; None where it puts nothing."""
    pair = backend.encode("a", "b")
    sides = pair.sequence_ids
    if backend.post_processor is None or 0 not in sides or 1 not in sides:
        return None
    last, first = max(place for place, side in enumerate(sides) if side == 0), sides.index(1)
    return tuple(pair.ids[last + 1 : first]) or None


def special_token_ids(backend: tokenizers.Tokenizer, special: Special) -> frozenset[int]:
    """Of the special ids those of tokens that are no text: not that of a first token which only has their place."""
    known = {*SPECIAL, *_MARKS, *(special.names or {}).values(), getattr(backend.model, "unk_token", None)}
    return frozenset(number for number in special.ids.values() if backend.id_to_token(number) in known)


def special_token_template(backend: tokenizers.Tokenizer, begin: int, between: Sequence[int], end: int) -> Any:
    """What puts marks such as [CLS] and [SEP] around a text, and `between` the two of a pair. And no token of bytes
    begins with the space before its word."""
    ids = {backend.id_to_token(number): number for number in (begin, *between, end)}
    first, last = backend.id_to_token(begin), backend.id_to_token(end)
    template = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {' '.join(backend.id_to_token(number) or '' for number in between)} $B:1 {last}:1",
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


def detect_kind(backend: tokenizers.Tokenizer) -> AnyKind:
    if isinstance(backend.model, models.WordPiece):
        return "wordpiece"
    if isinstance(backend.model, models.WordLevel):
        return "word"
    if isinstance(backend.model, models.BPE):
        return BYTE_PAIR if state_of(backend.model)["merges"] else "character"
    assert isinstance(backend.model, models.Unigram), "the library has four"
    return UNIGRAM


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
