"""Files of bench/ opened as modules: they are programs of their own, and import each other by their bare names."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def bench_module(name: str) -> ModuleType:
    if (folder := str(ROOT / "bench")) not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
