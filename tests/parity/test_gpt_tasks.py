"""A fine-tuned GPT in transformers: its class for the task opens the folder and gives the same scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from qkv.data.batch import Batch
from qkv.models.table import open_model
from tests.unit.models.gpt.test_gpt_tasks import fine_tuned

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = [[5, 6, 7, 8, 9], [10, 11, 12], [9, 9]]
READ: dict[str, tuple[str | None, Callable[[Any], Any]]] = {
    "sequence": ("AutoModelForSequenceClassification", lambda found: [found.logits[0]]),
    "token": ("AutoModelForTokenClassification", lambda found: found.logits[0]),
    "span": (
        "AutoModelForQuestionAnswering",
        lambda found: torch.stack([found.start_logits[0], found.end_logits[0]], dim=-1),
    ),
    "choice": (None, lambda found: [found.mc_logits.flatten()]),
}


@pytest.mark.parametrize(
    ("vocabulary", "head"),
    [
        ("wordpiece", "sequence"),
        ("gpt2", "sequence"),
        ("gpt", "sequence"),
        ("wordpiece", "token"),
        ("gpt2", "span"),
        ("wordpiece", "choice"),
        ("gpt", "choice"),
    ],
)
def test_transformers_gives_the_same_scores(tmp_path: Path, vocabulary: str, head: str) -> None:
    network = fine_tuned(tmp_path, vocabulary, head).eval()
    folder = open_model(tmp_path / "task")
    name, read = READ[head]
    made = name or {"gpt": "OpenAIGPTDoubleHeadsModel"}.get(vocabulary, "GPT2DoubleHeadsModel")
    theirs: Any = getattr(transformers, made).from_pretrained(tmp_path / "task").eval()
    assert not name or type(theirs).__name__ == theirs.config.architectures[0]
    rows = [folder.tokenizer.with_special(row)[0] for row in ROWS]
    batch = Batch.of(rows)
    with torch.no_grad():
        ours = network(**batch.inputs())[1][head]
        expected = [one for row in rows for one in read(theirs(torch.tensor([row])))]
    torch.testing.assert_close(ours, torch.stack(expected), rtol=0, atol=1e-5)
    if name is not None and folder.labels:
        assert list(theirs.config.id2label.values()) == list(folder.labels)
    load: Any = transformers.AutoTokenizer.from_pretrained
    tokenizer = load(tmp_path / "task")
    text = f"the cat{folder.tokenizer.token(folder.tokenizer.marks.end)}"
    found = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert found == [*folder.tokenizer.encode_ids(["the cat"])[0], folder.tokenizer.marks.end]
    for texts in (("the cat",), ("the cat", "the street")):
        assert tokenizer(*texts)["input_ids"] == folder.tokenizer.encode(*texts).ids
        assert "token_type_ids" not in tokenizer(*texts)
