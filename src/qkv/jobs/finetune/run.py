"""`qkv finetune`: train on a labelled file, calibrate, evaluate, save the model and the report; exactly resumable.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, loss, learning rate, evaluations; with several seeds each has RUN/seed-K/log.jsonl
RUN/faults.jsonl      every example that was dropped or repaired, with file, line and reason
RUN/predictions.jsonl held-out examples with their predictions
RUN/training_texts.bin hashes of the training texts, by which qkv evaluate recognises them
RUN/model/            the finished model, with its labels, calibration and training record
RUN/report.html       the report page
RUN/result.json       the figures; written last, so it exists only for a finished run
"""

import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.data.batch import Batch
from qkv.data.labelled.examples import KnownTexts
from qkv.errors import InputError
from qkv.files import replaced_file, to_json, write_text
from qkv.jobs.finetune.data import DataPart, LabelledData, check_data_unchanged, count_labels, pin_data, read_data
from qkv.jobs.finetune.evaluate import EvaluationResult, calibrate, evaluate_examples
from qkv.jobs.finetune.facts import CostFacts, DataFacts, FinetuneFacts, MixFacts, SeedFacts
from qkv.jobs.finetune.linear import HeadFit, fitted_strength
from qkv.jobs.finetune.page import finetune_page
from qkv.jobs.finetune.remarks import remark_chosen_on_dev, remark_nothing_learned, remark_verdict
from qkv.jobs.finetune.settings import FinetuneConfig, is_scratch, reopen_model, start_model
from qkv.jobs.finetune.training import (
    DevEvaluation,
    Prepared,
    build_trainer,
    compute_vectors,
    is_fitted,
    prepare_examples,
    resolve_time,
    seed_folder,
)
from qkv.jobs.lifecycle import Lifecycle, write_faults
from qkv.models.family import TAKES_HEAD, Opened, Saving
from qkv.models.folders.hub import shown_name
from qkv.models.plain.network import mix_of
from qkv.report.bilingual import phrase
from qkv.report.page import write_report
from qkv.report.run_log import read_run
from qkv.tasks.baselines import BaselineScore, BaselineScores, fit_baselines, is_too_large
from qkv.tasks.predictor import extra_record, find_unknown_tokens, strip_vectors, with_unknown
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Calibration, Scored
from qkv.tasks.texts import BEFORE_POOLING
from qkv.tasks.transfer import TERM, TaskModel, trainable_parameters
from qkv.train.device import device_named, peak_memory
from qkv.train.distributed import current_world
from qkv.train.log import Progress
from qkv.train.loop import Trainer
from qkv.train.run_folder import TRAINING_TEXTS, Outcome, add_line, read_lines


@dataclass(frozen=True)
class _Figures:
    facts: FinetuneFacts
    result: dict[str, Any]


