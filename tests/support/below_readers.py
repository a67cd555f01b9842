"""Tiny pretrained language models for tests, as `qkv pretrain` would write them: what a reader can be put on."""

from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.folders.own import save_folder
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import TOKENS

WORDS = [token for token in TOKENS if not token.startswith("##") and token not in ("dog", "paris")]
"""Two words of the labelled sets are outside of it."""


def tokens_by_id(tokenizer: Tokenizer) -> list[str]:
    return sorted(tokenizer.vocabulary, key=tokenizer.vocabulary.__getitem__)


def word_tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(WORDS, "word", lowercase=True)


def elmo_config(tokenizer: Tokenizer, **changes: int) -> ElmoConfig:
    sizes = {"byte_width": 4, "longest": 12, "width": 5, "cell_width": 7} | changes
    return ElmoConfig(tokenizer.size, filters=(4, 4, 4), **sizes)


def make_elmo(path: Path, tokenizer: Tokenizer | None = None, **changes: int) -> Path:
    tokenizer = tokenizer or word_tokenizer()
    torch.manual_seed(1)
    network = Elmo(elmo_config(tokenizer, **changes), tokens_by_id(tokenizer))
    return _written(path, "elmo", network, asdict(network.config), tokenizer)


def make_rnnlm(path: Path) -> Path:
    tokenizer = word_tokenizer()
    torch.manual_seed(2)
    network = RNNLM(RNNLMConfig(tokenizer.size, cell="gru", width=6, cell_width=7, tied=False))
    return _written(path, "rnnlm", network, asdict(network.config), tokenizer)


def make_nnlm(path: Path) -> Path:
    tokenizer = word_tokenizer()
    torch.manual_seed(3)
    network = NNLM(NNLMConfig(tokenizer.size, width=6))
    return _written(path, "nnlm", network, asdict(network.config), tokenizer)


def _written(path: Path, model_type: str, network: nn.Module, config: dict[str, object], tokenizer: Tokenizer) -> Path:
    return save_folder(path, model_type, config, network.state_dict(), tokenizer)
