"""What is told of a translation is what the translator does: texts, scores, alignments, and every step on the way."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from qkv.api.translator import Translation
from qkv.files import to_json
from qkv.look.subject import Subject, open_subject
from qkv.look.translating import show_beam_steps, show_translation
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.search.options import GenerateConfig
from tests.support.folders import make_folder, randomise
from tests.support.inside_folders import TEXT, translator
from tests.support.marian_folders import FIELDS, SMALL, tensors_of
from tests.unit.text.test_sentencepiece import MODEL, WORDS

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer"},
    "fixed": {"kind": "seq2seq", "context": "fixed"},
    "every_step": {"kind": "seq2seq", "context": "every_step", "cell": "lstm"},
    "attention": {"kind": "seq2seq", "layers": 2},
    "renormalised": {"kind": "transformer", "decoding": {"renormalise": True, "min_length": 3, "length_penalty": 0.0}},
    "repeats": {"kind": "transformer", "decoding": {"no_repeat": 2}},
}


@pytest.fixture(scope="module", params=MODELS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return translator(tmp_path_factory.mktemp(request.param) / "model", **MODELS[request.param])


def ask(subject: Subject, name: str, **fields: Any) -> Reply:
    function = {"translate": show_translation, "beam_steps": show_beam_steps}[name]
    return Reply.from_bytes(function(subject, Asked({"text": TEXT, **fields})).to_bytes())


def reference(subject: Subject, beams: int) -> Translation:
    config = replace(subject.translator.decoding, beams=beams, n_best=beams)
    return subject.translator.translate([TEXT], config, alignments=True)[0]


@pytest.mark.parametrize("beams", [1, 3])
def test_the_translators_own(subject: Subject, beams: int) -> None:
    found, expected = ask(subject, "translate", beams=beams), reference(subject, beams)
    told = [(one["text"], one["finished"]) for one in found.head["candidates"]]
    assert told == [(one.text, one.finished) for one in expected.candidates]
    assert len(told) == beams and found.head["n_tokens"] == expected.n_tokens == len(found.head["source"])
    for number, (one, other) in enumerate(zip(found.head["candidates"], expected.candidates, strict=True)):
        assert one["score"] == pytest.approx(other.score, abs=1e-5)
        assert one["log_probability"] == pytest.approx(other.log_probability, abs=1e-5)
        for token in one["tokens"]:
            assert one["text"][token["start"] : token["end"]] == token["text"]
        if other.attention is None:
            assert found.head["context"] in ("fixed", "every_step") and f"alignment{number}" not in found.arrays
            assert found.arrays["context"].shape == (8,) and "links" not in one
            continue
        assert found.head["context"] == "attention" and "context" not in found.arrays
        np.testing.assert_allclose(found.arrays[f"alignment{number}"], other.attention.weights, atol=1e-6)
        np.testing.assert_allclose(found.arrays[f"rest{number}"], other.attention.rest, atol=1e-6)
        assert one["links"] == [link.to_dict(TEXT, other.text) for link in other.alignments]
        assert [tuple(span) for span in one["source_words"]] == [tuple(span) for span in other.attention.source_words]


@pytest.mark.parametrize("beams", [1, 4])
def test_steps_lead_to_what_is_translated(subject: Subject, beams: int) -> None:
    found, expected = ask(subject, "beam_steps", beams=beams), reference(subject, beams)
    nodes, ids, logits = found.head["nodes"], found.arrays["ids"], found.arrays["logits"]
    assert [one["text"] for one in found.head["hypotheses"]] == [one.text for one in expected.candidates]
    for told, other in zip(found.head["hypotheses"], expected.candidates, strict=True):
        assert told["score"] == pytest.approx(other.score, abs=1e-5)
        path = [nodes[told["node"]]]
        while path[0]["parent"] >= 0:
            path.insert(0, nodes[path[0]["parent"]])
        assert [node["length"] for node in path] == list(range(len(path)))
        assert path[-1]["ended"] == other.finished and path[-1]["text"] == other.text
        assert path[-1]["log_probability"] == pytest.approx(other.log_probability, abs=1e-4)
        assert all(a["log_probability"] >= b["log_probability"] for a, b in pairwise(path))
        if other.attention is not None:  # where a token looked is told with the node that it was written after
            looks = found.arrays["attention"][_places(nodes, told["node"])[:-1]]
            own = ask(subject, "translate", beams=beams).arrays[f"looks{found.head['hypotheses'].index(told)}"]
            np.testing.assert_allclose(looks[: len(own)], own, atol=1e-6)
    # one token more is as likely as its share among all says
    one = found.head["temperatures"].index(1.0)
    for node in nodes[1:]:
        if node["id"] in (row := ids[node["parent"]]).tolist():
            place = row.tolist().index(node["id"])
            share = logits[node["parent"], place] - found.arrays["log_totals"][node["parent"], one]
            before = nodes[node["parent"]]["log_probability"]
            assert node["log_probability"] == pytest.approx(before + share, abs=2e-4)


def _places(nodes: list[dict[str, Any]], last: int) -> list[int]:
    found = [last]
    while nodes[found[0]]["parent"] >= 0:
        found.insert(0, nodes[found[0]]["parent"])
    return found


def test_shares_of_all_tokens_add_up_to_one(subject: Subject) -> None:
    """The best ten have a share below 1 at every temperature, and at most beams nodes live at a step."""
    found = ask(subject, "beam_steps", beams=3)
    logits, totals = found.arrays["logits"].astype(np.float64), found.arrays["log_totals"].astype(np.float64)
    shares = np.exp(logits[:, None] / np.array(found.head["temperatures"])[:, None] - totals[:, :, None])
    shares = shares.sum(-1)
    assert (shares <= 1 + 1e-5).all() and (shares > 0).all() and (np.diff(shares, axis=1) <= 1e-6).all()
    assert (found.arrays["n_scored"] == 10).all() and (np.diff(logits, axis=1) <= 0).all()
    lengths = [node["length"] for node in found.head["nodes"] if node["scored"]]
    assert max(np.bincount(lengths)) <= 3 and lengths == sorted(lengths) and lengths[0] == 0
    assert found.head["steps"] == max(lengths) + 1
    assert found.head["forbids_repeats"] == (subject.translator.decoding.no_repeat > 0)
    if "attention" in found.arrays:
        np.testing.assert_allclose(found.arrays["attention"].sum(1), 1, atol=1e-5)
        assert found.arrays["attention"].shape == (len(lengths), len(found.head["source"]))


def test_every_share_of_a_small_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many best tokens as there are, and none forbidden that counts, nothing is left over."""
    monkeypatch.setattr("qkv.look.translating.BEST_TOKENS", 10_000)
    subject = translator(tmp_path / "model", "transformer", {"renormalise": True})
    found = ask(subject, "beam_steps", beams=2)
    shares = np.exp(found.arrays["logits"] - found.arrays["log_totals"][:, [found.head["temperatures"].index(1.0)]])
    assert shares.shape[1] == found.head["vocabulary_size"] - len(subject.translator.languages.never)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)


