"""The models that come inside the package: a name to a folder, held to the hashes it was shipped with.

What this file does NOT do: load one. A folder of the zoo is a Hugging Face folder like any other, with its card,
licence, recipe and log beside the weights, and SHA256SUMS over all of them (what `sha256sum --check` reads).
"""

import hashlib
from pathlib import Path

from qkv.atomic import write_text
from qkv.errors import InputError, reading

DEFAULT_MODEL = "qkv-mini"
"""What every verb and `qkv.load` take when no model is named."""
MODELS = (DEFAULT_MODEL,)
FOLDER = Path(__file__).resolve().parent.parent / "zoo"
SUMS = "SHA256SUMS"

INSTEAD = "Install qkv again. Verbs with --model, and qkv.load(folder), can do without it."


def folder_of(name: str) -> Path:
    """The folder of one of MODELS, every file of it as it was shipped."""
    folder = FOLDER / name
    if not folder.is_dir():
        raise InputError(
            f"No model was given, or {name}, which this copy of qkv comes without. Give one with --model FOLDER "
            "(qkv.load(folder) in Python); `qkv demo --weights` prints the folder of a small one."
        )
    if not (folder / SUMS).is_file():
        raise InputError(f"The model {name} should have come with qkv, but {folder / SUMS} is not there. {INSTEAD}")
    for file, expected in _sums(folder).items():
        path = folder / file
        if not path.is_file():
            raise InputError(f"The model {name} is not whole: {path} is missing. {INSTEAD}")
        with reading(path):
            found = _sha256(path)
        if found != expected:
            raise InputError(
                f"{path} is not the file that was shipped: its SHA-256 is {found[:9]}…, not {expected[:9]}…. {INSTEAD}"
            )
    return folder


def seal(folder: Path) -> None:
    """Write down the hash of every file of a folder that is to be shipped."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file != folder / SUMS)
    lines = [f"{_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    write_text(folder / SUMS, "".join(lines))


def _sums(folder: Path) -> dict[str, str]:
    """File → hash; two spaces between them, as sha256sum writes it."""
    path = folder / SUMS
    found: dict[str, str] = {}
    with reading(path):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        expected, space, file = line.partition("  ")
        if len(expected) != hashlib.sha256().digest_size * 2 or not space or not file:
            raise InputError(f"{path}, line {number} is not a hash and a name: the file is damaged. {INSTEAD}")
        found[file] = expected
    if not {"config.json", "model.safetensors"} <= found.keys():
        raise InputError(f"{path} does not name the model's own files: it is damaged. {INSTEAD}")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
