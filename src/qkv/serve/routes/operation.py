"""Health, metrics and the description of the routes.

/livez      the process answers
/readyz     all models have answered once, and the server is not stopping; also /health and /ping; else 503
/metrics    for Prometheus
"""

from starlette.responses import Response
from starlette.routing import Route

from qkv.models.folders.own import own_version
from qkv.serve.openapi import describe_api
from qkv.serve.routes.exchange import Exchange, endpoint, reply
from qkv.serve.served import Models, ServeSettings

OPEN_PATHS = frozenset({"/livez", "/readyz", "/health", "/ping", "/languages"})
"""Answered without a token, as load balancers and LibreTranslate's clients ask."""


def routes(models: Models, settings: ServeSettings) -> list[Route]:
    return [
        endpoint("/livez", _show_alive, models, settings, method="GET"),
        *(endpoint(path, _show_ready, models, settings, method="GET") for path in ("/readyz", "/health", "/ping")),
        endpoint("/metrics", _show_metrics, models, settings, method="GET"),
        endpoint("/openapi.json", _describe, models, settings, method="GET"),
    ]


async def _show_alive(exchange: Exchange) -> Response:
    return reply({"status": "alive"})


async def _show_ready(exchange: Exchange) -> Response:
    models = exchange.models
    status = "draining" if models.draining else "ready" if models.ready else "starting"
    response = reply({"status": status})
    response.status_code = 200 if status == "ready" else 503
    return response


async def _show_metrics(exchange: Exchange) -> Response:
    metrics = exchange.models.metrics
    return Response(metrics.text(), media_type=metrics.content_type)


async def _describe(exchange: Exchange) -> Response:
    return reply(describe_api([(one.name, one.tasks) for one in exchange.models], own_version() or "0"))
