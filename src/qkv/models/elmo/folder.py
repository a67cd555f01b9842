"""Folders of ELMo (models/folders/own.py): the whole network, and what a task finds below it."""

from functools import partial

from torch import Tensor

from qkv.errors import InputError
from qkv.models.elmo.network import BothWays, Elmo, ElmoConfig, tokens_by_id
from qkv.models.family import RECURS, Facts, Loading, Opened, PredictsNext
from qkv.models.folders.own import OwnFolder
from qkv.models.plain.folder import LanguageModel, PredictsWith, load_whole, open_below, read_features
from qkv.nn.recurrent_stack import DIRECTIONS
from qkv.nn.words import spell
from qkv.text.tokenizer import Encoded, Tokenizer


class _Spelled(LanguageModel):
    """Accepts any tokenizer that splits texts into the same kind of tokens."""

    def check_tokenizer(self, given: Tokenizer, name: str) -> None:
        for what in ("kind", "lowercase", "segmenter"):
            mine, other = getattr(self.tokenizer, what), getattr(given, what)
            alike = mine == other if what != "segmenter" else (mine is None) == (other is None)
            if not alike:
                raise InputError(
                    f"{self.place} has learned how tokens of its own tokenizer ({what} {mine}) are spelled, and those "
                    f"of {name} ({what} {other}) are others: leave --tokenizer out, or give one that is alike."
                )


def _whole(below: LanguageModel, loading: Loading) -> Elmo:
    assert isinstance(below.features, ElmoConfig)
    return load_whole(Elmo(below.features, tokens_by_id(below.tokenizer)), below.folder, loading)


def _predicts(network: Elmo, tokenizer: Tokenizer) -> PredictsNext:
    return PredictsNext(network, partial(_scores, network), tokenizer.cls_id, tokenizer.sep_id)


def _scores(network: Elmo, row: Encoded) -> dict[str, Tensor]:
    """(N, V) of each direction. A word that is not in the vocabulary is spelled, as any other."""
    x = network.characters(spell(row.tokens, network.config.longest))  # (N, P)
    return {way: network.predict(network.read(way, x, (len(x),))[0][-1]) for way in DIRECTIONS}


def open_elmo(folder: OwnFolder, facts: Facts, loading: Loading) -> Opened:
    below = _Spelled(*read_features(folder, ElmoConfig, BothWays))
    return open_below(facts, below, {RECURS: _whole}, loading, PredictsWith(RECURS, _predicts))
