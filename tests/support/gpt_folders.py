"""Small GPTs as folders, with each kind of vocabulary that they come with."""

from pathlib import Path
from typing import Any

from qkv.models.gpt.folder import save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.folders import make_tokenizer, randomise

VOCABULARIES = {
    "wordpiece": (make_tokenizer, "pre"),  # one of ours, with [SEP]
    "gpt2": (lambda: Tokenizer(gpt2_backend(), "byte-pair"), "pre"),  # one mark
    "gpt": (lambda: Tokenizer(gpt_backend(), "byte-pair"), "post"),  # none
}
"""By name: what makes the tokenizer, and the order of norm and residual."""


def make_gpt(folder: Path, vocabulary: str = "wordpiece", **changes: Any) -> Path:
    make, order = VOCABULARIES[vocabulary]
    tokenizer = make()
    sizes = {"layers": 2, "width": 32, "heads": 4, "inner_width": 128, "max_length": 64, "initial_std": 0.05}
    model = GPT(GPTConfig(tokenizer.size, **(sizes | {"order": order} | changes)))
    randomise(model)
    return save(folder, model, tokenizer)
