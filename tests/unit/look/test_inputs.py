"""What is added up is what the network reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.batch import Batch
from qkv.look.attention import show_inputs
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.transformer.folder import save_translation
from qkv.models.transformer.network import Transformer, TransformerConfig
from tests.support.folders import make_folder, make_tokenizer, randomise
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import rnnlm, translator

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "the cat 猫"


def ask(subject: Subject, **fields: Any) -> Reply:
    return Reply.from_bytes(show_inputs(subject, Asked({"text": TEXT} | fields)).to_bytes())


def test_token_segment_and_position(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "bert"))
    model, pair = subject.model, "a dog"
    encoded, layer = model.tokenizer.encode(TEXT, pair), model.network.encoder.embedding
    ids, segments = torch.tensor(encoded.ids), torch.tensor(encoded.segments)
    with torch.no_grad():
        read = layer(ids, segments, torch.arange(len(ids)))
    for row in range(len(ids)):
        found = ask(subject, pair=pair, row=row)
        a = found.arrays
        assert found.head["parts"] == list(a) == ["token", "segment", "position", "sum", "normed"]
        assert found.head["token"]["token"] == encoded.tokens[row] and found.head["segment"] == encoded.segments[row]
        np.testing.assert_allclose(a["sum"], a["token"] + a["segment"] + a["position"], atol=1e-6)
        np.testing.assert_allclose(a["normed"], read[row].numpy(), atol=1e-6)
        assert found.head["n_tokens"] == len(ids) and found.head["width"] == 32
        whole = ask(subject, pair=pair)
        assert all((whole.arrays[name][row] == array).all() for name, array in a.items())
        assert whole.head["tokens"][row] == found.head["token"] and whole.head["width"] == 32


def test_a_gpt_adds_two(tmp_path: Path) -> None:
    subject = open_subject(make_gpt(tmp_path / "gpt"))
    layer, tokens = subject.model.network.encoder.embedding, [3, *subject.model.tokenizer.encode_ids([TEXT])[0]]
    with torch.no_grad():
        read = layer(torch.tensor(tokens), torch.arange(len(tokens)))
    for row in range(len(tokens)):
        a = ask(subject, row=row).arrays
        assert list(a) == ["token", "position", "sum"]
        np.testing.assert_allclose(a["sum"], a["token"] + a["position"], atol=1e-6)
        np.testing.assert_allclose(a["sum"], read[row].numpy(), atol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "halved"])
@pytest.mark.parametrize("joint", [True, False])
def test_a_translator_adds_waves(tmp_path: Path, positions: str, joint: bool) -> None:
    """Against what the first layers read when the network itself runs, on both sides."""
    target = make_tokenizer()
    source = target if joint else make_tokenizer()
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "inner_width": 32}
    network = Transformer(TransformerConfig(target.size, None if joint else source.size, positions=positions, **sizes))
    randomise(network)
    subject = open_subject(save_translation(tmp_path / "model", network, source, target, {"max_length": 20}))
    loaded, languages, output = subject.translator.network, subject.translator.languages, "a dog 狗"
    assert isinstance(loaded, Transformer)
    read: list[torch.Tensor] = []
    hooks = [
        block.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        for block in (*loaded.encoder, *loaded.decoder)
    ]
    given, written = Batch.of(languages.read([TEXT])), Batch.of([[languages.begin, *target.encode_ids([output])[0]]])
    with torch.no_grad():
        loaded(given.ids, given.packing, written.ids, written.packing)
    for hook in hooks:
        hook.remove()
    table = loaded.embedding if loaded.source_embedding is None else loaded.source_embedding
    assert joint == (table is loaded.embedding)
    for kind, whole in zip(("encoder", "decoder"), read, strict=True):
        for row, expected in enumerate(whole):
            a = ask(subject, kind=kind, row=row, output=output).arrays
            np.testing.assert_allclose(a["sum"], expected.numpy(), atol=1e-6)
            np.testing.assert_allclose(a["sum"], a["token"] + a["position"], atol=1e-6)
            if kind == "encoder":
                scaled = table.weight[given.ids[row]].detach().numpy() * 4  # √16
                np.testing.assert_allclose(a["token"], scaled, atol=1e-6)


def test_what_is_refused(tmp_path: Path) -> None:
    bert, recurrent = open_subject(make_folder(tmp_path / "bert")), translator(tmp_path / "seq2seq", "seq2seq")
    for subject, fields, code in (
        (bert, {"row": 5}, "range"),
        (bert, {"row": "1"}, "kind"),
        (bert, {"row": 0, "text": "the " * 63}, "too_many_tokens"),
        (bert, {"row": 0, "layer": 1}, "field"),
        (recurrent, {"row": 0}, "no_positions"),
        (rnnlm(tmp_path / "rnnlm", "gru"), {"row": 0}, "no_attention"),
    ):
        with pytest.raises(RefusalError) as caught:
            ask(subject, **fields)
        assert caught.value.code == code
