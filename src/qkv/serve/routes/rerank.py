"""Jina's and Cohere's shape of reranking: /v1/rerank, /v2/rerank, and /rerank where the request has `documents`.

    {"query": "…", "documents": ["…", {"text": "…"}], "top_n": 3}  →  {"results": [{"index", "relevance_score"}, …]}

A model that was fine-tuned on text pairs scores (query, document) itself: a classifier by the probability of its last
label (GLUE's "1"), a model of numbers by its number, through a sigmoid if the folder is by others, as their rerankers
expect. Any other model is asked for vectors, and the score is their cosine.
"""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response
from starlette.routing import Route

from qkv.serve.fields import FieldError, Fields, require_text
from qkv.serve.routes.exchange import Exchange, endpoint, reply
from qkv.serve.routes.vectors import cosines, list_tokens
from qkv.serve.served import Models, Served, ServeSettings
from qkv.tasks.classify import Classification, PredictedLabels

DOCUMENTS_PER_UNIT = 100
"""What Cohere counts as one search."""


def routes(models: Models, settings: ServeSettings) -> list[Route]:
    return [endpoint(path, rerank, models, settings) for path in ("/v1/rerank", "/v2/rerank")]


async def rerank(exchange: Exchange) -> Response:
    fields = exchange.fields
    is_cohere = exchange.convention.name == "cohere"
    served = choose_reranker(exchange, fields.maybe_text("model"))
    query, documents = fields.text("query"), _read_documents(fields)
    top_n = fields.whole("top_n", 1, 1 << 30, None)
    returned = fields.flag("return_documents", not is_cohere)
    most = fields.whole("max_tokens_per_doc", 1, 1 << 30, None)
    truncate = fields.flag("truncate", False)
    fields.refuse("rank_fields", "a document is a text, or has a field 'text'. Leave it out.", ["text"])
    fields.refuse("max_chunks_per_doc", "a document is read whole. Leave it out.")
    fields.ignore("priority", "user")
    fields.done()
    read = documents if most is None else await _shorten(exchange, served, documents, most)
    scores = await score_texts(exchange, served, query, read, truncate=truncate)
    order = np.argsort(-scores, kind="stable")[:top_n].tolist()
    results = [
        {"index": at, "relevance_score": float(scores[at])}
        | ({"document": {"text": documents[at]}} if returned else {})
        for at in order
    ]
    n_tokens, call = exchange.call.n_tokens, exchange.call
    units = -(-len(documents) // DOCUMENTS_PER_UNIT)
    said: dict[str, Any] = {"id": str(uuid.uuid4()), "model": served.name, "results": results}
    if is_cohere:
        said["meta"] = {"api_version": {"version": "2"}, "billed_units": {"search_units": units}}
    said["usage"] = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return reply(said | {"n_windows": call.n_windows, "truncated": call.truncated})


def _read_documents(fields: Fields) -> list[str]:
    found = fields.raw("documents", "a list of texts")
    if not isinstance(found, list):
        raise fields.wrong("documents", "a list of texts")
    if not found:
        raise FieldError("empty", "'documents' is an empty list. Give one text or more.", "documents")
    texts = [one.get("text") if isinstance(one, dict) else one for one in found]
    return [require_text(one, f"documents[{at}]") for at, one in enumerate(texts)]


async def _shorten(exchange: Exchange, served: Served, texts: Sequence[str], most: int) -> list[str]:
    """Each text up to its `most`th token."""
    found = []
    for text, encoded in zip(texts, await list_tokens(exchange, served, texts, False), strict=True):
        cut = len(encoded.ids) > most
        exchange.call.truncated |= cut
        found.append(text[: encoded.offsets[most - 1][1]] if cut else text)
    return found


def choose_reranker(exchange: Exchange, name: str | None) -> Served:
    """The model of this name, or the first that was made for it, or the first that embeds texts."""
    if name is None:
        name = next((one.name for one in exchange.models if one.is_reranker), None)
    served = exchange.use("feature-extraction", name, needed=False)
    if not served.is_reranker and "feature-extraction" not in served.tasks:
        can = ", ".join(served.tasks)
        message = f"The model '{served.name}' does {can}: it can neither compare two texts nor embed them."
        raise FieldError("task", message, "model")
    return served


async def score_texts(
    exchange: Exchange,
    served: Served,
    query: str,
    texts: Sequence[str],
    *,
    truncate: bool = False,
    raw: bool = False,
) -> NDArray[np.float64]:
    """(E,) how well each text fits the query; the larger the better."""
    if not served.is_reranker:
        return np.asarray(await cosines(exchange, served, query, texts, truncate=truncate), np.float64)
    pairs = [(query, text) for text in texts]
    if raw:
        return np.asarray(await served.scores(pairs, exchange.call, truncate=truncate), np.float64)[:, -1]
    results = await served.predict(pairs, exchange.call, truncate=truncate)
    if isinstance(results[0], Classification | PredictedLabels):
        label = list(served.info["labels"])[-1]
        return np.array([one.probabilities[label] for one in results])
    values = np.array([one.value for one in results], np.float64)
    return values if served.facts.record else 1 / (1 + np.exp(-values))
