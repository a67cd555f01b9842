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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
        config = merge(config, _nested({dotted.strip(): value}), f"--set {assignment}")
    return config


# --- The settings of a job: its defaults, then a recipe, then the flags, then each --set.

LENGTHS = {"train.minutes": "--minutes", "train.steps": "train.steps"}
"""The settings that say how long to train, and their names in messages."""


@dataclasses.dataclass(frozen=True)
class Requested:
    """The user's settings: recipe, then flags, then --set."""

    recipe: Path | None = None
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # by dotted key, or "size"; None: not given
    assignments: Sequence[str] = ()

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The tables of the recipe."""
        return {} if self.recipe is None else read_toml(self.recipe)

    @cached_property
    def written(self) -> dict[str, Any]:
        """The values of the recipe by dotted key."""
        return _flat(self.tables)

    @cached_property
    def typed(self) -> dict[str, Any]:
        """The values of flags and --set by dotted key; "none" means not given.

        >>> Requested(flags={"size": "tiny", "device": None}, assignments=["train.minutes = 2", "epochs=none"]).typed
        {'size': 'tiny', 'train.minutes': '2'}
        """
        pairs = (one.partition("=") for one in self.assignments)
        found = {key.strip(): value.strip() for key, _, value in pairs}
        said = {key: value for key, value in found.items() if not is_none(value.strip("\"'"))}
        return {key: value for key, value in self.flags.items() if value is not None} | said


@dataclasses.dataclass(frozen=True)
class JobSettings(Generic[Config]):
    """The settings of a job, and how they are resolved."""

    defaults: Config
    size: str = "model.size"  # what the flag "size" sets; may name fields of the config, as in {model_type}.size
    lengths: Mapping[str, str] = dataclasses.field(default_factory=lambda: LENGTHS)
    giving_way: tuple[str, ...] = ("train.minutes",)  # lengths that are reset if another is given later
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)  # keys that cannot be set, and why
    check: Callable[[Config, Requested], Config] = lambda config, given: config  # checks that involve several settings

    def resolve(self, given: Requested, start: Config | None = None) -> Config:
        """`start` replaces the defaults."""
        for key in (*given.written, *given.typed):
            if key in self.refused:
                raise InputError(self.refused[key])
        said = [key for key in self.lengths if key in given.typed]
        if len(said) > 1:
            raise InputError(f"{_both(self.lengths[key] for key in said)} Give one of them.")
        decides = [key for key in self.giving_way if key in given.written]
        if len(decides) > 1 and not said:
            raise InputError(f"{given.recipe}: {_both(decides)} Keep one of them.")
        # the steps of a recipe are not overruled by the default of another length
        decides = decides or [key for key in self.lengths if key in given.written]
        config = self._without(start or self.defaults, decides)
        config = self._without(merge(config, given.tables, str(given.recipe)), said)
        flags = {key: value for key, value in given.flags.items() if value is not None}
        if "size" in flags:
            flags[self.size.format_map(vars(config))] = flags.pop("size")
        return self.check(override(merge(config, _nested(flags), COMMAND_LINE), given.assignments), given)

    def _without(self, config: Config, keys: Sequence[str]) -> Config:
        """Reset the other lengths if one of `keys` is given."""
        gone = [key for key in self.giving_way if keys and key not in keys]
        return merge(config, _nested(dict.fromkeys(gone, "none")), "defaults")


def _both(names: Iterable[str]) -> str:
    return f"{' and '.join(names)} both say how long to train."


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested table by their dotted names; "none" means not given.

    >>> _flat({"epochs": 2, "train": {"lr": 0.1, "minutes": "none"}})
    {'epochs': 2, 'train.lr': 0.1}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif not is_none(value):
            found[f"{prefix}{key}"] = value
    return found


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """
    >>> _nested({"seeds": 2, "data.columns.text": "body"})
    {'seeds': 2, 'data': {'columns': {'text': 'body'}}}
    """
    found: dict[str, Any] = {}
    for dotted, value in values.items():
        *tables, name = dotted.split(".")
        place = found
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return found


def to_toml(config: "DataclassInstance") -> str:
    """Every setting with its value, tables last.

    TOML has no null. An optional that is None is left out where that is its default, and else written as "none", which
    reads back as None.
    """
    return "\n".join(_lines(config, ""))


def _lines(config: "DataclassInstance", table: str) -> list[str]:
    plain, tables = [], []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            tables += ["", *_lines(value, f"{table}{field.name}.")]
        elif value is not None or field.default is not None:
            plain.append(f"{field.name} = {_toml('none' if value is None else value)}")
    lines = [f"[{table[:-1]}]", *plain] if table and plain else plain
    text = [*lines, *tables]
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


def is_none(value: Any) -> bool:
    """Whether a value is TOML's missing null, written as "none" in any case."""
    return isinstance(value, str) and value.lower() == "none"


def _fit(value: Any, hint: Any, where: str) -> Any:
    """The value as the field's type, or a message that says what the field takes."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = typing.get_args(hint)
        if type(None) in kinds and is_none(value):
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


# --- What configs check of their own fields, and presets of several of them.


def check_least(config: "DataclassInstance", *names: str, least: int = 1) -> None:
    """Refuse these fields below `least`; None is fine."""
    for name in names:
        if (value := getattr(config, name)) is not None and value < least:
            raise InputError(f"{name} must be at least {least}, not {value}.")


def check_shares(config: "DataclassInstance", *names: str) -> None:
    """Refuse a field that is not a share; None is allowed."""
    for name in names:
        if (value := getattr(config, name)) is not None and not 0 <= value < 1:
            raise InputError(f"{name} is a share from 0 to less than 1, not {value}.")


def check_known(config: "DataclassInstance", **tables: Collection[str]) -> None:
    """Refuse a field whose value is not among the names of its table."""
    for name, known in tables.items():
        if (value := getattr(config, name)) not in known:
            raise InputError(f"Unknown {name} '{value}'.{did_you_mean(value, known)} Known: {', '.join(known)}.")


def apply_preset(presets: Mapping[str, dict[str, Any]], size: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a preset, with these changes."""
    if size not in presets:
        raise InputError(f"Unknown size '{size}'.{did_you_mean(size, presets)} Known: {', '.join(presets)}.")
    return presets[size] | dict(changes)


def given_changes(choice: "DataclassInstance", *left_out: str) -> dict[str, Any]:
    """The fields of a choice that were given, all but `size`, which names the preset that they change."""
    named = {one.name: getattr(choice, one.name) for one in dataclasses.fields(choice)}
    return {name: value for name, value in named.items() if value not in (None, ()) and name not in ("size", *left_out)}
