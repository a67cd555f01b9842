"""OPUS-MT folders (Tiedemann and Thottingal 2020), as transformers stores Marian's models: config.json and weights.

Marian's network is the Transformer with SiLU or ReLU, post-norm, positions with all sines before all cosines, a bias on
the scores of words, and texts that begin with the padding token. `KEYS` is the table of names, ours and theirs. Of the
fields of config.json each becomes a value of ours, must have the one value that this network has, is known to say
nothing about the numbers, or is unknown and named in a note.

A folder is checked and described here, without torch. What this file does NOT do: open it (folder.py), cut texts as its
tokenizers do (text/sentencepiece.py), or write a folder.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qkv.errors import InputError, listed
from qkv.files import read_object
from qkv.models.family import Facts, Family
from qkv.models.folders.fields import NEUTRAL, Fields
from qkv.models.folders.own import CONFIG
from qkv.models.folders.weights import StoredTensor, WeightFiles, are_equal, check_names, check_tensor, open_weights
from qkv.models.transformer.config import (
    ABOUT,
    TransformerConfig,
    lines_of_translation,
    shapes_of_transformer,
    translation_facts,
)
from qkv.nn.shapes import Shapes

if TYPE_CHECKING:
    from torch import Tensor

_MODEL_TYPE = "marian"

_ATTENTION = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "attention_norm": ("self_attn_layer_norm",),
}
_FEED_FORWARD = {
    "feed_forward.up": ("fc1",),
    "feed_forward.down": ("fc2",),
    "feed_forward_norm": ("final_layer_norm",),
}
LAYER_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": _ATTENTION | _FEED_FORWARD,
    "decoder": _ATTENTION
    | {
        "cross_attention.query": ("encoder_attn.q_proj",),
        "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        "cross_attention.out": ("encoder_attn.out_proj",),
        "cross_attention_norm": ("encoder_attn_layer_norm",),
    }
    | _FEED_FORWARD,
}
"""By side, the layers of a block and those of theirs that lie in them one under the other; each has weight and bias."""

_TABLES = {
    "joint": ("model.shared.weight", "model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"),
    "source": ("model.encoder.embed_tokens.weight",),
    "target": ("model.decoder.embed_tokens.weight",),
}
_SCORES = "lm_head.weight"
"""The tables of words: with one vocabulary they are one, stored under any or all of these names; the target's scores
its words as well."""
BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")

DECODING = (
    *("decoder_start_token_id", "eos_token_id", "pad_token_id", "bad_words_ids", "num_beams", "max_length"),
    *("renormalize_logits", "forced_eos_token_id"),
)
SAME_ON_BOTH_SIDES = (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim"))
OF_TRAINING = ("activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
"""What drops more than qkv drops in training: 0 in every published folder, and named in a note elsewhere."""
_NEUTRAL = NEUTRAL | {
    *("init_std", "num_hidden_layers", "add_bias_logits", "classif_dropout", "classifier_dropout"),
    *("extra_pos_embeddings", "force_bos_token_to_be_generated", "_from_model_config"),
}
UNFOLLOWED: dict[str, tuple[Any, ...]] = {
    "length_penalty": (None, 1),
    "early_stopping": (None, False),
    "repetition_penalty": (None, 1),
    "no_repeat_ngram_size": (None, 0),
    "min_length": (None, 0),
    "do_sample": (None, False),
}
"""Wishes about decoding that are the user's to make; one that is more than these values is named in a note."""
FORCED_END = (
    "forced_eos_token_id: where a text reaches its greatest length, transformers writes an end in place of its last "
    "token; qkv keeps the token and says that the text is not finished"
)
ABOUT_DECODING = frozenset({*DECODING, *UNFOLLOWED, *_NEUTRAL})
_FIXED: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (True, None),
    "is_decoder": (False, None),
    "tie_word_embeddings": (True, None),
    "normalize_before": (False, None),
    "normalize_embedding": (False, None),
    "add_final_layer_norm": (False, None),
    "static_position_embeddings": (True, None),
    "quantization_config": (None,),
}
_FIELDS = Fields(
    {
        "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "d_model": "width",
        "encoder_attention_heads": "heads",
        "encoder_ffn_dim": "inner_width",
        "max_position_embeddings": "max_length",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation_function": "activation",
        "scale_embedding": "scaled",
        "vocab_size": "vocabulary_size",
    },
    fixed={name: (allowed, f"qkv loads Marian models with {allowed[0]!r} alone") for name, allowed in _FIXED.items()},
    neutral=ABOUT_DECODING
    | {
        *("decoder_vocab_size", "share_encoder_decoder_embeddings", *OF_TRAINING),
        *(other for _, other in SAME_ON_BOTH_SIDES),
    },
)


