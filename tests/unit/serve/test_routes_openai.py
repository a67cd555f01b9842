"""OpenAI's shapes: vectors as numbers and in base64, token ids, completions whole and in parts, refusals."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.api.generator import Generator
from qkv.search.options import GenerateConfig
from tests.support.folders import TOKENS
from tests.support.served_models import AppClient

TEXTS = ["a cat", "他在北京。", "a " * 300]


def unpacked(data: list[dict[str, Any]]) -> Any:
    return np.stack([np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in data])


def test_vectors_in_both_encodings(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["mini"]).embed(TEXTS, normalize=True)
    body = {"model": "mini", "input": TEXTS, "user": "somebody"}
    said = client.post("/v1/embeddings", body).json
    assert said["object"] == "list" and said["model"] == "mini"
    assert [(one["object"], one["index"]) for one in said["data"]] == [("embedding", at) for at in range(3)]
    assert np.array_equal(np.array([one["embedding"] for one in said["data"]], np.float32), expected.vectors)
    n_tokens = int(expected.n_tokens.sum())
    assert said["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    assert said["n_windows"] == int(expected.n_windows.sum()) and said["truncated"] is False
    packed = client.post("/embeddings", body | {"encoding_format": "base64"}).json
    assert np.array_equal(unpacked(packed["data"]), expected.vectors)
    cut = client.post("/v1/embeddings", body | {"truncate": True}).json
    assert cut["truncated"] is True and cut["n_windows"] == 3


def test_token_ids(client: AppClient) -> None:
    tokens = client.models["mini"].tokenize(TEXTS[:2], special=False)
    by_text = client.post("/v1/embeddings", {"input": TEXTS[:2], "encoding_format": "base64"}).json["data"]
    by_ids = client.post("/v1/embeddings", {"input": [one.ids for one in tokens], "encoding_format": "base64"}).json
    assert by_ids["data"] == by_text
    one = client.post("/v1/embeddings", {"input": tokens[0].ids}).json["data"]
    assert len(one) == 1 and one[0]["embedding"] == pytest.approx(unpacked(by_text)[0].tolist(), abs=1e-6)


def test_many_texts_are_answered_in_parts(client: AppClient) -> None:
    texts = [f"{number} cat" for number in range(2500)]
    said = client.post("/v1/embeddings", {"input": texts, "model": "mini"}).json
    assert [one["index"] for one in said["data"]] == list(range(2500))
    listed = client.post("/models/mini/pipeline/feature-extraction", {"inputs": texts, "normalize": True}).json
    assert listed == [one["embedding"] for one in said["data"]]


def test_more_tokens_than_the_queue_holds(client: AppClient) -> None:
    got = client.post("/v1/embeddings", {"input": ["a cat"] * 100_000, "model": "mini"})
    assert got.status == 400 and "131,072 (--max-queue-tokens)" in got.json["error"]["message"]


def test_completions(client: AppClient, served_folders: dict[str, Path]) -> None:
    generator = Generator(served_folders["gpt"])
    prompts = ["the cat", "今天天气"]
    config = GenerateConfig(max_length=16, sample=True, seed=4, n_best=2, top_p=0.9)
    expected = generator.generate(prompts, config)
    said = client.post("/v1/completions", {"model": "gpt", "prompt": prompts, "n": 2, "seed": 4, "top_p": 0.9}).json
    assert said["object"] == "text_completion" and said["id"].startswith("cmpl-")
    assert [one["text"] for one in said["choices"]] == [one.text for each in expected for one in each]
    assert [one["index"] for one in said["choices"]] == [0, 1, 2, 3]
    read = sum(each[0].n_prompt_tokens for each in expected)
    written = sum(one.n_tokens for each in expected for one in each)
    assert said["usage"] == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    greedy = client.post("/v1/completions", {"prompt": "the cat", "temperature": 0, "echo": True, "max_tokens": 5}).json
    one = generator.generate(["the cat"], GenerateConfig(max_length=5))[0][0]
    assert greedy["choices"][0] == {
        "index": 0,
        "text": "the cat" + one.text,
        "logprobs": None,
        "finish_reason": "length",
    }
    best = client.post("/v1/completions", {"prompt": prompts[0], "best_of": 2, "seed": 4, "top_p": 0.9}).json
    assert [one["text"] for one in best["choices"]] == [expected[0][0].text]


def test_prompts_as_token_ids(client: AppClient) -> None:
    ids = client.models["gpt"].tokenize(["the cat"], special=False)[0].ids
    body = {"temperature": 0, "max_tokens": 4}
    by_text = client.post("/v1/completions", body | {"prompt": "the cat"}).json
    assert client.post("/v1/completions", body | {"prompt": ids}).json["choices"] == by_text["choices"]
    assert (
        client.post("/v1/completions", body | {"prompt": [ids, ids]}).json["choices"][1]["text"]
        == (by_text["choices"][0]["text"])
    )


def test_completions_in_parts(client: AppClient) -> None:
    body = {"prompt": ["the cat", "今天"], "seed": 2, "max_tokens": 6, "echo": True}
    whole = client.post("/v1/completions", body).json
    asked = body | {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = client.post("/v1/completions", asked).events
    texts = ["", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        assert chunk["object"] == "text_completion" and chunk["usage"] is None
    assert texts == [one["text"] for one in whole["choices"]] and done == "[DONE]"
    assert usage["choices"] == [] and usage["usage"] == whole["usage"]
    several = client.post("/v1/completions", {"prompt": "a", "n": 2, "seed": 1, "stream": True}).events[:-1]
    assert [one["choices"][0]["index"] for one in several] == [0, 1]
    assert all(one["choices"][0]["finish_reason"] for one in several)


def test_stops(client: AppClient) -> None:
    body = {"prompt": "the cat", "seed": 2, "max_tokens": 12}
    text = client.post("/v1/completions", body).json["choices"][0]["text"]
    stop = text[5:7]
    ended = client.post("/v1/completions", body | {"stop": stop}).json["choices"][0]
    assert ended["text"] == text.partition(stop)[0] and ended["finish_reason"] == "stop"
    events = client.post("/v1/completions", body | {"stop": ["never", stop], "stream": True}).events[:-1]
    assert "".join(one["choices"][0]["text"] for one in events) == ended["text"]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_models(client: AppClient) -> None:
    said = client.get("/v1/models").json
    assert said["object"] == "list" and [one["id"] for one in said["data"]] == list(client.models.names)
    assert client.get("/models").json == said
    assert client.get("/v1/models/gpt").json == next(one for one in said["data"] if one["id"] == "gpt")
    assert client.get("/v1/models/gtp").status == 404


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        ("embeddings", {"input": ""}, "input", "empty"),
        ("embeddings", {"input": []}, "input", "empty list"),
        ("embeddings", {"input": ["a", " "]}, "input[1]", "empty"),
        ("embeddings", {"input": [[1, 2], []]}, "input[1]", "token ids"),
        ("embeddings", {"input": [[1, "a"]]}, "input[0]", "token ids"),
        ("embeddings", {"input": [1, -2]}, "input[0]", "a text"),
        ("embeddings", {"input": [10_000]}, None, "tokens 0"),
        ("embeddings", {}, "input", "missing"),
        ("embeddings", {"input": "a", "encoding_format": "bytes"}, "encoding_format", "base64"),
        ("embeddings", {"model": "mini", "input": "a", "dimensions": 8}, "dimensions", "not trained for fewer"),
        ("embeddings", {"input": "a", "dimension": 8}, "dimension", "Did you mean 'dimensions'"),
        ("embeddings", {"input": "a", "model": "en-zh"}, "model", "does translation"),
        ("completions", {"prompt": "a", "logprobs": 2}, "logprobs", "not kept"),
        ("completions", {"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ("completions", {"prompt": "a", "frequency_penalty": 0.5}, "frequency_penalty", "repetition_penalty"),
        ("completions", {"prompt": "a", "temperature": -1}, "temperature", "from 0"),
        ("completions", {"prompt": "a", "temperature": 0, "n": 2}, "n", "one text"),
        ("completions", {"prompt": "a", "n": 3, "best_of": 2}, "best_of", "best n"),
        ("completions", {"prompt": "a", "stop": ["a"] * 5}, "stop", "4 at most"),
        ("completions", {"prompt": {}}, "prompt", "token ids"),
        ("completions", {"prompt": [TOKENS.index("##s")]}, "prompt", "Send the text"),
        ("completions", {"prompt": "a", "max_tokens": 9000}, None, "Set max_tokens to"),
    ],
)
def test_refusals(client: AppClient, path: str, body: dict[str, Any], param: str | None, words: str) -> None:
    got = client.post(f"/v1/{path}", body)
    error = got.json["error"]
    assert got.status == 400 and set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error" and error["param"] == param
    assert words in error["message"], error


def test_a_model_that_is_not_there(client: AppClient) -> None:
    got = client.post("/v1/embeddings", {"input": "a", "model": "topic"})
    error = got.json["error"]
    assert got.status == 404 and error["code"] == "model_not_found" and error["param"] == "model"
    assert "Did you mean 'topics'?" in error["message"] and "en-zh" in error["message"]


def test_an_error_before_the_first_part_has_its_status(client: AppClient) -> None:
    got = client.post("/v1/completions", {"prompt": "a " * 500, "stream": True})
    assert got.status == 400 and "at most" in got.json["error"]["message"]
