"""Learning a vocabulary: worked by hand, equal to the library's trainer, the same every time, and in bounded memory."""

import doctest
import os
import random
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from qkv.errors import InputError
from qkv.text import vocabulary
from qkv.text.segmenter import find_segmenter
from qkv.text.vocabulary import (
    Kind,
    check_kind,
    choose_alphabet,
    choose_characters,
    count_characters,
    count_words,
    is_cased,
    learn_subwords,
    learn_vocabulary,
    read_vocabulary,
    split_letters,
)
from qkv.text.wordpiece import SPECIAL

NAMES = ("uncased", "cased", "chinese")
TEXTS = [
    "The quick brown fox jumps over the lazy dog; the dogs of the fox were quicker than the quickest.",
    "她说：“今天天气很好，我们去北京大学吧！”于是他们就去了北京。",
    "BERT用Transformer编码器，2018年发表。Tokenizers tokenize tokens, and a token is not a word.",
    "",
    "Café, naïve, e\u0301; ＡＢＣ １２３ 😀 𠮷",
] * 3


def test_the_examples_in_the_docstrings() -> None:
    result = doctest.testmod(vocabulary)
    assert result.failed == 0 and result.attempted == 8


@pytest.mark.parametrize("kind", ["word", "wordpiece", "character"])
def test_the_name_of_a_segmenter_is_checked_first(kind: str) -> None:
    with pytest.raises(InputError, match="no segmenter 'jieba', only rjieba, none. Did you mean 'rjieba'?"):
        check_kind(kind, "jieba")
    check_kind(kind, "none")
    for name in ("rjieba", "rjieba 0.1"):
        if kind == "word":
            check_kind(kind, name)
        else:
            with pytest.raises(InputError, match=f"segmenter {name} finds Chinese words"):
                check_kind(kind, name)


def test_joins_worked_by_hand() -> None:
    """aab x 3, ab x 2: "a ##b" stands together 2 times, "a ##a" and "##a ##b" 3 each, and "##a" is younger than "a"."""
    words = {"aab": 3, "ab": 2}
    assert learn_subwords(words, ["a", "##a", "##b"], 9) == ["a", "##a", "##b", "aa", "aab", "ab"]
    assert learn_subwords(words, ["a", "##a", "##b"], 4) == ["a", "##a", "##b", "aa"]
    assert learn_subwords(words, ["a", "##a", "##b"], 9, min_frequency=3) == ["a", "##a", "##b", "aa", "aab"]
    assert learn_subwords({"a": 5}, ["a"], 9) == ["a"]


def test_a_pair_that_overlaps_itself() -> None:
    """##a ##a stands three times in baaaa and is joined twice; what is left over is counted afresh."""
    assert learn_subwords({"baaaa": 2}, ["b", "##a"], 99) == ["b", "##a", "##aa", "baa", "baaaa"]


def test_equal_to_the_librarys_trainer() -> None:
    """The library breaks ties at random; told the ids of the alphabet in advance (as special tokens), it cannot."""
    rng = random.Random(3)
    words = Counter("".join(rng.choices("abcde汉é", k=rng.randint(1, 7))) for _ in range(3000))
    alphabet = sorted({form for word in words for letter in word for form in (letter, "##" + letter)})
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(vocab_size=400, min_frequency=2, show_progress=False, special_tokens=alphabet)
    backend.train_from_iterator([" ".join(words.elements())], trainer)
    expected = sorted(backend.get_vocab().items(), key=lambda entry: entry[1])
    found = learn_subwords(words, alphabet, 400)
    assert found == [token for token, _ in expected] and len(found) == 400


