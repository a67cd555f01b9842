"""Models of BERT's kind from end to end: asked, fine-tuned for every task, looked into."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.errors import InputError
from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune.settings import resolve_finetune_settings
from qkv.look.attention import attention, show_inputs
from qkv.look.subject import describe_subject, open_subject
from qkv.look.token_layers import read_token_layers
from qkv.look.wire import Asked
from qkv.train.log import Silent
from tests.support import labelled_sets as sets
from tests.support.like_folders import RECORDS, make_like_folder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", RECORDS)
def test_it_is_asked(tmp_path: Path, name: str) -> None:
    model = qkv.load(make_like_folder(tmp_path / name, name))
    mask = model.tokenizer.token(model.tokenizer.mask_id)
    (blank,) = model.fill(f"the cat {mask} on the mat", k=3)
    assert len(blank.candidates) == 3 and model.architecture.endswith("ForMaskedLM")
    with pytest.raises(InputError, match=f"Write {mask.replace('[', chr(92) + '[')} where the word is missing"):
        model.fill("the cat on the mat")
    assert model.embed(["the cat", "北京"]).vectors.shape == (2, 32)
    assert model.embed(["the cat"], layer=1).vectors.shape == (1, 32)
    assert model.embed("the cat sat on the mat " * 40).n_windows.tolist() > [1]
    shown = model.attention("the cat", "a dog")
    assert shown.attn.shape[:2] == (2, 4) and [one.text for one in shown.left if not one.special]
    with pytest.raises(InputError, match="cannot judge whether"):
        model.next_sentence("the cat", "a dog")
    saved = qkv.load(model.save(tmp_path / "saved"))
    assert (saved.embed("the cat").vectors == model.embed("the cat").vectors).all()


@pytest.mark.parametrize("task", sets.WRITERS)
@pytest.mark.parametrize("name", RECORDS)
def test_every_task(tmp_path: Path, name: str, task: str) -> None:
    folder = make_like_folder(tmp_path / name, name)
    file = sets.WRITERS[task](tmp_path / ("data.csv" if task == "classify" else "data.json"))
    given: dict[str, Any] = {"data.train": str(file), "epochs": 1.0}
    settings = resolve_finetune_settings(task, str(folder), None, None, given, ["train.threads=1", "texts_per_step=64"])
    done = finetune.FINETUNING.start(settings, tmp_path / "run", Silent())
    assert done.finished
    model = qkv.load(tmp_path / "run")
    assert type(model.network.encoder).__name__ == "Bert" and model.record["task"] == task
    assert RECORDS[name].classes[model.architecture].heads == tuple(model.network.heads)
    asked: Any = {
        "classify": "the cat",
        "tag": "the cat sat",
        "answer": [("the cat", "the dog sat on the mat")],
        "choice": {"context": "the cat", "question": "the dog", "choices": ["a", "the mat"]},
    }
    assert len(model.predict(asked[task])) == 1


@pytest.mark.parametrize("name", RECORDS)
def test_it_is_looked_into(tmp_path: Path, name: str) -> None:
    subject = open_subject(make_like_folder(tmp_path / name, name))
    found = describe_subject(subject)
    assert found["kind"] == "bert" and {"attention", "fill", "meanings", "positions"} <= set(found["views"])
    facts = found["facts"]
    assert (facts["layers"], facts["width"], facts["positions"], facts["heads"]) == (2, 32, 64, 4)
    seen = show_inputs(subject, Asked({"text": "the cat", "pair": "a dog", "row": 1}))
    added = [seen.arrays[one] for one in ("token", "segment", "position", "task") if one in seen.arrays]
    assert np.allclose(np.sum(added, axis=0), seen.arrays["sum"], atol=1e-5)
    assert ("segment" in seen.arrays, "task" in seen.arrays) == (name != "distilbert", name == "ernie")
    assert attention(subject, Asked({"text": "the cat", "layer": 1})).arrays
    layers = read_token_layers(subject, ["the cat sat"])[0].layers
    assert len(layers) == 3 and layers[-1].shape[1] == 32
    own = qkv.load(subject.path).embed_tokens("the cat sat", layer=2)[0].vectors
    assert np.allclose(layers[-1], own, atol=1e-5)
