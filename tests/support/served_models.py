"""Tiny models for every task behind the routes of `qkv serve`, and clients of the app in this process."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message

from qkv.models.bert.folder import save
from qkv.models.transformer.folder import save_translation
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.serve.routes import build_models_app
from qkv.serve.served import Models, ServeSettings
from qkv.text.subwords import train_subwords
from tests.support.folders import make_folder, make_model, make_tokenizer, randomise
from tests.support.gpt_folders import make_gpt
from tests.support.task_folders import task_folder

ENGLISH = ["a cat sat on the mat", "the dog is here", "it is a wide street"]
CHINESE = ["一只猫坐着", "天气很好", "他在北京"]


def translation_folder(path: Path, source: str, target: str) -> Path:
    texts = {"en": ENGLISH, "zh": CHINESE}
    first, second = (train_subwords(texts[code] * 2, 60) for code in (source, target))
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "inner_width": 32}
    network = Transformer(TransformerConfig(second.size, source_vocabulary_size=first.size, **sizes))
    randomise(network)
    record: dict[str, Any] = {"source_language": source, "target_language": target, "max_length": 40}
    record |= {"config": {"decoding": {"max_length": 12}}}
    return save_translation(path, network, first, second, record)


def sentence_folder(path: Path, widths: tuple[int, ...] = (16,)) -> Path:
    """As `qkv train embed` writes it: vectors of length 1, of which the beginnings are trained, too."""
    record = {"job": "embed", "model": "mini", "scores": {}, "widths": {str(width): {} for width in widths}}
    model = make_model("BertModel")
    return save(path, model, make_tokenizer(), (), "BertModel", record=record, pooling="mean", normalize=True)


def make_served_folders(folder: Path) -> dict[str, Path]:
    """By the name of the model: one for every task, and a reranker."""
    return {
        "mini": make_folder(folder / "mini"),
        "topics": task_folder(folder / "topics", "classify"),
        "ner": task_folder(folder / "ner", "tag", seed=3),
        "squad": task_folder(folder / "squad", "answer"),
        "quiz": task_folder(folder / "quiz", "choice"),
        "sentences": sentence_folder(folder / "sentences"),
        "pairs": task_folder(folder / "pairs", "classify", paired=True, labels=("0", "1")),
        "stars": task_folder(folder / "stars", "classify", kind="regression"),
        "tags": task_folder(folder / "tags", "classify", kind="multi"),
        "gpt": make_gpt(folder / "gpt"),
        "en-zh": translation_folder(folder / "en-zh", "en", "zh"),
        "zh-en": translation_folder(folder / "zh-en", "zh", "en"),
    }


@contextmanager
def open_served(folders: Mapping[str, Path], **settings: Any) -> Iterator[Models]:
    models = Models.open([f"{name}={path}" for name, path in folders.items()], ServeSettings(threads=1, **settings))
    models.ready = True
    try:
        yield models
    finally:
        models.close(10)


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Of a stream; the last one is a word."""
        lines = self.body.decode().split("\n\n")
        assert lines[-1] == "" and all(line.startswith("data: ") for line in lines[:-1])
        return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines[:-1]]


class AppClient:
    """Asks the app without a socket."""

    def __init__(self, models: Models, token: str | None = None, **settings: Any) -> None:
        self.models = models
        self.app: ASGIApp = build_models_app(models, replace(models.settings, **settings), token, "qkv")

    def post(self, path: str, body: Any, **headers: str) -> Got:
        raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        return self.ask("POST", path, raw, headers=headers)

    def get(self, path: str, **headers: str) -> Got:
        return self.ask("GET", path, headers=headers)

    def ask(
        self, method: str, path: str, body: bytes = b"", *, chunked: bool = False, headers: Mapping[str, str] = {}
    ) -> Got:
        """Names of headers may have _ for -."""
        return asyncio.run(self.ask_async(method, path, body, chunked, headers))

    async def ask_async(
        self, method: str, path: str, body: bytes, chunked: bool = False, headers: Mapping[str, str] = {}
    ) -> Got:
        named = {"host": "localhost"} | {name.replace("_", "-").lower(): value for name, value in headers.items()}
        if body and not chunked:
            named["content-length"] = str(len(body))
        if chunked:
            named["transfer-encoding"] = "chunked"
        place, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        size = 1000 if chunked else max(1, len(body))
        parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        sent = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]
        got: list[Message] = []
        never = asyncio.Event()

        async def receive() -> Message:
            if sent:
                return sent.pop(0)
            await never.wait()
            raise AssertionError

        async def send(message: Message) -> None:
            got.append(message)

        await self.app(scope, receive, send)
        assert got, "the app has answered nothing"
        found = {name.decode(): value.decode("latin-1") for name, value in got[0]["headers"]}
        self.log = scope.get("qkv", {})
        return Got(got[0]["status"], found, b"".join(message.get("body", b"") for message in got[1:]))
