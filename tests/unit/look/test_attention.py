"""Attention as it is asked for: one layer to the byte, all of them small; every kind of model; what is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from qkv.data.batch import Batch
from qkv.look.attention import MEASURES, Question, attention, block_maximum, layer_records
from qkv.look.subject import Subject, open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.seq2seq.network import Seq2Seq
from qkv.models.transformer.network import Transformer
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention
from qkv.tasks.translate import translate_batch
from tests.support.folders import make_folder
from tests.support.gpt_folders import VOCABULARIES, make_gpt
from tests.support.inside_folders import rnnlm, translator

pytestmark = pytest.mark.usefixtures("one_thread")

ENGLISH, CHINESE = "The animal didn't cross the street because it was too tired", "他欠我100万, 今天天气很好"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(make_folder(tmp_path_factory.mktemp("bert") / "bert", layers=3))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return translator(tmp_path_factory.mktemp("translator") / "model", "transformer", encoder_layers=2)


def ask(subject: Subject, text: str = ENGLISH, **fields: Any) -> Reply:
    return Reply.from_bytes(attention(subject, Asked({"text": text} | fields)).to_bytes())


def refused(subject: Subject, **fields: Any) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        attention(subject, Asked({"text": "the cat"} | fields))
    return caught.value


# BERT


@pytest.mark.parametrize(("text", "pair"), [(ENGLISH, None), (CHINESE, None), (ENGLISH, CHINESE)])
def test_one_layer_is_what_the_model_shows(bert: Subject, text: str, pair: str | None) -> None:
    for layer in range(3):
        found, expected = ask(bert, text, pair=pair, layer=layer), bert.model.attention(text, pair, layers=layer)
        assert found.arrays["attn"].dtype == np.uint8 and (found.arrays["attn"] == expected.attn[0]).all()
        assert list(found.arrays) == ["attn"] and found.head["layer"] == layer
        shown = expected.to_dict()
        for name in ("name", "left", "right", "texts", "n_tokens"):
            assert found.head[name] == shown[name], name
    assert found.head["name"] == ("self" if pair is None else "pair") and found.head["kind"] == "self"
    assert found.head["layers"] == [0, 1, 2] and found.head["heads"] == 4


def test_a_short_text_is_small_already(bert: Subject) -> None:
    found = ask(bert)
    layers = [ask(bert, layer=layer).arrays["attn"] for layer in range(3)]
    assert (found.arrays["small"] == np.stack(layers)).all()
    assert found.head["words"]["left"] == found.head["words"]["right"]
    texts = [found.head["left"][first]["text"] for first, _ in found.head["words"]["left"]]
    assert texts[:4] == ["", "The", "animal", "didn"]


def test_512_tokens_become_48_cells_and_a_lone_line_stays(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "long", "BertModel", max_length=512))
    found = ask(subject, "猫 " * 510)
    assert found.head["n_tokens"] == 512 and found.arrays["small"].shape == (2, 4, 48, 48)
    whole = ask(subject, "猫 " * 510, layer=1)
    assert len(whole.to_bytes()) < 4e6
    edges = [cell * 512 // 48 for cell in range(48)]
    rows = np.maximum.reduceat(whole.arrays["attn"], edges, axis=1)
    assert (found.arrays["small"][1] == np.maximum.reduceat(rows, edges, axis=2)).all()
    line = torch.zeros(1, 512, 512)
    line[0, 300, 7] = 1
    assert block_maximum(line).nonzero().tolist() == [[0, 28, 0]]
    refusal = refused(subject, text="猫 " * 511)
    assert refusal.code == "too_many_tokens" and refusal.about == {"tokens": 513, "most": 512}
    assert "513 tokens" in str(refusal)


def by_hand(weights: NDArray[np.float64], ends: list[bool], causal: bool, same: bool) -> list[float]:
    entropies, distances, to_ends, to_separators, itself = [], [], [], [], []
    queries, keys = weights.shape
    for i, row in enumerate(weights):
        seen = i + 1 if causal else keys
        if seen > 1:
            entropies.append(-sum(w * np.log(w) for w in row[:seen] if w > 0) / np.log(seen))
        distances.append(sum(w * abs(i / queries - j / keys) for j, w in enumerate(row)))
        to_ends.append(sum(w for w, end in zip(row, ends, strict=True) if end))
        to_separators.append(sum(w for w, end in list(zip(row, ends, strict=True))[1:] if end))
        itself.append(row[i] if same else 0.0)
    return [float(np.mean(one)) for one in (entropies, distances, to_ends, to_separators, itself)]


@pytest.mark.parametrize("kind", ["self", "encoder", "decoder", "cross"])
def test_measures(bert: Subject, transformer: Subject, kind: str) -> None:
    subject = bert if kind == "self" else transformer
    found = ask(subject, "the cat sat", kind=kind, **({} if kind == "self" else {"output": "a dog 猫 狗"}))
    scene = Question(subject, kind, "the cat sat", None, None if kind == "self" else "a dog 猫 狗").scene()
    ends = [token.special for token in scene.right.tokens]
    assert found.head["measures"] == list(MEASURES) and any(ends)
    with torch.inference_mode():
        layers = [look.weights().double().numpy() for look in layer_records(scene)]
    for layer, heads in zip(found.arrays["measures"], layers, strict=True):
        for measured, weights in zip(layer, heads, strict=True):
            expected = by_hand(weights, ends, kind == "decoder", kind != "cross")
            np.testing.assert_allclose(measured, expected, atol=2e-6)


def test_layers_above_are_not_run(bert: Subject) -> None:
    run: list[int] = []
    hooks = [
        block.register_forward_hook(lambda *_, number=number: run.append(number))
        for number, block in enumerate(bert.model.network.encoder.blocks)
    ]
    ask(bert, layer=1)
    assert run == [0, 1]
    ask(bert)
    assert run == [0, 1, 0, 1, 2]
    for hook in hooks:
        hook.remove()


def test_several_threads_ask_at_once(bert: Subject) -> None:
    texts = [ENGLISH, CHINESE, "the cat", "猫"] * 4
    expected = [ask(bert, text, layer=2).arrays["attn"] for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: ask(bert, text, layer=2).arrays["attn"], texts))
    assert all((one == other).all() for one, other in zip(found, expected, strict=True))


# GPT


@pytest.mark.parametrize("vocabulary", list(VOCABULARIES))
def test_a_gpt_looks_to_the_left(tmp_path: Path, vocabulary: str) -> None:
    changes = {"scaled_by_layer": True} if vocabulary == "gpt2" else {}
    subject = open_subject(make_gpt(tmp_path / "gpt", vocabulary, **changes))
    for text in ("the cat sat on the mat", "the 猫") if vocabulary != "gpt" else ("the cat sat on the mat",):
        overview = ask(subject, text)
        assert overview.head["kind"] == overview.head["name"] == "causal"
        for layer in range(2):
            attn, expected = ask(subject, text, layer=layer).arrays["attn"], subject.model.attention(text, layers=layer)
            assert (attn == expected.attn[0]).all() and (overview.arrays["small"][layer] == attn).all()
            assert not np.triu(attn, 1).any() and (attn[:, 0, 0] == 255).all()
            assert (abs(attn.sum(-1, dtype=int) - 255) <= attn.shape[-1] / 2).all()
            assert overview.head["left"] == expected.to_dict()["left"]
    first, *_, last = overview.head["left"]
    assert first["special"] == (vocabulary != "gpt") and not last["special"]  # no mark that it has not learned
    refusal = refused(subject, pair="a")
    assert refusal.code == "no_pair" and refused(subject, text="the " * 70).about["most"] == 64


# translators


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_translators_weights_give_its_own_answers(tmp_path: Path, kind: str, norm: str) -> None:
    """weights × values is what goes into the last product of the attention when the network itself runs."""
    subject = translator(tmp_path / "model", "transformer", encoder_layers=2, norm=norm)
    scene = Question(subject, kind, "the cat sat 猫", None, "a dog 狗").scene()
    network = subject.translator.network
    assert isinstance(network, Transformer) and scene.source is not None
    blocks = network.encoder if kind == "encoder" else network.decoder
    answers: list[torch.Tensor] = []
    for block in blocks:
        layer = block.cross_attention if kind == "cross" else block.attention
        assert isinstance(layer, MultiHeadSelfAttention | MultiHeadCrossAttention)
        layer.out.register_forward_pre_hook(lambda _, given: answers.append(given[0].detach()))
    begin = subject.translator.languages.begin
    output = subject.translator.languages.target.encode_ids(["a dog 狗"])[0]
    source, target = Batch.of([scene.source.ids]), Batch.of([[begin, *output]])
    with torch.no_grad():
        network(source.ids, source.packing, target.ids, target.packing)
    expected = list(answers)
    assert len(expected) == 2
    with torch.no_grad():
        for look, answer in zip(layer_records(scene), expected, strict=True):
            weights = look.weights()
            torch.testing.assert_close((weights @ look.value).transpose(0, 1).flatten(1), answer)
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
            assert kind != "decoder" or not weights.triu(1).any()


def test_tokens_of_both_sides(transformer: Subject) -> None:
    cross = ask(transformer, "the cat 猫", kind="cross", output="a dog 狗")
    assert cross.head["texts"] == ["a dog 狗", "the cat 猫"] and cross.arrays["small"].shape == (2, 2, 4, 4)
    assert [one["token"] for one in cross.head["left"]] == ["[CLS]", "a", "dog", "狗"]
    assert [one["token"] for one in cross.head["right"]] == ["the", "cat", "猫", "[SEP]"]
    assert {one["segment"] for one in cross.head["left"]} == {0}
    assert {one["segment"] for one in cross.head["right"]} == {1}
    for one in (*cross.head["left"], *cross.head["right"]):
        assert one["text"] == cross.head["texts"][one["segment"]][one["start"] : one["end"]]
        assert one["special"] == (one["token"] in ("[CLS]", "[SEP]"))
    encoder, decoder = (ask(transformer, "the cat 猫", kind=one, output="a dog") for one in ("encoder", "decoder"))
    assert encoder.head["left"] == encoder.head["right"] and encoder.head["texts"] == ["the cat 猫"]
    assert decoder.head["left"] == decoder.head["right"] and decoder.head["texts"] == ["a dog"]
    assert ask(transformer, "the cat").head["kind"] == "encoder"


def test_what_the_vocabulary_lacks_is_told(bert: Subject, transformer: Subject) -> None:
    found = ask(bert, "the 🦀 cat [UNK] 𠮷", pair="🦀")
    lost = [at for at, one in enumerate(found.head["left"]) if one["text"] in ("🦀", "𠮷")]
    assert found.head["unknown"] == {"left": lost, "right": lost} and len(lost) == 3
    assert {found.head["left"][at]["token"] for at in lost} == {"[UNK]"}
    assert ask(bert, "the cat").head["unknown"] == {"left": [], "right": []}
    cross = ask(transformer, "the 🦀 cat", kind="cross", output="a 𠮷 dog")
    assert cross.head["unknown"] == {"left": [2], "right": [1]}


def test_a_translation_that_is_not_given_is_made_once(transformer: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return translate_batch(*given)

    monkeypatch.setattr("qkv.look.attention.translate_batch", counted)
    text = "she owes me 1 猫"
    whole = ask(transformer, text, kind="cross")
    best = transformer.translator.translate([text])[0]
    assert whole.head["texts"] == [best.text, text] and whole.head["n_tokens"] - 1 >= 1
    for kind in ("cross", "decoder"):
        for layer in range(2):
            one = ask(transformer, text, kind=kind, layer=layer)
            assert one.head["left"] == whole.head["left"]
            assert kind == "decoder" or (one.arrays["attn"] == whole.arrays["small"][layer]).all()
    assert made == [1]


@pytest.mark.parametrize("score", ["additive", "dot", "bilinear"])
@pytest.mark.parametrize("query", ["previous", "current"])
def test_a_recurrent_decoder_looks_as_its_steps_do(tmp_path: Path, score: str, query: str) -> None:
    subject = translator(tmp_path / "model", "seq2seq", score=score, query=query, layers=2)
    found = ask(subject, "the cat 猫", output="a dog 狗", layer=0)
    assert found.arrays["attn"].shape == (1, 4, 4) and found.head["kind"] == "cross"
    assert [one["token"] for one in found.head["left"]] == ["a", "dog", "狗", "[SEP]"]
    network, languages = subject.translator.network, subject.translator.languages
    assert isinstance(network, Seq2Seq)
    source = Batch.of(languages.read(["the cat 猫"]))
    state, rows = network.start(source.ids, source.packing), []
    for token in (languages.begin, *languages.target.encode_ids(["a dog 狗"])[0]):
        _, state, looked = network.step(torch.tensor([token]), state)
        assert looked is not None
        rows.append(looked[0])
    expected = (torch.stack(rows) * 255).round().to(torch.uint8).numpy()
    assert (found.arrays["attn"][0] == expected).all()
    overview = ask(subject, "the cat 猫", output="a dog 狗")
    assert (overview.arrays["small"][0] == expected).all() and np.isfinite(overview.arrays["measures"]).all()
    assert ask(subject, "the cat").head["texts"][1] == "the cat"  # translated first


# what is refused


def test_what_has_no_attention(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("2 2\ncat 0 1\ndog 1 0\n")
    fixed = translator(tmp_path / "fixed", "seq2seq", context="fixed")
    for subject in (open_subject(vectors), rnnlm(tmp_path / "rnnlm", "lstm"), fixed):
        refusal = refused(subject)
        assert refusal.code == "no_attention" and refusal.about["kind"] == subject.kind
    assert "context is fixed" in str(refusal)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": " "}, "empty"),
        ({"text": "\u200b"}, "empty"),
        ({"pair": "\u200b"}, "empty"),
        ({"text": 3}, "kind"),
        ({"kind": "cross"}, "unknown"),
        ({"layer": 3}, "range"),
        ({"layer": "1"}, "kind"),
        ({"output": "a"}, "field"),
        ({"lyer": 1}, "field"),
        ({"text": "the " * 63}, "too_many_tokens"),
        ({"text": "x" * 100_001}, "too_long"),
    ],
)
def test_what_cannot_be_shown_says_why(bert: Subject, fields: dict[str, Any], code: str) -> None:
    assert refused(bert, **fields).code == code


def test_translators_refuse_too(transformer: Subject) -> None:
    for fields, code in (
        ({"kind": "self"}, "unknown"),
        ({"pair": "a"}, "field"),
        ({"text": "the " * 20}, "too_many_tokens"),
        ({"kind": "cross", "output": "the " * 20}, "too_many_tokens"),
        ({"kind": "cross", "output": "\u200b"}, "empty"),
        ({"text": "\u200b"}, "empty"),
        ({"kind": "encoder", "layer": 2}, "range"),
    ):
        assert refused(transformer, **fields).code == code, fields


def test_a_bert_with_one_segment_reads_no_pairs(tmp_path: Path) -> None:
    subject = open_subject(make_folder(tmp_path / "one", "BertModel", segments=1))
    assert refused(subject, pair="a").code == "no_pair" and ask(subject, "the cat").head["name"] == "self"
