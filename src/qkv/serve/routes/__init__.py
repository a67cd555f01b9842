"""Routes of `qkv serve`: a small set, until the families of clients have theirs."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from qkv.errors import InputError
from qkv.serve.app import RefusedError, read_json
from qkv.serve.served import Call, Models, OverloadedError, ServeSettings, UnavailableError, UnknownModelError


def build_routes(models: Models, settings: ServeSettings, others: Sequence[BaseRoute] = ()) -> list[BaseRoute]:
    async def answer(request: Request) -> Response:
        fields = await read_json(request, settings.max_body)
        call, about = Call(request.receive), request.scope["qkv"]
        about |= {"route": "/models/{name}", "model": request.path_params["name"]}
        try:
            served = models[request.path_params["name"]]
            inputs = fields["inputs"] if isinstance(fields["inputs"], list) else [fields["inputs"]]
            if served.tasks[0] == "feature-extraction":
                content = (await served.embed(inputs, call)).vectors.tolist()
            else:
                content = [one.to_dict() for one in await served.predict(inputs, call)]
        except UnknownModelError as error:
            raise RefusedError(404, "model", str(error)) from error
        except OverloadedError as error:
            raise RefusedError(429, "overloaded", str(error), {"retry_after": round(error.retry_after)}) from error
        except UnavailableError as error:
            raise RefusedError(503, "unavailable", str(error)) from error
        except InputError as error:
            raise RefusedError(400, "input", str(error)) from error
        finally:
            about |= {"tokens": call.n_tokens, "windows": call.n_windows}
        return JSONResponse(content)

    async def show_ready(request: Request) -> Response:
        is_ready = models.ready and not models.draining
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def show_metrics(request: Request) -> Response:
        return Response(models.metrics.text(), media_type=models.metrics.content_type)

    return [
        Route("/models/{name:path}", answer, methods=["POST"]),
        Route("/readyz", show_ready),
        Route("/metrics", show_metrics),
    ]