def finish(
    prepared: Prepared,
    trainer: Trainer[Batch] | HeadFit,
    best: int,
    out: Path,
    sessions: Sequence[Mapping[str, Any]],
) -> _Figures:
    config, task, data = prepared.config, prepared.task, prepared.data
    model = trainer.job.model
    assert isinstance(model, TaskModel) and isinstance(trainer.job.evaluate, DevEvaluation)
    model.eval()
    solver = trainer.job.evaluate.solver
    scores = solver.scores(trainer.job.evaluate.features)
    features, extra = strip_vectors(prepared.dev), model.extra_arrays()
    found = calibrate(task, features, scores, extra, data.dev.examples, config.precision_target)
    trained = sum(parameter.numel() for parameter in trainable_parameters(model))
    with replaced_file(out / "predictions.jsonl") as part, part.open("w", encoding="utf-8", newline="\n") as lines:

        def keep(example: Any, result: Any, judgement: Any) -> None:
            place = {"file": example.place.file, "line": example.place.line}
            verdict = {"expected": judgement.expected, "right": judgement.right}
            lines.write(json.dumps(place | verdict | result.to_dict(), ensure_ascii=False) + "\n")

        results = with_unknown(found.results, features, prepared.opened.tokenizer)
        dev = evaluate_examples(task, [(data.dev.examples, results)], keep=keep)
    compared = compare_with_baselines(task, data)
    task = task.folded(model)
    calibration = _fold_temperature(task, model, found.calibration)
    solver = replace(solver, task=task, calibration=calibration)
    tested = None
    if data.test is not None:
        tested = evaluate_examples(task, solver.stream(data.test.examples, needs_labels=True))
    seeds = tuple(_seeds(config, sessions))
    facts = FinetuneFacts(
        task=config.task,
        kind=task.kind,
        model=shown_name(prepared.opened.path),
        transfer=config.transfer,
        main=dev.scored.main,
        train=_data_facts(data.train, prepared, {} if task.numbers else count_labels(data.train.examples)),
        dev=_evaluated_facts(data.dev, dev),
        scored=dev.scored,
        baselines=compared.dev,
        test_baselines=compared.test,
        left_out_baseline=compared.left_out,
        strength=fitted_strength(read_run(out / seed_folder(config, best)).steps) if is_fitted(prepared) else None,
        seeds=seeds,
        cost=_cost(out, config, model, trained, sessions, best),
        calibration=found.facts,
        test=None if tested is None or data.test is None else _evaluated_facts(data.test, tested),
        test_scored=None if tested is None else tested.scored,
        hardest=dev.hardest,
        confident_errors=dev.confident_errors,
        by_length=dev.by_length,
        numbers=dev.numbers,
        notes=prepared.notes,
        leaks=data.leaks,
        lr=_last_rate(config, sessions, best),
        n_evaluations=_count_evaluations(out, config),
        mix=_mix(model, prepared.opened),
        new_layers=is_scratch(config.model),
        unknown=find_unknown_tokens(prepared.opened.tokenizer, data.train.examples, prepared.train),
    )
    constant = task.constant_answer(data.train.examples)
    result = _result(facts, best, constant.answer.label if constant is not None else "")
    record = {
        "job": "finetune",
        "task": config.task,
        "task_record": task.record(),
        "max_length": prepared.max_length,
        "calibration": calibration.to_dict(),
        "folded_temperature": found.calibration.temperature / calibration.temperature,  # is in the weights of the head
        "extra": extra_record(model),
        "scores": result["dev"],
        "test_scores": result["test"],
        "baselines": result["baselines"],
        "config": _public(config),
    }
    if facts.mix is not None:
        record["mix"] = asdict(facts.mix)
    if prepared.language_model_weight:
        result[TERM] = _language_model(prepared, out, best)
    _save(prepared, model, task, out / "model", record)
    return _Figures(facts, result)


def _save(prepared: Prepared, model: TaskModel, task: AnyTask, target: Path, record: Mapping[str, Any]) -> None:
    """Save with the dropout of the initial folder; the run's own is in its record."""
    saving = Saving(task.labels, record, task.problem, task.pooling, task.normalize)
    prepared.opened.ability(TAKES_HEAD).save(target, model.network, saving)


def _language_model(prepared: Prepared, out: Path, best: int) -> dict[str, Any]:
    """Return the weight of the language-model loss, and its first and last value."""
    losses = [loss for _, loss in read_run(out / seed_folder(prepared.config, best)).logged(f"{TERM}_loss")]
    return {"weight": prepared.language_model_weight, "first_loss": losses[0], "last_loss": losses[-1]}


def _mix(model: TaskModel, opened: Opened) -> MixFacts | None:
    now, before = mix_of(model.network), mix_of(opened.ability(TAKES_HEAD).network)
    if now is None:
        return None
    # a new mix begins with equal shares, a trained one with its own
    began = (1 / len(now.shares),) * len(now.shares) if before is None else before.shares
    return MixFacts(now.shares, now.gamma, began)


