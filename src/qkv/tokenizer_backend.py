"""The parts of a tokenizer of the Rust library: put together from a vocabulary, and recognised in a file.

What this file does NOT do: use them. `tokenizer.py` does.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from qkv.errors import InputError
from qkv.vocabulary import Kind
from qkv.wordpiece import CONTINUES, LONGEST_WORD, UNKNOWN


def build(
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


def kind_of(backend: tokenizers.Tokenizer, file: Path) -> Kind:
    if isinstance(backend.model, models.WordPiece):
        return "wordpiece"
    if isinstance(backend.model, models.WordLevel):
        return "word"
    if isinstance(backend.model, models.BPE) and not state_of(backend.model)["merges"]:
        return "character"
    name = type(backend.model).__name__
    raise InputError(
        f"{file} holds a {name} tokenizer, as GPT-2, RoBERTa or XLM have; qkv reads WordPiece, word and character "
        "tokenizers. Is it the folder of a BERT?"
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
