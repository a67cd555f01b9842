"""Unknown tokens: counted from ids, and named by the characters behind them."""

import pytest

import qkv.text.tokenizer as tokenizers
from qkv.errors import InputError
from qkv.models.folders.hub import locate
from qkv.text.tokenizer import Tokenizer
from qkv.text.unknown import UnknownCounter, count_unknown, find_unknown
from qkv.text.vocabulary import half_character
from tests.support.byte_pairs import gpt2_backend, gpt_backend

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "猫", "好", "！"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(WORDS)


def test_characters_behind_unknown_tokens(tokenizer: Tokenizer) -> None:
    assert find_unknown(tokenizer, "猫好！ the cat") == []
    assert find_unknown(tokenizer, "嗯，猫😡😡") == ["嗯", "，", "😡", "😡"]
    assert find_unknown(tokenizer, "the catalogue") == ["catalogue"], "of plain letters the word is named"
    assert count_unknown(tokenizer, tokenizer.encode_ids(["嗯，猫😡😡"])[0]) == 3


def test_counts_over_texts(tokenizer: Tokenizer) -> None:
    counter = UnknownCounter(tokenizer)
    for text in ["the cat", "😡😡", "嗯嗯 cat"]:
        ids = tokenizer.encode_ids([text])[0]
        counter.add([text], count_unknown(tokenizer, ids), len(ids))
    facts = counter.facts()
    assert (facts.n_texts, facts.n_tokens, facts.n_unknown, facts.n_affected, facts.n_unreadable) == (3, 6, 3, 2, 1)
    assert facts.most_frequent == {"😡": 2, "嗯": 2} and facts.share == 0.5
    said = facts.describe()
    assert said is not None and "3 of 6 tokens (50.0 %)" in said and "in 2 of 3 texts, 1 of them wholly" in said


def test_a_few_unknown_tokens_are_not_worth_a_line(tokenizer: Tokenizer) -> None:
    counter = UnknownCounter(tokenizer)
    counter.add(["cat " * 500 + "嗯"], 1, 501)
    assert counter.facts().n_unknown == 1 and counter.facts().describe() is None


def test_a_vocabulary_of_bytes_has_no_unknown_tokens() -> None:
    assert Tokenizer(gpt2_backend(), "byte-pair").unknown_id is None
    words = Tokenizer(gpt_backend(), "byte-pair")
    assert words.unknown_id == words.id("<unk>") is not None


def test_long_texts_have_the_same_tokens_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    mini = Tokenizer.load(locate("qkv-mini"))
    text = "The quick 他欠我100万，\nnaïve e\u0301 [MASK]😡 한국\u3000- " * 40 + "a" * 300 + " 好。"
    pair = "second 句子 " * 3
    whole = mini.encode(text, pair), mini.encode_ids([text, pair]), mini.encode_batch([text, pair], special=False)
    for longest in (7, 50, 333):
        monkeypatch.setattr(tokenizers, "LONG", longest)
        assert mini.encode(text, pair) == whole[0]
        assert mini.encode_ids([text, pair]) == whole[1]
        assert mini.encode_batch([text, pair], special=False) == whole[2]
        assert all(len(part.ids) <= longest for part in mini.stream(text))


def test_a_long_text_with_half_a_character_is_refused(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> None:
    monkeypatch.setattr(tokenizers, "LONG", 5)
    with pytest.raises(InputError, match="U\\+D83D, half of a surrogate pair"):
        tokenizer.encode_ids(["the cat \ud83d the"])


def test_bytes_of_the_command_line_are_named() -> None:
    assert "the byte 0xFF, which is not UTF-8" in str(half_character("\udcff"))
