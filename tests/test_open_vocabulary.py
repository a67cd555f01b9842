"""Words outside of the vocabulary have ids of their own: by spelling, in every way of reading, and only so many."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from qkv.data.open_vocabulary import OpenTokenizer
from qkv.errors import InputError
from qkv.tokenizer import Tokenizer
from tests.folders import make_tokenizer

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
        assert tokenizer.decode(found[1]) == base.decode(unknown[1])
        assert tokenizer.is_empty("  ") == base.is_empty("  ") and not tokenizer.is_empty("狗")
        assert tokenizer.files() == base.files() and isinstance(tokenizer, Tokenizer)


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
