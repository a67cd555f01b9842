"""Ids by table and memory: exactly those of the tokenizer, whatever the text; and word starts, which move none."""

import lzma
import random
import unicodedata
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from qkv.data.corpus import encode
from qkv.data.corpus.encode import CorpusEncoder, how_it_cuts
from qkv.text.folding import add_folding
from qkv.text.segmenter import find_segmenter, split_sentences
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL
from tests.support.folders import TOKENS, make_tokenizer

CASED = [*SPECIAL, *"The the cat Cat é e ´ . , ! [ ] # mask MASK sep 我 爱 北 京 i ##i ##I I ##̇ ##t ##s ##́ ́".split()]
CHARACTERS = [*SPECIAL, *sorted(set(" \nabceiT.,![]#我爱北京é̇"))]


def folded(tokenizer: Tokenizer) -> Tokenizer:
    """The same, with the foldings of new tokenizers."""
    add_folding(tokenizer.backend, ["width", "emoji"])
    return tokenizer


KINDS = {
    "uncased": make_tokenizer(),
    "cased": Tokenizer.from_vocabulary(CASED, kind="wordpiece", lowercase=False),
    "words": Tokenizer.from_vocabulary(TOKENS, kind="word", lowercase=True),
    "Chinese words": Tokenizer.from_vocabulary([*TOKENS, "北京", "天安门", "人工"], "word", True, segmenter="rjieba"),
    "folded": folded(make_tokenizer()),
    "folded, cased": folded(Tokenizer.from_vocabulary([*CASED, "😀", "Ａ"], kind="wordpiece", lowercase=False)),
    "folded words": folded(Tokenizer.from_vocabulary([*TOKENS, "北京"], "word", True, segmenter="rjieba")),
    "characters": Tokenizer.from_vocabulary(CHARACTERS, kind="character", lowercase=False),
    "small characters": Tokenizer.from_vocabulary(CHARACTERS, kind="character", lowercase=True),
}

NASTY = [
    "",
    "The cat's 3.14, un-happyness; unhappyness!",
    "我爱北京天安门ABC我，爱。",
    "a\x0bb\x0cc\x1cd\x85e",  # Python sees spaces here, BERT sees what is dropped
    "a\u00a0b\u3000c\u2003d\u200be\u2028f\ufefff",
    "中\u200b国\u0301\u0338人",
    "e\u0301 é ≠ ≮ =\u0338 <\u0338 ;\u037e ` \u1fef !\u0301!",
    "豈更 \uf900\ufa0e \U0002f800 𠮷野家 \U0002b820\U0002b920 㐂",
    "한국어 ハード かな ﾊﾟ ไทย नमस्ते",
    "İstanbul ıI ΣΑΣ ß ﬁ Ǆ",
    "👩‍👧😀 ☺️ \U0001f1e8\U0001f1f3 cat😀😀dog我😀\u0301 cats☺\u0301\u0488x",
    "Ｔｈｅ　ｃａｔ５Ｇ Ａ\u0301Ａ\u0488 ｃａｔ我ｃａｔ😀ｃａｔ，ＡＢＣ。",
    "\x00\x01\ufffd \ue000 \U000e0001",
    "x" * 99 + " " + "y" * 101 + " cat" + "z" * 300,
    "“quoted”‘single’…—–«»¿¡$+<=>^`|~#@_-",
    "##s ## # ##ed cat##s",
    "tabs\tand\r\rreturns  and   spaces ",
]


def encoded(encoder: CorpusEncoder, text: str) -> tuple[list[str], list[list[int]], list[list[bool]]]:
    spans = np.array(split_sentences(text), np.int64).reshape(-1, 2)
    found = encoder.encode(text, spans[:, 0], spans[:, 1])
    assert len(found.ids) == len(found.word_starts) == found.lengths.sum()
    cuts = np.cumsum(found.lengths)[:-1]
    sentences = [text[start:end] for start, end in spans.tolist()]
    if not sentences:
        return [], [], []
    return (
        sentences,
        [x.tolist() for x in np.split(found.ids, cuts)],
        [x.tolist() for x in np.split(found.word_starts, cuts)],
    )


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return KINDS[request.param]


