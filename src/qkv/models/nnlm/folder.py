"""Folders of NNLM (models/folders/own.py): its table, which serves as word vectors, and the whole network."""

from qkv.config import merge
from qkv.models.family import LOOKS_UP, SHOWS_LAYERS, Facts, Loading, Opened
from qkv.models.folders.own import CONFIG, OwnFolder
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.plain.folder import load_whole, open_below
from qkv.models.word2vec.folder import StoredTable, open_stored_table, words_of


def _whole(below: StoredTable, loading: Loading) -> NNLM:
    folder = below.folder
    return load_whole(NNLM(merge(NNLMConfig(1), folder.config, str(folder.path / CONFIG))), folder, loading)


def open_nnlm(folder: OwnFolder, facts: Facts, loading: Loading) -> Opened:
    table = open_stored_table(folder, "embedding.weight")
    return open_below(facts, table, {LOOKS_UP: words_of, SHOWS_LAYERS: _whole}, loading)
