"""Tiny folders for every task, with drawn weights: what they say is nonsense, and the same every time."""

from pathlib import Path
from typing import Any

from qkv.models.bert.folder import save
from tests.support.folders import make_model, make_tokenizer

CLASSES = {
    "classify": "BertForSequenceClassification",
    "tag": "BertForTokenClassification",
    "answer": "BertForQuestionAnswering",
    "choice": "BertForMultipleChoice",
}
LABELS = {"classify": ("animal", "place"), "tag": ("O", "B-ANI", "I-ANI", "B-LOC", "I-LOC")}


def task_folder(path: Path, task: str, seed: int = 0, labels: tuple[str, ...] = (), **record: Any) -> Path:
    """As `qkv finetune` would write it; `record` is what the task keeps, such as kind="multi"."""
    if task == "classify":
        record = {"kind": "single", "paired": False} | record
        labels = labels or (("value",) if record["kind"] == "regression" else LABELS[task])
    if task == "answer":
        settings = {"max_answer_tokens": 30, "no_answer": "yes", "scorer": "squad"}
        record = {"settings": settings | record.pop("settings", {})} | record
    labels = labels or LABELS.get(task, ())
    model = make_model(CLASSES[task], len(labels) or 2, seed)
    written = {"task": task, "task_record": record}
    return save(path, model, make_tokenizer(), labels, CLASSES[task], record=written)
