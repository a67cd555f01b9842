"""GPT: a Transformer that looks to the left alone, and predicts the next token.

Post-norm as in GPT (Radford et al. 2018), pre-norm with one more norm at the end as in GPT-2 (Radford et al. 2019).
Learned positions are added to the tokens; the table that reads tokens also scores them (tied).

Training computes all positions at once from packed rows, and none sees what comes after it. Writing keeps keys and
values (nn/cpu/cache.py): a prompt is read once, and each step computes one new token a row (nn/cpu/step.py). Tests
hold the two equal. On a CPU writing may be in 8 bits (nn/cpu/int8.py), which is faster and nearly the same; or 8 bits
guess ahead and the weights judge (nn/cpu/speculative.py), which is faster for a single text, and the same. Training
knows neither.

    state = model.start(prompt.ids, prompt.packing, longest=50)
    logits, state, _ = model.step(last_tokens_of_the_prompts, state)

What this file does NOT do: the loss (models/gpt/objective.py), the choice of what is written (generate/), fine-tuning.

Shapes: N tokens of all rows, M of them, R prompts, Q rows (hypotheses of all prompts), D width, H heads, K head width,
C tokens of a row that are read at once, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Packing
from qkv.errors import InputError, did_you_mean
from qkv.nn.block import ACTIVATIONS, FeedForward, PostNormBlock, PreNormBlock
from qkv.nn.cpu.cache import TextCache
from qkv.nn.cpu.int8 import bytes_of, int8, unavailable
from qkv.nn.cpu.speculative import Draft, Pace, guessing
from qkv.nn.cpu.step import Function, PostNormCausalStep, PreNormCausalStep, causal_step, direct
from qkv.nn.cpu.weight_layout import Twins, by_columns, is_of_use
from qkv.nn.fused import Packed
from qkv.nn.gpu import layers as fast
from qkv.nn.gpu.pre_norm import block_stack
from qkv.nn.multihead import MultiHeadSelfAttention
from qkv.nn.position import LearnedPositions
from qkv.search.decoding import Stepped

_BLOCKS = {"post": PostNormBlock, "pre": PreNormBlock}
_PRECISIONS = ("fp32", "int8", "drafted")


@dataclass(frozen=True)
class GPTConfig:
    vocabulary_size: int
    layers: int = 12
    width: int = 768
    heads: int = 12
    inner_width: int = 3_072
    max_length: int = 1_024
    order: str = "pre"  # of norm and residual; or "post"
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    embedding_dropout: float = 0.1
    norm_epsilon: float = 1e-5
    initial_std: float = 0.02
    tied: bool = True  # tokens are scored with the table that reads them
    scaled: bool = True  # scores of attention by 1 / √K
    scaled_by_layer: bool = False  # and by 1 / the layer's number, counted from 1

    def __post_init__(self) -> None:
        for name, known in (("activation", ACTIVATIONS), ("order", _BLOCKS)):
            if (value := getattr(self, name)) not in known:
                raise InputError(f"Unknown {name} '{value}'.{did_you_mean(value, known)} Known: {', '.join(known)}.")
        for name in ("vocabulary_size", "layers", "width", "heads", "inner_width", "max_length"):
            if (value := getattr(self, name)) < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        if self.width % self.heads:
            raise InputError(f"width {self.width} is not divisible by {self.heads} heads.")
        for name in ("dropout", "attention_dropout", "embedding_dropout"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise InputError(f"{name} is a share from 0 to less than 1, not {value}.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """A size by name: the two published ones, and small ones in the shapes of small BERTs (Turc et al. 2019)."""
        if name not in PRESETS:
            raise InputError(f"Unknown size '{name}'.{did_you_mean(name, PRESETS)} Known: {', '.join(PRESETS)}.")
        return cls(**(PRESETS[name] | changes))


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 128, "heads": 2, "inner_width": 512, "max_length": 512},
    "mini": {"layers": 4, "width": 256, "heads": 4, "inner_width": 1_024, "max_length": 512},
    "small": {"layers": 4, "width": 512, "heads": 8, "inner_width": 2_048, "max_length": 512},
    "gpt": {"layers": 12, "width": 768, "heads": 12, "inner_width": 3_072, "max_length": 512, "order": "post"},
    "gpt2": {"layers": 12, "width": 768, "heads": 12, "inner_width": 3_072, "max_length": 1_024, "order": "pre"},
}


class _Layers(NamedTuple):
    """What writing computes with."""

    blocks: Sequence[nn.Module]  # for prompts
    steps: Sequence[PostNormCausalStep | PreNormCausalStep]
    words: Function  # (…, D) → (…, V)
    guessing: "_Layers | None" = None  # what guesses ahead, where something does


class GPTState:
    """What the rows remember. A state is gone on from once: its cache is written in place."""

    def __init__(self, past: TextCache, layers: _Layers, pace: Pace, draft: Draft | None = None) -> None:
        self.past, self.layers, self.pace, self.draft = past, layers, pace, draft
        self._is_used = False

    def select(self, rows: Tensor) -> "GPTState":
        """(Q',): row i goes on from what was row rows[i]. One may go on twice, or not at all."""
        self.use()
        chosen, before = rows.tolist(), self.past.rows
        self.past.select(chosen)
        # what was guessed stands behind what was written, and is not moved with it
        return self.follow(self.draft if chosen == list(range(before)) else None)

    def follow(self, draft: Draft | None = None) -> "GPTState":
        return GPTState(self.past, self.layers, self.pace, draft)

    def use(self) -> None:
        assert not self._is_used, "this state was gone on from already; go on from the one that it gave"
        self._is_used = True


class GPT(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.position = LearnedPositions(config.max_length, config.width)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.blocks = nn.ModuleList(_block(config, number) for number in range(config.layers))
        # pre-norm blocks leave their sums unnormalised
        self.norm = nn.LayerNorm(config.width, config.norm_epsilon) if config.order == "pre" else nn.Identity()
        self.table = None if config.tied else nn.Parameter(torch.empty(config.vocabulary_size, config.width))
        self.precision = "fp32"  # of writing
        self._by_columns, self._int8 = Twins(by_columns), Twins(int8)
        self._initialise()

    def train(self, mode: bool = True) -> Self:
        for twins in (self._by_columns, self._int8):
            twins.forget()  # whatever is done to the weights in between
        return super().train(mode)

    def forward(
        self, ids: Tensor, packing: Packing, positions: Tensor | None = None, *, only: Tensor | None = None
    ) -> Tensor:
        """(N,) → (N, D), the vector after each token, from which `scores` predicts the next.

        `positions` (N,) are counted from 0 in every row if they are not given. `only` (M,) names the tokens whose
        vectors will be read: the answer is then (M, D), and most of the last layer is not computed for the others.
        """
        attend = Packed(*packing, causal=True)
        x = self.embed(ids, positions_of(packing) if positions is None else positions)  # (N, D)
        return block_stack(list(self.blocks), self.norm, x, attend, only)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """(N,) each → (N, D)"""
        return self.dropout(tokens_in_place(self.embedding, self.position, ids, positions))

    @property
    def scored_with(self) -> Tensor:
        """(V, D)"""
        return self.embedding.weight if self.table is None else self.table

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        return functional.linear(hidden, self.scored_with)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, None]:
        """What the scores of words are made of, x Eᵀ: x (M, D), E (V, D), and no bias."""
        return hidden, self.scored_with, None

    @torch.no_grad()
    def start(self, prompt: Tensor, prompt_packing: Packing, *, hypotheses: int = 1, longest: int) -> GPTState:
        """Read all but the last token of every prompt (N,). Row r · hypotheses + j is hypothesis j of prompt r; at most
        `longest` tokens will be written in each. The first `step` takes the last tokens of the prompts."""
        assert not self.training, "dropout would blur what is written: call eval() first"
        most = self.config.max_length + 1 - prompt_packing.longest  # the token that is written last is never read
        assert longest <= most, f"{longest} tokens are to be written, and there are positions for {most}"
        layers = self._layers()
        lengths = [length - 1 for length in prompt_packing.lengths]
        shape = (self.config.heads, self.config.width // self.config.heads)
        past = TextCache(len(self.blocks), lengths, longest, shape, self.embedding.weight, hypotheses)
        if any(lengths):
            read = torch.ones(len(prompt), dtype=torch.bool)
            read[torch.tensor(prompt_packing.lengths).cumsum(0) - 1] = False
            chosen = read.nonzero().squeeze(1).to(prompt.device)
            x = self.embed(prompt[chosen], positions_of(prompt_packing)[chosen])
            for block, attend in zip(layers.blocks, past.prompts(), strict=True):
                x, _ = block(x, attend)
        return GPTState(past, layers, Pace())

    @torch.no_grad()
    def step(self, tokens: Tensor, state: GPTState) -> Stepped[GPTState]:
        """(Q,), the token that was written last in every row → scores of the next."""
        state.use()
        if state.layers.guessing is not None and len(tokens) == 1:
            return self._guessing(tokens, state)
        logits = self._read(tokens, state.past, state.layers)
        state.past.advance()
        return Stepped(logits, state.follow(), None)

    def _read(self, tokens: Tensor, past: TextCache, layers: _Layers, count: int = 1) -> Tensor:
        """The next tokens (Q · C,) of every row → (Q · C, V), without going on to them."""
        places = past.positions if count == 1 else past.positions + torch.arange(count, device=tokens.device)
        x = functional.embedding(tokens, self.embedding.weight) + self.position.weight[places]
        for step, attend in zip(layers.steps, past.next_tokens(count), strict=True):
            x = step(x, attend)
        return layers.words(self.norm(x))

    def _guessing(self, tokens: Tensor, state: GPTState) -> Stepped[GPTState]:
        """A step of a single row (1,)."""
        past, layers, cheap = state.past, state.layers, state.layers.guessing
        assert cheap is not None
        found = guessing(
            *(tokens, past, state.pace, state.draft),
            lambda token: self._read(token, past, cheap),
            lambda some: (self._read(some, past, layers, len(some)), None),
        )
        return Stepped(found.logits, state.follow(found.draft), None)

    def set_precision(self, precision: str) -> Self:
        """Of writing: "fp32" is exact (or whatever type the weights are of); "int8" is faster on a CPU, and nearly the
        same; "drafted" is exact, and faster on a CPU where one text alone is written. Training does not change."""
        if precision not in _PRECISIONS:
            hint = did_you_mean(precision, _PRECISIONS)
            raise InputError(f"Unknown precision '{precision}'.{hint} Known: {', '.join(_PRECISIONS)}.")
        if precision != "fp32" and (reason := unavailable()) is not None:
            raise InputError(f"{precision} cannot be had: {reason}. Use fp32.")
        self.precision = precision
        return self

    def int8_bytes(self) -> int:
        """Memory of the weights in 8 bits, beside the model's own; 0 if nothing was written with them."""
        return 0 if self._int8.held is None else bytes_of(self._int8.held)

    def _layers(self) -> _Layers:
        words = nn.Linear(self.config.width, self.config.vocabulary_size, bias=False, device="meta")
        words.weight = self.embedding.weight if self.table is None else self.table
        modules = nn.ModuleList([*self.blocks, words])
        near = None
        if self.precision != "fp32":
            check_weights(self)
            *blocks, last = self._int8.of(modules)
            near = _Layers(blocks, [causal_step(block) for block in blocks], direct(last))
            if self.precision == "int8":
                return near
        if is_of_use(modules):
            modules = self._by_columns.of(modules)
        *blocks, last = modules
        return _Layers(list(self.blocks), [causal_step(block) for block in blocks], direct(last), near)

    def _initialise(self) -> None:
        """Normal weights, zero biases. What is added to the residual path is drawn smaller the more layers add to it,
        as GPT-2's was (§2.3), where nothing but the last norm keeps the sum in bounds."""
        std = self.config.initial_std
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_added = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                shrunk = (2 * self.config.layers) ** -0.5 if is_added and self.config.order == "pre" else 1.0
                nn.init.normal_(parameter, std=std * shrunk)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


def check_weights(model: GPT) -> None:
    """Whether products of 8 bits can be made of them."""
    for weight in model.parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.is_inference():
            raise InputError(
                f"int8 is made from fp32 weights on a CPU; these are {weight.dtype} on {weight.device}. "
                "Use --device cpu, or fp32."
            )


def tokens_in_place(tokens: nn.Embedding, places: LearnedPositions, ids: Tensor, positions: Tensor) -> Tensor:
    """E[token] + P[position]: (N,) each → (N, D)"""
    if torch.is_grad_enabled() and fast.fits(tokens.weight):
        return fast.embed_two(ids, positions, tokens.weight, places.weight)
    found: Tensor = tokens(ids) + places(positions)
    return found


def positions_of(packing: Packing) -> Tensor:
    """(N,): counted from 0 in every row."""
    offsets, total = packing.offsets, sum(packing.lengths)
    starts = torch.repeat_interleave(offsets[:-1].long(), offsets.diff(), output_size=total)
    return torch.arange(total, device=offsets.device) - starts


def _block(config: GPTConfig, number: int) -> nn.Module:
    head_width = config.width // config.heads
    scale = (head_width**-0.5 if config.scaled else 1.0) / (number + 1 if config.scaled_by_layer else 1)
    return _BLOCKS[config.order](
        MultiHeadSelfAttention(config.width, config.heads, scale=scale, dropout=config.attention_dropout),
        FeedForward(config.width, config.inner_width, config.activation),
        config.width,
        config.dropout,
        config.norm_epsilon,
    )
