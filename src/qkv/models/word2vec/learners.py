"""The training of word2vec: its settings, its evaluation, and the two learners (Mikolov et al. 2013).

The settings are the keys of RUN/config.toml, of recipes and of --set. The evaluation gives the loss on held-out text,
whose windows and negatives are drawn from a fixed seed, so that all evaluations compare, and the neighbours of a few
words. A learner trains on a chunk of text and changes the matrices in place: the compiled kernel (kernel.py), or torch,
which also runs on a GPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.config import LENGTHS, JobSettings, check_known, check_least
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.models.pretraining import check_own, no_init
from qkv.models.word2vec.corpus import SentenceChunk, SentenceChunks, WholeWords
from qkv.models.word2vec.network import Word2Vec, Word2VecConfig
from qkv.models.word2vec.objective import Sampled, Sampler, SamplingConfig, Windows, keep_chances, noise, train_on
from qkv.text.tokenizer import Tokenizer

_COUNTS = ("steps", "threads", "chunk", "windows", "most", "log_every", "evaluate_every", "save_every", "keep")
_WORDS = ("tokens", "whole")
_KERNELS = ("auto", "numba", "torch")
RATES = {"skipgram": 0.025, "cbow": 0.05}
"""Largest learning rates, those of Mikolov's program."""
MIN_COUNT, VOCABULARY_SIZE = 5, 200_000
"""Of whole words. Tokens were chosen when their tokenizer was trained."""
EVALUATE_EVERY, MOMENTS = 2048, 5
"""Chunks between two evaluations, and how many of these even a short run has."""


@dataclass(frozen=True)
class VectorChoice:
    architecture: str = "skipgram"  # or cbow
    width: int = 100

    def __post_init__(self) -> None:
        self.config(1)

    def config(self, vocabulary_size: int) -> Word2VecConfig:
        return Word2VecConfig(vocabulary_size, self.architecture, self.width)


