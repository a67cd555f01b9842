"""New tokens for a trained model (`qkv convert MODEL NEW --add-tokens FILE`): a list, its checks, and the new rows.

FILE has a token a line and, after a tab, a text that means the same:

    話	话
    嗯	是啊
    😡	angry 生气
    blockchain

The row of a new token in the token table is the mean of the rows of the tokens of its text; without a text, of those
into which the token is split so far; and where these are unknown, the row of [UNK]. The masked head gets the mean of
their biases less ln V: a token that was never seen in training is V times less likely than those it is made of.
Otherwise 話, a copy of 话, would be as likely as 话, and a blank had two equal answers where it had one.

Old ids stay, new ones follow them, so that a text without the new tokens has the ids and the vectors that it had. A
word that begins with a new token is split anew: blockchains is blockchain ##s.

The tokens become entries of the WordPiece vocabulary, not "added tokens" of the tokenizers library: those are searched
in the raw text before it is normalised, inside of other words too, and a tokenizer with them cannot be used by
`CorpusEncoder` (data/corpus/encode.py). So a token is what BERT's rules can make of a text: one word, one 汉字, one
punctuation mark; never a Chinese word of several 汉字.

Shapes: V vocabulary, E width of the table.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from qkv.errors import InputError
from qkv.models.bert.network import BertWithHeads, MaskedHead
from qkv.models.family import AddedTokens
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import read_text
from qkv.text.wordpiece import CONTINUES, LONGEST_WORD


class _NewToken(NamedTuple):
    token: str
    like: list[int]  # the ids of the tokens whose rows it begins with; empty: it has none


def add_tokens(model: BertWithHeads, tokenizer: Tokenizer, file: Path) -> AddedTokens:
    """Give a model the tokens of a file, in place; return its new tokenizer and what the file had."""
    new, known, repeated = _read(file, tokenizer)
    added = AddedTokens(
        tokenizer.with_tokens([one.token for one in new]),
        [one.token for one in new],
        known,
        repeated,
        [one.token for one in new if not one.like],
    )
    _add_rows(model, tokenizer.size, [one.like or [tokenizer.unk_id] for one in new])
    return added


def _read(file: Path, tokenizer: Tokenizer) -> tuple[list[_NewToken], list[str], list[str]]:
    """The new tokens of a file; tokens that are known; tokens that were on an earlier line."""
    if tokenizer.kind != "wordpiece":
        raise InputError(f"Tokens can be added to a WordPiece vocabulary, and this one is by {tokenizer.kind}.")
    new: dict[str, _NewToken] = {}
    known: list[str] = []
    repeated: list[str] = []
    for number, line in enumerate(read_text(file).split("\n"), 1):
        token, _, text = (part.strip() for part in line.partition("\t"))
        if not token:
            if text:
                raise InputError(f"{file}, line {number} begins with a tab: a line is a token, then a tab and a text.")
            continue
        if token in new or token in known:
            repeated.append(token)
        elif token in tokenizer.vocabulary:
            known.append(token)
        else:
            where = f"{file}, line {number}"
            _check(token, tokenizer, where)
            new[token] = _NewToken(token, _tokens_like(token, text, tokenizer, where))
    if not new and not known:
        raise InputError(f"{file} has no tokens. Write one a line and, after a tab, a text that means the same.")
    return list(new.values()), known, repeated


def _check(token: str, tokenizer: Tokenizer, where: str) -> None:
    """Raise for a token that the tokenizer never makes."""
    before = "a" if token.startswith(CONTINUES) else ""  # a word that it may continue
    word = before + token.removeprefix(CONTINUES) if before else token
    words = _words(word, tokenizer)
    if words == [word] != [before]:
        if len(word) > LONGEST_WORD:
            raise InputError(
                f"{where}: a token of {len(word)} characters never occurs: words of more than {LONGEST_WORD} are [UNK]."
            )
        return
    if len(words) == 1 and not before:
        raise InputError(f"{where}: {token!r} never occurs: the tokenizer reads it as {words[0]!r}. Write that.")
    raise InputError(
        f"{where}: {token!r} never occurs: the tokenizer reads {word!r} as {words}. A token is one word, one 汉字 or "
        "one punctuation mark."
    )


def _words(text: str, tokenizer: Tokenizer) -> list[str]:
    backend = tokenizer.backend
    normal = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is None:
        return [normal]
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]


def _tokens_like(token: str, text: str, tokenizer: Tokenizer, where: str) -> list[int]:
    found = tokenizer.encode_ids([text or token.removeprefix(CONTINUES)])[0]
    like = [number for number in found if number not in tokenizer.special_ids]
    if text and not like:
        raise InputError(
            f"{where}: the model knows no token of {text!r}, the text for {token!r}. Write it in other words, or leave "
            "it out."
        )
    return like


def _add_rows(model: BertWithHeads, first: int, like: Sequence[Sequence[int]]) -> None:
    """Rows from `first` on, in place of rows without a token and after them."""
    embedding = model.encoder.embedding.token
    rows = max(embedding.num_embeddings, first + len(like))
    embedding.weight = _extended(embedding.weight, first, rows, like)
    embedding.num_embeddings = rows
    if "masked" in model.heads:
        head = model.heads["masked"]
        assert isinstance(head, MaskedHead)
        head.bias = _extended(head.bias, first, rows, like, less=math.log(rows))
        if head.table is not None:
            head.table = _extended(head.table, first, rows, like)
    model.config = replace(model.config, vocabulary_size=rows)
    model.encoder.config = model.config


def _extended(old: Tensor, first: int, rows: int, like: Sequence[Sequence[int]], less: float = 0.0) -> nn.Parameter:
    """(V, E) or (V,) → (rows, …), with means of old rows from `first` on"""
    table: Tensor = torch.cat([old.detach(), old.new_zeros(rows - old.size(0), *old.shape[1:])])
    for number, ids in enumerate(like, first):
        table[number] = old.detach()[list(ids)].float().mean(0) - less
    return nn.Parameter(table, requires_grad=old.requires_grad)
