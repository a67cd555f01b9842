"""The names of BERT's tensors, ours and theirs: one literal table, read from left to right to save and back to load.

An entry may name several tensors, which lie one under the other in ours: our attention multiplies once by
[query; key; value], theirs three times. Their names are written without the prefix `bert.` that every class but
BertModel puts before the encoder's tensors.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from qkv.errors import InputError, did_you_mean

KEYS: dict[str, tuple[str, ...]] = {
    "encoder.embedding.token.weight": ("embeddings.word_embeddings.weight",),
    "encoder.embedding.segment.weight": ("embeddings.token_type_embeddings.weight",),
    "encoder.embedding.position.weight": ("embeddings.position_embeddings.weight",),
    "encoder.embedding.norm.weight": ("embeddings.LayerNorm.weight",),
    "encoder.embedding.norm.bias": ("embeddings.LayerNorm.bias",),
    "encoder.blocks.{i}.attention.qkv.weight": (
        "encoder.layer.{i}.attention.self.query.weight",
        "encoder.layer.{i}.attention.self.key.weight",
        "encoder.layer.{i}.attention.self.value.weight",
    ),
    "encoder.blocks.{i}.attention.qkv.bias": (
        "encoder.layer.{i}.attention.self.query.bias",
        "encoder.layer.{i}.attention.self.key.bias",
        "encoder.layer.{i}.attention.self.value.bias",
    ),
    "encoder.blocks.{i}.attention.out.weight": ("encoder.layer.{i}.attention.output.dense.weight",),
    "encoder.blocks.{i}.attention.out.bias": ("encoder.layer.{i}.attention.output.dense.bias",),
    "encoder.blocks.{i}.attention_norm.weight": ("encoder.layer.{i}.attention.output.LayerNorm.weight",),
    "encoder.blocks.{i}.attention_norm.bias": ("encoder.layer.{i}.attention.output.LayerNorm.bias",),
    "encoder.blocks.{i}.feed_forward.up.weight": ("encoder.layer.{i}.intermediate.dense.weight",),
    "encoder.blocks.{i}.feed_forward.up.bias": ("encoder.layer.{i}.intermediate.dense.bias",),
    "encoder.blocks.{i}.feed_forward.down.weight": ("encoder.layer.{i}.output.dense.weight",),
    "encoder.blocks.{i}.feed_forward.down.bias": ("encoder.layer.{i}.output.dense.bias",),
    "encoder.blocks.{i}.feed_forward_norm.weight": ("encoder.layer.{i}.output.LayerNorm.weight",),
    "encoder.blocks.{i}.feed_forward_norm.bias": ("encoder.layer.{i}.output.LayerNorm.bias",),
    "encoder.pooler.dense.weight": ("pooler.dense.weight",),
    "encoder.pooler.dense.bias": ("pooler.dense.bias",),
    "heads.masked.dense.weight": ("cls.predictions.transform.dense.weight",),
    "heads.masked.dense.bias": ("cls.predictions.transform.dense.bias",),
    "heads.masked.norm.weight": ("cls.predictions.transform.LayerNorm.weight",),
    "heads.masked.norm.bias": ("cls.predictions.transform.LayerNorm.bias",),
    "heads.masked.bias": ("cls.predictions.bias",),
    "heads.masked.table": ("cls.predictions.decoder.weight",),  # only where it is not the token embedding itself
    "heads.next_sentence.linear.weight": ("cls.seq_relationship.weight",),
    "heads.next_sentence.linear.bias": ("cls.seq_relationship.bias",),
    "heads.sequence.linear.weight": ("classifier.weight",),
    "heads.sequence.linear.bias": ("classifier.bias",),
    "heads.token.linear.weight": ("classifier.weight",),
    "heads.token.linear.bias": ("classifier.bias",),
    "heads.choice.linear.weight": ("classifier.weight",),
    "heads.choice.linear.bias": ("classifier.bias",),
    "heads.span.linear.weight": ("qa_outputs.weight",),
    "heads.span.linear.bias": ("qa_outputs.bias",),
}

TOKEN_TABLE = "embeddings.word_embeddings.weight"
DECODER_TABLE = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
"""Two names that may repeat another tensor: the decoder's weight is the token table and its bias is
cls.predictions.bias. Files of some years hold both, of others one."""

TOLERATED = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Buffers that older files store and that say nothing: 0, 1, 2 … and 0, 0, 0 …"""

OLDER_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow

PREFIX = "bert."
PREFIXED = ("embeddings.", "encoder.", "pooler.")


class Architecture(NamedTuple):
    """What a class of transformers holds on top of the encoder, and how a user reaches it there."""

    heads: tuple[str, ...]
    pooler: bool
    auto_class: str
    pipeline: str | None  # the hub's name for the task