class MarianDecoding(NamedTuple):
    """The decoding settings of a folder."""

    begin_id: int
    end_id: int
    pad_id: int
    banned: tuple[int, ...]  # tokens that are never to be written, the padding among them
    beams: int | None  # what its makers decode with
    longest: int | None  # tokens that they write at most, the end among them
    renormalise: bool  # the probabilities of what may be written add up to 1 again, whatever the banned ones had
    notes: tuple[str, ...]


class MarianPlan(NamedTuple):
    path: Path
    config: TransformerConfig
    shapes: Shapes  # of our parameters
    weights: WeightFiles
    names: dict[str, StoredTensor]  # by their names
    tensors: dict[str, tuple[str, ...]]  # ours → those of theirs that lie in it one under the other
    decoding: MarianDecoding


def plan_marian(folder: Path, compare: bool) -> MarianPlan:
    """Check a folder before reading weights. `compare`: read the file to check that tensors stored twice are equal."""
    file = folder / CONFIG
    fields = read_object(file)
    config, notes = _read_config(fields, file)
    weights = open_weights(folder, shapes_only=not compare)
    names, tensors = _matched(weights, config, compare)
    shapes = shapes_of_transformer(config)
    for ours, whole in shapes.items():
        shape = whole[0] // len(tensors[ours]), *whole[1:]
        for name in tensors[ours]:
            check_tensor(names[name], name, (1, *shape) if name == BIAS else shape)
    decoding = _read_decoding(config.vocabulary_size, fields, folder, notes)
    return MarianPlan(folder, config, shapes, weights, names, tensors, decoding)


def _read_config(fields: Mapping[str, Any], file: Path) -> tuple[TransformerConfig, list[str]]:
    if fields.get("model_type") != _MODEL_TYPE:
        raise InputError(
            f"{file} says model_type {fields.get('model_type')!r}, where '{_MODEL_TYPE}' (an OPUS-MT model) belongs."
        )
    for one, other in SAME_ON_BOTH_SIDES:
        if fields.get(other, fields.get(one)) != fields.get(one):
            raise InputError(
                f"{file}: {one} is {fields.get(one)!r} and {other} {fields[other]!r}; qkv's Transformer has the same "
                "on both sides. This folder cannot be loaded."
            )
    if missing := [name for name in _FIELDS.table if name not in fields]:
        raise InputError(f"{file} lacks {listed(missing)}: it is no whole config of a Marian model. Copy it again.")
    values = _FIELDS.read(fields, file)
    source, target = values["vocabulary_size"], fields.get("decoder_vocab_size") or values["vocabulary_size"]
    if not _is_count(target):
        raise InputError(f"{file}: decoder_vocab_size is {target!r}, where a whole number above 0 belongs.")
    is_shared = fields.get("share_encoder_decoder_embeddings", True)
    if is_shared and source != target:
        raise InputError(
            f"{file}: share_encoder_decoder_embeddings is true, but vocab_size is {source} and decoder_vocab_size "
            f"{target}. One table cannot be both."
        )
    values |= {"vocabulary_size": target, "source_vocabulary_size": None if is_shared else source}
    notes = []
    if dropped := [name for name in OF_TRAINING if fields.get(name)]:
        notes.append(f"{file.name}: {listed(dropped)} would count in training, and qkv's Transformer has no such thing")
    if unknown := _FIELDS.unknown(fields):
        notes.append(f"{file.name}: {listed(unknown)} mean nothing to qkv and change nothing here")
    try:
        return TransformerConfig(**values, positions="halved"), notes
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000_000


def _matched(
    weights: WeightFiles, config: TransformerConfig, compare: bool
) -> tuple[dict[str, StoredTensor], dict[str, tuple[str, ...]]]:
    """The stored tensors by name, and the names that make up each of our tensors; missing and unknown names are
    refused."""
    names = {name: tensor for name, tensor in weights.tensors.items() if name not in POSITIONS}
    tensors: dict[str, tuple[str, ...]] = {}
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(min(layers, len(names) + 1)):  # with more than tensors, some are missing in any case
            for ours, theirs in LAYER_KEYS[side].items():
                for kind in ("weight", "bias"):
                    tensors[f"{side}.{number}.{ours}.{kind}"] = tuple(
                        f"model.{side}.layers.{number}.{one}.{kind}" for one in theirs
                    )
    if config.source_vocabulary_size is None:
        tensors["embedding.weight"] = (_one_of(weights, names, compare, (*_TABLES["joint"], _SCORES)),)
    else:
        tensors["embedding.weight"] = (_one_of(weights, names, compare, (*_TABLES["target"], _SCORES)),)
        tensors["source_embedding.weight"] = (_one_of(weights, names, compare, _TABLES["source"]),)
    tensors["words.bias"] = (BIAS,)
    if BIAS not in names:  # left out where it is zero
        names[BIAS] = _Zeros(weights.source, (1, config.vocabulary_size))
    wanted = {name for theirs in tensors.values() for name in theirs}
    what = f"a Marian model of {config.encoder_layers} + {config.decoder_layers} layers"
    check_names(weights, names, wanted, what)
    return names, tensors


