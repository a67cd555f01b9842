"""Folders of NNLM (models/folders/own.py): its table, which serves as word vectors, and the whole network."""

from functools import partial

import torch
from torch import Tensor

from qkv.config import merge
from qkv.models.family import LOOKS_UP, SHOWS_LAYERS, Facts, Loading, Opened, PredictsNext
from qkv.models.folders.own import CONFIG, OwnFolder
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.plain.folder import OwnParts, PredictsWith, load_whole, open_below
from qkv.models.word2vec.folder import StoredTable, open_stored_table, words_of
from qkv.text.tokenizer import Encoded, Tokenizer


def _whole(below: StoredTable, loading: Loading) -> NNLM:
    folder = below.folder
    return load_whole(NNLM(merge(NNLMConfig(1), folder.config, str(folder.path / CONFIG))), folder, loading)


def _predicts(network: NNLM, tokenizer: Tokenizer) -> PredictsNext:
    return PredictsNext(network, partial(_scores, network), network.config.begin_id, end_id=None)


def _scores(network: NNLM, row: Encoded) -> dict[str, Tensor]:
    """(N, V)"""
    return {"forward": network.predict(network(torch.tensor(row.ids), torch.arange(len(row.ids))))}


def open_nnlm(folder: OwnFolder, facts: Facts, loading: Loading) -> Opened:
    table = open_stored_table(folder, "embedding.weight")
    own: OwnParts = {LOOKS_UP: words_of, SHOWS_LAYERS: _whole}
    return open_below(facts, table, own, loading, PredictsWith(SHOWS_LAYERS, _predicts))