def test_a_folder_of_opus_mt(tmp_path: Path) -> None:
    """Pieces of sentencepiece, and a padding mark to begin with that is never written."""
    network = Transformer(TransformerConfig(30, **SMALL))
    randomise(network)
    words = [token for token in WORDS.split() if token != "<pad>" and ">>" not in token]
    (tmp_path / "config.json").write_text(to_json(FIELDS))
    words += [f"▁more{number}" for number in range(len(words), 29)]
    (tmp_path / "vocab.json").write_text(to_json({word: place for place, word in enumerate([*words, "<pad>"])}))
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(MODEL)
    save_file(tensors_of(network), tmp_path / "model.safetensors")
    subject = open_subject(tmp_path)
    found = ask(subject, "beam_steps", text="Tom chases", beams=3, most=6)
    assert [token["token"] for token in found.head["source"]] == ["▁Tom", "▁chase", "s", "</s>"]
    assert [token["text"] for token in found.head["source"]] == ["Tom", "chase", "s", ""]
    config = replace(subject.translator.decoding, beams=3, n_best=3, max_length=6)
    (expected,) = subject.translator.translate(["Tom chases"], config)
    assert [one["text"] for one in found.head["hypotheses"]] == [one.text for one in expected.candidates]
    assert found.head["nodes"][0]["token"] == "<pad>" and 29 not in found.arrays["ids"]
    assert found.head["renormalised"] == config.renormalise


def test_fewer_tokens_if_asked(subject: Subject) -> None:
    found = ask(subject, "beam_steps", beams=2, most=2)
    assert found.head["steps"] <= 2 and max(node["length"] for node in found.head["nodes"]) <= 2


def test_what_is_refused(tmp_path: Path) -> None:
    subject = translator(tmp_path / "model", "seq2seq")
    for function in (show_translation, show_beam_steps):
        for fields, code in (
            ({"text": "  "}, "empty"),
            ({"text": "\u200b"}, "empty"),  # a character that no token is made of
            ({"text": "the cat " * 30}, "too_many_tokens"),
            ({"text": "a", "beams": 9}, "range"),
            ({"text": "a", "beam": 2}, "field"),
        ):
            with pytest.raises(RefusalError) as refused:
                function(subject, Asked(fields))
            assert refused.value.code == code, fields
            if code == "too_many_tokens":
                assert refused.value.about == {"tokens": 61, "most": 20}
        with pytest.raises(RefusalError, match="does not translate") as refused:
            function(open_subject(make_folder(tmp_path / "bert")), Asked({"text": "a"}))
        assert refused.value.code == "no_translation"


def test_decoding_by_chance_is_left_out(tmp_path: Path) -> None:
    drawn: dict[str, Any] = {"sample": True, "temperature": 2.0, "top_k": 5}
    subject = translator(tmp_path / "model", "transformer", drawn)
    assert subject.translator.decoding == GenerateConfig(max_length=9, **drawn)
    assert ask(subject, "translate").head == ask(subject, "translate").head


def test_html_and_unknown_characters_stay_what_they_are(tmp_path: Path) -> None:
    subject = translator(tmp_path / "model", "transformer")
    text = "<b>the</b> 龘 cat"
    found = show_translation(subject, Asked({"text": text}))
    assert found.head["text"] == text and [text[slice(*span)] for span in found.head["unknown"]].count("龘") == 1
    assert "".join(token["text"] for token in found.head["source"]) == text.replace(" ", "")
