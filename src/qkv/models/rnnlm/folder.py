"""Folders of recurrent language models (models/folders/own.py): generation, and features for tasks.

It writes with its state as what decoding goes on from (search/decoding.py). It has no positions, so a text may become
as long as one likes; what a row remembers is one vector a layer.

Shapes: N tokens of all rows, R prompts, Q rows (hypotheses of all prompts), V vocabulary.
"""

from functools import partial

import torch
from torch import Tensor

from qkv.data.batch import Packing
from qkv.errors import InputError
from qkv.models.family import RECURS, WRITES, Facts, Loading, Opened, PredictsNext, Writes
from qkv.models.folders.own import OwnFolder
from qkv.models.gpt.tokenizer import never_written
from qkv.models.plain.folder import LanguageModel, PredictsWith, load_whole, open_below, read_features
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig, RNNStates
from qkv.nn.recurrent_stack import States
from qkv.search.decoding import Stepped
from qkv.text.tokenizer import Encoded, Tokenizer


class RecurrentState:
    def __init__(self, states: States) -> None:
        self.states = states

    def select(self, rows: Tensor) -> "RecurrentState":
        """(Q',): row i continues the former row rows[i]; a row may be taken twice, or not at all."""
        return RecurrentState(tuple(tuple(part[rows] for part in layer) for layer in self.states))


class RecurrentWriting:
    """The same interface as a GPT: `start` reads prompts except their last tokens, `step` takes the last token."""

    def __init__(self, network: RNNLM) -> None:
        self.network = network

    @torch.no_grad()
    def start(self, prompt: Tensor, prompt_packing: Packing, *, hypotheses: int = 1, longest: int) -> RecurrentState:
        """Row r · hypotheses + j is hypothesis j of prompt r (N,)."""
        lengths = torch.tensor(prompt_packing.lengths)
        read = torch.ones(len(prompt), dtype=torch.bool)
        read[lengths.cumsum(0) - 1] = False
        states = self.network.begin(len(lengths))
        long = (lengths > 1).nonzero().squeeze(1)
        if len(long):
            ids = prompt[read.nonzero().squeeze(1).to(prompt.device)]
            _, found = self.network(ids, tuple((lengths[long] - 1).tolist()))
            rows = long.to(prompt.device)
            for layer, after in zip(states, found, strict=True):
                for part, values in zip(layer, after, strict=True):
                    part[rows] = values
        each = torch.arange(len(lengths), device=prompt.device).repeat_interleave(hypotheses)
        return RecurrentState(states).select(each)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: RecurrentState) -> Stepped[RecurrentState]:
        """(Q,) → scores of the next (Q, V)."""
        hidden, states = self.network(tokens, (1,) * len(tokens), state.states)
        return Stepped(self.network.predict(hidden), RecurrentState(states), None)


def _whole(below: LanguageModel, loading: Loading) -> RNNLM:
    assert isinstance(below.features, RNNLMConfig)
    return load_whole(RNNLM(below.features), below.folder, loading)


def _writes(below: LanguageModel, loading: Loading) -> Writes:
    if loading.precision != "fp32":
        raise InputError(
            f"Precision {loading.precision} is for a GPT, and {below.place} is a recurrent network. Use fp32."
        )
    network, tokenizer = _whole(below, loading), below.tokenizer
    never = never_written(tokenizer, network.config.vocabulary_size, tokenizer.sep_id)
    return Writes(RecurrentWriting(network), tokenizer, tokenizer.cls_id, tokenizer.sep_id, True, None, never)


def _predicts(network: RNNLM, tokenizer: Tokenizer) -> PredictsNext:
    return PredictsNext(network, partial(_scores, network), tokenizer.cls_id, end_id=None)


def _scores(network: RNNLM, row: Encoded) -> dict[str, Tensor]:
    """(N, V)"""
    hidden, _ = network(torch.tensor(row.ids), (len(row.ids),))
    return {"forward": network.predict(hidden)}


def open_rnnlm(folder: OwnFolder, facts: Facts, loading: Loading) -> Opened:
    below = LanguageModel(*read_features(folder, RNNLMConfig, RNNStates))
    return open_below(facts, below, {WRITES: _writes, RECURS: _whole}, loading, PredictsWith(RECURS, _predicts))
