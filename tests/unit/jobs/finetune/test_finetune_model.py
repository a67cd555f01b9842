"""Runs that begin from nothing: readers without attention, with and without word vectors, for every task."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.api.model import load
from qkv.api.vector_scores import load_vectors
from qkv.cli.main import main
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.jobs import curve
from qkv.jobs.curve import CurveConfig
from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune import run as finish
from qkv.jobs.finetune.settings import FinetuneConfig, choose_epochs, load_run_tokenizer, resolve_finetune_settings
from qkv.jobs.finetune.training import TrainingBatches
from qkv.models.plain.folder import draw_unknown
from qkv.models.plain.network import ReaderSettings
from qkv.models.word2vec.folder import WordVectors, look_up_tokens
from qkv.tasks.predictor import Solver
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent
from tests.support import labelled_sets as sets
from tests.support.folders import TOKENS, make_tokenizer
from tests.support.near import assert_near

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = sets.unlabelled()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save(folder)
    return folder


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of word vectors, in which animals and places lie apart."""
    words = [token for token in TOKENS if token.isalnum()]
    table = torch.randn(len(words), 8, generator=torch.Generator().manual_seed(1)) * 0.3
    for row, word in enumerate(words):
        table[row, 0] = 1.0 if word in sets.ANIMALS else -1.0
    folder = tmp_path_factory.mktemp("vectors") / "words"
    WordVectors(words, table).save(folder)
    return folder


def config(model: str, file: Path, task: str = "classify", transfer: Any = None, **flags: Any) -> FinetuneConfig:
    sizes = {} if model == "scratch:lookup" else {"reader.inner_width": 12}
    given = {"data.train": str(file), "epochs": 8.0, "train.lr": 1e-2} | sizes | flags
    given = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    return resolve_finetune_settings(task, model, transfer, None, given, ["train.threads=1", "texts_per_step=8"])


