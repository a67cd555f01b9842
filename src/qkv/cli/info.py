"""`qkv info`: describe a folder: model, tokenizer or shards."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.options import JsonOption
from qkv.errors import reading
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import write


def describe_data(folder: Path) -> dict[str, Any] | None:
    """Describe a folder of a tokenizer or of shards; None for any other folder."""
    from qkv.data.corpus.shards import MANIFEST, STATE, Shards
    from qkv.text.tokenizer import FILES, Tokenizer

    if (folder / "config.json").exists():
        return None
    if (folder / MANIFEST).is_file() or (folder / STATE).is_file():
        train, valid = (Shards.open(folder, part) for part in ("train", "valid"))
        corpus = train.manifest
        return {
            "path": str(folder),
            "holds": "shards",
            "documents": train.n_documents + valid.n_documents,
            "held_out": valid.n_documents,
            "sentences": train.n_sentences + valid.n_sentences,
            "tokens": train.n_tokens + valid.n_tokens,
            "segmenter": corpus["settings"]["segmenter"],
            "sources": [source["name"] for source in corpus["sources"]],
            "vocabulary": _vocabulary(train.tokenizer()),
        }
    # a folder with weights is a model without its config.json
    held = {entry.name for entry in folder.iterdir()}
    if held & {"tokenizer.json", "vocab.txt"} and held <= set(FILES):
        return {"path": str(folder), "holds": "tokenizer", "vocabulary": _vocabulary(Tokenizer.load(folder))}
    return None


def format_data(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format the facts of `describe_data` as table rows, with the verbs that use such a folder."""
    from qkv.text.tokenizer import vocabulary_line

    vocabulary, path = facts["vocabulary"], facts["path"]
    shown = ("vocabulary", vocabulary_line(vocabulary))
    if facts["holds"] == "tokenizer":
        verbs = f"qkv tokenize TEXT --model {path}; qkv prepare FILE --tokenizer {path} --out SHARDS"
        return [("folder", path), ("holds", "a tokenizer, no model"), shown, ("for", verbs)]
    sources = facts["sources"]
    return [
        ("folder", path),
        ("holds", "a prepared corpus (shards), no model"),
        ("from", ", ".join(sources[:4]) + (f", … ({len(sources)} files)" if len(sources) > 4 else "")),
        ("documents", f"{facts['documents']:,}, {facts['held_out']:,} of them held out"),
        ("sentences", f"{facts['sentences']:,}"),
        ("tokens", f"{facts['tokens']:,}"),
        ("segmenter", facts["segmenter"]),
        shown,
        ("for", f"qkv pretrain MODEL --data {path} --out RUN; qkv show {path}"),
    ]


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in ("size", "kind", "lowercase", "segmenter")}


LICENCE = re.compile(r"^license:[ \t]*['\"]?(?P<name>[^'\"\n]+)", re.MULTILINE)
"""The licence line in the front matter of a model card."""


def info(
    model: Annotated[
        str, typer.Argument(metavar="FOLDER", envvar="QKV_MODEL", help="Model folder, or hf:owner/name.")
    ] = DEFAULT_MODEL,
    as_json: JsonOption = False,
) -> None:
    """Describe a model folder: architecture, size, vocabulary, labels, licence. Weights are not read.

    For tokenizers and shards it prints their sizes and the verbs that use them.

    \b
    qkv info
    qkv info FOLDER
    qkv info FOLDER --json

    --json prints one document with every field.
    """
    from qkv.cli.terminal import print_facts, print_json
    from qkv.models.folders.hub import locate

    folder = locate(model)
    if (data := describe_data(folder)) is not None:
        if as_json:
            print_json(data)
        else:
            print_facts(format_data(data))
        return
    from qkv.models.table import describe_model, load_family

    facts = describe_model(folder)
    document = facts.document | read_licence(folder)
    if as_json:
        print_json(document)
        return
    print_facts((name, text) for name, text in load_family(facts.family).info(document) if text)
    for note in facts.notes:
        write(f"note: {note}")


def read_licence(folder: Path) -> dict[str, str | None]:
    """Return the model card, the licence named in its front matter, and the licence file."""
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
