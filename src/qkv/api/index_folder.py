"""The folder of a search index, checked by its manifest without torch. An index is a folder with these files:

    index.json      sizes, sources, and the model with the hash of its files; written last
    vectors.npy     (P, D) float16, unit length, mapped into memory
    passages.npy    (P, 3) int64: number of the text, start and end of the passage in characters
    texts.jsonl     one object a text: text, file, line, columns
    offsets.npy     (N + 1,) int64: where each line of texts.jsonl begins
    graph.usearch   only with `approximate`: a graph of neighbours (HNSW, Malkov and Yashunin 2016)

Shapes: N texts, P passages, D width.
"""

from pathlib import Path
from typing import Any

from qkv.errors import InputError, did_you_mean, reading
from qkv.files import read_object

INDEX_FILE, VECTOR_FILE, PASSAGE_FILE = "index.json", "vectors.npy", "passages.npy"
TEXT_FILE, OFFSET_FILE, GRAPH_FILE = "texts.jsonl", "offsets.npy", "graph.usearch"
FORMAT = 1
"""Version of the folder."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Check the files of an index against its index.json."""
    advice = "Build one with: qkv search index FILES --out INDEX."
    with reading(folder):
        if not folder.is_dir():
            near = [one.name for one in folder.parent.iterdir() if one.is_dir()] if folder.parent.is_dir() else []
            raise InputError(f"There is no index {folder}.{did_you_mean(folder.name, near)} {advice}")
        if not (folder / INDEX_FILE).is_file():
            if (folder / VECTOR_FILE).is_file():
                raise InputError(f"{folder} is not whole: {INDEX_FILE}, which is written last, is missing. {advice}")
            raise InputError(f"{folder} is not a search index: it has no {INDEX_FILE}. {advice}")
    facts = read_object(folder / INDEX_FILE)
    if facts.get("format") != FORMAT:
        raise InputError(
            f"{folder / INDEX_FILE} has the format {facts.get('format')!r}; this version of qkv reads {FORMAT}. Build "
            "the index again."
        )
    missing = [one for one in ("model", "files", "width", "n_texts", "n_passages", "approximate") if one not in facts]
    if missing:
        raise InputError(f"{folder / INDEX_FILE} is damaged: it has no {missing[0]}. Build the index again.")
    for name, size in facts["files"].items():
        with reading(folder / name):
            found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            had = "is not there" if found is None else f"has {found:,} bytes"
            raise InputError(
                f"{folder} is not whole: {name} {had}, and had {size:,} when it was written. Copy or build it again."
            )
    return facts
