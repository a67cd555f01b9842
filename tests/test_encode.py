"""Ids by table and memory: exactly those of the tokenizer, whatever the text, and word starts that move none of them."""

import lzma
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qkv.data.encode import Encoder, how_it_cuts
from qkv.data.sentences import split
from qkv.data.words import segmenter
from qkv.tokenizer import Tokenizer
from qkv.wordpiece import SPECIAL
from tests.folders import TOKENS, make_tokenizer

CASED = [*SPECIAL, *"The the cat Cat é e ´ . , ! [ ] # mask MASK sep 我 爱 北 京 i ##i ##I I ##̇ ##t ##s ##́ ́".split()]
CHARACTERS = [*SPECIAL, *sorted(set(" \nabceiT.,![]#我爱北京é̇"))]

KINDS = {
    "uncased": make_tokenizer(),
    "cased": Tokenizer.from_vocabulary(CASED, kind="wordpiece", lowercase=False),
    "words": Tokenizer.from_vocabulary(TOKENS, kind="word", lowercase=True),
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
    "👩‍👧😀 ☺️ \U0001f1e8\U0001f1f3",
    "\x00\x01\ufffd \ue000 \U000e0001",
    "x" * 99 + " " + "y" * 101 + " cat" + "z" * 300,
    "“quoted”‘single’…—–«»¿¡$+<=>^`|~#@_-",
    "##s ## # ##ed cat##s",
    "tabs\tand\r\rreturns  and   spaces ",
]


def encoded(encoder: Encoder, text: str) -> tuple[list[str], list[list[int]], list[list[bool]]]:
    spans = np.array(split(text), np.int64).reshape(-1, 2)
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
    assert [how_it_cuts(tokenizer) for tokenizer in KINDS.values()] == ["words"] * 3 + ["characters"] * 2


def test_nasty_strings(tokenizer: Tokenizer) -> None:
    encoder = Encoder(tokenizer, segmenter("rjieba"))
    for text in [*NASTY, "\n".join(NASTY), "\n\n".join(NASTY[::-1])]:
        sentences, ids, _ = encoded(encoder, text)
        assert ids == tokenizer.encode_ids(sentences), text


def test_every_character_between_others(tokenizer: Tokenizer) -> None:
    """Each assigned code point of the planes that are in use, alone and with neighbours of every sort."""
    encoder = Encoder(tokenizer)
    draw = random.Random(0)
    codes = [
        code
        for code in [*range(0x3400), *range(0x4DB0, 0x4E10), *range(0x9FF0, 0x11000)]
        if not 0xD800 <= code < 0xE000
    ]
    codes += [*range(0x11000, 0x20010), *range(0x2A6D0, 0x2A710), *range(0x2B730, 0x2B930), *range(0x2CEA0, 0x2CEC0)]
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
    for name, encoder in ENCODERS.items():
        sentences, ids, _ = encoded(encoder, text)
        assert ids == KINDS[name].encode_ids(sentences)


ENCODERS = {name: Encoder(tokenizer, segmenter("rjieba")) for name, tokenizer in KINDS.items()}


@pytest.mark.parametrize("vocabulary", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
@pytest.mark.parametrize("folder", ["enwiki_text", "zhwiki_text"])
def test_wikipedia(shared_data: Path, folder: str, vocabulary: str) -> None:
    tokenizer = Tokenizer.load(shared_data / "vocab" / f"{vocabulary}-vocab.txt")
    text = lzma.open(shared_data / folder / "valid-00.txt.xz", "rt", encoding="utf-8").read(400_000)
    sentences, ids, _ = encoded(Encoder(tokenizer), text)
    assert ids == tokenizer.encode_ids(sentences)


@pytest.mark.parametrize("kind", ["word", "character"])
@pytest.mark.parametrize("folder", ["enwiki_text", "zhwiki_text"])
def test_wikipedia_in_other_kinds(shared_data: Path, folder: str, kind: str) -> None:
    text = lzma.open(shared_data / folder / "valid-00.txt.xz", "rt", encoding="utf-8").read(200_000)
    assert kind in ("word", "character")
    tokenizer = Tokenizer.train(text.split("\n")[::2], "word" if kind == "word" else "character", 5000)
    sentences, ids, _ = encoded(Encoder(tokenizer), text)
    assert ids == tokenizer.encode_ids(sentences)
