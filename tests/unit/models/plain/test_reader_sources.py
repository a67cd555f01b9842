"""Word vectors and language models below readers: every task, saved whole, resumed exactly, and what cannot be."""

import copy
import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.api.classifier import Classifier
from qkv.api.model import Model, load
from qkv.cli.main import main
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune.settings import FinetuneConfig, load_run_tokenizer, resolve_finetune_settings
from qkv.jobs.finetune.training import TrainingBatches
from qkv.models.elmo.network import ElmoVectors
from qkv.models.family import FEEDS, HAS_TASK, Feeds
from qkv.models.table import open_model
from qkv.models.word2vec.folder import WordVectors
from qkv.train.log import Silent
from tests.support import labelled_sets as sets
from tests.support.below_readers import WORDS, make_elmo, make_nnlm, make_rnnlm, word_tokenizer
from tests.support.folders import make_folder, make_tokenizer
from tests.support.near import assert_near

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = sets.unlabelled("zebra", "Zanzibar")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    made = {
        "elmo": make_elmo(folder / "elmo"),
        "pieces": make_elmo(folder / "pieces", make_tokenizer()),
        "rnnlm": make_rnnlm(folder / "rnnlm"),
        "nnlm": make_nnlm(folder / "nnlm"),
        "bert": make_folder(folder / "bert", "BertModel"),
        "words": folder / "words",
        "tokenizer": folder / "tokenizer",
        "cased": folder / "cased",
    }
    words = [word for word in WORDS if word.isalnum()]
    WordVectors(words, torch.randn(len(words), 8, generator=torch.Generator().manual_seed(1))).save(made["words"])
    word_tokenizer().save(made["tokenizer"])
    type(word_tokenizer()).from_vocabulary(WORDS, "word", lowercase=False).save(made["cased"])
    return made


def config(model: str, file: Path, task: str = "classify", transfer: Any = None, **flags: Any) -> FinetuneConfig:
    sizes = {"reader.inner_width": 6} if model.startswith("scratch:") else {}
    given = {"data.train": str(file), "epochs": 2.0} | sizes | flags
    given = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    return resolve_finetune_settings(task, model, transfer, None, given, ["train.threads=1", "texts_per_step=8"])


def below(folder: Path) -> Feeds:
    return open_model(folder).ability(FEEDS)


def elmo_of(model: Model) -> dict[str, torch.Tensor]:
    vectors = model.network.encoder.embedding
    assert isinstance(vectors, ElmoVectors)
    return vectors.network.state_dict()


@pytest.mark.parametrize("task", sets.WRITERS)
def test_every_task_on_elmo(tmp_path: Path, places: dict[str, Path], task: str) -> None:
    file = sets.WRITERS[task](tmp_path / ("data.csv" if task == "classify" else "data.json"))
    # pieces of words, for what they are not whole units of
    source = places["pieces" if task == "tag" else "elmo"]
    settings = config("scratch:lstm", file, task, embeddings=source)
    assert settings.transfer == "freeze"
    result = finetune.FINETUNING.start(settings, tmp_path / "run", Silent()).result
    assert result["model"] == f"scratch:lstm + {source.name}"
    assert sum(result["mix"]["shares"]) == pytest.approx(1) and result["mix"]["shares"] != [1 / 3] * 3
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Weights of the ELMo layers" in page and f"γ = {result['mix']['gamma']:.3f}" in page
    assert "pretrained vectors held still" in page
    model = load(tmp_path / "run")
    assert model.architecture == "encoder of kind lstm on vectors of elmo"
    # all of ELMo is inside, as it was, but for its scores of words
    before = below(source).weights()
    for name, value in elmo_of(model).items():
        assert torch.equal(value, before[name]), name
    found = [one.to_dict() for one in model.predict(ASKED[task])]
    again = load(model.save(tmp_path / "copy"))
    assert_near([one.to_dict() for one in again.predict(ASKED[task])], found)
    lines = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert len(lines) == result["examples"]["dev"]


