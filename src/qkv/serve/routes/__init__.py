"""All routes of `qkv serve`, one file a family of clients, and the app around them. Fields and refusals are one level
up."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from qkv.serve.app import Access, build_app
from qkv.serve.conventions import convention_of
from qkv.serve.routes import huggingface, libretranslate, openai, operation, rerank, tei
from qkv.serve.served import Models, ServeSettings

FAMILIES = (openai, huggingface, tei, rerank, libretranslate, operation)


def build_models_app(
    models: Models, settings: ServeSettings, token: str | None, cookie: str, others: Sequence[BaseRoute] = ()
) -> ASGIApp:
    """A plain ASGI callable. `others` are the front page, and the page of `qkv look` as a mount."""
    access = Access(token, cookie, settings.allow_origins, operation.OPEN_PATHS, libretranslate.KEY_PATHS)
    return build_app(build_routes(models, settings, others), access, convention_of)


def build_routes(models: Models, settings: ServeSettings, others: Sequence[BaseRoute] = ()) -> list[BaseRoute]:
    found: list[BaseRoute] = [route for family in FAMILIES for route in family.routes(models, settings)]
    for other in others:
        found.append(other)
        if isinstance(other, Mount):
            found.append(Route(other.path, _add_slash))  # addresses of the page are relative
    return found


async def _add_slash(request: Request) -> Response:
    return RedirectResponse(f"{request.scope['path'].rpartition('/')[2]}/")
