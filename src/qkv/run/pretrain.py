"""A whole pretraining run: shards in, a Hugging Face folder out, and everything in between resumable.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, losses, learning rate; evaluations with sample fillings. Reproducible
RUN/timing.jsonl      speed, by the clock
RUN/checkpoints/      what a resume starts from
RUN/model/            the finished model
RUN/report.html       the run as a page
RUN/sessions.jsonl    each time somebody started or resumed it; written last, so a session to the end means: finished
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from qkv.batch import Batch
from qkv.data.shards import Shards
from qkv.errors import InputError
from qkv.interop import hf, zoo
from qkv.interop.hub import locate
from qkv.models.bert import BertWithHeads
from qkv.nn.block import FeedForward
from qkv.nn.halves import Halves
from qkv.objectives.pretraining import Pretraining, PretrainingBatches, training_flops
from qkv.report.pretraining_page import PretrainingFacts, pretraining_page
from qkv.report.run_page import RunPage
from qkv.run.evaluation import Evaluation
from qkv.run.from_shards import Finished, Training, opened
from qkv.run.matrices import matrices_of
from qkv.run.places import device_named
from qkv.run.pretrain_config import SHAPE, ModelChoice, PretrainConfig
from qkv.run.sessions import Sessions
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Job, Trainer
from qkv.train.memory import Sizes, divisors, rows_and_accumulation
from qkv.train.progress import Progress, Silent


def start(config: PretrainConfig, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    init = config.init
    if init is not None and init not in zoo.MODELS and Path(init).expanduser().is_dir():
        init = str(Path(init).expanduser().resolve())  # a resumed run finds it from wherever it is called
    return _training().start(replace(config, init=init), out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    return _training().resume(run, progress)


def _training() -> Training[PretrainConfig, Batch]:
    return Training(PretrainConfig(), _trainer, _save, _page)


def _trainer(config: PretrainConfig, out: Path, progress: Progress, begins: bool) -> Trainer[Batch]:
    tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
    tokenizer = corpus.tokenizer()
    paired = config.pairs.negatives != "none"
    torch.manual_seed(config.train.seed)  # the initial weights
    model = _model(config, tokenizer, paired, tell).to(device)
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
    if evaluate is None or not evaluate.batches:
        evaluate = None
        tell("No text is held out, so nothing is evaluated. For that, prepare the corpus with --hold-out.")
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
            matrices=matrices_of(model),
            sizes=_sizes(batches, out),
            around=Halves,
        ),
        config.train,
        progress,
    )


def _sizes(batches: PretrainingBatches, out: Path) -> Sizes[Batch]:
    """The rows of a step in smaller batches, and more of them."""

    def accumulate(rows: int) -> int:
        return batches.accumulate * batches.rows // rows

    def cut(rows: int, step: int) -> list[Batch]:
        other = copy(batches)  # with the same drawn epochs
        other.rows, other.accumulate = rows, accumulate(rows)
        return other(step)

    def settings(rows: int) -> str:
        return rows_and_accumulation(rows, accumulate(rows), out)

    return Sizes(batches.rows, "rows", divisors(batches.rows), cut, settings)


def _model(config: PretrainConfig, tokenizer: Tokenizer, paired: bool, tell: Callable[[str], None]) -> BertWithHeads:
    heads = ["masked", "next_sentence"] if paired else ["masked"]
    if config.init is None:
        return BertWithHeads(config.model.config(tokenizer.size, config.pairs.max_length), heads)
    if chosen := [name for name in ("size", *SHAPE) if getattr(config.model, name) != getattr(ModelChoice(), name)]:
        raise InputError(f"{config.init} has its own shape: leave out {', '.join(f'model.{name}' for name in chosen)}.")
    folder = hf.load(locate(config.init))
    ours, theirs = ((one.vocabulary, one.kind, one.lowercase, one.segmenter) for one in (tokenizer, folder.tokenizer))
    if ours != theirs:
        raise InputError(
            f"{config.data} was prepared with another tokenizer than that of {config.init}. "
            f"Prepare the corpus again with --tokenizer {config.init}."
        )
    if config.pairs.max_length > folder.config.max_length:
        raise InputError(
            f"{config.init} reads {folder.config.max_length} tokens at most, and pairs.max_length is "
            f"{config.pairs.max_length}. Set it lower."
        )
    wanted = replace(folder.config, dropout=config.model.dropout, attention_dropout=config.model.attention_dropout)
    model = BertWithHeads(wanted, heads)
    missing, left_out = model.load_state_dict(folder.model.state_dict(), strict=False)
    if missing:
        tell(f"{config.init} has no {_parts(missing)}: begun from random weights.")
    if left_out:
        tell(f"{config.init} has {_parts(left_out)}, which is not trained here and left out.")
    return model


def _parts(names: Sequence[str]) -> str:
    """
    >>> _parts(["encoder.pooler.dense.weight", "encoder.pooler.dense.bias", "heads.masked.bias"])
    'encoder.pooler, heads.masked'
    """
    return ", ".join(sorted({".".join(name.split(".")[:2]) for name in names}))


def _save(config: PretrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards) -> None:
    record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
    terms: dict[str, bytes] = {}
    if config.init is not None:
        with suppress(InputError):  # where the folder has gone by now, the model is worth more than its terms
            terms = hf.terms_of(locate(config.init))
    hf.save(out / "model", _trained(trainer).eval(), corpus.tokenizer(), record=record, files=terms)


def _trained(trainer: Trainer[Batch]) -> BertWithHeads:
    assert isinstance(trainer.job.model, BertWithHeads)
    return trainer.job.model


def _page(config: PretrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards, sessions: Sessions) -> RunPage:
    manifest, model = corpus.manifest, _trained(trainer)
    facts = PretrainingFacts(
        vocabulary_size=model.config.vocabulary_size,
        unigram_entropy=manifest["unigram_entropy"],
        vocabulary_seen=manifest["vocabulary_seen"],
        documents=corpus.n_documents,
        sentences=corpus.n_sentences,
        tokens=corpus.n_tokens,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        languages={name: share for name, share in manifest["languages"].items() if share >= 0.005},
        seconds=sessions.seconds,
        peak_memory=sessions.peak_memory,
        negatives=config.pairs.negatives,
        masked_share=config.masking.treatment[0],
        resumed_from=sessions.resumed_from,
        held_out_documents=manifest["valid"]["documents"],
    )
    return pretraining_page(out, facts)
