"""The ONNX graph gives what the network gives: every family, every head, padded and packed, rows of any length."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from qkv.api.export import graph as graphs
from qkv.api.export import nodes
from qkv.api.export.formats import EXPORTED_HEADS
from qkv.api.export.graph import HIDDEN, ROW_HEADS, SENTENCE, ExportedNetwork, write_graph
from qkv.data.batch import Batch
from qkv.models.bert.network import BertConfig, BertWithHeads
from tests.support.folders import SMALL, make_tokenizer, randomise
from tests.support.like_folders import RECORDS, SHAPES

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

TOLERANCE = 1e-4
LONGEST = int(SMALL["max_length"])
Arrays = dict[str, NDArray[Any]]


def sizes_of(family: str, **changes: Any) -> dict[str, Any]:
    own = dict(RECORDS[family].shape) if family in RECORDS else {}
    return SMALL | SHAPES.get(family, {}) | own | changes


def make_network(family: str, head: str, pooler: bool | None = None, **changes: Any) -> BertWithHeads:
    heads = [] if head == "none" else [head]
    network = BertWithHeads(BertConfig(**sizes_of(family, **changes)), heads, labels=3, pooler=pooler)
    randomise(network)
    return network.eval()


def make_exported(family: str, head: str) -> ExportedNetwork:
    pooling = "cls" if head in ROW_HEADS else "mean" if head == "none" else None
    return ExportedNetwork(make_network(family, head), head, pooling, head == "none")


def open_session(file: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def run(session: Any, feed: Arrays) -> Arrays:
    wanted = {one.name: feed[one.name] for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, wanted), strict=True))


def padded(batch: Batch, choices: bool = False) -> Arrays:
    given = batch.padded()
    assert given.mask is not None
    feed = {"input_ids": given.ids, "attention_mask": given.mask.long(), "token_type_ids": given.segments}
    return {name: (value[None] if choices else value).numpy() for name, value in feed.items()}


def packed(batch: Batch) -> Arrays:
    return {
        "input_ids": batch.ids.numpy(),
        "token_type_ids": batch.segments.numpy(),
        "lengths": np.array(batch.lengths, np.int64),
    }


def batches(segments: int) -> list[Batch]:
    tokenizer = make_tokenizer()
    texts = ["The animal didn't cross the street.", "他欠我100万元，我在北京。", "cat"]
    encoded = tokenizer.encode_batch(texts, ["It was too tired.", "今天天气很好", "狗"])
    draw = np.random.default_rng(0)
    longest = draw.integers(5, SMALL["vocabulary_size"], LONGEST).tolist()
    rows = [
        [[2]],
        [longest],
        [one.ids for one in encoded],
        [[2, 7, 3], longest, [9]],
    ]
    made = [Batch.of(part) for part in rows]
    if segments > 1:
        made[2] = Batch.of([one.ids for one in encoded], segments=[one.segments for one in encoded])
    return made


@torch.no_grad()
def wanted_of(exported: ExportedNetwork, batch: Batch) -> NDArray[np.float32]:
    encoding = exported.network.encoder(**batch.inputs())
    if exported.head == "none":
        return encoding.hidden.numpy()
    reads = encoding.pooled if exported.head in ROW_HEADS else encoding.hidden
    assert reads is not None
    return exported.network.predict(exported.head, reads).numpy()


def found_in(outputs: Arrays, exported: ExportedNetwork, batch: Batch, is_packed: bool) -> NDArray[np.float32]:
    """Of tokens end to end, or of rows."""
    if exported.head == "span":
        found = np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    else:
        found = outputs[HIDDEN if exported.head == "none" else "logits"]
    if exported.head in ROW_HEADS:
        return found.reshape(len(batch.lengths), -1)
    return found if is_packed else np.concatenate([row[:n] for row, n in zip(found, batch.lengths, strict=True)])


@pytest.mark.parametrize("head", EXPORTED_HEADS)
@pytest.mark.parametrize("family", ["bert", *RECORDS])
def test_graph_and_network_agree(family: str, head: str, tmp_path: Path) -> None:
    exported = make_exported(family, head)
    for is_packed in (False, True):
        file = tmp_path / f"{is_packed}.onnx"
        inputs, outputs = write_graph(file, exported, packed=is_packed)
        onnx.checker.check_model(onnx.load(file), full_check=True)
        session = open_session(file)
        assert [one.name for one in session.get_inputs()] == inputs
        assert [one.name for one in session.get_outputs()] == outputs
        assert ("token_type_ids" in inputs) == (exported.network.config.segments > 1)
        for batch in batches(exported.network.config.segments):
            feed = packed(batch) if is_packed else padded(batch, head == "choice")
            result = run(session, feed)
            found = found_in(result, exported, batch, is_packed)
            assert np.abs(found - wanted_of(exported, batch)).max() <= TOLERANCE
            if head == "none":
                with torch.no_grad():
                    hidden = exported.network.encoder(**batch.inputs()).hidden
                means = torch.stack([row.mean(0) for row in batch.rows(hidden)])
                unit = torch.nn.functional.normalize(means, dim=-1).numpy()
                assert np.abs(result[SENTENCE] - unit).max() <= TOLERANCE


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu", "tanh"])
def test_activations(activation: str, tmp_path: Path) -> None:
    network = make_network("bert", "masked", activation=activation, tied=False)
    exported = ExportedNetwork(network, "masked")
    batch = batches(2)[2]
    write_graph(tmp_path / "m.onnx", exported)
    found = found_in(run(open_session(tmp_path / "m.onnx"), padded(batch)), exported, batch, False)
    assert np.abs(found - wanted_of(exported, batch)).max() <= TOLERANCE
    write_graph(tmp_path / "q.onnx", exported, packed=True, int8=True, hidden=True)
    hidden = torch.from_numpy(run(open_session(tmp_path / "q.onnx"), packed(batch))[HIDDEN])
    with torch.no_grad():
        wanted = network.encoder(**batch.inputs()).hidden
    assert float(torch.cosine_similarity(hidden, wanted, dim=-1).min()) > 0.99


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("normalize", [False, True])
def test_heads_without_a_pooler(pooling: str, normalize: bool, tmp_path: Path) -> None:
    from qkv.tasks.transfer import TaskModel

    network = make_network("bert", "sequence", pooler=False)
    batch = batches(2)[2]
    with torch.no_grad():
        wanted = TaskModel(network, "sequence", None, pooling, normalize).eval().scores(batch).numpy()
    for is_packed in (False, True):
        exported = ExportedNetwork(network, "sequence", pooling, normalize)
        write_graph(tmp_path / "m.onnx", exported, packed=is_packed)
        result = run(open_session(tmp_path / "m.onnx"), packed(batch) if is_packed else padded(batch))
        assert np.abs(result["logits"] - wanted).max() <= TOLERANCE


def test_several_questions_with_choices(tmp_path: Path) -> None:
    exported = make_exported("bert", "choice")
    write_graph(tmp_path / "m.onnx", exported)
    batch = Batch.of([[2, 7, 3], [2, 8, 9, 3], [2, 10, 3], [2, 11, 12, 3]])
    feed = {name: value[0].reshape(2, 2, -1) for name, value in padded(batch, True).items()}
    found = run(open_session(tmp_path / "m.onnx"), feed)["logits"]
    assert found.shape == (2, 2)
    assert np.abs(found.reshape(-1, 1) - wanted_of(exported, batch)).max() <= TOLERANCE


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_graph(tmp_path / name, make_exported("albert", "sequence"), packed=True, int8=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_only_portable_operators(tmp_path: Path) -> None:
    write_graph(tmp_path / "m.onnx", make_exported("bert", "none"), packed=True, int8=True)
    model = onnx.load(tmp_path / "m.onnx")
    assert {node.domain for node in model.graph.node} == {""}
    assert [(one.domain, one.version) for one in model.opset_import] == [("", nodes.OPSET)]


def test_weights_beyond_the_limit_are_in_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LARGEST_FILE", 1000)
    exported = make_exported("bert", "sequence")
    write_graph(tmp_path / "model.onnx", exported)
    assert (tmp_path / "model.onnx_data").stat().st_size > (tmp_path / "model.onnx").stat().st_size
    batch = batches(2)[2]
    result = run(open_session(tmp_path / "model.onnx"), padded(batch))
    assert np.abs(found_in(result, exported, batch, False) - wanted_of(exported, batch)).max() <= TOLERANCE


def test_a_row_of_padding_is_no_nan(tmp_path: Path) -> None:
    write_graph(tmp_path / "m.onnx", make_exported("bert", "none"))
    feed = {"input_ids": np.array([[2, 3], [0, 0]]), "attention_mask": np.array([[1, 1], [0, 0]])}
    feed["token_type_ids"] = np.zeros((2, 2), np.int64)
    result = run(open_session(tmp_path / "m.onnx"), feed)
    assert np.isfinite(result[SENTENCE]).all() and np.isfinite(result[HIDDEN]).all()


def test_every_head_is_listed() -> None:
    assert set(graphs.ROW_HEADS) < set(EXPORTED_HEADS)
