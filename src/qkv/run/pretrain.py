"""A whole pretraining run: shards in, a Hugging Face folder out, and everything in between resumable.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, losses, learning rate; evaluations with sample fillings. Reproducible
RUN/timing.jsonl      speed, by the clock
RUN/checkpoints/      what a resume starts from
RUN/model/            the finished model
RUN/report.html       the run as a page
"""

import dataclasses
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from qkv.atomic import replaced_file
from qkv.batch import Batch
from qkv.config import merge, read_toml, to_toml
from qkv.data.shards import Shards
from qkv.errors import InputError
from qkv.interop import hf
from qkv.interop.hub import locate
from qkv.models.bert import BertConfig, BertWithHeads
from qkv.objectives.masked import MaskingConfig
from qkv.objectives.pairs import PairConfig
from qkv.objectives.pretraining import Pretraining, PretrainingBatches, training_flops
from qkv.report.run_page import write_report
from qkv.run.evaluation import Evaluation
from qkv.run.load import device_named
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Job, Outcome, TrainConfig, Trainer
from qkv.train.progress import Progress


@dataclass(frozen=True)
class ModelChoice:
    size: str = "mini"  # a preset of models/bert.py; the fields below change it
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    inner_width: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def config(self, vocabulary_size: int, max_length: int) -> BertConfig:
        named = {name: getattr(self, name) for name in ("layers", "width", "heads", "inner_width")}
        changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        return BertConfig.preset(
            self.size,
            vocabulary_size=vocabulary_size,
            max_length=max(512, max_length),
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            **changes,
        )


@dataclass(frozen=True)
class PretrainConfig:
    data: str = ""  # the folder that `qkv prepare` wrote
    init: str | None = None  # a folder to go on from; None: random weights
    rows: int = 32  # a batch
    evaluation_rows: int = 256  # of the held-out documents
    device: str = "cpu"
    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairConfig = field(default_factory=PairConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InputError(f"rows must be at least 1, not {self.rows}.")


@dataclass(frozen=True)
class Finished:
    run: Path
    outcome: Outcome
    already: bool = False  # the run had ended before


def start(config: PretrainConfig, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    if (out / "config.toml").exists():
        raise InputError(
            f"{out} holds a run already. Go on with it: qkv pretrain --resume {out}. Or give another folder."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder. Give a new name for the run.")
    config = replace(config, data=str(Path(config.data).resolve()))
    trainer = _trainer(config, out, progress)
    if config.train.minutes is not None:
        # once, and frozen into the config: a resumed run must not measure again
        steps = trainer.steps_in(config.train.minutes)
        progress.message(f"{config.train.minutes:g} minutes are {steps:,} steps on this machine.")
        config = replace(config, train=replace(config.train, steps=steps))
        trainer.config = config.train
    with replaced_file(out / "config.toml") as part:
        part.write_text(to_toml(config), encoding="utf-8")
    return _finish(config, out, trainer)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    file = run / "config.toml"
    if not file.is_file():
        raise InputError(f"{run} is not a run: it has no config.toml. A run is the folder that was given to --out.")
    config = merge(PretrainConfig(), read_toml(file), str(file))
    if (run / "model" / "config.json").exists() and (run / "report.html").exists():
        return Finished(run, Outcome(config.train.steps, finished=True), already=True)
    return _finish(config, run, _trainer(config, run, progress))


def _trainer(config: PretrainConfig, out: Path, progress: Progress) -> Trainer[Batch]:
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = (Shards.open(Path(config.data), part) for part in ("train", "valid"))
    tokenizer = Tokenizer.load(Path(config.data) / "tokenizer")
    paired = config.pairs.negatives != "none"
    torch.manual_seed(config.train.seed)  # the initial weights
    model = _model(config, tokenizer, paired, progress).to(device)
    batches = PretrainingBatches(
        corpus,
        tokenizer,
        config.pairs,
        config.masking,
        rows=config.rows,
        accumulate=config.train.accumulate,
        seed=config.train.seed,
    )
    batches(0)[0].check(
        vocabulary=model.config.vocabulary_size, positions=model.config.max_length, segments=model.config.segments
    )
    objective = Pretraining(next_sentence=paired)
    return Trainer(
        Job(
            model,
            objective,
            batches,
            out,
            evaluate=Evaluation(held_out, tokenizer, batches, objective, config.evaluation_rows),
            flops=partial(training_flops, model),
            compiled=[block.feed_forward for block in model.encoder.blocks],
            recomputed=list(model.encoder.blocks),
        ),
        config.train,
        progress,
    )


def _model(config: PretrainConfig, tokenizer: Tokenizer, paired: bool, progress: Progress) -> BertWithHeads:
    heads = ["masked", "next_sentence"] if paired else ["masked"]
    if config.init is None:
        return BertWithHeads(config.model.config(tokenizer.size, config.pairs.max_length), heads)
    folder = hf.load(locate(config.init))
    if folder.tokenizer.vocabulary != tokenizer.vocabulary:
        raise InputError(
            f"{config.data} was prepared with another tokenizer than that of {config.init}. "
            f"Prepare the corpus again with --tokenizer {config.init}."
        )
    if config.pairs.max_length > folder.config.max_length:
        raise InputError(f"{config.init} reads {folder.config.max_length} tokens, not {config.pairs.max_length}.")
    wanted = replace(folder.config, dropout=config.model.dropout, attention_dropout=config.model.attention_dropout)
    model = BertWithHeads(wanted, heads)
    missing, _ = model.load_state_dict(folder.model.state_dict(), strict=False)
    if missing:
        parts = sorted({".".join(name.split(".")[:2]) for name in missing})
        progress.message(f"{config.init} has no {', '.join(parts)}: begun from random weights.")
    return model


def _finish(config: PretrainConfig, out: Path, trainer: Trainer[Batch]) -> Finished:
    """Train, then write the model and the report."""
    began = time.perf_counter()
    outcome = trainer.run()
    model = trainer.job.model
    assert isinstance(model, BertWithHeads)
    tokenizer = Tokenizer.load(Path(config.data) / "tokenizer")
    if outcome.finished:
        record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
        hf.save(out / "model", model.eval(), tokenizer, record=record)
    facts = _facts(config, model, seconds=time.perf_counter() - began)
    write_report(out, pretraining_page(out, facts))
    return Finished(out, outcome)
