"""The clients that people have, unchanged, against a server in this process: their answers are those of the library.

openai and huggingface_hub are the official packages; TEI, Jina and LibreTranslate have no client that is more than a
request, so that a plain one is sent as theirs send it. No network but loopback, zh and en.
"""

import http.client
import json
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

import qkv
from qkv.api.generator import Generator
from qkv.api.translator import load_translator
from qkv.search.options import GenerateConfig
from qkv.serve.listen import Server
from qkv.serve.routes import build_models_app
from qkv.serve.served import OverloadedError
from tests.support.look_server import running
from tests.support.served_models import make_served_folders, open_served

ENGLISH, CHINESE = "The cat sat on the mat.", "他在北京爱上了一只猫。"
BOTH = [ENGLISH, CHINESE]
TOKEN = "open-sesame"

Folders = dict[str, Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return make_served_folders(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(folders: Folders) -> Iterator[Server]:
    with open_served(folders) as models:
        server = Server(
            (), make_app=lambda token, cookie: build_models_app(models, models.settings, token, cookie), token=TOKEN
        )
        with running(server):
            yield server


@pytest.fixture
def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


# openai


@pytest.fixture
def official(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN) as client:
        yield client


def test_openai_embeddings(official: openai.OpenAI, folders: Folders) -> None:
    expected = qkv.load(folders["sentences"]).embed(BOTH).vectors
    options: tuple[dict[str, Any], ...] = ({}, {"encoding_format": "float"}, {"encoding_format": "base64"})
    for how in options:
        found = official.embeddings.create(
            model="sentences", input=BOTH, **how
        )  # base64, unless something else is said
        vectors = [one.embedding for one in found.data]
        if "base64" not in how.values():
            assert np.array_equal(np.array(vectors, np.float32), expected)
        assert found.usage.total_tokens == found.usage.prompt_tokens > 0 and found.model == "sentences"
    short = official.embeddings.create(model="sentences", input=CHINESE, dimensions=16).data[0].embedding
    assert len(short) == 16


def test_openai_embeddings_of_token_ids(official: openai.OpenAI, folders: Folders) -> None:
    model = qkv.load(folders["sentences"])
    ids = model.tokenizer.encode_ids(BOTH)
    found = official.embeddings.create(model="sentences", input=ids)
    assert np.array_equal(np.array([one.embedding for one in found.data], np.float32), model.embed(BOTH).vectors)
    single = official.embeddings.create(model="sentences", input=ids[0])
    assert len(single.data) == 1


def test_openai_completions(official: openai.OpenAI, folders: Folders) -> None:
    generator = Generator(folders["gpt"])
    for prompt in ("the cat", "今天天气"):
        config = GenerateConfig(max_length=8, sample=True, temperature=0.8, seed=7)
        (expected,) = generator.generate([prompt], config)[0]
        how: dict[str, Any] = {"model": "gpt", "prompt": prompt, "max_tokens": 8, "temperature": 0.8, "seed": 7}
        whole = official.completions.create(**how)
        assert whole.choices[0].text == expected.text and whole.choices[0].finish_reason in ("stop", "length")
        assert whole.usage is not None and whole.usage.completion_tokens == expected.n_tokens
        parts = list(official.completions.create(**how, stream=True, stream_options={"include_usage": True}))
        assert "".join(one.choices[0].text for one in parts[:-1]) == expected.text
        assert parts[-1].usage == whole.usage and not parts[-1].choices


def test_openai_models_and_errors(official: openai.OpenAI, url: str) -> None:
    assert [one.id for one in official.models.list()][:2] == ["mini", "topics"]
    assert official.models.retrieve("gpt").owned_by == "qkv"
    with pytest.raises(openai.NotFoundError, match="Did you mean 'gpt'") as missing:
        official.completions.create(model="gtp", prompt="a")
    assert missing.value.code == "model_not_found" and missing.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="is empty") as empty:
        official.embeddings.create(model="sentences", input="")
    assert empty.value.param == "input" and empty.value.type == "invalid_request_error"
    with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    with pytest.raises(openai.BadRequestError, match="at most"):
        list(official.completions.create(model="gpt", prompt="a " * 500, stream=True))


def test_openai_waits_and_tries_again(official: openai.OpenAI, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waits for after a 429 is what the server says."""
    from qkv.serve.served import Served

    waited: list[float] = []
    real = Served.embed
    fails = iter([True, False])

    async def embed(self: Served, *given: Any, **named: Any) -> Any:
        if next(fails):
            raise OverloadedError("The server is overloaded. Try again later.", 1.5)
        return await real(self, *given, **named)

    monkeypatch.setattr(Served, "embed", embed)
    monkeypatch.setattr("time.sleep", waited.append)
    assert official.embeddings.create(model="sentences", input=CHINESE).data
    assert waited == [1.5]


# huggingface_hub


@pytest.fixture
def hub(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it would refuse loopback, too

    def of(name: str, token: str = TOKEN) -> InferenceClient:
        return InferenceClient(model=f"{url}/models/{name}", token=token, provider="hf-inference")

    return of


def test_hub_text_classification(hub: Any, folders: Folders) -> None:
    for text in BOTH:
        (expected,) = qkv.load(folders["topics"]).predict([text])
        found = hub("topics").text_classification(text)
        assert {one.label: one.score for one in found} == expected.probabilities
        assert hub("topics").text_classification(text, top_k=1)[0].label == expected.label


def test_hub_token_classification(hub: Any, folders: Folders) -> None:
    for text in BOTH:
        (expected,) = qkv.load(folders["ner"]).predict([text])
        found = hub("ner").token_classification(text, aggregation_strategy="simple")
        assert [(one.start, one.end, one.entity_group, one.word, one.score) for one in found] == [
            tuple(entity[:5]) for entity in expected.entities
        ]
        pieces = hub("ner").token_classification(text, aggregation_strategy="none")
        assert all(text[one.start : one.end] == one.word and one.entity[:2] in ("B-", "I-") for one in pieces)


def test_hub_question_answering(hub: Any, folders: Folders) -> None:
    for question, context in (("Where is the cat?", ENGLISH), ("他在哪里？", CHINESE)):
        (expected,) = qkv.load(folders["squad"]).predict([(question, context)])
        found = hub("squad").question_answering(question, context)
        assert (found.answer, found.start, found.end, found.score) == (
            *(expected.text, expected.start, expected.end),
            expected.probability,
        )
        several = hub("squad").question_answering(question, context, top_k=3)
        assert len(several) == 3 and several[0].answer == expected.text


def test_hub_fill_mask(hub: Any, folders: Folders) -> None:
    for text in ("Paris is the [MASK] of France.", "中国的首都是[MASK]京。"):
        expected = qkv.load(folders["mini"]).fill(text, 4)[0].candidates
        found = hub("mini").fill_mask(text, top_k=4)
        assert [(one.token_str, one.score) for one in found] == [(one.token, one.probability) for one in expected]
        assert found[0].sequence == text.replace("[MASK]", expected[0].text)


def test_hub_vectors(hub: Any, folders: Folders) -> None:
    model = qkv.load(folders["sentences"])
    expected = model.embed(BOTH)
    assert np.array_equal(hub("sentences").feature_extraction(BOTH), expected.vectors)
    assert hub("sentences").feature_extraction(CHINESE, truncate=True, normalize=True).shape == (1, 32)
    similar = hub("sentences").sentence_similarity(ENGLISH, [CHINESE, ENGLISH])
    assert similar == pytest.approx([float(expected.similarity()[0, 1]), 1], abs=1e-6)
    other = InferenceClient(model=f"{hub('mini').model}/pipeline/feature-extraction", token=TOKEN)
    assert np.array_equal(other.feature_extraction(BOTH), qkv.load(folders["mini"]).embed(BOTH).vectors)


def test_hub_translation(hub: Any, folders: Folders) -> None:
    for name, text in (("en-zh", "a cat sat"), ("zh-en", "一只猫")):
        expected = load_translator(folders[name]).translate([text])[0].text
        assert hub(name).translation(text).translation_text == expected
        source, target = name.split("-")
        assert hub(name).translation(text, src_lang=source, tgt_lang=target).translation_text == expected


def test_hub_text_generation(hub: Any, folders: Folders) -> None:
    generator, client = Generator(folders["gpt"]), hub("gpt")
    for prompt in ("the cat", "今天天气"):
        (expected,) = generator.generate([prompt], GenerateConfig(max_length=8))[0]
        assert client.text_generation(prompt, max_new_tokens=8) == expected.text
        assert "".join(client.text_generation(prompt, max_new_tokens=8, stream=True)) == expected.text
        details = client.text_generation(prompt, max_new_tokens=8, details=True, return_full_text=True)
        assert details.generated_text == prompt + expected.text and details.details.generated_tokens == 8
        *_, last = client.text_generation(prompt, max_new_tokens=8, stream=True, details=True)
        assert last.generated_text == expected.text and last.details.finish_reason == "length"


def test_hub_health_and_errors(hub: Any) -> None:
    assert hub("topics").health_check() and not hub("nothing").health_check()
    assert hub("topics").get_endpoint_info()["labels"] == ["animal", "place"]
    with pytest.raises(HfHubHTTPError, match="stride"):
        hub("ner").token_classification("a", stride=4)
    with pytest.raises(HfHubHTTPError, match="Did you mean 'topics'"):
        hub("topic").text_classification("a")
    with pytest.raises(HfHubHTTPError, match="401"):
        hub("topics", "wrong").text_classification("a")


# Clients that are no more than a request


def asked(url: str, body: Any, content_type: str = "application/json") -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": content_type, "Authorization": f"Bearer {TOKEN}"}
    with urllib.request.urlopen(urllib.request.Request(url, raw, headers), timeout=20) as answer:
        return json.load(answer)


def test_tei(url: str, folders: Folders) -> None:
    vectors = np.array(asked(f"{url}/embed", {"inputs": BOTH, "truncate": True}), np.float32)
    assert np.array_equal(vectors, qkv.load(folders["mini"]).embed(BOTH, normalize=True).vectors)
    labels = asked(f"{url}/predict", {"inputs": CHINESE})
    assert labels[0]["score"] == qkv.load(folders["topics"]).predict([CHINESE])[0].probability
    ranked = asked(f"{url}/rerank", {"query": "猫", "texts": BOTH, "raw_scores": False})
    pairs = qkv.load(folders["pairs"]).predict([("猫", text) for text in BOTH])
    assert {one["index"]: one["score"] for one in ranked} == {
        at: one.probabilities["1"] for at, one in enumerate(pairs)
    }
    assert ranked[0]["score"] >= ranked[1]["score"]


def test_jina_and_cohere(url: str) -> None:
    body = {"model": "pairs", "query": "猫", "documents": BOTH, "top_n": 1}
    first = asked(f"{url}/v1/rerank", body)
    assert first["results"][0]["document"]["text"] == BOTH[first["results"][0]["index"]]
    second = asked(f"{url}/v2/rerank", body)
    assert second["results"][0]["relevance_score"] == first["results"][0]["relevance_score"]


def test_libretranslate(url: str, folders: Folders) -> None:
    expected = load_translator(folders["zh-en"]).translate(["一只猫"])[0].text
    form = urllib.parse.urlencode({"q": "一只猫", "source": "auto", "target": "en", "api_key": ""}).encode()
    found = asked(f"{url}/translate", form, "application/x-www-form-urlencoded")
    assert found == {"translatedText": expected, "detectedLanguage": {"confidence": 100.0, "language": "zh"}}


def test_multiple_choice(url: str, folders: Folders) -> None:
    inputs = {"text": CHINESE, "question": "他爱上了", "choices": ["猫", "狗"]}
    (expected,) = qkv.load(folders["quiz"]).predict([inputs])
    found = asked(f"{url}/models/quiz", {"inputs": inputs})
    assert (found["choice"], found["score"]) == (expected.text, expected.probability)


# Clients that do it in another way


def test_a_body_in_chunks(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    parts = iter([b'{"inputs": "', "他在".encode(), b'"}'])
    connection.request("POST", "/predict", parts, {"Authorization": f"Bearer {TOKEN}"}, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200 and json.load(answer)[0]["label"] in ("animal", "place")
    connection.close()


def test_a_client_that_leaves_in_the_middle(server: Server, url: str) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 50, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert asked(f"{url}/predict", {"inputs": CHINESE})