def _one_of(weights: WeightFiles, names: dict[str, StoredTensor], compare: bool, aliases: Sequence[str]) -> str:
    """The name under which a table is stored; the other names, if present, must hold the same values."""
    first, *others = [name for name in aliases if name in names] or [aliases[0]]
    for other in others:
        if compare and not are_equal(names[first], names[other]):
            raise InputError(
                f"{weights.source}: {first} and {other} differ, and config.json says that they are one table. One of "
                "the two files belongs to another model."
            )
        del names[other]
    return first


class _Zeros:
    """A tensor that is not stored because all of it is zero."""

    dtype = "float32"

    def __init__(self, file: Path, shape: tuple[int, ...]) -> None:
        self.file, self.shape = file, shape

    def mapped(self) -> "Tensor":
        import torch

        return torch.zeros(self.shape)

    def read_into(self, destination: "Tensor") -> None:
        destination.zero_()


def _read_decoding(vocabulary: int, fields: Mapping[str, Any], folder: Path, notes: Sequence[str]) -> MarianDecoding:
    """The decoding settings of config.json, overridden by generation_config.json if there is one."""
    newer = folder / "generation_config.json"
    more = {name: value for name, value in read_object(newer).items() if value is not None} if newer.is_file() else {}
    said = dict(fields) | more
    if unknown := set(more) - ABOUT_DECODING:
        notes = [*notes, f"{newer.name}: {listed(unknown)} mean nothing to qkv and change nothing here"]
    if unfollowed := [name for name, usual in UNFOLLOWED.items() if said.get(name) not in usual]:
        notes = [
            *notes,
            f"its makers decode with {', '.join(f'{name} {said[name]}' for name in unfollowed)}; qkv does as told",
        ]
    if said.get("forced_eos_token_id") is not None:
        notes = [*notes, FORCED_END]

    def wrong(name: str, wanted: str) -> InputError:
        file = newer if name in more else folder / CONFIG
        return InputError(f"{file}: {name} is {said.get(name)!r}, where {wanted} belongs.")

    def is_token(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocabulary

    def token(name: str) -> int:
        value = said.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, int) or not is_token(value):
            raise wrong(name, f"a token id, 0 to {vocabulary - 1},")
        return value

    def count(name: str, least: int) -> int | None:
        value = said.get(name)
        if value is not None and not (_is_count(value) and value >= least):
            raise wrong(name, f"a whole number from {least} up")
        return value

    pad_id = token("pad_token_id")
    bad = said.get("bad_words_ids") or []
    if not isinstance(bad, list) or not all(
        isinstance(word, list) and word and all(map(is_token, word)) for word in bad
    ):
        raise wrong("bad_words_ids", f"a list of lists of token ids, 0 to {vocabulary - 1},")
    if longer := [word for word in bad if len(word) != 1]:
        notes = [*notes, f"bad_words_ids: {longer} are of more than one token, and qkv bans single tokens alone"]
    renormalise = said.get("renormalize_logits")
    if renormalise is not None and not isinstance(renormalise, bool):
        raise wrong("renormalize_logits", "true or false")
    longest = count("max_length", 2)
    return MarianDecoding(
        begin_id=token("decoder_start_token_id") if "decoder_start_token_id" in said else pad_id,
        end_id=token("eos_token_id"),
        pad_id=pad_id,
        banned=tuple(sorted({pad_id, *(word[0] for word in bad if len(word) == 1)})),
        beams=count("num_beams", 1),
        longest=None if longest is None else longest - 1,  # transformers counts the token that texts begin with
        renormalise=bool(renormalise),
        notes=tuple(notes),
    )


# The family


def _facts(plan: MarianPlan) -> Facts:
    config = plan.config
    vocabulary = {"size": config.vocabulary_size, "kind": "sentencepiece", "lowercase": False, "segmenter": None}
    document = {
        "path": str(plan.path),
        "model_type": _MODEL_TYPE,
        "about": "a Transformer that translates, as OPUS-MT publishes them",
        "config": {name: value for name, value in asdict(config).items() if value is not None},
        "languages": [None, None],
        "max_length": config.max_length,
        "parameters": sum(math.prod(shape) for shape in plan.shapes.values()),
        "vocabularies": [vocabulary],
        "scores": None,
        "record": {},
        "notes": list(plan.decoding.notes),
    }
    return translation_facts("marian", plan.path, document)


MARIAN = Family("marian", (_MODEL_TYPE,), ABOUT, plan_marian, _facts, lines_of_translation)
