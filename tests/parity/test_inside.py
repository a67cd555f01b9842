"""The attention of the page against transformers' output_attentions, on tiny random weights.

A weight is a byte: round(255 · w) is off by at most 1/510, and the weights themselves differ by less than 1e-5.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from qkv.files import to_json
from qkv.look.attention import attention
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked
from qkv.models.table import open_model
from tests.parity.test_marian import reference as marian
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.unit.models.gpt.test_gpt_tasks import fine_tuned
from tests.unit.text.test_sentencepiece import MODEL, WORDS

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ("the cat didn't cross the street", "他欠我100万, she owes him money")
MOST = 1 / 510 + 1e-5


def compare(subject: Subject, theirs: Any, fields: dict[str, Any]) -> None:
    """Their weights (1, H, Q, T) of every layer against ours, layer by layer and in the overview."""
    overview = attention(subject, Asked(fields)).arrays["small"]
    assert len(theirs) == len(overview)
    for layer, weights in enumerate(theirs):
        found = attention(subject, Asked(fields | {"layer": layer})).arrays["attn"]
        for shown in (found, overview[layer]):
            assert shown.shape == weights.shape[1:]
            assert np.abs(shown / 255 - weights[0].numpy()).max() <= MOST


@pytest.mark.parametrize("pair", [None, "a dog 狗"])
@pytest.mark.parametrize("text", TEXTS)
def test_bert(tmp_path: Path, text: str, pair: str | None) -> None:
    subject = open_subject(make_folder(tmp_path / "bert", "BertModel", layers=3))
    load: Any = transformers.AutoModel.from_pretrained
    theirs = load(tmp_path / "bert", attn_implementation="eager").eval()
    encoded = subject.model.tokenizer.encode(text, pair)
    with torch.no_grad():
        ids, segments = torch.tensor([encoded.ids]), torch.tensor([encoded.segments])
        weights = theirs(ids, token_type_ids=segments, output_attentions=True).attentions
    compare(subject, weights, {"text": text} | ({} if pair is None else {"pair": pair}))


@pytest.mark.parametrize(("vocabulary", "changes"), [("gpt2", {}), ("gpt2", {"scaled_by_layer": True}), ("gpt", {})])
def test_gpt(tmp_path: Path, vocabulary: str, changes: dict[str, Any]) -> None:
    subject = open_subject(make_gpt(tmp_path / "gpt", vocabulary, **changes))
    load: Any = transformers.AutoModel.from_pretrained
    options = {"attn_implementation": "eager"} if vocabulary == "gpt2" else {}
    theirs = load(tmp_path / "gpt", **options).eval()
    tokenizer, text = subject.model.tokenizer, "the cat sat on the hat" + (" 京" if vocabulary == "gpt2" else "")
    ids = tokenizer.encode_ids([text])[0]
    ids = [tokenizer.cls_id, *ids] if vocabulary == "gpt2" else ids  # the first GPT has no mark before a text
    with torch.no_grad():
        weights = theirs(torch.tensor([ids]), output_attentions=True).attentions
    compare(subject, weights, {"text": text})
    found = subject.model.attention(text).attn / 255
    assert np.abs(found - np.stack([layer[0].numpy() for layer in weights])).max() <= MOST


def test_a_gpt_with_a_task_has_its_marks(tmp_path: Path) -> None:
    fine_tuned(tmp_path, "wordpiece", "sequence")
    tokenizer = open_model(tmp_path / "task").tokenizer
    subject = open_subject(tmp_path / "task")
    load: Any = transformers.AutoModel.from_pretrained
    theirs = load(tmp_path / "task", attn_implementation="eager").eval()
    one, other = tokenizer.encode_ids(["the cat", "a dog"])
    ids, _ = tokenizer.with_special(one, other)
    with torch.no_grad():
        weights = theirs(torch.tensor([ids]), output_attentions=True).attentions
    compare(subject, weights, {"text": "the cat", "pair": "a dog"})
    shown = attention(subject, Asked({"text": "the cat", "pair": "a dog"})).head["left"]
    assert [token["special"] for token in shown] == [True, False, False, True, False, False, True]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_marian(tmp_path: Path, kind: str) -> None:
    theirs = marian(tmp_path)
    words = [token for token in WORDS.split() if token != "<pad>" and ">>" not in token]
    vocabulary = {token: place for place, token in enumerate(words)} | {"<pad>": 40}
    (tmp_path / "vocab.json").write_text(to_json(vocabulary))
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(MODEL)
    subject = open_subject(tmp_path)
    source, target = "Tom chases Jerry", "汤姆追逐 Jerry"
    languages = subject.translator.languages
    ids = languages.read([source]), [[languages.begin, *languages.target.encode_ids([target])[0]]]
    with torch.no_grad():
        found = theirs(input_ids=torch.tensor(ids[0]), decoder_input_ids=torch.tensor(ids[1]), output_attentions=True)
    weights = {
        "encoder": found.encoder_attentions,
        "decoder": found.decoder_attentions,
        "cross": found.cross_attentions,
    }
    compare(subject, weights[kind], {"text": source, "kind": kind, "output": target})
