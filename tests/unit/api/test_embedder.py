"""Vectors of tokens and of layers, against the network called by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

import qkv
from qkv.api.model import Model
from qkv.data.batch import Batch
from qkv.data.windows import cut_windows
from qkv.errors import InputError
from qkv.models.bert import folder as hf
from qkv.tasks.embed import is_of_text, keep_counted
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["the animal was too tired", "他欠我100万", "猫", "5G 4g 😀 unhappiness"]
LONG = "the cat sat on the mat because it was tired . 我 爱 吃 鱼 " * 12  # far beyond the tiny model's 64 tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("folders") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return qkv.load(folder)


def states_of(folder: Path, ids: list[int]) -> tuple[torch.Tensor, ...]:
    with torch.inference_mode():
        states: tuple[torch.Tensor, ...] = hf.load(folder).model.encoder(**Batch.of([ids]).inputs(), states=True).states
    return states


def test_a_vector_a_token(model: Model, folder: Path) -> None:
    for text, found in zip(TEXTS, model.embed_tokens(TEXTS), strict=True):
        encoded = model.tokenizer.encode(text)
        np.testing.assert_allclose(
            found.vectors, states_of(folder, encoded.ids)[-1][1:-1].numpy(), atol=1e-5, err_msg=text
        )
        assert list(found.tokens) == encoded.tokens[1:-1] and list(found.offsets) == encoded.offsets[1:-1]
        assert found.has_vector.all() and found.n_windows == 1
    unit = model.embed_tokens(TEXTS[0], normalize=True)[0]
    np.testing.assert_allclose(np.linalg.norm(unit.vectors, axis=1), 1, atol=1e-5)


def test_a_layer(model: Model, folder: Path) -> None:
    states = states_of(folder, model.tokenizer.encode(TEXTS[0]).ids)
    for layer, expected in enumerate(states):
        found = model.embed_tokens(TEXTS[0], layer=layer)[0]
        np.testing.assert_allclose(found.vectors, expected[1:-1].numpy(), atol=1e-5)
        np.testing.assert_allclose(model.embed(TEXTS[0], layer=layer).vectors[0], expected.mean(0).numpy(), atol=1e-5)
    with pytest.raises(InputError, match="no layer 3: tiny has 2 layers, 1 … 2"):
        model.embed_tokens("a", layer=3)


def test_every_token_of_a_long_text_once(model: Model, folder: Path) -> None:
    """From the window where it lies further from an edge; in any size of batch, and among other texts."""
    ids = model.tokenizer.encode(LONG, special=False).ids
    cuts = cut_windows([len(ids)], 62, 15)
    expected = torch.zeros(len(ids), model.config.width)
    for window in range(len(cuts.starts)):
        start, end = int(cuts.starts[window]), int(cuts.ends[window])
        a, b = int(cuts.counted_starts[window]), int(cuts.counted_ends[window])
        hidden = states_of(folder, [model.tokenizer.cls_id, *ids[start:end], model.tokenizer.sep_id])[-1]
        expected[a:b] = hidden[1 + a - start : 1 + b - start]
    for budget in (1, 200, None):
        found = model.embed_tokens(["猫", LONG, "a dog"], tokens_per_batch=budget)
        np.testing.assert_allclose(found[1].vectors, expected.numpy(), atol=1e-5)
        assert [one.n_windows for one in found] == [1, len(cuts.starts), 1]
        assert [len(one) for one in found] == [1, len(ids), 2]
        np.testing.assert_allclose(found[0].vectors, model.embed_tokens("猫")[0].vectors, atol=2e-6)


def test_parts_of_a_stream(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.embedder.KEPT_CHARACTERS_PER_CHUNK", 30)
    parts = list(model.embed_tokens_stream(iter(TEXTS)))
    assert [len(part) for part in parts] == [2, 2]
    with pytest.raises(InputError, match="Text 5 is empty"):
        model.embed_tokens([*TEXTS, " "])
    assert model.embed_tokens([]) == []


def test_what_is_counted() -> None:
    batch = Batch.of([[1, 5, 2], [1, 6, 7, 2]])
    places, offsets = torch.arange(7), torch.tensor([0, 3])
    kept = is_of_text(batch, places)
    assert kept.tolist() == [False, True, False, False, True, True, False]
    assert [part.tolist() for part in keep_counted((places, offsets), kept)] == [[1, 4, 5], [0, 1]]
    nothing = keep_counted((places, offsets), torch.zeros(7, dtype=torch.bool))
    assert [part.tolist() for part in nothing] == [[], [0, 0]]
