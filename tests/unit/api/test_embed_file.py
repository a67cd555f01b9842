"""Texts to vectors by the file: none lost, none out of place, and an empty one named by its line."""

import json
from pathlib import Path

import numpy as np
import pytest

import qkv
from qkv.api.embed_files import embed_parts, embed_to_file, file_texts, stdin_texts, token_parts
from qkv.api.model import Model
from qkv.errors import InputError
from tests.support.folders import make_folder
from tests.support.word_vectors import SMALL, make_vectors_folder
from tests.unit.data.test_readers import type_in

TEXTS = ["a cat", "他欠我100万", "the street", "猫", "too tired"]
INVISIBLE = "\u200b"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return qkv.load(make_folder(tmp_path_factory.mktemp("folders") / "tiny"))


def test_texts_come_in_order_and_empty_ones_are_left_out(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"a cat\n\n  \n{INVISIBLE}\n猫\n", encoding="utf-8")
    rows = [{"text": "the"}, {"text": INVISIBLE}, {"text": "dog"}]
    (tmp_path / "b.jsonl").write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    files = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    assert list(file_texts(files, model.lacks, skip_empty=True)) == ["a cat", "猫", "the", "dog"]
    with pytest.raises(InputError, match=r"a\.txt, line 2 is empty\. Take it out, or add --skip-empty"):
        list(file_texts(files, model.lacks))
    with pytest.raises(InputError, match=r"b\.jsonl, line 3 is empty"):
        list(file_texts(files[1:], model.lacks))


def test_standard_input_is_read_as_it_comes(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    given = b"a cat\r\n" + INVISIBLE.encode() + "\n猫".encode()
    type_in(monkeypatch, given)
    assert list(stdin_texts(model.lacks, skip_empty=True)) == ["a cat", "猫"]
    type_in(monkeypatch, given)
    found = stdin_texts(model.lacks)
    assert next(found) == "a cat"
    with pytest.raises(InputError, match="Standard input, line 2 is empty. Take it out, or add --skip-empty"):
        next(found)


def test_every_part_has_its_texts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.embedder.TEXTS_PER_CHUNK", 2)
    parts = list(embed_parts(model, iter(TEXTS), "cls", True))
    assert [taken for taken, _ in parts] == [TEXTS[:2], TEXTS[2:4], TEXTS[4:]]
    found = np.concatenate([part.vectors for _, part in parts])
    np.testing.assert_allclose(found, model.embed(TEXTS, "cls", True).vectors, atol=2e-6)


def test_a_file_and_what_is_told_of_it(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.embedder.TEXTS_PER_CHUNK", 2)
    told: list[int] = []
    done = embed_to_file(model, TEXTS, tmp_path / "v.npy", progress=told.append)
    expected = model.embed(TEXTS)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected.vectors, atol=2e-6)
    assert (done.out, done.n_texts, done.width) == (str(tmp_path / "v.npy"), 5, model.config.width)
    assert (done.n_tokens, done.n_windows) == (int(expected.n_tokens.sum()), 5)
    assert told == [2, 2, 1] and done.seconds >= 0


def test_tokens_have_their_texts_too(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.embedder.TEXTS_PER_CHUNK", 2)
    parts = list(token_parts(model, iter(TEXTS), layer=1))
    assert [taken for taken, _ in parts] == [TEXTS[:2], TEXTS[2:4], TEXTS[4:]]
    np.testing.assert_allclose(parts[1][1][1].vectors, model.embed_tokens("猫", layer=1)[0].vectors, atol=2e-6)


def test_texts_without_a_known_word(tmp_path: Path) -> None:
    model = qkv.load(make_vectors_folder(tmp_path / "vectors"))
    (tmp_path / "a.txt").write_text("king xyzzy\nxyzzy unseen\n\ncat\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"a\.txt, line 2 has no vector: none of its 2 words is among those of vectors"
    ):
        list(file_texts([tmp_path / "a.txt"], model.lacks))
    texts = list(file_texts([tmp_path / "a.txt"], model.lacks, skip_empty=True))
    assert texts == ["king xyzzy", "cat"]
    done = embed_to_file(model, texts, tmp_path / "v.npy")
    assert (done.n_texts, done.n_tokens, done.n_without_vector) == (2, 3, 1)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), [SMALL["king"], SMALL["cat"]])


def test_nothing_is_written_of_nothing(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to embed"):
        embed_to_file(model, [], tmp_path / "v.npy")
    assert not any(tmp_path.iterdir())
