"""qkv info, for folders that hold no model: a tokenizer's, and a prepared corpus."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.options import JsonOption
from qkv.errors import reading
from qkv.models.folders.hub import DEFAULT_MODEL


def describe_data(folder: Path) -> dict[str, Any] | None:
    """What a folder of a tokenizer or of shards holds, with what it is as `holds`; None for any other folder."""
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
    # weights beside them are a model's that has lost its config.json
    held = {entry.name for entry in folder.iterdir()}
    if held & {"tokenizer.json", "vocab.txt"} and held <= set(FILES):
        return {"path": str(folder), "holds": "tokenizer", "vocabulary": _vocabulary(Tokenizer.load(folder))}
    return None


def lines_of_data(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same, for people, with the verbs that take such a folder."""
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


def vocabulary_line(found: Mapping[str, Any]) -> str:
    chinese = f", Chinese by {found['segmenter']}" if found["segmenter"] else ""
    case = "lower case" if found["lowercase"] else "case kept"
    return f"{found['size']:,} tokens by {found['kind']}{chinese}, {case}"


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in ("size", "kind", "lowercase", "segmenter")}


# --- qkv info, for folders of GPT and GPT-2.


def lines_of_gpt(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    sizes, vocabulary, path = facts["config"], facts["vocabulary"], facts["path"]
    rows = vocabulary["rows"]
    first = f"qkv generate {path} TEXT; qkv embed TEXT --model {path}"
    first = f"qkv predict {path} TEXT" if facts["heads"] else first
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    return [
        ("folder", path),
        ("model", f"{facts['model_type']}: {facts['about']}"),
        (
            "layers",
            f"{sizes['layers']} of width {sizes['width']}, {sizes['heads']} attention heads, feed-forward "
            f"{sizes['inner_width']}, {sizes['activation']}, {sizes['order']}-norm",
        ),
        ("longest text", f"{facts['max_length']} tokens, prompt and all"),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("note", "; ".join(facts["notes"])),
        ("heads", ", ".join(facts["heads"])),
        ("labels", ", ".join(facts["labels"][:12]) + (" …" if len(facts["labels"]) > 12 else "")),
        ("for", f"{first}; qkv finetune TASK --model {path} --train FILE --out RUN"),
    ]


# --- qkv info, for models that translate.


def lines_of_translation(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    source, target = (language or "?" for language in facts["languages"])
    vocabularies = [vocabulary_line(one) for one in facts["vocabularies"]]
    sides = vocabularies if len(vocabularies) == 1 else [f"source {vocabularies[0]}; target {vocabularies[1]}"]
    longest = facts["max_length"]
    scores = [
        f"{score['bleu']:.2f} on {name} ({score['bleu_signature']})"
        for name, score in (facts["scores"] or {}).items()
        if "bleu" in score
    ]
    return [
        ("folder", facts["path"]),
        ("model", f"{facts['model_type']}: {facts['about']}"),
        ("languages", f"{source} → {target}" if any(facts["languages"]) else ""),
        ("sizes", ", ".join(f"{name} {value}" for name, value in facts["config"].items())),
        ("longest text", f"{longest} tokens" if longest else ""),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", sides[0]),
        ("BLEU", "; ".join(scores)),
        ("licence", facts["licence"] or ""),
        ("for", f"qkv translate {facts['path']} TEXT"),
    ]


# --- qkv info: what a model folder holds.

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
    from qkv.models.bert.folder import describe
    from qkv.models.folders.hub import locate
    from qkv.models.folders.own import KINDS, WEIGHTS, describe_folder, model_type_of
    from qkv.models.gpt.folder import describe as describe_gpt
    from qkv.models.gpt.folder import is_gpt
    from qkv.models.transformer.folder import describe_translation, is_translation
    from qkv.train.run_folder import model_folder

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
