"""A run is a typed, printable, saved config: frozen dataclasses to and from TOML, and `--set train.lr=1e-4`.

Fields are int, float, bool, str, an optional one of these, a tuple of them, or another such dataclass (a table in the
file). Whatever does not fit is refused with the key as it was typed, the place it was typed in, and the nearest name.
Standard library only.

>>> @dataclasses.dataclass(frozen=True)
... class Train:
...     lr: float = 1e-3
...     steps: int = 100
>>> @dataclasses.dataclass(frozen=True)
... class Run:
...     train: Train = Train()
>>> changed = override(Run(), ["train.lr=5e-4"])
>>> changed.train.lr
0.0005
>>> print(to_toml(changed), end="")
[train]
lr = 0.0005
steps = 100
"""

import dataclasses
import json
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qkv.errors import InputError, did_you_mean, reading

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

COMMAND_LINE = "command line"
"""Where the values of flags come from."""
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def read_toml(path: Path) -> dict[str, Any]:
    path = Path(os.path.expanduser(path))
    if not path.exists():
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.toml")])
        raise InputError(f"{path}: no such file.{near}")
    try:
        with reading(path):
            return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}.") from None


def merge(config: Config, table: Mapping[str, Any], where: str, prefix: str = "") -> Config:
    """The config with a (nested) table's values in place; `where` names the file for messages."""
    known = {field.name for field in dataclasses.fields(config)}
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise InputError(
                f"{where}: unknown key '{prefix}{key}'.{did_you_mean(key, known)} {_known(config, prefix)}"
            )
        current = getattr(config, key)
        if dataclasses.is_dataclass(current) and not isinstance(current, type):
            if not isinstance(value, Mapping):
                raise InputError(f"{where}: '{prefix}{key}' is a table of settings, not {value!r}.")
            changes[key] = merge(current, value, where, f"{prefix}{key}.")
        else:
            changes[key] = _fit(value, _hints(config)[key], f"{where}: {prefix}{key}")
    return _replaced(config, changes, where)


def override(config: Config, assignments: Iterable[str]) -> Config:
    """The config after `--set` arguments: each is dotted.key=value, the value as TOML or as a bare word."""
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}: write key=value, such as train.lr=1e-4.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        table: Any = value
        for key in reversed(dotted.strip().split(".")):
            table = {key: table}
        config = merge(config, table, f"--set {assignment}")
    return config


def to_toml(config: "DataclassInstance") -> str:
    """Every setting with its value, tables last.

    TOML has no null. An optional that is None is left out where that is its default, and else written as "none", which
    reads back as None.
    """
    return "\n".join(_lines(config, ""))


def _lines(config: "DataclassInstance", table: str) -> list[str]:
    plain, nested = [], []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            nested += ["", *_lines(value, f"{table}{field.name}.")]
        elif value is not None or field.default is not None:
            plain.append(f"{field.name} = {_toml('none' if value is None else value)}")
    lines = [f"[{table[:-1]}]", *plain] if table and plain else plain
    text = [*lines, *nested]
    while text and not text[0]:
        text.pop(0)
    return text if table else [*text, ""]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # JSON's escapes are TOML's, but for DEL, which JSON leaves bare
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _fit(value: Any, hint: Any, where: str) -> Any:
    """The value as the field's type, or a message that says what the field takes."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = typing.get_args(hint)
        if type(None) in kinds and isinstance(value, str) and value.lower() == "none":
            return None
        kinds = tuple(kind for kind in kinds if kind is not type(None))
        if type(value) in kinds or len(kinds) > 1:
            kinds = tuple(kind for kind in kinds if kind is type(value)) or kinds
        return _fit(value, kinds[0], where)
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} takes a list, such as [a, b], not {value!r}.")
        return tuple(_fit(part, item, where) for part in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e5 is a natural way to write a hundred thousand steps
    if type(value) is not hint:
        raise InputError(f"{where} takes {_NAMES[hint]}, not {value!r}.")
    return value


def _replaced(config: Config, changes: dict[str, Any], where: str) -> Config:
    try:
        return dataclasses.replace(config, **changes)
    except InputError as error:  # a config's own check: say where the value came from
        if where == COMMAND_LINE:  # whoever typed it knows
            raise
        raise InputError(f"{where}: {error}") from None


def _hints(config: "DataclassInstance") -> dict[str, Any]:
    return typing.get_type_hints(type(config))


def _known(config: "DataclassInstance", prefix: str) -> str:
    return "Known: " + ", ".join(f"{prefix}{field.name}" for field in dataclasses.fields(config)) + "."