def _public(config: FinetuneConfig) -> dict[str, Any]:
    """The settings without the folders of this machine: a model may be handed on."""
    found = asdict(config)
    for name in ("model", "embeddings", "tokenizer"):
        if found[name] is not None:
            found[name] = shown_name(found[name])
    for name in ("train", "dev", "test"):
        if found["data"][name] is not None:
            found["data"][name] = Path(found["data"][name]).name
    return found


class _Compared(NamedTuple):
    dev: tuple[BaselineScore, ...]
    test: tuple[BaselineScore, ...]
    left_out: bool


def compare_with_baselines(task: AnyTask, data: LabelledData) -> _Compared:
    """Fit the baselines on the training examples and score them on dev and on test."""
    baselines = fit_baselines(task, data.train.examples)
    found = []
    for part in (data.dev, data.test):
        scores = BaselineScores(task, baselines if part is not None else ())
        if part is not None:
            scores.add(part.examples)
        found.append(scores.result())
    return _Compared(found[0], found[1], is_too_large(task, data.train.examples))


def _fold_temperature(task: AnyTask, model: TaskModel, calibration: Calibration) -> Calibration:
    """Divide the weights of the head by the temperature, if the task allows it: then a program that knows no
    temperature gives the same probabilities."""
    if not task.folds_temperature or calibration.temperature == 1.0:
        return calibration
    model.divide_scores(calibration.temperature)
    return replace(calibration, temperature=1.0)


def _data_facts(part: DataPart, prepared: Prepared, labels: dict[str, int]) -> DataFacts:
    features = prepared.train
    return DataFacts(
        source=Path(part.source).name,
        examples=len(part.examples),
        labels=labels,
        tokens=int(features.n_tokens.sum()),
        longest=int(features.n_tokens.max()),
        windowed=int((features.n_windows > 1).sum()),
        most_windows=int(features.n_windows.max()),
        faults=part.faults[:20],
        n_dropped=part.n_dropped,
        n_mended=part.n_mended,
    )


def _evaluated_facts(part: DataPart, found: EvaluationResult) -> DataFacts:
    return DataFacts(
        source=part.source if part.source.startswith("held out") else Path(part.source).name,
        examples=len(part.examples),
        labels=found.labels,
        tokens=found.tokens,
        longest=found.longest,
        windowed=found.windowed,
        most_windows=found.most_windows,
        faults=part.faults[:20],
        n_dropped=part.n_dropped,
        n_mended=part.n_mended,
    )


def _last_rate(config: FinetuneConfig, sessions: Sequence[Mapping[str, Any]], best: int) -> float:
    """The peak learning rate of the last attempt of a seed."""
    restarted = any(session.get("seed") == best and "restarted_at" in session for session in sessions)
    return config.train.lr * (config.train.retry or 1.0) if restarted else config.train.lr


def _count_evaluations(out: Path, config: FinetuneConfig) -> int:
    return sum(len(read_run(out / seed_folder(config, number)).evaluations) for number in range(config.seeds))


def _seeds(config: FinetuneConfig, sessions: Sequence[Mapping[str, Any]]) -> list[SeedFacts]:
    found = []
    for number in range(config.seeds):
        mine = [session for session in sessions if session.get("seed") == number]
        last = mine[-1]
        found.append(
            SeedFacts(
                config.train.seed + number,
                # what decides among equals is too small to be seen
                round(float(last["best"]), 5),
                int(last["best_step"]),
                int(last["to"]),
                sum(float(session["seconds"]) for session in mine),
                seed_folder(config, number),
            )
        )
    return found


def _cost(
    out: Path,
    config: FinetuneConfig,
    model: TaskModel,
    trained: int,
    sessions: Sequence[Mapping[str, Any]],
    best: int,
) -> CostFacts:
    speeds = [line["tokens_per_second"] for line in read_run(out / seed_folder(config, best)).timing]
    return CostFacts(
        seconds=sum(
            float(session.get("seconds", session.get("vectors", 0.0)))
            for session in sessions
            if session.get("seed", best) == best
        ),
        seconds_vectors=_vector_seconds(sessions),
        tokens_per_second=statistics.median(speeds) if speeds else None,
        peak_memory=max(session.get("peak_memory") or 0 for session in sessions) or None,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained_parameters=trained,
        device=config.device,
    )


