"""A whole training of a language model, NNLM or RNNLM: shards in, a model folder out, exactly resumable.

The folder of a run is that of a BERT's (pretrain.py). What is new is the state that a recurrent model carries from
step to step: checkpoints hold it too, so that a run which was killed goes on in the middle of its texts.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from qkv.batch import Batch
from qkv.data.shards import Shards
from qkv.errors import InputError
from qkv.interop.folder import read_folder, save_folder
from qkv.models.nnlm import NNLM, NNLMConfig
from qkv.models.rnnlm import RNNLM, RNNLMConfig
from qkv.nn.halves import Halves
from qkv.nn.recurrent import Cell
from qkv.objectives.next_token import Carrying, NextToken, training_flops
from qkv.objectives.running_text import StreamBatches, WindowBatches
from qkv.report.language_model_page import LanguageModelFacts, language_model_page
from qkv.report.run_page import RunPage
from qkv.run.from_shards import Finished, Training, opened
from qkv.run.language_model_config import MODELS, LanguageModelConfig
from qkv.run.next_token_evaluation import NextTokenEvaluation
from qkv.run.places import device_named
from qkv.run.sessions import Sessions
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Job, Trainable, Trainer
from qkv.train.memory import Sizes, divisors, rows_and_accumulation
from qkv.train.progress import Progress, Silent

Network = NNLM | RNNLM


class LanguageModel(NamedTuple):
    network: Network
    tokenizer: Tokenizer
    record: dict[str, Any]


class CarryingTrainer(Trainer[Batch]):
    """A trainer whose checkpoints hold the carried states as well, and whose trials leave none behind."""

    def _begin(self) -> None:
        super()._begin()
        if isinstance(self.job.model, Carrying):
            self.job.model.forget()

    def trained(self) -> dict[str, Tensor]:
        return super().trained() | dict(self.job.model.named_buffers())


def start(config: LanguageModelConfig, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    return _training().start(config, out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    return _training().resume(run, progress)


def _training() -> Training[LanguageModelConfig, Batch]:
    return Training(LanguageModelConfig(), _trainer, _save, _page)


def load_language_model(path: str | Path) -> LanguageModel:
    """The network of a folder that a run has written, ready to be asked."""
    folder = read_folder(path, *MODELS)
    try:
        network: Network
        if folder.model_type == "nnlm":
            network = NNLM(NNLMConfig(**folder.config))
        else:
            network = RNNLM(RNNLMConfig(**folder.config))
        network.load_state_dict(folder.tensors)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{path}: config.json and model.safetensors do not fit together: {error}") from None
    return LanguageModel(network.eval(), folder.tokenizer, folder.record)


def _trainer(config: LanguageModelConfig, out: Path, progress: Progress, begins: bool) -> Trainer[Batch]:
    tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
    tokenizer = corpus.tokenizer()
    torch.manual_seed(config.train.seed)  # the initial weights
    network = _network(config, tokenizer)
    batches = _batches(config, corpus, tokenizer)
    model: nn.Module = network if isinstance(network, NNLM) else Carrying(network, batches.streams)
    evaluate = NextTokenEvaluation(
        held_out, tokenizer, config.text, batches.seen, config.rows, config.evaluation_tokens
    )
    if not evaluate.count:
        tell("No text is held out, so nothing is evaluated. For that, prepare the corpus with --hold-out.")
    return CarryingTrainer(
        Job(
            model.to(device),
            NextToken(),
            batches,
            out,
            evaluate=evaluate if evaluate.count else None,
            flops=partial(training_flops, network),
            matrices=_matrices(model),
            sizes=row_sizes(batches, out, lambda resized, step: resized(step)),
            around=Halves,
        ),
        config.train,
        progress,
    )


def _network(config: LanguageModelConfig, tokenizer: Tokenizer) -> Network:
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
    """What Muon takes: the weights inside, and how many matrices lie in each; not the tables of words."""
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, Cell):
            found |= {f"{name}.from_input.weight": module.blocks, f"{name}.from_state.weight": module.blocks}
            if getattr(module, "project", None) is not None:
                found[f"{name}.project.weight"] = 1
        elif isinstance(module, NNLM):
            found["hidden.weight"] = 1
    return found


class Resizable(Protocol):
    """Batches of rows, of which a step has `streams`."""

    rows: int

    @property
    def streams(self) -> int: ...
    def resized(self, rows: int, accumulate: int) -> Self: ...


S = TypeVar("S", bound=Resizable)
B = TypeVar("B", bound=Trainable)


def row_sizes(batches: S, out: Path, at: Callable[[S, int], list[B]]) -> Sizes[B]:
    """The rows of a step in smaller batches, and more of them; `at` says what a step reads."""

    def settings(rows: int) -> str:
        return rows_and_accumulation(rows, batches.streams // rows, out)

    def cut(rows: int, step: int) -> list[B]:
        return at(batches.resized(rows, batches.streams // rows), step)

    return Sizes(batches.rows, "rows", divisors(batches.rows), cut, settings)


def _save(config: LanguageModelConfig, out: Path, trainer: Trainer[Batch], corpus: Shards) -> None:
    network = _trained(trainer)
    record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
    sizes = dataclasses.asdict(network.config)
    save_folder(out / "model", config.model_type, sizes, network.state_dict(), corpus.tokenizer(), record)


def _trained(trainer: Trainer[Batch]) -> Network:
    model = trainer.job.model
    network = model.network if isinstance(model, Carrying) else model
    assert isinstance(network, NNLM | RNNLM)
    return network


def _page(
    config: LanguageModelConfig, out: Path, trainer: Trainer[Batch], corpus: Shards, sessions: Sessions
) -> RunPage:
    return language_model_page(out, facts_of(config.model_type, _trained(trainer), corpus, sessions))


def facts_of(model_type: str, network: nn.Module, corpus: Shards, sessions: Sessions) -> LanguageModelFacts:
    """What the report of a language model says beside the log."""
    manifest = corpus.manifest
    return LanguageModelFacts(
        model_type=model_type,
        vocabulary_size=corpus.tokenizer().size,
        unigram_entropy=manifest["unigram_entropy"],
        documents=corpus.n_documents,
        held_out_documents=manifest["valid"]["documents"],
        sentences=corpus.n_sentences,
        tokens=corpus.n_tokens,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        seconds=sessions.seconds,
        peak_memory=sessions.peak_memory,
        resumed_from=sessions.resumed_from,
    )
