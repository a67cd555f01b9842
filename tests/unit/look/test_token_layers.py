"""Vectors of all layers at once equal those that are asked for layer by layer, of every kind of model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.data.batch import Batch
from qkv.look.subject import Subject, open_subject
from qkv.look.token_layers import has_positions, read_token_layers
from qkv.look.wire import RefusalError
from qkv.models.transformer.network import Transformer
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import reader, translator
from tests.support.word_vectors import make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["The unhappy cat sat on the mat.", "他欠我100万", "cat"]


@pytest.mark.parametrize("kind", ["bert", "elmo"])
def test_layer_by_layer(tmp_path: Path, kind: str) -> None:
    subject = open_subject((make_folder if kind == "bert" else make_elmo)(tmp_path / "model"))
    found = read_token_layers(subject, TEXTS)
    assert len(found[0].layers) == 3
    for layer in range(3):
        for one, expected in zip(found, subject.model.embed_tokens(TEXTS, layer=layer), strict=True):
            assert (one.tokens, one.offsets) == (expected.tokens, expected.offsets)
            np.testing.assert_allclose(one.layers[layer], expected.vectors, atol=1e-5)


@pytest.mark.parametrize("vocabulary", ["wordpiece", "gpt2", "gpt"])
def test_the_last_layer_of_gpt(tmp_path: Path, vocabulary: str) -> None:
    subject = open_subject(make_gpt(tmp_path / "model", vocabulary, layers=3))
    for one, expected in zip(read_token_layers(subject, TEXTS), subject.model.embed_tokens(TEXTS), strict=True):
        assert len(one.layers) == 4 and one.tokens == expected.tokens
        np.testing.assert_allclose(one.layers[-1], expected.vectors, atol=1e-5)
        assert not np.allclose(one.layers[-2], one.layers[-1], atol=1e-2)


def test_those_with_one_vector(tmp_path: Path) -> None:
    for make in (make_rnnlm, make_nnlm, make_vectors_folder):
        subject = open_subject(make(tmp_path / make.__name__))
        texts = ["the cat king"]
        (one,), (expected,) = read_token_layers(subject, texts), subject.model.embed_tokens(texts)
        assert len(one.layers) == 1 and not has_positions(subject)
        np.testing.assert_allclose(one.layers[0], expected.vectors, atol=1e-6)
    assert one.known == (False, True, True), "the word2vec has a cat and a king"


def test_a_file_of_vectors_finds_its_words(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("3 2\ncat 1 0\n猫 0 1\nsat 2 0\n", encoding="utf-8")
    (one,) = read_token_layers(open_subject(file), ["the cat 猫"])
    assert one.known == (False, True, True) and one.layers[0].tolist() == [[0, 0], [1, 0], [0, 1]]
    assert one.offsets == ((0, 3), (4, 7), (8, 9))


def test_readers_of_texts(tmp_path: Path) -> None:
    subject = reader(tmp_path / "reader", "lstm")
    (one,), (expected,) = read_token_layers(subject, TEXTS[2:]), subject.model.embed_tokens(TEXTS[2:])
    assert [layer.shape for layer in one.layers] == [(1, 6), (1, 10)]
    np.testing.assert_allclose(one.layers[-1], expected.vectors, atol=1e-5)


def test_the_encoder_of_a_transformer(tmp_path: Path) -> None:
    subject = translator(tmp_path / "model", "transformer", encoder_layers=2)
    found = read_token_layers(subject, TEXTS)
    network = subject.translator.network
    assert isinstance(network, Transformer)
    batch = Batch.of(subject.translator.languages.read(TEXTS))
    with torch.inference_mode():
        rows = batch.rows(network.encode(batch.ids, batch.packing))
    for one, row in zip(found, rows, strict=True):
        assert len(one.layers) == 3 and len(one.tokens) == len(row) - 1, "the mark at the end is not of the text"
        np.testing.assert_allclose(one.layers[-1], row[:-1], atol=1e-5)


def test_without_positions_a_token_is_the_same_everywhere(tmp_path: Path) -> None:
    subjects = [
        open_subject(make_folder(tmp_path / "bert")),
        translator(tmp_path / "transformer", "transformer", encoder_layers=2),
    ]
    for subject in subjects:
        (one, other) = read_token_layers(subject, ["the cat sat", "sat the cat"], in_place=False)
        for here, there in zip(one.layers, other.layers, strict=True):
            np.testing.assert_allclose(here, there[[1, 2, 0]], atol=1e-5)
        (one, other) = read_token_layers(subject, ["the cat sat", "sat the cat"])
        assert np.abs(one.layers[-1] - other.layers[-1][[1, 2, 0]]).max() > 1e-2


def test_what_is_unknown_and_what_is_too_long(tmp_path: Path) -> None:
    subject: Subject = open_subject(make_folder(tmp_path / "model"))
    (one,) = read_token_layers(subject, ["cat zebra"])
    assert one.tokens == ("cat", "[UNK]") and one.known == (True, False)
    with pytest.raises(RefusalError) as caught:
        read_token_layers(subject, ["cat", "cat " * 63])
    assert caught.value.code == "too_many_tokens"
    assert (caught.value.about["tokens"], caught.value.about["most"]) == (65, 64)
    with pytest.raises(RefusalError, match="seq2seq"):
        read_token_layers(translator(tmp_path / "seq2seq", "seq2seq"), ["cat"])
