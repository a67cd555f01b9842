"""Two sides of one pretraining step, masked words and next sentence: qkv's Trainer, transformers' BertForPreTraining.

Both get the same rows, ready on the device, and do a whole step of the optimizer: forward and backward in bf16 autocast
with fp32 weights, clipping, fused AdamW. transformers computes the head for every token, as it always does; where rows
differ in length it pads a batch to its longest row, qkv packs. Dropout is the same on both sides, of attention too.

What this file does NOT do: say which shapes are measured, or show the figures (pretrain_gpu.py, scaling.py).

Shapes: R rows of a batch, T tokens of its longest row, V vocabulary.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from qkv.data.batch import IGNORE, Batch
from qkv.data.corpus.rows import Instances, PairConfig
from qkv.data.corpus.shards import ranges
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import (
    MaskedAndNextSentence,
    MaskingConfig,
    PretrainingBatches,
    model_flops,
    pretraining_flops,
)
from qkv.nn.block import FeedForward
from qkv.nn.gpu.layers import WeightCasts
from qkv.train.log import Silent
from qkv.train.loop import Job, TrainConfig, Trainer

LR = 1e-4
HEADS = ["masked", "next_sentence"]
Step = Callable[[int], object]
Side = Callable[[BertConfig, Sequence[Batch], torch.device], Step]


class Words:
    """A corpus of made-up tokens, as often as words are (Zipf): the gradient of a frequent one is a crowded place."""

    def __init__(self, vocabulary_size: int, longest: int) -> None:
        weights = 1 / (np.arange(vocabulary_size - Specials.first) + 2.7)
        draw = np.random.default_rng(0)
        self.ids = Specials.first + draw.choice(len(weights), 1 << 18, p=weights / weights.sum())
        # documents of four sentences; no row is taken along these, but there must be some
        self.sentence_offsets = np.arange(0, 64 * longest + 1, longest)
        self.document_offsets = np.arange(0, 65, 4)

    def tokens(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.ids[ranges(starts, lengths) % len(self.ids)]

    def word_starts(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones(int(lengths.sum()), np.bool_)


@dataclass(frozen=True)
class Specials:
    """What batches need of a tokenizer. Ids below `first` are [PAD], [UNK], [CLS], [SEP] and [MASK]."""

    size: int
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4
    special_ids: frozenset[int] = frozenset(range(5))
    first = 5


def ready(config: BertConfig, lengths: Sequence[NDArray[np.int64]]) -> list[Batch]:
    """A batch for each array of row lengths, built and masked as a run would."""
    corpus = Words(config.vocabulary_size, config.max_length)
    pairs = PairConfig(max_length=config.max_length)
    build = PretrainingBatches(
        corpus, Specials(config.vocabulary_size), pairs, MaskingConfig(whole_words=False), rows=1
    )
    batches = []
    for number, sizes in enumerate(lengths):
        draw = np.random.default_rng(number)
        first, second = (sizes - 3) // 2, sizes - 3 - (sizes - 3) // 2
        start = draw.integers(0, len(corpus.ids), len(sizes))
        labels = draw.integers(0, 2, len(sizes))
        batches.append(build.batch(Instances(start, first, start + first, second, labels), draw))
    return batches


def ours(
    config: BertConfig,
    batches: Sequence[Batch],
    device: torch.device,
    *,
    compiled: bool = False,
    precision: str = "bf16",
) -> Step:
    torch.manual_seed(0)
    model = BertWithHeads(config, HEADS).to(device)
    parts = [part for part in model.modules() if isinstance(part, FeedForward)]
    there = [batch.to(device) for batch in batches]
    job = Job(
        model,
        MaskedAndNextSentence(),
        lambda step: [there[step % len(there)]],
        Path(),
        compiled=parts,
        around=WeightCasts,
    )
    trainer = Trainer(job, TrainConfig(precision=precision, compile=compiled), Silent())

    def step(number: int) -> None:
        trainer.advance([there[number % len(there)]], LR)

    return step


def theirs(config: BertConfig, batches: Sequence[Batch], device: torch.device, *, compiled: bool = False) -> Step:
    from transformers import BertConfig as TheirConfig
    from transformers import BertForPreTraining

    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner_width,
        "max_position_embeddings": config.max_length,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "attn_implementation": "sdpa",
    }
    model: nn.Module = BertForPreTraining(TheirConfig(**settings))
    model.to(device).train()
    return their_step(model, [padded(batch.to(device)) for batch in batches], device, compiled)


def their_step(model: nn.Module, inputs: Sequence[dict[str, Any]], device: torch.device, compiled: bool) -> Step:
    """A step of a network of transformers that gives its own loss: forward, backward, clipping, fused AdamW."""
    usual = TrainConfig()
    first, second = usual.betas
    optimizer = torch.optim.AdamW(
        model.parameters(), LR, (first, second), usual.epsilon, usual.weight_decay, fused=True
    )
    network: Callable[..., Any] = model
    if compiled:
        # lengths that change would be compiled twice, the second time for all lengths
        same = len({one["input_ids"].shape for one in inputs}) == 1
        network = torch.compile(model, dynamic=None if same else True)

    def step(number: int) -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = network(**inputs[number % len(inputs)]).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), usual.clip, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def padded(batch: Batch) -> dict[str, Any]:
    """What BertForPreTraining takes: labels (R, T), -100 where nothing is predicted; no mask where none is needed,
    which lets it take the faster attention."""
    labels = torch.full_like(batch.ids, IGNORE).scatter(0, batch.labels["masked_at"], batch.labels["masked"])
    rows = batch.padded()
    full = batch.n_tokens == batch.n_rows * batch.longest
    return {
        "input_ids": rows.ids,
        "token_type_ids": rows.segments,
        "attention_mask": None if full else rows.mask.long(),
        "labels": batch.pad(labels, IGNORE),
        "next_sentence_label": batch.labels["next_sentence"],
    }


@dataclass(frozen=True)
class Measured:
    milliseconds: float  # a step
    tokens: float  # real ones a second
    teraflops: float  # a second, of the model on real tokens, whatever is computed for them
    computed: float  # of these, what qkv computes
    memory: float  # GiB at the peak, weights and optimizer included; 0 on a CPU, where nobody counts
    warm_up: float  # seconds of building, the first steps and compiling

    def json(self) -> dict[str, float]:
        return asdict(self)


def measured(side: Side, config: BertConfig, batches: Sequence[Batch], device: torch.device, steps: int) -> Measured:
    """The median of three blocks of `steps` steps, after one step on every batch and two more."""
    emptied(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    begin = time.perf_counter()
    step = side(config, batches, device)
    for number in range(len(batches) + 2):
        step(number)
    finish(device)
    warm_up = time.perf_counter() - begin
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # trying out kernels is not training
    # a block sees every batch equally often
    steps = -(-steps // len(batches)) * len(batches)
    seconds = statistics.median(timed(step, steps, device) for _ in range(3)) / steps
    peak = (torch.cuda.max_memory_allocated(device) - before) / 2**30 if device.type == "cuda" else 0.0
    tokens = statistics.mean(batch.n_tokens for batch in batches)
    with torch.device("meta"):
        model = BertWithHeads(config, HEADS)
    whole, computed = (
        statistics.mean(count(model, batch) for batch in batches) / seconds / 1e12
        for count in (model_flops, pretraining_flops)
    )
    return Measured(1000 * seconds, tokens / seconds, whole, computed, peak, warm_up)


def timed(step: Step, steps: int, device: torch.device) -> float:
    """Seconds of that many steps; a GPU is waited for at both ends only."""
    finish(device)
    begin = time.perf_counter()
    for number in range(steps):
        step(number)
    finish(device)
    return time.perf_counter() - begin


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def emptied(device: torch.device) -> None:
    """What the side before left behind is given back, so that it is in nobody's peak."""
    if "torch._dynamo" in sys.modules:  # else nothing was compiled, and the import takes seconds
        torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
