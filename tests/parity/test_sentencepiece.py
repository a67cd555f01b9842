"""Models that the sentencepiece package trains: our reader cuts every text as the package does."""

import random
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from qkv.errors import InputError
from qkv.text.sentencepiece import PADDING, MarianTokenizer, parse_model, read_model

CORPUS = [
    "The cat sat on the mat.",
    "Tom chases Jerry, and Jerry runs away!",
    "the cats are chasing mice in the old house",
    "汤姆追逐杰瑞，杰瑞跑了。",
    "猫坐在垫子上。",
    "老房子里的猫在追老鼠",
    "It's 3.14, isn't it? 你好 world",
    "Ａ ﬁ ①",
] * 5
NASTY = [
    "",
    "   ",
    " 猫\u3000坐在  mat 上 ",
    "Tom chases Jerry，汤姆追逐杰瑞。",
    "e\u0301 é ﬁ Ａ① ½ ﾊﾝｶｸ ㌔",
    "😀👍🏽 the",
    "a\nb\tc\rd",
    "</s> <unk> <s>",
    "▁the ▁",
    "\u200bcat\u200d\ufeff the\u00a0cat",
    "\0 nul",
    "İstanbul ß ǅ שלום عربي",
    "汤姆" * 50,
    "x" * 300,
    "“quotes”…—",
    "\ud7ff\ue000\U0010ffff",
]
CHARACTERS = "aeTomJry  \t\n\u3000\u00a0\u2028\u200b\ufeff▁①Ａﬁ…１㌔é猫坐的老鼠，,.!?한😀İß½x"
SETTINGS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "bytes": {"byte_fallback": True, "vocab_size": 360},
    "symbols": {"user_defined_symbols": ["Jerry", "老鼠"]},
    "identity": {"normalization_rule_name": "identity"},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "no space before": {"add_dummy_prefix": False},
    "all spaces": {"remove_extra_whitespaces": False},
    "across spaces": {"split_by_whitespace": False},
}


def trained(**settings: Any) -> bytes:
    """The bytes of a .model file."""
    out = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=out,
        hard_vocab_limit=settings.get("model_type") == "bpe",
        num_threads=1,
        minloglevel=2,
        **{"vocab_size": 120, **settings},
    )
    return out.getvalue()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_texts_are_cut_and_put_together_like_the_package_does(settings: dict[str, Any]) -> None:
    data = trained(**settings)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    vocabulary = {theirs.id_to_piece(number): number for number in range(theirs.get_piece_size())}
    ours = MarianTokenizer(parse_model(data), vocabulary | {PADDING: len(vocabulary)})
    draw = random.Random(0)
    texts = [*NASTY, *CORPUS[:8], *("".join(draw.choices(CHARACTERS, k=draw.randint(1, 6))) for _ in range(500))]
    assert max(len(ours.encode(text).ids) for text in texts) > 50
    for text in texts:
        ids = ours.encode(text, special=False).ids
        assert ids == theirs.encode(text), repr(text)
        assert ours.decode(ids).strip() == theirs.decode(ids).strip(), repr(text)


def test_a_grapheme_is_replaced_as_a_whole() -> None:
    """The one known difference, which is the `tokenizers` library's; should it go, the docstring's line goes too."""
    data = trained(remove_extra_whitespaces=False)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    vocabulary = {theirs.id_to_piece(number): number for number in range(theirs.get_piece_size())}
    ours = MarianTokenizer(parse_model(data), vocabulary | {PADDING: len(vocabulary)})
    for text, read_as in (("①\u0301", "①"), ("a\r\n", "a\n")):
        assert ours.encode(text, special=False).ids == theirs.encode(read_as) == theirs.encode(text)[:-1]


@pytest.mark.parametrize(
    ("model_type", "name"), [("bpe", "byte-pair encoding"), ("word", "word"), ("char", "character")]
)
def test_models_of_other_types_are_refused(model_type: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(trained(model_type=model_type, vocab_size=90))
    with pytest.raises(InputError, match=f"source.spm: a SentencePiece model of type {name}; qkv reads unigram"):
        read_model(tmp_path / "source.spm")
