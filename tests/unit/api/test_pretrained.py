"""word2vec, NNLM, recurrent language models, ELMo and GPT by themselves: vectors by hand, and what else is refused."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.api.vector_scores import load_vectors
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.family import ENCODES, FEEDS, Loading
from qkv.models.plain.network import build_features
from qkv.models.table import open_model
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm
from tests.support.gpt_folders import VOCABULARIES, load_gpt, make_gpt
from tests.support.word_vectors import SMALL, make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["the cat sat", "the zebra", "猫 sat on the mat because the cat was too tired"]  # no word is "zebra"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pretrained")
    return {
        "word2vec": make_vectors_folder(folder / "word2vec"),
        "nnlm": make_nnlm(folder / "nnlm"),
        "rnnlm": make_rnnlm(folder / "rnnlm"),
        "elmo": make_elmo(folder / "elmo"),
    }


def by_hand(folder: Path, text: str) -> torch.Tensor:
    """(tokens, layers, width), of the text between its marks"""
    opened = open_model(folder)
    below, tokenizer = opened.ability(FEEDS), opened.tokenizer
    network: Any = build_features(below.features, tokenizer)
    network.network.load_state_dict(below.weights())
    batch = Batch.of([tokenizer.encode(text).ids])
    with torch.inference_mode():
        found: torch.Tensor = network.eval()(batch.ids, batch.lengths)[1:-1]
    return found if found.dim() == 3 else found[:, None]


def test_the_mean_of_the_words_that_have_a_vector(places: dict[str, Path]) -> None:
    """unseen is in the vocabulary and was never met, xyzzy is not; rows of special tokens hold what training left."""
    model = qkv.load(places["word2vec"])
    found = model.embed(["king cat", "king xyzzy unseen cat king", "猫"])
    king, cat = np.array(SMALL["king"]), np.array(SMALL["cat"])
    np.testing.assert_allclose(found.vectors[0], (king + cat) / 2, atol=1e-6)
    np.testing.assert_allclose(found.vectors[1], (2 * king + cat) / 3, atol=1e-6)
    np.testing.assert_allclose(found.vectors[2], SMALL["猫"], atol=1e-6)
    assert found.n_without_vector is not None and found.n_without_vector.tolist() == [0, 2, 0]
    assert found.n_tokens.tolist() == [2, 5, 1] and found.n_windows.tolist() == [1, 1, 1]
    assert np.linalg.norm(model.embed("king cat", normalize=True).vectors) == pytest.approx(1)


def test_a_text_of_several_windows(places: dict[str, Path]) -> None:
    """A window without a known word weighs nothing."""
    model = qkv.load(places["word2vec"])
    text = "xyzzy " * 700 + "king " * 300 + "cat " * 100
    found = model.embed([text, "king"])
    expected = (3 * np.array(SMALL["king"]) + np.array(SMALL["cat"])) / 4
    np.testing.assert_allclose(found.vectors[0], expected, atol=1e-5)
    assert found.n_without_vector is not None and found.n_without_vector.tolist() == [700, 0]
    assert found.n_tokens.tolist() == [1100, 1] and found.n_windows[0] > 1


def test_a_text_without_a_known_word(places: dict[str, Path]) -> None:
    model = qkv.load(places["word2vec"])
    with pytest.raises(InputError, match="Text 2 has no vector: none of its 3 words is among those of word2vec. Leave"):
        list(model.embed_stream(["king", "xyzzy unseen [SEP]"]))
    found = model.embed(["king", "xyzzy unseen [SEP]", "cat"])
    assert np.isnan(found).all(1).tolist() == [False, True, False] and found.n_tokens.tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="Text 1 has no vector: its only word is not among those of word2vec"):
        model.embed("xyzzy")
    with pytest.raises(InputError, match="Text 1 is empty"):
        model.embed("  ")
    assert model.lacks("king") is None and model.lacks(" ") == "is empty"
    assert str(model.lacks("xyzzy unseen")).startswith("has no vector: none of its 2 words")
    assert qkv.load(places["elmo"]).lacks("xyzzy") is None, "it is spelled"


def test_nnlm_has_a_table_too(places: dict[str, Path]) -> None:
    vectors, found = load_vectors(places["nnlm"]), qkv.load(places["nnlm"]).embed(["the cat", "the zebra"])
    np.testing.assert_allclose(found.vectors[0], ((vectors["the"] + vectors["cat"]) / 2).numpy(), atol=1e-6)
    np.testing.assert_allclose(found.vectors[1], vectors["the"].numpy(), atol=1e-6)
    assert found.n_without_vector is not None and found.n_without_vector.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["elmo", "rnnlm"])
def test_the_mean_of_what_a_language_model_says(places: dict[str, Path], name: str) -> None:
    """Of all layers in equal shares, without the two marks; a neighbour in the batch changes nothing."""
    model = qkv.load(places[name])
    found = model.embed([*TEXTS, "[SEP] the"])
    for text, vector, n_tokens in zip(TEXTS, found.vectors, found.n_tokens, strict=False):
        expected = by_hand(places[name], text)
        np.testing.assert_allclose(vector, expected.mean(1).mean(0).numpy(), atol=1e-6)
        assert n_tokens == len(expected)
    assert found.n_without_vector is None and found.n_tokens[3] == 2, "a [SEP] that was written is part of the text"


def test_vectors_of_tokens(places: dict[str, Path]) -> None:
    text = "the cat xyzzy the"
    for name in places:
        found = qkv.load(places[name]).embed_tokens([text, "cat"])[0]
        assert [text[start:end] for start, end in found.offsets] == text.split() and len(found) == 4
        alike = np.allclose(found.vectors[0], found.vectors[3])
        assert alike == (name in ("word2vec", "nnlm")), name
        if name in ("elmo", "rnnlm"):
            np.testing.assert_allclose(found.vectors, by_hand(places[name], text).mean(1).numpy(), atol=1e-6)
            assert found.has_vector.all()
    word2vec = qkv.load(places["word2vec"]).embed_tokens(text)[0]
    assert word2vec.has_vector.tolist() == [False, True, False, False]
    assert word2vec.vectors.tolist() == [[0] * 4, list(SMALL["cat"]), [0] * 4, [0] * 4]
    assert not qkv.load(places["word2vec"]).embed_tokens("xyzzy")[0].has_vector.any(), "seeing that is what it is for"


def test_one_layer_of_elmo(places: dict[str, Path]) -> None:
    model, expected = qkv.load(places["elmo"]), by_hand(places["elmo"], TEXTS[2])
    for layer in range(3):
        np.testing.assert_allclose(
            model.embed_tokens(TEXTS[2], layer=layer)[0].vectors, expected[:, layer].numpy(), atol=1e-6
        )
        np.testing.assert_allclose(
            model.embed(TEXTS[2], layer=layer).vectors[0], expected[:, layer].mean(0).numpy(), atol=1e-6
        )
    for wrong in (-1, 3):
        with pytest.raises(InputError, match=f"no layer {wrong}: elmo has 2 layers, 1 … 2, and 0 is what lies below"):
            model.embed("the", layer=wrong)
    for name in ("word2vec", "nnlm", "rnnlm"):
        with pytest.raises(InputError, match=f"is a model of type {name}, which gives a token one vector: leave layer"):
            qkv.load(places[name]).embed_tokens("the", layer=1)


@pytest.mark.parametrize("name", ["word2vec", "nnlm", "rnnlm", "elmo"])
def test_what_it_cannot_do_and_what_it_can(places: dict[str, Path], name: str, tmp_path: Path) -> None:
    model = qkv.load(places[name])
    can = r"embed texts and their tokens \(qkv embed TEXT --model .*\), be fine-tuned \(qkv finetune TASK --model "
    can = rf"It can .*name words that are alike .*{can}" if name in ("word2vec", "nnlm") else rf"It can .*{can}"
    with pytest.raises(InputError, match=f"cannot fill a blank. It holds .*. {can}.*masked head"):
        model.fill("the [MASK]")
    with pytest.raises(InputError, match=f"cannot judge .*{can}"):
        model.next_sentence("the cat", "the mat")
    with pytest.raises(InputError, match=f"cannot show attention. .*{can}"):
        model.attention("the cat")
    with pytest.raises(InputError, match=f"cannot predict. .*{can}.*qkv finetune classify --model"):
        model.predict("the cat")
    with pytest.raises(InputError, match="which has learned no vector of a text at .CLS.: leave pooling"):
        model.embed("the cat", pooling="cls")
    with pytest.raises(InputError, match="as it was trained: copy its folder") as error:
        model.save(tmp_path / "copy")
    assert ("qkv convert" in str(error.value)) == (name in ("word2vec", "nnlm"))


@pytest.mark.parametrize("name", ["word2vec", "elmo"])
def test_it_can_be_copied(places: dict[str, Path], name: str) -> None:
    model = qkv.load(places[name])
    expected = model.embed("the cat sat").vectors
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(other.embed("the cat sat").vectors, expected, atol=1e-6)


def test_what_is_opened(places: dict[str, Path]) -> None:
    opened = open_model(places["word2vec"], Loading(torch.float16))
    network, known = opened.ability(ENCODES).network, opened.ability(ENCODES).known
    assert opened.record == {"words": 7}
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float16}
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert known is not None and int(known.sum()) == 6
    (places["word2vec"] / "qkv.json").rename(places["word2vec"] / "away")
    try:
        assert open_model(places["word2vec"]).record == {}
    finally:
        (places["word2vec"] / "away").rename(places["word2vec"] / "qkv.json")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_mean_of_what_a_gpt_says(tmp_path: Path, vocabulary: str) -> None:
    """After each token of the text, which the mark before documents stands before; there may be none."""
    loaded, found = load_gpt(make_gpt(tmp_path / "gpt", vocabulary)), qkv.load(tmp_path / "gpt")
    texts = ["the cat sat", "the dog", "the mat"]
    vectors = []
    for text in texts:
        ids = loaded.tokenizer.encode_ids([text])[0]
        batch = Batch.of([[loaded.end_id, *ids] if loaded.end_id is not None else [0, *ids]])
        with torch.inference_mode():
            model = loaded.model
            if loaded.end_id is None:
                model.embedding.weight[0] = 0  # a mark that says nothing
            vectors.append(model(batch.ids, batch.packing)[1:])  # (T, D)
    embedded = found.embed(texts)
    np.testing.assert_allclose(embedded.vectors, torch.stack([one.mean(0) for one in vectors]).numpy(), atol=1e-5)
    assert embedded.n_tokens.tolist() == [len(one) for one in vectors] and embedded.n_without_vector is None
    for one, expected in zip(found.embed_tokens(texts), vectors, strict=True):
        np.testing.assert_allclose(one.vectors, expected.numpy(), atol=1e-5)
    for asked, message in (
        (lambda: found.predict("the cat"), "cannot predict. It holds a GPT.* It can write on from a text"),
        (lambda: found.fill("the [MASK]"), r"cannot fill a blank.* It can write on from a text \(qkv generate"),
        (lambda: found.attention("the cat", "a mat"), "no task was put on: it reads single texts, and no pairs"),
        (lambda: found.save(tmp_path / "copy"), "copy its folder"),
        (lambda: found.embed("the cat", pooling="cls"), "learned no vector of a text"),
    ):
        with pytest.raises(InputError, match=message):
            asked()