ARCHITECTURES: dict[str, Architecture] = {
    "BertForPreTraining": Architecture(("masked", "next_sentence"), True, "AutoModelForPreTraining", "fill-mask"),
    "BertForMaskedLM": Architecture(("masked",), False, "AutoModelForMaskedLM", "fill-mask"),
    "BertForNextSentencePrediction": Architecture(("next_sentence",), True, "AutoModelForNextSentencePrediction", None),
    "BertForSequenceClassification": Architecture(
        ("sequence",), True, "AutoModelForSequenceClassification", "text-classification"
    ),
    "BertForTokenClassification": Architecture(
        ("token",), False, "AutoModelForTokenClassification", "token-classification"
    ),
    "BertForQuestionAnswering": Architecture(("span",), False, "AutoModelForQuestionAnswering", "question-answering"),
    "BertForMultipleChoice": Architecture(("choice",), True, "AutoModelForMultipleChoice", "multiple-choice"),
    "BertModel": Architecture((), True, "AutoModel", "feature-extraction"),
}

CLASSIFIERS = ("sequence", "token", "choice")
"""Heads that transformers stores under the one name `classifier`: only the architecture tells them apart."""


def canonical(name: str) -> str:
    """A stored name as the table writes it: no prefix, today's endings.

    >>> canonical("bert.embeddings.LayerNorm.gamma")
    'embeddings.LayerNorm.weight'
    """
    name = name.removeprefix(PREFIX)
    for old, new in OLDER_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def written(name: str, architecture: str) -> str:
    """A name of the table as this class stores it.

    >>> written("pooler.dense.bias", "BertForPreTraining"), written("pooler.dense.bias", "BertModel")
    ('bert.pooler.dense.bias', 'pooler.dense.bias')
    """
    prefixed = architecture != "BertModel" and name.startswith(PREFIXED)
    return PREFIX + name if prefixed else name


def tensors_of(heads: Collection[str], pooler: bool, layers: int, tied: bool) -> dict[str, tuple[str, ...]]:
    """The part of the table that a network with these heads uses, one entry a parameter."""
    chosen: dict[str, tuple[str, ...]] = {}
    for ours, theirs in KEYS.items():
        if ours.startswith("encoder.pooler.") and not pooler:
            continue
        if ours.startswith("heads.") and ours.split(".")[1] not in heads:
            continue
        if ours == "heads.masked.table" and tied:
            continue
        for i in range(layers) if "{i}" in ours else (0,):
            chosen[ours.replace("{i}", str(i))] = tuple(name.replace("{i}", str(i)) for name in theirs)
    return chosen


def check_architecture(name: str, where: str) -> None:
    if name not in ARCHITECTURES:
        raise InputError(
            f"{where}: architecture '{name}' is not one that qkv reads.{did_you_mean(name, ARCHITECTURES)} "
            f"Known: {', '.join(ARCHITECTURES)}."
        )


def parts_held(stored: Collection[str], stated: str | None, where: str) -> tuple[tuple[str, ...], bool]:
    """Heads and pooler of a file: what its architecture needs and every other known part that it holds.

    Published folders hold more than they state: bert-base-uncased says BertForMaskedLM and has a pooler and the next
    sentence head as well. `stored` are canonical names; whether each part is whole is checked later.
    """
    needed = ARCHITECTURES[stated or "BertModel"]
    heads = list(needed.heads)
    pooler = needed.pooler and bool(heads)  # a bare encoder may be stored without its pooler
    unclaimed_classifier = "classifier.weight" in stored and not set(heads) & set(CLASSIFIERS)
    if unclaimed_classifier:
        raise InputError(
            f"{where}: it holds a classifier, and config.json says "
            f"{f'architecture {stated}' if stated else 'no architecture'}, so it is not known what it classifies. "
            'Set "architectures" in config.json to ["BertForSequenceClassification"] (texts), '
            '["BertForTokenClassification"] (tokens) or ["BertForMultipleChoice"] (choices).'
        )
    for ours, theirs in KEYS.items():
        if ours.startswith("encoder.pooler.") and theirs[0] in stored:
            pooler = True
        elif ours.startswith("heads.") and theirs[0] in stored:
            head = ours.split(".")[1]
            if head not in heads and head not in CLASSIFIERS:
                heads.append(head)
    return tuple(heads), pooler


def architecture_of(heads: Collection[str], stated: str | None = None) -> str:
    """The class of transformers that holds the most of these heads; among equals the stated one, then the first.

    >>> architecture_of(["next_sentence", "masked"], stated="BertForMaskedLM")
    'BertForPreTraining'
    """
    fitting = [name for name, known in ARCHITECTURES.items() if set(known.heads) <= set(heads)]
    return max(fitting, key=lambda name: (len(ARCHITECTURES[name].heads), name == stated))


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names for a message, cut short where there are many."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
