"""Hugging Face's shapes: each task answers as `Model.predict` and its like do, zh and en, alone and in batches."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.api.generator import Generator
from qkv.api.translator import load_translator
from qkv.search.options import GenerateConfig
from tests.support.served_models import AppClient

TEXTS = ["The cat sat on the mat.", "他在北京爱上了一只猫。", "a " * 300 + "dog"]
LONG = TEXTS[2]


@pytest.mark.parametrize("name", ["topics", "tags", "stars"])
def test_text_classification(client: AppClient, served_folders: dict[str, Path], name: str) -> None:
    expected = qkv.load(served_folders[name]).predict(TEXTS)
    got = client.post(f"/models/{name}", {"inputs": TEXTS})
    assert got.status == 200
    for one, said in zip(expected, got.json, strict=True):
        if name == "stars":
            assert said == [{"label": "value", "score": one.value}]
        else:
            assert {each["label"]: each["score"] for each in said} == one.probabilities
            assert [each["score"] for each in said] == sorted(one.probabilities.values(), reverse=True)
        if name == "tags":
            assert [each["label"] for each in said if each["predicted"]] == sorted(
                one.labels, key=lambda label: -one.probabilities[label]
            )
    assert got.headers["x-qkv-windows"] == str(sum(one.n_windows for one in expected))
    assert got.headers["x-qkv-truncated"] == "false"


def test_one_text_is_a_list_of_lists_and_top_k(client: AppClient) -> None:
    whole = client.post("/models/topics", {"inputs": TEXTS[0]}).json
    assert len(whole) == 1 and len(whole[0]) == 2
    assert client.post("/models/topics", {"inputs": TEXTS[0], "parameters": {"top_k": 1}}).json == [whole[0][:1]]


def test_pairs(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["pairs"]).predict([("a cat", "猫"), ("a dog", "a cat")])
    for inputs in (
        [{"text": "a cat", "text_pair": "猫"}, {"text": "a dog", "text_pair": "a cat"}],
        [["a cat", "猫"], ["a dog", "a cat"]],
    ):
        said = client.post("/models/pairs", {"inputs": inputs}).json
        assert [one[0]["score"] for one in said] == [one.probability for one in expected]


def test_a_function_of_the_raw_scores(client: AppClient) -> None:
    def asked(function: str) -> dict[str, float]:
        got = client.post("/models/topics", {"inputs": TEXTS[0], "parameters": {"function_to_apply": function}})
        return {one["label"]: one["score"] for one in got.json[0]}

    raw = asked("none")
    assert asked("sigmoid") == pytest.approx({name: 1 / (1 + np.exp(-score)) for name, score in raw.items()})
    assert sum(asked("softmax").values()) == pytest.approx(1)


def test_truncation_is_obeyed_and_reported(client: AppClient) -> None:
    whole = client.post("/models/topics", {"inputs": LONG})
    cut = client.post("/models/topics", {"inputs": LONG, "parameters": {"truncate": True}})
    assert (whole.headers["x-qkv-truncated"], cut.headers["x-qkv-truncated"]) == ("false", "true")
    assert int(whole.headers["x-qkv-windows"]) > int(cut.headers["x-qkv-windows"]) == 1
    assert whole.json != cut.json
    assert client.post("/models/topics", {"inputs": LONG, "parameters": {"truncation": "only_first"}}).json == cut.json


def test_token_classification(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["ner"]).predict(TEXTS)
    for strategy in ("simple", "first", "average", "max"):
        got = client.post("/models/ner", {"inputs": TEXTS, "parameters": {"aggregation_strategy": strategy}})
        for one, said in zip(expected, got.json, strict=True):
            spans = [(each["start"], each["end"], each["entity_group"], each["word"], each["score"]) for each in said]
            assert spans == [tuple(entity[:5]) for entity in one.entities]
    alone = client.post("/models/ner", {"inputs": TEXTS[1]}).json
    assert [one["word"] for one in alone] == [one["word"] for one in got.json[1]]
    assert all(TEXTS[1][one["start"] : one["end"]] == one["word"] for one in alone)


def test_the_tokens_of_spans(client: AppClient) -> None:
    spans = client.post("/models/ner", {"inputs": TEXTS[1]}).json
    pieces = client.post("/models/ner", {"inputs": TEXTS[1], "parameters": {"aggregation_strategy": "none"}}).json
    assert [one["start"] for one in pieces if one["entity"].startswith("B-")] == [one["start"] for one in spans]
    assert {one["entity"][2:] for one in pieces} == {one["entity_group"] for one in spans}
    assert all(TEXTS[1][one["start"] : one["end"]] == one["word"] for one in pieces)
    label = spans[0]["entity_group"]
    kept = client.post("/models/ner", {"inputs": TEXTS[1], "parameters": {"ignore_labels": [label]}}).json
    assert kept == [one for one in spans if one["entity_group"] != label]


QUESTIONS = [("Where is the cat?", "The cat is on the mat."), ("首都是哪里？", "中国的首都是北京。")]


def test_question_answering(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["squad"]).predict(QUESTIONS)
    inputs = [{"question": question, "context": context} for question, context in QUESTIONS]
    said = client.post("/models/squad", {"inputs": inputs}).json
    for one, found in zip(said, expected, strict=True):
        assert (one["answer"], one["start"], one["end"]) == (found.text, found.start, found.end)
        assert one["score"] == found.probability
        assert one["n_windows"] == found.n_windows and one["abstained"] == found.abstained
    assert client.post("/models/squad", {"inputs": inputs[0]}).json == said[0]
    several = client.post("/models/squad", {"inputs": inputs[0], "parameters": {"top_k": 4}}).json
    assert len(several) == 4 and several[0] == said[0]
    scores = [one["score"] for one in several[1:]]
    assert scores == sorted(scores, reverse=True)
    strict = {"top_k": 50, "handle_impossible_answer": False}
    spans = client.post("/models/squad", {"inputs": inputs[0], "parameters": strict}).json
    assert [(one["answer"], one["score"]) for one in spans] == [
        (one.text, one.probability) for one in expected[0].n_best
    ]


def test_multiple_choice(client: AppClient, served_folders: dict[str, Path]) -> None:
    asked = [
        {"text": "The cat is tired.", "question": "It is", "choices": ["wide", "tired"]},
        {"text": "", "question": "首都是", "choices": ["北京", "上海", "猫"]},
    ]
    expected = qkv.load(served_folders["quiz"]).predict(asked)
    said = client.post("/models/quiz", {"inputs": asked}).json
    for one, found in zip(said, expected, strict=True):
        assert (one["choice"], one["index"], one["score"]) == (found.text, found.choice, found.probability)
        assert [each["score"] for each in one["choices"]] == list(found.probabilities)
    context = asked[0] | {"context": asked[0]["text"]}
    del context["text"]
    assert client.post("/models/quiz", {"inputs": context}).json["score"] == pytest.approx(said[0]["score"], abs=1e-6)


def test_fill_mask(client: AppClient, served_folders: dict[str, Path]) -> None:
    model = qkv.load(served_folders["mini"])
    texts = ["Paris is the [MASK] of France.", "中国的首都是[MASK]京。"]
    batch = client.post("/models/mini", {"inputs": texts, "parameters": {"top_k": 3}}).json
    for number, text in enumerate(texts):
        one = client.post("/models/mini", {"inputs": text, "parameters": {"top_k": 3}}).json
        assert [each["token"] for each in one] == [each["token"] for each in batch[number]]
        best = model.fill(text, 3)[0].candidates
        assert [(each["token_str"], each["score"]) for each in one] == [(each.token, each.probability) for each in best]
        assert all(model.tokenizer.token(each["token"]) == each["token_str"] for each in one)
    two = client.post("/models/mini", {"inputs": "a [MASK] [MASK]"}).json
    assert len(two) == 2 and len(two[0]) == 5 and "[MASK]" in two[0][0]["sequence"]
    chosen = client.post("/models/mini", {"inputs": texts[1], "parameters": {"targets": ["北", "上"]}}).json
    assert {one["token_str"] for one in chosen} == {"北", "上"}
    assert chosen[0]["sequence"] == f"中国的首都是{chosen[0]['token_str']}京。"
    joined = client.post("/models/mini", {"inputs": "a cat [MASK]", "parameters": {"targets": ["##s"]}}).json
    assert joined[0]["sequence"] == "a cats"


def test_a_small_request_has_no_huge_answer(client: AppClient) -> None:
    body = {"inputs": ["[MASK]" * 40] * 100, "parameters": {"top_k": 1000}}
    got = client.post("/models/mini", body)
    assert got.status == 422 and "960,000,000 characters" in got.body.decode()
    assert client.post("/models/mini", {"inputs": "[MASK]" * 40, "parameters": {"top_k": 1000}}).status == 200


def test_feature_extraction(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["mini"]).embed(TEXTS)
    got = client.post("/models/mini/pipeline/feature-extraction", {"inputs": TEXTS})
    assert np.array_equal(np.array(got.json, np.float32), expected.vectors)
    by_query = client.post("/models/mini?task=feature-extraction", {"inputs": TEXTS[0]}).json
    by_parameter = client.post("/models/mini", {"inputs": TEXTS[0], "parameters": {"task": "feature-extraction"}}).json
    assert len(by_query) == 1 and by_query == by_parameter
    unit = client.post("/models/mini/pipeline/feature-extraction", {"inputs": TEXTS, "normalize": True}).json
    assert np.linalg.norm(np.array(unit), axis=1) == pytest.approx(1)


def test_fewer_dimensions(client: AppClient) -> None:
    whole = np.array(client.post("/models/sentences", {"inputs": TEXTS}).json)
    short = np.array(client.post("/models/sentences", {"inputs": TEXTS, "dimensions": 16}).json)
    assert short == pytest.approx(whole[:, :16] / np.linalg.norm(whole[:, :16], axis=1, keepdims=True), abs=1e-6)
    assert client.post("/models/sentences", {"inputs": TEXTS, "dimensions": 32}).json == whole.tolist()
    refused = client.post("/models/sentences", {"inputs": TEXTS, "dimensions": 8})
    assert refused.status == 422 and "trained to give 16" in refused.json["error"]


def test_sentence_similarity(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["sentences"]).embed(TEXTS).similarity()[0, 1:]
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    said = client.post("/models/sentences", {"inputs": inputs}).json
    assert said == pytest.approx(expected.tolist(), abs=1e-6)
    assert client.post("/models/sentences", {"inputs": [inputs, inputs]}).json == [said, said]


def test_translation(client: AppClient, served_folders: dict[str, Path]) -> None:
    translator = load_translator(served_folders["en-zh"])
    texts = ["a cat sat", "The dog is here. It is wide."]
    expected = translator.translate(texts, split=True)
    said = client.post("/models/en-zh", {"inputs": texts, "parameters": {"src_lang": "en", "tgt_lang": "zh_CN"}}).json
    assert [one["translation_text"] for one in said] == [one.text for one in expected]
    assert [one["n_parts"] for one in said] == [1, 2]
    (alone,) = client.post("/models/en-zh", {"inputs": texts[0]}).json
    assert alone["translation_text"] == said[0]["translation_text"]
    several = {"generate_parameters": {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}}
    two = client.post("/models/en-zh", {"inputs": texts[0], "parameters": several}).json[0]
    config = GenerateConfig(beams=3, n_best=2, max_length=5)
    assert [one["translation_text"] for one in two] == [
        one.text for one in translator.translate(texts[:1], config)[0].candidates
    ]
    refused = client.post("/models/en-zh", {"inputs": texts[0], "parameters": {"src_lang": "fr", "tgt_lang": "zh"}})
    assert refused.status == 422 and "'fr'" in refused.json["error"]


@pytest.mark.parametrize("name", ["split", "texts", "call", "self", "nonsense"])
def test_options_of_decoding_are_no_arguments_of_ours(client: AppClient, name: str) -> None:
    got = client.post("/models/en-zh", {"inputs": "a", "parameters": {"generate_parameters": {name: 1}}})
    assert got.status == 422 and f"generate_parameters.{name}" in got.body.decode()


def test_translations_have_an_end(client: AppClient) -> None:
    """A translator that never ends would keep everybody else waiting."""
    for length in (2000, 10**400):
        body = {"inputs": "a", "parameters": {"generate_parameters": {"max_new_tokens": length}}}
        got = client.post("/models/en-zh", body)
        assert got.status == 422 and "max_new_tokens is " in got.body.decode(), got.body
    wrong = client.post("/models/en-zh", {"inputs": "a", "parameters": {"generate_parameters": {"num_beams": "x"}}})
    assert wrong.status == 422 and "command line" not in wrong.body.decode()


def test_text_generation(client: AppClient, served_folders: dict[str, Path]) -> None:
    generator = Generator(served_folders["gpt"])
    prompts = ["the cat", "今天天气"]
    greedy = generator.generate(prompts, GenerateConfig(max_length=6))
    said = client.post("/models/gpt", {"inputs": prompts, "parameters": {"max_new_tokens": 6}}).json
    assert [[one["generated_text"] for one in each] for each in said] == [[one.text for one in each] for each in greedy]
    how: dict[str, Any] = {"max_new_tokens": 6, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "seed": 5}
    config = GenerateConfig(max_length=6, sample=True, temperature=0.7, top_k=9, top_p=0.9, seed=5, n_best=2)
    drawn = generator.generate(prompts[:1], config)[0]
    body = {"inputs": prompts[0], "parameters": how | {"num_return_sequences": 2}}
    assert [one["generated_text"] for one in client.post("/models/gpt", body).json] == [one.text for one in drawn]
    full = client.post("/models/gpt", {"inputs": prompts[0], "parameters": how | {"return_full_text": True}}).json
    single = generator.generate(
        prompts[:1], GenerateConfig(max_length=6, sample=True, temperature=0.7, top_k=9, top_p=0.9, seed=5)
    )
    assert full[0]["generated_text"] == prompts[0] + single[0][0].text


def test_text_generation_in_parts_and_its_end(client: AppClient) -> None:
    how = {"max_new_tokens": 6, "seed": 3, "do_sample": True, "details": True}
    body = {"inputs": "the cat", "parameters": how}
    whole = client.post("/models/gpt", body).json[0]
    events = client.post("/models/gpt", body | {"stream": True}).events
    assert "".join(one["token"]["text"] for one in events) == whole["generated_text"] == events[-1]["generated_text"]
    last = events[-1]["details"]
    assert (last["finish_reason"], last["generated_tokens"], last["seed"]) == ("length", 6, 3)
    assert whole["details"]["finish_reason"] == "length" and whole["details"]["seed"] == 3
    stop = whole["generated_text"][4:6]
    ended = client.post("/models/gpt", {"inputs": "the cat", "parameters": how | {"stop": [stop]}}).json[0]
    assert ended["generated_text"] == whole["generated_text"].partition(stop)[0]
    assert ended["details"]["finish_reason"] == "stop_sequence"
    parts = client.post(
        "/models/gpt", {"inputs": "the cat", "parameters": how | {"stop": [stop]}, "stream": True}
    ).events
    assert parts[-1]["generated_text"] == ended["generated_text"]
    assert "".join(one["token"]["text"] for one in parts) == ended["generated_text"]


def test_without_a_seed_texts_differ(client: AppClient) -> None:
    body = {"inputs": "the cat", "parameters": {"do_sample": True, "max_new_tokens": 12}}
    assert len({client.post("/models/gpt", body).body for _ in range(4)}) > 1


def test_what_a_model_is(client: AppClient) -> None:
    info = client.get("/models/topics/info").json
    assert info["labels"] == ["animal", "place"] and info["tasks"][0] == "text-classification"
    assert client.get("/models/topics").json == info and info["id"] == "topics"
    assert client.get("/models/topics/health").status == 200
    assert client.get("/models/nothing/health").status == 404


def test_the_first_model_is_at_the_root(client: AppClient) -> None:
    body = {"inputs": "a [MASK]"}
    assert client.post("/", body).json == client.post("/models/mini", body).json


@pytest.mark.parametrize(
    ("name", "body", "named"),
    [
        ("ner", {"inputs": "a", "parameters": {"stride": 3}}, "parameters.stride"),
        ("squad", {"inputs": {"question": "a", "context": "a"}, "parameters": {"doc_stride": 3}}, "doc_stride"),
        ("squad", {"inputs": {"question": "a", "context": "a"}, "parameters": {"max_answer_len": 3}}, "max_answer_len"),
        ("squad", {"inputs": {"question": "a"}}, "inputs.context"),
        ("squad", {"inputs": [{"question": "a", "context": 3}]}, "inputs[0].context"),
        ("topics", {"inputs": "a", "parameters": {"top_n": 3}}, "Did you mean 'top_k'"),
        ("topics", {"inputs": "a", "parameter": {}}, "Did you mean 'parameters'"),
        ("topics", {"inputs": "a", "parameters": {"top_k": 0}}, "parameters.top_k"),
        ("topics", {"inputs": "a", "parameters": {"top_k": True}}, "whole number"),
        ("topics", {"inputs": "a", "parameters": []}, "an object"),
        ("topics", {"inputs": {"text": "a", "text_pear": "b"}}, "text_pair"),
        ("topics", {"inputs": [["a", "b", "c"]]}, "a pair has two"),
        ("topics", {"inputs": 7}, "'inputs' is 7"),
        ("topics", {"inputs": ["a", None]}, "inputs[1]"),
        ("topics", {}, "'inputs' is missing"),
        ("mini", {"inputs": "no blank"}, "[MASK]"),
        ("quiz", {"inputs": {"question": "a", "choices": ["one"]}}, "inputs.choices"),
        ("gpt", {"inputs": "a", "parameters": {"watermark": True}}, "watermark"),
        (
            "gpt",
            {"inputs": "a", "parameters": {"do_sample": False, "temperature": 0.3}},
            "add do_sample, or leave temperature out",
        ),
        ("gpt", {"inputs": ["a", "b"], "stream": True}, "'stream'"),
        ("gpt", {"inputs": "a", "parameters": {"max_new_tokens": 5000}}, "Set max_new_tokens to"),
        ("en-zh", {"inputs": "a", "parameters": {"generate_parameters": {"num_beam": 3}}}, "num_beam"),
        ("sentences", {"inputs": "a", "prompt_name": "query"}, "prompt_name"),
        ("topics/pipeline/translation", {"inputs": "a"}, "Ask en-zh or zh-en"),
        ("topics/pipeline/poetry", {"inputs": "a"}, "No model here does"),
    ],
)
def test_nothing_is_ignored_in_silence(client: AppClient, name: str, body: dict[str, Any], named: str) -> None:
    got = client.post(f"/models/{name}", body)
    assert got.status == 422, got.body
    assert named in got.json["error"] and list(got.json) == ["error"]
    assert str(client.models["mini"].facts.path.parent) not in got.json["error"]


def test_names_of_folders_stay_here(client: AppClient) -> None:
    got = client.post("/models/gpt", {"inputs": "a " * 500})
    assert got.status == 422 and "the model of gpt reads" in got.json["error"]
