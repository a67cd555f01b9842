"""The special tokens around the texts of a task for a GPT (Radford et al. 2018, §3.3): start, delimiter, extract.

    one text   start a extract
    a pair     start a delimiter b extract

A GPT sees only what is to the left: the vector of a row is that of `extract`, its last token, and the vector of a word
is that of the word's last token. BERT has [CLS] and [SEP] in these positions, and uses the first.

The delimiter and `extract` are new tokens, as in the paper. The start is the token before a text in pretraining, the
one that ends texts (models/gpt/objective.py); a vocabulary without one, as that of OpenAI's first GPT, gets a new
token for it too. Tokens that a folder has from an earlier fine-tuning are found again by their names.

What this file does NOT do: give the new tokens a vector (folder.py).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import tokenizers
from tokenizers import AddedToken, pre_tokenizers, processors

from qkv.errors import InputError
from qkv.files import to_json
from qkv.text.backend import special_token_template, state_of
from qkv.text.tokenizer import Marks, Tokenizer
from qkv.text.vocabulary import Kind

START, DELIMITER, EXTRACT = MARK_NAMES = ("<|start|>", "<|delimiter|>", "<|extract|>")


class TaskTokenizer(Tokenizer):
    """Like `base`, with the three special tokens around a text in place of [CLS] and [SEP].

    >>> base = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"])
    >>> tokenizer = TaskTokenizer(base)
    >>> tokenizer.encode("the", "cat").tokens
    ['[SEP]', 'the', '<|delimiter|>', 'cat', '<|extract|>']
    >>> tokenizer.added, tokenizer.words
    ((7, 8), 7)
    """

    def __init__(self, base: Tokenizer) -> None:
        wanted = MARK_NAMES[1:] if base.has_marks else MARK_NAMES
        missing = [name for name in wanted if base.id(name) is None]
        self.base = _add_tokens(base, missing) if missing else base
        """Without special tokens around texts: what is written to files."""
        self.__dict__.update({name: value for name, value in vars(self.base).items() if name != "base"})
        ids = {name: _id(self.base, name) for name in wanted}
        self.marks = Marks(ids.get(START, self.base.sep_id), (ids[DELIMITER],), ids[EXTRACT], leftward=True)
        self.cls_id, self.sep_id, self.has_marks = self.marks.start, ids[DELIMITER], True
        self.added = tuple(ids[name] for name in missing)
        """Ids of the tokens that are new."""
        self.words = min(ids.values())
        """Tokens of texts, which a language model scores: all before the special tokens of tasks."""
        self.special_ids = self.base.special_ids | set(ids.values())
        self.backend = tokenizers.Tokenizer.from_str(self.base.backend.to_str())
        self.backend.post_processor = special_token_template(self.backend, *self.marks[:3])

    # All ways to get a tokenizer go through these two.

    @classmethod
    def _read(cls, file: Path) -> Self:
        return cls(Tokenizer._read(file))

    @classmethod
    def _of(
        cls, tokens: Sequence[str], kind: Kind, lowercase: bool, segmenter: str | None, fold: Sequence[str] = ()
    ) -> Self:
        return cls(Tokenizer._of(tokens, kind, lowercase, segmenter, fold))

    def files(self, max_length: int | None = None) -> dict[str, str]:
        return self.base.files(max_length)


def _add_tokens(base: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The same tokenizer with special tokens appended."""
    # as it would be read from its own file, before anything was done to it
    backend = tokenizers.Tokenizer.from_str(base.files()["tokenizer.json"])
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    grown = Tokenizer(backend, base.kind, segmenter=base.segmenter)
    if any(_id(grown, name) < base.size for name in names):
        raise InputError(
            f"The vocabulary has {len(base.vocabulary):,} tokens with ids up to {base.size - 1:,}: ids between them "
            f"are free, and {', '.join(names)} would not stand after all others. Number its tokens without gaps."
        )
    return grown


def _id(tokenizer: Tokenizer, name: str) -> int:
    number = tokenizer.id(name)
    assert number is not None, name
    return number


# The tokenizer's files in the folder of a GPT, such that transformers gives the model what it was trained on. Our
# vocabularies are written for BERT, with [CLS] and [SEP] around a text. A GPT gets no segments, which transformers
# would add to the vectors as if they were tokens, and
#
#     to write on, trained here      end a             the special token before documents, nothing after the prompt
#     to write on, trained by others a                 as their file has it
#     for a task                     start a extract   the special tokens of `TaskTokenizer`

TOKENIZER, SETTINGS, NAMES = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"


def files_for_writing(tokenizer: Tokenizer, max_length: int, *, begins: bool) -> dict[str, str]:
    """`begins`: a prompt is the beginning of a document, if the vocabulary has a token for that."""
    files = tokenizer.files(max_length)
    if begins and tokenizer.has_marks:
        return _files(files, tokenizer, _before(tokenizer))
    is_theirs = len(tokenizer.special_ids) < 2  # which have one special token, or none
    return _files(files, tokenizer, json.loads(files[TOKENIZER])["post_processor"] if is_theirs else None)


def files_for_tasks(tokenizer: TaskTokenizer, max_length: int) -> dict[str, str]:
    return _files(tokenizer.base.files(max_length), tokenizer.base, state_of(tokenizer.backend.post_processor))


def never_written(tokenizer: Tokenizer, rows: int, end_id: int | None) -> list[int]:
    """Ids that are never generated: rows of the table without a token, and special tokens except the end of a text."""
    spare = set(range(rows)) - set(tokenizer.vocabulary.values())
    return sorted((spare | tokenizer.special_ids) - {end_id})


def _files(files: Mapping[str, str], tokenizer: Tokenizer, processor: Mapping[str, Any] | None) -> dict[str, str]:
    whole = json.loads(files[TOKENIZER]) | {"post_processor": processor}
    names = json.loads(files[NAMES])
    if tokenizer.has_marks:
        names |= dict.fromkeys(("bos_token", "eos_token"), tokenizer.token(tokenizer.sep_id))
    # BERT's class would put its own special tokens around a text, whatever tokenizer.json says
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    settings = json.loads(files[SETTINGS]) | settings | names
    return {**files, TOKENIZER: to_json(whole), SETTINGS: to_json(settings), NAMES: to_json(names)}


def _before(tokenizer: Tokenizer) -> dict[str, Any]:
    mark = tokenizer.token(tokenizer.sep_id)
    template = processors.TemplateProcessing(
        single=f"{mark} $A", pair=f"{mark} $A $B", special_tokens=[(mark, tokenizer.sep_id)]
    )
    if not isinstance(tokenizer.backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        return state_of(template)
    return state_of(processors.Sequence([processors.ByteLevel(trim_offsets=True), template]))
