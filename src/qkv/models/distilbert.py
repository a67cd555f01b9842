"""DistilBERT (Sanh et al. 2019): half of BERT's layers, no segments, and a head of its own for texts."""

from qkv.models.bert.likes import FIXED, Architecture, BertLike, usual_classes
from qkv.models.bert.plan import family_of_bert
from qkv.models.folders.fields import CARRIED, NEUTRAL, Fields

_LAYER = "transformer.layer.{i}."
_OWN = ("sinusoidal_pos_embds", "qa_dropout")
"""How the table of positions was begun, which is stored either way; and a dropout of training."""

DISTILBERT_NAMES = BertLike(
    name="distilbert",
    title="DistilBERT",
    prefix="distilbert.",
    fields=Fields(
        {
            "vocab_size": "vocabulary_size",
            "n_layers": "layers",
            "dim": "width",
            "n_heads": "heads",
            "hidden_dim": "inner_width",
            "max_position_embeddings": "max_length",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "seq_classif_dropout": "head_dropout",
            "activation": "activation",
            "initializer_range": "initial_std",
            "tie_word_embeddings": "tied",
            "pad_token_id": "pad_id",
        },
        {"n_layers": 6, "seq_classif_dropout": 0.2},
        FIXED,
        NEUTRAL | {*_OWN, "tie_weights_"},
        (*CARRIED, *_OWN),
    ),
    classes=usual_classes(
        "DistilBert",
        pooler=False,
        ForSequenceClassification=Architecture(
            ("sequence",),
            True,
            "AutoModelForSequenceClassification",
            "text-classification",
            dense="pre_classifier",
            activation="relu",
        ),
        ForMultipleChoice=Architecture(
            ("choice",),
            True,
            "AutoModelForMultipleChoice",
            "multiple-choice",
            dense="pre_classifier",
            activation="relu",
        ),
    ),
    keys={
        "embedding.token": ("embeddings.word_embeddings",),
        "embedding.position": ("embeddings.position_embeddings",),
        "embedding.norm": ("embeddings.LayerNorm",),
        "blocks.{i}.attention.qkv": (
            f"{_LAYER}attention.q_lin",
            f"{_LAYER}attention.k_lin",
            f"{_LAYER}attention.v_lin",
        ),
        "blocks.{i}.attention.out": (f"{_LAYER}attention.out_lin",),
        "blocks.{i}.attention_norm": (f"{_LAYER}sa_layer_norm",),
        "blocks.{i}.feed_forward.up": (f"{_LAYER}ffn.lin1",),
        "blocks.{i}.feed_forward.down": (f"{_LAYER}ffn.lin2",),
        "blocks.{i}.feed_forward_norm": (f"{_LAYER}output_layer_norm",),
    },
    heads={
        "masked": {"dense": "vocab_transform", "norm": "vocab_layer_norm"},
        "sequence": {"linear": "classifier"},
        "token": {"linear": "classifier"},
        "choice": {"linear": "classifier"},
        "span": {"linear": "qa_outputs"},
    },
    masked_bias="vocab_projector.bias",
    decoder="vocab_projector",
    pooler=None,
    shape={"segments": 0},
    pairs=True,
)
DISTILBERT = family_of_bert(DISTILBERT_NAMES)
