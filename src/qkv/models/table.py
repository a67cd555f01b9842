"""Every family of models, one line each. A family is imported when a folder of it is opened."""

import os
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import read_object

if TYPE_CHECKING:
    from qkv.models.family import Facts, Family, Loading, Opened
    from qkv.models.pretraining import Pretraining


class FamilyEntry(NamedTuple):
    model_types: tuple[str, ...]  # of config.json
    module: str
    record: str  # of its Family, in that module


FAMILIES: dict[str, FamilyEntry] = {
    "word2vec": FamilyEntry(("word2vec",), "qkv.models.word2vec.folder", "WORD2VEC"),
    "nnlm": FamilyEntry(("nnlm",), "qkv.models.nnlm.folder", "NNLM_FAMILY"),
    "rnnlm": FamilyEntry(("rnnlm",), "qkv.models.rnnlm.folder", "RNNLM_FAMILY"),
    "elmo": FamilyEntry(("elmo",), "qkv.models.elmo.folder", "ELMO"),
    "plain": FamilyEntry(("reader",), "qkv.models.plain.folder", "PLAIN_FAMILY"),
    "seq2seq": FamilyEntry(("qkv-seq2seq",), "qkv.models.transformer.folder", "SEQ2SEQ"),
    "transformer": FamilyEntry(("qkv-transformer",), "qkv.models.transformer.folder", "TRANSFORMER"),
    "marian": FamilyEntry(("marian",), "qkv.models.transformer.marian", "MARIAN"),
    "gpt": FamilyEntry(("gpt2", "openai-gpt"), "qkv.models.gpt.folder", "GPT_FAMILY"),
    "bert": FamilyEntry(("bert",), "qkv.models.bert.folder", "BERT"),
    "roberta": FamilyEntry(("roberta",), "qkv.models.roberta", "ROBERTA"),
    "xlm-roberta": FamilyEntry(("xlm-roberta",), "qkv.models.roberta", "XLM_ROBERTA"),
    "distilbert": FamilyEntry(("distilbert",), "qkv.models.distilbert", "DISTILBERT"),
    "electra": FamilyEntry(("electra",), "qkv.models.electra", "ELECTRA"),
    "albert": FamilyEntry(("albert",), "qkv.models.albert", "ALBERT"),
    "ernie": FamilyEntry(("ernie",), "qkv.models.ernie", "ERNIE"),
}
VECTOR_FILES = "qkv.models.word2vec.folder"
"""A file of word vectors is no folder: where `describe_vectors` and `open_vectors` are."""


@cache
def load_family(name: str) -> "Family":
    if name not in FAMILIES:
        raise InputError(f"There is no family of models '{name}'.{did_you_mean(name, FAMILIES)}")
    family: Family = getattr(import_module(FAMILIES[name].module), FAMILIES[name].record)
    return family


def detect_family(path: Path) -> "Family":
    """The family of a folder, from config.json. The oldest folders of BERT have no model_type."""
    file = path / "config.json"
    if not path.is_dir():
        raise InputError(f"There is no folder {path}.")
    if not file.is_file():
        held = listed(entry.name for entry in path.iterdir())
        raise InputError(
            f"{path} is not a model folder: it has no config.json" + (f", only {held}." if held else "; it is empty.")
        )
    fields = read_object(file)
    kind, stated = fields.get("model_type"), fields.get("architectures")
    for name, entry in FAMILIES.items():
        if kind in entry.model_types:
            return load_family(name)
    is_bert = str(stated[0]).startswith("Bert") if isinstance(stated, list) and stated else "type_vocab_size" in fields
    if kind is None and is_bert:
        return load_family("bert")
    raise _unsupported(file, kind)


def describe_model(path: str | os.PathLike[str]) -> "Facts":
    """What a folder or a file of word vectors holds; weights are not read."""
    place = Path(os.path.expanduser(path))
    with reading(place):
        if place.is_file():
            found: Facts = import_module(VECTOR_FILES).describe_vectors(place)
            return found
        return detect_family(place).describe(place)


def open_model(path: str | os.PathLike[str], loading: "Loading | None" = None) -> "Opened":
    """The model in a folder, or in a file of word vectors."""
    from qkv.models.family import Loading

    place, how = Path(os.path.expanduser(path)), loading or Loading()
    with reading(place):
        if place.is_file():
            found: Opened = import_module(VECTOR_FILES).open_vectors(place, how)
            return found
        return detect_family(place).open(place, how)


def _unsupported(file: Path, model_type: object) -> InputError:
    """The error for a folder that no family reads."""
    known = [one for entry in FAMILIES.values() for one in entry.model_types]
    said = f"model_type {model_type!r}" if isinstance(model_type, str) else "no model_type"
    hint = did_you_mean(model_type, known) if isinstance(model_type, str) else ""
    return InputError(
        f"{file} says {said}.{hint} qkv reads {', '.join(known)}. Convert the model to one of them, or give another "
        "folder."
    )


# Pretraining

_PRETRAININGS = {
    "bert": "qkv.models.bert.pretrain:PRETRAINING_BERT",
    "word2vec": "qkv.models.word2vec.pretrain:PRETRAINING_WORD2VEC",
    "elmo": "qkv.models.elmo.pretrain:PRETRAINING_ELMO",
    "nnlm": "qkv.models.nnlm.pretrain:PRETRAINING_NNLM",
    "rnnlm": "qkv.models.nnlm.pretrain:PRETRAINING_RNNLM",
    "gpt": "qkv.models.gpt.pretrain:PRETRAINING_GPT",
}
"""How each is trained, as a `Pretraining` (models/pretraining.py): its module and its name there."""
PRETRAINED = tuple(_PRETRAININGS)


@cache
def load_pretraining(model: str) -> "Pretraining[Any, Any]":
    module, _, name = _PRETRAININGS[model].partition(":")
    found: Pretraining[Any, Any] = getattr(import_module(module), name)
    return found


def unknown_model(named: object) -> str:
    hint = did_you_mean(named, PRETRAINED) if isinstance(named, str) else ""
    return f"unknown model_type {named!r}.{hint} Known: {', '.join(PRETRAINED)}."
