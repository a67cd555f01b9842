"""Where a job finds what it is told by name: the model of a run, and a device."""

from pathlib import Path

import torch

from qkv.errors import InputError, did_you_mean

DEVICES = ("cpu", "cuda", "mps")


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
