"""`qkv info` and `qkv convert`: describe a folder (model, tokenizer, shards, search index), and rewrite a model.

`qkv convert` rewrites a BERT folder in the current transformers format, or word vectors in another format.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import JsonOption
from qkv.errors import InputError, did_you_mean, reading
from qkv.files import read_object
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import write

if TYPE_CHECKING:
    from qkv.models.family import AddedTokens, Facts


def describe_data(folder: Path) -> dict[str, Any] | None:
    """Describe a folder of a tokenizer, of shards, of a search index or of ONNX graphs; None for any other folder."""
    from qkv.data.corpus.shards import MANIFEST, STATE, Shards
    from qkv.models.folders.own import EXPORT
    from qkv.text.tokenizer import FILES, Tokenizer

    if (folder / EXPORT).is_file():
        return {"path": str(folder), "holds": "onnx", **read_object(folder / EXPORT)}
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
    if (folder / "index.json").is_file() and (folder / "vectors.npy").is_file():
        from qkv.api.index_folder import read_manifest

        index = read_manifest(folder)
        known = ("n_texts", "n_passages", "width", "dtype", "model", "sources")
        return {"path": str(folder), "holds": "index", **{name: index.get(name) for name in known}}
    # a folder with weights is a model without its config.json
    held = {entry.name for entry in folder.iterdir()}
    if held & {"tokenizer.json", "vocab.txt"} and held <= set(FILES):
        return {"path": str(folder), "holds": "tokenizer", "vocabulary": _vocabulary(Tokenizer.load(folder))}
    return None


def format_data(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format the facts of `describe_data` as table rows, with the verbs that use such a folder."""
    from qkv.text.tokenizer import vocabulary_line

    if facts["holds"] == "index":
        return [
            ("folder", facts["path"]),
            ("holds", "a search index"),
            ("texts", f"{facts['n_texts']:,} in {facts['n_passages']:,} passages"),
            ("width", f"{facts['width']}"),
            ("model", facts["model"]["name"]),
            ("for", f"qkv search {facts['path']} TEXT"),
        ]
    if facts["holds"] == "onnx":
        return _lines_of_graphs(facts)
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


