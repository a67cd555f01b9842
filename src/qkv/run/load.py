"""`qkv.load`: a folder, a name of the zoo or a hub id in, a model that answers out."""

from pathlib import Path

import torch

from qkv.errors import InputError, did_you_mean
from qkv.interop.hub import locate
from qkv.interop.readers import open_model
from qkv.interop.zoo import DEFAULT_MODEL
from qkv.run.predict import Model

DEVICES = ("cpu", "cuda", "mps")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str | Path = DEFAULT_MODEL, device: str = "cpu", threads: int | None = None, dtype: str = "float32"
) -> Model:
    """Load a Hugging Face folder, a run of qkv, a model that comes with qkv, or `hf:owner/name` from the hub.

    Without a name it is qkv-mini, a small Chinese and English BERT that lies in the package. Nothing reaches for the
    network unless a hub id is given. `threads` is how many CPU threads torch may use; torch keeps one such number for
    the whole process, so the model called last sets it.

    `dtype` is what the model computes in: float32, bfloat16 or float16. With half the bits a GPU takes packed rows
    through one variable-length kernel (see nn/fused.py), and vectors change in their third digit; they are handed back
    as float32 in any case.

    >>> model = load()                                                            # doctest: +SKIP
    >>> model.fill("巴黎是[MASK]国的首都。")[0].best.text                          # doctest: +SKIP
    '法'
    >>> model.embed(["a first text", "a second text"]).similarity()               # doctest: +SKIP
    """
    if threads is not None and threads < 1:
        raise InputError(f"threads must be 1 or more, not {threads}.")
    if dtype not in DTYPES:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
    place = device_named(device)
    folder = open_model(model_folder(locate(name)), dtype=DTYPES[dtype])
    return Model(folder, place, threads)


def model_folder(path: Path) -> Path:
    """The model of a run, where the folder of a run is given."""
    if (path / "config.json").exists() or not (path / "config.toml").is_file():
        return path
    if not (path / "model" / "config.json").is_file():
        settings = (path / "config.toml").read_text(encoding="utf-8", errors="replace")
        if "[finetune]" in settings:
            raise InputError(f"{path} is a learning curve, which has no model. Fine-tune one: qkv finetune.")
        verb = "finetune" if "[classify]" in settings else "train translate" if "[bitext]" in settings else "pretrain"
        raise InputError(f"{path} is a run that is not finished. Go on with it: qkv {verb} --resume {path}.")
    return path / "model"


def device_named(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in DEVICES:
        raise InputError(f"Unknown device '{name}'.{did_you_mean(name, DEVICES)} Use cpu, cuda, cuda:0 or mps.")
    if device.type == "cuda":
        number = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= number:
            found = f"torch finds {number} CUDA devices here" if number else "torch finds no CUDA device here"
            raise InputError(f"Cannot use device '{name}': {found}. Use device 'cpu'.")
    elif device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"Cannot use device '{name}' on this machine. Use device 'cpu'.")
    return device
