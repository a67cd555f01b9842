"""ELECTRA (Clark et al. 2020): BERT with narrow tables, whose discriminator finds words that were replaced."""

from qkv.models.bert.likes import FIXED, KEYS, SIZES, Architecture, BertLike, usual_classes
from qkv.models.bert.plan import family_of_bert
from qkv.models.folders.fields import CARRIED, NEUTRAL, Fields

_SUMMARY = "qkv's ELECTRA chooses by the first vector of a row, a dense layer and gelu"

ELECTRA_NAMES = BertLike(
    name="electra",
    title="ELECTRA",
    prefix="electra.",
    fields=Fields(
        SIZES | {"embedding_size": "embedding_width"},
        {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1_024},
        FIXED
        | {
            "summary_type": (("first", None), _SUMMARY),
            "summary_use_proj": ((True, None), _SUMMARY),
            "summary_activation": (("gelu", None), _SUMMARY),
        },
        NEUTRAL | {"summary_last_dropout"},
        (*CARRIED, "summary_last_dropout"),
    ),
    classes=usual_classes(
        "Electra",
        pooler=False,
        ForPreTraining=Architecture(("replaced",), False, "AutoModelForPreTraining", None),
        ForSequenceClassification=Architecture(
            ("sequence",),
            True,
            "AutoModelForSequenceClassification",
            "text-classification",
            dense="classifier.dense",
            activation="gelu",
            drops_before=True,
        ),
        ForMultipleChoice=Architecture(
            ("choice",),
            True,
            "AutoModelForMultipleChoice",
            "multiple-choice",
            dense="sequence_summary.summary",
            activation="gelu",
        ),
    ),
    keys=KEYS | {"embedding.project": ("embeddings_project",)},
    heads={
        "masked": {"dense": "generator_predictions.dense", "norm": "generator_predictions.LayerNorm"},
        "replaced": {
            "dense": "discriminator_predictions.dense",
            "linear": "discriminator_predictions.dense_prediction",
        },
        "sequence": {"linear": "classifier.out_proj"},
        "token": {"linear": "classifier"},
        "choice": {"linear": "classifier"},
        "span": {"linear": "qa_outputs"},
    },
    masked_bias="generator_lm_head.bias",
    decoder="generator_lm_head",
    pooler=None,
    shape={"masked_activation": "gelu"},
)
ELECTRA = family_of_bert(ELECTRA_NAMES)
