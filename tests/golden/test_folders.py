"""What every job leaves: files, keys of JSON and TOML, tensors, columns, and what it prints with --json."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from tests.golden.conftest import Workshop
from tests.golden.golden import check_golden, kept, shape, shape_but
from tests.golden.material import JOBS

EXACT = (
    *("format", "job", "task", "kind", "model_type", "architectures", "main", "transfer", "finished", "step", "steps"),
    *("examples", "parameters", "trained_parameters", "source_language", "target_language", "max_length", "pooling"),
    *("normalize", "pairs", "run", "model", "report", "path", "size", "n_texts", "labels", "columns"),
)
"""Keys whose values do not depend on how a processor rounds."""


def described(folder: Path) -> dict[str, Any]:
    """Every file with what is fixed in it; None where only its name is."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): inside(file) for file in files}


def inside(file: Path) -> Any:
    if file.suffix == ".safetensors":
        with safe_open(file, "pt") as opened:
            parts = {name: opened.get_slice(name) for name in sorted(opened.keys())}
            tensors = {name: f"{part.get_dtype()} {part.get_shape()}" for name, part in parts.items()}
            return {"metadata": opened.metadata(), "tensors": tensors}
    if file.suffix == ".toml":
        return kept(tomllib.loads(file.read_text(encoding="utf-8")))
    if file.suffix == ".jsonl":
        return lines_of(file)
    if file.name == "tokenizer.json":  # the library's, whose versions differ
        return sorted(json.loads(file.read_text(encoding="utf-8")))
    if file.suffix == ".json":
        document = json.loads(file.read_text(encoding="utf-8"))
        settled = file.name in ("config.json", "manifest.json", "tokenizer_config.json", "special_tokens_map.json")
        return kept(document) if settled else shape_but(document, EXACT)
    if file.suffix in (".tsv", ".csv"):
        return file.read_text(encoding="utf-8").splitlines()[0]
    return None


def lines_of(file: Path) -> Any:
    """The kinds of lines, and the steps."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found: dict[str, Any] = {"kinds": shape(lines)}
    if lines and "step" in lines[0]:
        found["steps"] = [line["step"] for line in lines]
    else:
        found["lines"] = len(lines)
    return found


@pytest.mark.parametrize("name", JOBS)
def test_what_a_job_leaves(workshop: Workshop, name: str) -> None:
    folder = workshop.make(name)
    printed = [shape_but(one, EXACT) for one in workshop.answers[name].documents]
    check_golden(f"folders/{name}", {"printed": printed, "files": described(folder)})
