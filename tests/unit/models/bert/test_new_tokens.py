"""Tokens added to a trained model: what it knew stays, and what is new begins as what it is made of."""

import json
import math
from pathlib import Path

import pytest
import torch

import qkv
from qkv.cli.main import main
from qkv.models.bert.folder import save
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import TOKENS, make_folder, make_model, make_tokenizer
from tests.support.gpt_folders import make_gpt
from tests.support.like_folders import make_like_folder

LIST = "話\t天\n嗯\t是好\n😡\tcat 坏\nwideness\n##happyer\tcat\n怼\n"
NEW = ["話", "嗯", "😡", "wideness", "##happyer", "怼"]
OLD_TEXTS = ["the cat didn't cross, 他欠我 5G 万元！", "unhappyness 😀 zzz", "[MASK] 猫"]
NASTY = [
    *("", "話嗯😡怼", "good😡 😡 😡😡", "Wideness WIDENESSES, unhappyer unhappy"),
    *("é話\u0301嗯\u200b 話[MASK]話 ＡＢ", "😀 ##happyer"),
]


def grow(folder: Path, target: Path, text: str = LIST, *rest: str) -> int:
    file = target.parent / "list.txt"
    file.write_text(text, encoding="utf-8")
    return main(["convert", str(folder), str(target), "--add-tokens", str(file), *rest])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "old")


