"""qkv info, for folders that hold no model: a tokenizer's, and a prepared corpus."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def describe_data(folder: Path) -> dict[str, Any] | None:
    """What a folder of a tokenizer or of shards holds, with what it is as `holds`; None for any other folder."""
    from qkv.data.shards import MANIFEST, STATE, Shards
    from qkv.tokenizer import Tokenizer
    from qkv.tokenizer_files import FILES

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
