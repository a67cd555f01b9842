"""Folders of recurrent language models (models/folders/own.py): the network, what writes, what feeds a task."""

from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError
from qkv.models.family import RECURS, SHOWS_LAYERS, WRITES, Loading, Writes
from qkv.models.folders.own import read_folder
from qkv.models.gpt.tokenizer import never_written
from qkv.models.plain.pretrained import family_below
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.models.rnnlm.writing import RecurrentWriting
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer


class LoadedRNNLM(NamedTuple):
    network: RNNLM
    tokenizer: Tokenizer
    record: dict[str, Any]


def load_rnnlm(path: str | Path) -> LoadedRNNLM:
    """The network of a folder that a run has written, ready to be asked."""
    folder = read_folder(path, "rnnlm")
    try:
        network = RNNLM(RNNLMConfig(**folder.config))
        network.load_state_dict(folder.tensors)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{path}: config.json and model.safetensors do not fit together: {error}") from None
    return LoadedRNNLM(network.eval(), folder.tokenizer, folder.record)


def _writes(path: Path, loading: Loading) -> Writes:
    if loading.precision != "fp32":
        raise InputError(f"Precision {loading.precision} is for a GPT, and {path} is a recurrent network. Use fp32.")
    network, tokenizer, _ = load_rnnlm(path)
    begin, end, rows = tokenizer.cls_id, tokenizer.sep_id, network.config.vocabulary_size
    writer = RecurrentWriting(network.to(loading.device, loading.dtype))
    return Writes(writer, tokenizer, begin, end, True, None, never_written(tokenizer, rows, end))


RNNLM_FAMILY = family_below(
    "rnnlm",
    Phrase("a recurrent language model", "循环神经网络语言模型"),
    "rnnlm",
    {WRITES: _writes, **{one: lambda path, loading: load_rnnlm(path).network for one in (SHOWS_LAYERS, RECURS)}},
)
