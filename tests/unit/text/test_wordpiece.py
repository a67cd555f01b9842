"""The readable WordPiece: examples worked by hand, and equality with the Rust library wherever we could look."""

import doctest
import lzma
import unicodedata
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qkv.text import wordpiece
from qkv.text.folding import add_folding, fold_text
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import (
    SPECIAL,
    WordPiece,
    clean,
    longest_match,
    lower,
    space_chinese,
    split_words,
    without_accents,
)

NASTY = {
    "empty": "",
    "space": " ",
    "white space of every kind": "\t\n\r \xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000",
    "white space inside": "a\tb\nc\rd\xa0e\u2003f\u2028g\u3000h",
    "not white space here": "a\x0bb\x0cc\x1cd\x1fe\x85f",
    "controls": "a\x00b\x01c\x7fd\x9fe\ufffdf",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg",
    "direction marks": "\u202eabc\u202c \u2066def\u2069",
    "private use": "a\ue000b\U000f0000c\U0010fffdd",
    "unassigned and noncharacters": "a\u0378b\ufffec\uffff\U0001ffffd\U0010ffff",
    "emoji": "I ❤️ 🤗 👍🏽 🇨🇳!",
    "emoji joined": "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "astral 汉字": "𠮷野家 𪚥 𠀀 㐂",
    "extensions at their edges": "\u33ff\u3400\u4dbf\u4dc0\u4e00\u9fff\ua000\U0002a6df\U0002a700\U0002b739\U0002b81d",
    "extension E, where the library errs": "a\U0002b820b\U0002b91fc\U0002b920d\U0002ceafe",
    "extensions F and G": "a\U0002ceb0b\U00030000c",
    "compatibility 汉字": "\uf900\ufaff\U0002f800 豈",
    "full width": "ＡＢＣ１２３ａｂｃ，。！？（）＄～",
    "half-width kana": "ｶﾞｷﾞ ガ が か\u3099",
    "composed and decomposed": "é e\u0301 Å A\u030a ñ n\u0303 ệ e\u0302\u0323 e\u0323\u0302",
    "marks with nothing to stand on": "\u0301 \u0301a [MASK]\u0301",
    "zalgo": "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
    "hangul": "한국어 ᄒ\u1161\u11ab",
    "scripts": "Ελληνικά ΟΔΟΣ русский ЙЁ עברית عربى ไทย देवनागरी தமிழ்",
    "capitals that change length": "İ ı ẞ ß ǅ ﬀ Ω K Å",
    "capitals of new Unicode": "\u1c89 \ua7cb\ua7cc\ua7da\ua7dc \U00010d50\U00010d65 \U00016ea0",
    "marks of new Unicode": "a\u08d4\u1dfb\u0301b\U0001e944\U0001e94ac\U00011938\u1734\U0001171e",
    "punctuation": "a-b_c.d,e'f\"g`h~i^j|k$l+m<n=o>p@q#r%s&t*u(v)w{x}y\\z/",
    "punctuation beyond ASCII": "“q” ‘w’ —…·«e»「r」《t》¿y?¡u! ؟ ։ \u2e43\u166d\U000111c9",
    "currency and symbols": "€5 £6 ¥7 ©®™ ±×÷ ∀∃ ½ ²",
    "numbers": "3.14 1,000,000 0x1F 1e-9 2026年11月15日",
    "mixed": "我用BERT做NLP，accuracy是95.5%！不错吧？",
    "a word of 100 letters": "a" * 100,
    "a word of 101 letters": "b " + "a" * 101 + " c",
    "a long word with a mark": "a" * 99 + "\u0301" + "a" + " " + "é" * 100,
    "special tokens": "[CLS] a [MASK]b[SEP][PAD][UNK]",
    "special tokens, nearly": "[cls] [ MASK ] [MASK [[MASK]] MASK] 【MASK】",
    "pieces written out": "##ing ## # token ##s",
    "unused": "[unused1] [unused99] <S> <T>",
}


@cache
def loaded(file: Path) -> tuple[Tokenizer, WordPiece]:
    tokenizer = Tokenizer.load(file)
    return tokenizer, WordPiece(tokenizer.vocabulary, tokenizer.lowercase)


@cache
def folded(file: Path) -> tuple[Tokenizer, WordPiece]:
    tokenizer = Tokenizer.load(file)
    add_folding(tokenizer.backend, ["width", "emoji"])
    return tokenizer, tokenizer.plain()


@pytest.fixture(params=["uncased", "folded", "cased", "chinese"])
def both(request: pytest.FixtureRequest, minilm: Path) -> tuple[Tokenizer, WordPiece]:
    """The two of them on a published vocabulary; MiniLM's is bert-base-uncased's, and always at hand."""
    if request.param == "uncased":
        return loaded(minilm / "vocab.txt")
    if request.param == "folded":
        return folded(minilm / "vocab.txt")
    data: Path = request.getfixturevalue("shared_data")
    return loaded(data / "vocab" / f"bert-base-{request.param}-vocab.txt")


def test_the_examples_in_the_docstrings() -> None:
    result = doctest.testmod(wordpiece)
    assert result.failed == 0 and result.attempted > 10


def test_each_step_by_hand() -> None:
    assert clean("a\r\nb\x00\u200d\ufffd") == "a  b"
    assert space_chinese("a汉b字，") == "a 汉 b 字 ，"
    assert space_chinese("かな 한국 𫠠") == "かな 한국 𫠠"  # Extension E before 2B920 is left joined, as in the library
    assert without_accents("e\u0301 é 한") == "e e \u1112\u1161\u11ab"
    assert lower("ΟΔΟΣ") == "οδοσ" != "ΟΔΟΣ".lower()
    assert split_words("--a.b--") == ["-", "-", "a", ".", "b", "-", "-"]
    assert longest_match("", {}) == []


