"""Chinese words as tokens: cut by the segmenter, spans of the text as it was written, the same after saving."""

import copy
import json
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer

import qkv.text.segmenter as module
from qkv.data.corpus.shards import hash_of
from qkv.errors import InputError
from qkv.text.segmenter import ChineseWords, find_segmenter, spans_before
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL

WORDS = "the cat , 。 ！ 我 爱 在 北京 北京大学 北 天安门 西安 站 语言 模型 豈 国王 3 bert".split()
TEXTS = ["国王在北京大学，我爱语言模型。", "国王在西安站！the cat is in 北京", "我在北京。我爱北京天安门"] * 2
NASTY = [
    "",
    "  \n\u3000",
    "我爱北京天安门，the Cat在西安站！",
    "北京 大学 北京大学",
    "我[MASK]北京[SEP] [mask]爱",
    "豈\uf900 㐂𠮷野家 \U0002b820北京",
    "北\u200b京\u0301 北京\u0301大学\x00爱",
    "3爱B李我É北京",
    " 我  爱   ",
    "カタカナ北京한국어",
]


def words_of(lowercase: bool = True) -> Tokenizer:
    return Tokenizer.from_vocabulary([*SPECIAL, *WORDS], "word", lowercase, segmenter="rjieba")


def tokens(tokenizer: Tokenizer, text: str) -> str:
    return " ".join(tokenizer.encode(text, special=False).tokens)


def test_by_hand() -> None:
    tokenizer = words_of()
    text = "我在北京大学，the Cat爱BERT模型！"
    found = tokenizer.encode(text)
    assert found.tokens == ["[CLS]", *"我 在 北京大学 [UNK] the cat 爱 bert 模型 ！".split(), "[SEP]"]
    spans = [text[start:end] for start, end in found.offsets]
    assert spans == ["", *"我 在 北京大学 ， the Cat 爱 BERT 模型 ！".split(), ""]
    assert tokenizer.decode(found.ids) == "我在北京大学 the cat 爱 bert 模型！"
    assert tokenizer.encode_ids([text]) == [found.ids[1:-1]]
    assert tokens(Tokenizer.from_vocabulary([*SPECIAL, *WORDS], "word"), "北京") == "北 [UNK]", "without a segmenter"


def test_a_word_that_is_not_known_is_read_as_the_longest_known_ones() -> None:
    tokenizer = words_of()
    jieba = find_segmenter("rjieba")
    assert jieba is not None and jieba.cut("西安站") == ["西安站"]
    assert tokens(tokenizer, "西安站") == "西安 站"
    assert tokenizer.encode("西安站", special=False).offsets == [(0, 2), (2, 3)]
    assert jieba.cut("天津站") == ["天津站"] and tokens(tokenizer, "天津站") == "[UNK]", "a part of it is unknown"
    assert tokens(tokenizer, "\uf900") == "豈", "spelled as the vocabulary spells it"
    assert tokens(words_of(lowercase=False), "\uf900") == "[UNK]"


def test_pairs_and_special_tokens() -> None:
    tokenizer = words_of()
    found = tokenizer.encode("我[MASK]北京", "国王爱 北京")
    assert found.tokens == "[CLS] 我 [MASK] 北京 [SEP] 国王 爱 北京 [SEP]".split()
    assert found.offsets == [(0, 0), (0, 1), (1, 7), (7, 9), (0, 0), (0, 2), (2, 3), (4, 6), (0, 0)]
    assert found.segments == [0] * 5 + [1] * 4
    assert tokenizer.encode_batch(NASTY, NASTY[::-1]) == [
        tokenizer.encode(a, b) for a, b in zip(NASTY, NASTY[::-1], strict=True)
    ]


def test_no_word_is_looked_for_in_an_added_token() -> None:
    tokenizer = words_of()
    tokenizer.backend.add_tokens(["[北京站]", "爱北"])
    grown = Tokenizer(tokenizer.backend, "word", segmenter="rjieba")
    assert tokens(grown, "我在[北京站]爱我爱北京") == "我 在 [北京站] 爱 我 爱北 [UNK]"
    assert grown.encode("国王[北京站]", special=False).offsets == [(0, 2), (2, 7)]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from(NASTY), st.text("我北京爱 豈\uf900a\u0301[MASK]。"))).map("".join))
def test_offsets_of_any_text(text: str) -> None:
    tokenizer = words_of()
    found = tokenizer.encode(text, special=False)
    assert found.offsets == sorted(found.offsets)
    for token, (start, end) in zip(found.tokens, found.offsets, strict=True):
        assert 0 <= start < end <= len(text)
        if token not in SPECIAL:
            assert tokenizer.backend.normalizer.normalize_str(text[start:end]).strip() == token


def test_spans_of_what_was_written() -> None:
    assert spans_before("a", " a ", []) == []
    assert spans_before(" 我爱", "  我  爱 ", [(2, 3), (5, 6), (0, 0)]) == [(1, 2), (2, 3), (0, 0)]


