"""qkv info: what a model folder holds."""

from typing import Annotated, Any

import typer

from qkv.cli.options import JsonOption


def info(
    model: Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or hf:owner/name.")],
    as_json: JsonOption = False,
) -> None:
    """Say what a model folder holds: architecture, size, vocabulary, labels. Weights are not read.

    \b
    qkv info FOLDER
    qkv info FOLDER --json

    --json prints one document with every field.
    """
    from qkv.interop.hf import describe
    from qkv.interop.hub import locate
    from qkv.run.load import model_folder

    facts = describe(model_folder(locate(model)))
    from qkv.cli.terminal import print_json, table

    if as_json:
        print_json(facts)
        return
    table(["", ""], [[name, value] for name, value in _lines(facts) if value])
    for note in facts["notes"]:
        typer.echo(f"note: {note}")


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    parameters, vocabulary = facts["parameters"], facts["vocabulary"]
    stated, found = facts["stated_architecture"], facts["architecture"]
    heads = ", ".join(f"{name} {number:,}" for name, number in parameters["heads"].items())
    labels = facts["labels"]
    shown = ", ".join(labels[:12]) + (f", … ({len(labels)} in all)" if len(labels) > 12 else "")
    case = "lower case" if vocabulary["lowercase"] else "case kept"
    spare = f", table of {vocabulary['rows']:,} rows" if vocabulary["rows"] != vocabulary["size"] else ""
    pooling = facts["pooling"] and facts["pooling"] + (", scaled to length 1" if facts["normalize"] else "")
    return [
        ("folder", facts["path"]),
        ("architecture", found if stated in (None, found) else f"{found} (config.json says {stated})"),
        ("heads", ", ".join(facts["heads"]) or "none: embeds texts and shows attention"),
        (
            "layers",
            f"{facts['layers']} of width {facts['width']}, {facts['attention_heads']} attention heads, "
            f"feed-forward {facts['inner_width']}, {facts['activation']}",
        ),
        ("longest text", f"{facts['max_length']} tokens at once"),
        ("parameters", f"{parameters['total']:,}"),
        ("  embeddings", f"{parameters['embeddings']:,}"),
        ("  encoder", f"{parameters['encoder']:,}"),
        ("  pooler", f"{parameters['pooler']:,}" if parameters["pooler"] else ""),
        ("  heads", heads),
        ("vocabulary", f"{vocabulary['size']:,} tokens, {vocabulary['kind']}, {case}{spare}"),
        ("labels", shown),
        ("pooling", pooling or ""),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
    ]
