"""The settings of a run before it begins: a recipe, flags, --set, and defaults that follow from task and model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.config import read_toml
from qkv.errors import InputError
from qkv.interop.readers import shape_of
from qkv.models.bert import BertConfig
from qkv.run.finetune_config import FinetuneConfig, configured, starting_point
from qkv.run.finetune_model import check_sources, is_scratch, layers_of, placed, transfer_of

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
    given: dict[str, Any] = {"task": task, "model": placed(model), **(flags or {})}
    if transfer is not None:
        given["transfer"] = transfer
    asked = configured({}, recipe, given, assignments)
    check_sources(asked)
    shape = None if is_scratch(asked.model) else shape_of(asked.model)
    layers = layers_of(asked) if shape is None else shape.layers
    width = shape.width if isinstance(shape, BertConfig) else None
    start = starting_point(transfer_of(asked, layers), width, asked.device)
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
