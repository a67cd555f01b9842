"""qkv show: what is drawn equals what the corpus holds and what the objective did."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer

from qkv.cli.pretrain import draw_instances, show
from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.rows import PairConfig, instances
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.models.bert.page import MASK, RANDOM
from qkv.text.tokenizer import Tokenizer

TEXT = "\n\n".join(
    f"巴黎是法国的首都，第{n}天。他欠我一百万元。天气很好！\nThe animal didn't cross street {n}. It was playing."
    for n in range(12)
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    tokenizer = Tokenizer.train(TEXT.splitlines(), vocabulary_size=150)
    prepare_corpus(folder / "text.txt", tokenizer, folder / "shards", workers=1, hold_out=0.1)
    return folder / "shards"


def run(*words: str) -> None:
    app = typer.Typer()
    app.command()(show)
    app(list(words), standalone_mode=False)


def test_tokens_are_those_of_the_corpus(shards: Path) -> None:
    corpus = Shards.open(shards)
    tokenizer = corpus.tokenizer()
    found = draw_instances(corpus, tokenizer, 8, seed=1, epoch=2, negatives="document", max_length=40, whole_words=True)
    rows = instances(corpus, PairConfig("document", 40), 1, 2)
    spans = {
        tuple(corpus.tokens(np.array([a]), np.array([m])).tolist())
        + tuple(corpus.tokens(np.array([b]), np.array([n])).tolist())
        for a, m, b, n, _ in zip(*rows, strict=True)
    }
    assert {one.label for one in found} == {"IsNext", "NotNext"}
    for one in found:
        assert [token.position for token in one.tokens] == list(range(len(one.tokens)))
        ids = tuple(tokenizer.vocabulary[token.original] for token in one.tokens if not token.special)
        assert ids in spans, "the originals are a row of this epoch"
        assert len(one.chosen) >= 1
        for token in one.tokens:
            assert (token.token == token.original) == (token.treatment not in (MASK, RANDOM))
        # a word is chosen whole
        for before, after in zip(one.tokens, one.tokens[1:], strict=False):
            if not after.begins_word and not after.special and not before.special:
                assert (before.treatment is None) == (after.treatment is None)


def test_words_are_those_of_the_segmenter(shards: Path) -> None:
    corpus = Shards.open(shards)
    found = draw_instances(
        corpus, corpus.tokenizer(), 30, seed=0, epoch=0, negatives="none", max_length=64, whole_words=False
    )
    assert {one.label for one in found} == {None}
    pairs = {
        before.original + after.original
        for one in found
        for before, after in zip(one.tokens, one.tokens[1:], strict=False)
        if not after.begins_word
    }
    assert "巴黎" in pairs and "法国" in pairs and "是法" not in pairs


def test_printed(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(str(shards), "-n", "2", "--max-length", "32", "--lang", "zh")
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("1  ") and "\n2  " in out and "[CLS]" in out and "←" in out and "预测" in out
    assert "\x1b" not in out, "no colour in a pipe"
    run(str(shards), "-n", "2", "--max-length", "32", "--lang", "zh")
    assert capsys.readouterr().out == out
    run(str(shards), "-n", "2", "--max-length", "32", "--lang", "zh", "--epoch", "1")
    assert capsys.readouterr().out != out, "another epoch, other masks"


def test_json_and_page(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(str(shards), "-n", "4", "--json", "--html", str(tmp_path / "deep" / "page.html"), "--negatives", "corpus")
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert (data["seed"], data["epoch"], len(data["instances"])) == (0, 0, 4)
    assert "4 instances" in err
    page = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert page.count('<article class="instance">') == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "0"], "-n must be at least 1"),
        (["--epoch", "-1"], "counted from 0"),
        (["--negatives", "documents"], "Did you mean 'document'"),
        (["--max-length", "3"], "max_length must be at least 8"),
        (["--lang", "de"], "Unknown language"),
    ],
)
def test_bad_input(shards: Path, words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(str(shards), *words)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        run(str(tmp_path / "nothing"))
