"""From the name of a model to its folder: a model shipped with the package, a path, or the Hugging Face hub.

The zoo is the table of the models that are shipped, with what each is the default for. Such a model is a folder with
its card, licence, recipe and log, and SHA256SUMS over all of them (as `sha256sum --check` reads it), which is checked
first. Its name always means the shipped model, even if the current folder has an entry of that name (./NAME is that
one): verbs use it as default, so it must mean the same everywhere. All other names are paths, except those that begin
with `hf:`. Only for these is the hub's library imported; nothing else in qkv uses the network.
"""

import hashlib
import os
import re
import warnings
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from qkv.errors import InputError, did_you_mean, reading
from qkv.files import sha256_of, write_text


class ZooModel(NamedTuple):
    about: str
    reads: tuple[str, ...]  # languages
    default_for: tuple[str, ...]  # names of abilities (models/family.py)
    instead: str  # what to do in a copy without it
    writes: str = ""  # of what translates: the target language


_SMALL = "`qkv demo --weights` prints the folder of a small one."
_PAIRS = "Or train one: qkv train translate --pairs FILE --out RUN."

ZOO: dict[str, ZooModel] = {
    "qkv-words": ZooModel(
        "word2vec", ("zh", "en"), ("looks_up",), "Or train one: qkv pretrain word2vec --data SHARDS --out RUN."
    ),
    "qkv-elmo": ZooModel("ELMo", ("zh", "en"), ("recurs",), "Or train one: qkv pretrain elmo --data SHARDS --out RUN."),
    "qkv-gpt": ZooModel("GPT", ("zh", "en"), ("writes",), "Or train one: qkv pretrain gpt --data SHARDS --out RUN."),
    "qkv-sentences": ZooModel("a BERT for comparing sentences", ("zh", "en"), ("encodes",), _SMALL),
    "qkv-mini": ZooModel(
        "BERT",
        ("zh", "en"),
        ("fills", "judges_pairs", "attends", "takes_head", "shows_layers", "encodes"),
        _SMALL,
    ),
    "qkv-en-zh": ZooModel("Transformer", ("en",), ("translates",), _PAIRS, "zh"),
    "qkv-zh-en": ZooModel("Transformer", ("zh",), ("translates",), _PAIRS, "en"),
    "qkv-en-zh-rnn": ZooModel("recurrent encoder-decoder with attention", ("en",), ("translates",), _PAIRS, "zh"),
}
"""The models of the package. For each ability the first that is in this copy is the default."""
MODELS = tuple(ZOO)
DEFAULT_MODEL = "qkv-mini"
"""What `qkv.load` and most verbs take when no model is named; others ask `default_model`."""
FOLDER = Path(__file__).resolve().parents[2] / "zoo"
SUMS = "SHA256SUMS"

INSTEAD = "Install qkv again. Verbs with --model, and qkv.load(folder), can do without it."


def shipped_models() -> list[str]:
    """The names of the zoo whose folders are in this copy of qkv."""
    return [name for name in ZOO if (FOLDER / name).is_dir()]


def default_model(need: str, source: str = "", target: str = "") -> str:
    """The model for an ability, by its name; to translate, also from a language and to one ("": any).

    One that is not in this copy is given only if no other has the ability: `locate` then says so.

    >>> default_model("fills"), default_model("translates", "zh", "en")
    ('qkv-mini', 'qkv-zh-en')
    """
    from qkv.text.languages import base_of  # with numpy, which help does not need

    source, target = base_of(source), base_of(target)
    able = [
        name
        for name, one in ZOO.items()
        if need in one.default_for and (not source or source in one.reads) and (not target or target == one.writes)
    ]
    if not able:
        known = dict.fromkeys(f"{one.reads[0]} → {one.writes}" for one in ZOO.values() if need in one.default_for)
        raise InputError(
            f"No model of qkv translates {source or '…'} → {target or '…'}. There is {', '.join(known)}; for "
            "others give a model: --model RUN or --model hf:owner/name."
        )
    return next((name for name in able if (FOLDER / name).is_dir()), able[0])


