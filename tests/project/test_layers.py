"""Which way imports point: the table of the design, checked over the source itself.

A file imports from a lower rank, or from files of its own folder that do not lead back to it. An import inside a
function, under TYPE_CHECKING, relative, or through `importlib` counts like any other. A module name that is put
together at run time is looked for among the file's own string literals, and refused when none of them fits.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "qkv"
LONGEST = 700  # lines in a file of the package: a file is as long as its idea, and no longer than this
MOST_ENTRIES = 20  # in a folder of the package: a folder tells one story

# Every file or folder directly under src/qkv is listed here; a new one is added on purpose.
RANKS = {
    name: rank
    for rank, names in enumerate(
        (
            "errors",
            "files config",
            "text nn metrics",
            "train",
            "data",
            "search",
            "report",
            "models",
            "tasks",
            "jobs",
            "api",
            "serve",
            "look",
            "cli",
            "__init__ __main__",
        )
    )
    for name in names.split()
}

STANDARD = sys.stdlib_module_names | {"_typeshed"}  # the latter holds the standard library's types, for checkers only

# What these may import beside the standard library: other distributions, and parts of qkv.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "config": (set(), {"errors"}),
    "nn": ({"torch", "triton", "numpy", "numba", "llvmlite"}, {"nn", "errors"}),
}

PLAIN_NN = {"torch"}
"""What the equations of nn/ may import; Triton and numba stay in nn/gpu and nn/cpu."""


class Tree:
    """The modules under one package folder and the imports between them."""

    def __init__(self, folder: Path) -> None:
        self.package = folder.name
        self.files: dict[str, Path] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = [self.package, *path.relative_to(folder).with_suffix("").parts]
            self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        # A folder without __init__ is a package all the same.
        self.packages = {self.package} | {
            ".".join([self.package, *path.parent.relative_to(folder).parts]) for path in self.files.values()
        }
        self.problems: list[str] = []
        self.imports: dict[str, dict[str, int]] = {name: self._imports(name) for name in self.files}

    def top(self, module: str) -> str:
        """The name that carries the rank: the file or folder directly under the package."""
        parts = module.split(".")
        if len(parts) > 1:
            return parts[1]
        return "__init__"

    def parent(self, module: str) -> str:
        return module if module in self.packages else module.rpartition(".")[0]

    def place(self, module: str, line: int) -> str:
        return f"{self.files[module].name if module == self.package else module}:{line}"

    def _imports(self, module: str) -> dict[str, int]:
        """Every module that `module` names in an import, with the line; outsiders included."""
        tree = ast.parse(self.files[module].read_text(encoding="utf-8"))
        found: dict[str, int] = {}
        for node in ast.walk(tree):
            for target in self._targets(module, node, tree):
                found.setdefault(target, getattr(node, "lineno", 1))
        return found

    def _targets(self, module: str, node: ast.AST, tree: ast.Module) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(module, "." * node.level + (node.module or ""))
            for alias in node.names:
                # `from qkv.nn import attention` names a file, `from qkv.nn import Attention` names what __init__ gives.
                inner = f"{base}.{alias.name}"
                yield inner if inner in self.files or inner in self.packages else base
        elif isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__"):
            yield from self._dynamic(module, node, tree)

    def _absolute(self, module: str, name: str) -> str:
        dots = len(name) - len(name.lstrip("."))
        if not dots:
            return name
        base = self.parent(module).split(".")
        return ".".join([*base[: len(base) - dots + 1], *filter(None, name[dots:].split("."))])

    def _dynamic(self, module: str, call: ast.Call, tree: ast.Module) -> Iterator[str]:
        name = call.args[0] if call.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield self._absolute(module, name.value)
            return
        # The name is put together at run time: "qkv.cli." + verb, f"qkv.{part}", TABLE[name], perhaps with a package.
        starts = {"", self.package + ".", self.parent(module) + "."}
        if name is not None:
            starts |= {text for text in _strings(name) if text.endswith(".")}
        candidates = {
            target
            for text in _strings(tree)
            if text.strip(".:")  # a full stop is no name
            for start in starts
            if (target := self._absolute(module, start + text.partition(":")[0])) in self.files and target != module
        }
        if not candidates:
            self.problems.append(
                f"{self.place(module, call.lineno)} imports a name that cannot be read here; write it as a literal"
            )
        yield from sorted(candidates)


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _strings(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def problems(folder: Path, ranks: Mapping[str, int] = RANKS) -> list[str]:
    """Everything in the package at `folder` that breaks the directions, one line each."""
    tree = Tree(folder)
    found = list(tree.problems)
    for module, targets in tree.imports.items():
        top = tree.top(module)
        if top not in ranks:
            found.append(f"{module}: '{top}' has no rank; add it to RANKS in tests/project/test_layers.py")
            continue
        others, parts = ALLOWED.get(top, (None, None))
        for target, line in targets.items():
            place = tree.place(module, line)
            if target.split(".")[0] != tree.package:
                if others is not None and target.split(".")[0] not in others | STANDARD:
                    found.append(
                        f"{place} imports {target}; beside the standard library {top} may have {sorted(others)}"
                    )
                continue
            goal = tree.top(target)
            if parts is not None and goal not in parts:
                found.append(f"{place} imports {target}; of {tree.package}, {top} may import only {sorted(parts)}")
            if target == tree.parent(module) and target != module:
                found.append(f"{place} imports {target}, its own package's __init__")
            elif goal not in ranks:
                found.append(f"{place} imports {target}, and '{goal}' has no rank")
            elif goal != top and not _points_down(tree, module, target, ranks):
                found.append(f"{place} imports {target}: rank {ranks[top]} must not import rank {ranks[goal]}")
    return found + [f"import cycle: {' → '.join(cycle)}" for cycle in cycles(tree)]


def _points_down(tree: Tree, module: str, target: str, ranks: Mapping[str, int]) -> bool:
    here, there = ranks[tree.top(module)], ranks[tree.top(target)]
    neighbours = tree.parent(module) == tree.parent(target) == tree.package
    return there < here or (there == here and neighbours)


def cycles(tree: Tree) -> list[list[str]]:
    """One cycle for each group of files that lead back to one another, over the whole graph."""
    state: dict[str, str] = {}
    found: list[list[str]] = []

    def visit(module: str, path: list[str]) -> None:
        state[module] = "open"
        for target in tree.imports[module]:
            if target not in tree.files:
                continue
            if state.get(target) == "open":
                found.append([*path[path.index(target) :], target])
            elif target not in state:
                visit(target, [*path, target])
        state[module] = "done"

    for module in tree.files:
        if module not in state:
            visit(module, [module])
    return found


def test_imports_point_down() -> None:
    found = problems(SOURCE)
    assert not found, "\n".join(["", *found])


def test_no_file_is_too_long() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    long = {
        str(path.relative_to(ROOT)): n
        for path in files
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert not long, f"one idea, one file: split these (lines): {long}"


def test_no_folder_is_too_full() -> None:
    folders = {SOURCE, *(path.parent for path in SOURCE.rglob("*.py"))}
    apart = ("__init__.py", "__pycache__", "py.typed")
    counts = {
        str(folder.relative_to(ROOT)): n
        for folder in sorted(folders)
        if (n := len([one for one in folder.iterdir() if one.name not in apart])) > MOST_ENTRIES
    }
    assert not counts, f"a folder tells one story in at most {MOST_ENTRIES} entries: {counts}"


def test_equations_import_torch_alone() -> None:
    tree = Tree(SOURCE)
    found = [
        f"{tree.place(module, line)} imports {target}"
        for module, targets in tree.imports.items()
        if module.startswith("qkv.nn.") and not module.startswith(("qkv.nn.gpu", "qkv.nn.cpu"))
        for target, line in targets.items()
        if target.split(".")[0] not in PLAIN_NN | STANDARD | {"qkv"}
    ]
    assert not found, "\n".join(["", *found])


HEAVY = "torch numpy tokenizers safetensors transformers rich starlette uvicorn".split()


def imported_by(module: str) -> str:
    code = f"import {module}, sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("module", ["qkv", "qkv.cli.main"])
def test_the_door_opens_without_torch(module: str) -> None:
    """`qkv --help` must answer at once, and a program may import qkv without paying for torch."""
    assert imported_by(module) == ""


def test_a_corpus_is_prepared_without_torch() -> None:
    """Each of its processes would take a second longer to start, and hundreds of megabytes."""
    assert imported_by("qkv.data.corpus.prepare") == "numpy tokenizers"


# The checker itself, on trees small enough to see through: each planted fault is found, and found as what it is.

PLANTED = {
    name: rank
    for rank, names in enumerate(
        (
            "errors config metrics batch",
            "nn tokenizer train",
            "models data",
            "tasks",
            "run",
            "cli",
            "__init__ __main__",
        )
    )
    for name in names.split()
}

SOUND = {
    "__init__.py": "_PLACES = {'load': 'qkv.run.load'}\n"
    "def __getattr__(name):\n    import importlib\n    return getattr(importlib.import_module(_PLACES[name]), name)",
    "errors.py": "import difflib",
    "batch.py": "import torch\nfrom qkv.errors import InputError",
    "nn/__init__.py": "",
    "nn/attention.py": "import torch.nn.functional as F",
    "nn/block.py": "from torch import nn\nfrom qkv.nn.attention import attend\nfrom .attention import attend",
    "models/bert.py": "from qkv.nn import block\nfrom qkv.batch import Batch",
    "run/load.py": "def load():\n    from qkv.models.bert import Bert",
    "cli/main.py": "import importlib\nVERBS = {'fill': 'Fill the blanks.'}\n"
    "def main(verb):\n    importlib.import_module(f'qkv.cli.{verb}')",
    "cli/fill.py": "def run():\n    import qkv.run.load",
    "__main__.py": "from qkv.cli.main import main",
}


def plant(folder: Path, changes: Mapping[str, str]) -> Path:
    for name, text in {**SOUND, **changes}.items():
        path = folder / "qkv" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "qkv"


def test_a_sound_tree_passes(tmp_path: Path) -> None:
    assert problems(plant(tmp_path, {}), PLANTED) == []


FAULTS = {
    "upward": ({"models/gpt.py": "from qkv.run.load import load"}, "qkv.models.gpt:1 .*rank 2 must not import rank 4"),
    "upward, plain": ({"models/gpt.py": "import qkv.cli.main"}, "rank 2 must not import rank 5"),
    "upward, inside a function": (
        {"models/gpt.py": "def f():\n    from qkv.run import load"},
        "qkv.models.gpt:2 imports qkv.run.load: rank 2",
    ),
    "upward, for types only": (
        {"models/gpt.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from qkv.run.load import load"},
        "qkv.models.gpt:3 imports qkv.run.load: rank 2",
    ),
    "upward, relative": ({"models/gpt.py": "from ..run.load import load"}, "imports qkv.run.load: rank 2"),
    "upward, relative folder": ({"models/gpt.py": "from .. import run"}, "imports qkv.run: rank 2"),
    "upward, importlib": (
        {"models/gpt.py": "import importlib\nimportlib.import_module('qkv.run.load')"},
        "imports qkv.run.load: rank 2",
    ),
    "upward, importlib relative": (
        {"models/gpt.py": "from importlib import import_module\nimport_module('..run.load', __package__)"},
        "imports qkv.run.load: rank 2",
    ),
    "upward, table of names": (
        {"models/gpt.py": "import importlib\nT = {'a': 'run.load:load'}\nimportlib.import_module('qkv.' + T['a'])"},
        "imports qkv.run.load: rank 2",
    ),
    "unreadable": (
        {"models/gpt.py": "import importlib\ndef f(name):\n    return importlib.import_module(name)"},
        "qkv.models.gpt:3 imports a name that cannot be read here",
    ),
    "sideways": ({"data/readers.py": "from qkv.models.bert import Bert"}, "rank 2 must not import rank 2"),
    "a folder's file to a file beside the folder": (
        {"tokenizer.py": "", "train/loop.py": "import qkv.tokenizer"},
        "qkv.train.loop:1 .*rank 1 must not import rank 1",
    ),
    "the loop and networks": (
        {"train/loop.py": "from qkv.nn.attention import attend"},
        "qkv.train.loop:1 .*rank 1 must not import rank 1",
    ),
    "own __init__": (
        {"nn/block.py": "from qkv.nn import Attention"},
        "qkv.nn.block:1 imports qkv.nn, its own package's __init__",
    ),
    "own __init__, relative": ({"run/load.py": "from . import Model"}, "imports qkv.run, its own package's __init__"),
    "the front door": ({"models/gpt.py": "import qkv"}, "imports qkv: rank 2 must not import rank 6"),
    "the front door from beside it": ({"batch.py": "from qkv import load"}, "imports qkv, its own package's __init__"),
    "cycle": (
        {"nn/attention.py": "def f():\n    from qkv.nn.block import Block"},
        "import cycle: qkv.nn.block → qkv.nn.attention → qkv.nn.block",
    ),
    "cycle of files beside each other": (
        {"errors.py": "", "config.py": "import qkv.errors\nimport qkv.metrics", "metrics.py": "import qkv.config"},
        "import cycle: qkv.config → qkv.metrics → qkv.config",
    ),
    "verb back to main": ({"cli/fill.py": "from qkv.cli.main import main"}, "import cycle: qkv.cli"),
    "unknown name": ({"helpers.py": ""}, "'helpers' has no rank; add it to RANKS"),
    "nn and another library": (
        {"nn/block.py": "def f():\n    import scipy.linalg"},
        "qkv.nn.block:2 imports scipy.linalg",
    ),
    "nn and the rest of qkv": ({"nn/block.py": "from qkv.batch import Batch"}, "of qkv, nn may import only"),
    "errors and torch": ({"errors.py": "import torch"}, "qkv.errors:1 imports torch"),
    "config and numpy": ({"config.py": "import numpy"}, "qkv.config:1 imports numpy"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    changes, message = FAULTS[fault]
    found = problems(plant(tmp_path, changes), PLANTED)
    assert any(re.search(message, line) for line in found), found
