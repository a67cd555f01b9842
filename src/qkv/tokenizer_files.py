"""The files of a tokenizer folder: which to read, what stands beside a vocabulary, how new ones replace old ones.

What this file does NOT do: say what is in them. `tokenizer.py` does.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qkv.atomic import check_folder, replaced_folder
from qkv.errors import InputError, did_you_mean
from qkv.json_file import read_object

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt"),
)
"""What a tokenizer folder may hold. Only a folder of nothing else is replaced."""


def find_file(path: str | os.PathLike[str]) -> Path:
    """The tokenizer.json of a folder, else its vocab.txt, else its vocab.json with merges.txt; or the file itself, if
    one is given."""
    path = Path(os.path.expanduser(path))
    if path.is_file():
        return path
    if not path.is_dir():
        siblings = path.parent.iterdir() if path.parent.is_dir() else ()
        raise InputError(f"There is no tokenizer at {path}.{did_you_mean(path.name, (one.name for one in siblings))}")
    for name in ("tokenizer.json", "vocab.txt"):
        if (path / name).is_file():
            return path / name
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return path / "vocab.json"
    held = ", ".join(sorted(one.name for one in path.iterdir())) or "nothing"
    raise InputError(
        f"{path} has neither tokenizer.json nor vocab.txt, only {held}. Copy one of the two there, or vocab.json and "
        "merges.txt, as GPT has them."
    )


def added_tokens(folder: Path, config: Mapping[str, Any]) -> dict[int, str]:
    """Tokens that older folders keep beside their vocab.txt, in the order of their ids."""
    found: dict[int, str] = {}
    source = folder / "tokenizer_config.json"
    try:
        for number, token in (config.get("added_tokens_decoder") or {}).items():
            found[int(number)] = str(token["content"])
        if (source := folder / "added_tokens.json").is_file():
            found |= {int(number): token for token, number in read_object(source).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: the added tokens are not a table of ids and tokens ({error!r}).") from error
    return dict(sorted(found.items()))


def check_target(folder: Path, overwrite: bool = True) -> None:
    """Refuse a folder that `replace_files` would refuse, before the work starts; and any that is not to be replaced."""
    check_folder(folder, _reason_to_keep)
    there = Path(os.path.expanduser(folder))
    if not overwrite and there.is_dir() and any(there.iterdir()):
        raise InputError(
            f"{folder} holds a tokenizer already. Give another folder, or have this one overwritten (--overwrite)."
        )


def replace_files(folder: Path, files: Mapping[str, str]) -> None:
    """Make a folder of exactly these files, or leave everything as it was."""
    with replaced_folder(folder, _reason_to_keep) as fresh:
        for name, text in files.items():
            (fresh / name).write_text(text, encoding="utf-8", newline="\n")


def _reason_to_keep(folder: Path) -> str | None:
    held = sorted(entry.name for entry in folder.iterdir())
    if "config.json" in held:
        return "it is a model folder, and a model's ids mean something under its own tokenizer only"
    foreign = [name for name in held if name not in FILES]
    return f"it holds {foreign[0]}, which is not part of a tokenizer" if foreign else None
