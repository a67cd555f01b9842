"""Golden files: what users see of qkv, as it was before the house was rebuilt, each in stored/NAME.json.

    QKV_GOLDEN=write python -m pytest -q -n 0 tests/golden    writes them anew; look at the difference before a commit
    python -m tests.golden.make                               writes models/ and begun/ anew, see there: hardly ever

A golden that is missing fails its test. Exact are names, types, counts and texts; numbers with a fraction are close,
since processors round differently. Prose (help, messages, notes) may be reworded and is not kept.
"""

import base64
import contextlib
import io
import json
import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from qkv.cli.main import build_command, main

HERE = Path(__file__).resolve().parent
STORED = HERE / "stored"
MODELS = HERE / "models"
BEGUN = HERE / "begun"

PROSE = frozenset("message notes note verdict reason remarks about limits read_as".split())
"""Keys whose texts may be reworded."""
OF_A_MACHINE = frozenset(
    "seconds seconds_vectors tokens_per_second peak_memory share_of_peak bleu_signature chrf_signature qkv "
    "model_sha256 environment failure".split()
)
"""Keys whose values differ between machines, or between versions of a library."""


def command() -> Any:
    """The whole command line as typer understands it."""
    return typer.main.get_command(build_command())


def check_golden(name: str, found: Any, *, relative: float = 1e-3, absolute: float = 1e-4) -> None:
    """`found` is what was stored under that name, or becomes it."""
    file = STORED / f"{name}.json"
    plain = json.loads(json.dumps(found))
    if os.environ.get("QKV_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_written(plain), encoding="utf-8", newline="\n")
        return
    assert file.is_file(), f"{file} is missing: QKV_GOLDEN=write makes it"
    stored = json.loads(file.read_text(encoding="utf-8"))
    differences = list(_differences(stored, plain, "", relative, absolute))
    assert not differences, f"{file.name}, stored and now:\n" + "\n".join(differences[:20])


def _written(value: Any, indent: int = 0) -> str:
    """JSON with what fits on one line on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= 118 or not isinstance(value, dict | list) or not value:
        return flat + ("" if indent else "\n")
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_written(one, indent + 1)}" for key, one in value.items()]
        opened, closed = "{", "}"
    elif not any(isinstance(one, dict | list | str) for one in value):
        return flat + ("" if indent else "\n")
    else:
        parts, opened, closed = [_written(one, indent + 1) for one in value], "[", "]"
    text = f"{opened}\n" + ",\n".join(inner + part for part in parts) + f"\n{' ' * indent}{closed}"
    return text + ("" if indent else "\n")


def _differences(stored: Any, now: Any, at: str, relative: float, absolute: float) -> Any:
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in stored.keys() - now.keys():
            yield f"{at}/{key}: gone (was {stored[key]!r:.80})"
        for key in now.keys() - stored.keys():
            yield f"{at}/{key}: new ({now[key]!r:.80})"
        for key in stored.keys() & now.keys():
            yield from _differences(stored[key], now[key], f"{at}/{key}", relative, absolute)
    elif isinstance(stored, list) and isinstance(now, list):
        if len(stored) != len(now):
            yield f"{at}: {len(stored)} and {len(now)} of them: {stored!r:.200} and {now!r:.200}"
        for number, (one, other) in enumerate(zip(stored, now, strict=False)):
            yield from _differences(one, other, f"{at}/{number}", relative, absolute)
    elif isinstance(stored, float) and isinstance(now, float):
        if not math.isclose(stored, now, rel_tol=relative, abs_tol=absolute):
            yield f"{at}: {stored} and {now}"
    elif type(stored) is not type(now) or (stored != now and not (_is_byte(at) and abs(stored - now) <= 1)):
        yield f"{at}: {stored!r:.200} and {now!r:.200}"


def _is_byte(at: str) -> bool:
    """A weight that was rounded to a byte, which may fall to the other side."""
    return at.split("/")[-2:-1] == ["bytes"]


def kept(value: Any, key: str = "") -> Any:
    """A document with what may differ replaced by its type; a place on this machine by its last name."""
    if key in PROSE or key in OF_A_MACHINE or (key == "files" and isinstance(value, dict)):  # sizes of files
        return shape(value)
    if key == "attn" and isinstance(value, str):  # weights, a byte each
        return {"bytes": list(base64.b64decode(value))}
    if isinstance(value, dict):
        return {name: kept(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [kept(one) for one in value]
    if isinstance(value, str) and "/" in value and Path(value).is_absolute():
        return f"…/{Path(value).name}"
    return value


def shape(value: Any) -> Any:
    """Keys and types alone: {"a": [1, 2]} becomes {"a": ["int"]}, with one entry for each kind of element.

    >>> shape({"a": [1, 2], "b": [{"c": None}, {"c": 0.5}]})
    {'a': ['int'], 'b': [{'c': 'null'}, {'c': 'float'}]}
    """
    if isinstance(value, Mapping):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        shapes: list[Any] = []
        for one in map(shape, value):
            if one not in shapes:
                shapes.append(one)
        return shapes
    return "null" if value is None else type(value).__name__


def shape_but(value: Any, exact: Sequence[str], key: str = "") -> Any:
    """`shape`, but the values of these keys stay."""
    if isinstance(value, dict):
        return {name: shape_but(one, exact, name) for name, one in value.items()}
    return value if key in exact else shape(value)


class Answer:
    """What a command left: its exit code and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def documents(self) -> list[Any]:
        """One, or one a line."""
        try:
            return [json.loads(self.out)]
        except json.JSONDecodeError:
            return [json.loads(line) for line in self.out.splitlines()]


def run_qkv(line: str | Sequence[str], folder: Path, watch: Callable[[], None] = lambda: None) -> Answer:
    """The command in this process and this folder; `watch` is called whenever it says something to a person."""

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            watch()
            return super().write(text)

    words = shlex.split(line) if isinstance(line, str) else list(line)
    out, err = io.StringIO(), Stream()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return Answer(code, out.getvalue(), err.getvalue())