def test_the_quick_way_is_taken_for_our_own_kinds() -> None:
    assert [how_it_cuts(tokenizer) for tokenizer in KINDS.values()] == ["words"] * 7 + ["characters"] * 2


def test_nasty_strings(tokenizer: Tokenizer) -> None:
    encoder = CorpusEncoder(tokenizer, find_segmenter("rjieba"))
    for text in [*NASTY, "\n".join(NASTY), "\n\n".join(NASTY[::-1])]:
        sentences, ids, _ = encoded(encoder, text)
        assert ids == tokenizer.encode_ids(sentences), text


def test_every_character_between_others(tokenizer: Tokenizer) -> None:
    """Each assigned code point of the planes in use and some of the others, alone and with neighbours of every sort."""
    encoder = CorpusEncoder(tokenizer)
    draw = random.Random(0)
    codes = [
        code
        for code in [*range(0x3400), *range(0x4DB0, 0x4E10), *range(0x9FF0, 0x11000)]
        if not 0xD800 <= code < 0xE000
    ]
    codes += [*range(0x11000, 0x20010), *range(0x2A6D0, 0x2A710), *range(0x2B730, 0x2B930), *range(0x2CEA0, 0x2CEC0)]
    codes = [code for code in codes if code % 16 == 0 or unicodedata.category(chr(code)) != "Cn"]
    draw.shuffle(codes)
    lines = []
    for start in range(0, len(codes), 100):
        lines.append(
            "".join(
                chr(code) + draw.choice(["", "", " ", "cat", "我", "!", "\u0301"])
                for code in codes[start : start + 100]
            )
        )
    sentences, ids, _ = encoded(encoder, "\n".join(lines))
    for sentence, found, expected in zip(sentences, ids, tokenizer.encode_ids(sentences), strict=True):
        assert found == expected, sentence


@settings(deadline=None, max_examples=150)
@given(
    st.text(
        st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aT.! 我北京\u0301\n[]#é")), max_size=60
    )
)
@example("a. \x0bb")
@example("好.\x85他")
def test_any_text(text: str) -> None:
    assume(not any(token in text for token in SPECIAL))  # hypothesis knows the literals of the source
    for name, encoder in ENCODERS.items():
        sentences, ids, _ = encoded(encoder, text)
        assert ids == KINDS[name].encode_ids(sentences)


ENCODERS = {name: CorpusEncoder(tokenizer, find_segmenter("rjieba")) for name, tokenizer in KINDS.items()}


def wikipedia(folder: Path, characters: int) -> str:
    with lzma.open(folder / "valid-00.txt.xz", "rt", encoding="utf-8") as stream:
        return stream.read(characters)