# Learned and saved


def test_a_vocabulary_of_words_is_learned(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TEXTS, "word", 60, segmenter="rjieba")
    assert {"国王", "北京大学", "语言", "模型", "天安门", "the"} <= tokenizer.vocabulary.keys()
    assert tokens(tokenizer, TEXTS[0]) == "国王 在 北京大学 ， 我 爱 语言 模型 。"
    assert Tokenizer.train(TEXTS, "word", 60, segmenter="none").segmenter is None
    with pytest.raises(InputError, match="with kind wordpiece each 汉字 is a token"):
        Tokenizer.train(TEXTS, "wordpiece", 60, segmenter="rjieba")
    with pytest.raises(InputError, match="no segmenter 'jieba'"):
        Tokenizer.train(TEXTS, "word", 60, segmenter="jieba")


@pytest.mark.parametrize("lowercase", [True, False])
def test_what_is_saved_is_loaded(tmp_path: Path, lowercase: bool) -> None:
    tokenizer = words_of(lowercase)
    tokenizer.save(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        again = Tokenizer.load(path)
        assert again.segmenter == tokenizer.segmenter and again.segmenter is not None
        assert again.encode_batch(NASTY + TEXTS) == tokenizer.encode_batch(NASTY + TEXTS)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    Tokenizer.load(tmp_path).save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_others_read_words_that_stand_apart(tmp_path: Path) -> None:
    tokenizer = words_of()
    tokenizer.save(tmp_path)
    assert tokenizer.chinese is not None
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["segmenter"].startswith("rjieba ") and "put spaces between" in config["segmenter_note"]
    apart = tokenizer.chinese.spaced(TEXTS)
    expected = tokenizer.encode_batch(TEXTS)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(apart)["input_ids"] == [one.ids for one in expected]
    assert theirs.unk_token_id in theirs(TEXTS[0])["input_ids"], "without spaces it sees other words"
    rust = Backend.from_file(str(tmp_path / "tokenizer.json"))
    assert [one.ids for one in rust.encode_batch(apart)] == [one.ids for one in expected]


def test_two_segmenters_are_two_tokenizers(tmp_path: Path) -> None:
    named = [
        Tokenizer.from_vocabulary([*SPECIAL, *WORDS], "word", True, segmenter=name)
        for name in ("none", "rjieba", "rjieba 0.0.1")
    ]
    assert len({hash_of(one) for one in named}) == 3
    assert hash_of(named[1]) == hash_of(words_of())
    named[2].save(tmp_path)
    assert hash_of(Tokenizer.load(tmp_path)) == hash_of(named[2])


@pytest.mark.parametrize("wrong", ["pkuseg 1.0", 3])
def test_a_segmenter_that_nobody_knows(tmp_path: Path, wrong: object) -> None:
    words_of().save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"segmenter": wrong}))
    with pytest.raises(InputError, match="tokenizer_config.json: segmenter is .*only rjieba is known"):
        Tokenizer.load(tmp_path)


def test_another_version_is_said_once() -> None:
    tokenizer = Tokenizer.from_vocabulary([*SPECIAL, *WORDS], "word", True, segmenter="rjieba 0.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer.encode("the cat")
        with pytest.raises(UserWarning, match="trained with rjieba 0.0.1, but rjieba .* is installed"):
            tokenizer.encode("北京")
        assert tokens(tokenizer, "北京") == "北京"


def test_without_a_segmenter_all_but_chinese_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_of().save(tmp_path)
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokens(tokenizer, "the cat!") == "the cat [UNK]" and tokenizer.id("国王") and tokenizer.token(5) == "the"
    with pytest.raises(InputError, match=r"needs the segmenter rjieba for Chinese words.*pip install 'qkv\[zh\]'"):
        tokenizer.encode("the 猫")


# Threads and processes


def test_several_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WORDS", 3)  # what is remembered is forgotten again and again
    tokenizer = words_of()
    texts = [*NASTY, "西安站", "天津站", "语言站", "北京站", "国王站爱"] * 8
    expected = [words_of().encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected


def test_it_can_be_copied_and_sent() -> None:
    tokenizer = words_of()
    expected = tokenizer.encode_batch(TEXTS)
    assert copy.deepcopy(tokenizer).encode_batch(TEXTS) == expected
    assert pickle.loads(pickle.dumps(tokenizer)).encode_batch(TEXTS) == expected
    words = ChineseWords("rjieba", {})
    assert pickle.loads(pickle.dumps(words)).spaced(["我爱北京"]) == [" 我 爱 北京 "]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_reads_the_same() -> None:
    tokenizer = words_of()
    expected = tokenizer.encode_ids(TEXTS)
    child = os.fork()
    if child == 0:
        os._exit(0 if tokenizer.encode_ids(TEXTS) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
