"""Every number of a row of a head, against the network's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.look.attention import attention, show_steps
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.nn.block import PostNormBlock, PreNormBlock
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import translator

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT, OUTPUT = "the cat 猫 sat", "a dog 狗 大"


def ask(subject: Subject, **fields: Any) -> Reply:
    asked = {"text": TEXT, "layer": 1, "head": 1, "row": 2} | fields
    return Reply.from_bytes(show_steps(subject, Asked(asked)).to_bytes())


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    folder = tmp_path_factory.mktemp("subjects")
    transformer = translator(folder / "transformer", "transformer", encoder_layers=2)
    return {
        "self": open_subject(make_folder(folder / "bert")),
        "causal": open_subject(make_gpt(folder / "gpt", scaled_by_layer=True)),
        **dict.fromkeys(("encoder", "decoder", "cross"), transformer),
    }


@pytest.mark.parametrize("kind", ["self", "causal", "encoder", "decoder", "cross"])
@pytest.mark.parametrize("row", [0, 3])
def test_from_question_to_answer(subjects: dict[str, Subject], kind: str, row: int) -> None:
    subject, more = subjects[kind], {"kind": kind} | ({"output": OUTPUT} if kind in ("decoder", "cross") else {})
    found = ask(subject, row=row, **more)
    head, a = found.head, {name: array.astype(np.float64) for name, array in found.arrays.items()}
    tokens, width = len(head["tokens"]), head["width"]
    assert a["q"].shape == a["output"].shape == (width,) and a["k"].shape == a["v"].shape == (tokens, width)
    np.testing.assert_allclose(a["scores"], a["k"] @ a["q"], rtol=1e-5, atol=1e-5)
    # of GPT this one's scores are divided by the number of the layer too
    divided = np.sqrt(width) * (2 if kind == "causal" else 1)
    assert head["divided_by"] == pytest.approx(divided) and head["scale"] == pytest.approx(1 / divided, abs=1e-6)
    np.testing.assert_allclose(a["scaled"], a["scores"] / divided, rtol=1e-5)
    seen = [not hidden for hidden in head["masked"]]
    assert sum(seen) == (row + 1 if kind in ("causal", "decoder") else tokens)
    expected = np.zeros(tokens)
    expected[seen] = softmax(a["scaled"][seen])
    np.testing.assert_allclose(a["weights"], expected, atol=1e-6)
    np.testing.assert_allclose(a["output"], a["weights"] @ a["v"], atol=1e-5)
    whole = attention(subject, Asked({"text": TEXT, "layer": 1} | more))
    assert (np.abs(whole.arrays["attn"][1, row] / 255 - a["weights"]) <= 1 / 510 + 1e-6).all()
    assert head["token"] == whole.head["left"][row] and head["tokens"] == whole.head["right"]
    assert head["score"] == "scaled"


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_all_rows_at_once(subjects: dict[str, Subject], kind: str) -> None:
    subject, more = subjects[kind], {"kind": kind} | ({"output": OUTPUT} if kind == "cross" else {})
    whole = ask(subject, row=None, **more)
    assert whole.arrays["masked"].dtype == np.uint8
    for row in range(len(whole.head["left"])):
        one = ask(subject, row=row, **more)
        assert one.head["token"] == whole.head["left"][row] and one.head["tokens"] == whole.head["tokens"]
        for name, array in one.arrays.items():
            of_row = whole.arrays[name] if name in ("k", "v") else whole.arrays[name][row]
            np.testing.assert_allclose(of_row, array, atol=1e-6)
        assert whole.arrays["masked"][row].tolist() == one.head["masked"]


@pytest.mark.parametrize("kind", ["self", "causal"])
def test_the_output_is_what_the_layer_goes_on_with(subjects: dict[str, Subject], kind: str) -> None:
    subject, given = subjects[kind], list[torch.Tensor]()
    block = subject.model.network.encoder.blocks[1]
    assert isinstance(block, PostNormBlock | PreNormBlock)
    hook = block.attention.out.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    subject.model.attention(TEXT, layers=1)  # what goes on is the answer of the fused path
    hook.remove()
    found = ask(subject)
    width = found.head["width"]
    np.testing.assert_allclose(given[0][2, width : 2 * width], found.arrays["output"], atol=1e-5)


@pytest.mark.parametrize("score", ["additive", "dot", "bilinear"])
def test_the_scores_of_a_recurrent_decoder(tmp_path: Path, score: str) -> None:
    subject = translator(tmp_path / "model", "seq2seq", score=score)
    found = ask(subject, layer=0, head=0, output=OUTPUT)
    a = found.arrays
    assert found.head["score"] == score and found.head["scale"] == 1 and found.head["kind"] == "cross"
    by_hand = np.tanh(a["q"] + a["k"]) @ a["direction"] if score == "additive" else a["k"] @ a["q"]
    np.testing.assert_allclose(a["scores"], by_hand, atol=1e-5)
    np.testing.assert_allclose(a["weights"], softmax(by_hand), atol=1e-5)
    np.testing.assert_allclose(a["output"], a["weights"] @ a["v"], atol=1e-5)
    row = attention(subject, Asked({"text": TEXT, "output": OUTPUT, "layer": 0})).arrays["attn"][0, 2]
    assert (np.abs(row / 255 - a["weights"]) <= 1 / 510 + 1e-6).all()
    assert ("direction" in a) == (score == "additive")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"row": 6}, "range"),
        ({"row": -1}, "range"),
        ({"head": 4}, "range"),
        ({"layer": 2}, "range"),
        ({"layer": None}, "kind"),
        ({"text": "the " * 63}, "too_many_tokens"),
        ({"rows": 1}, "field"),
    ],
)
def test_what_cannot_be_shown_says_why(subjects: dict[str, Subject], fields: dict[str, Any], code: str) -> None:
    with pytest.raises(RefusalError) as caught:
        ask(subjects["self"], **fields)
    assert caught.value.code == code


def test_rows_of_a_long_text_are_asked_for_one_by_one(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "long", max_length=80))
    assert ask(subject, text="the " * 62, row=None).arrays["weights"].shape == (64, 64)
    assert ask(subject, text="the " * 63).arrays["weights"].shape == (65,)
    with pytest.raises(RefusalError) as caught:
        ask(subject, text="the " * 63, row=None)
    assert caught.value.code == "too_many_tokens" and caught.value.about == {"tokens": 65, "most": 64}
