"""Refusals in the convention of each family, whoever refuses (guard, body, fields, queue); pages of other origins."""

import json
import time
from typing import Any

import pytest

from qkv.serve.fields import parse_form
from qkv.serve.served import Models, OverloadedError, UnavailableError
from tests.support.served_models import AppClient, Got

PATHS = {
    "hf": "/models/topics",
    "openai": "/v1/embeddings",
    "tei": "/embed",
    "jina": "/v1/rerank",
    "cohere": "/v2/rerank",
    "libre": "/translate",
}
GOOD: dict[str, dict[str, Any]] = {
    "hf": {"inputs": "a"},
    "openai": {"input": "a"},
    "tei": {"inputs": "a"},
    "jina": {"query": "a", "documents": ["a"]},
    "cohere": {"query": "a", "documents": ["a"]},
    "libre": {"q": "a", "source": "en", "target": "zh"},
}


def sentence(family: str, got: Got) -> str:
    """The message of a refusal, whose body has just the fields of the convention."""
    body = got.json
    if family == "openai":
        assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
        return str(body["error"]["message"])
    keys = {
        "hf": {"error"},
        "tei": {"error", "error_type"},
        "jina": {"detail"},
        "cohere": {"message"},
        "libre": {"error"},
    }
    assert set(body) == keys[family], body
    return str(body[min(keys[family])])


@pytest.mark.parametrize("family", PATHS)
def test_before_a_request_is_routed(served_models: Models, client: AppClient, family: str) -> None:
    path, body = PATHS[family], json.dumps(GOOD[family]).encode()
    assert client.post(path, body).status == 200
    locked = AppClient(served_models, token="open-sesame")
    missing = locked.post(path, body)
    if family == "libre":  # its clients send the token as a field
        assert missing.status == 403 and "API key" in sentence(family, missing)
    else:
        assert missing.status == 401 and missing.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer" in sentence(family, missing)
    assert locked.post(path, body, authorization="Bearer open-sesame").status == 200
    assert client.post(path, body, authorization="Bearer anything").status == 200  # no token is needed here
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-encoding": "gzip"}, 415),
    ):
        got = client.ask("POST", path, body, headers=headers)
        assert got.status == status and sentence(family, got).endswith(".")
    for method in ("PUT", "DELETE"):
        wrong = client.ask(method, path, body)
        assert wrong.status == 405 and "POST" in wrong.headers["allow"] and sentence(family, wrong)
        assert ("GET" in wrong.headers["allow"]) == (family == "hf")
    assert client.ask("DELETE", "/nothing/there", body).status == 404
    assert client.ask("TRACE", path, body).status == 501
    assert client.get(path).status == (200 if family == "hf" else 405)


@pytest.mark.parametrize("family", PATHS)
def test_bodies(served_models: Models, family: str) -> None:
    client = AppClient(served_models, max_body=2000)
    path, body = PATHS[family], json.dumps(GOOD[family]).encode()
    assert client.ask("POST", path, body, chunked=True).status == 200
    for chunked in (False, True):
        large = client.ask("POST", path, b'{"inputs": "' + b"a" * 5000 + b'"}', chunked=chunked)
        assert large.status == 413 and "2,000" in sentence(family, large)
        assert large.headers["connection"] == "close"
    both = client.ask("POST", path, body, chunked=True, headers={"content-length": str(len(body))})
    assert both.status == 400 and sentence(family, both)


@pytest.mark.parametrize("family", PATHS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"{", "line 1, column 2"),
        (b'{"inputs": "\xff"}', "UTF-8: byte 12"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b'{"inputs": NaN}', "NaN"),
        (b'{"parameters": {"temperature": -Infinity}}', "-Infinity"),
        (b'{"inputs": "\\ud800"}', "surrogate"),
        (b'["a"]', "a list"),
        (b"{" * 100_000, "not JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"inputs": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_what_is_no_json(client: AppClient, family: str, body: bytes, words: str) -> None:
    got = client.post(PATHS[family], body)
    said = sentence(family, got)
    assert got.status == 400 and words in said and said.endswith(".") and len(said) < 200, said


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/completions", {"prompt": "a", "max_tokens": 10**400}, "'max_tokens' is 1000"),
        ("/v1/completions", {"prompt": "a", "temperature": 10**400}, "'temperature' is 1000"),
        ("/embed", {"inputs": "a", "x" * 100_000: 1}, "Unknown field 'xxx"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "x" * 100_000}, "'encoding_format' is"),
        ("/translate", b"q=a&target=zh&alternatives=" + b"9" * 5000, "whole number"),
    ],
)
def test_values_of_any_size(client: AppClient, path: str, body: Any, words: str) -> None:
    got = client.post(path, body)
    assert got.status in (400, 422) and words in got.body.decode() and len(got.body) < 400, got.body


def test_a_form_of_many_fields_is_read_at_once() -> None:
    begin = time.perf_counter()
    assert parse_form(b"&".join([b"q=a"] * 200_000))["q"] == ["a"] * 200_000
    assert time.perf_counter() - begin < 10  # each field once: a quadratic reader takes minutes


@pytest.mark.parametrize("family", PATHS)
def test_fields(client: AppClient, family: str) -> None:
    invalid = 422 if family in ("hf", "tei", "jina") else 400
    name = next(iter(GOOD[family]))
    for value, status in ((None, invalid), (3, invalid), ({}, invalid), (True, invalid), ("  ", 400)):
        if family == "libre" and value == "  ":
            continue  # nothing to translate is translated to nothing
        got = client.post(PATHS[family], GOOD[family] | {name: value})
        assert got.status == status and f"'{name}" in sentence(family, got), got.body
    unknown = client.post(PATHS[family], GOOD[family] | {"nonsense": 1})
    assert unknown.status == invalid and "nonsense" in sentence(family, unknown)
    if family not in ("hf", "libre"):
        missing = client.post(PATHS[family], GOOD[family] | {"model": "nowhere"})
        assert missing.status == 404 and "topics" in sentence(family, missing)
    assert client.post("/models/nowhere", {"inputs": "a"}).status == 404


