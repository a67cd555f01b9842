"""What the routes about vectors share: texts or token ids as input, tokens, fewer dimensions, cosines, vectors as JSON.

Shapes: E texts, D numbers of a vector.
"""

import base64
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from qkv.api.embedder import Embeddings, scale_to_unit
from qkv.serve.fields import FieldError, Fields, is_ids, require_texts
from qkv.serve.routes.exchange import Exchange, count_characters, numbers_to_json, reply_list, work_aside
from qkv.serve.served import Served
from qkv.text.tokenizer import Encoded, Tokenizer

Vectors = NDArray[np.float32]
ENCODING_FORMATS = ("float", "base64")


def read_inputs(fields: Fields, name: str) -> list[str] | list[list[int]]:
    """One text or several; or the token ids of one or of several."""
    found = fields.raw(name, "a text, a list of texts, or token ids")
    if is_ids(found):
        return [found]
    if isinstance(found, list) and found and isinstance(found[0], list):
        for number, one in enumerate(found):
            if not is_ids(one):
                where = f"{fields.name(name)}[{number}]"
                kind = "empty" if one == [] else "kind"
                raise FieldError(kind, f"'{where}' is not a list of token ids, whole numbers from 0.", where)
        return found
    return require_texts(found, fields.name(name))


async def list_tokens(exchange: Exchange, served: Served, texts: Sequence[str], special: bool) -> list[Encoded]:
    """The tokens of texts, if the model has a tokenizer of ours; as many as the queue would hold."""
    _need_tokenizer(served)
    most, size = exchange.models.settings.queue_tokens, count_characters(list(texts))
    found = await work_aside(size, lambda: served.tokenize(texts, special=special))
    if sum(len(one.ids) for one in found) > most:
        message = f"The request has more than {most:,} tokens, the limit of this server (--max-queue-tokens)."
        raise FieldError("too_long", f"{message} Send fewer or shorter texts in one request.")
    return found


async def decode_ids(
    exchange: Exchange, served: Served, rows: Sequence[Sequence[int]], name: str, skip_special: bool
) -> list[str]:
    """The texts of token ids, as many as the queue would hold; `name` is what messages call them."""
    size = _need_tokenizer(served).size
    most, n_ids = exchange.models.settings.queue_tokens, sum(map(len, rows))
    if n_ids > most:
        message = f"'{name}' has {n_ids:,} tokens, and {most:,} are the limit of this server (--max-queue-tokens)."
        raise FieldError("too_long", message, name)
    if (wrong := next((one for row in rows for one in row if one >= size), None)) is not None:
        raise FieldError("range", f"'{name}' has the token {wrong}; {served.name} has the tokens 0 … {size - 1}.", name)
    return await work_aside(4 * n_ids, lambda: served.decode(rows, skip_special=skip_special))


def _need_tokenizer(served: Served) -> Tokenizer:
    found = served.opened.tokenizer
    if not isinstance(found, Tokenizer):
        message = f"The tokens of {served.name} cannot be asked for: it has two vocabularies of its own."
        raise FieldError("task", message, "model")
    return found


def read_dimensions(fields: Fields, served: Served) -> int | None:
    """How many numbers of a vector are wanted; None for all. Vectors are shortened only if they were trained for it."""
    wanted = fields.whole("dimensions", 1, 1 << 20, None)
    if wanted is None or wanted == served.facts.shown.get("width"):
        return None
    widths = sorted(map(int, served.facts.record.get("widths") or ()))
    if wanted in widths:
        return wanted
    width = served.facts.shown.get("width")
    trained = f"it was trained to give {', '.join(map(str, widths))}" if widths else "it was not trained for fewer"
    name = fields.name("dimensions")
    message = f"'{name}' is {wanted}, and a vector of {served.name} has {width} numbers: {trained}."
    raise FieldError("unsupported", message, name)


async def embed_inputs(
    exchange: Exchange,
    served: Served,
    inputs: Sequence[str] | Sequence[Sequence[int]],
    *,
    normalize: bool | None,
    dimensions: int | None = None,
    truncate: bool = False,
    truncation_direction: str = "right",
) -> Embeddings:
    """As `Model.embed`; shortened vectors are scaled to length 1, whatever `normalize` says."""
    found = await served.embed(
        inputs, exchange.call, normalize=normalize, truncate=truncate, truncation_direction=truncation_direction
    )
    if dimensions is None:
        return found
    return Embeddings(
        scale_to_unit(found.vectors[:, :dimensions]),
        found.n_tokens,
        found.n_windows,
        found.n_unknown,
        model=found.model,
    )


async def cosines(
    exchange: Exchange, served: Served, source: str, texts: Sequence[str], *, truncate: bool = False
) -> Vectors:
    """(E,) of one text with others, as `Embeddings.similarity` computes them."""
    found = await served.embed([source, *texts], exchange.call, truncate=truncate)
    unit = scale_to_unit(found.vectors)
    return np.clip(unit[1:] @ unit[0], -1, 1)


def write_vector(vector: Vectors, encoding: str) -> bytes:
    """JSON: a list of numbers, or their little-endian float32 in base64."""
    if encoding == "base64":
        return b'"%b"' % base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes())
    return numbers_to_json(vector)


def reply_vectors(vectors: Vectors, encoding: str = "float") -> Response:
    return reply_list(range(len(vectors)), lambda at: write_vector(vectors[at], encoding), vectors.shape[1])
