"""config.json of GPT and GPT-2 folders to our config and back, and the names of their tensors: one table a dialect.

transformers has two classes for what is one network with two orders of norm and residual: `openai-gpt` (post-norm) and
`gpt2` (pre-norm). Their fields and tensors are named almost alike. No field is passed over in silence: it becomes a
value of ours, it must have the one value that qkv's GPT has (FIXED), it is known to say nothing about the numbers
(NEUTRAL), or it is named in a note. With the head of a task it is one of these classes:

    sequence   score                          GPT2ForSequenceClassification, OpenAIGPTForSequenceClassification
    token      classifier                     GPT2ForTokenClassification
    span       qa_outputs                     GPT2ForQuestionAnswering
    choice     multiple_choice_head.summary   GPT2DoubleHeadsModel, OpenAIGPTDoubleHeadsModel
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError, listed
from qkv.models.folders.fields import ACTIVATION_NAMES, NEUTRAL, Fields
from qkv.models.gpt.network import GPTConfig

_SIZES: dict[str, str] = {
    "vocab_size": "vocabulary_size",
    "n_positions": "max_length",
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "embd_pdrop": "embedding_dropout",
    "layer_norm_epsilon": "norm_epsilon",
    "initializer_range": "initial_std",
    "tie_word_embeddings": "tied",
}
_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "add_cross_attention": ((False, None), "qkv's GPT asks its own text alone"),
    "is_encoder_decoder": ((False, None), "qkv's GPT is a decoder alone"),
    "pruned_heads": (({}, None), "qkv's GPT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
}
_NEUTRAL = NEUTRAL | {
    *("pad_token_id", "is_decoder", "n_ctx", "n_special", "predict_special_tokens"),
    *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
    "reorder_and_upcast_attn",  # how 16 bits are rounded in training, and nothing else
}
"""Settings of training, of decoding, of other heads and of transformers itself."""
WIDER = 4
"""How much wider the feed-forward's inside is where a config does not say."""


class Dialect(NamedTuple):
    """The names that one class of transformers uses."""

    model_type: str
    order: str
    fields: Fields
    classes: tuple[str, str]  # with the scores of words and without
    tables: tuple[str, str]  # of tokens and of positions


GPT2 = Dialect(
    "gpt2",
    "pre",
    Fields(
        _SIZES
        | {
            "n_inner": "inner_width",
            "scale_attn_weights": "scaled",
            "scale_attn_by_inverse_layer_idx": "scaled_by_layer",
            "activation_function": "activation",
        },
        {"vocab_size": 50_257, "n_positions": 1_024},
        _FIXED,
        _NEUTRAL,
        activations={"gelu_new": "gelu_tanh"} | ACTIVATION_NAMES,
    ),
    ("GPT2LMHeadModel", "GPT2Model"),
    ("wte.weight", "wpe.weight"),
)
GPT1 = Dialect(
    "openai-gpt",
    "post",
    Fields(
        _SIZES | {"afn": "activation"},
        {"vocab_size": 40_478, "n_positions": 512},
        _FIXED,
        _NEUTRAL,
        # what is called gelu there is the tanh one
        activations={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"},
    ),
    ("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
    ("tokens_embed.weight", "positions_embed.weight"),
)
DIALECTS = {dialect.model_type: dialect for dialect in (GPT2, GPT1)}

LAYER_PARTS: dict[str, str] = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_norm": "ln_1",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}
"""Parts of a layer, ours and theirs, each with a weight and a bias."""
TURNED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
"""Stored with a row for each input, where ours has a row for each output."""
SCORES_TENSOR = "lm_head.weight"
PREFIX = "transformer."
HEAD_TENSORS: dict[str, str] = {
    "sequence": "score",
    "token": "classifier",
    "span": "qa_outputs",
    "choice": "multiple_choice_head.summary",
}
"""Heads of tasks, ours and theirs: one linear layer each."""
CLASSES = {
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "DoubleHeadsModel",
}
"""How transformers' class for a head is called, after the name of the network."""
OF_THE_FIRST = ("sequence", "choice")
"""Heads that it has for OpenAI's first GPT; any other is an extra tensor, which only qkv reads."""


def read_gpt_config(fields: Mapping[str, Any], file: Path) -> tuple[GPTConfig, Dialect, list[str]]:
    """The sizes in a config.json, its dialect, and notes about it."""
    kind = fields.get("model_type")
    if kind not in DIALECTS:
        raise InputError(
            f"{file} says model_type {kind!r}, where {' or '.join(DIALECTS)} belongs: it is not the folder of a GPT. "
            f"What it is and holds: qkv info {file.parent}"
        )
    dialect = DIALECTS[kind]
    values = dialect.fields.read({name: value for name, value in fields.items() if value is not None}, file)
    values.setdefault("inner_width", WIDER * values.get("width", GPTConfig.width))
    unknown = dialect.fields.unknown(fields)
    notes = [f"{file.name}: {listed(unknown)} mean nothing to qkv and change nothing here"] if unknown else []
    try:
        return GPTConfig(**values, order=dialect.order), dialect, notes
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def dialect_of(config: GPTConfig) -> Dialect:
    """The class of transformers for this network; raises InputError, with the reason, if there is none."""
    dialect = next(dialect for dialect in DIALECTS.values() if dialect.order == config.order)
    if config.activation not in dialect.fields.activations.values():
        raise InputError(
            f"transformers' {dialect.model_type} has no activation {config.activation}; it can be saved with "
            f"{', '.join(dict.fromkeys(dialect.fields.activations.values()))}."
        )
    if dialect is GPT1:
        if config.inner_width != WIDER * config.width:
            raise InputError(
                f"transformers' {dialect.model_type} is {WIDER} times as wide inside: with order post and width "
                f"{config.width} inner_width must be {WIDER * config.width}, not {config.inner_width}. Set "
                "model.inner_width, or model.order to pre."
            )
        if not config.scaled or config.scaled_by_layer:
            raise InputError(f"transformers' {dialect.model_type} always scales its attention by 1 / √(head width).")
    return dialect


def write_gpt_config(
    config: GPTConfig, dialect: Dialect, end: int | None, pad: int | None, dtype: str
) -> dict[str, Any]:
    """The fields of a config.json that transformers reads as this network."""
    return {
        "architectures": [dialect.classes[0]],
        "model_type": dialect.model_type,
        "dtype": dtype,
        **dialect.fields.write(vars(config)),
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": pad,
    }


def names_of(config: GPTConfig, dialect: Dialect) -> dict[str, str]:
    """Every parameter of ours and its name in a file, without the prefix of the classes with heads."""
    names = dict(zip(("embedding.weight", "position.weight"), dialect.tables, strict=True))
    for number in range(config.layers):
        for ours, theirs in LAYER_PARTS.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{number}.{ours}.{kind}"] = f"h.{number}.{theirs}.{kind}"
    if config.order == "pre":
        names |= {f"norm.{kind}": f"ln_f.{kind}" for kind in ("weight", "bias")}
    return names if config.tied else names | {"table": SCORES_TENSOR}


def class_of(dialect: Dialect, heads: Sequence[str]) -> str:
    """transformers' class for a GPT with one head; without a head, or with an unknown one, that of the network."""
    if len(heads) != 1 or (dialect is GPT1 and heads[0] not in OF_THE_FIRST):
        return dialect.classes[0] if not heads else dialect.classes[1]
    return dialect.classes[1].removesuffix("Model") + CLASSES[heads[0]]
