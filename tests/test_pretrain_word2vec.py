"""What the verb says of a word2vec run, and the words it takes."""

import json
from pathlib import Path

import pytest

from qkv.cli.pretrain_word2vec import begin_word2vec, is_word2vec, resume_word2vec, tell_word2vec
from qkv.data.prepare import prepare
from qkv.errors import InputError
from qkv.tokenizer import Tokenizer
from tests.corpora import documents, write_corpus

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = ["train.kernel=torch", "train.chunk=200", "train.epochs=1", "model.width=8", "train.threads=1"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cli")
    tokenizer = Tokenizer.train(documents(40), kind="word", vocabulary_size=100)
    corpus = write_corpus(folder / "corpus.txt")
    prepare(corpus, tokenizer, folder / "shards", hold_out=0.05, segmenter="none", workers=1)
    return str(folder / "shards")


def test_a_run_and_what_is_said_of_it(shards: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    (tmp_path / "recipe.toml").write_text("[sampling]\nwindow = 3\n", encoding="utf-8")
    flags = {"train.minutes": None, "device": "cpu", "init": None}
    finished = begin_word2vec(shards, run, tmp_path / "recipe.toml", flags, SETTINGS)
    out, err = capsys.readouterr()
    assert out == "" and f"step {finished.steps}/{finished.steps}  loss " in err and "held-out loss" in err
    assert "window = 3" in (run / "config.toml").read_text(encoding="utf-8")
    tell_word2vec(finished, as_json=False)
    assert capsys.readouterr().err == (
        f"{run / 'model'}: the word vectors. Try: qkv similar WORD --model {run / 'model'}\n"
    )
    assert is_word2vec(run)
    again = resume_word2vec(run)
    tell_word2vec(again, as_json=False)
    assert f"{run} is finished: {finished.steps} chunks." in capsys.readouterr().err
    tell_word2vec(again, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["run", "finished", "step", "steps", "model", "evaluation"]
    assert document["model"] == str(run / "model") and document["evaluation"]["loss"] > 0


def test_flags_of_other_models(shards: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--size is for bert"):
        begin_word2vec(shards, tmp_path / "run", flags={"model.size": "mini"})
    with pytest.raises(InputError, match="--init is for bert"):
        begin_word2vec(shards, tmp_path / "run", flags={"init": "qkv-mini"})
    (tmp_path / "config.toml").write_text('data = ""\n', encoding="utf-8")
    assert not is_word2vec(tmp_path)
