"""Small GPTs as folders, with each kind of vocabulary that they come with."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.models.family import WRITES, Loading
from qkv.models.gpt.dialects import GPT_FAMILY
from qkv.models.gpt.folder import open_gpt, save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.folders import make_tokenizer, randomise

VOCABULARIES = {
    "wordpiece": (make_tokenizer, "pre"),  # one of ours, with [SEP]
    "gpt2": (lambda: Tokenizer(gpt2_backend(), "byte-pair"), "pre"),  # one mark
    "gpt": (lambda: Tokenizer(gpt_backend(), "byte-pair"), "post"),  # none
}
"""By name: what makes the tokenizer, and the order of norm and residual."""


def make_gpt(folder: Path, vocabulary: str = "wordpiece", **changes: Any) -> Path:
    make, order = VOCABULARIES[vocabulary]
    tokenizer = make()
    sizes = {"layers": 2, "width": 32, "heads": 4, "inner_width": 128, "max_length": 64, "initial_std": 0.05}
    model = GPT(GPTConfig(tokenizer.size, **(sizes | {"order": order} | changes)))
    randomise(model)
    return save(folder, model, tokenizer)


class LoadedGPT(NamedTuple):
    model: GPT
    tokenizer: Tokenizer
    config: GPTConfig
    begin_id: int | None
    end_id: int | None
    notes: tuple[str, ...]
    record: Mapping[str, Any]


def load_gpt(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> LoadedGPT:
    """A folder opened to write."""
    plan = GPT_FAMILY.plan(Path(path), True)
    opened = open_gpt(plan, GPT_FAMILY.facts(plan), Loading(dtype))
    found = opened.ability(WRITES)
    model = found.writer
    assert isinstance(model, GPT)
    return LoadedGPT(model, found.tokenizer, model.config, found.begin_id, found.end_id, opened.notes, opened.record)
