"""Folders of word2vec, and files of word vectors, which are opened as one."""

from pathlib import Path

from qkv.models.family import ENCODES, FEEDS, LOOKS_UP, SHOWS_LAYERS, Facts, Loading, Opened
from qkv.models.plain.folder import family_below, open_below
from qkv.models.word2vec.vectors import VectorFile, open_table, words_of
from qkv.report.bilingual import Phrase

_ABOUT = Phrase("word vectors", "词向量")
_OWN = {LOOKS_UP: words_of}
WORD2VEC = family_below("word2vec", _ABOUT, "table", open_table, _OWN)


def describe_vectors(file: Path) -> Facts:
    """Of a file. How many words it has would take reading it."""
    size = file.stat().st_size
    document = {"path": str(file), "model_type": "word2vec", "bytes": size}
    abilities = (LOOKS_UP, ENCODES, FEEDS, SHOWS_LAYERS)
    return Facts("word2vec", "word2vec", file, _ABOUT, "table", abilities, document)


def open_vectors(file: Path, loading: Loading) -> Opened:
    """A file of the C tool's or GloVe's form."""
    return open_below(describe_vectors(file), VectorFile(file), _OWN, loading)
