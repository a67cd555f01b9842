"""Foldings of new tokenizers: full width, emoji; offsets are those of the text as written."""

import sys
from pathlib import Path

import pytest
from tokenizers import normalizers

import qkv
from qkv.cli.main import main
from qkv.data.corpus.encode import how_it_cuts
from qkv.errors import InputError
from qkv.models.folders.hub import locate
from qkv.text import folding
from qkv.text.folding import FOLDS, add_folding, find_folds, fold_text, folds_before_bert
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import Kind
from tests.support.folders import make_folder

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
    pytest.importorskip("opencc")
    folded = Tokenizer.train(
        [*TEXTS, "這個们"], "wordpiece", 80, min_frequency=1, fold=["width", "emoji", "simplified"]
    )
    assert None not in map(folded.id, "这个们") and folded.id("這") is None
    folded.save(tmp_path / "t")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    for text in [*TEXTS, "ＡＢＣ１２３good😡x", "這 個們ＡＢ"]:
        assert theirs(text)["input_ids"] == folded.encode(text).ids
    pair = folded.encode("good", "ok")
    assert theirs("good", "ok")["token_type_ids"] == pair.segments, "which a BERT needs"


def test_simplified_characters_are_those_of_opencc() -> None:
    opencc = pytest.importorskip("opencc")
    mini = Tokenizer.load(locate("qkv-mini"))
    folded = Tokenizer.load(locate("qkv-mini"))
    add_folding(folded.backend, ["simplified", "width"])
    every = [chr(code) for code in (*range(0x3400, 0xA000), *range(0xF900, 0xFB00), *range(0x20000, 0x20100))]
    simple = opencc.OpenCC("t2s").convert("\n".join(every)).split("\n")
    assert sum(map(str.__ne__, every, simple)) > 4000
    assert folded.encode_ids(every) == mini.encode_ids(simple)
    text = "臺灣的 ５Ｇ 這個 naïve é 한국 𠀀 這\u0301 [MASK] 乾隆"
    plain = fold_text(text, ["simplified", "width"])
    assert len(plain) == len(text) and folded.encode(text) == mini.encode(plain), "ids and offsets"


def test_the_package_is_needed_to_write_a_folder_not_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("opencc")
    Tokenizer.train(["這個"], min_frequency=1, vocabulary_size=20, fold=["simplified"]).save(tmp_path / "t")
    monkeypatch.setitem(sys.modules, "opencc", None)
    folding._simplified.cache_clear()
    found = Tokenizer.load(tmp_path / "t")
    assert found.unk_id not in found.encode_ids(["這個"])[0]
    assert main(["convert", "qkv-mini", str(tmp_path / "m"), "--fold", "simplified"]) == 2
    assert "pip install 'qkv[zh]'" in capsys.readouterr().err and not (tmp_path / "m").exists()


def test_foldings_are_recognised_and_never_twice() -> None:
    backend = Tokenizer.load(locate("qkv-mini")).backend
    fold = list(find_folds(backend))
    for name in ("emoji", "width", "emoji", "width"):
        add_folding(backend, [name])
        fold = [one for one in FOLDS if one in (*fold, name)]
        assert find_folds(backend) == folds_before_bert(backend) == tuple(fold)
    state = backend.to_str()
    assert state.count('"Precompiled"') == state.count('"Split"') == 1
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.BertNormalizer()])
    assert find_folds(backend) == ("width", "emoji") and folds_before_bert(backend) is None


def test_simplified_is_recognised() -> None:
    pytest.importorskip("opencc")
    tokenizer = Tokenizer.train(["这个ab"], min_frequency=1, vocabulary_size=20, fold=["simplified"])
    assert find_folds(tokenizer.backend) == ("simplified",) and tokenizer.lowercase
    add_folding(tokenizer.backend, ["width", "simplified"])
    assert find_folds(tokenizer.backend) == ("width", "simplified")
    assert Tokenizer(tokenizer.backend, "wordpiece").lowercase
    assert how_it_cuts(tokenizer) == "somehow"
    assert tokenizer.encode("這Ａ").tokens == tokenizer.encode("这a").tokens


def test_wrong_foldings() -> None:
    with pytest.raises(InputError, match="no folding 'wide'. Did you mean 'width'"):
        Tokenizer.train(TEXTS, fold=["wide"])
    with pytest.raises(InputError, match="does not work with a segmenter"):
        Tokenizer.train(TEXTS, "word", segmenter="rjieba", fold=["simplified"])
    with pytest.raises(InputError, match="this one is by character"):
        Tokenizer.train(TEXTS, "character", fold=["width"])


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")
    words = ["tokenizer", "train", str(corpus), "--out", str(tmp_path / "t"), "--vocab-size", "80", "--fold"]
    assert main([*words, "widht"]) == 2
    assert "Did you mean 'width'" in capsys.readouterr().err
    for empty in ("", "width,"):
        assert main([*words, empty]) == 2
        assert "Write one or more of width, emoji, simplified, separated by commas, or none." in capsys.readouterr().err
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "error: --fold needs a value. width: full-width letters and digits as half-width; emoji: each a token; "
        "simplified: traditional 汉字 as simplified; none (default: width,emoji; with --kind character none). See: qkv "
        "tokenizer train --help\n"
    )
    assert main([*words[:-1], "--limit-alphabet", "0"]) == 2
    assert "(--limit-alphabet) is 0" in capsys.readouterr().err
    folds = {"width, emoji": ("width", "emoji"), "none": (), "emoji": ("emoji",)}
    for names, expected in folds.items():
        assert main([*words, names, "--overwrite"]) == 0
        found = Tokenizer.load(tmp_path / "t")
        assert find_folds(found.backend) == expected and (found.id("😡") is not None) == ("emoji" in expected)
    for kind, expected in (("wordpiece", ("width", "emoji")), ("word", ("width", "emoji")), ("character", ())):
        assert main([*words[:-1], "--kind", kind, "--overwrite"]) == 0
        assert find_folds(Tokenizer.load(tmp_path / "t").backend) == expected
    capsys.readouterr()
    assert main([*words, "none,width", "--overwrite"]) == 2
    assert "There is no folding 'none'" in capsys.readouterr().err
    assert main(["convert", "qkv-mini", str(tmp_path / "m"), "--fold", "none"]) == 2
    assert "--fold none is for new tokenizers" in capsys.readouterr().err


def test_a_converted_model_reads_what_it_could_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_folder(tmp_path / "old")
    assert main(["convert", str(folder), str(tmp_path / "mine"), "--fold", "width,emoji"]) == 0
    before, after = qkv.load(folder), qkv.load(tmp_path / "mine")
    texts = ["ｃａｔ５Ｇ ｃａｔ", "cat😡"]
    assert before.embed(texts).n_unknown.tolist() == [2, 1]
    assert after.embed(texts).n_unknown.tolist() == [1, 1]
    assert after.tokenizer.encode(texts[1], special=False).tokens == ["cat", "[UNK]"]
    assert (after.embed("the cat").vectors == before.embed("the cat").vectors).all()
    assert main(["convert", "qkv-mini", str(tmp_path / "other"), "--fold", "widht"]) == 2
    assert "Did you mean 'width'" in capsys.readouterr().err