@pytest.mark.parametrize("task", sets.WRITERS)
def test_every_task_from_nothing_to_prediction(
    tmp_path: Path, tokenizer: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    save = finish._save

    def saved(*given: Any) -> None:
        ended.append(given[:3])
        save(*given)

    monkeypatch.setattr(finish, "_save", saved)
    file = sets.WRITERS[task](tmp_path / ("data.csv" if task == "classify" else "data.json"))
    settings = config(
        "scratch:lstm", file, task, tokenizer=tokenizer, epochs={"choice": 40.0, "tag": 16.0}.get(task, 8.0)
    )
    result = finetune.FINETUNING.start(settings, tmp_path / "run", Silent()).result
    assert result["dev"][result["main"]] > 0.5, result["dev"]
    assert result["model"] == "scratch:lstm"
    model = load(tmp_path / "run")
    found = [one.to_dict() for one in model.predict(ASKED[task])]
    json.dumps(found)
    # as the network that was trained would answer, probabilities and all
    prepared, trained, task_trained = ended[0]
    solver = Solver(trained, task_trained, prepared.opened.tokenizer, prepared.max_length, model.solver.calibration)
    examples = prepared.data.dev.examples
    expected = [one.to_dict() for one in solver.answers(examples)]
    assert_near([one.to_dict() for _, part in model.answer_stream(examples) for one in part], expected)
    again = load(model.save(tmp_path / "copy"))
    assert_near([one.to_dict() for one in again.predict(ASKED[task])], found)
    assert again.record == model.record and again.record["calibration"]


@pytest.mark.parametrize("kind", ["gru", "cnn", "textcnn", "lookup"])
def test_every_kind_learns(tmp_path: Path, tokenizer: Path, kind: str) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    sizes: dict[str, Any] = {} if kind in ("lookup", "textcnn") else {"reader.layers": 2}
    settings = config(f"scratch:{kind}", file, tokenizer=tokenizer, **sizes)
    result = finetune.FINETUNING.start(settings, tmp_path / "run", Silent()).result
    assert result["dev"]["accuracy"] > 0.6
    shape = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (shape["model_type"], shape["kind"]) == ("reader", kind)
    assert shape["layers"] == {"lookup": 0, "textcnn": 1}.get(kind, 2)
    assert {one.label for one in load(tmp_path / "run").predict(ASKED["classify"])} <= {"animal", "place"}


def moved(run: Path, vectors: Path) -> bool:
    """Whether the vector of a word is another one than the file's."""
    model = load(run)
    row = model.tokenizer.id("cat")
    now = model.network.state_dict()["encoder.embedding.weight"][row]
    return not torch.equal(now, load_vectors(vectors)["cat"])


@pytest.mark.parametrize("transfer", ["full", "freeze", "features"])
def test_word_vectors_are_where_it_begins(tmp_path: Path, vectors: Path, transfer: str) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    settings = config("scratch:lstm", file, "classify", transfer, embeddings=vectors, epochs=4.0)
    result = finetune.FINETUNING.start(settings, tmp_path / "run", Silent()).result
    assert result["dev"]["accuracy"] > 0.6
    assert moved(tmp_path / "run", vectors) == (transfer == "full")
    assert str(vectors.parent) not in (tmp_path / "run" / "model" / "qkv.json").read_text()


def test_of_looked_up_vectors_freeze_and_features_learn_the_same_head(tmp_path: Path, vectors: Path) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    heads = []
    for way in ("freeze", "features"):
        finetune.FINETUNING.start(
            config("scratch:lookup", file, "classify", way, embeddings=vectors, epochs=2.0), tmp_path / way, Silent()
        )
        heads.append(load(tmp_path / way).network.state_dict())
    for name, value in heads[0].items():
        torch.testing.assert_close(value, heads[1][name], msg=name)


def test_a_file_of_vectors_brings_its_words(tmp_path: Path, vectors: Path, tokenizer: Path) -> None:
    file, plain = sets.write_texts(tmp_path / "data.csv"), tmp_path / "plain.vec"
    load_vectors(vectors).save(plain)
    finetune.FINETUNING.start(config("scratch:lookup", file, embeddings=plain, epochs=1.0), tmp_path / "run", Silent())
    assert load(tmp_path / "run").tokenizer.kind == "word"
    both = config("scratch:lookup", file, embeddings=plain, tokenizer=tokenizer, epochs=1.0)
    finetune.FINETUNING.start(both, tmp_path / "both", Silent())
    assert load(tmp_path / "both").tokenizer.kind == "wordpiece"


def test_a_file_of_vectors_as_the_model(tmp_path: Path, vectors: Path) -> None:
    file, plain = sets.write_texts(tmp_path / "data.csv"), tmp_path / "plain.vec"
    load_vectors(vectors).save(plain)
    given = {"data.train": str(file), "epochs": 1.0}
    settings = resolve_finetune_settings("classify", str(plain), None, None, given, ["texts_per_step=8"])
    assert (settings.model, settings.embeddings) == ("scratch:lookup", str(plain))
    result = finetune.FINETUNING.start(settings, tmp_path / "run", Silent()).result
    assert result["model"] == "scratch:lookup + plain.vec"
    with pytest.raises(InputError, match="is itself what --embeddings brings"):
        resolve_finetune_settings("classify", str(plain), None, None, {"embeddings": str(vectors)}, [])
    with pytest.raises(InputError, match=r"data\.csv"):
        finetune.FINETUNING.start(replace(settings, model=str(file), embeddings=None), tmp_path / "other", Silent())


@pytest.mark.parametrize("given", ["--embeddings", "--model"])
def test_a_file_of_chinese_words_is_found_in_texts(tmp_path: Path, given: str) -> None:
    file = tmp_path / "zh.vec"
    WordVectors(["国王", "北京", "在"], torch.randn(3, 4)).save(file)
    model, flags = ("scratch:lstm", {"embeddings": str(file)}) if given == "--embeddings" else (str(file), {})
    tokenizer = load_run_tokenizer(resolve_finetune_settings("classify", model, None, None, flags, []))
    assert (tokenizer.segmenter or "").startswith("rjieba")
    pytest.importorskip("rjieba")
    assert tokenizer.encode("国王在北京", special=False).tokens == ["国王", "在", "北京"]


def test_tokens_without_a_vector_are_drawn_as_widely_as_the_others_spread() -> None:
    words = WordVectors(["cat", "dog"], torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), "two.vec")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "cat", *(f"w{n}" for n in range(500))]
    found = look_up_tokens(Tokenizer.from_vocabulary(tokens, "word"), words)
    table = draw_unknown(*found)
    assert table[5:7].tolist() == [[-1.0, 1.0], [1.0, -1.0]]
    assert table[7:].std() == pytest.approx(1.0, abs=0.1)
    assert torch.equal(draw_unknown(*found), table)


