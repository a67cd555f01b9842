"""Folders of NNLM (models/folders/own.py): the whole network, and its table, which serves as word vectors."""

from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError
from qkv.models.family import LOOKS_UP, SHOWS_LAYERS
from qkv.models.folders.own import read_folder
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.plain.pretrained import family_below
from qkv.models.word2vec.vectors import StoredVectors
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer


class LoadedNNLM(NamedTuple):
    network: NNLM
    tokenizer: Tokenizer
    record: dict[str, Any]


def load_nnlm(path: str | Path) -> LoadedNNLM:
    """The network of a folder that a run has written, ready to be asked."""
    folder = read_folder(path, "nnlm")
    try:
        network = NNLM(NNLMConfig(**folder.config))
        network.load_state_dict(folder.tensors)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{path}: config.json and model.safetensors do not fit together: {error}") from None
    return LoadedNNLM(network.eval(), folder.tokenizer, folder.record)


NNLM_FAMILY = family_below(
    "nnlm",
    Phrase("an NNLM, which gives vectors of words", "NNLM，可给出词向量"),
    "nnlm",
    {
        LOOKS_UP: lambda path, loading: StoredVectors(path),
        SHOWS_LAYERS: lambda path, loading: load_nnlm(path).network,
    },
)
