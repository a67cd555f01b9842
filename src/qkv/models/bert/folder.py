"""Folders of BERT as transformers writes them: its names. How they are loaded, saved and described is in engine.py.

One of our attention's products is theirs of query, key and value, which lie one under the other in ours.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qkv.models.bert.engine import Folder as Folder
from qkv.models.bert.engine import family_of_bert, load_like, save_like
from qkv.models.bert.likes import BertLike, classes_with_next_sentence
from qkv.models.bert.network import BertWithHeads
from qkv.models.folders.fields import NEUTRAL, Fields
from qkv.text.tokenizer import Tokenizer

SIZES: dict[str, str] = {
    "vocab_size": "vocabulary_size",
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "intermediate_size": "inner_width",
    "max_position_embeddings": "max_length",
    "type_vocab_size": "segments",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "head_dropout",
    "hidden_act": "activation",
    "layer_norm_eps": "norm_epsilon",
    "initializer_range": "initial_std",
    "tie_word_embeddings": "tied",
    "pad_token_id": "pad_id",
}
FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "position_embedding_type": (("absolute", None), "qkv's BERT has learned absolute positions"),
    "is_decoder": ((False, None), "qkv's BERT reads in both directions"),
    "add_cross_attention": ((False, None), "qkv's BERT is an encoder alone"),
    "is_encoder_decoder": ((False, None), "qkv's BERT is an encoder alone"),
    "pruned_heads": (({}, None), "qkv's BERT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
    "per_layer_config": ((None, {}), "qkv's BERT has layers of one shape"),
}
_POOLERS = frozenset(
    {
        *("directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
        *("pooler_size_per_head", "pooler_type"),
    }
)
"""Of Google, for a pooler that was never used."""

_LAYER = "encoder.layer.{i}."
KEYS: dict[str, tuple[str, ...]] = {
    "embedding.token": ("embeddings.word_embeddings",),
    "embedding.segment": ("embeddings.token_type_embeddings",),
    "embedding.position": ("embeddings.position_embeddings",),
    "embedding.norm": ("embeddings.LayerNorm",),
    "blocks.{i}.attention.qkv": (
        f"{_LAYER}attention.self.query",
        f"{_LAYER}attention.self.key",
        f"{_LAYER}attention.self.value",
    ),
    "blocks.{i}.attention.out": (f"{_LAYER}attention.output.dense",),
    "blocks.{i}.attention_norm": (f"{_LAYER}attention.output.LayerNorm",),
    "blocks.{i}.feed_forward.up": (f"{_LAYER}intermediate.dense",),
    "blocks.{i}.feed_forward.down": (f"{_LAYER}output.dense",),
    "blocks.{i}.feed_forward_norm": (f"{_LAYER}output.LayerNorm",),
}
HEAD_KEYS: dict[str, dict[str, str]] = {
    "masked": {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"},
    "next_sentence": {"linear": "cls.seq_relationship"},
    "sequence": {"linear": "classifier"},
    "token": {"linear": "classifier"},
    "choice": {"linear": "classifier"},
    "span": {"linear": "qa_outputs"},
}


BERT_NAMES = BertLike(
    name="bert",
    title="BERT",
    prefix="bert.",
    fields=Fields(SIZES, fixed=FIXED, neutral=NEUTRAL | _POOLERS),
    classes=classes_with_next_sentence("Bert"),
    keys=KEYS,
    heads=HEAD_KEYS,
    masked_bias="cls.predictions.bias",
    decoder="cls.predictions.decoder",
    decoder_bias="cls.predictions.decoder.bias",
)
BERT = family_of_bert(BERT_NAMES)

read_config = BERT_NAMES.read_config
load = partial(load_like, BERT_NAMES)


def save(
    path: str | Path,
    model: BertWithHeads,
    tokenizer: Tokenizer,
    labels: Sequence[str] = (),
    architecture: str | None = None,
    **rest: Any,
) -> Path:
    """Write a folder that transformers and qkv load; return its path (engine.save_like)."""
    return save_like(BERT_NAMES, path, model, tokenizer, labels, architecture, **rest)
