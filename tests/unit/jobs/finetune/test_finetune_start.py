"""Defaults that follow from task, model and what moves: which transfer, which learning rate, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.errors import InputError
from qkv.jobs.finetune.settings import (
    FinetuneConfig,
    choose_epochs,
    default_settings,
    default_transfer,
    resolve_finetune_settings,
)
from qkv.models.plain.config import sizes_of_reader
from qkv.models.plain.network import ReaderConfig
from qkv.models.word2vec.folder import WordVectors
from qkv.tasks.transfer import Transfer
from tests.support.below_readers import WORDS, elmo_config, make_elmo, make_rnnlm, word_tokenizer
from tests.support.folders import make_folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    words = [word for word in WORDS if word.isalnum()]
    WordVectors(words, torch.randn(len(words), 4)).save(folder / "words")
    WordVectors(words, torch.randn(len(words), 4)).save(folder / "words.vec")
    made = {"elmo": make_elmo(folder / "elmo"), "rnnlm": make_rnnlm(folder / "rnnlm")}
    made["bert"] = make_folder(folder / "bert", "BertModel")
    return made | {"words": folder / "words", "file": folder / "words.vec"}


def configured(places: dict[str, Path], model: str, transfer: str | None = None, **flags: Any) -> FinetuneConfig:
    given = {name: str(places.get(value, value)) for name, value in flags.items()}
    return resolve_finetune_settings("classify", str(places.get(model, model)), transfer, None, given, [])


@pytest.mark.parametrize(
    ("model", "flags", "transfer", "lr"),
    [
        ("bert", {}, "full", 2e-4),
        ("words", {}, "full", 1e-3),
        ("file", {}, "full", 1e-3),
        ("rnnlm", {}, "full", 3e-4),  # a language model that moves takes the steps of a small BERT
        ("elmo", {}, "freeze", 1e-3),
        ("scratch:lstm", {"embeddings": "elmo"}, "freeze", 1e-3),
        ("scratch:lstm", {"embeddings": "words"}, "full", 1e-3),
        ("scratch:lstm", {"embeddings": "rnnlm"}, "full", 3e-4),
        ("scratch:lstm", {"tokenizer": "words"}, "full", 1e-3),
    ],
)
def test_what_nobody_said(places: dict[str, Path], model: str, flags: dict[str, str], transfer: str, lr: float) -> None:
    found = configured(places, model, **flags)
    assert (found.transfer, found.train.lr) == (transfer, lr)
    assert configured(places, model, "full", **flags).train.lr == (3e-4 if "elmo" in (model, *flags.values()) else lr)


def test_what_was_said_stays(places: dict[str, Path]) -> None:
    given = {"train.lr": 0.5, "transfer": "freeze"}
    found = resolve_finetune_settings("classify", str(places["rnnlm"]), None, None, given, ["train.warmup=0.25"])
    assert (found.train.lr, found.transfer, found.train.warmup) == (0.5, "freeze", 0.25)
    assert configured(places, "bert", "freeze").train.lr == 1e-3


def test_what_moves_when_training_goes_on() -> None:
    on_elmo: dict[str, Any] = {"embedding_width": 10, "features": elmo_config(word_tokenizer())}

    def moves(*sizes: Any, is_new: bool = False, **others: Any) -> str:
        return default_transfer(sizes_of_reader(ReaderConfig(*sizes, **others)), is_new)

    assert moves("lstm", layers=2) == moves("lstm", layers=2, is_new=True) == "full"
    assert moves("lstm", layers=2, **on_elmo) == "top:2"
    assert moves("lookup", layers=0, **on_elmo) == moves("lstm", layers=2, is_new=True, **on_elmo) == "freeze"


def test_small_models_and_lone_heads_take_larger_steps() -> None:
    def rate(transfer: Transfer, **model: Any) -> float:
        found: float = default_settings("classify", transfer, "cpu", **model)["train"]["lr"]
        return found

    full, freeze = Transfer("full", 2, True), Transfer("freeze", 0, False)
    assert [rate(full, width=width) for width in (256, 512, 768, 1024)] == [2e-4, 1e-4, 5e-5, 2e-5]
    assert rate(freeze, width=1024) == rate(full) == rate(freeze, on_language_model=True) == 1e-3
    assert rate(full, on_language_model=True) == 3e-4
    # new layers above a language model that stays
    assert rate(Transfer("freeze", 2, False), on_language_model=True) == 1e-3
    assert default_settings("classify", full, "cuda")["train"]["precision"] == "bf16"


def test_tags_and_texts_take_smaller_steps_and_more_warm_up() -> None:
    """Most tokens have no entity, which is all that a short run with large steps learns."""
    full = Transfer("full", 2, True)
    names = ("answer", "tag", "classify")
    answers, tags, texts = (default_settings(task, full, "cpu", width=256)["train"] for task in names)
    assert max(tags["lr"], texts["lr"]) < answers["lr"] and min(tags["warmup"], texts["warmup"]) > answers["warmup"]
    assert (choose_epochs("classify", 300, 9), choose_epochs("tag", 300, 9)) == (20, 40)
    assert choose_epochs("tag", 3000, 94) == choose_epochs("tag", 30_000, 940) == 4


@pytest.mark.parametrize(
    ("key", "instead"), [("train.steps", " Set epochs instead"), ("train.save_every", "cannot be set.$")]
)
def test_what_a_run_works_out_by_itself(places: dict[str, Path], tmp_path: Path, key: str, instead: str) -> None:
    model, recipe = str(places["bert"]), tmp_path / "recipe.toml"
    recipe.write_text(f"[train]\n{key.removeprefix('train.')} = 5\n")
    with pytest.raises(InputError, match=f"{key} is worked out .*{instead}"):
        resolve_finetune_settings("classify", model, None, None, {}, [f"{key}=5"])
    with pytest.raises(InputError, match=f"{key} is worked out .*{instead}"):
        resolve_finetune_settings("classify", model, None, recipe)


def test_a_file_of_a_model_is_not_its_folder(places: dict[str, Path]) -> None:
    for name in ("model.safetensors", "vocab.txt"):
        with pytest.raises(InputError, match=f"{name} is a file. Give the folder"):
            resolve_finetune_settings("classify", str(places["bert"] / name))


def test_sizes_that_do_nothing_are_refused(places: dict[str, Path]) -> None:
    for name in ("elmo", "words", "file"):
        with pytest.raises(InputError, match="reader.inner_width do nothing for scratch:lookup on .*: leave them out"):
            resolve_finetune_settings("classify", str(places[name]), None, None, {}, ["reader.inner_width=999"])
    found = resolve_finetune_settings("classify", str(places["words"]), None, None, {}, ["reader.dropout=0.1"])
    assert found.reader.dropout == 0.1
