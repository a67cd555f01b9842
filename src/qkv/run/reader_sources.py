"""What a reader that is made for a task finds below it: word vectors, or a pretrained language model.

    word2vec   a folder, or a file of the C tool's form: a vector a word, the first weights of a table
    nnlm       its table, which is the same thing
    elmo       all of it: a token has a vector of every layer, and the task learns how much of each it uses
    rnnlm      all of it: the state after each token

A tokenizer comes along. Another one can be given where vectors are found by how a word is written, for ELMo if it cuts
texts into the same kind of tokens; the rows of a recurrent model are its own tokens'.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from qkv.errors import InputError, reading
from qkv.interop.features import SIZES, Features, read_features
from qkv.interop.folder import WEIGHTS, model_type_of, read_folder
from qkv.interop.hub import locate
from qkv.interop.vectors import is_writable
from qkv.models.elmo import ElmoConfig
from qkv.run.load import model_folder
from qkv.run.word_vectors import WordVectors, load_vectors
from qkv.tokenizer import Tokenizer
from qkv.wordpiece import SPECIAL

BELOW = ("word2vec", "nnlm", *SIZES)
"""The model_types that a reader can be put on."""
TABLE = "embedding.weight"  # of an nnlm


@dataclass(frozen=True)
class Source:
    place: Path
    below: WordVectors | Features
    tokenizer: Tokenizer

    @property
    def name(self) -> str:
        """To be shown: its own, or that of the run that it is the model of."""
        path = self.place.resolve()
        return path.parent.name if path.name == "model" else path.name


def source_place(name: str) -> Path:
    path = Path(os.path.expanduser(name))
    return path if path.is_file() else model_folder(locate(name))


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
    given = None if tokenizer is None else Tokenizer.load(model_folder(locate(tokenizer)))
    if model_type in SIZES:
        return _language_model(source_place(name), model_type, given, tokenizer)
    if model_type in ("bert", "reader"):
        raise InputError(
            f"{name} holds a model of type {model_type}, which reads texts by itself: give it with --model, and leave "
            f"--embeddings out. --embeddings takes {', '.join(BELOW)}, or a file of word vectors."
        )
    vectors = _table(source_place(name)) if model_type == "nnlm" else load_vectors(name)
    return Source(source_place(name), vectors, given or _of_vectors(source_place(name), vectors))


def tokenizer_of(embeddings: str | None, tokenizer: str | None) -> Tokenizer:
    """The one that a reader is going to have."""
    if tokenizer is not None:
        return Tokenizer.load(model_folder(locate(tokenizer)))
    assert embeddings is not None
    place = source_place(embeddings)
    return Tokenizer.load(place) if place.is_dir() else _of_vectors(place, load_vectors(embeddings))


def _language_model(place: Path, model_type: str, given: Tokenizer | None, tokenizer: str | None) -> Source:
    features = read_features(place)
    own = features.tokenizer
    if given is None:
        return Source(place, features, own)
    if not isinstance(features.config, ElmoConfig):
        raise InputError(
            f"{place} is a model of type {model_type}, whose vectors belong to the tokens of its own tokenizer: leave "
            "--tokenizer out."
        )
    for what in ("kind", "lowercase", "segmenter"):
        mine, other = getattr(own, what), getattr(given, what)
        alike = mine == other if what != "segmenter" else (mine is None) == (other is None)
        if not alike:
            raise InputError(
                f"{place} has learned how tokens of its own tokenizer ({what} {mine}) are spelled, and those of "
                f"{tokenizer} ({what} {other}) are others: leave --tokenizer out, or give one that is alike."
            )
    return Source(place, features, given)


def _table(place: Path) -> WordVectors:
    folder = read_folder(place, "nnlm")
    vocabulary = folder.tokenizer.vocabulary
    table = folder.tensors.get(TABLE)
    if table is None or table.dim() != 2 or len(table) < folder.tokenizer.size:
        raise InputError(f"{place / WEIGHTS} has no table {TABLE} of {folder.tokenizer.size:,} tokens.")
    return WordVectors(list(vocabulary), table[list(vocabulary.values())], str(place), fold=str)


def _of_vectors(place: Path, vectors: WordVectors) -> Tokenizer:
    if place.is_dir():
        return Tokenizer.load(place)
    words = [word for word in vectors.words if is_writable(word) and word not in SPECIAL]
    return Tokenizer.from_vocabulary([*SPECIAL, *words], "word")
