"""The routes of text-embeddings-inference (TEI): /embed, /embed_all, /predict, /rerank, /similarity, /tokenize, …

Its clients know one model a server: the first of `qkv serve` that has the task answers, or the one that a field `model`
names. Long texts are read in windows and never cut, unless the request says `truncate`.
"""

from typing import Any

import numpy as np
from starlette.responses import Response
from starlette.routing import Route

from qkv.models.folders.own import own_version
from qkv.serve.connection import ManyConnections
from qkv.serve.conventions import JINA
from qkv.serve.fields import FieldError, is_ids, require_text, require_texts
from qkv.serve.routes.exchange import Exchange, endpoint, numbers_to_json, reply, reply_list, reply_lists
from qkv.serve.routes.huggingface import classify
from qkv.serve.routes.rerank import choose_reranker, rerank, score_texts
from qkv.serve.routes.vectors import (
    cosines,
    decode_ids,
    embed_inputs,
    list_tokens,
    read_dimensions,
    read_inputs,
    reply_vectors,
)
from qkv.serve.served import Models, ServeSettings

DIRECTIONS = ("right", "left", "Right", "Left")


def routes(models: Models, settings: ServeSettings) -> list[Route]:
    posts = {
        "/embed": _embed,
        "/embed_all": _embed_all,
        "/predict": _predict,
        "/rerank": _rerank,
        "/similarity": _compare,
        "/tokenize": _tokenize,
        "/decode": _decode,
    }
    return [
        *(endpoint(path, handle, models, settings) for path, handle in posts.items()),
        endpoint("/info", _show, models, settings, method="GET"),
    ]


