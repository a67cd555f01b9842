"""OpenAI's shapes: /v1/embeddings, /v1/completions (also in parts, as server-sent events), /v1/models; all of them also
without /v1.

    OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="-").embeddings.create(model="minilm", input=["a", "b"])

Vectors have length 1, as theirs, and are numbers or little-endian float32 in base64, which their client asks for unless
told otherwise. Without a seed each completion is drawn anew. There are no chat models here.
"""

import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from qkv.serve.fields import FieldError, Fields, is_ids
from qkv.serve.routes.exchange import Exchange, endpoint, reply, reply_list, reply_stream, to_json
from qkv.serve.routes.huggingface import describe_served
from qkv.serve.routes.vectors import (
    ENCODING_FORMATS,
    decode_ids,
    embed_inputs,
    list_tokens,
    read_dimensions,
    read_inputs,
    write_vector,
)
from qkv.serve.routes.writing import Completion, Writing, read_seed, stream_text, write_texts
from qkv.serve.served import Models, Served, ServeSettings

DEFAULT_TOKENS = 16
_MOST_CHOICES = 64
MOST_STOPS = 4
_NAMES = {"max_length": "max_tokens", "n_best": "n"}
_REASONS = {"end": "stop", "stop": "stop", "length": "length"}


def routes(models: Models, settings: ServeSettings) -> list[Route]:
    return [
        endpoint(f"{start}{path}", handle, models, settings, method=method)
        for start in ("/v1", "")
        for path, handle, method in (
            ("/embeddings", _embed, "POST"),
            ("/completions", _complete, "POST"),
            ("/models", _list_models, "GET"),
            *([("/models/{name:path}", _show_model, "GET")] if start else []),  # else huggingface.py's
        )
    ]


def _describe(served: Served) -> dict[str, Any]:
    return describe_served(served) | {"tasks": list(served.tasks)}


async def _list_models(exchange: Exchange) -> Response:
    return reply({"object": "list", "data": [_describe(one) for one in exchange.models]})


async def _show_model(exchange: Exchange) -> Response:
    return reply(_describe(exchange.models[exchange.request.path_params["name"]]))


async def _embed(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = exchange.use("feature-extraction", fields.maybe_text("model"))
    inputs = read_inputs(fields, "input")
    encoding = fields.choice("encoding_format", ENCODING_FORMATS, "float")
    dimensions = read_dimensions(fields, served)
    truncate = fields.flag("truncate", False)
    fields.ignore("user")
    fields.done()
    found = await embed_inputs(exchange, served, inputs, normalize=True, dimensions=dimensions, truncate=truncate)

    def write_one(index: int) -> bytes:
        vector = write_vector(found.vectors[index], encoding)
        return b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vector)

    n_tokens = int(found.n_tokens.sum())
    tail = {
        "model": served.name,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        "n_windows": int(found.n_windows.sum()),
        "truncated": exchange.call.truncated,
    }
    return reply_list(
        range(len(found)),
        write_one,
        found.vectors.shape[1],
        head=b'{"object":"list","data":[',
        tail=b"]," + to_json(tail)[1:],
    )


# Completions


async def _complete(exchange: Exchange) -> Response:
    fields = exchange.fields
    served = exchange.use("text-generation", fields.maybe_text("model"))
    exchange.names = _NAMES
    prompts = await _read_prompts(exchange, served)
    how, echo = _read_writing(fields), fields.flag("echo", False)
    streamed = fields.flag("stream", False)
    with_usage = fields.inside("stream_options").flag("include_usage", False)
    fields.ignore("user")
    fields.done()
    begin: dict[str, Any] = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": served.name,
    }
    if streamed:
        chunks = _stream_chunks(exchange, served, prompts, how, echo)
        return await reply_stream(exchange, _with_usage(chunks, begin, with_usage), "[DONE]")
    found = await write_texts(served, prompts, exchange.call, how)
    choices = [
        _write_choice(number * how.n + at, prompt * echo + one.text, one.reason)
        for number, (prompt, texts) in enumerate(zip(prompts, found, strict=True))
        for at, one in enumerate(texts)
    ]
    usage = _count([texts[0].n_prompt_tokens for texts in found], [one.n_tokens for texts in found for one in texts])
    return reply(begin | {"choices": choices, "usage": usage})


