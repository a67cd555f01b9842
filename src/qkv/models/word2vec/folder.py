"""Folders of word2vec, and files of word vectors, which are opened as one."""

from pathlib import Path

from qkv.models.family import ENCODES, FEEDS, LOOKS_UP, SHOWS_LAYERS, Facts, Loading, Opened
from qkv.models.plain.pretrained import OwnParts, family_below, opened_below
from qkv.models.word2vec.vectors import StoredVectors
from qkv.report.bilingual import Phrase

_ABOUT = Phrase("word vectors", "词向量")
_OWN: OwnParts = {
    LOOKS_UP: lambda path, loading: StoredVectors(path),
    SHOWS_LAYERS: lambda path, loading: StoredVectors(path).vectors(),
}
WORD2VEC = family_below("word2vec", _ABOUT, "table", _OWN)


def describe_vectors(file: Path) -> Facts:
    """Of a file. How many words it has would take reading it."""
    shown = {"bytes": file.stat().st_size}
    document = {"path": str(file), "model_type": "word2vec", **shown}
    abilities = (LOOKS_UP, ENCODES, FEEDS, SHOWS_LAYERS)
    return Facts("word2vec", "word2vec", file, _ABOUT, "table", abilities, document, shown=shown)


def open_vectors(file: Path, loading: Loading) -> Opened:
    """A file of the C tool's or GloVe's form."""
    return opened_below(describe_vectors(file), loading, _OWN)
