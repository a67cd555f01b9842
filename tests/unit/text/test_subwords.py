"""A text comes back from its pieces as it was, whatever it is made of."""

from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.text.subwords import SPACE_MARK, train_subwords
from qkv.text.tokenizer import Tokenizer

TEXTS = (
    "He wears a T-shirt, doesn't he?",
    'Tom said: "Well-known 3.14 (about)."',
    "汤姆追逐杰瑞。",
    "他用 Python 3 写代码，很快！",
    "Zwei Männer – naïve café",
    "🙂 ok",
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_subwords([*TEXTS, *TEXTS], 400)


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    encoded = tokenizer.encode(text, special=False)
    assert tokenizer.decode(encoded.ids) == text
    assert all(len(token) == 1 for token in encoded.tokens if any("一" <= character <= "鿿" for character in token))


@pytest.mark.parametrize("text", ["a  T-shirt ,  ", "well - known", "well-known", "3 . 14"])
def test_spaces_are_kept_where_they_were(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, special=False).ids
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == " ".join(text.split())


def test_digits_and_characters_stand_alone(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("3.14", special=False).tokens == [f"{SPACE_MARK}3", ".", "1", "4"]
    assert tokenizer.encode("追逐", special=False).tokens == ["追", "逐"]


def test_what_does_not_come_back_is_blanks_alone(tokenizer: Tokenizer) -> None:
    for text in ("  a \t T-shirt ", f"a{SPACE_MARK}T-shirt"):
        assert tokenizer.decode(tokenizer.encode_ids([text])[0]) == "a T-shirt"


def test_offsets_are_of_the_text(tokenizer: Tokenizer) -> None:
    text = "他用 Python"
    found = tokenizer.encode(text, special=False)
    assert "".join(text[start:end] for start, end in found.offsets) == text


def test_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "kept")
    again = Tokenizer.load(tmp_path / "kept")
    assert again.encode_ids(list(TEXTS)) == tokenizer.encode_ids(list(TEXTS))
    assert again.decode(again.encode_ids(["a T-shirt"])[0]) == "a T-shirt"


def test_the_same_texts_give_the_same_vocabulary() -> None:
    assert train_subwords([*TEXTS] * 2, 300).vocabulary == train_subwords([*TEXTS] * 2, 300).vocabulary


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        ([], 100, "no text"),
        (["  "], 100, "no text"),
        (["a b"], 5, "is too small"),
        (["abcdefghijklmnopqrstuvwxyz" * 2], 20, "too small for these texts: its alphabet would hold"),
    ],
)
def test_what_cannot_be_learned_from(texts: list[str], size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_subwords(texts, size)
