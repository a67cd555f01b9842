"""qkv info: what a model folder holds."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.info_data import describe_data, lines_of_data, vocabulary_line
from qkv.cli.info_gpt import lines_of_gpt
from qkv.cli.info_translation import lines_of_translation
from qkv.cli.options import JsonOption
from qkv.errors import reading
from qkv.interop.zoo import DEFAULT_MODEL

LICENCE = re.compile(r"^license:[ \t]*['\"]?(?P<name>[^'\"\n]+)", re.MULTILINE)
"""A line in the head of a model card, as the hub has it."""

OF_TEXTS = ("qkv embed TEXT --model {}", "qkv finetune TASK --model {} --train FILE --out RUN")
FOR = {
    **dict.fromkeys(("word2vec", "nnlm"), ("qkv similar WORD --model {}", *OF_TEXTS)),
    **dict.fromkeys(("rnnlm", "elmo"), OF_TEXTS),
    "reader": ("qkv predict {} TEXT",),
}
"""The verbs that take a folder of ours, by its model_type."""


def info(
    model: Annotated[
        str, typer.Argument(metavar="FOLDER", envvar="QKV_MODEL", help="A model folder, or hf:owner/name.")
    ] = DEFAULT_MODEL,
    as_json: JsonOption = False,
) -> None:
    """Say what a model folder holds: architecture, size, vocabulary, labels, licence. Weights are not read.

    Of a tokenizer and of a prepared corpus it says how large they are, and what takes them.

    \b
    qkv info
    qkv info FOLDER
    qkv info FOLDER --json

    --json prints one document with every field.
    """
    from qkv.cli.terminal import print_json, table
    from qkv.interop.folder import KINDS, WEIGHTS, describe_folder, model_type_of
    from qkv.interop.gpt2 import describe as describe_gpt
    from qkv.interop.gpt2 import is_gpt
    from qkv.interop.hf import describe
    from qkv.interop.hub import locate
    from qkv.interop.translation_folder import describe_translation, is_translation
    from qkv.run.places import model_folder

    folder = model_folder(locate(model))
    if (data := describe_data(folder)) is not None:
        if as_json:
            print_json(data)
        else:
            table(["", ""], [list(line) for line in lines_of_data(data)])
        return
    for fits, described, lines_of in (
        (is_translation, describe_translation, lines_of_translation),
        (is_gpt, describe_gpt, lines_of_gpt),
    ):
        if fits(folder):
            known = described(folder) | terms(folder)
            if as_json:
                print_json(known)
            else:
                table(["", ""], [list(line) for line in lines_of(known) if line[1]])
            return
    ours = model_type_of(folder) in KINDS  # a model that transformers has no class for
    facts = (describe_folder(folder) if ours else describe(folder)) | terms(folder)
    if ours:
        facts["weight_bytes"] = facts["files"][WEIGHTS]
    if as_json:
        print_json(facts)
        return
    lines = _lines_of_ours(facts) if ours else _lines(facts)
    table(["", ""], [[name, value] for name, value in lines if value])
    for note in facts.get("notes", ()):
        typer.echo(f"note: {note}")


def terms(folder: Path) -> dict[str, str | None]:
    """The card of a model, the licence that its head names, and the file with the licence itself."""
    card = folder / "README.md"
    text = ""
    if card.is_file():
        with reading(card):
            text = card.read_text(encoding="utf-8", errors="replace")
    head = text.split("---\n", 2)[1] if text.startswith("---\n") else ""
    named = LICENCE.search(head)
    files = [file for file in sorted(folder.glob("LICENSE*")) if file.is_file()]
    return {
        "card": str(card) if text else None,
        "licence": named["name"].strip() if named else None,
        "licence_file": str(files[0]) if files else None,
    }


def _lines_of_ours(facts: dict[str, Any]) -> list[tuple[str, str]]:
    vocabulary, words = vocabulary_line(facts["vocabulary"]), facts["record"].get("words")
    return [
        ("folder", facts["path"]),
        ("model", f"{facts['model_type']}: {facts['about']}"),
        (
            "sizes",
            ", ".join(f"{name} {value}" for name, value in facts["config"].items() if not isinstance(value, dict)),
        ),
        ("features", _features(facts["config"].get("features"), facts["record"].get("mix"))),
        ("parameters", f"{facts['parameters']:,}"),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("vocabulary", vocabulary + ("" if words is None else f"; {words:,} words have a vector")),
        ("licence", facts["licence"] or ""),
        ("for", "; ".join(verb.format(facts["path"]) for verb in FOR.get(facts["model_type"], ()))),
    ]


def _features(sizes: dict[str, Any] | None, mix: dict[str, Any] | None) -> str:
    """What a reader stands on, if not on a table of vectors."""
    if not sizes:
        return ""
    text = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "model_type")
    shares = " ".join(f"{share:.2f}" for share in mix["shares"]) if mix else ""
    mixed = f"; its layers mixed {shares}, times {mix['gamma']:.2f}" if mix else ""
    return f"vectors of {sizes['model_type']} ({text}){mixed}"


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    parameters, vocabulary = facts["parameters"], facts["vocabulary"]
    rows = vocabulary["rows"]
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    stated, found = facts["stated_architecture"], facts["architecture"]
    heads = ", ".join(f"{name} {number:,}" for name, number in parameters["heads"].items())
    labels = facts["labels"]
    shown = ", ".join(labels[:12]) + (f", … ({len(labels)} in all)" if len(labels) > 12 else "")
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
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("labels", shown),
        ("pooling", pooling or ""),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("card", facts["card"] or ""),
    ]
