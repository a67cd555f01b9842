"""Language models opened as features: their vectors and nothing of their scores, and what does not fit is named."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from qkv.errors import InputError
from qkv.models.elmo.network import ElmoConfig
from qkv.models.family import FEEDS, Feeds
from qkv.models.plain.config import read_embedder_config
from qkv.models.rnnlm.network import RNNLMConfig
from qkv.models.table import open_model
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm


def below(folder: Path) -> Feeds:
    return open_model(folder).ability(FEEDS)


def test_what_makes_vectors_is_taken(tmp_path: Path) -> None:
    elmo, rnnlm = below(make_elmo(tmp_path / "elmo")), below(make_rnnlm(tmp_path / "rnnlm"))
    assert isinstance(elmo.features, ElmoConfig) and elmo.features.filters == (4, 4, 4)
    assert isinstance(rnnlm.features, RNNLMConfig) and rnnlm.features.cell == "gru"
    for found, part in ((elmo, "characters.project.weight"), (rnnlm, "embedding.weight")):
        assert part in found.weights() and not any(name.startswith("scores.") for name in found.weights())
        table = {"model_type": found.model_type, **asdict(found.features)}
        assert read_embedder_config(json.loads(json.dumps(table)), Path("config.json")) == found.features
        assert found.tokenizer.kind == "word"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 6}, "has the shape .* config.json says"),
        ({"layers": 3}, "lacks .*cells.2"),
        ({"widht": 6}, "unknown key 'widht'. Did you mean 'width'"),
        ({"cell_width": 2}, "cell_width .2. must be more than width"),
        ({"filters": 4}, "filters takes a list"),
        ({"model_type": "elmos"}, "model_type 'elmos'. Did you mean 'elmo'"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = make_elmo(tmp_path / "elmo") / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        below(tmp_path / "elmo")


def test_a_weight_that_is_missing(tmp_path: Path) -> None:
    path = make_elmo(tmp_path / "elmo") / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items() if "forward_stack" not in name}
    save_file(tensors, path)
    with pytest.raises(InputError, match="model.safetensors lacks .*forward_stack"):
        below(tmp_path / "elmo")


def test_others_have_none(tmp_path: Path) -> None:
    assert below(make_nnlm(tmp_path / "nnlm")).features is None
    for wrong in (None, "elmo", {"model_type": "bert"}):
        with pytest.raises(InputError, match="features are of elmo or rnnlm"):
            read_embedder_config(wrong, Path("config.json"))
