"""Words outside of the vocabulary have ids of their own: by spelling, in every way of reading, and only so many."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.models.elmo.tokenizer import OpenTokenizer
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import make_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words(lowercase: bool = True) -> Tokenizer:
    return Tokenizer.from_vocabulary([*SPECIAL, "the", "cat", "猫"], "word", lowercase)


def test_a_spelling_is_an_id() -> None:
    tokenizer = OpenTokenizer(words())
    one = tokenizer.encode("The Zürich cat ZURICH, [UNK] 狗 zurich", "the 狗")
    known, zurich, comma, dog = tokenizer.size, 8, 9, 10
    assert known == 8
    assert one.ids == [2, 5, zurich, 6, zurich, comma, 1, dog, zurich, 3, 5, dog, 3]
    assert one.tokens[2] == "zurich" and [tokenizer.token(number) for number in (8, 9, 10)] == ["zurich", ",", "狗"]
    assert one.offsets == words().encode("The Zürich cat ZURICH, [UNK] 狗 zurich", "the 狗").offsets
    cased = OpenTokenizer(words(lowercase=False))
    assert cased.encode_ids(["Zürich zurich"]) == [[8, 9]] and cased.token(8) == "Zürich"


def test_every_way_of_reading_gives_the_same() -> None:
    texts = ["the cat", "the dog sat", "", "猫 狗 dog 👩‍👧", "[UNK] the"]
    for base in (words(), make_tokenizer(), Tokenizer.from_vocabulary([*SPECIAL, "t", "h", "猫"], "character")):
        tokenizer = OpenTokenizer(base)
        found = tokenizer.encode_ids(texts)
        assert found == [one.ids for one in tokenizer.encode_batch(texts, special=False)]
        assert found == [tokenizer.encode(text, special=False).ids for text in texts]
        unknown = [[1 if number >= base.size else number for number in row] for row in found]
        assert unknown == base.encode_ids(texts)
        assert tokenizer.is_empty("  ") == base.is_empty("  ") and not tokenizer.is_empty("狗")
        assert tokenizer.files() == base.files() and isinstance(tokenizer, Tokenizer)


def test_a_text_comes_back_with_the_words_that_are_spelled() -> None:
    characters = Tokenizer.from_vocabulary([*SPECIAL, "t", "h", "猫"], "character")
    for base in (words(), make_tokenizer(), characters):
        tokenizer = OpenTokenizer(base)
        for text in ("the zebra sat", "猫狗 dog", "zebra, the okapi."):
            ids = tokenizer.encode(text).ids
            assert tokenizer.decode(ids) == text
            assert tokenizer.decode(ids, skip_special=False).replace(" ", "") == f"[CLS]{text}[SEP]".replace(" ", "")
        with pytest.raises(InputError, match="no token with id 9999"):
            tokenizer.decode([9999])


def test_every_way_to_get_one(tmp_path: Path) -> None:
    words().save(tmp_path)
    vocabulary = list(words().vocabulary)
    for tokenizer in (
        OpenTokenizer.load(tmp_path),
        OpenTokenizer.load(tmp_path / "tokenizer.json"),
        OpenTokenizer.from_vocabulary(vocabulary, "word"),
        OpenTokenizer.train(["the cat 猫"] * 3, "word", 8),
    ):
        assert isinstance(tokenizer, OpenTokenizer) and tokenizer.most is None
        assert tokenizer.encode_ids(["the zebra"])[0][1] == tokenizer.size == 8


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_knows_the_same_words_and_learns_by_itself(copied: Callable[[OpenTokenizer], OpenTokenizer]) -> None:
    tokenizer = OpenTokenizer(words(), most=9)
    ids = tokenizer.encode("the zebra").ids
    other = copied(tokenizer)
    assert other.decode(ids) == "the zebra" and other.most == 9 and other.files() == tokenizer.files()
    assert other.encode_ids(["okapi zebra"]) == [[9, 8]]
    assert tokenizer.encode_ids(["gnu"]) == [[9]] and (tokenizer.token(9), other.token(9)) == ("gnu", "okapi")


def test_who_reads_on_and_on_forgets_what_is_long_past() -> None:
    tokenizer = OpenTokenizer(words(), most=3)
    first = tokenizer.encode_ids(["a b c"])[0]
    assert tokenizer.encode_ids(["a d"])[0] == [first[0], 11], "a was met again, so that b is the oldest"
    assert tokenizer.token(first[0]) == "a"
    with pytest.raises(InputError, match="more than 3 different words outside .* fewer texts at a time"):
        tokenizer.token(first[1])
    assert tokenizer.encode_ids(["b"]) == [[12]], "no id is given twice"
    with pytest.raises(InputError, match="no token with id 99"):
        OpenTokenizer(words()).token(99)


def test_threads_agree() -> None:
    tokenizer = OpenTokenizer(words())
    texts = [" ".join(f"w{(start * 7 + step) % 90}" for step in range(60)) for start in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: tokenizer.encode_ids([text])[0], texts))
    assert [[tokenizer.token(number) for number in row] for row in found] == [text.split() for text in texts]
    assert len({number for row in found for number in row}) == 90
