"""A model that is looked into, whatever it is: what it can show, and its parts, each opened when it is first needed.

    bert          an encoder that looks both ways; with a task on it, or none; readers of texts too ("reader")
    gpt           looks to the left
    transformer   encoder and decoder: translates (qkv's own, and Marian)
    seq2seq       recurrent encoder and decoder: translates
    elmo, rnnlm   recurrent: states and gates
    nnlm, table   one vector a word (word2vec, files of vectors, the table of an NNLM)

`open_subject` reads what the folder says, so that a half-written one is refused at once, and loads no weights.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from qkv.api.model import Model, load
from qkv.api.translator import Translator, load_translator
from qkv.errors import reading
from qkv.files import read_object
from qkv.look.wire import LONGEST, RefusalError
from qkv.models.bert.keys import ARCHITECTURES, canonical, parts_held
from qkv.models.elmo.folder import LoadedElmo, load_elmo
from qkv.models.encoder import Encoder
from qkv.models.folders.codec import GPTS, OURS, model_type_of
from qkv.models.folders.hub import DEFAULT_MODEL, HUB, locate
from qkv.models.folders.info import shown_facts
from qkv.models.folders.weights import open_weights
from qkv.models.gpt.folder import HEADS as HEADS_OF_GPT
from qkv.models.nnlm.folder import LoadedNNLM, load_nnlm
from qkv.models.rnnlm.folder import LoadedRNNLM, load_rnnlm
from qkv.models.word2vec.vectors import WordVectors, load_vectors
from qkv.nn.recurrent import CELLS
from qkv.tasks.table import TASKS
from qkv.tasks.translate import Network
from qkv.train.run_folder import model_folder

VIEWS = ("attention", "fill", "meanings", "positions", "translation", "vectors", "tasks", "recurrence")
"""In the order of the page."""
KIND_OF = {
    "word2vec": "table",
    "nnlm": "nnlm",
    "rnnlm": "rnnlm",
    "elmo": "elmo",
    "reader": "reader",
    "qkv-transformer": "transformer",
    "marian": "transformer",
    "qkv-seq2seq": "seq2seq",
    **dict.fromkeys(GPTS, "gpt"),
}
"""By model_type; every other is a BERT's, or is refused when it is opened."""


@dataclass(frozen=True)
class Subject:
    name: str  # what the user typed
    path: Path
    kind: str
    threads: int | None = None

    @cached_property
    def title(self) -> str:
        """Short, for a heading: the folder's name, or that of its run, or what the hub calls it."""
        if self.name.startswith(HUB):
            return self.name.removeprefix(HUB).partition("@")[0].rpartition("/")[2]  # its folder is called by a hash
        parts = [part for part in self.path.parts if part not in ("model", "/")]
        return parts[-1] if parts else self.name

    @property
    def translates(self) -> bool:
        return self.kind in ("transformer", "seq2seq")

    @property
    def is_table(self) -> bool:
        """Whether a word has one vector, wherever it stands, and is looked up."""
        return self.kind in ("table", "nnlm")

    @property
    def network(self) -> Network | Encoder:
        """What reads texts; of all but a table."""
        return self.translator.network if self.translates else self.model.network.encoder

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def max_length(self) -> int:
        """Tokens of a text that are read at once."""
        return self.translator.max_length if self.translates else self.model.config.max_length

    @cached_property
    def model(self) -> Model:
        """What `qkv.load` gives; of all kinds but those that translate and files of vectors."""
        if self.translates or self.path.is_file():
            raise self.refusal("no_model", "which no text can be read with")
        return load(self.name, threads=self.threads)

    @cached_property
    def translator(self) -> Translator:
        if not self.translates:
            raise self.refusal("no_translation", "which does not translate")
        return load_translator(self.name, threads=self.threads)

    @cached_property
    def vectors(self) -> WordVectors:
        if not self.is_table:
            raise self.refusal("no_vectors", "in which a word has no vector of its own")
        return load_vectors(self.name)

    @cached_property
    def language_model(self) -> LoadedNNLM | LoadedRNNLM:
        if self.kind not in ("rnnlm", "nnlm"):
            raise self.refusal("no_recurrence", "which is no recurrent language model")
        return load_rnnlm(self.path) if self.kind == "rnnlm" else load_nnlm(self.path)

    @cached_property
    def elmo(self) -> LoadedElmo:
        if self.kind != "elmo":
            raise self.refusal("no_recurrence", "which is no ELMo")
        return load_elmo(self.path)

    def refusal(self, code: str, why: str) -> RefusalError:
        return RefusalError(
            code, f"{self.title} is a model of kind {self.kind}, {why}.", model=self.title, kind=self.kind
        )


