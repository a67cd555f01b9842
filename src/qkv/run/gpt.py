"""A whole pretraining of a GPT: shards in, a folder of transformers' GPT-2 or OpenAI GPT out, exactly resumable.

The folder of a run is that of a BERT's (pretrain.py); evaluations in its log also hold texts that the model wrote.
"""

import dataclasses
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from qkv.batch import Batch
from qkv.data.shards import Shards, hash_of
from qkv.errors import InputError
from qkv.interop import gpt2, hf
from qkv.interop.hub import locate
from qkv.interop.keys import listed
from qkv.models.gpt import GPT
from qkv.nn.block import FeedForward
from qkv.nn.halves import Halves
from qkv.objectives.causal import Causal, CausalBatches, training_flops
from qkv.report.gpt_page import gpt_page
from qkv.report.run_page import RunPage
from qkv.run.from_shards import Finished, Training, opened
from qkv.run.gpt_config import DROPOUTS, MODEL_TYPE, SHAPE, GPTChoice, GPTTrainConfig
from qkv.run.gpt_evaluation import GPTEvaluation
from qkv.run.language_model import facts_of, row_sizes
from qkv.run.matrices import matrices_of
from qkv.run.places import device_named, model_folder
from qkv.run.sessions import Sessions
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Job, Trainer
from qkv.train.progress import Progress, Silent


def start(config: GPTTrainConfig, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    init = config.init
    if init is not None and Path(init).expanduser().is_dir():
        init = str(Path(init).expanduser().resolve())  # a resumed run finds it from wherever it is called
    return _training().start(replace(config, init=init), out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    return _training().resume(run, progress)


def _training() -> Training[GPTTrainConfig, Batch]:
    return Training(GPTTrainConfig(), _trainer, _save, _page)


def _trainer(config: GPTTrainConfig, out: Path, progress: Progress, begins: bool) -> Trainer[Batch]:
    tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
    tokenizer = corpus.tokenizer()
    if not tokenizer.has_marks:
        raise InputError(
            f"The tokenizer of {config.data} has no mark that ends a text, such as [SEP] or <|endoftext|>, and GPT "
            "learns where texts end. Prepare the corpus with another tokenizer."
        )
    torch.manual_seed(config.train.seed)  # the initial weights
    model = _model(config, tokenizer).to(device)
    end_id = tokenizer.sep_id
    batches = CausalBatches(
        corpus, end_id, config.length, rows=config.rows, accumulate=config.train.accumulate, seed=config.train.seed
    )
    evaluate = GPTEvaluation(held_out, tokenizer, end_id, config.length, config.rows, config.evaluation_tokens)
    if not evaluate.batches:
        tell("No text is held out, so nothing is evaluated. For that, prepare the corpus with --hold-out.")
    return Trainer(
        Job(
            model,
            Causal(),
            batches,
            out,
            evaluate=evaluate if evaluate.batches else None,
            flops=partial(training_flops, model),
            compiled=[part for part in model.modules() if isinstance(part, FeedForward)],
            recomputed=list(model.blocks),
            matrices=matrices_of(model),
            sizes=row_sizes(batches, out, lambda resized, step: resized(step)),
            around=Halves,
        ),
        config.train,
        progress,
    )


def _model(config: GPTTrainConfig, tokenizer: Tokenizer) -> GPT:
    if config.init is None:
        return GPT(config.model.config(tokenizer.size, config.length))
    if chosen := [name for name in SHAPE if getattr(config.model, name) != getattr(GPTChoice(), name)]:
        raise InputError(f"{config.init} has its own shape: leave out {', '.join(f'model.{name}' for name in chosen)}.")
    folder, heads = gpt2.load_with_heads(model_folder(locate(config.init)))
    if heads:
        raise InputError(
            f"{config.init} holds a GPT that was made for a task ({listed(heads)}), and has the marks of tasks in its "
            "vocabulary. Go on from the one that it was made of."
        )
    if hash_of(tokenizer) != hash_of(folder.tokenizer):
        raise InputError(
            f"{config.data} was prepared with another tokenizer than that of {config.init}. "
            f"Prepare the corpus again with --tokenizer {config.init}."
        )
    if config.length > folder.config.max_length:
        raise InputError(
            f"{config.init} reads {folder.config.max_length} tokens at most, and length is {config.length}. "
            "Set it lower."
        )
    said = {name: getattr(config.model, name) for name in DROPOUTS}
    dropouts = {name: value for name, value in said.items() if value is not None}
    model = GPT(replace(folder.config, **dropouts))
    model.load_state_dict(folder.model.state_dict())
    return model


def _save(config: GPTTrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards) -> None:
    record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
    terms: dict[str, bytes] = {}
    if config.init is not None:
        with suppress(InputError):  # where the folder has gone by now, the model is worth more than its terms
            terms = hf.terms_of(model_folder(locate(config.init)))
    gpt2.save(out / "model", _trained(trainer).eval(), corpus.tokenizer(), record=record, files=terms)


def _trained(trainer: Trainer[Batch]) -> GPT:
    assert isinstance(trainer.job.model, GPT)
    return trainer.job.model


def _page(config: GPTTrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards, sessions: Sessions) -> RunPage:
    return gpt_page(out, facts_of(MODEL_TYPE, _trained(trainer), corpus, sessions))
