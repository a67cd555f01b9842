"""Verbs with their options and arguments: names, types, defaults, choices. The words of the help are not kept."""

from pathlib import Path
from typing import Any

from tests.golden.golden import check_golden, command

PROPERTIES = ("opts", "secondary_opts", "required", "nargs", "multiple", "is_flag", "count", "hidden", "envvar")


def kind_of(parameter: Any) -> str:
    """The annotation of typer, or the type of click."""
    described = getattr(parameter, "type_descriptor", None)
    if described is not None:
        return str(getattr(described.annotation, "__name__", described.annotation))
    return str(getattr(parameter.type, "name", parameter.type))


def described(parameter: Any) -> dict[str, Any]:
    default = parameter.default() if callable(parameter.default) else parameter.default
    found = {name: getattr(parameter, name, None) for name in PROPERTIES}
    found["choices"] = [str(one) for one in getattr(getattr(parameter, "type", None), "choices", ())]
    found |= {"kind": kind_of(parameter)}
    if "|" in (parameter.metavar or ""):
        found["one_of"] = parameter.metavar
    found["min"], found["max"] = getattr(parameter, "min", None), getattr(parameter, "max", None)
    found["default"] = str(default) if isinstance(default, Path) else default
    return {name: value for name, value in found.items() if value not in (None, False, [], ())}


def verbs(verb: Any, path: str = "qkv") -> dict[str, Any]:
    """Arguments by their place, options by their first name."""
    parameters: dict[str, Any] = {}
    for parameter in verb.params:
        is_option = parameter.opts[0].startswith("-")
        place = sum(not name.startswith("-") for name in parameters)
        parameters[parameter.opts[0] if is_option else f"argument {place + 1}"] = {
            name: value for name, value in described(parameter).items() if is_option or name != "opts"
        }
    found = {path: parameters}
    for name, inner in getattr(verb, "commands", {}).items():
        found |= verbs(inner, f"{path} {name}")
    return found


def test_every_verb_has_its_options() -> None:
    check_golden("verbs", verbs(command()))