def open_subject(name: str | os.PathLike[str] = DEFAULT_MODEL, threads: int | None = None) -> Subject:
    """By a folder, a run, a file of word vectors, a name of the zoo, or hf:owner/name."""
    text = os.fspath(name)
    file = Path(os.path.expanduser(text))
    if file.is_file():
        return Subject(text, file, "table", threads)
    path = model_folder(locate(text))
    with reading(path):
        model_type = model_type_of(path)
    read_object(path / "config.json")  # what is wrong with the weights is said by whoever looks at them (subject.py)
    return Subject(text, path, KIND_OF.get(model_type or "", "bert"), threads)


# --- What there is to look at: every model with its views and a few facts, found without loading a weight.
#
# A view is offered where the model's kind and its folder allow it: blanks where there is a head that fills them,
# tasks
# where one was put on. Of the weights only the headers are read, for their names and shapes.

VERSION = 1
_LANGUAGES = ("zh", "en")
VIEWS_OF = {
    "bert": ("attention", "meanings"),
    "gpt": ("attention", "meanings"),
    "transformer": ("attention", "meanings", "translation"),
    "seq2seq": ("translation", "recurrence"),
    "elmo": ("meanings", "recurrence"),
    "rnnlm": ("meanings", "recurrence"),
    "reader": ("meanings",),
    "nnlm": ("meanings", "vectors"),
    "table": ("meanings", "vectors"),
}
"""By kind, whatever its folder says; all have positions, since the sinusoids need no model."""
FILLED = ("masked", "next_sentence")
"""Heads that the view of blanks asks."""


def describe(subjects: Sequence[Subject], examples: Mapping[str, Any]) -> dict[str, Any]:
    """All that a page wants to know before it asks anything."""
    return {
        "version": VERSION,
        "languages": list(_LANGUAGES),
        "subjects": [{"index": index, **describe_subject(subject)} for index, subject in enumerate(subjects)],
        "examples": dict(examples),
        "limits": {"characters": LONGEST},
    }


def describe_subject(subject: Subject) -> dict[str, Any]:
    config = read_object(subject.path / "config.json") if subject.path.is_dir() else {}
    shapes = _shapes(subject)
    heads = heads_of(subject, config, list(shapes))
    record = _record(subject)
    task = task_of(record, heads)
    return {
        "name": subject.name,
        "title": subject.title,
        "kind": subject.kind,
        "views": views_of(subject, config, heads, task),
        "heads": list(heads),
        "task": task,
        "facts": shown_facts(subject.path, subject.kind),
    }


def views_of(subject: Subject, config: Mapping[str, Any], heads: Sequence[str], task: str | None) -> list[str]:
    """In the order of the page."""
    found = {"positions", *VIEWS_OF[subject.kind]}
    if subject.kind == "bert" and set(FILLED) & set(heads):
        found.add("fill")
    if subject.kind == "reader" and (config.get("kind") in CELLS or config.get("features")):
        found.add("recurrence")
    if subject.kind == "seq2seq" and config.get("context", "attention") == "attention":
        found.add("attention")
    if task is not None:
        found.add("tasks")
    return [view for view in VIEWS if view in found]


def heads_of(subject: Subject, config: Mapping[str, Any], stored: Sequence[str]) -> tuple[str, ...]:
    """What stands on the encoder, by the names that qkv has for heads."""
    if subject.kind == "bert":
        stated = config.get("architectures")
        first = stated[0] if isinstance(stated, list) and stated and isinstance(stated[0], str) else None
        return parts_held([canonical(name) for name in stored], _known(first), str(subject.path))[0]
    if subject.kind == "gpt":
        return tuple(ours for ours, theirs in HEADS_OF_GPT.items() if f"{theirs}.weight" in stored)
    if subject.kind == "reader":
        found = config.get("heads")
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
    return ()


def task_of(record: Mapping[str, Any], heads: Sequence[str]) -> str | None:
    """The task that was put on a model, as its folder says, or else by its head."""
    told = record.get("task")
    if isinstance(told, str) and told in TASKS:
        return told
    return next((name for name, entry in TASKS.items() if entry.head in heads), None)


def _record(subject: Subject) -> dict[str, Any]:
    """What the training wrote down; nothing where others trained."""
    file = subject.path / OURS
    record = read_object(file).get("record") if file.is_file() else None
    return record if isinstance(record, dict) else {}


def _shapes(subject: Subject) -> dict[str, tuple[int, ...]]:
    if subject.path.is_file():
        return {}
    return {name: tensor.shape for name, tensor in open_weights(subject.path, shapes_only=True).tensors.items()}


def _known(architecture: str | None) -> str | None:
    return architecture if architecture in ARCHITECTURES else None
