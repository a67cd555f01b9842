"""Folders of readers: what was saved comes back, and what does not fit is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.elmo.tokenizer import OpenTokenizer
from qkv.models.encoder import WithHeads
from qkv.models.family import ENCODES, MOST_SPELLED, Loading
from qkv.models.plain.folder import save_reader
from qkv.models.plain.network import READER_KINDS, ReaderConfig, ReaderWithHeads
from qkv.models.table import open_model
from tests.support.below_readers import elmo_config, word_tokenizer
from tests.support.folders import TOKENS, make_tokenizer

BATCH = Batch.of([[2, 40, 41, 3], [2, 50, 3]])


def written(path: Path, kind: str = "lstm") -> tuple[Path, ReaderWithHeads]:
    config = ReaderConfig(kind, len(TOKENS), 6, 5, layers=READER_KINDS[kind].layers(2), max_length=64)
    model = ReaderWithHeads(config, ["sequence"], labels=3).eval()
    return save_reader(path, model, make_tokenizer(), ["a", "b", "丙"], {"task": "classify"}), model


def network(path: Path, dtype: torch.dtype = torch.float32) -> WithHeads:
    return open_model(path, Loading(dtype)).ability(ENCODES).network


@pytest.mark.parametrize("kind", READER_KINDS)
def test_a_folder_comes_back(tmp_path: Path, kind: str) -> None:
    path, model = written(tmp_path / "model", kind)
    folder = open_model(path)
    assert (folder.config, folder.labels, folder.record) == (model.config, ("a", "b", "丙"), {"task": "classify"})
    found, expected = (one(**BATCH.inputs())[1]["sequence"] for one in (network(path), model))
    torch.testing.assert_close(found, expected)  # weights that lie elsewhere may be rounded differently
    for name, value in model.state_dict().items():
        assert torch.equal(network(path).state_dict()[name], value), name
    assert {parameter.dtype for parameter in network(path, torch.bfloat16).parameters()} == {torch.bfloat16}


def on_elmo(path: Path) -> tuple[Path, ReaderWithHeads, OpenTokenizer]:
    tokenizer = OpenTokenizer(word_tokenizer())
    config = ReaderConfig("gru", tokenizer.size, 10, 5, features=elmo_config(tokenizer))
    model = ReaderWithHeads(config, ["token"], words=tokenizer).eval()
    return save_reader(path, model, tokenizer), model, tokenizer


def test_a_language_model_below_is_inside(tmp_path: Path) -> None:
    path, model, before = on_elmo(tmp_path / "model")
    folder = open_model(path)
    assert folder.config == model.config
    assert isinstance(folder.tokenizer, OpenTokenizer) and folder.tokenizer.vocabulary == before.vocabulary
    folder.tokenizer.encode("okapi")  # numbers of words that are not known need not agree
    texts = ["the zebra sat", "a okapi"]
    found, expected = (
        one(**Batch.of([encoded.ids for encoded in tokenizer.encode_batch(texts)]).inputs())[1]["token"]
        for one, tokenizer in ((folder.ability(ENCODES).network, folder.tokenizer), (model, before))
    )
    torch.testing.assert_close(found, expected)
    assert folder.tokenizer.most == MOST_SPELLED
    kept = open_model(path, Loading(spelled=None)).tokenizer
    assert isinstance(kept, OpenTokenizer) and kept.most is None
    assert {parameter.dtype for parameter in network(path, torch.bfloat16).parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedding_width": 6}, "config.json: embedding_width is 6, and the vectors .* have 10"),
        ({"features": {"model_type": "gpt"}}, "features are of elmo or rnnlm, not 'gpt'"),
        ({"features": {"model_type": "elmo", "width": 5, "cell": 2}}, "unknown key 'cell'. .*Known"),
    ],
)
def test_what_does_not_fit_below(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = on_elmo(tmp_path / "model")[0] / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        open_model(tmp_path / "model")


def test_transformers_has_no_class_for_it(tmp_path: Path) -> None:
    folder = open_model(written(tmp_path / "model")[0])
    with pytest.raises(InputError, match="transformers has no class"):
        folder.save(tmp_path / "other", "BertModel")
    assert open_model(folder.save(tmp_path / "other")).labels == folder.labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "lstn"}, "config.json: Unknown encoder 'lstn'. Did you mean 'lstm'"),
        ({"layerz": 2}, "unknown key 'layerz'. Did you mean 'layers'"),
        ({"heads": "sequence"}, "heads is 'sequence', where a list"),
        ({"heads": ["sequences"]}, "there is no head sequences"),
        ({"labels": [1]}, "labels is .* where a list of names"),
        ({"inner_width": 7}, "has the shape .* config.json says"),
        ({"layers": 3}, "lacks .*blocks.2"),
        ({"layers": 1}, "holds .*blocks.1"),
        ({"model_type": "readers"}, "readers"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path, _ = written(tmp_path / "model")
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        open_model(path)


def test_a_weight_that_is_missing(tmp_path: Path) -> None:
    path, _ = written(tmp_path / "model")
    tensors = {name: tensor.clone() for name, tensor in load_file(path / "model.safetensors").items()}
    del tensors["encoder.embedding.weight"]
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(InputError, match=r"model.safetensors lacks encoder.embedding.weight, which a lstm has"):
        open_model(path)
