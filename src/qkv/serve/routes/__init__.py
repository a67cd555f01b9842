"""All routes of `qkv serve`, one file a family of clients. Fields and refusals are one level up."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from qkv.serve.routes import huggingface, libretranslate, openai, operation, rerank, tei
from qkv.serve.served import Models, ServeSettings

FAMILIES = (openai, huggingface, tei, rerank, libretranslate, operation)


def build_routes(models: Models, settings: ServeSettings, others: Sequence[BaseRoute] = ()) -> list[BaseRoute]:
    """The routes of all families, and `others`: the front page, the page of `qkv look` as a mount."""
    found: list[BaseRoute] = [route for family in FAMILIES for route in family.routes(models, settings)]
    for other in others:
        found.append(other)
        if isinstance(other, Mount):
            found.append(Route(other.path, _add_slash))  # addresses of the page are relative
    return found


async def _add_slash(request: Request) -> Response:
    return RedirectResponse(f"{request.scope['path'].rpartition('/')[2]}/")