def test_no_token_has_a_vector(tmp_path: Path, tokenizer: Path) -> None:
    WordVectors(["狮子"], torch.ones(1, 2)).save(tmp_path / "one.vec")
    file = sets.write_texts(tmp_path / "data.csv")
    settings = config("scratch:lookup", file, embeddings=tmp_path / "one.vec", tokenizer=tokenizer)
    with pytest.raises(InputError, match=r"None of the .* tokens of the tokenizer is a word of .*one\.vec"):
        finetune.FINETUNING.start(settings, tmp_path / "run", Silent())


def test_a_broken_run_ends_like_a_whole_one(
    tmp_path: Path, vectors: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    settings = config("scratch:gru", file, embeddings=vectors, tokenizer=tokenizer, epochs=3.0)
    monkeypatch.setattr("qkv.jobs.finetune.training.SAVED", 1)
    finetune.FINETUNING.start(settings, tmp_path / "whole", Silent())
    plain = TrainingBatches.__call__

    def broken(batches: TrainingBatches, step: int) -> Sequence[Batch]:
        if step == 8:
            raise KeyboardInterrupt
        return plain(batches, step)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingBatches, "__call__", broken)
        with pytest.raises(KeyboardInterrupt):
            finetune.FINETUNING.start(settings, tmp_path / "broken", Silent())
    table = (vectors / "model.safetensors").read_bytes()
    (vectors / "model.safetensors").write_bytes(table[:-1] + bytes([table[-1] ^ 1]))
    with pytest.raises(InputError, match="has changed since the run began"):
        finetune.FINETUNING.resume(tmp_path / "broken", Silent())
    (vectors / "model.safetensors").write_bytes(table)
    assert finetune.FINETUNING.resume(tmp_path / "broken", Silent()).finished
    for name in ("model/model.safetensors", "predictions.jsonl", "model/qkv.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_training_goes_on_from_a_reader(tmp_path: Path, tokenizer: Path) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    finetune.FINETUNING.start(config("scratch:cnn", file, tokenizer=tokenizer), tmp_path / "first", Silent())
    given = {"data.train": str(file), "epochs": 1.0}
    settings = resolve_finetune_settings(
        "classify", str(tmp_path / "first"), "freeze", None, given, ["texts_per_step=8"]
    )
    assert settings.train.lr == 1e-3
    result = finetune.FINETUNING.start(settings, tmp_path / "second", Silent()).result
    assert result["model"] == "first"
    assert load(tmp_path / "second").record["config"]["model"] == "first"
    before, after = (load(tmp_path / run).network.state_dict() for run in ("first", "second"))
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {name for name in before if name.startswith("encoder.") and "pooler" not in name}


def test_a_curve_of_one_that_begins_from_nothing(tmp_path: Path, tokenizer: Path) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    tuned = config("scratch:textcnn", file, tokenizer=tokenizer, epochs=2.0)
    done = curve.CURVES.start(CurveConfig(shares=(0.5, 1.0), draws=1, finetune=tuned), tmp_path / "curve", Silent())
    assert [point["n"] for point in done.result["points"]] == [27, 54]


@pytest.mark.parametrize(
    ("model", "flags", "message"),
    [
        ("scratch:lstn", {}, "Did you mean 'lstm'"),
        ("scratch:lstm", {}, "--embeddings .* --tokenizer"),
        ("scratch:lstm", {"tokenizer": "T", "transfer": "freeze"}, "holds word vectors still"),
        ("scratch:lstm", {"tokenizer": "T", "transfer": "top:1"}, "all have to move"),
        ("scratch:lstm", {"tokenizer": "T", "transfer": "frees"}, "Did you mean 'freeze'"),
        ("scratch:lstm", {"embeddings": "V", "reader.embedding_width": 9}, "embedding_width is 9, and .* have 8"),
        ("scratch:lookup", {"embeddings": "V", "reader.layers": 2}, "a lookup has 0 layers"),
        (
            "scratch:lookup",
            {"embeddings": "V", "reader.inner_width": 9, "reader.kernels": [3]},
            "reader.inner_width, reader.kernels do nothing for scratch:lookup on words: leave them out",
        ),
        (
            "scratch:lstm",
            {"tokenizer": "T", "reader.kernels": [3]},
            "reader.kernels do nothing for scratch:lstm: leave",
        ),
        ("scratch:cnn", {"embeddings": "V", "reader.kernels": [2]}, "each must be odd"),
        ("scratch:cnn", {"embeddings": "V", "reader.dropout": 2}, "reader.dropout is a share"),
        ("scratch:lstm", {"embeddings": "V", "attention_dropout": 0.1}, "no attention"),
        ("scratch:lstm", {"embeddings": "nowhere.vec"}, "no file or folder nowhere.vec"),
    ],
)
def test_what_cannot_be_begun(
    tmp_path: Path, vectors: Path, tokenizer: Path, model: str, flags: dict[str, Any], message: str
) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    places = {"T": str(tokenizer), "V": str(vectors)}
    given = {name: places.get(value, value) if isinstance(value, str) else value for name, value in flags.items()}
    with pytest.raises(InputError, match=message):
        finetune.FINETUNING.start(config(model, file, **given), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_where_it_begins_when_nobody_says_otherwise(tmp_path: Path, tokenizer: Path) -> None:
    """Larger steps than a pretrained encoder's, and more of them."""
    start = resolve_finetune_settings("classify", "scratch:gru", None, None, {"tokenizer": str(tokenizer)}, [])
    assert start.train.lr == 1e-3 and start.reader == ReaderSettings()
    assert choose_epochs("classify", 1000, 32, from_nothing=True) == 31 > choose_epochs("classify", 1000, 32) == 12
    assert choose_epochs("answer", 90_000, 3000, from_nothing=True) == 6


def test_a_pretrained_folder_has_its_own(tmp_path: Path, minilm: Path) -> None:
    for key, value in (("embeddings", "v.vec"), ("tokenizer", "folder"), ("reader.layers", 2)):
        with pytest.raises(InputError, match="has its own"):
            resolve_finetune_settings("classify", str(minilm), None, None, {key: value}, [])


def test_on_the_command_line(tmp_path: Path, vectors: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, run = sets.write_texts(tmp_path / "data.csv"), tmp_path / "run"
    words = ["finetune", "classify", "--model", "scratch:textcnn", "--embeddings", str(vectors), "--train", str(file)]
    assert main([*words, "--out", str(run), "--epochs", "2", "--set", "reader.kernels=[1, 3]"]) == 0
    assert "the model, for qkv\n" in capfd.readouterr().err
    assert main(["predict", str(run), "the cat sat", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["label"] in ("animal", "place")
    assert main(["evaluate", str(run), str(file), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)
    half = str(tmp_path / "half")
    assert main(["convert", str(run / "model"), half, "--architecture", "BertModel"]) == 2
    assert "transformers has no class for it" in capfd.readouterr().err
    assert main(["convert", str(run / "model"), half, "--dtype", "float16", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["dtype"] == "float16"
    assert main(["predict", half, "the cat sat", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["label"] in ("animal", "place")
    assert main(["info", str(run)]) == 0
    assert "textcnn" in capfd.readouterr().out
    assert main(["attention", "the cat", "--model", str(run)]) == 2
    assert "cannot show attention. It holds an encoder without attention" in capfd.readouterr().err
    assert main(["fill", "the [MASK]", "--model", str(run)]) == 2
    error = capfd.readouterr().err
    assert "cannot fill a blank" in error and "qkv embed TEXT --model" in error