def zoo_name(path: Path) -> str | None:
    """The name of the zoo that a folder has; None if it is another folder.

    >>> zoo_name(FOLDER / "qkv-mini"), zoo_name(Path("qkv-mini"))
    ('qkv-mini', None)
    """
    return path.name if path.name in ZOO and path.parent == FOLDER else None


def known_languages(path: Path) -> str:
    """The languages of a model of the zoo, for messages; "" for other folders.

    >>> known_languages(FOLDER / "qkv-mini")
    'Chinese and English'
    """
    from qkv.text.languages import language_name

    name = zoo_name(path)
    return "" if name is None else " and ".join(map(language_name, ZOO[name].reads))


def foreign_language(path: Path, text: str, trusted: str = "") -> str:
    """The language of a text, if this model of the zoo does not read it; "" if it may, and for other models.

    `trusted` is the language that the user says it is in: it is believed as far as the letters agree.
    """
    from qkv.text.languages import base_of, detect_language, in_latin

    name = zoo_name(path)
    if name is None or not (found := detect_language(text)):
        return ""
    is_believed = in_latin(found) and in_latin(trusted) and base_of(trusted) in ZOO[name].reads
    return "" if found in ZOO[name].reads or is_believed else found


def check_language_of(path: Path, text: str, place: str, trusted: str = "") -> None:
    """Refuse a text in a language that this model of the zoo does not read (`foreign_language`)."""
    from qkv.text.languages import in_latin, language_name

    name = zoo_name(path)
    if name is not None and (found := foreign_language(path, text, trusted)):
        shown = text if len(text) <= 40 else text[:39] + "…"
        way = " If it is English, add --from en." if ZOO[name].writes and in_latin(found) else ""
        raise InputError(
            f"{place} ({shown!r}) looks like {language_name(found)}, and {name} reads {known_languages(path)} "
            f"alone.{way}"
        )


def find_shipped(name: str) -> Path:
    """The folder of one of MODELS, after a check of all its files."""
    folder = FOLDER / name
    if not folder.is_dir():
        raise InputError(
            f"This copy of qkv comes without the model {name}. Give another with --model FOLDER "
            f"(qkv.load(folder) in Python). {ZOO[name].instead}"
        )
    if not (folder / SUMS).is_file():
        raise InputError(f"The model {name} should have come with qkv, but {folder / SUMS} is not there. {INSTEAD}")
    for file, expected in _sums(folder).items():
        path = folder / file
        if not path.is_file():
            raise InputError(f"The model {name} is not whole: {path} is missing. {INSTEAD}")
        with reading(path):
            state = path.stat()
            found = _sha256_of(path, state.st_size, state.st_mtime_ns)
        if found != expected:
            raise InputError(
                f"{path} is not the file that was shipped: its SHA-256 is {found[:9]}…, not {expected[:9]}…. {INSTEAD}"
            )
    return folder


@lru_cache(maxsize=1000)
def _sha256_of(path: Path, size: int, changed: int) -> str:
    """Once for each state of a file: several parts of a program may ask for the same model."""
    return sha256_of(path)


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
            f"The name of the model is empty. Give {', '.join(['a folder', *shipped_models()])}, or hf:owner/name of "
            "the hub."
        )
    path = Path(os.path.expanduser(text))
    try:
        if path.is_dir():
            # without its ./ it would be taken for the zoo's when it is looked up again
            return _model_of(path.absolute() if str(path) in MODELS else path)
        if path.exists():
            raise InputError(f"{path} is a file. Give the folder with config.json, the weights and the tokenizer.")
        hint = nearest_folder(path)
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


def nearest_folder(path: Path) -> str:
    """A hint about the first part of a path that does not exist."""
    while not path.parent.exists():
        path = path.parent
    if not path.parent.is_dir():
        return ""
    near = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    return did_you_mean(path.name, near if len(path.parts) > 1 else [*near, *shipped_models()])


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
    if path.is_file() and name not in MODELS:
        return path
    if not (text.startswith(HUB) or name in MODELS or path.exists()):
        near = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"There is no file or folder {path}.{did_you_mean(path.name, near)}")
    return locate(name if isinstance(name, str) else Path(name))