def _vector_seconds(sessions: Sequence[Mapping[str, Any]]) -> float | None:
    found = [float(session["vectors"]) for session in sessions if session.get("vectors") is not None]
    return sum(found) if found else None


def scored_dict(scored: Scored) -> dict[str, Any]:
    """Figures as JSON."""
    return {
        "main": scored.main,
        "examples": scored.n,
        **{name: _number(value) for name, value in scored.values.items()},
        "intervals": {name: [_number(end) for end in ends] for name, ends in scored.intervals.items()},
        "labels": {
            one.label: {"precision": one.precision, "recall": one.recall, "f1": one.f1, "examples": one.support}
            for one in scored.per_label
        },
    }


def _number(value: float) -> float | None:
    """JSON has no nan: what cannot be said is null."""
    return value if math.isfinite(value) else None


def _result(facts: FinetuneFacts, best: int, usual_label: str) -> dict[str, Any]:
    values, failure = [seed.score for seed in facts.seeds], remark_nothing_learned(facts)
    verdict, selection = remark_verdict(facts), remark_chosen_on_dev(facts)
    return {
        "task": facts.task,
        "kind": facts.kind,
        "model": facts.model,
        "transfer": facts.transfer,
        "main": facts.main,
        "dev": scored_dict(facts.scored),
        "test": None if facts.test_scored is None else scored_dict(facts.test_scored),
        "seeds": {
            "values": values,
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else None,
            "best": best,
        },
        "calibration": None if facts.calibration is None else facts.calibration.to_dict(),
        "baseline": {"label": usual_label, facts.main: facts.baselines[0].value} if usual_label else None,
        "baselines": {
            "dev": [one.to_dict() for one in facts.baselines],
            "test": None if facts.test_scored is None else [one.to_dict() for one in facts.test_baselines],
        },
        "verdict": None if verdict is None else {"level": verdict.level, **verdict.text._asdict()},
        "strength": facts.strength,
        "examples": {"train": facts.train.examples, "dev": facts.dev.examples},
        "dropped": sum(part.n_dropped for part in (facts.train, facts.dev, facts.test) if part is not None),
        "mended": sum(part.n_mended for part in (facts.train, facts.dev, facts.test) if part is not None),
        "unknown": None if facts.unknown is None else asdict(facts.unknown),
        "cost": asdict(facts.cost),
        "mix": None if facts.mix is None else asdict(facts.mix),
        "notes": [phrase(note).en for note in facts.notes],
        "failure": None if failure is None else failure.text._asdict(),
        "selection": None if selection is None else selection.text._asdict(),
    }


# The run.


