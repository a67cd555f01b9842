"""From the name of a model to its folder: a model shipped with the package, a path, or the Hugging Face hub.

A shipped model is a Hugging Face folder with its card, licence, recipe and log, and SHA256SUMS over all of them (as
`sha256sum --check` reads it), which is checked first. Its name always means the shipped model, even if the current
folder has an entry of that name (./NAME is that one): verbs use it as default, so it must mean the same everywhere. All
other names are paths, except those that begin with `hf:`. Only for these is the hub's library imported; nothing else in
qkv uses the network.
"""

import hashlib
import os
import re
import warnings
from pathlib import Path

from qkv.errors import InputError, did_you_mean, reading
from qkv.files import sha256_of, write_text

DEFAULT_MODEL = "qkv-mini"
"""What every verb and `qkv.load` take when no model is named."""
MODELS = (DEFAULT_MODEL,)
FOLDER = Path(__file__).resolve().parents[2] / "zoo"
SUMS = "SHA256SUMS"

INSTEAD = "Install qkv again. Verbs with --model, and qkv.load(folder), can do without it."


def find_shipped(name: str) -> Path:
    """The folder of one of MODELS, after a check of all its files."""
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
            found = sha256_of(path)
        if found != expected:
            raise InputError(
                f"{path} is not the file that was shipped: its SHA-256 is {found[:9]}…, not {expected[:9]}…. {INSTEAD}"
            )
    return folder


def seal(folder: Path) -> None:
    """Write SHA256SUMS for a folder that will be shipped."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file != folder / SUMS)
    lines = [f"{sha256_of(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    write_text(folder / SUMS, "".join(lines))


def _sums(folder: Path) -> dict[str, str]:
    """Hashes by file name, from the format of sha256sum."""
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


# Names that a user types

HUB = "hf:"
HUB_NAME = re.compile(r"(?P<name>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?", re.ASCII)

_SETTINGS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
    "qkv.json",
    # of models that translate: OPUS-MT's pieces and vocabularies, and a tokenizer for each side
    *("source.spm", "target.spm", "vocab.json", "target_vocab.json", "generation_config.json"),
    "merges.txt",  # of GPT, GPT-2 and RoBERTa
    *("source/*.json", "source/vocab.txt", "target/*.json", "target/vocab.txt"),
    "README.md",
    "LICENSE*",
)
SAFE = ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")


def locate(name: str | Path) -> Path:
    """The folder of a model: a name of the zoo, a path (of a run, too), or `hf:owner/name` (`hf:owner/name@revision`)
    from the hub."""
    text = str(name)
    if name in MODELS:  # a text: a Path is never meant as a name
        if Path(text).is_dir():
            warnings.warn(f"{text} is the model that comes with qkv; the folder here is ./{text}", stacklevel=2)
        return find_shipped(text)
    if text.startswith(HUB):
        return _download(text)
    if not text.strip():
        raise InputError(
            f"The name of the model is empty. Give a folder, {' or '.join(MODELS)}, or hf:owner/name of the hub."
        )
    path = Path(os.path.expanduser(text))
    try:
        if path.is_dir():
            # without its ./ it would be taken for the zoo's when it is looked up again
            return _model_of(path.absolute() if str(path) in MODELS else path)
        if path.exists():
            raise InputError(f"{path} is a file. Give the folder with config.json, the weights and the tokenizer.")
        hint = _nearest(path)
    except OSError as error:  # a name too long for any file: a text, perhaps, where a folder belongs
        raise InputError(f"'{text[:40]}…' is not a folder: {error.strerror}.") from None
    if HUB_NAME.fullmatch(text):
        hint += f" For a model of the Hugging Face hub write {HUB}{text}."
    raise InputError(f"There is no folder {path}.{hint}")


def _model_of(path: Path) -> Path:
    """The model folder of a run; any other folder unchanged."""
    if (path / "config.json").exists() or not (path / "config.toml").is_file():
        return path
    if not (path / "model" / "config.json").is_file():
        from qkv.train.run_folder import JOBS, job_of  # with torch, which names alone do not need

        job = job_of(path) or "pretrain"
        if job == "curve":
            raise InputError(f"{path} is a learning curve, which has no model. Fine-tune one: qkv finetune.")
        verb = JOBS[job].verb
        raise InputError(f"{path} is a run that is not finished. Go on with it: qkv {verb} --resume {path}.")
    return path / "model"


def _nearest(path: Path) -> str:
    """A hint about the first part of a path that does not exist."""
    while not path.parent.exists():
        path = path.parent
    if not path.parent.is_dir():
        return ""
    near = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    return did_you_mean(path.name, near if len(path.parts) > 1 else [*near, *MODELS])


def _download(text: str) -> Path:
    match = HUB_NAME.fullmatch(text.removeprefix(HUB))
    if match is None:
        raise InputError(
            f"'{text}' is not the name of a model on the hub. Write {HUB}owner/name or {HUB}owner/name@revision."
        )
    try:
        import huggingface_hub
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError:
        raise InputError(f"'{text}' needs the hub's library: pip install huggingface_hub.") from None
    repository, revision = match["name"], match["revision"]

    def fetch(*patterns: str) -> Path:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))

    try:
        folder = fetch(*_SETTINGS, *SAFE)
        if not any((folder / weights).is_file() for weights in SAFE[:2]):
            folder = fetch(*_SETTINGS, *PICKLED)
    except GatedRepoError:
        raise InputError(
            f"{repository} asks its users to accept its terms. Accept them on its page at huggingface.co, "
            "run `hf auth login`, and try again."
        ) from None
    except RepositoryNotFoundError:
        raise InputError(f"The hub has no model {repository}, or it is private. Check the spelling.") from None
    except RevisionNotFoundError:
        raise InputError(f"{repository} has no revision '{revision}' on the hub.") from None
    except (OSError, ValueError) as error:  # no network, a full disk, the hub is down
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{repository} is not in the local cache and could not be fetched from the hub: {reason} "
            "On a machine without network, copy the model's folder there and give its path."
        ) from None
    return folder


def shown_name(place: str | Path) -> str:
    """The name to show for a folder or file: its own, or that of the run whose model it is.

    >>> shown_name("here/elmo"), shown_name("here/run/model"), shown_name("scratch:lstm")
    ('elmo', 'run', 'scratch:lstm')
    """
    path = Path(place).resolve()
    return path.parent.name if path.name == "model" else path.name


def locate_vectors(name: str | os.PathLike[str]) -> Path:
    """The file or folder of a name: a path, a shipped model or hf:owner/name."""
    text = os.fspath(name)
    path = Path(os.path.expanduser(text))
    if path.is_file() and text not in MODELS:
        return path
    if not (text.startswith(HUB) or text in MODELS or path.exists()):
        near = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"There is no file or folder {path}.{did_you_mean(path.name, near)}")
    return locate(text)
