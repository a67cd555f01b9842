"""Weights in 8 bits with a scale per row: how exact they are, folders of every family that has them, damaged ones."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import qkv
from qkv.cli.main import main
from qkv.errors import InputError
from qkv.models.folders.own import collect_facts, rewrite_folder
from qkv.models.folders.weights import encode_rows, encode_tensors, join_scales, read_header, round_to_bits
from qkv.models.table import describe_model, open_model
from tests.golden.golden import MODELS
from tests.stories.test_bad_input import fails

pytestmark = pytest.mark.usefixtures("one_thread")
WEIGHTS = "model.safetensors"


def rows(*shape: int) -> Tensor:
    """Rows of very different sizes, one of them zero."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    sizes = torch.logspace(-6, 3, shape[0]).view(-1, *[1] * (len(shape) - 1))
    sizes[1] = 0
    return drawn * sizes


@pytest.mark.parametrize("shape", [(9, 33), (5, 4, 3), (3, 1)])
def test_no_number_is_off_by_more_than_half_a_step(shape: tuple[int, ...]) -> None:
    exact = rows(*shape)
    codes, scale = encode_rows(exact)
    assert codes.dtype == torch.int8 and codes.shape == exact.shape and scale.shape == shape[:1]
    found = codes.float() * scale.view(-1, *[1] * (len(shape) - 1))
    largest = exact.flatten(1).abs().amax(1)
    assert ((found - exact).flatten(1).abs().amax(1) <= largest / 254 * 1.001).all()
    assert (codes.flatten(1).abs().amax(1)[largest > 0] == 127).all(), "so that a row with a vector keeps one"
    again, same = encode_rows(found)
    assert torch.equal(again, codes) and torch.allclose(same, scale, rtol=1e-6)


def test_fewer_bits_have_fewer_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact = rows(9, 33)
    codes, scale = encode_rows(exact, 6)
    assert codes.abs().max() == 31 and ((codes * scale[:, None] - exact).abs() <= scale[:, None] * 0.501).all()
    rounded = round_to_bits(exact, 6)
    assert ((rounded - exact).abs() <= exact.abs() / 64).all() and torch.equal(round_to_bits(rounded, 6), rounded)
    assert torch.equal(rounded.bfloat16().float(), rounded)
    for name, dtype in (("word2vec", "int8"), ("bert", "bfloat16")):
        new, plain = tmp_path / name, tmp_path / f"{name}-8"
        for target, more in ((plain, ()), (new, ("--bits", "5"))):
            assert main(["convert", str(MODELS / name), str(target), "--dtype", dtype, *more]) == 0
        assert (new / WEIGHTS).stat().st_size == (plain / WEIGHTS).stat().st_size
        packed = [len(zlib.compress((one / WEIGHTS).read_bytes())) for one in (new, plain)]
        assert packed[0] < 0.95 * packed[1]
        before, after = answer(plain), answer(new)
        assert 0 < float((after - before).norm() / before.norm()) < 0.1
    capsys.readouterr()
    for words in (["--bits", "5"], ["--bits", "5", "--dtype", "bfloat16", "--layers", "1"]):
        assert "convert it in two steps" in fails(capsys, "convert", MODELS / "bert", tmp_path / "x", *words)
    told = fails(capsys, "convert", MODELS / "bert", tmp_path / "x", "--bits", "5", "--dtype", "int8")
    assert "--bits goes with --dtype bfloat16 there" in told


