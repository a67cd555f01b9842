"""States and gates as the equations have them, against what the networks themselves compute."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.batch import Batch
from qkv.look.recurrence import show_states
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.rnnlm.network import RNNLM
from qkv.models.seq2seq.network import Seq2Seq
from qkv.nn.recurrent import CELLS
from tests.support.below_readers import elmo_config, make_elmo, word_tokenizer
from tests.support.folders import make_folder
from tests.support.inside_folders import TEXT, reader, rnnlm, translator

pytestmark = pytest.mark.usefixtures("one_thread")


def ask(subject: Subject, **fields: Any) -> Reply:
    return Reply.from_bytes(show_states(subject, Asked({"text": TEXT, **fields})).to_bytes())


def same(found: np.ndarray[Any, Any], expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_a_language_model(tmp_path: Path, cell: str) -> None:
    subject = rnnlm(tmp_path / "model", cell)
    network, tokenizer = subject.recurrent, subject.opened.tokenizer
    assert isinstance(network, RNNLM)
    ids = torch.tensor([tokenizer.cls_id, *tokenizer.encode_ids([TEXT])[0]])
    with torch.no_grad():
        hidden, after = network(ids, (len(ids),))
    found = [ask(subject, way=way) for way in range(2)]
    assert [one["layer"] for one in found[0].head["ways"]] == [0, 1] and found[0].head["cell"] == cell
    same(found[1].arrays["h"], hidden)
    for one, state in zip(found, after, strict=True):
        same(one.arrays["h"][-1], state[0][0])
        if len(state) == 2:
            same(one.arrays["c"][-1], state[1][0])
        assert {part["letter"] for part in one.head["parts"]} | {"given", "from_state", "peepholes"} >= set(one.arrays)
        for part in one.head["parts"]:
            values = one.arrays[part["letter"]]
            assert values.shape == (len(ids), 6) and (part["range"] != "gate" or (values > 0).all())
            assert part["range"] == "cell" or (np.abs(values) <= 1).all()
    texts = [token["text"] for token in found[0].head["tokens"]]
    assert texts == ["", "the", "cat", "sat", "on", "the", "mat", "."]


def test_gates_make_the_cell(tmp_path: Path) -> None:
    """By the equation that the page shows, from the numbers that it is given."""
    found = ask(rnnlm(tmp_path / "lstm", "lstm", cell_width=7, projection=6), way=1).arrays
    before = np.vstack([np.zeros(7), found["c"][:-1]])
    np.testing.assert_allclose(found["c"], found["f"] * before + found["i"] * found["g"], atol=1e-6)
    np.testing.assert_allclose(found["m"], found["o"] * np.tanh(found["c"]), atol=1e-6)
    total = found["given"] + found["from_state"]
    for block, letter in enumerate("ifgo"):
        own = np.tanh(total[:, block]) if letter == "g" else 1 / (1 + np.exp(-total[:, block]))
        np.testing.assert_allclose(found[letter], own, atol=1e-6)
    gru = ask(rnnlm(tmp_path / "gru", "gru")).arrays
    before = np.vstack([np.zeros(6), gru["h"][:-1]])
    np.testing.assert_allclose(gru["h"], (1 - gru["z"]) * gru["n"] + gru["z"] * before, atol=1e-6)
    n = np.tanh(gru["given"][:, 2] + gru["r"] * gru["from_state"][:, 2])
    np.testing.assert_allclose(gru["n"], n, atol=1e-6)
    coupled = ask(rnnlm(tmp_path / "coupled", "coupled")).arrays
    before = np.vstack([np.zeros(6), coupled["c"][:-1]])
    mixed = coupled["f"] * before + (1 - coupled["f"]) * coupled["g"]
    np.testing.assert_allclose(coupled["c"], mixed, atol=1e-6)
    peephole = ask(rnnlm(tmp_path / "peephole", "peephole")).arrays
    seen = (peephole["given"] + peephole["from_state"])[:, 3] + peephole["peepholes"][2] * peephole["c"]
    np.testing.assert_allclose(peephole["o"], 1 / (1 + np.exp(-seen)), atol=1e-6)


def test_both_directions_of_elmo(tmp_path: Path) -> None:
    subject = open_subject(make_elmo(tmp_path / "elmo", layers=2))
    text = "the cat sat"
    ids = subject.opened.tokenizer.encode(text).ids
    with torch.no_grad():
        vectors = subject.recurrent(torch.tensor(ids), (len(ids),))  # (T, 3, 2 P)
    found = [ask(subject, text=text, way=way) for way in range(4)]
    assert [(one.head["direction"], one.head["layer"]) for one in found] == [
        ("forward", 0),
        ("forward", 1),
        ("backward", 0),
        ("backward", 1),
    ]
    for way, one in enumerate(found):
        below = found[way - 1].arrays["h"] if one.head["adds_input"] else 0
        half = vectors[:, 1 + one.head["layer"]].chunk(2, dim=-1)[one.head["direction"] == "backward"]
        same(one.arrays["h"] + below, half)
        assert one.head["adds_input"] == (one.head["layer"] == 1) and one.head["projected"]
        assert one.head["equations"][-1] == "h' = P m"
        assert one.arrays["c"].shape == (5, 7) and one.arrays["h"].shape == (5, 5)
    # a word that no vocabulary has is spelled, and is not [UNK]
    spelled = [ask(subject, text=f"the {word}").arrays["h"] for word in ("zebra", "gnu", "zebra")]
    assert (spelled[0] == spelled[2]).all() and not np.allclose(spelled[0], spelled[1])


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_encoder_of_seq2seq(tmp_path: Path, bidirectional: bool) -> None:
    subject = translator(tmp_path / "model", "seq2seq", layers=2, cell="lstm", bidirectional=bidirectional)
    network = subject.translator.network
    assert isinstance(network, Seq2Seq)
    batch = Batch.of(subject.translator.languages.read([TEXT]))
    with torch.no_grad():
        source, _ = network.read(batch.ids, batch.packing)
    count = 4 if bidirectional else 2
    found = [ask(subject, way=way) for way in range(count)]
    ways = found[-2:] if bidirectional else found[-1:]
    same(np.concatenate([one.arrays["h"] for one in ways], axis=1), source.states[0])
    assert len(found[0].head["ways"]) == count and found[0].head["part"] == "encoder"
    assert found[0].head["tokens"][-1]["special"]


@pytest.mark.parametrize("below", ["table", "rnnlm", "elmo"])
def test_readers(tmp_path: Path, below: str) -> None:
    changes: dict[str, Any] = {}
    if below == "rnnlm":
        features = rnnlm(tmp_path / "below", "lstm").recurrent.config
        changes = {"features": features, "embedding_width": 6}
    elif below == "elmo":
        changes = {"features": elmo_config(word_tokenizer()), "embedding_width": 10}
    subject = reader(tmp_path / "reader", "gru", layers=2, **changes)
    batch = Batch.of([subject.opened.tokenizer.encode(TEXT).ids])
    with torch.no_grad():
        hidden = subject.recurrent.encoder(**batch.inputs()).hidden
    number = len(ask(subject).head["ways"])
    assert number == {"table": 4, "rnnlm": 6, "elmo": 8}[below]
    found = [ask(subject, way=number - 2), ask(subject, way=number - 1)]
    same(np.concatenate([one.arrays["h"] for one in found], axis=1), hidden)
    assert found[0].head["part"] == "reader" and found[1].head["direction"] == "backward"


def test_what_is_refused(tmp_path: Path) -> None:
    subject = rnnlm(tmp_path / "rnnlm", "rnn")
    assert len(ask(subject, text="cat " * 255).head["tokens"]) == 256
    for fields, code in (
        ({"text": " \n"}, "empty"),
        ({"text": "\u200b"}, "empty"),
        ({"text": "cat " * 256}, "too_many_shown"),
        ({"text": "cat", "way": 2}, "range"),
        ({"text": "cat", "layer": 0}, "field"),
    ):
        with pytest.raises(RefusalError) as refused:
            show_states(subject, Asked(fields))
        assert refused.value.code == code, fields
    with pytest.raises(RefusalError) as refused:
        show_states(open_subject(make_folder(tmp_path / "bert")), Asked({"text": "cat"}))
    assert refused.value.code == "no_recurrence"
    with pytest.raises(RefusalError, match="a lookup, which has no recurrent layer"):
        show_states(reader(tmp_path / "lookup", "lookup", layers=0), Asked({"text": "cat"}))
    with pytest.raises(RefusalError, match="the model reads 20 at most") as refused:
        show_states(translator(tmp_path / "short", "seq2seq"), Asked({"text": "the cat " * 30}))
    assert (refused.value.code, refused.value.about["most"]) == ("too_many_tokens", 20)
