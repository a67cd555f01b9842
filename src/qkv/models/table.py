"""Every family of models, one line each. A family is imported when a folder of it is met: to describe it what needs no
torch, to open it the rest."""

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
    record: str  # its Family, by which a folder is described without torch: module of this package, and name
    opening: str  # a function: plan of the Family, facts, loading → Opened


FAMILIES: dict[str, FamilyEntry] = {
    "word2vec": FamilyEntry(("word2vec",), "plain.config:WORD2VEC", "word2vec.folder:open_word2vec"),
    "nnlm": FamilyEntry(("nnlm",), "plain.config:NNLM_FAMILY", "nnlm.folder:open_nnlm"),
    "rnnlm": FamilyEntry(("rnnlm",), "plain.config:RNNLM_FAMILY", "rnnlm.folder:open_rnnlm"),
    "elmo": FamilyEntry(("elmo",), "plain.config:ELMO", "elmo.folder:open_elmo"),
    "plain": FamilyEntry(("reader",), "plain.config:PLAIN_FAMILY", "plain.folder:open_plain"),
    "seq2seq": FamilyEntry(("qkv-seq2seq",), "transformer.config:SEQ2SEQ", "transformer.folder:open_translation"),
    "transformer": FamilyEntry(
        ("qkv-transformer",),
        "transformer.config:TRANSFORMER",
        "transformer.folder:open_translation",
    ),
    "marian": FamilyEntry(("marian",), "transformer.marian:MARIAN", "transformer.folder:open_marian"),
    "gpt": FamilyEntry(("gpt2", "openai-gpt"), "gpt.dialects:GPT_FAMILY", "gpt.folder:open_gpt"),
    "bert": FamilyEntry(("bert",), "bert.plan:BERT", "bert.folder:open_bert"),
    "roberta": FamilyEntry(("roberta",), "roberta:ROBERTA", "bert.folder:open_bert"),
    "xlm-roberta": FamilyEntry(("xlm-roberta",), "roberta:XLM_ROBERTA", "bert.folder:open_bert"),
    "distilbert": FamilyEntry(("distilbert",), "distilbert:DISTILBERT", "bert.folder:open_bert"),
    "electra": FamilyEntry(("electra",), "electra:ELECTRA", "bert.folder:open_bert"),
    "albert": FamilyEntry(("albert",), "albert:ALBERT", "bert.folder:open_bert"),
    "ernie": FamilyEntry(("ernie",), "ernie:ERNIE", "bert.folder:open_bert"),
}
_VECTOR_FILES = FamilyEntry((), "plain.config:describe_vectors", "word2vec.folder:open_vectors")
"""A file of word vectors is no folder."""


@cache
def load_family(name: str) -> "Family[Any]":
    if name not in FAMILIES:
        raise InputError(f"There is no family of models '{name}'.{did_you_mean(name, FAMILIES)}")
    family: Family[Any] = _import(FAMILIES[name].record)
    return family


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"qkv.models.{module}"), name)


def detect_family(path: Path) -> "Family[Any]":
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
            found: Facts = _import(_VECTOR_FILES.record)(place)
            return found
        return detect_family(place).describe(place)


def open_model(path: str | os.PathLike[str], loading: "Loading | None" = None) -> "Opened":
    """The model in a folder, or in a file of word vectors."""
    from qkv.models.family import Loading

    place, how = Path(os.path.expanduser(path)), loading or Loading()
    with reading(place):
        opened: Opened
        if place.is_file():
            opened = _import(_VECTOR_FILES.opening)(place, how)
        else:
            family = detect_family(place)
            plan = family.plan(place, True)
            opened = _import(FAMILIES[family.name].opening)(plan, family.facts(plan), how)
        return opened


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
    "bert": "bert.pretrain:PRETRAINING_BERT",
    "word2vec": "word2vec.pretrain:PRETRAINING_WORD2VEC",
    "elmo": "elmo.pretrain:PRETRAINING_ELMO",
    "nnlm": "nnlm.pretrain:PRETRAINING_NNLM",
    "rnnlm": "nnlm.pretrain:PRETRAINING_RNNLM",
    "gpt": "gpt.pretrain:PRETRAINING_GPT",
}
"""How each is trained, as a `Pretraining` (models/pretraining.py): its module and its name there."""
PRETRAINED = tuple(_PRETRAININGS)


@cache
def load_pretraining(model: str) -> "Pretraining[Any, Any]":
    found: Pretraining[Any, Any] = _import(_PRETRAININGS[model])
    return found


def unknown_model(named: object) -> str:
    hint = did_you_mean(named, PRETRAINED) if isinstance(named, str) else ""
    return f"unknown model_type {named!r}.{hint} Known: {', '.join(PRETRAINED)}."
