"""`qkv.load(precision=…)`: vectors and results in another precision, and what it costs."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.api.model import load_for
from qkv.api.precision import MEASURED, measure_results, measure_vectors
from qkv.cli.main import main
from qkv.errors import InputError
from qkv.models.family import HAS_TASK
from qkv.nn.cpu.encoder import explain_no_bf16
from tests.support.below_readers import make_elmo
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["the cat sat", "北京 is a place", "a cat", "the cat sat on the mat " * 9]


def test_a_model_in_another_precision(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bert")
    model = qkv.load(folder)
    assert model.precision == "fp32"
    small = qkv.load(folder, precision="int8")
    assert small.precision == "int8" and qkv.load(folder, precision="auto").precision in ("fp32", "bf16")
    exact, found = model.embed(TEXTS).vectors, small.embed(TEXTS).vectors
    assert not np.array_equal(found, exact)
    again = small.with_precision("fp32")
    assert again.precision == "fp32" and small.precision == "int8"
    for one, other_one in zip(again.network.parameters(), small.network.parameters(), strict=True):
        assert one is other_one
    assert again.tokenizer is small.tokenizer
    np.testing.assert_allclose(again.embed(TEXTS).vectors, exact, atol=1e-6)
    cost = measure_vectors(small, TEXTS)
    assert (cost.precision, cost.n_texts) == ("int8", 4) and 0.98 < cost.worst <= cost.mean < 1
    assert 0.97 < measure_vectors(small, TEXTS, layer=1, tokens=True).worst < 1
    assert measure_vectors(again, TEXTS).worst > 0.99999
    for other in (copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert other.precision == "int8"
        np.testing.assert_array_equal(other.embed(TEXTS).vectors, found)
    small.save(tmp_path / "saved")
    np.testing.assert_allclose(qkv.load(tmp_path / "saved").embed(TEXTS).vectors, exact, atol=1e-6)


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "choice"])
def test_results_of_every_task(task: str, tmp_path: Path) -> None:
    model = load_for(HAS_TASK, task_folder(tmp_path / "run", task), precision="int8")
    kinds: dict[str, list[Any]] = {
        "answer": [("who sat", text) for text in TEXTS],
        "choice": [{"text": text, "question": "who", "choices": ["a cat", "北京"]} for text in TEXTS],
    }
    inputs: list[Any] = kinds.get(task, TEXTS)
    (examples, results), *_ = model.predict_stream(inputs)
    cost = measure_results(model, examples[:MEASURED], results[:MEASURED])
    assert cost.n_texts == 4 and 0 <= cost.n_same <= 4 and 0 <= cost.largest_change < 0.3
    exact = model.with_precision("fp32").predict(inputs)
    assert len(exact) == len(results) and exact != results


def test_what_has_no_other_precision(tmp_path: Path) -> None:
    places = (make_elmo(tmp_path / "elmo"), make_gpt(tmp_path / "gpt"))
    for place in places:
        with pytest.raises(InputError, match=r"precision int8 is for BERT and its relatives, and .* Use fp32"):
            qkv.load(place, precision="int8")
        assert qkv.load(place, precision="auto").precision == "fp32"
    folder = make_folder(tmp_path / "bert")
    with pytest.raises(InputError, match=r"made from float32 weights: leave dtype"):
        qkv.load(folder, dtype="bfloat16", precision="int8")
    assert qkv.load(folder, dtype="bfloat16").precision == "fp32"
    with pytest.raises(InputError, match="Unknown precision 'fp16'"):
        qkv.load(folder, precision="fp16")
    if explain_no_bf16() is not None:
        with pytest.raises(InputError, match="bf16 is not available"):
            qkv.load(folder, precision="bf16")


def test_the_command_line_says_the_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, run = str(make_folder(tmp_path / "bert")), str(task_folder(tmp_path / "run", "classify"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS * 20), encoding="utf-8")
    (tmp_path / "rows.csv").write_text("text,n\nthe cat,1\n,2\n北京,3\n", encoding="utf-8")
    out = str(tmp_path / "vectors.npy")
    for words, number in (
        (("a cat", "北京"), 2),
        (("--file", str(tmp_path / "texts.txt"), "--out", out), MEASURED),
        (("--file", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "rows.parquet")), 2),
        (("a cat", "--tokens"), 1),
    ):
        if out not in words and "--out" in words:
            pytest.importorskip("pyarrow")
        assert main(["embed", *words, "--model", folder, "--precision", "int8"]) == 0
        said = capsys.readouterr().err
        assert "int8: cosine to fp32 at worst 0.9" in said and f"(texts compared: {number})" in said
    assert len(np.load(out)) == 80
    assert main(["predict", run, str(tmp_path / "texts.txt"), "--json", "--precision", "int8"]) == 0
    shown, said = capsys.readouterr()
    assert len([json.loads(line) for line in shown.splitlines()]) == 80
    assert f"of {MEASURED}; probabilities change by at most 0.0" in said and said.startswith("int8: the same result")
    assert main(["embed", "a", "b", "--model", folder]) == 0
    assert "cosine to" not in capsys.readouterr().err
    assert main(["embed", "a", "--model", folder, "--precision", "int4"]) == 2
