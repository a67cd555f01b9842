"""From the name that a user typed to a folder on this machine.

The name of a model inside the package (zoo.py) is that model, whatever lies in the current folder: it is what verbs
take when nothing is typed, and must be the same everywhere. A folder of that name is ./NAME. All other names are paths.
Only one that begins with `hf:` is looked up on the Hugging Face hub, and only then is the hub's library imported:
nothing else in qkv reaches for the network.
"""

import os
import re
import warnings
from pathlib import Path

from qkv.errors import InputError, did_you_mean
from qkv.interop import zoo

HUB = "hf:"
HUB_NAME = re.compile(r"(?P<name>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?", re.ASCII)

SETTINGS = (
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
    "merges.txt",  # of GPT and GPT-2
    *("source/*.json", "source/vocab.txt", "target/*.json", "target/vocab.txt"),
    "README.md",
    "LICENSE*",
)
SAFE = ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")


def locate(name: str | Path) -> Path:
    """The folder of a model: a name of the zoo, a path, or `hf:owner/name` (`hf:owner/name@revision`) from the hub."""
    text = str(name)
    if name in zoo.MODELS:  # a text: a Path is never meant as a name
        if Path(text).is_dir():
            warnings.warn(f"{text} is the model that comes with qkv; the folder here is ./{text}", stacklevel=2)
        return zoo.folder_of(text)
    if text.startswith(HUB):
        return _download(text)
    if not text.strip():
        raise InputError(
            f"The name of the model is empty. Give a folder, {' or '.join(zoo.MODELS)}, or hf:owner/name of the hub."
        )
    path = Path(os.path.expanduser(text))
    try:
        if path.is_dir():
            # without its ./ it would be taken for the zoo's when it is looked up again
            return path.absolute() if str(path) in zoo.MODELS else path
        if path.exists():
            raise InputError(f"{path} is a file. Give the folder with config.json, the weights and the tokenizer.")
        hint = _nearest(path)
    except OSError as error:  # a name too long for any file: a text, perhaps, where a folder belongs
        raise InputError(f"'{text[:40]}…' is not a folder: {error.strerror}.") from None
    if HUB_NAME.fullmatch(text):
        hint += f" For a model of the Hugging Face hub write {HUB}{text}."
    raise InputError(f"There is no folder {path}.{hint}")


def _nearest(path: Path) -> str:
    """A hint about the first part of a path that is not there."""
    while not path.parent.exists():
        path = path.parent
    if not path.parent.is_dir():
        return ""
    near = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    return did_you_mean(path.name, near if len(path.parts) > 1 else [*near, *zoo.MODELS])


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
        folder = fetch(*SETTINGS, *SAFE)
        if not any((folder / weights).is_file() for weights in SAFE[:2]):
            folder = fetch(*SETTINGS, *PICKLED)
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