def test_words_that_are_not_known_are_told_apart(tmp_path: Path, places: dict[str, Path]) -> None:
    """Of words that nobody has met, two spellings are two words; to a table they are the same."""
    file, found = sets.write_texts(tmp_path / "data.csv"), {}
    for name in ("elmo", "words"):
        finetune.FINETUNING.start(config(str(places[name]), file, epochs=1.0), tmp_path / name, Silent())
        answers = load(tmp_path / name).predict(["the zebra sat", "the Zebra sat", "the okapi sat"])
        found[name] = [one.probabilities["animal"] for one in answers]
    zebra, capital, okapi = found["elmo"]
    assert capital == pytest.approx(zebra, abs=1e-7) and abs(okapi - zebra) > 1e-5
    assert found["words"] == pytest.approx([found["words"][0]] * 3, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "transfer", "lr", "moving"),
    [
        ("elmo", "freeze", 1e-3, None),  # as features, for its mix is learned in both
        ("rnnlm", "full", 3e-4, "encoder.embedding.network."),
        ("nnlm", "full", 1e-3, "encoder.embedding.weight"),
        ("words", "full", 1e-3, "encoder.embedding.weight"),
    ],
)
def test_a_folder_as_the_model(
    tmp_path: Path, places: dict[str, Path], name: str, transfer: str, lr: float, moving: str | None
) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    settings = config(str(places[name]), file)
    assert (settings.model, settings.embeddings) == ("scratch:lookup", str(places[name]))
    assert (settings.transfer, settings.train.lr) == (transfer, lr)
    finetune.FINETUNING.start(settings, tmp_path / "run", Silent())
    held = config(str(places[name]), file, "classify", "features")
    finetune.FINETUNING.start(held, tmp_path / "held", Silent())
    (one, other), beginning = (load(tmp_path / run) for run in ("run", "held")), below(places[name])
    assert one.tokenizer.vocabulary == beginning.tokenizer.vocabulary
    found, still = (model.network.state_dict() for model in (one, other))
    for part, value in beginning.weights().items():
        assert torch.equal(still[f"encoder.embedding.network.{part}"], value), part
    moved = {part for part in found if not torch.equal(found[part], still[part])}
    assert not moved if moving is None else any(part.startswith(moving) for part in moved)


def test_training_goes_on_and_elmo_stays_unless_it_is_told_to_move(tmp_path: Path, places: dict[str, Path]) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    first_run = config("scratch:gru", file, embeddings=places["elmo"])
    began = finetune.FINETUNING.start(first_run, tmp_path / "first", Silent()).result["mix"]
    assert began["began"] == [1 / 3] * 3 != began["shares"]
    given = {"data.train": str(file), "epochs": 1.0}
    for transfer, used in ((None, "top:1"), ("full", "full")):
        settings = resolve_finetune_settings(
            "classify", str(tmp_path / "first"), transfer, None, given, ["texts_per_step=8"]
        )
        assert settings.transfer == used
        result = finetune.FINETUNING.start(settings, tmp_path / used, Silent()).result
        assert result["mix"]["began"] == began["shares"] and result["model"] == "first"
        assert "the model that this run went on from" in (tmp_path / used / "report.html").read_text(encoding="utf-8")
    first, held, full = (load(tmp_path / run) for run in ("first", "top:1", "full"))
    same = [torch.equal(value, elmo_of(held)[name]) for name, value in elmo_of(first).items()]
    assert all(same) and not all(torch.equal(value, elmo_of(full)[name]) for name, value in elmo_of(first).items())
    before, after = (model.network.state_dict() for model in (first, held))
    for part in ("encoder.mix.gamma", "encoder.blocks.0.0.from_input.weight", "heads.sequence.linear.weight"):
        assert not torch.equal(before[part], after[part]), part


