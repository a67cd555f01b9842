"""Folders of pretrained language models, opened as the first layer of a reader (models/plain/contextual.py).

Of a model's weights those are taken that make vectors of tokens. What scores words stays behind: a task does not need
it, and it is the larger part of a model with many words.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.config import merge
from qkv.errors import InputError, listed
from qkv.models.elmo.network import BothWays, ElmoConfig
from qkv.models.folders.codec import CONFIG, WEIGHTS
from qkv.models.folders.own import read_folder
from qkv.models.folders.weights import Undrawn
from qkv.models.plain.contextual import Pretrained
from qkv.models.rnnlm.network import RNNLMConfig, RNNStates
from qkv.text.tokenizer import Tokenizer

SIZES: dict[str, type[Pretrained]] = {"elmo": ElmoConfig, "rnnlm": RNNLMConfig}
"""By model_type."""


class Features(NamedTuple):
    config: Pretrained
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer


def read_features(path: Path) -> Features:
    """An ELMo or a recurrent language model, as `qkv pretrain` writes it."""
    folder = read_folder(path, *SIZES)
    config = sizes_of({"model_type": folder.model_type, **folder.config}, path / CONFIG)
    with torch.device("meta"), Undrawn():
        network: nn.Module = BothWays(config) if isinstance(config, ElmoConfig) else RNNStates(config)
    wanted = {name: parameter.shape for name, parameter in network.named_parameters()}
    if missing := set(wanted) - set(folder.tensors):
        raise InputError(f"{path / WEIGHTS} lacks {listed(sorted(missing))}, which {CONFIG} says it has.")
    for name, shape in wanted.items():
        if (stored := folder.tensors[name].shape) != shape:
            raise InputError(f"{path / WEIGHTS}: {name} has the shape {list(stored)}, and {CONFIG} says {list(shape)}.")
    return Features(config, {name: folder.tensors[name].float() for name in wanted}, folder.tokenizer)


def sizes_of(table: object, where: Path) -> Pretrained:
    """A config as `sizes_table` or a folder of its own writes it."""
    model_type = table.get("model_type") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or model_type not in SIZES:
        raise InputError(f"{where}: features are of {' or '.join(SIZES)}, not {model_type!r}.")
    given = {name: value for name, value in table.items() if name != "model_type" and value is not None}
    start: Any = SIZES[model_type](vocabulary_size=1)
    found: Pretrained = merge(start, given, str(where))
    return found


def sizes_table(config: Pretrained) -> dict[str, Any]:
    name = next(name for name, kind in SIZES.items() if isinstance(config, kind))
    return {"model_type": name, **asdict(config)}
