"""What a reader that is made for a task finds below it: word vectors, or a pretrained language model.

    word2vec   a folder, or a file of the C tool's form: a vector a word, the first weights of a table
    nnlm       its table, which is the same thing
    elmo       all of it: a token has a vector of every layer, and the task learns how much of each it uses
    rnnlm      all of it: the state after each token

A tokenizer comes along. Another one can be given where vectors are found by how a word is written, for ELMo if it cuts
texts into the same kind of tokens; the rows of a recurrent model are its own tokens'.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from qkv.errors import InputError, reading
from qkv.models.elmo.network import ElmoConfig
from qkv.models.folders import hub
from qkv.models.folders.codec import model_type_of
from qkv.models.folders.hub import locate
from qkv.models.plain.contextual import Pretrained, width_of
from qkv.models.plain.features import SIZES, Features, read_features
from qkv.models.word2vec.vectors import WordVectors, load_vectors, look_up_tokens, tokenizer_of_words
from qkv.text.tokenizer import Tokenizer
from qkv.train.run_folder import model_folder

BELOW = ("word2vec", "nnlm", *SIZES)
"""The model_types that a reader can be put on."""


@dataclass(frozen=True)
class Source:
    place: Path
    below: WordVectors | Features
    tokenizer: Tokenizer

    @property
    def name(self) -> str:
        return shown_name(self.place)


def shown_name(place: str | Path) -> str:
    """To be shown or handed on: a folder's or file's own name, or that of the run that it is the model of.

    >>> shown_name("here/elmo"), shown_name("here/run/model"), shown_name("scratch:lstm")
    ('elmo', 'run', 'scratch:lstm')
    """
    path = Path(place).resolve()
    return path.parent.name if path.name == "model" else path.name


def source_place(name: str) -> Path:
    path = Path(os.path.expanduser(name))
    return path if path.is_file() and name not in hub.MODELS else model_folder(locate(name))


def source_type(name: str) -> str:
    """The model_type of what `embeddings` names; a file has word vectors."""
    path = Path(os.path.expanduser(name))
    if path.is_file() or not (path.exists() or ":" in name):  # what is not there is told when it is opened
        return "word2vec"
    with reading(name):
        return model_type_of(source_place(name)) or "word2vec"


def open_source(name: str, tokenizer: str | None) -> Source:
    """`tokenizer` is a folder with another one than comes along."""
    model_type = source_type(name)
    given = None if tokenizer is None else tokenizer_in(tokenizer)
    if model_type in SIZES:
        return _language_model(source_place(name), model_type, given, tokenizer)
    if model_type in ("bert", "reader"):
        raise InputError(
            f"{name} holds a model of type {model_type}, which reads texts by itself: give it with --model, and leave "
            f"--embeddings out. --embeddings takes {', '.join(BELOW)}, or a file of word vectors."
        )
    vectors, place = load_vectors(name), source_place(name)
    # a file of vectors has words and no tokenizer
    own = given or (Tokenizer.load(place) if place.is_dir() else tokenizer_of_words(vectors.words))
    return Source(place, vectors, own)


def tokenizer_in(name: str) -> Tokenizer:
    """That of a folder, or of a run's model."""
    return Tokenizer.load(model_folder(locate(name)))


def _language_model(place: Path, model_type: str, given: Tokenizer | None, tokenizer: str | None) -> Source:
    below = open_below(place, model_type)
    assert isinstance(below.source, Features)
    if given is None:
        return Source(place, below.source, below.tokenizer)
    assert tokenizer is not None, "a tokenizer that is given has a name"
    below.check_tokenizer(given, tokenizer)
    return Source(place, below.source, given)


@dataclass(frozen=True)
class Below:
    """What an encoder that is made from nothing is put on (`Feeds` of models/family.py)."""

    place: Path
    model_type: str
    source: WordVectors | Features
    tokenizer: Tokenizer

    @property
    def width(self) -> int:
        return self.source.width if isinstance(self.source, WordVectors) else width_of(self.source.config)

    @property
    def features(self) -> Pretrained | None:
        return None if isinstance(self.source, WordVectors) else self.source.config

    def weights(self) -> Mapping[str, Tensor]:
        return {} if isinstance(self.source, WordVectors) else self.source.tensors

    def table(self, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
        assert isinstance(self.source, WordVectors), "a language model has no table"
        return look_up_tokens(tokenizer, self.source)

    def check_tokenizer(self, given: Tokenizer, name: str) -> None:
        if isinstance(self.source, WordVectors):
            return
        if not isinstance(self.source.config, ElmoConfig):
            raise InputError(
                f"{self.place} is a model of type {self.model_type}, whose vectors belong to the tokens of its own "
                "tokenizer: leave --tokenizer out."
            )
        for what in ("kind", "lowercase", "segmenter"):
            mine, other = getattr(self.tokenizer, what), getattr(given, what)
            alike = mine == other if what != "segmenter" else (mine is None) == (other is None)
            if not alike:
                raise InputError(
                    f"{self.place} has learned how tokens of its own tokenizer ({what} {mine}) are spelled, and those "
                    f"of {name} ({what} {other}) are others: leave --tokenizer out, or give one that is alike."
                )


def open_below(place: Path, model_type: str) -> Below:
    if model_type in SIZES:
        features = read_features(place)
        return Below(place, model_type, features, features.tokenizer)
    vectors = load_vectors(place)
    # a file of vectors has words and no tokenizer
    tokenizer = Tokenizer.load(place) if place.is_dir() else tokenizer_of_words(vectors.words)
    return Below(place, model_type, vectors, tokenizer)