@pytest.mark.parametrize("fold", [[], ["--fold", "width,emoji"]])
def test_old_ids_and_numbers_stay_and_new_rows_are_means(
    folder: Path, tmp_path: Path, fold: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert grow(folder, tmp_path / "new", LIST, *fold, "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["n_added"] == 6
    assert "6 tokens were added; the vocabulary has" in err and "1 begin as [UNK], since the model knows no part" in err
    assert ": 怼. " in err
    before, after = qkv.load(folder), qkv.load(tmp_path / "new")
    size = len(TOKENS)
    assert after.tokenizer.size == size + 6 == after.network.config.vocabulary_size
    assert [after.tokenizer.id(token) for token in NEW] == list(range(size, size + 6))
    for text in OLD_TEXTS:
        assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
    torch.testing.assert_close(after.embed(OLD_TEXTS).vectors, before.embed(OLD_TEXTS).vectors)

    def parts(model: qkv.Model) -> tuple[torch.Tensor, torch.Tensor]:
        state = model.network.state_dict()
        return state["encoder.embedding.token.weight"], state["heads.masked.bias"]

    (old, old_bias), (table, bias) = parts(before), parts(after)
    assert torch.equal(table[:size], old) and torch.equal(bias[:size], old_bias)
    made_of = [["天"], ["是", "好"], ["cat", "坏"], ["wide", "##ness"], ["cat"], ["[UNK]"]]
    for number, tokens in enumerate(made_of, size):
        like = [TOKENS.index(token) for token in tokens]
        torch.testing.assert_close(table[number], old[like].mean(0))
        torch.testing.assert_close(bias[number], old_bias[like].mean() - math.log(size + 6))


def test_transformers_and_the_plain_wordpiece_read_the_same(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for number, fold in enumerate([[], ["--fold", "width,emoji"]]):
        target = tmp_path / f"new{number}"
        assert grow(folder, target, LIST, *fold) == 0
        ours, theirs = Tokenizer.load(target), transformers.AutoTokenizer.from_pretrained(target)
        plain, lines = ours.plain(), (target / "vocab.txt").read_text(encoding="utf-8").splitlines()
        assert lines == list(ours.vocabulary) == [*TOKENS, *NEW]
        for text in [*NASTY, *OLD_TEXTS]:
            found = theirs(text, return_offsets_mapping=True)
            encoded = ours.encode(text)
            assert (found["input_ids"], [*map(tuple, found["offset_mapping"])]) == (encoded.ids, encoded.offsets)
            assert plain.tokenize(text) == ours.encode(text, special=False).tokens
    reference = transformers.BertForPreTraining.from_pretrained(target).eval()
    inputs = theirs("話 [MASK] 😡", return_tensors="pt")
    with torch.inference_mode():
        scores = reference(**inputs).prediction_logits[0, 2].softmax(-1)
    best = qkv.load(target).fill("話 [MASK] 😡")[0].candidates[0]
    assert best.token == ours.token(int(scores.argmax())) and best.probability == pytest.approx(
        scores.max().item(), abs=1e-5
    )


def test_lines_that_are_skipped(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grow(folder, tmp_path / "new", "\n猫\n 話 \t天\r\n話\n[MASK]\n猫\n嗯\t\n") == 0
    said = capsys.readouterr().err
    assert "2 tokens were added" in said and "skipped, since the model has them: 猫, [MASK]" in said
    assert "skipped, since an earlier line has them: 話, 猫" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "list.txt has no tokens. Write one a line"),
        ("\n \n", "list.txt has no tokens."),
        ("話\ntoo tired\n", "line 2: 'too tired' never occurs: the tokenizer reads 'too tired' as ['too', 'tired']"),
        ("COVID", "line 1: 'COVID' never occurs: the tokenizer reads it as 'covid'. Write that."),
        ("区块链", "reads '区块链' as ['区', '块', '链']. A token is one word, one 汉字"),
        ("##链", "'##链' never occurs: the tokenizer reads 'a链' as ['a', '链']"),
        ("##", "'##' never occurs"),
        ("\u0301", "never occurs: the tokenizer reads '\u0301' as []"),
        ("z" * 101, "a token of 101 characters never occurs: words of more than 100 are [UNK]"),
        ("話\t龘龘", "line 1: the model knows no token of '龘龘', the text for '話'."),
        ("\t话", "line 1 begins with a tab"),
    ],
)
def test_wrong_lists(folder: Path, tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert grow(folder, tmp_path / "new", text) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not (tmp_path / "new").exists()


def test_a_missing_list_and_other_bytes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", str(folder), str(tmp_path / "new"), "--add-tokens", str(tmp_path / "none.txt")]
    assert main(words) == 2 and "none.txt" in capsys.readouterr().err
    (tmp_path / "none.txt").write_bytes("好嗯\n".encode("gb18030"))
    assert main(words) == 2 and "is not UTF-8" in capsys.readouterr().err


def test_other_families_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grow(make_gpt(tmp_path / "gpt"), tmp_path / "new") == 2
    assert "Tokens can be added to BERT and its relatives" in capsys.readouterr().err
    assert grow(tmp_path / "gpt", tmp_path / "new", LIST, "--dtype", "float16") == 2, "with another option too"
    assert "Tokens can be added to BERT and its relatives" in capsys.readouterr().err
    assert grow(make_like_folder(tmp_path / "r", "roberta"), tmp_path / "new") == 2
    assert "Tokens can be added to a WordPiece vocabulary, and this one is by byte-pair." in capsys.readouterr().err
    added = make_tokenizer()
    added.backend.add_tokens(["too wide"])
    save(tmp_path / "old", make_model(vocabulary_size=len(TOKENS) + 1), Tokenizer(added.backend, "wordpiece"))
    assert grow(tmp_path / "old", tmp_path / "new") == 2
    assert "it has gaps, or added tokens after its end (too wide)" in capsys.readouterr().err


def test_relatives_untied_tables_and_spare_rows(tmp_path: Path) -> None:
    assert grow(make_like_folder(tmp_path / "d", "distilbert"), tmp_path / "d2") == 0
    assert qkv.load(tmp_path / "d2").embed("嗯😡").n_unknown.tolist() == [0]
    make_folder(tmp_path / "u", tied=False, vocabulary_size=len(TOKENS) + 2)
    assert grow(tmp_path / "u", tmp_path / "u2") == 0
    before, after = qkv.load(tmp_path / "u").network.state_dict(), qkv.load(tmp_path / "u2").network.state_dict()
    old, table = before["heads.masked.table"], after["heads.masked.table"]
    assert len(table) == len(TOKENS) + 6 == len(after["encoder.embedding.token.weight"]), "two rows had no token"
    torch.testing.assert_close(table[len(TOKENS)], old[TOKENS.index("天")])
    make_folder(tmp_path / "c", "BertForSequenceClassification", ("good", "bad"))
    assert grow(tmp_path / "c", tmp_path / "c2") == 0
    assert qkv.load(tmp_path / "c2").predict("嗯 the cat")[0].n_unknown == 0
