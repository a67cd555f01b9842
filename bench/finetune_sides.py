"""The jobs of bench/finetune.py, each run in a process of its own: train, predict. A job is a table in and a table out.

Memory is what the process had needed at most when its job was done: reading, training, evaluation, the saved model.
Each side imports what it needs and nothing of the other's.
"""

import lzma
import random
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from finetune_peer import SETS, answer_of, network, peer_for, read, score

BATCH, WARMUP, DECAY = 32, 0.1, 0.01
SHORTEST, LONGEST = 5, 250  # tokens of a text to be predicted
Job = dict[str, Any]


def peak() -> float:
    """MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def train_ours(job: Job) -> Job:
    from qkv import load
    from qkv.jobs.finetune.data import DataPart, LabelledData
    from qkv.jobs.finetune.run import make_finetuning
    from qkv.jobs.finetune.settings import resolve_finetune_settings
    from qkv.report.run_log import read_run
    from qkv.train.log import Silent

    name, run = job["set"], Path(job["out"]) / "run"
    begin = time.perf_counter()
    train, dev = read(Path(job["data"]), name, job["train"], job["dev"])
    flags = {
        "epochs": job["epochs"],
        "texts_per_step": BATCH,
        "train.lr": job["lr"],
        "train.warmup": WARMUP,
        "train.weight_decay": DECAY,
        "train.seed": job["seed"],
        "train.threads": job["threads"],
        "train.patience": "none",
    }
    config = resolve_finetune_settings(SETS[name].task, job["model"], flags=flags)
    data = LabelledData(DataPart("train", tuple(train)), DataPart("dev", tuple(dev)), notes=())
    result = make_finetuning(data).start(config, run, Silent()).result
    whole, most = time.perf_counter() - begin, peak()
    log = read_run(run)
    results = [found for _, part in load(run, threads=job["threads"]).predict_stream(dev) for found in part]
    answers = [answer_of(SETS[name].task, *pair) for pair in zip(dev, results, strict=True)]
    return {
        "seconds": sum(line["seconds"] for line in log.timing) / job["epochs"],
        "whole": whole,
        "peak": most,
        "tokens": sum(line["tokens"] for line in log.steps) / job["epochs"],
        "steps": log.last_step,
        "kept": next(iter(score(SETS[name].task, dev, answers).values())),
        "last": log.evaluated(result["main"])[-1][1],
        "dropout": "hidden 0.1, attention 0",
        "model": str(run / "model"),
    }


def train_theirs(job: Job) -> Job:
    from transformers import (
        DataCollatorForTokenClassification,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    quiet()
    name, out = job["set"], Path(job["out"])
    begin = time.perf_counter()
    train, dev = read(Path(job["data"]), name, job["train"], job["dev"])
    peer = peer_for(name, Path(job["model"]), train)
    rows, held_out = peer.rows(train), peer.rows(dev)
    share = 0.0 if job["same_dropout"] else 0.1
    model = network(peer, Path(job["model"]), job["seed"], attention_probs_dropout_prob=share)
    collators = {"classify": DataCollatorWithPadding, "tag": DataCollatorForTokenClassification}
    arguments = TrainingArguments(
        output_dir=str(out / "trainer"),
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        num_train_epochs=job["epochs"],
        learning_rate=job["lr"],
        warmup_steps=WARMUP,  # below 1: a share
        lr_scheduler_type="linear",
        weight_decay=DECAY,
        seed=job["seed"],
        train_sampling_strategy="group_by_length" if job["grouped"] else "random",
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    inputs: Any = rows.inputs  # lists will do
    asked: Any = held_out.inputs
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=inputs,
        data_collator=collators[SETS[name].task](peer.tokenizer),
        processing_class=peer.tokenizer,
    )
    trained = trainer.train()
    logits = trainer.predict(asked).predictions
    trainer.save_model(str(out / "model"))
    whole, most = time.perf_counter() - begin, peak()
    figure = next(iter(score(SETS[name].task, dev, peer.answers(dev, held_out, list(logits))).values()))
    return {
        "seconds": trained.metrics["train_runtime"] / job["epochs"],
        "whole": whole,
        "peak": most,
        "tokens": sum(len(row["input_ids"]) for row in rows.inputs),
        "steps": trained.global_step,
        "kept": figure,
        "last": figure,
        "dropout": f"hidden 0.1, attention {share:g}",
        "model": str(out / "model"),
    }


def predict(job: Job) -> Job:
    """The contenders take turns, one process for all: of time only their ratio within a round is used."""
    from transformers import pipeline

    from qkv import load
    from qkv.api.predict import make_examples
    from qkv.data.labelled.examples import TextExample
    from qkv.tasks.task import Calibration

    quiet()
    folder = job["model"]
    model = load(folder, threads=job["threads"])
    texts = mixed_texts(Path(job["data"]), job["texts"], lambda text: len(model.tokenizer.encode(text).ids))
    theirs: Any = pipeline("text-classification", model=folder, device="cpu")
    contenders: dict[str, Callable[[], Any]] = {
        "transformers pipeline, batch 32": lambda: theirs(texts, batch_size=32),
        "transformers pipeline, batch 1": lambda: theirs(texts, batch_size=1),
        "qkv": lambda: model.predict(texts),
    }
    # a pipeline knows no temperature: without it both must say the same
    plain = replace(model.solver, calibration=Calibration())
    said = [
        one for _, part in plain.stream(make_examples(TextExample, texts, model.tokenizer)) for one in part
    ]  # also the warm-up
    expected = contenders["transformers pipeline, batch 32"]()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(job["rounds"]):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    lengths = [one.n_tokens for one in said]
    return {
        "texts": len(texts),
        "lengths": [min(lengths), statistics.median(lengths), max(lengths)],
        "seconds": seconds,
        "other_labels": sum(a.label != b["label"] for a, b in zip(said, expected, strict=True)),
        "difference": float(np.max([abs(a.probability - b["score"]) for a, b in zip(said, expected, strict=True)])),
    }


def mixed_texts(data: Path, count: int, length_of: Callable[[str], int]) -> list[str]:
    """A third each: sentences of SST-2, passages of English and of Chinese Wikipedia; lengths as people write them."""
    draw = random.Random(0)
    _, reviews = read(data, "sst2", 1, None)
    sources: list[tuple[str, list[list[str]]]] = [("", [[example.text] for example in reviews])]
    for language, joined, pattern in (("en", " ", r"\S+"), ("zh", "", r".")):
        with lzma.open(data / f"{language}wiki_text" / "valid-00.txt.xz", "rt", encoding="utf-8") as lines:
            paragraphs = [re.findall(pattern, line.strip()) for line in lines]
        sources.append((joined, [units for units in paragraphs if len(units) > SHORTEST]))
    texts: list[str] = []
    while len(texts) < count:
        joined, paragraphs = sources[len(texts) % len(sources)]
        units = draw.choice(paragraphs)
        size = 3 + int(draw.lognormvariate(3.7, 0.9))
        begin = draw.randrange(max(1, len(units) - size + 1))
        text = joined.join(units[begin : begin + size]).strip()
        if SHORTEST <= length_of(text) <= LONGEST:
            texts.append(text)
    draw.shuffle(texts)
    return texts


JOBS: dict[str, Callable[[Job], Job]] = {"qkv": train_ours, "transformers": train_theirs, "predict": predict}


def run_job(job: Job) -> Job:
    torch.set_num_threads(job["threads"])
    return JOBS[job["job"]](job)
