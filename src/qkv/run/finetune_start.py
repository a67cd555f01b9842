"""The settings of a run before it begins: defaults by task and model, a recipe, flags, --set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.interop.config_json import read_config
from qkv.interop.hub import locate
from qkv.run.finetune_config import FinetuneConfig, configured, starting_point
from qkv.run.load import model_folder
from qkv.tasks.transfer import transfer_named


def configured_for(
    task: str,
    model: str,
    transfer: str = "full",
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> FinetuneConfig:
    folder = model_folder(locate(model))
    shape = read_config(folder / "config.json").config
    way = transfer_named(transfer, shape.layers)
    start = starting_point(task, way, shape.width, str((flags or {}).get("device", "cpu"))) | {"model": str(folder)}
    return configured(start, recipe, flags or {}, assignments)
