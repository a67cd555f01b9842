"""The tokenizer's files in the folder of a GPT: transformers then gives the model what it was trained on.

Our own vocabularies are written for a BERT, with [CLS] and [SEP] around a text, and their folder says so. A GPT wants

    to write on, trained here      end a             the mark before documents, and nothing after the prompt
    to write on, trained by others a                 as their file has it
    for a task                     start a extract   the marks of data/task_marks.py

and no segments, which transformers' GPT would add to the vectors as if they were tokens.
"""

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import pre_tokenizers, processors

from qkv.data.task_marks import TaskTokenizer
from qkv.json_file import to_json
from qkv.tokenizer import Tokenizer
from qkv.tokenizer_backend import state_of

TOKENIZER, SETTINGS, NAMES = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"


def files_for_writing(tokenizer: Tokenizer, max_length: int, *, begins: bool) -> dict[str, str]:
    """`begins`: a prompt is the beginning of a document, if there is a mark for that."""
    files = tokenizer.files(max_length)
    if begins and tokenizer.has_marks:
        return _files(files, tokenizer, _before(tokenizer))
    is_theirs = len(tokenizer.special_ids) < 2  # which have one mark for everything, or none
    return _files(files, tokenizer, json.loads(files[TOKENIZER])["post_processor"] if is_theirs else None)


def files_for_tasks(tokenizer: TaskTokenizer, max_length: int) -> dict[str, str]:
    return _files(tokenizer.base.files(max_length), tokenizer.base, state_of(tokenizer.backend.post_processor))


def never_written(tokenizer: Tokenizer, rows: int, end_id: int | None) -> list[int]:
    """Rows of a table without a token, and marks that are no text, but for the one that ends it."""
    spare = set(range(rows)) - set(tokenizer.vocabulary.values())
    return sorted((spare | tokenizer.special_ids) - {end_id})


def _files(files: Mapping[str, str], tokenizer: Tokenizer, processor: Mapping[str, Any] | None) -> dict[str, str]:
    whole = json.loads(files[TOKENIZER]) | {"post_processor": processor}
    names = json.loads(files[NAMES])
    if tokenizer.has_marks:
        names |= dict.fromkeys(("bos_token", "eos_token"), tokenizer.token(tokenizer.sep_id))
    # BERT's class would put its own marks around a text, whatever tokenizer.json says
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