def test_greedy_is_not_always_best() -> None:
    """ "abcd" could be ab + ##cd, but the longest first piece leaves "d", which nothing fits."""
    assert longest_match("abcd", dict.fromkeys(["ab", "abc", "##cd"], 0)) == ["[UNK]"]


def test_steps_show_the_way() -> None:
    reader = WordPiece({token: place for place, token in enumerate([*SPECIAL, "我", "ok"])}, lowercase=True)
    steps = dict(reader.steps("我\tOK[MASK]!"))
    assert list(steps) == ["text", "clean", "space", "fold", "words", "pieces"]
    assert steps["text"] == ["我\tOK", "[MASK]", "!"]
    assert steps["fold"] == [" 我  ok", "[MASK]", "!"]
    assert steps["words"] == ["我", "ok", "[MASK]", "!"]
    assert steps["pieces"] == ["我", "ok", "[MASK]", "[UNK]"]
    assert reader.steps("")[-1] == ("pieces", [])
    reader = WordPiece({"[UNK]": 0, "ok": 1}, lowercase=True, rewrite=partial(fold_text, fold=["width", "emoji"]))
    assert reader.steps("ＯＫ😡")[:2] == [("text", ["ＯＫ😡"]), ("rewrite", ["OK 😡 "])]
    assert reader.tokenize("ＯＫ😡") == ["ok", "[UNK]"]


def test_a_vocabulary_without_special_tokens_still_reads() -> None:
    assert WordPiece({"a": 0}, lowercase=False).tokenize("a [MASK]") == ["a", "[UNK]", "[UNK]", "[UNK]"]


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_nasty_strings(both: tuple[Tokenizer, WordPiece], text: str) -> None:
    tokenizer, reader = both
    assert reader.tokenize(text) == tokenizer.encode(text, special=False).tokens


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False, None])
@pytest.mark.parametrize("chinese", [True, False])
def test_every_setting_on_nasty_strings(
    tmp_path: Path, minilm: Path, lowercase: bool, strip_accents: bool | None, chinese: bool
) -> None:
    """A folder may set the three independently; `Tokenizer.plain` carries them over."""
    settings = {"do_lower_case": lowercase, "strip_accents": strip_accents, "tokenize_chinese_chars": chinese}
    (tmp_path / "vocab.txt").write_bytes((minilm / "vocab.txt").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(str(settings).replace("'", '"').lower().replace("none", "null"))
    tokenizer = Tokenizer.load(tmp_path)
    reader = tokenizer.plain()
    for text in NASTY.values():
        assert reader.tokenize(text) == tokenizer.encode(text, special=False).tokens


@pytest.mark.parametrize("both", ["uncased", "folded", "cased"], indirect=True)
def test_every_code_point(both: tuple[Tokenizer, WordPiece]) -> None:
    """Where the two libraries' Unicode tables differ, `wordpiece.NEWER` and its neighbours even it out; see there."""
    tokenizer, reader = both
    normalizer, pre_tokenizer = tokenizer.backend.normalizer, tokenizer.backend.pre_tokenizer
    assert normalizer is not None and pre_tokenizer is not None

    def agree(codes: list[int]) -> bool:
        text = " ".join(f"a{chr(code)}B" for code in codes)
        expected = [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))]
        return dict(reader.steps(text))["words"] == expected

    # The planes left out hold nothing, or private use through and through; the surrogates are not characters.
    codes = [code for code in (*range(0x40000), *range(0xE0000, 0xE1000)) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(codes), 4096):
        block = codes[start : start + 4096]
        assert agree(block), [f"U+{code:04X}" for code in block if not agree([code])]


# Where trouble lives: marks, controls, punctuation, decomposing characters, and what special tokens are made of.
_trouble = [
    chr(code)
    for code in range(0x30000)
    if not 0xD800 <= code < 0xE000
    and (
        unicodedata.category(chr(code)) in ("Mn", "Mc", "Cf", "Cc", "Po", "Pd", "Zs", "Lt", "Sk")
        or (unicodedata.decomposition(chr(code)) and not 0x2F800 <= code < 0x2FA20)
    )
]
_text = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(_trouble), st.sampled_from("[MASK] aé我#")))
_mixed = st.lists(st.one_of(_text, st.sampled_from([*SPECIAL, *NASTY.values(), "the ", "北京", "##s"]))).map("".join)


def test_any_text(both: tuple[Tokenizer, WordPiece]) -> None:
    tokenizer, reader = both

    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    @given(_mixed)
    @example("\u302e\U0001d165")  # two spacing marks that decomposition puts in order
    def check(text: str) -> None:
        assert reader.tokenize(text) == tokenizer.encode(text, special=False).tokens

    check()


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("corpus", ["enwiki_text", "zhwiki_text"])
def test_lines_of_wikipedia(both: tuple[Tokenizer, WordPiece], shared_data: Path, corpus: str, every: int) -> None:
    tokenizer, reader = both
    with lzma.open(shared_data / corpus / "valid-00.txt.xz", "rt", encoding="utf-8", newline="\n") as stream:
        lines = [line.removesuffix("\n") for line in stream]
    assert len(lines) > 5000
    lines = lines[::every]
    for start in range(0, len(lines), 500):
        batch = lines[start : start + 500]
        for line, ids in zip(batch, tokenizer.encode_ids(batch), strict=True):
            assert [reader.vocabulary[piece] for piece in reader.tokenize(line)] == ids
