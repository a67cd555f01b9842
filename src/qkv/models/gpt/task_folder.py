"""A GPT's folder under the names of `hf.Folder`, for callers that do not ask its family yet (folder.py)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from qkv.errors import reading
from qkv.files import read_object
from qkv.models.family import ENCODES, TAKES_HEAD, Ability, Loading, Opened, Saving
from qkv.models.folders.codec import CONFIG
from qkv.models.gpt.dialects import read_config
from qkv.models.gpt.encoder import GPTReaderConfig, GPTWithHeads
from qkv.models.gpt.folder import open_folder, save_with_heads
from qkv.models.gpt.tokenizer import TaskTokenizer


@dataclass
class GPTFolder:
    model: GPTWithHeads
    tokenizer: TaskTokenizer
    config: GPTReaderConfig
    labels: tuple[str, ...]
    path: Path
    record: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    carried: Mapping[str, Any] = field(default_factory=dict)
    opened: Opened | None = None
    # what a folder of sentence-transformers may say, and this one never does
    pooling: ClassVar[str | None] = None
    normalize: ClassVar[bool] = False
    foreign_pooling: ClassVar[str | None] = None

    @property
    def architecture(self) -> str:
        return "GPT" if not self.model.heads else f"GPT with a head for {' and '.join(self.model.heads)}"

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        assert self.opened is not None
        return self.opened.save(path, architecture)


class PretrainedGPT(GPTFolder):
    """A GPT that no task was put on."""

    abilities = (
        "write on from a text (qkv generate MODEL TEXT)",
        "embed texts and their tokens (qkv embed TEXT --model)",
        "show attention (qkv attention TEXT --model)",
        "be fine-tuned (qkv finetune --model)",
    )


def open_gpt(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPTFolder:
    """A GPT as it was pretrained, made ready for a task, or one that was fine-tuned."""
    return _folder(GPTFolder, path, dtype, TAKES_HEAD)


def open_any_gpt(path: Path, dtype: torch.dtype = torch.float32) -> GPTFolder:
    """A `PretrainedGPT`, unless it was fine-tuned."""
    found = _folder(PretrainedGPT, path, dtype, ENCODES)
    return _folder(GPTFolder, path, dtype, ENCODES) if found.model.heads else found


def _folder(
    kind: type[GPTFolder], path: str | os.PathLike[str], dtype: torch.dtype, ability: Ability[Any]
) -> GPTFolder:
    opened = open_folder(Path(os.path.expanduser(path)), Loading(dtype))
    said = opened.labels, opened.path, dict(opened.record), opened.notes, opened.carried, opened
    return kind(opened.ability(ability).network, opened.tokenizer, opened.config, *said)


def shape_of_gpt(path: str | os.PathLike[str]) -> GPTReaderConfig:
    """The sizes that a folder states, without its weights."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        config, _, _ = read_config(read_object(folder / CONFIG), folder / CONFIG)
    return GPTReaderConfig.of(config, config.vocabulary_size)


def save_gpt(
    path: str | os.PathLike[str],
    model: GPTWithHeads,
    tokenizer: TaskTokenizer,
    labels: Sequence[str] = (),
    record: Mapping[str, Any] | None = None,
    problem: str | None = None,
    *,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    return save_with_heads(path, model, tokenizer, Saving(tuple(labels), record or {}, problem), files=files)
