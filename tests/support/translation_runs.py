"""A small translation run, a second or two: rows of digits and the same rows backwards."""

from pathlib import Path

from qkv.config import Requested
from qkv.jobs.translate.data import write_digit_pairs
from qkv.jobs.translate.settings import TranslateConfig, resolve_translation_settings

SETTINGS = (
    "tokens_per_batch=128",
    "max_length=32",
    "evaluation_pairs=8",
    "tokenizer.size=64",
    "decoding.beams=2",
    "train.steps=8",
    "train.threads=1",
    "train.log_every=2",
    "train.evaluate_every=4",
    "train.save_every=2",
)
SMALL = {
    "transformer": (
        *("transformer.size=tiny", "transformer.encoder_layers=1", "transformer.decoder_layers=1"),
        *("transformer.width=16", "transformer.heads=2", "transformer.inner_width=32"),
    ),
    "seq2seq": ("seq2seq.size=small", "seq2seq.width=16", "seq2seq.cell_width=16"),
}


def digit_files(folder: Path) -> dict[str, Path]:
    return write_digit_pairs(folder, train=300, dev=20, test=12)


def settings(model_type: str, files: dict[str, Path], *changes: str) -> TranslateConfig:
    flags = {f"bitext.{name}": (str(file),) for name, file in files.items()}
    given = any(
        one.startswith(("tokenizer.source=", "tokenizer.target=")) for one in changes
    )  # then none is learned, of any size
    usual = [one for one in SETTINGS if not (given and one.startswith("tokenizer.size="))]
    assignments = [*usual, *SMALL[model_type], *changes]
    return resolve_translation_settings(Requested(flags={"model_type": model_type, **flags}, assignments=assignments))
