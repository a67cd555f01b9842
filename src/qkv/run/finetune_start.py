"""The settings of a run before it begins: a recipe, flags, --set, and defaults that follow from task and model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.config import read_toml
from qkv.errors import InputError
from qkv.interop.features import SIZES
from qkv.interop.readers import shape_of
from qkv.models.text_readers import ReaderConfig
from qkv.run.finetune_config import FinetuneConfig, configured, starting_point
from qkv.run.finetune_model import (
    check_sizes,
    check_sources,
    is_scratch,
    layers_of,
    mixes_layers,
    placed,
    spelled_out,
    transfer_of,
    usual_transfer,
)
from qkv.run.reader_sources import source_type

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

    def asked(start: Mapping[str, Any]) -> FinetuneConfig:
        return spelled_out(configured(start, recipe, given, assignments))

    first = asked({})
    check_sources(first)
    check_sizes(first)
    shape = None if is_scratch(first.model) else shape_of(first.model)
    usual: dict[str, Any] = {"transfer": usual_transfer(first, shape)}
    config = asked(usual)
    if shape is None:
        moves = transfer_of(config, layers_of(config), mixes_layers(config))
    else:
        moves = transfer_of(config, shape.layers, isinstance(shape, ReaderConfig) and shape.mixed_layers > 0)
    if shape is not None and not isinstance(shape, ReaderConfig):
        return asked(usual | starting_point(moves, config.device, shape.width))
    return asked(usual | starting_point(moves, config.device, on_language_model=_on_language_model(config, shape)))


def _on_language_model(config: FinetuneConfig, shape: ReaderConfig | None) -> bool:
    if shape is not None:
        return shape.features is not None
    return config.embeddings is not None and source_type(config.embeddings) in SIZES


def _refuse_settled(recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> None:
    table = read_toml(recipe).get("train", {}) if recipe is not None else {}
    typed = [one.partition("=")[0].strip() for one in assignments] + list(flags)
    typed += [f"train.{name}" for name in table] if isinstance(table, Mapping) else []
    for key in typed:
        name = key.removeprefix("train.")
        if key.startswith("train.") and name in SETTLED:
            instead = f" Set {SETTLED[name]} instead." if SETTLED[name] else ""
            raise InputError(f"{key} is worked out by a fine-tuning run and cannot be set.{instead}")