@dataclass(frozen=True)
class Word2VecTrainConfig:
    epochs: float = 5.0  # how often the corpus is read
    steps: int | None = None  # chunks in all; put here at the start, from epochs or minutes
    minutes: float | None = None  # a time budget; turned into `steps` once, at the start
    lr: float | None = None  # at the beginning; None: 0.025 for skip-gram, 0.05 for CBOW
    lr_end: float = 1e-4  # share of it that is left at the end; it falls in a straight line
    kernel: str = "auto"  # numba where it is installed and the device is a CPU, else torch
    threads: int | None = None  # None: one a core. With 1, a run is reproducible to the last bit
    chunk: int = 16_384  # tokens that one thread takes at a time
    windows: int | None = None  # of the torch kernel: a step of gradient descent; None: 512, on a GPU a whole chunk
    most: int = 64  # of the torch kernel: gradients that a word's vector takes in a step; more are scaled down to these
    seed: int = 0
    log_every: int = 64  # chunks
    evaluate_every: int | None = None  # None: 2048, or as often as makes MOMENTS in a shorter run
    save_every: int = 2048
    keep: int = 2  # checkpoints

    def __post_init__(self) -> None:
        check_known(self, kernel=_KERNELS)
        check_least(self, *_COUNTS)
        for name in ("epochs", "minutes", "lr"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be a number above 0, not {value}.")
        if not 0 <= self.lr_end <= 1:
            raise InputError(f"lr_end is a share of lr, from 0 to 1, not {self.lr_end}.")
        if self.seed < 0:
            raise InputError(f"seed must be 0 or more, not {self.seed}.")


@dataclass(frozen=True)
class Word2VecConfiguration:
    model_type: str = "word2vec"
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    words: str = "tokens"  # or "whole": tokens are joined where the corpus says that a word continues
    min_count: int | None = None  # rarer words get no vector; None: 5 for whole words, 1 for tokens
    vocabulary_size: int | None = None  # so many, special tokens among them; None: 200,000 whole words, all tokens
    model: VectorChoice = field(default_factory=VectorChoice)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    train: Word2VecTrainConfig = field(default_factory=Word2VecTrainConfig)

    def __post_init__(self) -> None:
        check_own(self, "word2vec")
        check_known(self, words=_WORDS)
        check_least(self, "min_count")
        check_least(self, "vocabulary_size", least=10)

    @property
    def lr(self) -> float:
        """The initial learning rate."""
        return RATES[self.model.architecture] if self.train.lr is None else self.train.lr

    def with_words(self) -> "Word2VecConfiguration":
        """Fill in the defaults of min_count and vocabulary_size."""
        if self.words == "tokens":
            return replace(self, min_count=self.min_count or 1)
        return replace(
            self,
            min_count=self.min_count or MIN_COUNT,
            vocabulary_size=self.vocabulary_size or VOCABULARY_SIZE,
        )

    def with_steps(self, steps: int) -> "Word2VecConfiguration":
        """The settings with this many steps, and by default evaluations spread evenly over them.

        >>> Word2VecConfiguration().with_steps(40).train.evaluate_every
        8
        """
        every = self.train.evaluate_every or min(EVALUATE_EVERY, math.ceil(steps / MOMENTS))
        return replace(self, train=replace(self.train, steps=steps, evaluate_every=every))

    def lr_at(self, step: float) -> float:
        """The learning rate at the start of a chunk; it decreases linearly inside.

        >>> Word2VecConfiguration(train=Word2VecTrainConfig(steps=4, lr=1.0, lr_end=0.0)).lr_at(1)
        0.75
        """
        train = self.train
        assert train.steps is not None
        return self.lr * (1 - (1 - train.lr_end) * step / train.steps)


WORD2VEC_SETTINGS = JobSettings(
    Word2VecConfiguration(),
    lengths=LENGTHS | {"train.epochs": "train.epochs"},
    refused=no_init("word2vec")
    | {"size": "--size is not for word2vec. The width of word vectors is --set model.width=…"},
)


# Evaluation

_SEED = 20_130_116  # the day word2vec was put on arXiv
_TOKENS = 1 << 16  # of the held-out text that are looked at
BATCH = 1024  # windows at a time
SHOWN, RANKS = 6, (100, 5_000)  # words whose neighbours are shown: frequent ones, but not the most frequent


class VectorEvaluation:
    """Evaluates a model on held-out text; returns the figures for the log."""

    def __init__(
        self,
        held_out: Shards,
        words: WholeWords | None,
        tokenizer: Tokenizer,
        counts: NDArray[np.int64],
        sampling: SamplingConfig,
        device: torch.device,
    ) -> None:
        chunks = SentenceChunks(held_out, _TOKENS, words)
        self.windows: Windows | None = None
        if len(chunks):
            sampler = Sampler(counts, sampling, device)
            ids, sentences = (torch.from_numpy(array).to(device) for array in chunks[0].flat())
            self.windows = sampler.windows(ids, sentences, torch.Generator(device).manual_seed(_SEED))
        self.tokenizer, self.seen = tokenizer, torch.from_numpy(counts > 0).to(device)
        ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        few = ranked[RANKS[0] : RANKS[1]] if len(ranked) > 2 * RANKS[0] else ranked
        letters = [int(id) for id in few if tokenizer.token(int(id)).isalpha()]
        chosen = np.random.default_rng(_SEED).permutation(len(letters))[:SHOWN]
        self.shown = [letters[place] for place in chosen]

    def __call__(self, model: Word2Vec) -> dict[str, Any]:
        with torch.inference_mode():
            result = {"loss": self.loss(model)} if self.windows is not None and len(self.windows.near) else {}
            return result | {"neighbours": [self.neighbours(model.embedding, word) for word in self.shown]}

    def loss(self, model: Word2Vec) -> float:
        assert self.windows is not None
        loss, count = 0.0, 0
        for begin in range(0, len(self.windows.near), BATCH):
            term = Sampled()(model, Windows(*(tensor[begin : begin + BATCH] for tensor in self.windows)))
            loss, count = loss + float(term.loss), count + int(term.inputs)
        return loss / max(1, count)

    def neighbours(self, embedding: torch.Tensor, word: int, k: int = 5) -> dict[str, Any]:
        """The words whose vectors have the largest cosine with this one's."""
        cosines = torch.cosine_similarity(embedding, embedding[word], dim=-1)  # V
        cosines = cosines.masked_fill(~self.seen, -2.0)
        cosines[word] = -2.0
        best = cosines.topk(min(k, int(self.seen.sum()) - 1))
        near = [
            [self.tokenizer.token(int(id)), round(float(cosine), 4)]
            for id, cosine in zip(best.indices, best.values, strict=True)
        ]
        return {"word": self.tokenizer.token(word), "near": near}


# Learners

ON_CPU = 512  # windows of a step; larger steps are not faster there


class Learner(Protocol):
    def __call__(self, chunk: SentenceChunk, lr_first: float, lr_last: float, seed: int) -> tuple[float, int]:
        """Train on a chunk while the learning rate changes from one value to the other; return the summed loss and the
        number of inputs it covers."""


def choose_kernel(name: str, device: torch.device, tell: Callable[[str], None]) -> str:
    """The kernel of a run; "auto" is resolved when the run starts."""
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


def make_learner(model: Word2Vec, counts: NDArray[np.int64], config: Word2VecConfiguration) -> Learner:
    """The learner for the kernel of the settings, "numba" or "torch"."""
    return (_compiled if config.train.kernel == "numba" else _batched)(model, counts, config)


def _compiled(model: Word2Vec, counts: NDArray[np.int64], config: Word2VecConfiguration) -> Learner:
    from qkv.models.word2vec.kernel import Tables, compile_kernel

    sampling = config.sampling
    table = noise(counts, sampling.power)

    def of_32_bits(chances: NDArray[np.float64]) -> NDArray[np.uint64]:
        return np.rint(chances * 2.0**32).astype(np.uint64)

    tables = Tables(of_32_bits(keep_chances(counts, sampling.subsample)), of_32_bits(table.chances), table.aliases)
    embedding, context = (matrix.data.numpy() for matrix in (model.embedding, model.context))  # the same memory
    learn = compile_kernel(model.config.width, sampling.negatives, model.config.architecture == "cbow")

    def on_chunk(chunk: SentenceChunk, lr_first: float, lr_last: float, seed: int) -> tuple[float, int]:
        return learn(
            chunk.tokens, chunk.sentences, tables, embedding, context, sampling.window, lr_first, lr_last, seed
        )

    return on_chunk


def _batched(model: Word2Vec, counts: NDArray[np.int64], config: Word2VecConfiguration) -> Learner:
    device, train = model.embedding.device, config.train
    sampler = Sampler(counts, config.sampling, device)
    size = train.windows or (ON_CPU if device.type == "cpu" else train.chunk)

    def on_chunk(chunk: SentenceChunk, lr_first: float, lr_last: float, seed: int) -> tuple[float, int]:
        ids, sentences = (torch.from_numpy(array).to(device) for array in chunk.flat())
        generator = torch.Generator(device).manual_seed(seed)
        windows = sampler.windows(ids, sentences, generator)
        exact = torch.float32 if device.type == "mps" else torch.float64  # an Apple GPU has no float64
        loss = torch.zeros((), device=device, dtype=exact)
        count = torch.zeros((), device=device, dtype=torch.int64)
        for begin in range(0, len(windows.near), size):
            part = Windows(*(tensor[begin : begin + size] for tensor in windows))
            lr = lr_first + (lr_last - lr_first) * begin / len(windows.near)
            term = train_on(model, part, lr, train.most)
            loss += term.loss
            count += term.inputs
        return loss.item(), int(count.item())

    return on_chunk