def test_a_broken_run_ends_like_a_whole_one(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    settings = config("scratch:lstm", file, embeddings=places["elmo"])
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
    assert finetune.FINETUNING.resume(tmp_path / "broken", Silent()).finished
    for name in ("model/model.safetensors", "predictions.jsonl", "model/qkv.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("model", "flags", "message"),
    [
        ("elmo", {"embeddings": "words"}, r"\(elmo\) is itself what --embeddings brings"),
        (
            "scratch:lstm",
            {"embeddings": "bert"},
            "model of type bert, which reads texts by itself: give it with --model",
        ),
        (
            "scratch:lstm",
            {"embeddings": "rnnlm", "tokenizer": "tokenizer"},
            "of its own tokenizer: leave --tokenizer out",
        ),
        ("scratch:lstm", {"embeddings": "pieces", "tokenizer": "tokenizer"}, "kind wordpiece.*kind word.* are others"),
        ("scratch:lstm", {"embeddings": "elmo", "tokenizer": "cased"}, "lowercase True.*lowercase False"),
        ("scratch:lstm", {"embeddings": "elmo", "reader.embedding_width": 9}, "embedding_width is 9, and .* have 10"),
        ("elmo", {"reader.layers": 2}, "a lookup has 0 layers, not 2"),
        ("elmo", {"transfer": "top:1"}, "elmo has no layers above it. Possible here: full .* freeze and features"),
        ("scratch:lstm", {"embeddings": "elmo", "transfer": "top:1"}, "above elmo are new, and all have to move"),
        ("elmo", {"reader.inner_width": 999}, "reader.inner_width do nothing for scratch:lookup on elmo: leave"),
    ],
)
def test_what_cannot_be(
    tmp_path: Path, places: dict[str, Path], model: str, flags: dict[str, Any], message: str
) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    given: dict[str, Any] = {name: places.get(value, value) for name, value in flags.items()}
    with pytest.raises(InputError, match=message):
        finetune.FINETUNING.start(config(str(places.get(model, model)), file, **given), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_of_the_same_kind(tmp_path: Path, places: dict[str, Path]) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    found = load_run_tokenizer(config("scratch:lstm", file, embeddings=places["elmo"], tokenizer=places["tokenizer"]))
    assert found.vocabulary == word_tokenizer().vocabulary


def test_a_folder_that_no_task_was_put_on_says_what_to_do(places: dict[str, Path]) -> None:
    for name in ("elmo", "rnnlm", "nnlm", "words"):
        with pytest.raises(InputError, match="cannot predict.*TASK --model.*qkv finetune classify --model"):
            load(places[name]).predict("the cat")
        assert not open_model(places[name]).has(HAS_TASK)


def test_a_loaded_model_can_be_copied(tmp_path: Path, places: dict[str, Path]) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    finetune.FINETUNING.start(config(str(places["elmo"]), file, epochs=1.0), tmp_path / "run", Silent())
    model = load(tmp_path / "run")
    expected = [one.to_dict() for one in model.predict(ASKED["classify"])]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_near([one.to_dict() for one in other.predict(ASKED["classify"])], expected)


def test_a_model_names_the_run_that_lies_below_it(tmp_path: Path, places: dict[str, Path]) -> None:
    """Its record is handed on without the folders of this machine."""
    run = tmp_path / "my-elmo"
    shutil.copytree(places["elmo"], run / "model")
    (run / "config.toml").write_text("")
    file = sets.write_texts(tmp_path / "data.csv")
    finetune.FINETUNING.start(config(str(run), file, epochs=1.0), tmp_path / "run", Silent())
    record = load(tmp_path / "run").record["config"]
    assert (record["model"], record["embeddings"]) == ("scratch:lookup", "my-elmo")


def test_in_python(places: dict[str, Path]) -> None:
    texts = [example.text for example in sets.texts(40)]
    labels = [example.label for example in sets.texts(40)]
    quick: dict[str, Any] = {"epochs": 1, "threads": 1, "settings": ["texts_per_step=8"]}
    made = Classifier("scratch:lstm", embeddings=places["elmo"], **quick).fit(texts, labels)
    assert set(made.predict(["the zebra sat"])) <= {"animal", "place"} and made.result_["mix"]
    assert Classifier("scratch:cnn", tokenizer=places["tokenizer"], **quick).fit(texts, labels).result_["mix"] is None
    assert Classifier(places["elmo"], **quick).fit(texts, labels).result_["transfer"] == "freeze"
    with pytest.raises(InputError, match="no tokenizer yet"):
        Classifier("scratch:lstm", **quick).fit(texts, labels)


def test_on_the_command_line(tmp_path: Path, places: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    file, run = sets.write_texts(tmp_path / "data.csv"), tmp_path / "run"
    words = ["finetune", "classify", "--model", str(places["elmo"]), "--train", str(file), "--out", str(run)]
    assert main([*words, "--epochs", "1"]) == 0
    assert "the vectors of 3 layers of" in capfd.readouterr().err
    assert main(["predict", str(run), "the zebra sat", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["label"] in ("animal", "place")
    assert main(["evaluate", str(run), str(file), "--json"]) == 0
    capfd.readouterr()
    assert main(["info", str(run)]) == 0
    told = " ".join(capfd.readouterr().out.split())
    assert "vectors of elmo" in told and "its layers mixed" in told
    assert main(["predict", str(places["elmo"]), "the cat"]) == 2
    assert "Traceback" not in capfd.readouterr().err
