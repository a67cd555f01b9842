"""Tiny random models that translate or read on, for tests of inside/."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from qkv.look.subject import Subject, open_subject
from qkv.models.folders.own import save_folder
from qkv.models.plain.folder import save_reader
from qkv.models.plain.network import ReaderConfig, ReaderWithHeads
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.folder import save_translation
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.text.tokenizer import Tokenizer
from tests.support.below_readers import word_tokenizer
from tests.support.folders import make_tokenizer, randomise

TEXT = "the cat sat on the mat."
SIZES: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "heads": 2, "inner_width": 32}


def translator(folder: Path, kind: str, decoding: dict[str, Any] | None = None, **changes: Any) -> Subject:
    """`kind`: "transformer" or "seq2seq"."""
    tokenizer = make_tokenizer()
    network: Transformer | Seq2Seq
    if kind == "transformer":
        network = Transformer(TransformerConfig(tokenizer.size, **(SIZES | changes)))
    else:
        network = Seq2Seq(Seq2SeqConfig(tokenizer.size, **({"width": 12, "cell_width": 8} | changes)))
    randomise(network, seed=4)
    record = {"max_length": 20, "config": {"decoding": {"max_length": 9} | (decoding or {})}}
    return open_subject(save_translation(folder, network, tokenizer, tokenizer, record))


def rnnlm(folder: Path, cell: str, **changes: Any) -> Subject:
    tokenizer = word_tokenizer()
    network = RNNLM(RNNLMConfig(tokenizer.size, cell=cell, layers=2, **({"width": 6} | changes)))
    randomise(network, seed=5)
    sizes = asdict(network.config)
    return open_subject(save_folder(folder, "rnnlm", sizes, network.state_dict(), tokenizer))


def reader(folder: Path, kind: str, tokenizer: Tokenizer | None = None, **changes: Any) -> Subject:
    tokenizer = tokenizer or word_tokenizer()
    sizes = {"embedding_width": 6, "inner_width": 5} | changes
    model = ReaderWithHeads(ReaderConfig(kind, vocabulary_size=tokenizer.size, **sizes), ["sequence"], words=tokenizer)
    randomise(model, seed=6)
    return open_subject(save_reader(folder, model, tokenizer, ["no", "yes"]))
