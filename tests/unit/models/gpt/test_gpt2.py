"""Folders of GPT: what is refused, and with which words. That the numbers are right, tests/parity/test_gpt.py shows."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qkv.cli.info import info
from qkv.errors import InputError
from qkv.models.family import FILLS
from qkv.models.gpt.folder import save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.table import describe_model, open_model
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.folders import TOKENS, make_folder, make_tokenizer, randomise
from tests.support.gpt_folders import load_gpt


def make(folder: Path, tokenizer: Tokenizer | None = None, **changes: Any) -> Path:
    tokenizer = make_tokenizer() if tokenizer is None else tokenizer
    model = GPT(GPTConfig(tokenizer.size, 2, 16, 2, 64, 32, **changes))
    randomise(model)
    return save(folder, model, tokenizer)


def change(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields), encoding="utf-8")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_views_of_the_file_or_converted(tmp_path: Path, dtype: torch.dtype) -> None:
    stored = load_file(make(tmp_path / "gpt") / "model.safetensors")
    model = load_gpt(tmp_path / "gpt", dtype=dtype).model
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    turned = stored["transformer.h.1.mlp.c_fc.weight"].t()
    found = model.get_parameter("blocks.1.feed_forward.up.weight")
    assert torch.equal(found, turned.to(dtype))
    assert found.t().is_contiguous()  # by columns, as few rows like it


def test_training_does_not_write_to_the_file(tmp_path: Path) -> None:
    folder = make(tmp_path / "gpt")
    before = (folder / "model.safetensors").read_bytes()
    model = load_gpt(folder).model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(("backend", "has_end"), [(gpt2_backend, True), (gpt_backend, False)])
def test_byte_pairs_go_with_the_model(tmp_path: Path, backend: Any, has_end: bool) -> None:
    tokenizer = Tokenizer(backend(), "byte-pair")
    folder = make(tmp_path / "gpt", tokenizer, order="pre" if has_end else "post")
    found = load_gpt(folder)
    assert found.tokenizer.kind == "byte-pair"
    assert found.end_id == (tokenizer.sep_id if has_end else None)
    fields = json.loads((folder / "config.json").read_text())
    assert fields["eos_token_id"] == found.end_id and fields["pad_token_id"] is None


def test_masks_of_older_files_say_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path / "gpt")
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
    bare["lm_head.weight"] = bare["wte.weight"].clone()
    expected = load_gpt(folder).model.state_dict()
    save_file(bare, folder / "model.safetensors")
    found = load_gpt(folder)
    assert found.config.tied
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_scores_that_differ_from_the_tokens_count(tmp_path: Path) -> None:
    folder = make(tmp_path / "gpt")
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    found = load_gpt(folder)
    assert not found.config.tied
    assert found.model.table is not None and torch.equal(found.model.table, tensors["lm_head.weight"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "bert"}, "it is not the folder of a GPT"),
        ({"add_cross_attention": True}, "add_cross_attention is True, but qkv's GPT asks its own text alone"),
        ({"quantization_config": {"bits": 4}}, "qkv reads float weights"),
        ({"activation_function": "gelu_mew"}, "'gelu_mew' is not known. Did you mean 'gelu_new'"),
        ({"n_layer": 0}, "n_layer is 0, where a whole number from 1"),
        ({"n_head": 3}, "width 16 is not divisible by 3 heads"),
        ({"resid_pdrop": 1}, r"resid_pdrop is 1, where a number in \[0, 1\) belongs"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', where true or false belongs"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon is 0, where a number above 0 belongs"),
        ({"n_layer": 3}, r"lacks 12 of the tensors that a GPT2LMHeadModel of 3 layers needs: h.2.attn"),
        ({"n_layer": 1}, r"holds 12 tensors that a GPT2LMHeadModel of 1 layers does not have: h.1.attn"),
        ({"n_inner": 32}, r"h.0.mlp.c_fc.weight has the shape \[16, 64\], but config.json asks for \[16, 32\]"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    folder = make(tmp_path / "gpt")
    change(folder, **fields)
    with pytest.raises(InputError, match=message):
        load_gpt(folder)


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    folder = make(tmp_path / "gpt")
    change(folder, sliding_window=7)
    assert load_gpt(folder).notes == ("config.json: sliding_window mean nothing to qkv and change nothing here",)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tokenizer belongs to another model"):
        save(tmp_path / "gpt", GPT(GPTConfig(900, 1, 8, 1, 32, 8)), make_tokenizer())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "gelu"}, "openai-gpt has no activation gelu; it can be saved with gelu_tanh, relu, silu"),
        ({"inner_width": 32}, "with order post and width 16 inner_width must be 64, not 32"),
        ({"scaled_by_layer": True}, "always scales its attention"),
    ],
)
def test_networks_that_transformers_does_not_have(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    sizes: dict[str, Any] = {"layers": 1, "width": 16, "heads": 2, "inner_width": 64, "max_length": 8, "order": "post"}
    with pytest.raises(InputError, match=message):
        save(tmp_path / "gpt", GPT(GPTConfig(len(TOKENS), **(sizes | changes))), make_tokenizer())
    assert not (tmp_path / "gpt").exists()


def test_what_it_is_called_and_what_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make(tmp_path / "gpt")
    facts = describe_model(folder)
    assert facts.document["parameters"] == sum(parameter.numel() for parameter in load_gpt(folder).model.parameters())
    info(str(folder))
    shown = capsys.readouterr().out
    assert "gpt2: a language model" in shown and "qkv generate" in shown
    info(str(folder), as_json=True)
    assert json.loads(capsys.readouterr().out)["config"]["order"] == "pre"
    with pytest.raises(InputError, match="cannot fill a blank. It holds a GPT, which writes.*qkv generate"):
        open_model(folder).ability(FILLS)
    with pytest.raises(InputError, match=r"model_type 'bert', where gpt2 or openai-gpt belongs"):
        load_gpt(make_folder(tmp_path / "bert"))


def test_a_newer_qkv(tmp_path: Path) -> None:
    folder = make(tmp_path / "gpt")
    (folder / "qkv.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(InputError, match="written by a newer qkv"):
        load_gpt(folder)
