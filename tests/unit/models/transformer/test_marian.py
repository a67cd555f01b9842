"""OPUS-MT folders without transformers: written from the table of names, loaded, and damaged one thing at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.files import read_object, to_json
from qkv.models.transformer.folder import load_marian
from qkv.models.transformer.marian import BIAS, FORCED_END
from qkv.models.transformer.network import Transformer
from tests.support.marian_folders import make_marian, marian_network

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model() -> Transformer:
    return marian_network()


@pytest.fixture
def folder(tmp_path: Path, model: Transformer) -> Path:
    return make_marian(tmp_path, model)


def change(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(to_json(read_object(file) | fields), encoding="utf-8")


def change_tensors(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_loaded_as_it_was_written(folder: Path, model: Transformer) -> None:
    loaded = load_marian(folder)
    assert loaded.model.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name
    assert not loaded.model.training
    assert (loaded.begin_id, loaded.end_id, loaded.pad_id, loaded.banned) == (29, 0, 29, (29,))
    # the 48 tokens of max_length are counted with the one that texts begin with
    assert (loaded.beams, loaded.longest, loaded.renormalise, loaded.notes) == (6, 47, False, ())


def test_generation_config_counts_more(folder: Path) -> None:
    newer: dict[str, Any] = {"num_beams": 4, "max_length": None, "bad_words_ids": [[29], [3]], "eos_token_id": [1]}
    (folder / "generation_config.json").write_text(to_json(newer), encoding="utf-8")
    loaded = load_marian(folder)
    assert (loaded.beams, loaded.longest, loaded.banned, loaded.end_id) == (4, 47, (3, 29), 1)
    assert loaded.notes == () and not loaded.renormalise
    newer |= {"length_penalty": 0.6, "early_stopping": False, "mood": "good", "renormalize_logits": True}
    newer |= {"forced_eos_token_id": 0}
    (folder / "generation_config.json").write_text(to_json(newer), encoding="utf-8")
    unknown, unfollowed, forced = load_marian(folder).notes
    assert load_marian(folder).renormalise
    assert "generation_config.json: mood mean nothing" in unknown
    assert "length_penalty 0.6;" in unfollowed and forced == FORCED_END and "early_stopping" not in unfollowed


def test_half_precision_is_converted(folder: Path, model: Transformer) -> None:
    change_tensors(folder, lambda tensors: tensors.update({name: one.half() for name, one in tensors.items()}))
    loaded = load_marian(folder)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    source, target = Batch.of([[5, 6, 0]]), Batch.of([[29, 7]])
    with torch.no_grad():
        one, other = (
            each.scores(each(source.ids, source.packing, target.ids, target.packing)) for each in (model, loaded.model)
        )
    assert torch.allclose(one, other, atol=0.05)
    assert {parameter.dtype for parameter in load_marian(folder, dtype=torch.float16).model.parameters()} == {
        torch.float16
    }


def test_a_bias_that_is_left_out_is_zero(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.pop(BIAS))
    assert (load_marian(folder).model.words.bias == 0).all()


def test_fields_that_mean_nothing_here_are_named(folder: Path) -> None:
    change(folder, encoder_layerdrop=0.1, favourite_colour="green", bad_words_ids=[[29], [3, 4]])
    layerdrop, unknown, words = load_marian(folder).notes
    assert "encoder_layerdrop would count in training" in layerdrop
    assert "favourite_colour mean nothing" in unknown
    assert "[3, 4]" in words


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "bart"}, "model_type 'bart', where 'marian'"),
        ({"normalize_before": True}, "normalize_before is True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"decoder_ffn_dim": 48}, "encoder_ffn_dim is 24 and decoder_ffn_dim 48"),
        ({"decoder_vocab_size": 31}, "vocab_size is 30 and decoder_vocab_size 31"),
        ({"activation_function": "swihs"}, "activation_function 'swihs' is not known. Did you mean 'swish'?"),
        ({"dropout": 1.5}, "dropout is 1.5, where a number in [0, 1) belongs"),
        ({"dropout": True}, "dropout is True"),
        ({"encoder_layers": "6"}, "encoder_layers is '6', where a whole number"),
        ({"encoder_layers": 2}, "lacks 16 of the tensors that a Marian model of 2 + 2 layers needs"),
        ({"decoder_layers": 1}, "holds 26 tensors that a Marian model of 1 + 1 layers does not have"),
        ({"encoder_layers": 9_999_999}, "lacks"),
        ({"vocab_size": 31}, "model.shared.weight has the shape [30, 16], but config.json asks for [31, 16]"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "width 16 is not divisible by 3 heads"),
        ({"scale_embedding": 1}, "scale_embedding is 1, where true or false"),
        ({"eos_token_id": 30}, "eos_token_id is 30, where a token id, 0 to 29"),
        ({"pad_token_id": None}, "pad_token_id is None"),
        ({"bad_words_ids": [3]}, "bad_words_ids is [3], where a list of lists"),
        (
            {"bad_words_ids": [[29], [99]]},
            "bad_words_ids is [[29], [99]], where a list of lists of token ids, 0 to 29,",
        ),
        ({"bad_words_ids": [["a"]]}, "bad_words_ids is [['a']]"),
        ({"bad_words_ids": [[True]]}, "bad_words_ids is [[True]]"),
        ({"bad_words_ids": [[]]}, "bad_words_ids is [[]]"),
        ({"bad_words_ids": [[3, -4]]}, "bad_words_ids is [[3, -4]]"),
        ({"num_beams": "four"}, "num_beams is 'four', where a whole number from 1 up"),
        ({"num_beams": 0}, "num_beams is 0"),
        ({"max_length": 1}, "max_length is 1, where a whole number from 2 up"),
        ({"renormalize_logits": 1}, "renormalize_logits is 1, where true or false"),
    ],
)
def test_a_config_that_does_not_fit(folder: Path, fields: dict[str, Any], message: str) -> None:
    change(folder, **fields)
    with pytest.raises(InputError) as raised:
        load_marian(folder)
    assert message in str(raised.value)
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_beams", "four"), ("max_length", 0.5), ("bad_words_ids", [[30]]), ("eos_token_id", 30), ("pad_token_id", -1)],
)
def test_the_file_that_says_it_is_blamed(folder: Path, name: str, value: object) -> None:
    (folder / "generation_config.json").write_text(to_json({name: value}), encoding="utf-8")
    with pytest.raises(InputError) as raised:
        load_marian(folder)
    assert str(raised.value).startswith(f"{folder / 'generation_config.json'}: {name} is {value!r}, where ")


def test_fields_that_are_missing(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "marian"}', encoding="utf-8")
    with pytest.raises(InputError, match="lacks activation_function, attention_dropout"):
        load_marian(folder)


def test_weights_that_do_not_fit(folder: Path) -> None:
    name = "model.encoder.layers.0.fc1.weight"
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.shared.weight"] + 1}))
    with pytest.raises(InputError, match=r"model.shared.weight and lm_head.weight differ"):
        load_marian(folder)
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.shared.weight"].clone()}))
    load_marian(folder)
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].long()}))
    with pytest.raises(InputError, match=r"fc1.weight is stored as torch.int64"):
        load_marian(folder)
    change_tensors(folder, lambda tensors: tensors.pop(name))
    with pytest.raises(InputError, match=r"lacks 1 of the tensors .*fc1.weight"):
        load_marian(folder)


def test_positions_that_are_others(folder: Path, model: Transformer) -> None:
    waves = model.positions(torch.arange(64))
    name = "model.encoder.embed_positions.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: waves.half()}))
    load_marian(folder)
    change_tensors(folder, lambda tensors: tensors.update({name: waves.flip(1).contiguous()}))
    with pytest.raises(InputError, match="not the table of sines and cosines"):
        load_marian(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config.json is missing"):
        load_marian(tmp_path)
