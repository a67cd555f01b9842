"""Foldings of new tokenizers: full width, emoji; offsets are those of the text as written."""

from pathlib import Path

import pytest

import qkv
from qkv.cli.main import main
from qkv.data.corpus.encode import CorpusEncoder, how_it_cuts
from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import Kind

TEXTS = ["ＡＢＣ abc １２３ 123 好的，ok", "good😡😡 好🎉", "ok😡", "abc 好 good"] * 3


@pytest.mark.parametrize("kind", ["wordpiece", "word"])
def test_full_width_and_emoji(kind: Kind, tmp_path: Path) -> None:
    folded = Tokenizer.train(TEXTS, kind, 80, min_frequency=1, fold=["width", "emoji"])
    plain = Tokenizer.train(TEXTS, kind, 80, min_frequency=1)
    text = "ＡＢＣ１２３ good😡好，🎉"
    found = folded.encode(text, special=False)
    assert [text[start:end] for start, end in found.offsets if end - start == 1][-4:] == ["😡", "好", "，", "🎉"]
    assert folded.unk_id not in found.ids[-4:] and folded.id("good") in found.ids
    assert folded.encode_ids(["ＡＢＣ"]) == folded.encode_ids(["abc"]) != plain.encode_ids(["ＡＢＣ"])
    assert plain.id("😡") is None, "BERT's rules join an emoji with its word"
    folded.save(tmp_path / "t")
    assert Tokenizer.load(tmp_path / "t").encode(text) == folded.encode(text)


def test_transformers_reads_the_same(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folded = Tokenizer.train(TEXTS, "wordpiece", 80, min_frequency=1, fold=["width", "emoji"])
    folded.save(tmp_path / "t")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    for text in [*TEXTS, "ＡＢＣ１２３good😡x"]:
        assert theirs(text)["input_ids"] == folded.encode(text).ids


def test_a_corpus_is_encoded_alike() -> None:
    import numpy as np

    folded = Tokenizer.train(TEXTS, "wordpiece", 80, min_frequency=1, fold=["width", "emoji"])
    text = TEXTS[0]
    found = CorpusEncoder(folded).encode(text, np.array([0]), np.array([len(text)]))
    assert found.ids.tolist() == folded.encode_ids([text])[0]
    assert how_it_cuts(folded) == "somehow"


def test_wrong_foldings() -> None:
    with pytest.raises(InputError, match="no folding 'wide'. Did you mean 'width'"):
        Tokenizer.train(TEXTS, fold=["wide"])
    with pytest.raises(InputError, match="this one is by character"):
        Tokenizer.train(TEXTS, "character", fold=["width"])


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")
    words = ["tokenizer", "train", str(corpus), "--out", str(tmp_path / "t"), "--vocab-size", "80", "--fold"]
    assert main([*words, "widht"]) == 2
    assert "Did you mean 'width'" in capsys.readouterr().err
    assert main([*words, "width,emoji"]) == 0
    assert Tokenizer.load(tmp_path / "t").id("😡") is not None


def test_a_converted_model_reads_what_it_could_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "qkv-mini", str(tmp_path / "mine"), "--fold", "width,emoji"]) == 0
    before, after = qkv.load(), qkv.load(tmp_path / "mine")
    texts = ["ＡＢＣ１２３", "good😡"]
    assert before.embed(texts).n_unknown.tolist() == [1, 1]
    assert after.embed(texts).n_unknown.tolist() == [0, 1]
    assert after.tokenizer.encode(texts[1], special=False).tokens == ["good", "[UNK]"]
    assert (after.embed("a plain text").vectors == before.embed("a plain text").vectors).all()
    assert main(["convert", "qkv-mini", str(tmp_path / "other"), "--fold", "widht"]) == 2
    assert "Did you mean 'width'" in capsys.readouterr().err