def test_the_error_that_is_reported(tmp_path: Path) -> None:
    exact = {"table": rows(9, 33), "bias": torch.tensor([1.0, 2.0]), "step": torch.tensor([3])}
    save_file(exact, tmp_path / WEIGHTS)
    encoded, error = encode_tensors(join_scales(read_header(tmp_path / WEIGHTS)), "int8")
    assert {name: str(one.dtype) for name, one in encoded.items()} == {
        "table": "torch.int8",
        "table.scale": "torch.float32",
        "bias": "torch.float16",
        "step": "torch.int64",
    }
    save_file(encoded, tmp_path / WEIGHTS)
    found = {name: one.mapped() for name, one in join_scales(read_header(tmp_path / WEIGHTS)).items()}
    assert set(found) == set(exact), "names are those of the model"
    kept = exact["table"].norm(dim=1) > 0
    errors = ((found["table"] - exact["table"]).norm(dim=1) / exact["table"].norm(dim=1))[kept]
    assert error.where == "table" and error.largest == pytest.approx(float(errors.max()), rel=1e-4)
    assert error.mean == pytest.approx(float(errors.sum()) / (len(errors) + 1), rel=1e-4), "the bias is one row"
    into = torch.empty(9, 33, dtype=torch.float16)
    join_scales(read_header(tmp_path / WEIGHTS))["table"].read_into(into)
    assert torch.equal(into, found["table"].half())


def test_numbers_that_do_not_fit(tmp_path: Path) -> None:
    save_file({"bias": torch.tensor([1e6])}, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match=r"bias has numbers of up to 1e\+06, too large for float16"):
        encode_tensors(join_scales(read_header(tmp_path / WEIGHTS)), "float16")
    save_file({"bias": torch.tensor([float("nan")])}, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match="NaN or infinite"):
        encode_tensors(join_scales(read_header(tmp_path / WEIGHTS)), "int8")


def test_a_parameter_of_that_name_is_a_parameter(tmp_path: Path) -> None:
    save_file({"x": torch.ones(2), "x.scale": torch.ones(3), "scale": torch.ones(1)}, tmp_path / WEIGHTS)
    assert set(join_scales(read_header(tmp_path / WEIGHTS))) == {"x", "x.scale", "scale"}


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (None, r"table is in 8 bits, and table.scale is missing"),
        (torch.ones(8), r"table.scale has the shape \[8\] \(float32\), and table \[9, 33\] needs a number for each"),
        (torch.ones(9, 1), r"table.scale has the shape \[9, 1\]"),
        (torch.ones(9, dtype=torch.int32), r"table.scale has the shape \[9\] \(int32\)"),
        (torch.full((9,), torch.nan), "weights in table.scale are NaN or infinite"),
        (torch.full((9,), torch.inf), "NaN or infinite"),
        (-torch.ones(9), "negative"),
    ],
)
def test_a_damaged_scale(tmp_path: Path, scale: Tensor | None, message: str) -> None:
    codes, _ = encode_rows(rows(9, 33))
    save_file({"table": codes, **({} if scale is None else {"table.scale": scale})}, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match=message) as error:
        join_scales(read_header(tmp_path / WEIGHTS))["table"].mapped()
    assert str(tmp_path / WEIGHTS) in str(error.value) and " again." in str(error.value)


OWN = ["word2vec", "nnlm", "rnnlm", "elmo", "transformer", "seq2seq", "rnn", "cnn"]


