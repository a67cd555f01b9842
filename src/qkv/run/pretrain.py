"""A whole pretraining run: shards in, a Hugging Face folder out, and everything in between resumable.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, losses, learning rate; evaluations with sample fillings. Reproducible
RUN/timing.jsonl      speed, by the clock
RUN/checkpoints/      what a resume starts from
RUN/model/            the finished model
RUN/report.html       the run as a page
"""

import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from qkv.atomic import replaced_file
from qkv.batch import Batch
from qkv.config import merge, override, read_toml, to_toml
from qkv.data.shards import Shards
from qkv.errors import InputError
from qkv.interop import hf
from qkv.interop.hub import locate
from qkv.models.bert import BertConfig, BertWithHeads
from qkv.nn.block import FeedForward
from qkv.objectives.masked import MaskingConfig
from qkv.objectives.pairs import PairConfig
from qkv.objectives.pretraining import Pretraining, PretrainingBatches, training_flops
from qkv.report.pretraining_page import PretrainingFacts, pretraining_page
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

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The last one in the log."""
        lines = (self.run / "log.jsonl").read_text(encoding="utf-8").splitlines()
        found = [line["evaluation"] for line in map(json.loads, lines) if "evaluation" in line]
        return found[-1] if found else None


def configured(data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> PretrainConfig:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set."""
    config = PretrainConfig(data=data)
    if recipe is not None:
        config = merge(config, read_toml(recipe), str(recipe))
    for key, value in flags.items():
        table: Any = value
        for part in reversed(key.split(".")):
            table = {part: table}
        config = merge(config, table, "command line")
    return override(config, assignments)


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
        return Finished(run, Outcome(config.train.steps, config.train.steps, finished=True), already=True)
    return _finish(config, run, _trainer(config, run, progress))


def _trainer(config: PretrainConfig, out: Path, progress: Progress) -> Trainer[Batch]:
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = (Shards.open(config.data, part) for part in ("train", "valid"))
    tokenizer = corpus.tokenizer()
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
    evaluate = None
    if held_out.n_documents:
        evaluate = Evaluation(held_out, tokenizer, batches, objective, config.evaluation_rows)
    else:
        progress.message("No document is held out, so nothing is evaluated. See the note of `qkv prepare`.")
    return Trainer(
        Job(
            model,
            objective,
            batches,
            out,
            evaluate=evaluate,
            flops=partial(training_flops, model),
            compiled=[part for part in model.modules() if isinstance(part, FeedForward)],
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
    corpus = Shards.open(config.data)
    if outcome.finished:
        record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
        hf.save(out / "model", model.eval(), corpus.tokenizer(), record=record)
    session = {"from": outcome.started, "to": outcome.step, "seconds": round(time.perf_counter() - began, 1)}
    with (out / "sessions.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(session | {"peak_memory": _peak_memory(trainer.device)}) + "\n")
    write_report(out, pretraining_page(out, _facts(config, model, corpus, out)))
    return Finished(out, outcome)


def _facts(config: PretrainConfig, model: BertWithHeads, corpus: Shards, out: Path) -> PretrainingFacts:
    sessions = [json.loads(line) for line in (out / "sessions.jsonl").read_text(encoding="utf-8").splitlines()]
    manifest = corpus.manifest
    return PretrainingFacts(
        vocabulary_size=model.config.vocabulary_size,
        unigram_entropy=manifest["unigram_entropy"],
        vocabulary_seen=manifest["vocabulary_seen"],
        documents=corpus.n_documents,
        sentences=corpus.n_sentences,
        tokens=corpus.n_tokens,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        languages=manifest["languages"],
        seconds=sum(session["seconds"] for session in sessions),
        peak_memory=max(session["peak_memory"] or 0 for session in sessions) or None,
        negatives=config.pairs.negatives,
        masked_share=config.masking.treatment[0],
        resumed_from=tuple(session["from"] for session in sessions if session["from"]),
        held_out_documents=manifest["valid"]["documents"],
    )


def _peak_memory(device: torch.device) -> int | None:
    """Bytes: of the GPU where there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
