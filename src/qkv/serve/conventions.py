"""How each family of routes words a refusal: the body of an error, and the status of a request that cannot be answered.

A client reads the errors of its own family, so every refusal of a path follows that path's convention, also one that is
made before the request is routed (access, size, JSON).

    family   paths                              body
    hf       /models/… and POST /               {"error"}
    openai   /v1/… /embeddings /completions     {"error": {"message", "type", "param", "code"}}
    tei      /embed /predict /rerank …          {"error", "error_type"}
    jina     /v1/rerank                         {"detail"}
    cohere   /v2/rerank                         {"message"}
    libre    /translate /languages /detect      {"error"}
    page     /look/…                            {"code", "message", "about"}
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Refused(NamedTuple):
    """What a refusal says, before it is worded."""

    status: int
    code: str  # for programs
    message: str  # for people
    about: Mapping[str, str | int]


class Convention(NamedTuple):
    name: str
    invalid: int  # HTTP status of a request with a wrong field or a text that cannot be read
    body: Callable[[Refused], dict[str, Any]]


def _openai_type(status: int) -> str:
    return {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )


_OPENAI_CODES = {"token": "invalid_api_key", "model": "model_not_found", "overloaded": "rate_limit_exceeded"}


def _openai(one: Refused) -> dict[str, Any]:
    code = _OPENAI_CODES.get(one.code, one.code)
    error = {"message": one.message, "type": _openai_type(one.status), "param": one.about.get("field"), "code": code}
    return {"error": error}


def _tei_type(one: Refused) -> str:
    if one.code == "empty":
        return "Empty"
    return {429: "Overloaded", 500: "Backend", 503: "Unhealthy"}.get(one.status, "Validation")


PAGE = Convention("page", 400, lambda one: {"code": one.code, "message": one.message, "about": dict(one.about)})
HUGGING_FACE = Convention("hf", 422, lambda one: {"error": one.message})
OPENAI = Convention("openai", 400, _openai)
TEI = Convention("tei", 422, lambda one: {"error": one.message, "error_type": _tei_type(one)})
JINA = Convention("jina", 422, lambda one: {"detail": one.message})
COHERE = Convention("cohere", 400, lambda one: {"message": one.message})
LIBRE_TRANSLATE = Convention("libre", 400, lambda one: {"error": one.message})

CONVENTIONS = {
    "/models/": HUGGING_FACE,
    "/models": OPENAI,
    "/v1/rerank": JINA,
    "/v2/rerank": COHERE,
    "/v1/": OPENAI,
    "/embeddings": OPENAI,
    "/completions": OPENAI,
    "/translate": LIBRE_TRANSLATE,
    "/languages": LIBRE_TRANSLATE,
    "/detect": LIBRE_TRANSLATE,
    "/look/": PAGE,
}
"""By path; one that ends with "/" is for all paths below it. All others are worded as TEI words them."""


def convention_of(path: str) -> Convention:
    """The convention of a path of `qkv serve`.

    >>> [convention_of(path).name for path in ("/v1/embeddings", "/v1/rerank", "/models/a", "/models", "/", "/embed")]
    ['openai', 'jina', 'hf', 'openai', 'hf', 'tei']
    """
    if path == "/":
        return HUGGING_FACE
    if path in CONVENTIONS:
        return CONVENTIONS[path]
    return next((one for start, one in CONVENTIONS.items() if start.endswith("/") and path.startswith(start)), TEI)
