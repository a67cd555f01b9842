"""Words out of tokens: what is joined, what is counted, what is found again."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.models.word2vec.corpus import SentenceChunks, WholeWords
from qkv.text.tokenizer import Tokenizer

LINES = ["我爱北京的天气。", "北京 is unhappy, the cat is not.", "上海的天气很好。", "天气！"] * 3
WORDS = "我 爱 北京 的 天气 上海 很 好".split()


def by_hand(text: str) -> list[str]:
    """The longest known word first."""
    found = []
    while text:
        word = next((one for one in sorted(WORDS, key=len, reverse=True) if text.startswith(one)), text[0])
        found.append(word)
        text = text[len(word) :]
    return found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Sentences over several shards, cut into pieces: every 汉字, and "un" "##happy"."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "corpus.txt").write_text("\n\n".join(LINES) + "\n", encoding="utf-8")
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##happy is the cat , . 。 我 爱 北 京 的 天 气 上 海 很 好".split()
    tokenizer = Tokenizer.from_vocabulary(pieces)
    prepare_corpus(
        folder / "corpus.txt",
        tokenizer,
        folder / "shards",
        segmenter=by_hand,
        workers=1,
        hold_out=0,
        shard_tokens=30,
        block_bytes=60,
    )
    return Shards.open(folder / "shards")


def test_words_are_put_together_and_counted(shards: Shards) -> None:
    words = WholeWords(shards, min_count=1, most=100)
    counts = {word: int(words.counts[id]) for word, id in words.tokenizer.vocabulary.items() if words.counts[id]}
    expected = Counter("我 爱 北京 的 天气 。 北京 is unhappy , the cat is . 上海 的 天气 很 好 。 天气".split())
    assert counts == {word: 3 * count for word, count in expected.items()}  # "not" and "！" are unknown
    ordered = [word for word in words.tokenizer.vocabulary if word in counts]
    assert [counts[word] for word in ordered] == sorted(counts.values(), reverse=True)


def test_the_words_are_found_in_new_text_too(shards: Shards, tmp_path: Path) -> None:
    assert WholeWords(shards, 1, 100).tokenizer.segmenter is None  # a function of somebody's, which cannot be had again
    (tmp_path / "corpus.txt").write_text("\n\n".join(LINES) + "\n", encoding="utf-8")
    prepare_corpus(tmp_path / "corpus.txt", shards.tokenizer(), tmp_path / "shards", segmenter="rjieba", hold_out=0)
    words = WholeWords(Shards.open(tmp_path / "shards"), 1, 100).tokenizer
    assert words.segmenter is not None and words.segmenter.startswith("rjieba ")
    assert words.encode("上海北京的天气", special=False).tokens == "上海 北京 的 天气".split()


@pytest.mark.parametrize("size", [1, 1000])
def test_chunks_of_words(shards: Shards, size: int) -> None:
    words = WholeWords(shards, min_count=1, most=100)
    chunks = SentenceChunks(shards, size, words)
    assert len(shards.manifest["train"]["shards"]) > 1
    found = []
    for number in range(len(chunks)):
        ids, sentences = chunks[number].flat()
        for sentence in range(int(sentences[-1]) + 1):
            found.append(" ".join(words.tokenizer.token(int(id)) for id in ids[sentences == sentence]))
    expected = ["我 爱 北京 的 天气 。", "北京 is unhappy , the cat is [UNK] .", "上海 的 天气 很 好 。", "天气 [UNK]"]
    assert found == expected * 3


def test_rare_words_are_left_out(shards: Shards) -> None:
    words = WholeWords(shards, min_count=6, most=100)
    assert set(list(words.tokenizer.vocabulary)[5:]) == {"天气", "北京", "的", "。", "is"}
    assert len(WholeWords(shards, min_count=1, most=7).counts) == 7
    with pytest.raises(InputError, match="occurs 1000 times"):
        WholeWords(shards, min_count=1000, most=100)


def test_its_tokenizer_knows_words(shards: Shards, tmp_path: Path) -> None:
    words = WholeWords(shards, min_count=1, most=100)
    words.tokenizer.save(tmp_path / "tokenizer")
    again = Tokenizer.load(tmp_path / "tokenizer")
    assert again.vocabulary == words.tokenizer.vocabulary and again.kind == "word"
    assert again.encode("北京 的 Unhappy", special=False).tokens == ["北京", "的", "unhappy"]


def test_words_are_the_same_however_they_are_found(shards: Shards) -> None:
    first, second = (WholeWords(shards, 1, 100) for _ in range(2))
    assert first.tokenizer.vocabulary == second.tokenizer.vocabulary
    assert np.array_equal(first.counts, second.counts)
