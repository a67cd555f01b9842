"""A model shown by `qkv look`: its views, and its parts, each loaded on first use.

`open_subject` reads the folder's metadata and the headers of its weights, so that incomplete folders are refused at
once, but loads no weights. The views follow from the model's abilities (models/family.py).
"""

import csv
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from qkv.api.model import Model
from qkv.api.translator import Translator, load_translator
from qkv.errors import InputError
from qkv.look.wire import TEXT_LIMIT, RefusalError
from qkv.models.encoder import Encoder
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    LOOKS_UP,
    PREDICTS_NEXT,
    RECURS,
    SHOWS_LAYERS,
    TRANSLATES,
    WRITES,
    Ability,
    Facts,
    Opened,
    PredictsNext,
)
from qkv.models.folders import hub
from qkv.models.folders.hub import DEFAULT_MODEL, HUB, locate
from qkv.models.table import describe_model, open_model
from qkv.models.word2vec.folder import WordVectors
from qkv.tasks.table import detect_task
from qkv.tasks.translate import TranslationNetwork

VIEWS = ("attention", "fill", "next", "meanings", "positions", "translation", "vectors", "tasks", "recurrence")
"""In the order of the page."""
VIEW_BY_ABILITY: dict[Ability[Any], str] = {
    ATTENDS: "attention",
    FILLS: "fill",
    JUDGES_PAIRS: "fill",
    PREDICTS_NEXT: "next",
    SHOWS_LAYERS: "meanings",
    TRANSLATES: "translation",
    LOOKS_UP: "vectors",
    HAS_TASK: "tasks",
    RECURS: "recurrence",
}
"""The view of each ability; all models have the view of positions, which shows the sinusoids."""


@dataclass(frozen=True, eq=False)
class Subject:
    name: str  # as typed by the user
    facts: Facts
    threads: int | None = None

    @classmethod
    def of(cls, model: Model) -> "Subject":
        """Of a loaded model."""
        subject = cls(model.name, model.opened.facts)
        vars(subject).update(model=model, opened=model.opened)  # what the cached properties would load again
        return subject

    @property
    def path(self) -> Path:
        return self.facts.path

    @property
    def kind(self) -> str:
        """The kind of the model in frames and on the page."""
        return self.facts.view_kind

    @cached_property
    def title(self) -> str:
        """A short title: the name of the folder, of its run, or of the model on the hub."""
        if self.name.startswith(HUB):
            return self.name.removeprefix(HUB).partition("@")[0].rpartition("/")[2]  # its folder's name is a hash
        parts = [part for part in self.path.parts if part not in ("model", "/")]
        return parts[-1] if parts else self.name

    def has(self, ability: Ability[Any]) -> bool:
        return ability in self.facts.abilities

    @property
    def translates(self) -> bool:
        return self.has(TRANSLATES)

    @property
    def is_table(self) -> bool:
        """Whether it is a table of word vectors."""
        return self.has(LOOKS_UP)

    @property
    def network(self) -> TranslationNetwork | Encoder:
        """The network; tables have none."""
        return self.translator.network if self.translates else self.model.network.encoder

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text."""
        return self.translator.max_length if self.translates else self.model.config.max_length

    @cached_property
    def opened(self) -> Opened:
        return open_model(self.path)

    @cached_property
    def model(self) -> Model:
        """The same as `qkv.load` returns, for models that encode texts."""
        if not self.has(ENCODES):
            raise self.refusal("no_model", "which cannot encode texts")
        return Model(self.opened, torch.device("cpu"), self.threads)

    @cached_property
    def translator(self) -> Translator:
        if not self.translates:
            raise self.refusal("no_translation", "which does not translate")
        return load_translator(self.path, threads=self.threads)

    @cached_property
    def vectors(self) -> WordVectors:
        if not self.is_table:
            raise self.refusal("no_vectors", "which has no table of word vectors")
        found: WordVectors = self.opened.ability(LOOKS_UP).vectors()
        return found

    @property
    def recurrent(self) -> Any:
        """The recurrent network."""
        if not self.has(RECURS):
            kind = self.facts.shown.get("reader")
            raise self.refusal("no_recurrence", f"{f'a {kind}, ' if kind else ''}which has no recurrent layer")
        return self.opened.ability(RECURS)

    @property
    def predicts_next(self) -> PredictsNext:
        if not self.has(PREDICTS_NEXT):
            raise self.refusal("no_next_words", "which does not predict the next word")
        return self.opened.ability(PREDICTS_NEXT)

    def load(self) -> None:
        """Load the weights. Raises InputError if they are unusable, NaN and infinite ones included."""
        _ = self.vectors if self.is_table else self.network
        if self.has(PREDICTS_NEXT):
            _ = self.predicts_next
        elif self.has(RECURS) and not self.translates:
            _ = self.recurrent

    def refusal(self, code: str, why: str) -> RefusalError:
        return RefusalError(
            code, f"{self.title} is a model of kind {self.kind}, {why}.", model=self.title, kind=self.kind
        )


def open_subject(name: str | os.PathLike[str] = DEFAULT_MODEL, threads: int | None = None) -> Subject:
    """Open a folder, a run, a file of word vectors, a name of the zoo, or hf:owner/name."""
    text = os.fspath(name)
    file = Path(os.path.expanduser(text))
    return Subject(text, describe_model(file if file.is_file() else locate(text)), threads)


class ExampleClassifier(Subject):
    """A classifier of the package's example headlines: the zoo's sentence encoder with a linear head, fitted in seconds
    when it is first looked at. It makes the view of tasks live before anything was fine-tuned, without weights of its
    own in the package."""

    EXAMPLES = ("news.en.csv", "news.zh.csv")

    @cached_property
    def title(self) -> str:
        return "headlines"

    @cached_property
    def model(self) -> Model:
        from qkv.api.classifier import Classifier

        rows = [row for name in self.EXAMPLES for row in _read_examples(name)]
        classifier = Classifier(self.path, transfer="features", threads=self.threads, device="cpu")
        fitted: Model = classifier.fit([row["text"] for row in rows], [row["label"] for row in rows]).model_
        return fitted

    @cached_property
    def opened(self) -> Opened:
        return self.model.opened


def _read_examples(name: str) -> list[dict[str, str]]:
    with (EXAMPLES_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


EXAMPLES_FOLDER = Path(__file__).resolve().parents[1] / "zoo" / "examples"
_FITTED_ABILITIES = (HAS_TASK, ENCODES, ATTENDS, SHOWS_LAYERS)


def open_example_classifier(threads: int | None = None) -> ExampleClassifier | None:
    """The classifier of example headlines; None in a copy without the sentence encoder."""
    encoder = hub.default_model(ENCODES.name)
    if not (hub.FOLDER / encoder).is_dir():
        return None
    facts = open_subject(encoder).facts
    record = {**facts.record, "task": "classify"}
    fitted = replace(facts, abilities=_FITTED_ABILITIES, heads=("sequence",), record=record)
    return ExampleClassifier(encoder, fitted, threads)


DEMO_RUN = Path("qkv-demo", "finetune")
"""What `qkv demo` fine-tunes, from the folder where it ran: on the default page it takes the place of the examples'."""


