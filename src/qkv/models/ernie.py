"""ERNIE (Sun et al. 2019, 2020), as transformers has it: BERT, with a vector of the task added to every token."""

from dataclasses import replace

from qkv.models.bert.likes import BERT_NAMES, FIXED, KEYS, SIZES, classes_with_next_sentence
from qkv.models.bert.plan import family_of_bert
from qkv.models.folders.fields import Fields

ERNIE_NAMES = replace(
    BERT_NAMES,
    name="ernie",
    title="ERNIE",
    prefix="ernie.",
    fields=Fields(
        SIZES | {"task_type_vocab_size": "task_types", "use_task_id": "adds_task_type"},
        {"task_type_vocab_size": 3},
        FIXED,
    ),
    classes=classes_with_next_sentence("Ernie"),
    keys=KEYS | {"embedding.task": ("embeddings.task_type_embeddings",)},
)
ERNIE = family_of_bert(ERNIE_NAMES)
