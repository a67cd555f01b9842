"""Word vectors small enough to follow on paper, and folders and files of them."""

from pathlib import Path

import torch

from qkv.models.folders.own import save_folder
from qkv.models.word2vec.folder import WordVectors
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL

# royal, male, female, animal: king − man + woman is exactly queen
SMALL: dict[str, tuple[float, ...]] = {
    "king": (1.0, 1.0, 0.0, 0.0),
    "queen": (1.0, 0.0, 1.0, 0.0),
    "man": (0.0, 1.0, 0.0, 0.0),
    "woman": (0.0, 0.0, 1.0, 0.0),
    "cat": (0.0, 0.0, 0.0, 2.0),
    "猫": (0.0, 0.0, 0.1, 1.0),
    "unseen": (0.0, 0.0, 0.0, 0.0),
}


def small() -> WordVectors:
    return WordVectors(list(SMALL), torch.tensor(list(SMALL.values())), "small.txt")


def random_vectors(n_words: int, width: int, seed: int = 0) -> WordVectors:
    generator = torch.Generator().manual_seed(seed)
    return WordVectors([f"w{row}" for row in range(n_words)], torch.randn(n_words, width, generator=generator))


def make_vectors_folder(path: Path, **words: tuple[float, ...]) -> Path:
    """A word2vec folder as training leaves it: special tokens first, and whatever their rows hold."""
    words = words or SMALL
    table = torch.tensor([(9.0,) * 4 for _ in SPECIAL] + list(words.values()))
    tokenizer = Tokenizer.from_vocabulary([*SPECIAL, *words], "word")
    config = {"vocabulary_size": len(table), "width": 4}
    return save_folder(path, "word2vec", config, {"embedding": table}, tokenizer, {"words": 7})