async def _embed(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = exchange.use("feature-extraction", fields.maybe_text("model"))
    inputs = read_inputs(fields, "inputs")
    normalize = fields.flag("normalize", True)
    truncate = fields.flag("truncate", False)
    direction = fields.choice("truncation_direction", DIRECTIONS, "right").lower()
    fields.refuse("prompt_name", "put the prompt before the text yourself.")
    dimensions = read_dimensions(fields, served)
    fields.done()
    found = await embed_inputs(
        exchange,
        served,
        inputs,
        normalize=normalize,
        dimensions=dimensions,
        truncate=truncate,
        truncation_direction=direction,
    )
    return reply_vectors(found.vectors)


async def _embed_all(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = exchange.use("feature-extraction", fields.maybe_text("model"))
    texts = fields.texts("inputs")
    truncate = fields.flag("truncate", False)
    fields.refuse("truncation_direction", "it cuts at the right.", "right", "Right")
    fields.refuse("prompt_name", "put the prompt before the text yourself.")
    fields.done()
    found = await served.embed_tokens(texts, exchange.call, truncate=truncate)
    return reply_lists([one.vectors for one in found], numbers_to_json, found[0].vectors.shape[1])


async def _predict(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = exchange.use("text-classification", fields.maybe_text("model"))
    wanted = "a text, a pair [text, text], or a list of [text] and [text, text]"
    given = fields.raw("inputs", wanted)
    is_batch = isinstance(given, list) and bool(given) and isinstance(given[0], list)
    items = given if is_batch else [given]
    inputs = [_read_sequence(one, f"inputs[{at}]" if is_batch else "inputs") for at, one in enumerate(items)]
    truncate = fields.flag("truncate", False)
    raw = fields.flag("raw_scores", False)
    fields.refuse("truncation_direction", "it cuts at the right.", "right", "Right")
    fields.done()
    results, write = await classify(exchange, served, inputs, "none" if raw else None, truncate)
    first = write(results[0])
    return reply_list(results, write, 4 * len(first)) if is_batch else reply(first)


def _read_sequence(one: Any, where: str) -> Any:
    if isinstance(one, str):
        return require_text(one, where)
    texts = require_texts(one, where)
    if len(texts) > 2:
        message = f"'{where}' has {len(texts)} texts; a pair has two, and a batch is a list of lists."
        raise FieldError("kind", message, where)
    return texts[0] if len(texts) == 1 else tuple(texts)


async def _rerank(exchange: Exchange) -> Response:
    """Jina's request has `documents`, theirs `texts`."""
    fields = exchange.fields
    if "documents" in fields:
        exchange.convention = JINA
        return await rerank(exchange)
    served = choose_reranker(exchange, fields.maybe_text("model"))
    query, texts = fields.text("query"), fields.texts("texts")
    truncate, raw = fields.flag("truncate", False), fields.flag("raw_scores", False)
    returned = fields.flag("return_text", False)
    fields.refuse("truncation_direction", "it cuts at the right.", "right", "Right")
    fields.done()
    scores = await score_texts(exchange, served, query, texts, truncate=truncate, raw=raw)
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return reply_list(
        order, lambda at: {"index": at, "score": float(scores[at])} | ({"text": texts[at]} if returned else {})
    )


async def _compare(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = exchange.use("feature-extraction", fields.maybe_text("model"))
    inputs = fields.inside("inputs")
    source, texts = inputs.text("source_sentence"), inputs.texts("sentences")
    parameters = fields.inside("parameters")
    truncate = parameters.flag("truncate", False)
    parameters.refuse("truncation_direction", "it cuts at the right.", "right", "Right")
    parameters.refuse("prompt_name", "put the prompt before the text yourself.")
    fields.done()
    return reply((await cosines(exchange, served, source, texts, truncate=truncate)).tolist())


async def _tokenize(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = _reader(exchange)
    texts = fields.texts("inputs", blank=True)
    special = fields.flag("add_special_tokens", True)
    fields.refuse("prompt_name", "put the prompt before the text yourself.")
    fields.done()

    def write_one(at: int) -> list[dict[str, Any]]:
        one = found[at]
        return [
            {"id": id, "text": token, "special": True, "start": None, "stop": None}
            if start == end
            else {"id": id, "text": texts[at][start:end], "special": False, "start": start, "stop": end}
            for id, token, (start, end) in zip(one.ids, one.tokens, one.offsets, strict=True)
        ]

    found = await list_tokens(exchange, served, texts, special)
    return reply_list(range(len(texts)), write_one, 5 * max(len(one.ids) for one in found))


def _reader(exchange: Exchange) -> Any:
    """The model that a field names, or the first."""
    name = exchange.fields.maybe_text("model") or next(iter(exchange.models)).name
    return exchange.use("feature-extraction", name, needed=False)


async def _decode(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = _reader(exchange)
    given = fields.raw("ids", "a list of token ids, or of such lists")
    rows = [given] if is_ids(given) else given
    if not isinstance(rows, list) or not rows or not all(map(is_ids, rows)):
        raise fields.wrong("ids", "a list of token ids, or of such lists")
    skip = fields.flag("skip_special_tokens", True)
    fields.done()
    return reply(await decode_ids(exchange, served, rows, "ids", skip))


async def _show(exchange: Exchange) -> Response:
    """The first model; all are at /v1/models."""
    name = exchange.request.query_params.get("model")
    served = next(iter(exchange.models)) if name is None else exchange.models[name]
    models, info = exchange.models, served.info
    kind: dict[str, Any] = {"embedding": {"pooling": info.get("pooling")}}
    if served.tasks[0] == "text-classification":
        ids = {str(number): label for number, label in enumerate(info["labels"])}
        labels = {"id2label": ids, "label2id": {label: int(number) for number, label in ids.items()}}
        kind = {"reranker" if served.is_reranker else "classifier": labels}
    queue = models.settings.queue_tokens
    theirs = {
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": kind,
        "max_concurrent_requests": ManyConnections.most_connections,
        "max_batch_tokens": models.settings.batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": max(1, queue // served.max_length),  # of the longest texts
        "max_queue_tokens": queue,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": own_version(),
    }
    return reply(info | theirs | {"models": list(models.names)})
