"""Training of the language models NNLM (Bengio et al. 2003) and RNNLM (Mikolov et al. 2010) from shards.

The loss is that of the next token over running text. `Carrying` is a recurrent model in training: its buffers are the
state of each stream of data/corpus/rows.py, so that checkpoints hold it like weights and a resumed run
continues in the middle of its texts. The gradient ends there: truncated back-propagation through time.

The settings are the keys of RUN/config.toml, of recipes and of --set; both models share all but the table of their own
name. The evaluation is the perplexity on held-out documents, over the same tokens every time.

Shapes: S streams, R rows of a batch, N tokens of all rows, M predicted tokens, P width of the last layer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from qkv.config import JobSettings, Requested, check_known, check_least, given_changes
from qkv.data.batch import Batch
from qkv.data.corpus.rows import SpecialIds, StreamBatches, TextConfig, WindowBatches
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.pretraining import (
    Pretraining,
    collect_page_facts,
    evaluation_figures,
    no_init,
    open_corpus,
    refuse_settings,
    row_sizes,
    save_network,
)
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.nn.gpu.layers import WeightCasts, word_loss
from qkv.nn.recurrent import Cell
from qkv.nn.recurrent_stack import States
from qkv.report.page import RunPage
from qkv.report.run_log import language_model_page
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Progress
from qkv.train.loop import Job, Term, Trainable, TrainConfig, Trainer
from qkv.train.run_folder import Sessions


class Carrying(nn.Module):
    """A recurrent model with the states of its streams."""

    def __init__(self, network: RNNLM, streams: int) -> None:
        super().__init__()
        self.network = network
        self.shape = tuple(len(state) for state in network.begin(1))  # hidden and cell state, of each layer
        for number, part in enumerate(_flat(network.begin(streams))):
            self.register_buffer(f"carried_{number}", part)

    @property
    def carried(self) -> list[Tensor]:
        """(S, ·) each"""
        return [self.get_buffer(f"carried_{number}") for number in range(sum(self.shape))]

    def forget(self) -> None:
        for part in self.carried:
            part.zero_()

    def forward(self, batch: Batch) -> Tensor:
        """The vectors from which the next tokens are scored (N, P); the states of the streams are advanced."""
        continues = batch.labels["continues"][:, None]
        # where, not times: a NaN state must not reach the next document
        begin = [torch.where(continues, part[batch.examples], part.new_zeros(())) for part in self.carried]  # (R, ·)
        hidden, states = self.network(batch.ids, batch.lengths, self._unflat(begin))
        streams, last = batch.labels["streams"], batch.labels["last"]
        with torch.no_grad():
            for part, after in zip(self.carried, _flat(states), strict=True):
                part.index_copy_(0, streams, after.detach()[last].to(part.dtype))
        return hidden

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.network.before_words(hidden)

    def _unflat(self, parts: list[Tensor]) -> States:
        rest = iter(parts)
        return tuple(tuple(next(rest) for _ in range(size)) for size in self.shape)


def _flat(states: States) -> list[Tensor]:
    return [part for state in states for part in state]


class NextToken:
    """The cross entropy of the next token, for every token that has one."""

    weights: Mapping[str, float] = {"next": 1.0}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"next": batch.labels["next"].numel()}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, NNLM | Carrying)
        hidden = model(batch) if isinstance(model, Carrying) else model(batch.ids, batch.positions)
        chosen = hidden.index_select(0, batch.labels["scored_at"])  # (M, P)
        return {"next": Term(*word_loss(*model.before_words(chosen), batch.labels["next"]))}


def evaluate_next_token(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, int, int]:
    """The mean loss, the number of correct predictions, and their total; a recurrent model needs states of its own."""
    device, objective = next(model.parameters()).device, NextToken()
    loss, right, count = 0.0, 0, 0
    for batch in batches:
        term = objective.terms(model, batch.to(device))["next"]
        loss, right, count = loss + term.loss.item(), right + int(term.correct), count + objective.counts(batch)["next"]
    return loss / max(1, count), right, count


def next_token_flops(model: NNLM | RNNLM, batch: Batch) -> float:
    """Floating-point operations of forward and backward: 6 per weight and token."""
    inner = model.hidden if isinstance(model, NNLM) else model.stack
    weights = sum(weight.numel() for weight in inner.parameters() if weight.dim() == 2)
    width = model.config.hidden_width if isinstance(model, NNLM) else model.config.output_width
    if isinstance(model, NNLM) and model.config.direct:
        width += model.config.context * model.config.width
    head = model.config.vocabulary_size * width
    return 6.0 * (weights * batch.n_tokens + head * batch.labels["next"].numel())


# Settings

_MODELS = ("nnlm", "rnnlm")


@dataclass(frozen=True)
class NNLMChoice:
    size: str = "small"  # a preset of models/nnlm/network.py; the fields below change it
    context: int | None = None
    width: int | None = None
    hidden_width: int | None = None
    direct: bool | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        self.config(1, 0)

    def config(self, vocabulary_size: int, begin_id: int) -> NNLMConfig:
        return NNLMConfig.preset(self.size, vocabulary_size=vocabulary_size, begin_id=begin_id, **given_changes(self))


@dataclass(frozen=True)
class RNNLMChoice:
    size: str = "small"  # a preset of models/rnnlm/network.py; the fields below change it
    cell: str | None = None  # rnn, lstm, peephole, coupled or gru
    layers: int | None = None
    width: int | None = None
    cell_width: int | None = None
    projection: int | None = None
    dropout: float | None = None
    tied: bool | None = None

    def __post_init__(self) -> None:
        # what must fit together is checked when all of it was said (`_checked`)
        RNNLMConfig.preset(self.size, vocabulary_size=1, tied=False, **given_changes(self, "projection", "tied"))

    def config(self, vocabulary_size: int) -> RNNLMConfig:
        return RNNLMConfig.preset(self.size, vocabulary_size=vocabulary_size, **given_changes(self))


@dataclass(frozen=True)
class LanguageModelConfig:
    model_type: str = "rnnlm"  # or "nnlm"
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    rows: int = 32  # a batch: pieces of text, for rnnlm each of a stream of its own
    evaluation_tokens: int = 100_000  # of the held-out documents, at most
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    text: TextConfig = field(default_factory=TextConfig)
    nnlm: NNLMChoice = field(default_factory=NNLMChoice)
    rnnlm: RNNLMChoice = field(default_factory=RNNLMChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_known(self, model_type=_MODELS)
        check_least(self, "rows", "evaluation_tokens")
        refuse_settings(self, "compile", "recompute")


def _checked(config: LanguageModelConfig, given: Requested) -> LanguageModelConfig:
    other = "nnlm" if config.model_type == "rnnlm" else "rnnlm"
    if getattr(config, other) != getattr(LanguageModelConfig(), other):
        raise InputError(f"The settings {other}.… do nothing for {config.model_type}: leave them out.")
    if config.model_type == "rnnlm":
        config.rnnlm.config(1)
    return config


# Evaluation

_LEAST = 16  # pieces of a stream, since a recurrent model has seen nothing at the start of each stream
_S = TypeVar("_S", bound=StreamBatches)


def open_evaluation(
    build: Callable[..., _S], held_out: Shards, config: TextConfig, rows: int, tokens: int
) -> tuple[_S | None, int]:
    """The batches of held-out text of at most `tokens` tokens, and their number; `build` takes a config and rows."""
    total = held_out.n_tokens
    if total < 2:
        return None, 0
    config = TextConfig(min(config.length, total - 1), config.ends)
    rows = max(1, min(rows, min(total, tokens) // (_LEAST * config.length)))
    batches = build(config, rows=rows)
    return batches, min(batches.steps_per_epoch, -(-tokens // (rows * config.length)))


class NextTokenEvaluation:
    """Evaluates a model on held-out text; returns the figures for the log."""

    def __init__(
        self, held_out: Shards, special: SpecialIds, config: TextConfig, seen: int, rows: int, tokens: int
    ) -> None:
        build = partial(StreamBatches, held_out, special, seen=seen, shuffle=False)
        self.batches, self.count = open_evaluation(build, held_out, config, rows, tokens)

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, NNLM | Carrying) and self.batches is not None
        read = self.batches
        if isinstance(model, Carrying):  # with its own states: those of the training stay unchanged
            device = next(model.parameters()).device
            model = Carrying(model.network, read.streams).to(device).eval()
        with torch.inference_mode():
            found = evaluate_next_token(model, (read(step)[0] for step in range(self.count)))
        return evaluation_figures("next", *found)


# The run

_Network = NNLM | RNNLM
_B = TypeVar("_B", bound=Trainable)


class CarryingTrainer(Trainer[_B]):
    """A trainer whose checkpoints also hold the carried states, and which resets them when training starts."""

    def _begin(self) -> None:
        super()._begin()
        for part in self._carried().values():
            part.zero_()

    def trained(self) -> dict[str, Tensor]:
        return super().trained() | self._carried()

    def exchange_states(self, own: range, number: int) -> None:
        for part in self._carried().values():  # (S, ·), of which each batch has as many streams
            first, last = (place * len(part) // number for place in (own.start, own.stop))
            part[:first] = 0
            part[last:] = 0
            self.world.sum_tensor(part)

    def _carried(self) -> dict[str, Tensor]:
        return {name: part for name, part in self.job.model.named_buffers() if name.startswith("carried_")}


def _trainer(config: LanguageModelConfig, out: Path, progress: Progress, begins: bool) -> Trainer[Batch]:
    device, corpus, held_out = open_corpus(config, begins)
    tokenizer = corpus.tokenizer()
    torch.manual_seed(config.train.seed)  # the initial weights
    network = _network(config, tokenizer)
    batches = _batches(config, corpus, tokenizer)
    model: nn.Module = network if isinstance(network, NNLM) else Carrying(network, batches.streams)
    evaluate = NextTokenEvaluation(
        held_out, tokenizer, config.text, batches.seen, config.rows, config.evaluation_tokens
    )
    return CarryingTrainer(
        Job(
            model.to(device),
            NextToken(),
            batches,
            out,
            evaluate=evaluate if evaluate.count else None,
            flops=partial(next_token_flops, network),
            matrices=_matrices(model),
            sizes=row_sizes(batches, out),
            around=WeightCasts,
        ),
        config.train,
        progress,
    )


def _network(config: LanguageModelConfig, tokenizer: Tokenizer) -> _Network:
    if config.model_type == "nnlm":
        return NNLM(config.nnlm.config(tokenizer.size, tokenizer.cls_id))
    return RNNLM(config.rnnlm.config(tokenizer.size))


def _batches(config: LanguageModelConfig, corpus: Shards, tokenizer: Tokenizer) -> StreamBatches:
    rows, accumulate, seed = config.rows, config.train.accumulate, config.train.seed
    if config.model_type == "rnnlm":
        return StreamBatches(corpus, tokenizer, config.text, rows=rows, accumulate=accumulate, seed=seed)
    seen = config.nnlm.config(tokenizer.size, tokenizer.cls_id).context - 1
    return WindowBatches(corpus, tokenizer, config.text, rows=rows, accumulate=accumulate, seed=seed, seen=seen)


def _matrices(model: nn.Module) -> dict[str, int]:
    """The weights that Muon optimises and the number of matrices in each; word tables are not among them."""
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, Cell):
            found |= {f"{name}.from_input.weight": module.blocks, f"{name}.from_state.weight": module.blocks}
            if getattr(module, "project", None) is not None:
                found[f"{name}.project.weight"] = 1
        elif isinstance(module, NNLM):
            found["hidden.weight"] = 1
    return found


def _save(config: LanguageModelConfig, out: Path, trainer: Trainer[Batch], corpus: Shards) -> None:
    save_network(config, out, _trained(trainer), corpus)


def _trained(trainer: Trainer[Batch]) -> _Network:
    model = trainer.job.model
    network = model.network if isinstance(model, Carrying) else model
    assert isinstance(network, NNLM | RNNLM)
    return network


def _page(
    config: LanguageModelConfig, out: Path, trainer: Trainer[Batch], corpus: Shards, sessions: Sessions
) -> RunPage:
    return language_model_page(out, collect_page_facts(config.model_type, _trained(trainer), corpus, sessions))


def _pretraining(model: str) -> Pretraining[LanguageModelConfig, Trainer[Batch]]:
    defaults, size = LanguageModelConfig(model_type=model), f"{model}.size"
    settings = JobSettings(defaults, size, check=_checked, refused=no_init(model))
    return Pretraining(settings, _trainer, _save, _page)


PRETRAINING_NNLM, PRETRAINING_RNNLM = _pretraining("nnlm"), _pretraining("rnnlm")
