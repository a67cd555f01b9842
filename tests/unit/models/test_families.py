"""The table of families: every line, and a folder of every kind opened by its family and by the loader below it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from qkv.api.search_index import SearchIndex
from qkv.api.vector_scores import load_vectors
from qkv.cli.main import main
from qkv.data.batch import Batch
from qkv.data.corpus.prepare import prepare_corpus
from qkv.errors import InputError
from qkv.models.bert.folder import load
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FEEDS,
    FILLS,
    HAS_TASK,
    LOOKS_UP,
    RECURS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    TRANSLATES,
    WRITES,
    Ability,
    Head,
    Opened,
    Saving,
    explain_missing,
)
from qkv.models.table import FAMILIES, describe_model, load_family, open_model
from qkv.text.tokenizer import Tokenizer
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm
from tests.support.folders import make_folder, make_tokenizer
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import reader, translator
from tests.support.like_folders import RECORDS, make_like_folder
from tests.support.marian_folders import make_marian
from tests.support.word_vectors import make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")


def _vectors(path: Path) -> Path:
    return make_vectors_folder(path, cat=(1.0, 0.0, 2.0, 1.0), dog=(0.5, 1.0, 0.0, 1.0))


MAKERS: dict[str, Callable[[Path], Any]] = {
    "bert": make_folder,
    "gpt": make_gpt,
    "plain": lambda path: reader(path, "lstm"),
    "transformer": lambda path: translator(path, "transformer"),
    "seq2seq": lambda path: translator(path, "seq2seq"),
    "word2vec": _vectors,
    "nnlm": make_nnlm,
    "rnnlm": make_rnnlm,
    "elmo": make_elmo,
}
NETWORKS: dict[str, Callable[[Path], nn.Module]] = {
    "bert": lambda path: load(path).model,
}
"""As the loader below the family gives them; of the others, what their file holds."""


def _network(opened: Opened) -> nn.Module:
    found: Any = None
    if opened.has(TRANSLATES):
        found = opened.ability(TRANSLATES).network
    elif opened.has(WRITES):
        found = opened.ability(WRITES).writer
        found = getattr(found, "network", found)
    if isinstance(found, nn.Module):
        return found
    return opened.ability(RECURS if opened.has(RECURS) else SHOWS_LAYERS)


@pytest.mark.parametrize("name", MAKERS)
def test_a_folder_opened_by_its_family_is_what_its_loader_gives(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / name)
    facts, opened = describe_model(tmp_path / name), open_model(tmp_path / name)
    assert facts == opened.facts and facts.family == name and facts.model_type in FAMILIES[name].model_types
    assert set(opened.parts) == set(facts.abilities)
    stored = load_file(tmp_path / name / "model.safetensors")
    mine = _network(opened).state_dict()
    theirs = NETWORKS[name](tmp_path / name).state_dict() if name in NETWORKS else stored
    # of words only those with a vector are there, and a GPT's tensors are called otherwise in its file
    if name not in ("word2vec", "gpt"):
        assert set(theirs) <= set(mine) and all(value.equal(mine[one]) for one, value in theirs.items())
    family = load_family(name)
    terms = {"licence": None, "licence_file": None, "card": None}
    assert dict(family.info(facts.document | terms))["folder"] == str(tmp_path / name)
    assert json.loads(json.dumps(facts.document))["path"] == str(tmp_path / name)
    for kind in facts.abilities:
        assert opened.ability(kind) is opened.ability(kind)


@pytest.mark.parametrize("name", ["plain", "elmo", "rnnlm", "nnlm", "word2vec"])
def test_a_folder_is_read_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKERS[name](tmp_path / name)
    read: list[Any] = []
    load_tokenizer = Tokenizer.load

    def count(*given: Any) -> Tokenizer:
        read.append(given)
        return load_tokenizer(*given)

    monkeypatch.setattr(Tokenizer, "load", count)
    opened = open_model(tmp_path / name)
    for kind in opened.facts.abilities:
        opened.ability(kind)
    assert len(read) == 1


@pytest.mark.parametrize("name", ["bert", "gpt", "plain", "elmo", "rnnlm", "nnlm", "word2vec"])
def test_vectors_of_tokens(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / name)
    encodes = open_model(tmp_path / name).ability(ENCODES)
    text = encodes.tokenizer.encode_ids(["the cat"])[0]
    batch = Batch.of([text, text])
    with torch.inference_mode():
        hidden = encodes.hidden(batch)
        assert hidden.shape == (2 * len(text), encodes.sizes.width)
        if encodes.named_layers is not None:
            last = encodes.hidden(batch, encodes.named_layers)
            assert last.shape[0] == len(hidden) and (name != "bert" or last.equal(hidden))
    assert encodes.has_vector(torch.tensor(text)).shape == (len(text),)


@pytest.mark.parametrize("name", ["bert", "gpt", "plain"])
def test_a_head_is_put_on_and_saved(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / name)
    takes = open_model(tmp_path / name).ability(TAKES_HEAD)
    head = Head("sequence", 3, seed=5)
    network, fresh = takes.with_head(head)
    again, _ = takes.with_head(head)
    assert all(value.equal(again.state_dict()[one]) for one, value in network.state_dict().items())
    assert "heads.sequence" in fresh and "encoder.blocks" not in fresh
    takes.save(tmp_path / "saved", network, Saving(("a", "b", "c"), {"task": "classify"}))
    saved = open_model(tmp_path / "saved")
    assert (
        saved.labels == ("a", "b", "c") and saved.record == {"task": "classify"} and saved.facts.heads == ("sequence",)
    )
    task = saved.ability(HAS_TASK)
    assert all(value.equal(network.state_dict()[one]) for one, value in task.network.state_dict().items())
    assert saved.ability(TAKES_HEAD).stored_head("sequence").keys() == {
        "heads.sequence.linear.weight",
        "heads.sequence.linear.bias",
    } - ({"heads.sequence.linear.bias"} if name == "gpt" else set())
    copy = saved.save(tmp_path / "copy")
    assert open_model(copy).facts.document["parameters"] == saved.facts.document["parameters"]


@pytest.mark.parametrize("name", ["word2vec", "nnlm", "rnnlm", "elmo"])
def test_what_feeds_an_encoder(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / name)
    feeds = open_model(tmp_path / name).ability(FEEDS)
    assert feeds.model_type == name and feeds.width > 0
    if feeds.features is None:
        table, known = feeds.table(feeds.tokenizer)
        assert table.shape == (feeds.tokenizer.size, feeds.width) and known.any() and not feeds.weights()
        vectors = open_model(tmp_path / name).ability(LOOKS_UP).vectors()
        assert vectors.words == load_vectors(tmp_path / name).words
    else:
        assert feeds.weights()


def test_a_file_of_vectors_is_opened_as_a_folder_of_them_is(tmp_path: Path) -> None:
    load_vectors(_vectors(tmp_path / "folder")).save(tmp_path / "vectors.txt")
    opened = open_model(tmp_path / "vectors.txt")
    assert opened.facts == describe_model(tmp_path / "vectors.txt") and opened.facts.view_kind == "table"
    assert set(opened.parts) == set(opened.facts.abilities)
    assert opened.ability(LOOKS_UP).vectors().words == ["cat", "dog"]
    assert opened.ability(FEEDS).width == 4 and opened.ability(ENCODES).known is not None


def test_what_cannot_be_done_is_said_with_what_can(tmp_path: Path) -> None:
    opened = open_model(make_nnlm(tmp_path / "nnlm"))
    with pytest.raises(InputError) as caught:
        opened.ability(FILLS)
    said = str(caught.value)
    assert f"{tmp_path / 'nnlm'} cannot fill a blank. It holds an NNLM" in said and "masked head" in said
    assert f"qkv similar WORD --model {tmp_path / 'nnlm'}" in said and not opened.has(RECURS)
    with pytest.raises(InputError, match="copy its folder, or write its vectors to a file: qkv convert"):
        opened.save(tmp_path / "copy")


@pytest.mark.parametrize("kind", [ENCODES, ATTENDS, TAKES_HEAD])
def test_the_models_that_have_an_ability_are_named(kind: Ability[Any], tmp_path: Path) -> None:
    facts = describe_model(make_nnlm(tmp_path / "nnlm"))
    assert "BERT and its relatives" in explain_missing(facts, kind)


def test_the_attention_of_a_translator(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    MAKERS["transformer"](folder := tmp_path / "translator")
    assert main(["attention", "a cat", "--model", str(folder)]) == 2
    said = capfd.readouterr().err
    assert f"{folder} translates: its attention is between a text and its translation" in said and "embed" not in said


def test_a_translator_that_is_asked_to_predict(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    MAKERS["transformer"](tmp_path / "translator")
    (tmp_path / "file.tsv").write_text("text\tlabel\na cat\tyes\n")
    assert main(["predict", str(tmp_path / "translator"), str(tmp_path / "file.tsv")]) == 2
    said = capfd.readouterr().err
    assert "cannot predict" in said and "qkv translate" in said and "finetune classify" not in said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "t5"}, "says model_type 't5'"),
        ({"model_type": "gpt3"}, "Did you mean"),
        ({}, "says no model_type"),
        ({"model_type": 7}, "says no model_type"),
    ],
)
def test_a_folder_of_no_family(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=said) as caught:
        open_model(tmp_path)
    assert "openai-gpt" in str(caught.value)


def test_no_folder_and_no_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        open_model(tmp_path / "nothing")
    (tmp_path / "weights.bin").write_text("")
    with pytest.raises(InputError, match=r"is not a model folder: it has no config\.json, only weights\.bin"):
        describe_model(tmp_path)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_line_is_its_record(name: str) -> None:
    family = load_family(name)
    assert family.name == name and family.model_types == FAMILIES[name].model_types


def test_a_plain_encoder_is_opened_without_the_compiler_of_torch(tmp_path: Path) -> None:
    MAKERS["plain"](tmp_path / "plain")
    code = f"import sys; from qkv.models.table import open_model; open_model({str(tmp_path / 'plain')!r})"
    code += "; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _everything(folder: Path) -> list[Path]:
    """A folder of every family, a run, a tokenizer, shards and a search index."""
    for name, make in MAKERS.items():
        make(folder / name)
    for name in RECORDS:
        make_like_folder(folder / name, name)
    make_marian(folder / "marian")
    (folder / "run" / "model").mkdir(parents=True)
    (folder / "run" / "config.toml").touch()
    for file in (folder / "gpt").iterdir():
        (folder / "run" / "model" / file.name).write_bytes(file.read_bytes())
    make_tokenizer().save(folder / "tokenizer")
    (folder / "texts.txt").write_text("the cat sat\n\nthe dog\n", encoding="utf-8")
    prepare_corpus([folder / "texts.txt"], make_tokenizer(), folder / "shards")
    SearchIndex.build(["the cat"], folder / "index", folder / "bert")
    return [one for one in sorted(folder.iterdir()) if one.is_dir()]


def test_folders_are_described_without_torch(tmp_path: Path) -> None:
    """`qkv info` is what people type most, and torch takes a second to import."""
    folders = _everything(tmp_path)
    assert set(FAMILIES) <= {one.name for one in folders}
    code = """if True:
        import sys
        from qkv.cli.main import main
        for folder in sys.argv[1:]:
            for how in ([], ["--json"]):
                assert main(["info", folder, *how]) == 0, folder
                assert "torch" not in sys.modules, folder"""
    done = subprocess.run([sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f'"path": "{one}' in done.stdout for one in folders)
