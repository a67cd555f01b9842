"""The settings of a run before it begins: a recipe, flags, --set, and defaults that follow from task and model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.config import read_toml
from qkv.errors import InputError
from qkv.interop.config_json import read_config
from qkv.interop.hub import locate
from qkv.run.finetune_config import FinetuneConfig, configured, starting_point
from qkv.run.load import model_folder
from qkv.tasks.transfer import transfer_named

SETTLED = {
    "steps": "epochs",
    "minutes": "epochs",
    "accumulate": "tokens_per_step",
    "evaluate_every": "evaluations",
    "save_every": None,
    "log_every": None,
}
"""Settings of the loop that a fine-tuning run works out from others."""


def configured_for(
    task: str,
    model: str,
    transfer: str | None = None,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> FinetuneConfig:
    """What was asked for, and where nothing was, what suits the task, the model's size and how much of it moves."""
    _refuse_settled(recipe, flags or {}, assignments)
    given: dict[str, Any] = {"task": task, "model": str(model_folder(locate(model))), **(flags or {})}
    if transfer is not None:
        given["transfer"] = transfer
    asked = configured({}, recipe, given, assignments)
    shape = read_config(Path(asked.model) / "config.json").config
    start = starting_point(transfer_named(asked.transfer, shape.layers), shape.width, asked.device)
    return configured(start, recipe, given, assignments)


def _refuse_settled(recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> None:
    table = read_toml(recipe).get("train", {}) if recipe is not None else {}
    typed = [one.partition("=")[0].strip() for one in assignments] + list(flags)
    typed += [f"train.{name}" for name in table] if isinstance(table, Mapping) else []
    for key in typed:
        name = key.removeprefix("train.")
        if key.startswith("train.") and name in SETTLED:
            instead = f" Set {SETTLED[name]} instead." if SETTLED[name] else ""
            raise InputError(f"{key} is worked out by a fine-tuning run and cannot be set.{instead}")
