"""Pieces come together as words, whatever a vocabulary marks them with."""

from pathlib import Path

import pytest

from qkv.api.model import show_tokens
from qkv.look.attention import Question, word_ranges
from qkv.look.subject import open_subject
from qkv.report.attention import Token
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.folders import make_folder, make_tokenizer


def words(tokenizer: Tokenizer, text: str, pair: str | None = None) -> list[str]:
    """What each word is made of, with | between its tokens."""
    texts = [text] if pair is None else [text, pair]
    tokens = show_tokens(tokenizer.encode(text, pair), texts, tokenizer.special_ids)
    found = word_ranges(tokens, texts)
    flat = [place for first, last in found for place in range(first, last + 1)]
    assert flat == list(range(len(tokens)))  # every token once, in order
    return ["|".join(tokens[place].token for place in range(first, last + 1)) for first, last in found]


def test_word_pieces() -> None:
    assert words(make_tokenizer(), "unhappy cats, didn't") == [
        *("[CLS]", "un|##happy", "cat|##s", ",", "didn|'|t", "[SEP]"),
    ]
    assert words(make_tokenizer(), "我爱猫 100") == ["[CLS]", "我", "爱", "猫", "1|##00", "[SEP]"]


def test_a_word_ends_with_its_text() -> None:
    assert words(make_tokenizer(), "the cat", "cat the") == ["[CLS]", "the", "cat", "[SEP]", "cat", "the", "[SEP]"]
    side = [Token("a", "a", 0, 1, 0), Token("a", "a", 0, 1, 1)]  # the same characters, of two texts
    assert word_ranges(side, ["a", "a"]) == [[0, 0], [1, 1]]


def test_an_unknown_word_and_a_blank_are_words() -> None:
    assert words(make_tokenizer(), "the zebra [MASK]") == ["[CLS]", "the", "[UNK]", "[MASK]", "[SEP]"]


def test_bytes() -> None:
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    found = words(tokenizer, "the hatter 京😀 didn't.")
    assert found[0] == "<|endoftext|>" and found[-1] == "<|endoftext|>"
    # 京, whose bytes are several tokens, is one word, and so are the sign and didn't
    assert [one.replace("|", "") for one in found[1:-1]] == ["the", "Ġhatter", "Ġäº¬", "ðŁĺĢ", "Ġdidn't", "."]
    assert found[2].count("|") > 1 and found[3].count("|") > 1


def test_pieces_of_a_sentence_piece_model() -> None:
    text = "Tom 追逐"
    spans = [("▁T", 0, 1), ("om", 1, 3), ("▁", 4, 4), ("追", 4, 5), ("逐", 5, 6), ("</s>", 0, 0)]
    tokens = [Token(one, text[start:end], start, end, 0, one == "</s>") for one, start, end in spans]
    assert word_ranges(tokens, [text]) == [[0, 1], [2, 3], [4, 4], [5, 5]]


def test_pieces_that_end_a_word() -> None:
    tokenizer = Tokenizer(gpt_backend(), "byte-pair")
    tokens = show_tokens(tokenizer.encode("the cathat", special=False), ["the cathat"], tokenizer.special_ids)
    found = word_ranges(tokens, ["the cathat"])
    assert ["".join(tokens[place].text for place in range(a, b + 1)) for a, b in found] == ["the", "cathat"]


def test_characters() -> None:
    tokenizer = Tokenizer.from_vocabulary(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", " ", "c", "a", "t", "猫"], kind="character"
    )
    assert words(tokenizer, "cat 猫猫") == ["[CLS]", "c|a|t", " ", "猫", "猫", "[SEP]"]


def test_a_token_may_lie_across_words() -> None:
    text = "ab cd ef"
    tokens = [Token("ab", "ab", 0, 2), Token("▁c", " c", 2, 4), Token("d▁e", "d e", 4, 7), Token("f", "f", 7, 8)]
    assert word_ranges(tokens, [text]) == [[0, 0], [1, 3]]


@pytest.mark.parametrize("text", ["a" * 300, "\u200b猫\u200d", "ＡＢＣ ﬁ", "e\u0301te\u0301", "👩‍👩‍👧 🇨🇳", "한국어"])
def test_nasty_texts_are_cut_without_a_rest(tmp_path: Path, text: str) -> None:
    subject = open_subject(make_folder(tmp_path / "bert", "BertModel"))
    scene = Question(subject, "self", text, None, None).scene()
    found = word_ranges(scene.left.tokens, scene.texts)
    assert [place for a, b in found for place in range(a, b + 1)] == list(range(len(scene.left.tokens)))
