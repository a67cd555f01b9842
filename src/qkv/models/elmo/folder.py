"""Folders of ELMo (models/folders/own.py): the whole network, and what a task finds below it."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.family import RECURS, SHOWS_LAYERS
from qkv.models.folders.own import read_folder
from qkv.models.plain.pretrained import family_below
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer


class LoadedElmo(NamedTuple):
    network: Elmo
    tokenizer: Tokenizer
    record: dict[str, Any]

    def vectors(self, batch: Batch) -> Tensor:
        """(N, layers + 1, 2 width) for the tokens of packed rows. Every row begins with nothing seen, so that the same
        text has the same vectors (up to rounding, whatever rows lie beside it)."""
        with torch.inference_mode():
            return self.network(batch.ids, batch.lengths)


def load_elmo(path: str | Path) -> LoadedElmo:
    """The network of a folder that a run has written, ready to be asked."""
    folder = read_folder(path, "elmo")
    try:
        config = ElmoConfig(**(folder.config | {"filters": tuple(folder.config["filters"])}))
        network = Elmo(config, tokens_by_id(folder.tokenizer))
        network.load_state_dict(folder.tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{path}: config.json and model.safetensors do not fit together: {error}") from None
    return LoadedElmo(network.eval(), folder.tokenizer, folder.record)


def tokens_by_id(tokenizer: Tokenizer) -> list[str]:
    """By id; a vocabulary may have gaps."""
    tokens = [""] * tokenizer.size
    for token, number in tokenizer.vocabulary.items():
        tokens[number] = token
    return tokens


ELMO = family_below(
    "elmo",
    Phrase("an ELMo, which gives vectors of words in their sentence", "ELMo，可给出词在句中的向量"),
    "elmo",
    {one: lambda path, loading: load_elmo(path).network for one in (SHOWS_LAYERS, RECURS)},
)
