"""A tiny random OPUS-MT folder, without its tokenizers: written from the table of names, without transformers."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from qkv.files import to_json
from qkv.models.transformer.marian import BIAS, LAYER_KEYS
from qkv.models.transformer.network import Transformer, TransformerConfig
from tests.support.folders import randomise

SMALL: dict[str, Any] = {
    "encoder_layers": 1,
    "decoder_layers": 2,
    "width": 16,
    "heads": 4,
    "inner_width": 24,
    "max_length": 64,
    "activation": "silu",
    "positions": "halved",
}
FIELDS: dict[str, Any] = {
    "model_type": "marian",
    "activation_function": "swish",
    "attention_dropout": 0.0,
    "d_model": 16,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 24,
    "decoder_layers": 2,
    "decoder_start_token_id": 29,
    "dropout": 0.1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "encoder_layers": 1,
    "eos_token_id": 0,
    "is_encoder_decoder": True,
    "max_position_embeddings": 64,
    "pad_token_id": 29,
    "scale_embedding": True,
    "vocab_size": 30,
    "bad_words_ids": [[29]],
    "num_beams": 6,
    "max_length": 48,
}


def tensors_of(model: Transformer) -> dict[str, Tensor]:
    """The table from left to right: our tensors under their names."""
    state = model.state_dict()
    found = {"model.shared.weight": state.pop("embedding.weight"), BIAS: state.pop("words.bias")[None]}
    for name, tensor in state.items():
        side, number, rest = name.split(".", 2)
        layer, kind = rest.rsplit(".", 1)
        theirs = LAYER_KEYS[side][layer]
        for one, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            found[f"model.{side}.layers.{number}.{one}.{kind}"] = part.clone()
    return found


def marian_network() -> Transformer:
    model = Transformer(TransformerConfig(30, **SMALL))
    randomise(model)
    return model.eval()


def make_marian(path: Path, model: Transformer | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(to_json(FIELDS), encoding="utf-8")
    save_file(tensors_of(model or marian_network()), path / "model.safetensors")
    return path
