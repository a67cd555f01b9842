"""A model that is looked into, whatever it is: what it can show, and its parts, each opened when it is first needed.

`open_subject` reads what the folder says and the headers of its weights, so that a half-written one is refused at once,
and loads no weights. What can be shown follows from what the model can be asked (models/family.py).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from qkv.api.model import Model
from qkv.api.translator import Translator, load_translator
from qkv.look.wire import LONGEST, RefusalError
from qkv.models.encoder import Encoder
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    LOOKS_UP,
    RECURS,
    SHOWS_LAYERS,
    TRANSLATES,
    Ability,
    Facts,
    Opened,
)
from qkv.models.folders.hub import DEFAULT_MODEL, HUB, locate
from qkv.models.table import facts_of_folder, open_model
from qkv.models.word2vec.vectors import WordVectors
from qkv.tasks.table import detect_task
from qkv.tasks.translate import TranslationNetwork
from qkv.train.run_folder import model_folder

VIEWS = ("attention", "fill", "meanings", "positions", "translation", "vectors", "tasks", "recurrence")
"""In the order of the page."""
VIEW_OF: dict[Ability[Any], str] = {
    ATTENDS: "attention",
    FILLS: "fill",
    JUDGES_PAIRS: "fill",
    SHOWS_LAYERS: "meanings",
    TRANSLATES: "translation",
    LOOKS_UP: "vectors",
    HAS_TASK: "tasks",
    RECURS: "recurrence",
}
"""Which view shows what a model can be asked; all models have positions, since the sinusoids need none."""


@dataclass(frozen=True, eq=False)
class Subject:
    name: str  # what the user typed
    facts: Facts
    threads: int | None = None

    @property
    def path(self) -> Path:
        return self.facts.path

    @property
    def kind(self) -> str:
        """What frames and the page call it."""
        return self.facts.view_kind

    @cached_property
    def title(self) -> str:
        """Short, for a heading: the folder's name, or that of its run, or what the hub calls it."""
        if self.name.startswith(HUB):
            return self.name.removeprefix(HUB).partition("@")[0].rpartition("/")[2]  # its folder is called by a hash
        parts = [part for part in self.path.parts if part not in ("model", "/")]
        return parts[-1] if parts else self.name

    def has(self, ability: Ability[Any]) -> bool:
        return ability in self.facts.abilities

    @property
    def translates(self) -> bool:
        return self.has(TRANSLATES)

    @property
    def is_table(self) -> bool:
        """Whether a word has one vector, wherever it stands, and is looked up."""
        return self.has(LOOKS_UP)

    @property
    def network(self) -> TranslationNetwork | Encoder:
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
    def opened(self) -> Opened:
        return open_model(self.path)

    @cached_property
    def model(self) -> Model:
        """What `qkv.load` gives; of all that encode texts."""
        if not self.has(ENCODES):
            raise self.refusal("no_model", "which no text can be read with")
        return Model(self.opened, torch.device("cpu"), self.threads)

    @cached_property
    def translator(self) -> Translator:
        if not self.translates:
            raise self.refusal("no_translation", "which does not translate")
        return load_translator(self.path, threads=self.threads)

    @cached_property
    def vectors(self) -> WordVectors:
        if not self.is_table:
            raise self.refusal("no_vectors", "in which a word has no vector of its own")
        found: WordVectors = self.opened.ability(LOOKS_UP).vectors()
        return found

    @property
    def recurrent(self) -> Any:
        """The network that recurs."""
        if not self.has(RECURS):
            kind = self.facts.shown.get("reader")
            raise self.refusal("no_recurrence", f"{f'a {kind}, ' if kind else ''}which has no recurrent layer")
        return self.opened.ability(RECURS)

    def load(self) -> None:
        """The weights, before anybody asks; an InputError says what is wrong with them."""
        if self.translates:
            _ = self.translator
            return
        _ = self.vectors if self.is_table else self.model
        if self.has(RECURS):
            _ = self.recurrent

    def refusal(self, code: str, why: str) -> RefusalError:
        return RefusalError(
            code, f"{self.title} is a model of kind {self.kind}, {why}.", model=self.title, kind=self.kind
        )


def open_subject(name: str | os.PathLike[str] = DEFAULT_MODEL, threads: int | None = None) -> Subject:
    """By a folder, a run, a file of word vectors, a name of the zoo, or hf:owner/name."""
    text = os.fspath(name)
    file = Path(os.path.expanduser(text))
    return Subject(text, facts_of_folder(file if file.is_file() else model_folder(locate(text))), threads)


# --- What there is to look at: every model with its views and a few facts, found without loading a weight.

VERSION = 1
_LANGUAGES = ("zh", "en")


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
    facts = subject.facts
    return {
        "name": subject.name,
        "title": subject.title,
        "kind": subject.kind,
        "views": views_of(facts),
        "heads": list(facts.heads),
        "task": detect_task(facts.record, facts.heads),
        "facts": dict(facts.shown),
    }


def views_of(facts: Facts) -> list[str]:
    """In the order of the page."""
    found = {"positions", *(VIEW_OF[one] for one in facts.abilities if one in VIEW_OF)}
    return [view for view in VIEWS if view in found]
