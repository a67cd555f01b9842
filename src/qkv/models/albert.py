"""ALBERT (Lan et al. 2020): narrow tables, a projection, and blocks that run several times."""

from qkv.models.bert.likes import FIXED, HEAD_KEYS, KEYS, SIZES, Architecture, BertLike, usual_classes
from qkv.models.bert.plan import family_of_bert
from qkv.models.folders.fields import NEUTRAL, Fields

_BLOCK = "encoder.albert_layer_groups.{i}.albert_layers.0."

ALBERT_NAMES = BertLike(
    name="albert",
    title="ALBERT",
    prefix="albert.",
    fields=Fields(
        {theirs: ours for theirs, ours in SIZES.items() if theirs != "classifier_dropout"}
        | {
            "classifier_dropout_prob": "head_dropout",
            "embedding_size": "embedding_width",
            "num_hidden_groups": "groups",
        },
        {
            "vocab_size": 30_000,
            "embedding_size": 128,
            "hidden_size": 4_096,
            "num_attention_heads": 64,
            "intermediate_size": 16_384,
            "num_hidden_groups": 1,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout_prob": 0.1,
        },
        FIXED | {"inner_group_num": ((1, None), "qkv's ALBERT has one block in a group")},
        # of Google's own code, for what was never published
        NEUTRAL | {"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"},
    ),
    classes=usual_classes(
        "Albert",
        ForPreTraining=Architecture(("masked", "sentence_order"), True, "AutoModelForPreTraining", "fill-mask"),
    ),
    keys={part: names for part, names in KEYS.items() if part.startswith("embedding.")}
    | {
        "embedding.project": ("encoder.embedding_hidden_mapping_in",),
        "blocks.{i}.attention.qkv": (
            f"{_BLOCK}attention.query",
            f"{_BLOCK}attention.key",
            f"{_BLOCK}attention.value",
        ),
        "blocks.{i}.attention.out": (f"{_BLOCK}attention.dense",),
        "blocks.{i}.attention_norm": (f"{_BLOCK}attention.LayerNorm",),
        "blocks.{i}.feed_forward.up": (f"{_BLOCK}ffn",),
        "blocks.{i}.feed_forward.down": (f"{_BLOCK}ffn_output",),
        "blocks.{i}.feed_forward_norm": (f"{_BLOCK}full_layer_layer_norm",),
    },
    heads={
        "masked": {"dense": "predictions.dense", "norm": "predictions.LayerNorm"},
        "sentence_order": {"linear": "sop_classifier.classifier"},
        **{head: HEAD_KEYS[head] for head in ("sequence", "token", "choice", "span")},
    },
    masked_bias="predictions.bias",
    decoder="predictions.decoder",
    decoder_bias="predictions.decoder.bias",
    pooler="pooler",
    shape={"is_projected": True},
)
ALBERT = family_of_bert(ALBERT_NAMES)
