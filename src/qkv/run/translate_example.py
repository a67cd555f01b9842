"""A first translation model in less than a minute: digits, and the same digits from the last to the first."""

import shutil
from pathlib import Path
from typing import Any

from qkv.config import merge
from qkv.data.digit_pairs import write_digit_pairs
from qkv.errors import InputError, did_you_mean
from qkv.run.finetune import Finished
from qkv.run.folder import CONFIG, begin
from qkv.run.train_translate import VERB, begun
from qkv.run.translate_config import TranslateConfig
from qkv.train.progress import Progress

EXAMPLES: dict[str, dict[str, Any]] = {
    "reverse": {
        "smoothing": 0.0,  # a digit is right or wrong, and can be known for certain
        "tokens_per_batch": 1_024,
        "max_length": 32,
        "select": "exact",
        "tokenizer": {"size": 64},
        "transformer": {
            "size": "tiny",
            "encoder_layers": 1,
            "decoder_layers": 1,
            "width": 64,
            "inner_width": 128,
            "dropout": 0.0,
        },
        "seq2seq": {"size": "small", "dropout": 0.0},
        "train": {
            "threads": 1,  # so small a network is no work for two
            "steps": 700,
            "lr": 5e-3,
            "warmup": 0.1,
            "schedule": "linear",
            "log_every": 50,
            "evaluate_every": 350,
            "save_every": 350,
        },
    }
}
"""By name, what differs from the defaults."""


def example_settings(name: str, model_type: str) -> TranslateConfig:
    if name not in EXAMPLES:
        raise InputError(f"There is no example '{name}'.{did_you_mean(name, EXAMPLES)} Known: {', '.join(EXAMPLES)}.")
    other = "seq2seq" if model_type == "transformer" else "transformer"
    settings = {key: value for key, value in EXAMPLES[name].items() if key != other}
    return merge(TranslateConfig(model_type=model_type), settings, f"example {name}")


def start_example(name: str, config: TranslateConfig, out: Path, progress: Progress) -> Finished:
    """The pairs are written into the run, where they can be looked at; where none comes about, nothing is left."""
    begin(out, VERB)
    was_there = out.exists()
    try:
        files = {part: (str(file),) for part, file in write_digit_pairs(out / "pairs").items()}
        return begun(merge(config, {"bitext": files}, f"example {name}"), out, progress)
    finally:
        if not (out / CONFIG).exists():
            shutil.rmtree(out / "pairs" if was_there else out, ignore_errors=True)
