"""The routes of TEI, Jina, Cohere and LibreTranslate, and of operation."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.api.translator import load_translator
from qkv.serve.routes.exchange import reply_list, reply_lists
from tests.support.served_models import AppClient

TEXTS = ["a cat", "他在北京。", "a " * 300]
TIMES = "x-compute-time x-total-time x-tokenization-time x-queue-time x-inference-time".split()


def test_embed(client: AppClient, served_folders: dict[str, Path]) -> None:
    model = qkv.load(served_folders["sentences"])  # made for vectors, and not the first
    got = client.post("/embed", {"inputs": TEXTS})
    assert np.array_equal(np.array(got.json, np.float32), model.embed(TEXTS, normalize=True).vectors)
    assert got.headers["x-compute-type"] == "cpu" and all(got.headers[name].isdecimal() for name in TIMES)
    assert got.headers["x-compute-characters"] == str(sum(map(len, TEXTS)))
    assert got.headers["x-compute-tokens"] == str(client.log["tokens"]) and client.log["model"] == "sentences"
    plain = client.post("/embed", {"inputs": TEXTS[0], "normalize": False, "truncate": True}).json
    assert np.array_equal(np.array(plain, np.float32), model.embed(TEXTS[:1], normalize=False).vectors)
    left, right = (
        client.post("/embed", {"inputs": "cat " + "a " * 99 + "dog", "truncate": True, "truncation_direction": side})
        for side in ("left", "Right")
    )
    assert left.json != right.json and left.headers["x-qkv-truncated"] == "true"
    named = client.post("/embed", {"inputs": TEXTS, "model": "sentences", "dimensions": 16}).json
    assert np.array(named).shape == (3, 16)


def test_embed_all(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["mini"]).embed_tokens(TEXTS)
    said = client.post("/embed_all", {"inputs": TEXTS}).json
    assert all(
        np.array_equal(np.array(one, np.float32), found.vectors) for one, found in zip(said, expected, strict=True)
    )


@pytest.mark.parametrize("nested", [False, True])
def test_long_answers_leave_turns_to_others(nested: bool) -> None:
    """Also while the client reads as fast as the server writes."""
    items, parts, turns = list(range(5000)), list[bytes](), list[int]()
    lists = [items[:3000], [], items[3000:]]

    def write(one: int) -> list[int]:
        return [one] * 32

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def take_turns() -> None:
        while True:
            turns.append(len(parts))
            await asyncio.sleep(0)

    async def answer() -> None:
        others = asyncio.create_task(take_turns())
        response = reply_lists(lists, write, 32) if nested else reply_list(items, write, 32)
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        others.cancel()

    asyncio.run(answer())
    expected = [[write(one) for one in some] for some in lists] if nested else [write(one) for one in items]
    assert json.loads(b"".join(parts)) == expected
    assert len(parts) > 9 and len(set(turns)) > len(parts) - 4 and max(map(len, parts)) < 200_000


def test_predict(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["topics"]).predict(TEXTS)
    said = client.post("/predict", {"inputs": [[text] for text in TEXTS]}).json
    assert [one[0]["score"] for one in said] == [one.probability for one in expected]
    alone = client.post("/predict", {"inputs": TEXTS[0]}).json
    assert [one["label"] for one in alone] == list(expected[0].probabilities)
    pair = client.post("/predict", {"inputs": ["a cat", "a dog"], "model": "pairs"}).json
    (result,) = qkv.load(served_folders["pairs"]).predict([("a cat", "a dog")])
    assert pair[0]["score"] == result.probability
    raw = client.post("/predict", {"inputs": TEXTS[0], "raw_scores": True}).json
    assert sum(one["score"] for one in raw) != pytest.approx(1)


def test_rerank_by_pairs_and_by_vectors(client: AppClient, served_folders: dict[str, Path]) -> None:
    body: dict[str, Any] = {"query": "cat", "texts": ["a dog", "猫", "a cat"], "return_text": True}
    said = client.post("/rerank", body).json
    pairs = qkv.load(served_folders["pairs"]).predict([("cat", text) for text in ["a dog", "猫", "a cat"]])
    assert {one["index"]: one["score"] for one in said} == {at: one.probabilities["1"] for at, one in enumerate(pairs)}
    assert [one["score"] for one in said] == sorted((one["score"] for one in said), reverse=True)
    assert all(one["text"] == body["texts"][one["index"]] for one in said)
    cosine = qkv.load(served_folders["sentences"]).embed(["cat", *body["texts"]]).similarity()[0, 1:]
    by_vectors = client.post("/rerank", body | {"model": "sentences"}).json
    assert {one["index"]: one["score"] for one in by_vectors} == pytest.approx(
        {at: float(one) for at, one in enumerate(cosine)}, abs=1e-6
    )
    raw = client.post("/rerank", body | {"raw_scores": True}).json
    assert {one["index"] for one in raw} == {0, 1, 2} and raw != said


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_rerank_of_jina_and_cohere(client: AppClient, path: str) -> None:
    documents = ["a dog", {"text": "猫"}, "a cat"]
    body = {"model": "pairs", "query": "cat", "documents": documents}
    said = client.post(path, body | {"top_n": 2}).json
    tei = client.post("/rerank", {"query": "cat", "texts": ["a dog", "猫", "a cat"]}).json
    results = [(one["index"], one["relevance_score"]) for one in said["results"]]
    assert results == [(one["index"], one["score"]) for one in tei[:2]]
    assert said["model"] == "pairs" and said["usage"]["total_tokens"] > 0
    assert ("document" in said["results"][0]) == (path != "/v2/rerank") and ("meta" in said) == (path == "/v2/rerank")
    bare = client.post(path, body | {"return_documents": path == "/v2/rerank"}).json["results"]
    assert all(("document" in one) == (path == "/v2/rerank") for one in bare)
    cut = client.post(path, body | {"documents": ["a cat on the mat", "a dog"], "max_tokens_per_doc": 2}).json
    whole = client.post(path, body | {"documents": ["a cat", "a dog"]}).json
    assert [one["relevance_score"] for one in cut["results"]] == [one["relevance_score"] for one in whole["results"]]
    assert cut["truncated"] is True


def test_similarity(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = qkv.load(served_folders["mini"]).embed(TEXTS).similarity()[0, 1:]
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    assert client.post("/similarity", {"inputs": inputs}).json == pytest.approx(expected.tolist(), abs=1e-6)


def test_tokens_there_and_back(client: AppClient) -> None:
    text = "The cat 猫 sat."
    (tokens,) = client.post("/tokenize", {"inputs": text}).json
    assert tokens[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert [text[one["start"] : one["stop"]] for one in tokens[1:-1]] == [one["text"] for one in tokens[1:-1]]
    assert client.post("/tokenize", {"inputs": text, "add_special_tokens": False}).json == [tokens[1:-1]]
    ids = [one["id"] for one in tokens]
    assert client.post("/decode", {"ids": ids}).json == ["the cat 猫 sat."]
    assert client.post("/decode", {"ids": [ids, ids[:2]], "skip_special_tokens": False}).json[1] == "[CLS] the"


def test_more_tokens_than_the_server_takes(client: AppClient) -> None:
    got = client.post("/tokenize", {"inputs": "a " * 140_000})
    assert got.status == 422 and "131,072 tokens" in got.json["error"]
    assert len(client.post("/tokenize", {"inputs": "a " * 9000}).json[0]) == 9002
    got = client.post("/decode", {"ids": [5] * 140_000})
    assert got.status == 422 and "140,000 tokens" in got.json["error"]
    assert client.post("/decode", {"ids": [[5] * 9000]}).status == 200


def test_info(client: AppClient) -> None:
    info = client.get("/info").json
    assert info["model_type"] == {"embedding": {"pooling": "mean"}} and info["auto_truncate"] is False
    assert info["max_client_batch_size"] * info["max_input_length"] <= info["max_queue_tokens"]
    labels = client.get("/info?model=topics").json["model_type"]["classifier"]
    assert labels == {"id2label": {"0": "animal", "1": "place"}, "label2id": {"animal": 0, "place": 1}}
    assert info["model_id"] == "mini" and info["max_input_length"] == 64 and "topics" in info["models"]
    assert client.get("/info?model=gpt").json["model_id"] == "gpt"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/embed", {"inputs": []}, 400, {"error_type": "Empty"}),
        ("/embed", {"inputs": " "}, 400, {"error_type": "Empty"}),
        ("/embed", {"inputs": 3}, 422, {"error_type": "Validation"}),
        ("/embed", {"inputs": "a", "prompt_name": "q"}, 422, {"error_type": "Validation"}),
        ("/embed", {"inputs": "a", "model": "x"}, 404, {"error_type": "Validation"}),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, {"error_type": "Validation"}),
        ("/predict", {"inputs": ["a", "b"]}, 422, {"error_type": "Validation"}),  # topics reads no pairs
        ("/decode", {"ids": [-1]}, 422, {"error_type": "Validation"}),
        ("/decode", {"ids": [1 << 40]}, 422, {"error_type": "Validation"}),
        ("/rerank", {"query": "a"}, 422, {"error_type": "Validation"}),
        ("/rerank", {"query": "a", "documents": []}, 400, {}),
        ("/rerank", {"query": "a", "texts": ["a"], "model": "en-zh"}, 422, {"error_type": "Validation"}),
        ("/translate", {"q": "a", "target": "fr", "source": "en"}, 400, {}),
        ("/translate", {"q": "a", "source": "en"}, 400, {}),
        ("/translate", {"q": "<p>a</p>", "target": "zh", "format": "html"}, 400, {}),
    ],
)
def test_refusals(client: AppClient, path: str, body: dict[str, Any], status: int, said: dict[str, str]) -> None:
    got = client.post(path, body)
    assert got.status == status, got.body
    assert said.items() <= got.json.items()
    message = got.json.get("error") or got.json.get("detail")
    assert isinstance(message, str) and message.endswith(".")


def test_translate(client: AppClient, served_folders: dict[str, Path]) -> None:
    expected = load_translator(served_folders["en-zh"]).translate(["a cat sat"])[0].text
    body = {"q": "a cat sat", "source": "en", "target": "zh"}
    assert client.post("/translate", body).json == {"translatedText": expected}
    detected = {"confidence": 100.0, "language": "en"}
    auto = client.post("/translate", body | {"source": "auto", "api_key": "-"}).json
    assert auto == {"translatedText": expected, "detectedLanguage": detected}
    form = b"q=a+cat+sat&source=en&target=zh&alternatives=2&format=text"
    posted = client.post("/translate", form, content_type="application/x-www-form-urlencoded").json
    assert len(posted["alternatives"]) == 2 and posted["translatedText"]
    mixed = client.post("/translate", {"q": ["a cat sat", "猫", "3", ""], "source": "auto", "target": "zh"}).json
    assert mixed["translatedText"][0] == expected and mixed["translatedText"][1] == "猫"
    assert mixed["translatedText"][3] == "" and mixed["detectedLanguage"][1]["language"] == "zh"
    back = load_translator(served_folders["zh-en"]).translate(["一只猫"])[0].text
    assert client.post("/translate", {"q": "一只猫", "target": "en"}).json["translatedText"] == back


def test_languages(client: AppClient) -> None:
    said = client.get("/languages").json
    assert {one["code"]: sorted(one["targets"]) for one in said} == {"en": ["en", "zh"], "zh": ["en", "zh"]}
    assert client.post("/detect", {"q": "猫在这里 ok"}).json[0]["language"] == "zh"
    assert client.post("/detect", b"q=the+cat").json == [{"confidence": 100.0, "language": "en"}]
    assert client.post("/detect", {"q": "123"}).json == []


def test_health(client: AppClient) -> None:
    models = client.models
    assert client.get("/livez").json == {"status": "alive"}
    for path in ("/readyz", "/health", "/ping"):
        assert client.get(path).json == {"status": "ready"}
    try:
        models.ready = False
        assert client.get("/readyz").status == 503 and client.get("/livez").status == 200
        assert client.get("/models/mini/health").status == 503
        models.ready, models.draining = True, True
        assert client.get("/health").json == {"status": "draining"}
    finally:
        models.ready, models.draining = True, False
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain") and b"qkv_batch_tokens" in metrics.body