def open_shipped(threads: int | None = None) -> list[Subject]:
    """The models that came with this copy of qkv: the default first, then what writes, so that a page opens with these;
    and one with a task: the run of `qkv demo`, if it is in the current folder, else the classifier of the example
    headlines. Loads no weights."""
    names = [name for name in hub.MODELS if (hub.FOLDER / name).is_dir()] or [DEFAULT_MODEL]
    found = [open_subject(name, threads) for name in names]
    found.sort(key=lambda one: (one.name != DEFAULT_MODEL, not one.has(WRITES)))
    if (DEMO_RUN / "model" / "config.json").is_file():
        try:
            found.append(open_subject(DEMO_RUN.absolute(), threads))
        except InputError as error:  # of a demonstration long ago, perhaps: no reason to show nothing
            warnings.warn(f"{DEMO_RUN} is left out of the page. {error}", stacklevel=2)
    if not any(one.has(HAS_TASK) for one in found) and (examples := open_example_classifier(threads)) is not None:
        found.append(examples)
    return found


VERSION = 1
_LANGUAGES = ("zh", "en")


def describe_models(subjects: Sequence[Subject], examples: Mapping[str, Any]) -> dict[str, Any]:
    """The initial data of a page: models with their views and facts, examples, limits. Loads no weights."""
    return {
        "version": VERSION,
        "languages": list(_LANGUAGES),
        "subjects": [{"index": index, **describe_subject(subject)} for index, subject in enumerate(subjects)],
        "examples": dict(examples),
        "limits": {"characters": TEXT_LIMIT},
    }


def describe_subject(subject: Subject) -> dict[str, Any]:
    facts = subject.facts
    return {
        "name": subject.name,
        "title": subject.title,
        "kind": subject.kind,
        "views": list_views(facts),
        "heads": list(facts.heads),
        "task": detect_task(facts.record, facts.heads),
        "facts": dict(facts.shown),
    }


def list_views(facts: Facts) -> list[str]:
    """In the order of the page."""
    found = {"positions", *(VIEW_BY_ABILITY[one] for one in facts.abilities if one in VIEW_BY_ABILITY)}
    return [view for view in VIEWS if view in found]