def _lines_of_graphs(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    figures, score = facts.get("int8"), (facts.get("int8") or {}).get("score")
    compared = (
        "" if figures is None else f"least cosine with float32 {figures['least_cosine']:.4f}, {figures['held_out']}"
    )
    if score is not None:
        compared += f"; {score['name']} {score['float32']:.4f} → {score['int8']:.4f}"
    graphs = [
        (name, f"{one['bytes'] / 1e6:,.1f} MB, {', '.join(one['inputs'])} → {', '.join(one['outputs'])}")
        for name, one in facts["graphs"].items()
    ]
    rows = [
        ("folder", facts["path"]),
        ("holds", f"ONNX graphs of {facts['title']} ({facts['source']}), head: {facts['head']}"),
        *graphs,
        ("most tokens", f"{facts['max_length']:,}"),
        ("labels", ", ".join(facts["labels"][:12])),
        ("int8", compared),
        ("for", "onnxruntime; README.md there has a script"),
    ]
    return [(name, text) for name, text in rows if text]


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

    For tokenizers, shards, search indexes and exported graphs it prints their sizes and the verbs that use them.

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


# qkv convert.


def convert_vectors(source: str, target: Path, as_json: bool) -> None:
    """Write word vectors in the format of the suffix: .txt and .vec text, .bin binary, also .gz; without one a folder.

    --json prints one document: path, n_words, width, left_out.
    """
    from qkv.cli.terminal import print_json, say
    from qkv.cli.word_vectors import load_named_vectors
    from qkv.models.word2vec.files import choose_form

    if target.suffix:
        choose_form(target)  # fail early
    vectors = load_named_vectors(source)
    left_out = vectors.save(target)
    if left_out:
        say(f"note: {len(left_out):,} words cannot be written in this format and are left out, such as {left_out[0]!r}")
    number = len(vectors) - len(left_out)
    if as_json:
        print_json({"path": str(target), "n_words": number, "width": vectors.width, "left_out": left_out})
        return
    write(f"{target}: {number:,} words, {vectors.width} numbers each")


_DTYPES = ("float32", "bfloat16", "float16")
_STORED = (*_DTYPES, "int8")


def _store(found: "Facts", target: Path, dtype: str, bits: int | None, as_json: bool) -> None:
    """Write a folder with its weights as another type, and print the error."""
    from qkv.cli.terminal import print_json
    from qkv.models.folders.own import check_model_target, rewrite_folder

    check_model_target(target)
    target = Path(os.path.expanduser(target))
    error = rewrite_folder(found.path, target, dtype, bits)
    count = found.document["parameters"]
    total = count["total"] if isinstance(count, dict) else count
    facts = {"path": str(target), "architecture": found.model_type, "parameters": total}
    if as_json:
        print_json({**facts, "dtype": dtype, "largest_error": error.largest, "mean_error": error.mean})
        return
    write(f"{target}: {found.model_type}, {facts['parameters']:,} parameters, {dtype}")
    if error.largest:
        write(f"relative error of a row: {error.mean:.2%} on average, {error.largest:.2%} at most ({error.where})")


def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="FOLDER|FILE", help="Model folder or run, hf:owner/name, or a file of word vectors."),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="NEW", help="Folder to write; for word vectors also a file .txt .vec .bin, also compressed."
        ),
    ],
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="TYPE",
            help="float32, float16 or bfloat16 (default: as stored); for models that only qkv reads also int8.",
        ),
    ] = None,
    architecture: Annotated[
        str | None, typer.Option("--architecture", metavar="CLASS", help="Keep only the weights of this class.")
    ] = None,
    fold: Annotated[
        str | None,
        typer.Option(
            "--fold",
            metavar="NAMES",
            help="How the new folder reads texts: width (full-width letters as half-width), emoji (each by itself), "
            "simplified (traditional 汉字 as simplified); several: width,emoji.",
        ),
    ] = None,
    add_tokens: Annotated[
        Path | None,
        typer.Option(
            "--add-tokens",
            metavar="FILE",
            help="New tokens of a WordPiece vocabulary, one a line; after a tab a text that means the same, from which "
            "it begins.",
        ),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(
            "--bits",
            metavar="N",
            min=2,
            max=8,
            help="With --dtype: keep N significant bits of each number of a matrix. The file is as large, and packs "
            "smaller.",
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option("--layers", metavar="N", help="Keep only the first N layers of a BERT.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the contents of NEW.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rewrite a BERT folder in the current transformers format, word vectors in another format, or weights as another
    type, atomically.

    Reads old formats too: pytorch_model.bin, shards, gamma/beta names, only a vocab.txt. Weights stored in several
    types or in float64 become float32 unless --dtype is given. Tokens are added after --fold; old ids stay.

    \b
    qkv convert old-folder new-folder
    qkv convert old-folder new-folder --dtype float16 --architecture BertModel
    qkv convert hf:bert-base-chinese mine --fold width,emoji
    qkv convert qkv-mini mine --add-tokens words.txt
    qkv convert qkv-mini half --layers 6 --architecture BertModel
    qkv convert word2vec-folder vectors.bin
    qkv convert vectors.bin word2vec-folder
    qkv convert run small --dtype int8 --bits 6

    Folders of word2vec, NNLM, recurrent language models, ELMo, plain encoders and translators of qkv can be stored in
    8 bits, with a scale for each row of a matrix; the error is printed, and --dtype float32 gives floats again.

    --json prints one document: path, architecture, parameters, dtype, with --add-tokens also n_added; for word vectors
    path, n_words, width, left_out; where only the type of the weights changes, also largest_error, mean_error.
    """
    if dtype is not None and dtype not in _STORED:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, _STORED)} Known: {', '.join(_STORED)}.")
    there = Path(os.path.expanduser(target))
    if not overwrite and (any(there.iterdir()) if there.is_dir() else there.exists()):
        raise InputError(f"{target} already exists. Give another name, or add --overwrite.")

    import torch

    from qkv.cli.terminal import say
    from qkv.models.family import LOOKS_UP, Loading
    from qkv.models.folders.hub import locate
    from qkv.models.folders.own import OWN_FORMATS, check_model_target
    from qkv.models.table import describe_model, open_model

    file = Path(os.path.expanduser(source))
    place = file if file.is_file() else locate(source)
    found = describe_model(place)
    changes = (architecture, fold, add_tokens, layers)
    is_own = place.is_dir() and found.model_type in OWN_FORMATS
    if bits is not None:
        if dtype is None or not place.is_dir() or target.suffix or any(one is not None for one in changes):
            raise InputError("--bits is for a folder, with --dtype and no other change: convert it in two steps.")
        if dtype == "int8" and not is_own:
            raise InputError(f"{place} holds {found.about.en}: --bits goes with --dtype bfloat16 there, not with int8.")
        _store(found, target, dtype, bits, as_json)
        return
    if is_own and dtype is not None and not (target.suffix and LOOKS_UP in found.abilities):
        if any(one is not None for one in changes):
            raise InputError(f"{place} is of a format of qkv: with --dtype leave out the other options.")
        _store(found, target, dtype, bits, as_json)
        return
    if LOOKS_UP in found.abilities:
        if any(one is not None for one in (dtype, *changes)):
            raise InputError(
                "Files of word vectors are always float32: leave out all options but --overwrite. A folder of them "
                "takes --dtype."
            )
        convert_vectors(source, target, as_json)
        return
    if dtype == "int8":
        raise InputError(
            f"{place} holds {found.about.en}, which other libraries read as well, and they do not read our 8 bits: use "
            "--dtype float16."
        )
    stored = found.document.get("dtype", "float32")
    if dtype is None and stored not in _DTYPES:
        say(f"note: the weights are stored as {stored} and are written as float32")
        dtype = "float32"
    check_model_target(target)
    opened = open_model(place, Loading(getattr(torch, dtype or stored)))
    if opened.write is None and dtype is not None and all(one is None for one in changes):
        _store(found, target, dtype, bits, as_json)
        return
    for note in opened.notes:
        say(f"note: {note}")
    if fold is not None:
        from qkv.text.folding import add_folding, check_fold, read_folds

        names, kind = read_folds(fold, opened.tokenizer.kind), opened.tokenizer.kind
        if not names:
            raise InputError("--fold none is for new tokenizers; the foldings of a model are part of it. Leave it out.")
        check_fold(names, kind, opened.tokenizer.segmenter)
        add_folding(opened.tokenizer.backend, names)
    added = None if add_tokens is None else opened.add_tokens(add_tokens)
    if layers is not None:
        opened.keep_layers(layers)
        if found.heads and architecture is None:
            say(f"note: the heads were trained on {found.shown.get('layers')} layers; --architecture leaves them out")
    target = opened.save(target, architecture)
    if added is not None:
        _say_added(added)
    facts = describe_model(target).document
    kind, count = facts.get("architecture", opened.architecture), facts["parameters"]
    total = count["total"] if isinstance(count, dict) else count
    if as_json:
        from qkv.cli.terminal import print_json

        document = {"path": str(target), "architecture": kind, "parameters": total, "dtype": facts["dtype"]}
        print_json(document | ({} if added is None else {"n_added": len(added.tokens)}))
        return
    write(f"{target}: {kind}, {total:,} parameters, {facts['dtype']}")


def _say_added(added: "AddedTokens") -> None:
    from qkv.cli.terminal import say

    say(f"{len(added.tokens):,} tokens were added; the vocabulary has {added.tokenizer.size:,}")
    if added.known:
        say(f"note: skipped, since the model has them: {_some(added.known)}")
    if added.repeated:
        say(f"note: skipped, since an earlier line has them: {_some(added.repeated)}")
    if added.blank:
        say(
            f"note: {len(added.blank):,} begin as [UNK], since the model knows no part of them: {_some(added.blank)}. "
            "After the token, write a tab and a text that means the same."
        )


def _some(tokens: list[str]) -> str:
    return ", ".join(tokens[:8]) + (f", … ({len(tokens):,})" if len(tokens) > 8 else "")
