"""The two ways to train word2vec on a chunk of text: the compiled kernel, and torch, which needs nothing more and runs
on a GPU too. Both change the matrices of the model in place."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.sentence_chunks import Chunk
from qkv.errors import InputError
from qkv.models.word2vec import Word2Vec
from qkv.objectives.sampled import Sampler, Windows, keep_chances, noise, train_on
from qkv.run.word2vec_config import Word2VecConfiguration

ON_CPU = 512  # windows of a step; larger steps are not faster there


class Learner(Protocol):
    def __call__(self, chunk: Chunk, lr_first: float, lr_last: float, seed: int) -> tuple[float, int]:
        """Train on a chunk while the learning rate goes from one value to the other; the loss, summed over as many
        inputs as the second number says."""


def kernel_named(name: str, device: torch.device, tell: Callable[[str], None]) -> str:
    """The kernel that a run uses, once: "auto" is decided where the run begins."""
    there = find_spec("numba") is not None
    if name == "auto":
        if device.type == "cpu" and not there:
            tell("numba is not installed, so torch trains, which takes many times as long: pip install 'qkv[fast]'.")
        return "numba" if device.type == "cpu" and there else "torch"
    if name == "numba" and not there:
        raise InputError("The kernel numba is not installed: pip install 'qkv[fast]', or set train.kernel=torch.")
    if name == "numba" and device.type != "cpu":
        raise InputError(f"The kernel numba runs on a CPU, not on {device}. Set train.kernel=torch, or device=cpu.")
    return name


def learner_of(model: Word2Vec, counts: NDArray[np.int64], config: Word2VecConfiguration) -> Learner:
    """By the kernel that the settings name, which is "numba" or "torch" by now."""
    return (_compiled if config.train.kernel == "numba" else _batched)(model, counts, config)


def _compiled(model: Word2Vec, counts: NDArray[np.int64], config: Word2VecConfiguration) -> Learner:
    from qkv.train.word2vec_numba import Tables, kernel

    sampling = config.sampling
    table = noise(counts, sampling.power)

    def of_32_bits(chances: NDArray[np.float64]) -> NDArray[np.uint64]:
        return np.rint(chances * 2.0**32).astype(np.uint64)

    tables = Tables(of_32_bits(keep_chances(counts, sampling.subsample)), of_32_bits(table.chances), table.aliases)
    embedding, context = (matrix.data.numpy() for matrix in (model.embedding, model.context))  # the same memory
    learn = kernel(model.config.width, sampling.negatives, model.config.architecture == "cbow")

    def on_chunk(chunk: Chunk, lr_first: float, lr_last: float, seed: int) -> tuple[float, int]:
        return learn(
            chunk.tokens, chunk.sentences, tables, embedding, context, sampling.window, lr_first, lr_last, seed
        )

    return on_chunk


def _batched(model: Word2Vec, counts: NDArray[np.int64], config: Word2VecConfiguration) -> Learner:
    device, train = model.embedding.device, config.train
    sampler = Sampler(counts, config.sampling, device)
    size = train.windows or (ON_CPU if device.type == "cpu" else train.chunk)

    def on_chunk(chunk: Chunk, lr_first: float, lr_last: float, seed: int) -> tuple[float, int]:
        ids, sentences = (torch.from_numpy(array).to(device) for array in chunk.flat())
        generator = torch.Generator(device).manual_seed(seed)
        windows = sampler.windows(ids, sentences, generator)
        loss = torch.zeros((), device=device, dtype=torch.float64)
        count = torch.zeros((), device=device, dtype=torch.int64)
        for begin in range(0, len(windows.near), size):
            part = Windows(*(tensor[begin : begin + size] for tensor in windows))
            lr = lr_first + (lr_last - lr_first) * begin / len(windows.near)
            term = train_on(model, part, lr, train.most)
            loss += term.loss
            count += term.inputs
        return loss.item(), int(count.item())

    return on_chunk