@pytest.mark.parametrize("kind", ["wordpiece", "word", "character"])
def test_the_same_text_gives_the_same_vocabulary(kind: Kind) -> None:
    """In any order, and under any seed of Python's own hashing."""
    expected = learn_vocabulary(TEXTS, kind, 200, True)
    shuffled = TEXTS[:]
    random.Random(1).shuffle(shuffled)
    assert learn_vocabulary(shuffled, kind, 200, True) == expected
    code = (
        "import sys; from qkv.text.vocabulary import learn_vocabulary;"
        f"sys.stdout.buffer.write(repr(learn_vocabulary({TEXTS!r}, {kind!r}, 200, True)).encode())"
    )
    paths = os.pathsep.join(filter(None, [str(Path(vocabulary.__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths, "PYTHONUTF8": "1"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
        assert done.stdout.decode() == repr(expected)


@pytest.mark.parametrize("kind", ["wordpiece", "word", "character"])
def test_special_tokens_come_first_and_nothing_twice(kind: Kind) -> None:
    tokens = learn_vocabulary(TEXTS, kind, 200, True)
    assert tuple(tokens[:5]) == SPECIAL == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert len(set(tokens)) == len(tokens) <= 200


def test_words_are_cut_and_counted() -> None:
    counts = count_words(["It's 北京，BEIJING", "it Ｉt\tÉ"], lowercase=True)
    assert counts == {"it": 2, "'": 1, "s": 1, "北": 1, "京": 1, "，": 1, "beijing": 1, "ｉt": 1, "e": 1}
    assert count_words(["It É it"], lowercase=False) == {"It": 1, "É": 1, "it": 1}


def test_chinese_words_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    jieba = find_segmenter("rjieba")
    texts = ["我爱北京，BEIJING很大", "北京 大学\n北京大学a北京\uf900", "no Chinese", ""]
    expected = Counter("我 爱 北京 ， beijing 很大 北京 大学 北京大学 a 北京 豈 no chinese".split())
    assert count_words(texts, lowercase=True, segmenter=jieba) == expected
    monkeypatch.setattr(vocabulary, "MOST_CHUNKS", 1)
    assert count_words(texts, lowercase=True, segmenter=jieba) == expected
    assert count_words(["a"], lowercase=True, segmenter=jieba) == {"a": 1}


def test_counting_in_small_portions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = count_words(TEXTS, lowercase=True)
    monkeypatch.setattr(vocabulary, "MOST_CHUNKS", 3)
    assert count_words(TEXTS, lowercase=True) == expected


def test_the_rarest_words_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MOST_CHUNKS", 10)
    monkeypatch.setattr(vocabulary, "_MOST_WORDS", 20)
    texts = [f"often word{number}" for number in range(500)]
    counts = count_words(texts, lowercase=True)
    assert len(counts) <= 20 and counts["often"] == 500


def test_memory_does_not_follow_the_corpus() -> None:
    def texts(n: int) -> Iterator[str]:
        for number in range(n):
            yield f"line {number % 100} 北京 " * 20

    peaks = []
    for n in (200, 2000):
        tracemalloc.start()
        count_words(texts(n), lowercase=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 100_000


def test_progress_is_told_how_many_texts_were_read() -> None:
    told: list[int] = []
    count_words((f"a{number}" for number in range(2500)), True, told.append)
    assert told == [1000, 2000, 2500]
    told.clear()
    count_characters(["a"] * 1000, True, told.append)
    assert told == [1000]


def test_rare_characters_do_not_crowd_out_words() -> None:
    """Five thousand 汉字 seen once each beside a hundred million others: the alphabet stops at 99.99 % of the text."""
    words = {chr(0x4E00 + number): 1 for number in range(5000)} | {"中": 10**8, "the": 10**6}
    assert choose_alphabet(words, 15_000) == ["t", "中", "##e", "##h"]
    del words["中"]
    assert len(choose_alphabet(words, 15_000)) > 4000  # in a smaller text the same characters count for more


def test_half_of_the_vocabulary_is_left_for_words() -> None:
    frequent = "".join(map(chr, range(0x4E00, 0x4E00 + 60)))
    words = dict.fromkeys(frequent, 1000) | {chr(0x5000 + n): 1 for n in range(100)} | {"abc": 50}
    alphabet = choose_alphabet(words, 150)
    assert len(alphabet) == 75 and set(frequent) <= set(alphabet)


def test_the_alphabet_may_be_limited_by_hand() -> None:
    words = {"aab": 10, "c": 5, "汉": 1}
    assert choose_alphabet(words, 100, limit=1) == ["a", "##a"]
    assert choose_alphabet(words, 100, limit=99) == ["a", "c", "汉", "##a", "##b"]
    with pytest.raises(InputError, match="vocabulary of 8 is too small for an alphabet of 5 subwords .99 characters."):
        choose_alphabet(words, 3, limit=99)


def test_words_outside_the_alphabet_teach_nothing() -> None:
    tokens = learn_vocabulary(["abab abab 汉 xyz"] * 3, "wordpiece", 100, True, limit_alphabet=2)
    assert "abab" in tokens and not any(set(token) & set("xyz") for token in tokens[5:])


def test_characters_keep_space_and_line_end() -> None:
    assert choose_characters(count_characters(["To be"], False), 100) == ["\n", " ", "T", "b", "e", "o"]
    assert learn_vocabulary(["ＡB\tc"], "character", 100, True)[5:] == ["\t", "\n", " ", "b", "c", "ａ"]
    assert count_characters(["İ"], lowercase=True) == {"i": 1, "\u0307": 1}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no room": ({"size": 5}, "A vocabulary of 5 is too small"),
    "negative": ({"size": -1}, "A vocabulary of -1 is too small"),
    "too small for the alphabet": ({"size": 12}, "A vocabulary of 12 is too small for this text: .* characters. "),
    "too small for the characters": ({"size": 12, "kind": "character"}, "A vocabulary of 12 is too small"),
    "nothing": ({"texts": []}, "There is no text to learn a vocabulary from"),
    "nothing but space": ({"texts": ["", " \n\u3000\u200b"]}, "There is no text"),
    "one string": ({"texts": "corpus.txt"}, "several strings"),
    "no such kind": ({"kind": "wordpeice"}, "no kind of tokenizer 'wordpeice'.* Did you mean 'wordpiece'?"),
    "frequency": ({"min_frequency": 0}, r"\(--min-frequency\) is 0; it must be at least 1"),
    "limit": ({"limit_alphabet": 0}, r"\(--limit-alphabet\) is 0"),
    "no word twice": ({"texts": ["a b c"], "kind": "word"}, "No word occurs 2 times"),
    "half a character": ({"texts": ["a\ud83d b"]}, "A text contains U\\+D83D, half of a surrogate pair"),
    "half a character by itself": ({"texts": ["a\ud83d b"], "kind": "character", "lowercase": False}, "U\\+D83D"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    changes, message = BAD[name]
    arguments: dict[str, Any] = {"texts": TEXTS, "kind": "wordpiece", "size": 200, "lowercase": True, **changes}
    with pytest.raises(InputError, match=message):
        learn_vocabulary(**arguments)


def test_a_vocabulary_file(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_bytes("\ufeff[PAD]\r\na\r\n\u2028\r\n##é\r\n\r\n".encode())
    assert read_vocabulary(file) == ["[PAD]", "a", "\u2028", "##é"]
    file.write_bytes(b"[PAD]\na\n\nb\n")
    with pytest.raises(InputError, match="vocab.txt, line 3 is empty"):
        read_vocabulary(file)
    file.write_bytes(b"[PAD]\na\nb\na\n")
    with pytest.raises(InputError, match="vocab.txt, line 4: 'a' is already on line 2"):
        read_vocabulary(file)
    file.write_bytes("[PAD]\n汉\n".encode("gb18030"))
    with pytest.raises(InputError, match="vocab.txt, line 2 is not UTF-8"):
        read_vocabulary(file)


def test_cased_or_not_is_told_by_the_pieces(shared_data: Path) -> None:
    cased = {name: is_cased(read_vocabulary(shared_data / "vocab" / f"bert-base-{name}-vocab.txt")) for name in NAMES}
    assert cased == {"uncased": False, "cased": True, "chinese": False}


def test_what_says_nothing_about_case() -> None:
    assert not is_cased(["[UNK]", "<S>", "[unused1]", "a", "ℝ", "汉", "[", "<"])  # ℝ is a capital without a small one
    assert is_cased(["[UNK]", "a", "##A"])
    assert is_cased(["É"])


def test_letters_of_one_character() -> None:
    assert split_letters("汉") == ["汉"] and split_letters("#") == ["#"]