@pytest.mark.parametrize("vocabulary", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
@pytest.mark.parametrize("folder", ["enwiki_text", "zhwiki_text"])
def test_wikipedia(shared_data: Path, folder: str, vocabulary: str) -> None:
    tokenizer = Tokenizer.load(shared_data / "vocab" / f"{vocabulary}-vocab.txt")
    text = wikipedia(shared_data / folder, 250_000)
    sentences, ids, _ = encoded(CorpusEncoder(tokenizer), text)
    assert ids == tokenizer.encode_ids(sentences)


@pytest.mark.parametrize("kind", ["word", "Chinese words", "character"])
@pytest.mark.parametrize("folder", ["enwiki_text", "zhwiki_text"])
def test_wikipedia_in_other_kinds(shared_data: Path, folder: str, kind: str) -> None:
    text = wikipedia(shared_data / folder, 200_000)
    cutter = "rjieba" if kind == "Chinese words" else None
    lines = text.split("\n")[::2]
    tokenizer = Tokenizer.train(lines, "character" if kind == "character" else "word", 5000, segmenter=cutter)
    sentences, ids, _ = encoded(CorpusEncoder(tokenizer), text)
    assert ids == tokenizer.encode_ids(sentences)


def marked(tokenizer: Tokenizer, text: str, words: str) -> str:
    """Pieces of a text, | before each word."""
    _, ids, starts = encoded(CorpusEncoder(tokenizer, find_segmenter(words)), text)
    pairs = zip(chain(*ids), chain(*starts), strict=True)
    return " ".join(("|" if start else "") + tokenizer.token(id) for id, start in pairs)


def test_word_starts_by_hand() -> None:
    bert = KINDS["uncased"]
    assert marked(bert, "Unhappyness, cats!", "rjieba") == "|un ##happy ##ness |, |cat ##s |!"
    assert marked(bert, "中国的首都是北京。", "rjieba") == "|中 国 |的 |首 都 |是 |北 京 |。"
    assert marked(bert, "中国的首都是北京。", "none") == "|中 |国 |的 |首 |都 |是 |北 |京 |。"
    assert marked(bert, "我爱北京cats，人工智能 5G", "rjieba") == "|我 |爱 |北 京 |cat ##s |， |人 工 智 能 |5g"
    assert marked(bert, "北 京，北x京", "rjieba") == "|北 |京 |， |北 |[UNK] |京"  # a space parts words in Chinese too
    assert marked(KINDS["words"], "the cats 北京", "rjieba") == "|the |[UNK] |北 京"
    assert marked(KINDS["folded"], "ｃａｔｓ😀😀北京 ５Ｇ", "rjieba") == "|cat ##s |😀 |😀 |北 京 |5g"
    words = KINDS["Chinese words"]
    assert marked(words, "我爱北京cat，人工智能。", "none") == "|我 |爱 |北京 |cat |， |人工 |智 |能 |。"


def test_words_of_a_character_tokenizer_are_runs_of_letters() -> None:
    assert marked(KINDS["characters"], "ab ba, 我爱北京b", "rjieba") == "|a b |  |b a |, |  |我 |爱 |北 京 |b"
    assert marked(KINDS["small characters"], "aİb", "none") == "|a i ̇ b"
    assert marked(KINDS["characters"], "ab.\nab", "none") == "|a b |. |a b"


@pytest.mark.parametrize("name", KINDS)
def test_a_corpus_cannot_smuggle_in_special_tokens(name: str) -> None:
    tokenizer = KINDS[name]
    text = "a [MASK] b[SEP][CLS]c [PAD]. [UNK] [mask] x[MASK]y 我[MASK]爱"
    assert not tokenizer.special_ids.isdisjoint(tokenizer.encode_ids([text])[0])
    for encoder in (CorpusEncoder(tokenizer), in_its_own_way(tokenizer)):
        sentences, ids, _ = encoded(encoder, text)
        assert tokenizer.special_ids & set(chain(*ids)) <= {tokenizer.unk_id}
        # The same words, none of them recognised: a space changes nothing in BERT's eyes.
        if how_it_cuts(tokenizer) == "words":
            assert ids == tokenizer.encode_ids([sentence.replace("[", "[ ") for sentence in sentences])


def in_its_own_way(tokenizer: Tokenizer) -> CorpusEncoder:
    """An encoder that assumes nothing of its tokenizer."""
    encoder = CorpusEncoder(tokenizer, find_segmenter("rjieba"))
    encoder._cut = "somehow"
    return encoder


@pytest.mark.parametrize(
    "name", ["uncased", "cased", "words", "Chinese words", "folded", "folded, cased", "folded words"]
)
def test_both_ways_agree_in_word_starts(name: str) -> None:
    text = "\n".join([*NASTY, "中国的首都是北京。Unhappyness, cats 我爱a北京。"])
    quick = encoded(CorpusEncoder(KINDS[name], find_segmenter("rjieba")), text)
    assert quick == encoded(in_its_own_way(KINDS[name]), text)


def test_what_is_forgotten_is_learned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = KINDS["uncased"]
    encoder = CorpusEncoder(tokenizer)
    monkeypatch.setattr(encode, "_MOST_WORDS", 50)
    draw = random.Random(1)
    for _ in range(60):
        text = " ".join(draw.choice(["cats", "dogs", "unhappy", "é", "a\x00b", str(draw.random())]) for _ in range(40))
        assert encoded(encoder, text)[1] == tokenizer.encode_ids([text])
        assert len(encoder._memory) <= 50 + 40
    assert {"cats", "dogs", "unhappy"} <= encoder._memory.keys(), "what is used often is kept"
    monkeypatch.setattr(encode, "MOST_CHARACTERS", 10)
    encoded(encoder, "x" * 100)
    encoded(encoder, "cats dogs")
    assert list(encoder._memory) == ["cats", "dogs"]


def foreign(**changes: object) -> Tokenizer:
    """A WordPiece tokenizer as someone else may have made it."""
    backend = tokenizers.Tokenizer(models.WordPiece({token: id for id, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    for name, value in changes.items():
        setattr(backend, name, value)
    return Tokenizer(backend, "wordpiece")


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": normalizers.BertNormalizer(handle_chinese_chars=False)},
        {"normalizer": normalizers.BertNormalizer(clean_text=False)},
        {"normalizer": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])},
        {"pre_tokenizer": pre_tokenizers.Whitespace()},
        {"pre_tokenizer": None},
        {"normalizer": None},
    ],
)
def test_a_foreign_tokenizer_is_asked_about_everything(changes: dict[str, object]) -> None:
    tokenizer = foreign(**changes)
    assert how_it_cuts(tokenizer) == "somehow"
    sentences, ids, starts = encoded(CorpusEncoder(tokenizer, find_segmenter("rjieba")), "\n".join(NASTY))
    assert ids == tokenizer.encode_ids(sentences)
    assert [len(one) for one in starts] == [len(one) for one in ids]