@pytest.mark.parametrize("family", PATHS)
def test_load(client: AppClient, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def overloaded(*given: Any, **named: Any) -> Any:
        raise OverloadedError("The server is overloaded. Try again later.", 2.3)

    async def stopping(*given: Any, **named: Any) -> Any:
        raise UnavailableError("The server is stopping.")

    async def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError("secret detail")

    def asked(answer: Any) -> Got:
        for served in client.models:
            for name in ("predict", "embed", "translate"):
                monkeypatch.setattr(served, name, answer)
        return client.post(PATHS[family], GOOD[family])

    busy = asked(overloaded)
    assert busy.status == 429 and "overloaded" in sentence(family, busy)
    assert busy.headers["retry-after"] == "3" and busy.headers["retry-after-ms"] == "2300"
    gone = asked(stopping)
    assert gone.status == 503 and sentence(family, gone) == "The server is stopping."
    monkeypatch.setattr("traceback.print_exception", lambda error: None)
    fault = asked(broken)
    assert fault.status == 500 and "bug in qkv" in sentence(family, fault) and b"secret" not in fault.body


@pytest.mark.parametrize("family", PATHS)
def test_more_text_than_could_be_queued(client: AppClient, family: str) -> None:
    """Refused before it is tokenized, which would take seconds."""
    name = next(name for name, value in GOOD[family].items() if value == "a")
    got = client.post(PATHS[family], GOOD[family] | {name: "a b " * 1_900_000})
    assert got.status == (422 if family in ("hf", "tei", "jina") else 400)
    assert "7,600,0" in sentence(family, got) and "1,048,576" in sentence(family, got)


def test_paths_without_a_route(client: AppClient) -> None:
    assert client.post("/v1/chat/completions", {}).json["error"]["code"] == "no_page"
    assert "error" in client.post("/models/topics/pipeline", {"inputs": "a"}).json
    assert client.get("/nothing").json["error_type"] == "Validation"
    other = client.get("/embed")
    assert other.status == 405 and other.headers["allow"] == "POST" and "takes POST" in other.json["error"]


def test_the_key_of_libretranslate_is_the_token(served_models: Models) -> None:
    locked = AppClient(served_models, token="open-sesame")
    body = GOOD["libre"] | {"api_key": "open-sesame"}
    assert locked.post("/translate", body).status == 200
    assert locked.post("/translate", b"q=a&source=en&target=zh&api_key=open-sesame").status == 200
    assert locked.post("/detect", {"q": "a", "api_key": "open-sesame"}).status == 200
    assert locked.get("/languages").status == 200
    for wrong in ({"api_key": "sesame"}, {"api_key": None}, {"api_key": ["open-sesame"]}, {"token": "open-sesame"}):
        assert locked.post("/translate", GOOD["libre"] | wrong).status == 403
    assert locked.post("/embed", GOOD["tei"] | {"api_key": "open-sesame"}).status == 401
    assert locked.get("/translate").status == 401


def test_health_needs_no_token(served_models: Models) -> None:
    locked = AppClient(served_models, token="open-sesame")
    assert locked.get("/livez").status == locked.get("/readyz").status == 200
    assert locked.get("/metrics").status == 401
    assert locked.get("/metrics", authorization="Bearer open-sesame").status == 200


def test_pages_of_other_origins(served_models: Models) -> None:
    page = "https://lab.example"
    client = AppClient(served_models, token="open-sesame", allow_origins=("https://lab.example/", "http://a:3000"))
    asks = {"origin": page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    leave = client.ask("OPTIONS", "/v1/embeddings", headers=asks)
    assert leave.status == 204 and leave.headers["access-control-allow-origin"] == page
    assert (
        leave.headers["access-control-allow-headers"] == "authorization"
        and "POST" in (leave.headers["access-control-allow-methods"])
    )
    said = {"origin": page, "sec-fetch-site": "cross-site", "authorization": "Bearer open-sesame"}
    answer = client.ask("POST", "/v1/embeddings", b'{"input": "a"}', headers=said)
    assert answer.status == 200 and answer.headers["access-control-allow-origin"] == page
    assert "Origin" in answer.headers["vary"]
    refused = client.ask("POST", "/v1/embeddings", b'{"input": "a"}', headers={"origin": page})
    assert refused.status == 401 and refused.headers["access-control-allow-origin"] == page
    for other in ("https://evil.example", "https://lab.example.evil", "null"):
        for method in ("OPTIONS", "POST"):
            got = client.ask(method, "/v1/embeddings", headers=said | {"origin": other})
            assert got.status == 403 and "access-control-allow-origin" not in got.headers
    closed = AppClient(served_models)
    assert closed.ask("OPTIONS", "/v1/embeddings", headers=asks).status == 405


def test_what_the_log_is_told(client: AppClient) -> None:
    client.post("/models/topics", {"inputs": "a " * 300})
    assert client.log["model"] == "topics" and client.log["route"] == "/models/{name:path}"
    assert client.log["tokens"] > 300 and client.log["windows"] > 1
    client.post("/models/nowhere", {"inputs": "a"})
    assert "model" not in client.log and client.log["tokens"] == 0