async def _read_prompts(exchange: Exchange, served: Served) -> list[str]:
    fields = exchange.fields
    found = fields.raw("prompt")
    if found is None:
        return [""]
    if isinstance(found, str) or (isinstance(found, list) and found and isinstance(found[0], str)):
        return fields.texts("prompt", blank=True)
    rows = [found] if is_ids(found) else found
    if not isinstance(rows, list) or not rows or not all(map(is_ids, rows)):
        raise fields.wrong("prompt", "a text, a list of texts, or token ids")
    texts = await decode_ids(exchange, served, rows, "prompt", skip_special=False)
    for number, (row, one) in enumerate(zip(rows, await list_tokens(exchange, served, texts, False), strict=True)):
        if one.ids != row:
            name = f"prompt[{number}]" if rows is found else "prompt"
            message = f"The token ids of '{name}' are not what the model makes of a text. Send the text instead."
            raise FieldError("kind", message, name)
    return texts


def _read_writing(fields: Fields) -> Writing:
    fields.refuse("logprobs", "the probabilities of tokens are not kept. Leave it out.")
    fields.refuse("suffix", "the models here write on from a prompt. Leave it out.", "")
    fields.refuse("frequency_penalty", "use repetition_penalty. Leave it out.", 0)
    fields.refuse("presence_penalty", "use repetition_penalty. Leave it out.", 0)
    fields.refuse("logit_bias", "leave it out.", {})
    n = fields.whole("n", 1, _MOST_CHOICES, 1)
    best_of = fields.whole("best_of", 1, _MOST_CHOICES, n)
    if best_of < n:
        raise FieldError(
            "range", f"'best_of' is {best_of}, and 'n' is {n}: the best n are chosen from best_of.", "best_of"
        )
    options: dict[str, Any] = {"n_best": best_of, "seed": read_seed(fields)}
    if (longest := fields.whole("max_tokens", 1, 1 << 20, None)) is None:
        options["max_length"] = DEFAULT_TOKENS
    else:
        options |= {"max_length": longest, "fit": False}
    temperature = fields.number("temperature", 0, 100, 1.0)
    top_p = fields.number("top_p", 0, 1, 1.0)
    top_k = fields.whole("top_k", 1, 1 << 20, None)  # not theirs, but in common use
    if temperature > 0 and top_p > 0:
        options |= {"sample": True, "temperature": temperature, "top_p": top_p}
        options |= {} if top_k is None else {"top_k": top_k}
    elif best_of > 1:
        name = "n" if n > 1 else "best_of"
        raise FieldError("range", f"With a temperature of 0 there is one text: '{name}' must be 1.", name)
    if (penalty := fields.number("repetition_penalty", 0, 100, None)) is not None:
        options["repetition_penalty"] = penalty
    stop = fields.strings("stop", MOST_STOPS)
    return Writing(options, tuple(filter(None, stop)), n)


def _write_choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    ended = None if reason is None else _REASONS[reason]
    return {"index": index, "text": text, "logprobs": None, "finish_reason": ended}


def _count(prompts: list[int], completions: list[int]) -> dict[str, int]:
    read, written = sum(prompts), sum(completions)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def _stream_chunks(
    exchange: Exchange, served: Served, prompts: list[str], how: Writing, echo: bool
) -> AsyncIterator[tuple[dict[str, Any], int, int]]:
    """Choices in parts, and with the last part of each how many tokens were read and written for it. A single text of a
    prompt grows; several are sent whole."""
    for number, prompt in enumerate(prompts):
        if echo and prompt:
            for at in range(how.n):
                yield _write_choice(number * how.n + at, prompt, None), 0, 0
        if how.options["n_best"] == 1:
            async for part in stream_text(served, prompt, exchange.call, how):
                read, written = (0, 0) if part.reason is None else (part.n_prompt_tokens, part.n_tokens)
                yield _write_choice(number, part.text, part.reason), read, written
            continue
        texts: list[Completion] = (await write_texts(served, [prompt], exchange.call, how))[0]
        for at, one in enumerate(texts):
            yield (
                _write_choice(number * how.n + at, one.text, one.reason),
                0 if at else one.n_prompt_tokens,
                one.n_tokens,
            )


async def _with_usage(
    chunks: AsyncIterator[tuple[dict[str, Any], int, int]], begin: Mapping[str, Any], with_usage: bool
) -> AsyncIterator[Mapping[str, Any]]:
    read, written = [], []
    async for choice, n_read, n_written in chunks:
        read.append(n_read)
        written.append(n_written)
        yield {**begin, "choices": [choice]} | ({"usage": None} if with_usage else {})
    if with_usage:
        yield {**begin, "choices": [], "usage": _count(read, written)}
