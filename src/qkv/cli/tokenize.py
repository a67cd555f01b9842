"""qkv tokenize: how a text is cut into tokens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption, text_or_stdin
from qkv.interop.zoo import DEFAULT_MODEL

if TYPE_CHECKING:
    from qkv.tokenizer import Tokenizer


DRAWN = 500
"""Rows that a table is drawn for; laying out more takes longer than reading them, so they come as plain columns."""


def tokenize(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            "--tokenizer",
            envvar="QKV_MODEL",
            metavar="FOLDER",
            help="A model or tokenizer folder, a tokenizer.json, a vocab.txt, or hf:owner/name.",
        ),
    ] = DEFAULT_MODEL,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT", help="A second text, as segment 1.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show how WordPiece gets there, step by step.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Cut a text into tokens: pieces, ids, segments, and the characters each one came from.

    \b
    qkv tokenize "unaffable 他欠我100万"
    qkv tokenize "How are you?" --pair "Fine." --json
    qkv tokenize "unaffable" --steps --model FOLDER

    --json prints one document: text, pair, n_tokens, and tokens with token, id, segment, start, end, text. With
    --steps: text, pair, steps and pair_steps with step and parts.
    """
    tokenizer = load_tokenizer(model)
    text = text_or_stdin(text)
    if steps:
        _show_steps(tokenizer, text, pair, as_json)
        return
    encoded = tokenizer.encode(text, pair)
    from qkv.cli.terminal import print_json, table

    texts = (text, pair or "")
    tokens = [
        {
            "token": token,
            "id": number,
            "segment": segment,
            "start": start,
            "end": end,
            "text": texts[segment][start:end],
        }
        for token, number, segment, (start, end) in zip(
            encoded.tokens, encoded.ids, encoded.segments, encoded.offsets, strict=True
        )
    ]
    if as_json:
        print_json({"text": text, "pair": pair, "n_tokens": len(tokens), "tokens": tokens})
        return
    rows = [
        [
            str(token["token"]),
            str(token["id"]),
            str(token["segment"]),
            f"{token['start']}–{token['end']}" if token["text"] else "",
            repr(token["text"])[1:-1],
        ]
        for token in tokens
    ]
    headings = ["token", "id", "segment", "characters", "text"]
    if len(rows) <= DRAWN:
        table(headings, rows, right=(1, 2))
    else:
        typer.echo("\n".join("\t".join(row) for row in [headings, *rows]))
    typer.echo(f"\n{len(tokens)} tokens")


def load_tokenizer(name: str) -> "Tokenizer":
    """From a file of a tokenizer, or whatever folder a name leads to."""
    from qkv.interop.hub import locate
    from qkv.tokenizer import Tokenizer

    path = Path(name).expanduser()
    return Tokenizer.load(path if path.is_file() or path.suffix in (".json", ".txt") else locate(name))


def _show_steps(tokenizer: "Tokenizer", text: str, pair: str | None, as_json: bool) -> None:
    """The two texts of a pair are cut each by itself; only the special tokens join them."""
    from qkv.cli.terminal import print_json, table

    plain = tokenizer.plain()
    found = [plain.steps(one) for one in (text, pair) if one is not None]
    if as_json:
        steps = [[{"step": step, "parts": parts} for step, parts in one] for one in found]
        print_json({"text": text, "pair": pair, "steps": steps[0], "pair_steps": None if pair is None else steps[1]})
        return
    for number, one in enumerate(found):
        if number:
            typer.echo()
        name = "gives" if len(found) == 1 else ("the first text gives", "the second text gives")[number]
        table(["step", name], [[step, " │ ".join(repr(part)[1:-1] for part in parts)] for step, parts in one])
