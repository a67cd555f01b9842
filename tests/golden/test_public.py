"""Imports that the documentation shows, and the public names of `qkv` with their signatures."""

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import qkv
from tests.golden.golden import STORED, check_golden

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?:python|py|pycon)\b.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^(?:>>> )?(?:from (qkv[\w.]*) import ([\w, ]+|\([^)]*\))|import (qkv[\w.]*))", re.MULTILINE)


def shown_imports() -> list[str]:
    """Of all documents: module, or module:name."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("src/**/*.md")]
    found = set()
    for file in files:
        for block in FENCE.findall(file.read_text(encoding="utf-8")):
            for module, names, alone in IMPORT.findall(block):
                if alone:
                    found.add(alone)
                found |= {f"{module}:{name.split()[0]}" for name in names.strip("()").split(",") if name.strip()}
    return sorted(found)


def test_the_list_of_imports_is_whole() -> None:
    """What was shown stays; what is shown newly is added to the list (QKV_GOLDEN=write)."""
    check_golden("imports", sorted({*stored_imports(), *shown_imports()}))


def stored_imports() -> list[str]:
    file = STORED / "imports.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []


@pytest.mark.parametrize("shown", stored_imports())
def test_an_import_that_was_shown(shown: str) -> None:
    module, _, name = shown.partition(":")
    found = importlib.import_module(module)
    if name and not hasattr(found, name):
        importlib.import_module(f"{module}.{name}")  # a module of a package


def signature(thing: Any) -> str | None:
    """Parameters with their defaults; annotations are named after modules, which move."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    return re.sub(r" at 0x[0-9a-f]+", "", str(found.replace(parameters=bare, return_annotation=found.empty)))


def described(thing: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": type(thing).__name__}
    if callable(thing):
        found["signature"] = signature(thing)
    if isinstance(thing, type):
        ours = {name for one in thing.__mro__ if one.__module__.split(".")[0] == "qkv" for name in vars(one)}
        found["members"] = {name: member(thing, name) for name in sorted(ours) if not name.startswith("_")}
    return found


def member(owner: type, name: str) -> str | None:
    found = inspect.getattr_static(owner, name)
    inner = getattr(found, "__func__", found)
    return signature(inner) if callable(inner) else "value"


def test_public_names() -> None:
    assert sorted(qkv.__all__) == dir(qkv)
    check_golden("public", {name: described(getattr(qkv, name)) for name in sorted(qkv.__all__)})
