"""The tables that are drawn are those the networks add; another order moves words, but not for a bag of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.look.positions import compare_order, pair_words, show_positions
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.transformer.network import Transformer
from qkv.nn.position import sinusoidal_table
from tests.support.below_readers import make_elmo, make_rnnlm
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import translator
from tests.support.word_vectors import make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")

HE_OWES, I_OWE = "他欠我100万", "我欠他100万"


def tables(subject: Subject) -> Reply:
    return Reply.from_bytes(show_positions(subject, Asked({})).to_bytes())


def ask(subject: Subject, text: str = HE_OWES, other: str = I_OWE) -> Reply:
    return Reply.from_bytes(compare_order(subject, Asked({"text": text, "other": other})).to_bytes())


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_waves(tmp_path: Path) -> None:
    found = tables(open_subject(make_vectors_folder(tmp_path / "model")))
    waves = sinusoidal_table(128, 128).numpy()
    np.testing.assert_array_equal(found.arrays["sinusoid"], waves)
    assert found.arrays["sinusoid"][37, 24] == pytest.approx(np.sin(37 / 10_000 ** (24 / 128)), abs=1e-5)
    alike = found.arrays["sinusoid_similarity"]
    assert alike[3, 9] == pytest.approx(cosine(waves[3], waves[9]), abs=1e-5)
    np.testing.assert_allclose(np.diag(alike, 5), alike[0, 5], atol=1e-4, err_msg="the distance alone counts")
    assert found.head["own"] is None and "own" not in found.arrays


@pytest.mark.parametrize("make", [make_folder, make_gpt])
def test_the_models_own_table(tmp_path: Path, make: Any) -> None:
    subject = open_subject(make(tmp_path / "model"))
    found = tables(subject)
    weight = next(one for name, one in subject.model.network.named_parameters() if name.endswith("position.weight"))
    np.testing.assert_array_equal(found.arrays["own"], weight.detach().numpy())
    assert found.head["own"] == {"kind": "learned", "rows": 64, "of": 64, "width": 32}
    expected = cosine(*weight.detach().numpy()[[2, 7]])
    assert found.arrays["own_similarity"][2, 7] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("waves", "kind"), [("sinusoidal", "interleaved"), ("halved", "halved")])
def test_the_waves_of_a_transformer(tmp_path: Path, waves: str, kind: str) -> None:
    subject = translator(tmp_path / "model", "transformer", positions=waves)
    found, network = tables(subject), subject.translator.network
    assert isinstance(network, Transformer)
    np.testing.assert_array_equal(found.arrays["own"], network.positions(torch.arange(20)).numpy())
    assert found.head["own"]["kind"] == kind


def test_a_long_table_says_how_long(tmp_path: Path) -> None:
    own = tables(open_subject(make_folder(tmp_path / "model", max_length=600))).head["own"]
    assert (own["rows"], own["of"]) == (512, 600)


def test_words_move_with_positions_and_not_without(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "model"))
    found = ask(subject)
    assert [one["text"] for one in found.head["words"]] == ["他", "欠", "我", "100", "万"]
    assert [(one["from"], one["to"]) for one in found.head["words"]] == [(0, 2), (1, 1), (2, 0), (3, 3), (4, 4)]
    here, there = (subject.model.embed_tokens([HE_OWES, I_OWE], layer=2)[number].vectors for number in (0, 1))
    moved = found.arrays["moved"]
    assert moved.shape == (3, 5)
    assert moved[2, 0] == pytest.approx(1 - cosine(here[0], there[2]), abs=1e-5)
    assert moved[2, 1] == pytest.approx(1 - cosine(here[1], there[1]), abs=1e-5)
    pieces = [place for place, token in enumerate(subject.model.tokenizer.encode(HE_OWES, special=False).tokens)
              if token in ("1", "##00")]  # fmt: skip
    assert len(pieces) == 2, "100 is cut in two, and a word is the mean of its pieces"
    assert moved[2, 3] == pytest.approx(1 - cosine(here[pieces].mean(0), there[pieces].mean(0)), abs=1e-5)
    assert moved[0, 1] == pytest.approx(0, abs=1e-5) and moved[2, 1] > 1e-3, "it stays, and sees others elsewhere"
    assert found.head["same_bag"] and found.head["bag"] == pytest.approx(0, abs=1e-5)
    assert found.arrays["moved_without"].max() < 1e-5 and found.arrays["texts_without"].max() < 1e-5
    assert found.arrays["texts"][2] == pytest.approx(1 - cosine(here.mean(0), there.mean(0)), abs=0.05)


def test_who_needs_no_positions(tmp_path: Path) -> None:
    table = ask(open_subject(make_vectors_folder(tmp_path / "table")), "king cat man", "man cat king")
    assert table.arrays["moved"].max() < 1e-6 and table.head["bag"] == pytest.approx(0, abs=1e-6)
    assert "moved_without" not in table.arrays and table.head["layers"] == [0]
    elmo = ask(open_subject(make_elmo(tmp_path / "elmo")))
    assert elmo.arrays["moved"][0].max() < 1e-5 < elmo.arrays["moved"][1].max() and elmo.head["bag"] is not None
    gpt = ask(open_subject(make_gpt(tmp_path / "gpt")))
    assert gpt.arrays["moved_without"][0].max() < 1e-5 < gpt.arrays["moved_without"][2].max(), "it looks to the left"
    assert ask(open_subject(make_rnnlm(tmp_path / "rnnlm"))).head["bag"] is None, "a state is no word alone"


def test_words_that_one_text_has(tmp_path: Path) -> None:
    found = ask(open_subject(make_folder(tmp_path / "model")), "the cat sat", "The dog sat on zebra")
    assert [one["text"] for one in found.head["words"]] == ["the", "sat"]
    lonely = [[one["text"] for one in side] for side in found.head["lonely"]]
    assert lonely == [["cat"], ["dog", "on"]] and not found.head["same_bag"]
    assert found.head["unknown"] == [[], [{"text": "zebra", "at": [15, 20]}]]
    moved = ask(open_subject(make_folder(tmp_path / "other")), "𠮷他欠我", "我欠他𠮷")
    assert [one["here"] for one in moved.head["words"]] == [[1, 2], [2, 3], [3, 4]], "characters, not halves of them"


def test_pairs_by_hand() -> None:
    assert pair_words(["a", "b", "a"], ["a", "a", "a"]) == ([(0, 0), (2, 1)], ([1], [2]))


def test_refusals(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "model"))
    for fields, code in (
        ({"text": "cat", "other": "dog"}, "no_common_words"),
        ({"text": "cat", "other": " "}, "empty"),
        ({"text": "cat"}, "missing"),
        ({"text": "cat", "other": "zebra"}, "no_vector"),
        ({"text": "cat " * 140, "other": "cat"}, "too_many_tokens"),
        ({"text": "x" * 601, "other": "cat"}, "too_long"),
    ):
        with pytest.raises(RefusalError) as caught:
            compare_order(subject, Asked(fields))
        assert caught.value.code == code
    with pytest.raises(RefusalError, match="seq2seq"):
        ask(translator(tmp_path / "seq2seq", "seq2seq"))
    assert tables(translator(tmp_path / "other", "seq2seq")).head["own"] is None
