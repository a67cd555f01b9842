"""qkv embed --tokens: one vector a token.

On a terminal a token is compared with the first of the same spelling: word2vec has one vector for both, and the cosine
is 1; ELMo and BERT have one for each sentence.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.embed_file import Lacks
    from qkv.run.predict import Model

MOST = 100
"""As many tokens as a terminal can still show."""
SHOWN = 4
"""Numbers of a vector that are shown."""


def check_tokens(out: Path | None, pooling: str | None) -> None:
    if out is not None:
        raise InputError("Vectors of tokens go to a file as JSON: leave out --out, and add --json > tokens.jsonl.")
    if pooling is not None:
        raise InputError("--pooling makes one vector of a text, and --tokens keeps one a token: leave one of them out.")


def lacks_tokens(model: "Model") -> "Lacks":
    """Why `embed_tokens` would refuse a text; None where it would not."""
    return lambda text: "is empty" if not text.strip() or model.tokenizer.is_empty(text) else None


def embed_tokens(model: "Model", texts: Iterable[str], normalize: bool, layer: int | None, as_json: bool) -> None:
    from qkv.run.embed_file import token_parts
    from qkv.run.vector_files import token_lines

    if not as_json:
        _to_terminal(model, texts, normalize, layer)
        return
    for taken, part in token_parts(model, texts, normalize, layer):
        for line in token_lines(taken, part):
            typer.echo(line)


def _to_terminal(model: "Model", texts: Iterable[str], normalize: bool, layer: int | None) -> None:
    import numpy as np

    from qkv.cli.terminal import shaded, table
    from qkv.run.embed_file import token_parts
    from qkv.run.results import normalized

    rows: list[list[object]] = []
    first: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}
    number = 0
    for taken, part in token_parts(model, texts, normalize, layer):
        for text, found in zip(taken, part, strict=True):
            number += 1
            if len(rows) + len(found) > MOST:
                raise InputError(f"More than {MOST} tokens are too many for the screen: add --json.")
            unit = normalized(found.vectors)
            for place, (token, (start, end)) in enumerate(zip(found.tokens, found.offsets, strict=True)):
                row = [number, f"{start}–{end}", text[start:end]]
                if not found.has_vector[place]:
                    rows.append([*row, "no vector", ""])
                    continue
                alike = shaded(float(np.clip(unit[place] @ first[token], -1, 1))) if token in first else ""
                first.setdefault(token, unit[place])
                numbers = ", ".join(f"{value:.3f}" for value in found.vectors[place, :SHOWN].tolist())
                rows.append([*row, f"{numbers}, …", alike])
    if not rows:
        raise InputError("There is no text to embed: the input is empty.")
    table(["text", "at", "token", f"vector ({model.config.width} numbers)", "cosine with the first"], rows, right=[4])
