"""`qkv attention`: draw attention weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import (
    JsonOption,
    LanguageOption,
    ModelOption,
    load_model,
    suffix_of,
    text_or_stdin,
)
from qkv.errors import InputError
from qkv.models.folders.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from qkv.report.attention import AttentionMap

_ENDINGS = {".svg": "a picture of one head", ".html": "a page with every head", ".json": "the weights for a program"}


def draw_attention(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.")],
    model: ModelOption = DEFAULT_MODEL,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT", help="Second text.")] = None,
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="N", help="Layer, counted from 0 (default: last).")
    ] = None,
    head: Annotated[int | None, typer.Option("--head", metavar="N", help="Head, counted from 0 (default 0).")] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="WORD", help="Word whose attention is highlighted.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .svg, .html or .json.")] = None,
    lang: LanguageOption = "en",
    as_json: JsonOption = False,
) -> None:
    """Draw the attention of one head, or of all heads on a page that opens offline.

    Layers and heads are counted from 0, as in the names of the weights.

    \b
    qkv attention "The children went home because they were hungry." --token they --layer 6 --head 2
    qkv attention "The river is long, and it flows into the sea." --token it --layer 6 --head 2 --out it.svg
    qkv attention "他欠我100万" --pair "我欠他100万" --out pair.html --lang zh --model FOLDER

    .svg is a picture of one head, .html a page with every head, .json (also --json) the selected weights,
    one byte each: {name, attn, shape, layers, heads, left, right, texts}. With --out, --json prints one document
    about the file: out, layers, heads, n_tokens.
    """
    from qkv.models.family import ATTENDS
    from qkv.report.attention import caption_texts, choose

    suffix = suffix_of(out, _ENDINGS) if out is not None else None
    caption_texts(lang)
    text = text_or_stdin(text)
    loaded = load_model(model, ATTENDS)
    one = suffix == ".svg" or (suffix is None and not as_json)
    wanted_layer = loaded.config.layers - 1 if layer is None and one else layer
    wanted_head = 0 if head is None and one else head
    # the page has all heads and opens with the selected one; other formats have only the selected ones
    page = suffix == ".html"
    found = loaded.attention(text, pair, None if page else wanted_layer, None if page else wanted_head)
    choose(found, found.weights(found.layers[0], found.heads[0]), token)  # report an unknown word in any case
    if out is not None:
        write_attention(found, out, wanted_layer, wanted_head, token, lang)
    if as_json:
        from qkv.cli.terminal import print_json

        facts = {"out": str(out), "layers": found.layers, "heads": found.heads, "n_tokens": found.n_tokens}
        print_json(found.to_dict() if out is None else facts)
    elif out is not None:
        from qkv.cli.terminal import say

        say(f"{out}: {_ENDINGS[out.suffix.lower()]}, {found.n_tokens} tokens")
    else:
        assert wanted_layer is not None and wanted_head is not None
        print_attention(found, wanted_layer, wanted_head, token)


def write_attention(
    found: "AttentionMap", out: Path, layer: int | None, head: int | None, token: str | None, lang: str
) -> None:
    """Write one file, in the format of its suffix."""
    from qkv.files import write_text

    suffix = suffix_of(out, _ENDINGS)
    if suffix == ".json":
        found.save(out)
    elif suffix == ".html":
        from qkv.report.attention import attention_page

        write_text(out, attention_page(found, layer, head, token, lang))
    else:
        from qkv.report.attention import draw_attention

        if layer is None or head is None:
            raise InputError("A picture shows one head: give --layer and --head.")
        write_text(out, draw_attention(found, layer, head, token, lang))


def print_attention(found: "AttentionMap", layer: int, head: int, token: str | None) -> None:
    """Print the attention of one word as bars."""
    from qkv.cli.terminal import bar, print_table
    from qkv.report.attention import choose

    weights = found.weights(layer, head)
    chosen = choose(found, weights, token)
    looks = weights[list(chosen)].mean(axis=0)
    name = "".join(found.left[place].label.removeprefix("##") for place in chosen)
    rows = [[one.label, f"{weight:.0%}", bar(float(weight))] for one, weight in zip(found.right, looks, strict=True)]
    print_table([f"layer {layer}, head {head}: {name} looks at", "", ""], rows, right=(1,))
