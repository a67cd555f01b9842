"""How a folder turns tokens into one vector a text: the files that sentence-transformers puts beside a model.

modules.json lists the steps (Transformer, Pooling, perhaps Normalize), and 1_Pooling/config.json says how to pool.
The files of a loaded folder are kept as they are, so that a save gives them back with all that they say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.errors import InputError
from qkv.files import read_json, read_object, to_json

MODULES = "modules.json"
_KEPT = (MODULES, "sentence_bert_config.json", "config_sentence_transformers.json")
STEPS = ("Transformer", "Pooling", "Normalize")
POOLINGS = ("mean", "cls")
MODES: dict[str, str] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
"""The flags of one mode each that folders before sentence-transformers 5 hold, for the modes that qkv has."""


@dataclass(frozen=True)
class SentenceFiles:
    pooling: str | None = None  # "mean" or "cls"; None: the folder does not say, or says what qkv cannot do
    normalize: bool = False
    foreign: str | None = None  # how the folder pools, where that is not one of ours: a mean would be another vector
    files: Mapping[str, bytes] = field(default_factory=dict)  # by path in the folder
    notes: tuple[str, ...] = ()


def read_sentence(folder: Path) -> SentenceFiles:
    if not (folder / MODULES).is_file():
        return SentenceFiles()
    modules = read_json(folder / MODULES)
    try:
        steps = [(str(step["type"]).rsplit(".", 1)[-1], str(step["path"])) for step in modules]
    except (TypeError, KeyError):
        raise InputError(f"{folder / MODULES} is not a list of steps with a type and a path each.") from None
    for _, path in steps:
        if path and Path(path).name != path:
            raise InputError(f"{folder / MODULES} names the path {path!r}, which is no folder beside it.")
    normalize = any(name == "Normalize" for name, _ in steps)
    if other := [name for name, _ in steps if name not in STEPS]:
        # without its weights the step could not be given back either, so the files are not kept
        note = f"{MODULES}: the step {other[0]} is not one that qkv does, so the folder's pooling is not used"
        return SentenceFiles(normalize=normalize, foreign=f"a step {other[0]}", notes=(note,))
    kept = [*_KEPT, *(f"{path}/config.json" for _, path in steps if path)]
    files = {name: (folder / name).read_bytes() for name in kept if (folder / name).is_file()}
    notes: list[str] = []
    pooling = foreign = None
    for path in (path for name, path in steps if name == "Pooling"):
        pooling, mode = _mode(read_object(folder / path / "config.json"))
        if pooling is None:
            foreign = mode
            notes.append(f"{path}/config.json: pooling by {mode} is not one that qkv does ({', '.join(POOLINGS)})")
    if (folder / _KEPT[1]).is_file() and read_object(folder / _KEPT[1]).get("do_lower_case") is True:
        notes.append(f"{_KEPT[1]}: do_lower_case is left to the tokenizer")
    return SentenceFiles(pooling, normalize, foreign, files, tuple(notes))


def _mode(fields: Mapping[str, Any]) -> tuple[str | None, str]:
    """The pooling that qkv does, if it is one, and what the file calls it."""
    chosen = fields.get("pooling_mode")
    if chosen is None:
        chosen = [MODES.get(name, name) for name, on in fields.items() if name.startswith("pooling_mode_") and on]
    modes = [chosen] if isinstance(chosen, str) else list(chosen) or ["mean"]  # the library's default
    name = " and ".join(str(mode) for mode in modes)
    return (name if name in POOLINGS else None), name


def write_sentence(pooling: str, normalize: bool, width: int) -> dict[str, bytes]:
    """Files that make sentence-transformers pool as qkv does."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalize else [])
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(steps)
    ]
    modes = {"word_embedding_dimension": width} | {flag: mode == pooling for flag, mode in MODES.items()}
    return {MODULES: to_json(modules).encode(), "1_Pooling/config.json": to_json(modes).encode()}
