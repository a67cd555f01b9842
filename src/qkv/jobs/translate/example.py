"""Example data for translation: reversed digits, which a small model learns in less than a minute.

    3 1 4 1 5    →    5 1 4 1 3

With attention the model reads one position at a time, from right to left, as its alignment shows; with a fixed context
it must store every digit. Digits are separated by spaces, so that each is a token. The same seed gives the same pairs,
without duplicates.
"""

import os
import shutil
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qkv.config import merge
from qkv.errors import InputError, did_you_mean
from qkv.files import write_text
from qkv.jobs.lifecycle import Finished
from qkv.jobs.translate.settings import TRANSLATION_MODELS, TranslateConfig
from qkv.jobs.translate.training import TRANSLATING
from qkv.train.log import Progress
from qkv.train.run_folder import CONFIG, remove_run

SHORTEST, LONGEST = 3, 10


class DigitPair(NamedTuple):
    source: str
    target: str


def digit_pairs(count: int, seed: int = 0, shortest: int = SHORTEST, longest: int = LONGEST) -> list[DigitPair]:
    """`count` distinct pairs of `shortest` to `longest` digits, with lengths as evenly distributed as possible.

    >>> digit_pairs(2, shortest=3, longest=4)
    [DigitPair(source='6 5 2 3', target='3 2 5 6'), DigitPair(source='0 0 1', target='1 0 0')]
    """
    if not 1 <= shortest <= longest:
        raise InputError(f"Rows of {shortest} to {longest} digits cannot be: give 1 ≤ shortest ≤ longest.")
    # at least: beyond 19 digits there are more rows than anyone can ask for
    there_are = sum(10**length for length in range(min(shortest, 19), min(longest, 19) + 1))
    if not 0 <= count <= there_are:
        raise InputError(
            f"{count} different rows of {shortest} to {longest} digits were asked for, and there are {there_are}. "
            "Ask for fewer, or for longer ones."
        )
    draw = np.random.default_rng(seed)
    left = {length: 10**length for length in range(shortest, longest + 1)}  # rows not yet drawn
    found: dict[str, None] = {}  # in the order in which they were drawn
    while len(found) < count:
        lengths = [length for length, rows in left.items() if rows]
        digits = draw.integers(0, 10, lengths[int(draw.integers(len(lengths)))])
        row = " ".join(map(str, digits.tolist()))
        if row not in found:
            found[row] = None
            left[len(digits)] -= 1
    return [DigitPair(row, row[::-1]) for row in found]


def write_digit_pairs(
    folder: str | os.PathLike[str],
    train: int = 20_000,
    dev: int = 500,
    test: int = 500,
    seed: int = 0,
    shortest: int = SHORTEST,
    longest: int = LONGEST,
) -> dict[str, Path]:
    """Write train.tsv, dev.tsv and test.tsv, one pair per line, without overlap."""
    sizes = {"train": train, "dev": dev, "test": test}
    pairs = iter(digit_pairs(sum(sizes.values()), seed, shortest, longest))
    files = {name: Path(folder) / f"{name}.tsv" for name in sizes}
    # those of dev and test are drawn first: more or other training pairs change no figure's sentences
    for name in ("test", "dev", "train"):
        lines = (f"{source}\t{target}\n" for source, target in islice(pairs, sizes[name]))
        files[name].parent.mkdir(parents=True, exist_ok=True)
        write_text(files[name], "".join(lines))
    return files


_EXAMPLES: dict[str, dict[str, Any]] = {
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
    if name not in _EXAMPLES:
        raise InputError(f"There is no example '{name}'.{did_you_mean(name, _EXAMPLES)} Known: {', '.join(_EXAMPLES)}.")
    others = set(TRANSLATION_MODELS) - {model_type}
    settings = {key: value for key, value in _EXAMPLES[name].items() if key not in others}
    return merge(TranslateConfig(model_type=model_type), settings, f"example {name}")


def start_example(
    name: str, config: TranslateConfig, out: Path, progress: Progress, overwrite: bool = False
) -> Finished:
    """Write the pairs into the run's folder and start it; if it cannot start, nothing is left."""
    TRANSLATING.check_folder(out, overwrite)
    if overwrite:
        remove_run(out)
    was_there = out.exists()
    try:
        files = {part: (str(file),) for part, file in write_digit_pairs(out / "pairs").items()}
        return TRANSLATING.start_in(merge(config, {"bitext": files}, f"example {name}"), out, progress)
    finally:
        if not (out / CONFIG).exists():
            shutil.rmtree(out / "pairs" if was_there else out, ignore_errors=True)