@pytest.mark.parametrize("name", OWN)
def test_a_folder_there_and_back(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, back = tmp_path / "small.8", tmp_path / "back"
    there = tmp_path / "small" if name in ("word2vec", "nnlm") else there  # a suffix means a file of vectors
    assert main(["convert", str(MODELS / name), str(there), "--dtype", "int8"]) == 0
    out = capsys.readouterr().out
    assert "int8" in out and "relative error of a row: 0." in out
    assert main(["info", str(there)]) == 0
    assert "MB, 8 bits" in capsys.readouterr().out
    before, after = (describe_model(folder).document for folder in (MODELS / name, there))
    assert after["dtype"] == "int8" and after["parameters"] == before["parameters"]
    assert collect_facts(there, name) == collect_facts(MODELS / name, name)
    names = {file.relative_to(there) for file in there.rglob("*") if file.is_file()}
    assert names == {file.relative_to(MODELS / name) for file in (MODELS / name).rglob("*") if file.is_file()}
    assert main(["convert", str(there), str(back), "--dtype", "float32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest_error"] == 0
    floats, exact = load_file(back / WEIGHTS), load_file(MODELS / name / WEIGHTS)
    assert {one: tensor.shape for one, tensor in floats.items()} == {one: tensor.shape for one, tensor in exact.items()}
    for one, tensor in exact.items():
        torch.testing.assert_close(floats[one], tensor, atol=float(tensor.abs().max()) / 250 + 1e-6, rtol=1e-3)


def answer(folder: Path) -> Tensor:
    """Numbers that a model computes."""
    model = describe_model(folder)
    if any(one.name == "translates" for one in model.abilities):
        translator = qkv.load_translator(folder)
        found = translator.translate(["a b c"])[0].best
        return torch.tensor([found.log_probability, float(len(found.text))])
    return torch.from_numpy(qkv.load(folder, device="cpu").embed(["the cat sat on a mat"]).vectors).flatten()


@pytest.mark.parametrize("name", OWN)
def test_answers_are_nearly_the_same(name: str, tmp_path: Path) -> None:
    error = rewrite_folder(MODELS / name, tmp_path / "small", "int8")
    assert 0 < error.mean <= error.largest < 0.02
    before, after = answer(MODELS / name), answer(tmp_path / "small")
    assert float((after - before).norm() / before.norm()) < 0.03
    opened = open_model(tmp_path / "small")
    assert all(opened.ability(kind) is not None for kind in opened.facts.abilities)


def test_what_other_libraries_read_stays_in_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("bert", "gpt", "classify"):
        told = fails(capsys, "convert", MODELS / name, tmp_path / "new", "--dtype", "int8")
        assert "which other libraries read as well" in told and "use --dtype float16" in told
        assert not (tmp_path / "new").exists()
    told = fails(capsys, "convert", MODELS / "elmo", tmp_path / "new", "--dtype", "int8", "--fold", "width")
    assert "with --dtype leave out the other options" in told
    told = fails(capsys, "convert", MODELS / "word2vec", tmp_path / "v.txt", "--dtype", "int8")
    assert "Files of word vectors are always float32" in told
    assert "Unknown dtype 'int4'. Did you mean 'int8'?" in fails(
        capsys, "convert", MODELS / "elmo", tmp_path / "new", "--dtype", "int4"
    )


def test_a_gpt_in_16_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(MODELS / "gpt"), str(tmp_path / "half"), "--dtype", "float16"]) == 0
    assert "float16" in capsys.readouterr().out
    from transformers import GPT2LMHeadModel

    kind: Any = GPT2LMHeadModel
    found, report = kind.from_pretrained(tmp_path / "half", output_loading_info=True)
    assert found.dtype == torch.float16 and not report["missing_keys"] and not report["unexpected_keys"]
    exact = load_file(MODELS / "gpt" / WEIGHTS)
    assert all(torch.equal(one, exact[name].half()) for name, one in load_file(tmp_path / "half" / WEIGHTS).items())
    assert len(qkv.Generator(tmp_path / "half").generate(["the cat"])) == 1


def test_the_same_type_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(MODELS / "elmo"), str(tmp_path / "same"), "--dtype", "float32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest_error"] == 0
    before, after = (load_file(folder / WEIGHTS) for folder in (MODELS / "elmo", tmp_path / "same"))
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_bert_with_8_bits_is_refused(tmp_path: Path) -> None:
    shutil.copytree(MODELS / "bert", tmp_path / "bert")
    file = tmp_path / "bert" / WEIGHTS
    stored: dict[str, Any] = load_file(file)
    name = "bert.pooler.dense.weight"
    stored[name], _ = encode_rows(stored[name])
    save_file(stored, file)
    with pytest.raises(InputError, match="qkv reads float weights"):
        qkv.load(tmp_path / "bert")
