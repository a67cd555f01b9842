"""Unknown tokens: counted from ids, and named by the characters behind them."""

import json

import pytest
from tokenizers import Tokenizer as Backend

import qkv.text.tokenizer as tokenizers
import qkv.text.unknown as unknown
from qkv.errors import InputError
from qkv.models.folders.hub import locate
from qkv.text.tokenizer import Tokenizer
from qkv.text.unknown import UnknownCounter, UnknownFacts, count_unknown, find_unknown
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
    assert facts.folds == [], "no folding makes the model know 😡 or 嗯"


def test_foldings_that_help_only_together(tokenizer: Tokenizer) -> None:
    counter = UnknownCounter(tokenizer)
    counter.add(["ｃａｔ😡"], 1, 1)
    assert counter.facts().folds == ["width", "emoji"], "cat is next to an emoji, and in full width"


def test_only_the_first_characters_are_examined(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "_EXAMINED_CHARACTERS", 10)
    counter = UnknownCounter(tokenizer)
    counter.add(["cat 嗯 the cat 😡"], 2, 5)
    counter.add(["嗯"], 1, 1)
    facts = counter.facts()
    assert facts.n_unknown == 3 and facts.most_frequent == {"嗯": 1}
    counter = UnknownCounter(tokenizer)
    counter.add(["cat the cat 😡"], 1, 4)
    said = counter.facts().describe()
    assert said is not None and "are unknown to the model. A model" in said, "no character was found"


def test_a_folding_is_proposed_where_it_helps(tokenizer: Tokenizer) -> None:
    def folds(vocabulary: Tokenizer, text: str) -> list[str]:
        counter = UnknownCounter(vocabulary)
        ids = vocabulary.encode_ids([text])[0]
        counter.add([text], count_unknown(vocabulary, ids), len(ids))
        return list(counter.facts().folds)

    chinese = Tokenizer.from_vocabulary([*WORDS, "这", "个", "们", "a"])
    assert folds(chinese, "這") == ["simplified"] and folds(tokenizer, "這") == [], "it knows neither form"
    assert folds(chinese, "ａ") == ["width"] and folds(tokenizer, "ａ") == []
    assert folds(chinese, "👨\u200d👩\u200d👧") == [], "the joiners alone are left, and they have no token"
    assert folds(chinese, "cat😡") == ["emoji"] and folds(chinese, "😡 cat") == [], "split off already"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = UnknownFacts(1, 2, 1, 1, 0, {"這": 1}, ["simplified"])
    monkeypatch.setattr(unknown, "find_spec", lambda name: None)
    assert facts.remedy("my model").endswith(
        "pip install 'qkv[zh]' was run: qkv convert 'my model' NEW --fold simplified."
    )
    assert "qkv[zh]" not in UnknownFacts(1, 2, 1, 1, 0, {"Ａ": 1}, ["width"]).remedy()


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
    text = "The quick 他欠我100万，\nnaïve e\u0301 ＡＢ１[MASK]😡x😡 한국\u3000- " * 40 + "a" * 300 + " 好。"
    pair = "second 句子 " * 3
    whole = mini.encode(text, pair), mini.encode_ids([text, pair]), mini.encode_batch([text, pair], special=False)
    for longest in (7, 50, 333):
        monkeypatch.setattr(tokenizers, "LONG", longest)
        assert mini.encode(text, pair) == whole[0]
        assert mini.encode_ids([text, pair]) == whole[1]
        assert mini.encode_batch([text, pair], special=False) == whole[2]
        assert all(len(part.ids) <= longest for part in mini.stream(text))


def test_long_texts_with_control_characters_or_unsplit_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    mini = Tokenizer.load(locate("qkv-mini"))
    state = json.loads(mini.backend.to_str())
    state["normalizer"]["handle_chinese_chars"] = False
    unsplit = Tokenizer(Backend.from_str(json.dumps(state)), "wordpiece")
    controls, chinese = "ab\x1ccd ef\x0bgh\x85ij 他 " * 20, "他欠我钱" * 20
    whole = mini.encode_ids([controls]), unsplit.encode_ids([chinese])
    monkeypatch.setattr(tokenizers, "LONG", 7)
    assert (mini.encode_ids([controls]), unsplit.encode_ids([chinese])) == whole


def test_a_long_text_with_half_a_character_is_refused(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> None:
    monkeypatch.setattr(tokenizers, "LONG", 5)
    with pytest.raises(InputError, match="U\\+D83D, half of a surrogate pair"):
        tokenizer.encode_ids(["the cat \ud83d the"])


def test_bytes_of_the_command_line_are_named() -> None:
    assert "the byte 0xFF, which is not UTF-8" in str(half_character("\udcff"))