class FinetuneSession:
    """A fine-tuning run; `data` are examples given in Python instead of files."""

    def __init__(
        self, config: FinetuneConfig, out: Path, progress: Progress, begins: bool, data: LabelledData | None = None
    ) -> None:
        self.out, self.progress, tell = out, progress, progress.message
        self.device = device_named(config.device)
        if begins:
            config, folder = start_model(config, tell)
            if data is None:
                config = replace(config, data=pin_data(config.data))
                data = read_data(config, tell)
        else:
            check_data_unchanged(config.data)
            folder, data = reopen_model(config, tell), read_data(config)
        if config.train.threads is not None:
            torch.set_num_threads(config.train.threads)
        self.prepared = prepare_examples(config, folder, data, tell)
        if self.prepared.transfer.cached and current_world().size > 1:
            raise InputError(
                "--transfer features fits a head to stored vectors, which one process does in little time: leave out "
                "--processes."
            )
        self.config = resolve_time(self.prepared, self.device, progress) if begins else config
        self.prepared = replace(self.prepared, config=self.config)
        self.trainer: Trainer[Batch] | HeadFit | None = None  # of the seed that was trained last

    def train(self) -> Outcome:
        """Train the seeds in order; stop at the first that is interrupted."""
        config, out, used = self.config, self.out, self.prepared.data
        write_faults(out, [*used.train.faults, *used.dev.faults, *(used.test.faults if used.test is not None else ())])
        if self.prepared.transfer.cached:
            began, known = time.perf_counter(), (out / "vectors" / "dev.npy").is_file()
            self.prepared = compute_vectors(self.prepared, out, self.device, self.progress.message)
            if not known:
                add_line(out / "sessions.jsonl", {"vectors": round(time.perf_counter() - began, 2)})
        for number in range(config.seeds):
            if config.seeds > 1:
                self.progress.message(f"seed {number + 1} of {config.seeds}")
            outcome = self._train_seed(number)
            if not outcome.finished:
                break
        return outcome

    def _train_seed(self, number: int) -> Outcome:
        began = time.perf_counter()
        trainer = self._trainer(number)
        outcome = trainer.run()
        session = {
            "seed": number,
            "from": outcome.started,
            "to": outcome.step,
            "seconds": round(time.perf_counter() - began, 2),
            "peak_memory": peak_memory(self.device),
            "best_step": trainer.best.step,
            "best": trainer.best.value if trainer.best.weights else None,  # None: stopped before an evaluation
        }
        if trainer.origin:
            session["restarted_at"] = trainer.origin
        file = self.out / "sessions.jsonl"
        told = [one for one in read_lines(file) if one.get("seed") == number]
        # a run killed before this line was written has trained to the end, and a resume adds no step
        news = outcome.step > outcome.started or not any(one["to"] >= outcome.step for one in told)
        if news and current_world().is_main:
            add_line(file, session)
        return outcome

    def _trainer(self, number: int) -> Trainer[Batch] | HeadFit:
        self.trainer = None  # two models and their optimizers at a time would be one too many
        folder = self.out / seed_folder(self.config, number)
        self.trainer = build_trainer(self.prepared, number, folder, self.device, self.progress)
        return self.trainer

    def stop(self, outcome: Outcome) -> None:
        """Nothing to do: every seed writes its own log."""

    def finish(self, outcome: Outcome) -> None:
        """Evaluate and save the best seed; write the report and the result."""
        config, out, trainer = self.config, self.out, self.trainer
        best = max(range(config.seeds), key=lambda number: (_best(out, number), -number))
        if trainer is None or best != config.seeds - 1:
            trainer = None
            trainer = self._trainer(best)
            trainer.restore()
        trainer.take_best()
        figures = finish(self.prepared, trainer, best, out, read_lines(out / "sessions.jsonl"))
        KnownTexts.write(out / TRAINING_TEXTS, (one.identity() for one in self.prepared.data.train.examples))
        write_report(out, finetune_page(out, figures.facts))
        write_text(out / "result.json", to_json(figures.result))
        for number in range(config.seeds):
            shutil.rmtree(out / seed_folder(config, number) / "checkpoints", ignore_errors=True)
        shutil.rmtree(out / "vectors", ignore_errors=True)


FINETUNING = Lifecycle("finetune", FinetuneConfig(classify=BEFORE_POOLING), FinetuneSession)
"""The defaults are those of a resumed run: what an old config.toml does not name is as it was then."""


def make_finetuning(data: LabelledData) -> Lifecycle[FinetuneConfig]:
    """Return the lifecycle of a run on examples given in Python."""
    return replace(FINETUNING, open=partial(FinetuneSession, data=data))


def _best(out: Path, number: int) -> float:
    """Return the best score of a seed over all sessions; −inf without an evaluation."""
    told = [session["best"] for session in read_lines(out / "sessions.jsonl") if session.get("seed") == number]
    return max((float(value) for value in told if value is not None), default=-math.inf)
