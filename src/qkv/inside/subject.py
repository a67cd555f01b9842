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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qkv.errors import reading
from qkv.inside.reply import RefusalError
from qkv.interop.folder import GPTS, model_type_of
from qkv.interop.hub import HUB, locate
from qkv.interop.zoo import DEFAULT_MODEL
from qkv.json_file import read_object
from qkv.run.elmo import LoadedElmo, load_elmo
from qkv.run.language_model import LanguageModel, load_language_model
from qkv.run.load import load
from qkv.run.places import model_folder
from qkv.run.predict import Model
from qkv.run.translate import Translator, load_translator
from qkv.run.word_vectors import WordVectors, load_vectors

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

    @cached_property
    def model(self) -> Model:
        """What `qkv.load` gives; of all kinds but those that translate and files of vectors."""
        if self.kind in ("transformer", "seq2seq") or self.path.is_file():
            raise self.refusal("no_model", "which no text can be read with")
        return load(self.name, threads=self.threads)

    @cached_property
    def translator(self) -> Translator:
        if self.kind not in ("transformer", "seq2seq"):
            raise self.refusal("no_translation", "which does not translate")
        return load_translator(self.name, threads=self.threads)

    @cached_property
    def vectors(self) -> WordVectors:
        if self.kind not in ("table", "nnlm"):
            raise self.refusal("no_vectors", "in which a word has no vector of its own")
        return load_vectors(self.name)

    @cached_property
    def language_model(self) -> LanguageModel:
        if self.kind not in ("rnnlm", "nnlm"):
            raise self.refusal("no_recurrence", "which is no recurrent language model")
        return load_language_model(self.path)

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
    read_object(path / "config.json")  # what is wrong with the weights is said by whoever looks at them (room.py)
    return Subject(text, path, KIND_OF.get(model_type or "", "bert"), threads)