def test_added_tokens_are_found_as_the_tokenizer_finds_them() -> None:
    tokenizer = foreign()
    assert how_it_cuts(tokenizer) == "words"
    tokenizer.backend.add_tokens([AddedToken("too wide"), AddedToken("C++")])
    grown = Tokenizer(tokenizer.backend, "wordpiece")
    assert how_it_cuts(grown) == "somehow"
    sentences, ids, _ = encoded(CorpusEncoder(grown), "It was too wide. C++ is.")
    assert ids == grown.encode_ids(sentences) and grown.id("too wide") in ids[0] and grown.id("C++") in ids[1]


def test_sentences_that_end_inside_a_word() -> None:
    """The splitter makes none, but whoever calls may."""
    tokenizer = KINDS["uncased"]
    found = CorpusEncoder(tokenizer).encode("unhappy cats", np.array([0, 2, 9]), np.array([2, 7, 12]))
    assert [tokenizer.token(id) for id in found.ids.tolist()] == ["un", "[UNK]", "[UNK]"]
    assert found.lengths.tolist() == [1, 1, 1]


@pytest.mark.slow
def test_letters_and_digits_stay_one_word() -> None:
    """What allows many words to be one text: no such character is cut off, dropped or cut in two, in any context."""
    plain = [chr(code) for code in range(0x110000) if chr(code).isalnum() and not encode._is_han(chr(code))]
    for name in ("uncased", "cased"):
        backend = KINDS[name].backend
        cleaned = [backend.normalizer.normalize_str(character) for character in plain]
        assert all(cleaned)
        for before, after in zip(plain, cleaned, strict=True):
            assert len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{after}a")) == 1, before
