"""RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2020): BERT's network, with one segment.

Positions are counted from the padding's id + 1. What stands between a text and its class is part of the head, and not
a pooler of the encoder.
"""

from dataclasses import replace

from qkv.models.bert.likes import FIXED, KEYS, SIZES, Architecture, BertLike, usual_classes
from qkv.models.bert.plan import family_of_bert
from qkv.models.folders.fields import Fields


def _classes(name: str) -> dict[str, Architecture]:
    sequence = Architecture(
        ("sequence",),
        True,
        "AutoModelForSequenceClassification",
        "text-classification",
        dense="classifier.dense",
        drops_before=True,
    )
    return usual_classes(name, ForSequenceClassification=sequence)


ROBERTA_NAMES = BertLike(
    name="roberta",
    title="RoBERTa",
    prefix="roberta.",
    fields=Fields(
        SIZES,
        {"vocab_size": 50_265, "max_position_embeddings": 512, "pad_token_id": 1, "type_vocab_size": 2},
        FIXED,
    ),
    classes=_classes("Roberta"),
    keys=KEYS,
    heads={
        "masked": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm"},
        "sequence": {"linear": "classifier.out_proj"},
        "token": {"linear": "classifier"},
        "choice": {"linear": "classifier"},
        "span": {"linear": "qa_outputs"},
    },
    masked_bias="lm_head.bias",
    decoder="lm_head.decoder",
    decoder_bias="lm_head.decoder.bias",
    shape={"masked_activation": "gelu"},
    after_padding=True,
    pairs=True,
)
ROBERTA = family_of_bert(ROBERTA_NAMES)
XLM_ROBERTA_NAMES = replace(ROBERTA_NAMES, name="xlm-roberta", title="XLM-RoBERTa", classes=_classes("XLMRoberta"))
XLM_ROBERTA = family_of_bert(XLM_ROBERTA_NAMES)
