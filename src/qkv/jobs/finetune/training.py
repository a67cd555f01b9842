"""Training of a fine-tuning run: batches, features, the network with its head, and the trainer of each seed.

Batches are a pure function of (seed, step). An epoch shuffles all units and is cut into a fixed number of steps with
about equal tokens, so that every step costs about the same and a run can seek to any step.

Shapes: U units.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.data.batch import Batch, Epochs, Integers
from qkv.errors import InputError
from qkv.jobs.finetune.data import LabelledData
from qkv.jobs.finetune.linear import STRENGTHS, HeadFit
from qkv.jobs.finetune.settings import FinetuneConfig, choose_epochs, is_scratch, resolve_transfer
from qkv.models.family import TAKES_HEAD, Head, Opened
from qkv.nn.block import FeedForward, find_matrices
from qkv.nn.gpu.layers import WeightCasts
from qkv.report.bilingual import Phrase
from qkv.tasks.baselines import score_constant
from qkv.tasks.predictor import (
    TOKENS_PER_BATCH,
    TOKENS_PER_BATCH_ELSEWHERE,
    Solver,
    Vectors,
    find_row_vectors,
    find_unknown_tokens,
    strip_vectors,
    write_row_vectors,
)
from qkv.tasks.table import TASKS, AnyTask
from qkv.tasks.task import Features
from qkv.tasks.texts import TextTask, resolve_reading
from qkv.tasks.transfer import WEIGHT, TaskModel, Transfer, WithLanguageModel, freeze_parts, layer_scale
from qkv.text.messages import language
from qkv.train.device import Sizes
from qkv.train.distributed import current_world
from qkv.train.log import Progress, Silent
from qkv.train.loop import PRECISIONS, Job, Objective, Trainer, step_seed


class TrainingBatches:
    """Step → the batches of that step; more than one where a step is larger than what is run at once."""

    def __init__(self, features: Features, tokens_per_step: int, tokens_at_once: int, seed: int) -> None:
        self.features, self.seed, self.tokens_at_once = features, seed, tokens_at_once
        self.tokens = int(features.unit_tokens.sum())
        units = len(features.unit_tokens)
        self.steps_per_epoch = max(1, min(units, round(self.tokens / tokens_per_step)))
        self.epoch = Epochs(self._draw_epoch)

    def __call__(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        order, cuts = self.epoch(epoch)
        units = order[cuts[within] : cuts[within + 1]]
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, within, 3)))
        return [self.features.batch(part, draw) for part in self._parts(units)]

    def _draw_epoch(self, epoch: int) -> tuple[Integers, Integers]:
        shuffle = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, 4)))
        order = shuffle.permutation(len(self.features.unit_tokens))
        return order, even_cuts(self.features.unit_tokens[order], self.steps_per_epoch)

    def _parts(self, units: Integers) -> list[Integers]:
        reach = np.cumsum(self.features.unit_tokens[units])
        parts, begin, before = [], 0, 0
        while begin < len(units):
            end = max(begin + 1, int(np.searchsorted(reach, before + self.tokens_at_once, side="right")))
            parts.append(units[begin:end])
            begin, before = end, int(reach[end - 1])
        return parts


def even_cuts(tokens: Integers, steps: int) -> Integers:
    """(steps + 1,) where to cut a sequence of units so that every part has about as many tokens, and none is empty.

    >>> even_cuts(np.array([5, 1, 1, 1, 1, 1]), 2).tolist()
    [0, 1, 6]
    """
    reach = np.cumsum(tokens)
    goals = reach[-1] * np.arange(1, steps) / steps
    cuts = np.concatenate([[0], np.searchsorted(reach, goals), [len(tokens)]]).astype(np.int64)
    number = np.arange(steps + 1)
    # at least one unit a part: from the left, then from the right
    cuts = np.maximum.accumulate(np.maximum(cuts, number) - number) + number
    return np.minimum(cuts, len(tokens) - (steps - number))


# Features, network and trainer.

_AT_ONCE = {"cpu": 8_192}  # tokens of one forward and backward pass; a larger step is made of several
AT_ONCE_ELSEWHERE = 65_536
WITH_WORDS = 4  # times fewer, where every token is scored against all words
EVALUATING = 0.15  # of the time of training, about
MINUTES = 10.0  # budget of a run whose length was not given
LEAST_EPOCHS = 2.0  # are trained by default, whatever the time
_WORTH_MEASURING = {"cpu": 3e12}  # floating-point operations of a run that may take more than a minute or two
_WORTH_MEASURING_ELSEWHERE = 1e15
_LONG = 120.0  # seconds from which cheaper ways are named
SAVED = 200  # steps between two checkpoints, at least: a save writes three times the model
DECIDED = {
    "classify.pairs=ordered": Phrase(
        "A GPT reads a pair from left to right, and these are read in their own order. Where it does not matter which "
        "text is named first (paraphrase), have each read in both: --set classify.pairs=both.",
        "GPT 从左往右读句对，这里按原来的次序读。若两句谁先谁后都一样（如判断是否同义），可让每对按两种次序各读一遍："
        "--set classify.pairs=both。",
    ),
    "classify.pairs=both": Phrase(
        "A GPT reads a pair from left to right, and each of these is read in both orders, because a number says how "
        "much two texts have of each other. If it does not: --set classify.pairs=ordered.",
        "GPT 从左往右读句对；这里要预测的是数值（两句有多相似），每对按两种次序各读一遍。若次序有意义："
        "--set classify.pairs=ordered。",
    ),
}
TAKEN_AS_NUMBERS = Phrase(
    "The labels are taken as numbers (regression), since all are and one has a decimal point. If they are classes: "
    "--kind single.",
    "标签全是数，且有小数，所以按数值来学（回归）。如果它们是类别：--kind single。",
)
LEARNED_ALONG = Phrase(
    f"The GPT learns on to predict the next word of these texts, which counts {WEIGHT:g} beside the task. Without: "
    "--set language_model_weight=0.",
    f"GPT 一边学任务，一边继续在这些文本上预测下一个词，其损失乘以 {WEIGHT:g} 计入。不要的话："
    "--set language_model_weight=0。",
)
"""Notices shown when a default was chosen for the user."""
_SELECTION = "selection"
"""What the best weights are chosen by: the main figure, and among equals the one with the lower loss."""


@dataclass(frozen=True)
class Prepared:
    """Everything that the seeds of a run share."""

    config: FinetuneConfig
    opened: Opened
    data: LabelledData
    task: AnyTask
    max_length: int
    train: Features
    dev: Features
    transfer: Transfer
    notes: tuple[Phrase, ...] = ()
    language_model_weight: float = 0.0  # 0: the task is learned alone


def prepare_examples(
    config: FinetuneConfig, opened: Opened, data: LabelledData, tell: Callable[[str], None]
) -> Prepared:
    """Check and encode all examples, so that errors are raised before the first step."""
    entry, sizes, tokenizer = TASKS[config.task], opened.ability(TAKES_HEAD).sizes, opened.tokenizer
    transfer = resolve_transfer(config, sizes.layers, sizes.mixed_layers > 0)
    if config.task == "classify":
        takes, has_epochs = opened.ability(TAKES_HEAD), config.epochs is not None
        reading = resolve_reading(config.classify, takes, opened.sentence, transfer, has_epochs)
        config = replace(config, classify=reading)
    if not sizes.attends and config.attention_dropout:
        raise InputError(f"attention_dropout is {config.attention_dropout}, and {opened.path} has no attention.")
    longest = min(entry.longest, sizes.max_length)
    if config.max_length is not None:
        if config.max_length > sizes.max_length:
            raise InputError(
                f"{opened.path} reads {sizes.max_length} tokens at most, and max_length is {config.max_length}."
            )
        longest = config.max_length
    task = entry.load().learn(data.train.examples, config.settings, tokenizer)
    if not sizes.pairs and task.paired:
        raise InputError(f"{opened.path} reads single texts (one segment), and these examples are pairs.")
    task.check(data.train.examples)
    task.check(data.dev.examples)
    if data.test is not None:
        task.check(data.test.examples)
    train = task.features(tokenizer, data.train.examples, longest, training=True)
    dev = task.features(tokenizer, data.dev.examples, longest, training=False)
    found = train.faults() + task.misaligned(tokenizer, data.train.examples)
    if found:
        data = replace(data, train=replace(data.train, faults=(*data.train.faults, *found)))
    weight = language_model_weight(config, opened, transfer)
    data = replace(data, notes=(*data.notes, *_explain_choices(config, task)))
    if weight and config.language_model_weight is None:
        data = replace(data, notes=(*data.notes, LEARNED_ALONG))
    for note in data.notes:
        tell(f"note: {getattr(note, language())}")
    if unread := find_unknown_tokens(tokenizer, data.train.examples, train).describe(config.model):
        tell(f"note: of the training texts {unread}")
    prepared = Prepared(config, opened, data, task, longest, train, dev, transfer, data.notes, weight)
    # says whether the task has classes, and takes weights for them
    task.objective(class_weights(prepared) if config.class_weights == "auto" else None)
    return prepared


def _explain_choices(config: FinetuneConfig, task: AnyTask) -> list[Phrase]:
    """What to say of settings that the user left to the task."""
    asked, settings = asdict(config.settings), asdict(task.settings)
    decided = [f"{task.name}.{name}={value}" for name, value in settings.items() if value != asked[name]]
    numbers = [TAKEN_AS_NUMBERS] if task.numbers and asked.get("kind") == "auto" else []
    return numbers + [DECIDED[one] for one in decided if one in DECIDED]


def resolve_data_defaults(prepared: Prepared, tell: Callable[[str], None]) -> FinetuneConfig:
    """The config with every default that depends on the data written out."""
    config, features = prepared.config, prepared.train
    if is_fitted(prepared):
        return resolve_fit_defaults(prepared, tell)
    units = len(features.unit_tokens)
    tokens = int(features.unit_tokens.sum())
    per_step = config.tokens_per_step or max(8, round(tokens / units * config.texts_per_step))
    steps_per_epoch = TrainingBatches(features, per_step, per_step, 0).steps_per_epoch
    epochs = config.epochs or choose_epochs(config.task, units, steps_per_epoch, is_scratch(config.model))
    steps = max(1, round(epochs * steps_per_epoch))
    # forward alone is a third of a step's work; at least once an epoch, or about
    times = EVALUATING * epochs * tokens * 3 / max(1, int(prepared.dev.rows.lengths.sum()))
    times = min(max(times, min(epochs, 5)), 20)
    every = max(1, math.ceil(steps / (config.evaluations or times)))
    train = replace(
        config.train,
        steps=steps,
        evaluate_every=every,
        save_every=max(every, math.ceil(SAVED / every) * every),
        log_every=max(1, min(10, steps // 50)),
        least=trivial_score(prepared),
    )
    tell(
        f"{len(prepared.data.train.examples):,} examples to train on, {len(prepared.data.dev.examples):,} held out; "
        f"{tokens:,} tokens, {epochs:g} × in {steps:,} step{'' if steps == 1 else 's'} of about {per_step:,}; "
        f"evaluated every {every:,}"
    )
    at_once = divide_tokens(config.tokens_at_once, per_step)
    return replace(
        config,
        epochs=epochs,
        tokens_per_step=per_step,
        tokens_at_once=at_once,
        max_length=prepared.max_length,
        train=train,
    )


def divide_tokens(at_once: int | None, per_step: int) -> int | None:
    """Tokens of a pass, such that a step has two or more for each process; they stay so on a resume."""
    size = current_world().size
    if size == 1:
        return at_once
    wanted = max(8, -(-per_step // (2 * size)))
    return wanted if at_once is None else min(at_once, wanted)


def trivial_score(prepared: Prepared) -> float | None:
    """Return the development score of the best constant answer; None if no model can be better.

    0 for a task whose thresholds are fitted after training: without them a model may score less.
    """
    task, data = prepared.task, prepared.data
    found = None if task.fits_thresholds else score_constant(task, data.train.examples, data.dev.examples)
    score = 0.0 if found is None else found.value
    return score if score < 1 else None


def resolve_time(prepared: Prepared, device: torch.device, progress: Progress) -> FinetuneConfig:
    """Resolve the defaults that depend on data and time: measure a step, then fix the number of epochs.

    A run without --epochs takes at most `--minutes`, or `MINUTES` where `LEAST_EPOCHS` fit. Runs that are short on any
    machine are not measured.
    """
    minutes = prepared.config.train.minutes
    # the number of epochs takes its place
    asked = replace(prepared.config, train=replace(prepared.config.train, minutes=None))
    prepared = replace(prepared, config=asked)
    if minutes is not None and prepared.transfer.cached:
        progress.message("note: --minutes is not used: only a head is trained, on stored vectors.")
    if is_fitted(prepared):
        return resolve_fit_defaults(prepared, progress.message)
    config = resolve_data_defaults(prepared, Silent().message)
    measured = replace(prepared, config=config)
    if prepared.transfer.cached or (minutes is None and not _may_be_long(measured, device)):
        return resolve_data_defaults(prepared, progress.message)
    seconds = _estimate_seconds(measured, device)
    assert config.epochs is not None
    if asked.epochs is None and seconds > 60 * (minutes or MINUTES):
        most = config.epochs * 60 * (minutes or MINUTES) / seconds
        epochs = _round_down(most) if minutes is not None else max(LEAST_EPOCHS, _round_down(most))
        if epochs < config.epochs:
            asked, seconds = replace(asked, epochs=epochs), seconds * epochs / config.epochs
            given = f"--minutes {minutes:g}" if minutes is not None else f"the default limit of {MINUTES:g} minutes"
            progress.message(f"{epochs:g} epochs instead of {config.epochs:g}: {given}.")
    config = resolve_data_defaults(replace(prepared, config=asked), progress.message)
    progress.message(f"Estimated time: {_words(seconds)} on {device}.{_cheaper(config, seconds)}")
    return config


def _may_be_long(prepared: Prepared, device: torch.device) -> bool:
    """Whether forward and backward passes take so many operations that the time is worth measuring."""
    config, network = prepared.config, prepared.opened.ability(TAKES_HEAD).network
    # an embedding is looked up, not multiplied
    parameters = sum(value.numel() for name, value in network.named_parameters() if "embedding" not in name)
    tokens = (config.epochs or 1.0) * float(prepared.train.unit_tokens.sum())
    limit = _WORTH_MEASURING.get(device.type, _WORTH_MEASURING_ELSEWHERE)
    return 6.0 * parameters * tokens * config.seeds > limit


def _estimate_seconds(prepared: Prepared, device: torch.device) -> float:
    """Measure training steps of the run and return the estimated time of all seeds, with evaluations."""
    config = prepared.config
    with TemporaryDirectory(prefix="qkv-", ignore_cleanup_errors=True) as folder:
        trainer = build_trainer(prepared, 0, Path(folder), device, Silent())
        assert isinstance(trainer, Trainer)
        per_step = trainer.seconds_per_step(2.0, least=2)
    assert config.tokens_per_step is not None
    # forward alone is a third of a step's work
    evaluation = per_step * float(prepared.dev.rows.lengths.sum()) / config.tokens_per_step / 3
    return config.seeds * (
        config.train.steps * per_step + config.train.steps / config.train.evaluate_every * evaluation
    )


def _round_down(epochs: float) -> float:
    """Return a number of epochs that is easy to read, and above 0.

    >>> _round_down(7.9), _round_down(2.57), _round_down(0.0123)
    (7.0, 2.5, 0.012)
    """
    digits = 0 if epochs >= 5 else 1 if epochs >= 1 else 3
    return max(0.001, math.floor(epochs * 10**digits) / 10**digits)


def _words(seconds: float) -> str:
    """
    >>> _words(44), _words(70), _words(400)
    ('less than a minute', 'about 2 minutes', 'about 7 minutes')
    """
    return "less than a minute" if seconds < 60 else f"about {math.ceil(seconds / 60):,} minutes"


def _cheaper(config: FinetuneConfig, seconds: float) -> str:
    if seconds < _LONG:
        return ""
    ways = ["--transfer features"] if not is_scratch(config.model) else []
    ways += ["--transfer top:2"] if config.transfer == "full" and not is_scratch(config.model) else []
    return f" Cheaper: {', '.join([*ways, '--epochs, --minutes'])}."


def seed_folder(config: FinetuneConfig, number: int) -> str:
    """Under the run; the run itself when there is one seed."""
    return f"seed-{number}" if config.seeds > 1 else ""


def build_network(prepared: Prepared, seed: int, tell: Callable[[str], None]) -> TaskModel:
    """The pretrained encoder with a new head, drawn by the seed."""
    config, opened, task = prepared.config, prepared.opened, prepared.task
    takes = opened.ability(TAKES_HEAD)
    head = takes.stored_head(task.head)
    goes_on = bool(head) and (opened.labels == task.labels) and next(iter(head.values())).shape[0] == task.outputs
    # a head that read other vectors would begin from noise
    before = (opened.record.get("task_record") or {}).get("settings", {}).get("pooling", "cls")
    goes_on = goes_on and before == task.pooling and not is_fitted(prepared)
    begin = task.unfolded(head) if goes_on else {}
    dropouts = config.dropout, config.attention_dropout
    network, fresh = takes.with_head(
        Head(task.head, task.outputs, step_seed(seed, 1 << 20), *dropouts, begin, task.pooling)
    )
    if seed == prepared.config.train.seed:
        if goes_on:
            tell(f"{opened.path} has a head with these labels already: training continues from it.")
        elif others := sorted(fresh - {f"heads.{task.head}"}):
            tell(f"{opened.path} has no {', '.join(others)}: initialised randomly.")
    model = TaskModel(network, task.head, task.extra_tensors(), task.pooling, task.normalize)
    stored = opened.record.get("extra", {}) if goes_on else {}
    with torch.no_grad():
        for name, parameter in model.extra.items():
            if name in stored and (value := torch.tensor(stored[name])).shape == parameter.shape:
                parameter.copy_(value)
    return model


def language_model_weight(config: FinetuneConfig, opened: Opened, transfer: Transfer) -> float:
    """What the loss of the next word counts beside the task's: something, of a GPT whose layers learn."""
    asked, words = config.language_model_weight, opened.ability(TAKES_HEAD).sizes.words
    if asked and words is None:
        raise InputError(f"language_model_weight is {asked:g}, and {opened.path} is no GPT: it predicts no next word.")
    if asked and not transfer.moves_encoder:
        raise InputError(
            f"language_model_weight is {asked:g}, and with --transfer {transfer.name} nothing of the language model "
            "moves. Leave one of the two out."
        )
    usual = WEIGHT if words is not None and transfer.moves_encoder else 0.0
    return usual if asked is None else asked


def build_trainer(
    prepared: Prepared, number: int, out: Path, device: torch.device, progress: Progress
) -> Trainer[Batch] | HeadFit:
    """What trains the model of a seed: step by step, or a head to its optimum."""
    config, task = prepared.config, prepared.task
    seed = config.train.seed + number
    model = build_network(prepared, seed, progress.message).to(device)
    freeze_parts(model, prepared.transfer)
    train, dev, sizes = prepared.train, prepared.dev, prepared.opened.ability(TAKES_HEAD).sizes
    # a head alone needs next to nothing
    usual = _AT_ONCE.get(device.type, AT_ONCE_ELSEWHERE)
    at_once = config.tokens_at_once or (usual // WITH_WORDS if prepared.language_model_weight else usual)
    at_once = 1 << 30 if isinstance(train, Vectors) else at_once
    per_step = config.tokens_per_step or int(train.unit_tokens.sum())
    precision = PRECISIONS[config.train.precision] if config.train.precision != "fp32" else None
    solver = Solver(model, task, prepared.opened.tokenizer, prepared.max_length, precision=precision)
    weights = class_weights(prepared) if config.class_weights == "auto" else None
    job = Job(
        model=model,
        objective=_objective(prepared, weights),
        batches=TrainingBatches(train, per_step, at_once, seed),
        out=out,
        evaluate=DevEvaluation(solver, dev, prepared.data.dev.examples),
        best_by=_SELECTION,
        scale=layer_scale(config.layer_decay, sizes.layers),
        compiled=[part for part in model.modules() if isinstance(part, FeedForward)],
        # layers without attention are called through what stands above them
        recomputed=list(model.network.encoder.blocks) if sizes.attends else [],
        matrices=find_matrices(model),
        sizes=None if isinstance(train, Vectors) else _sizes(train, per_step, at_once, seed),
        around=WeightCasts,
        renew=lambda: renew_weights(model, build_network(prepared, seed, Silent().message)),
    )
    if is_fitted(prepared) and isinstance(task, TextTask):
        return HeadFit(job, train, prepared.data.train.examples, task, weights, seed, progress)
    return Trainer(job, replace(config.train, seed=seed), progress)


def renew_weights(model: TaskModel, initial: TaskModel) -> None:
    """Copy all weights of the initial model into the trained one."""
    with torch.no_grad():
        for value, before in zip(model.parameters(), initial.parameters(), strict=True):
            value.copy_(before)


def is_fitted(prepared: Prepared) -> bool:
    """Whether the head is fitted to its optimum (linear.py) instead of trained in steps."""
    return isinstance(prepared.task, TextTask) and prepared.task.settings.fit == "linear"


def resolve_fit_defaults(prepared: Prepared, tell: Callable[[str], None]) -> FinetuneConfig:
    """`resolve_data_defaults` for a head that is fitted: a step is one strength of the penalty."""
    tell(
        f"{len(prepared.data.train.examples):,} examples to train on, {len(prepared.data.dev.examples):,} held out; "
        f"a linear head on stored vectors, its strength of regularisation chosen by cross-validation among "
        f"{len(STRENGTHS)}"
    )
    steps = len(STRENGTHS)
    train = replace(prepared.config.train, steps=steps, evaluate_every=steps, save_every=steps, log_every=1)
    return replace(prepared.config, max_length=prepared.max_length, train=train)


def _objective(prepared: Prepared, class_weights: list[float] | None) -> Objective[Batch]:
    objective = prepared.task.objective(class_weights)
    words = prepared.opened.ability(TAKES_HEAD).sizes.words
    if not prepared.language_model_weight or words is None:
        return objective
    return WithLanguageModel(objective, prepared.language_model_weight, words)


def _sizes(train: Features, tokens_per_step: int, at_once: int, seed: int) -> Sizes[Batch]:
    """A step in more and smaller passes; a pass has one text at least, however long."""

    def cut(tokens: int, step: int) -> list[Batch]:
        return TrainingBatches(train, tokens_per_step, tokens, seed)(step)

    def settings(tokens: int) -> str:
        return (
            f"For the same steps in more passes, set tokens_at_once = {tokens} in config.toml of the run and resume, "
            f"or begin anew with --set tokens_at_once={tokens}."
        )

    size = min(at_once, tokens_per_step)
    return Sizes(
        size, "tokens", [size >> halvings for halvings in range(1, 16) if size >> halvings >= 64], cut, settings
    )


class VectorProgress:
    """Says how long the encoder will take: after two seconds, then every half minute."""

    def __init__(self, message: Callable[[str], None]) -> None:
        self.message, self.began, self.next = message, time.perf_counter(), 2.0

    def __call__(self, done: int, total: int) -> None:
        passed = time.perf_counter() - self.began
        left = passed * (total - done) / done
        if passed >= self.next and left > 10.0:
            self.next = passed + 30.0
            self.message(f"Vectors of the texts, {total:,} tokens: {done / total:.0%}. Remaining time: {_words(left)}.")


def compute_vectors(prepared: Prepared, out: Path, device: torch.device, tell: Callable[[str], None]) -> Prepared:
    """Run the encoder once over all rows and store its vectors, for all seeds and for a resumed run."""
    model = build_network(prepared, prepared.config.train.seed, lambda message: None).to(device)
    tokens = TOKENS_PER_BATCH.get(device.type, TOKENS_PER_BATCH_ELSEWHERE)
    train, dev = (
        find_row_vectors(features, file, model.reads_rows)
        or write_row_vectors(model, features, file, tokens, VectorProgress(tell))
        for features, file in (
            (prepared.train, out / "vectors" / "train.npy"),
            (prepared.dev, out / "vectors" / "dev.npy"),
        )
    )
    return replace(prepared, train=train, dev=dev)


@dataclass(frozen=True)
class DevEvaluation:
    """Evaluate the model on the development set during training."""

    solver: Solver
    features: Features
    examples: tuple[Any, ...]

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        solver, task = self.solver, self.solver.task
        scores = solver.scores(self.features)
        extra = solver.model.extra_arrays()
        plain = strip_vectors(self.features)
        results = task.decode(plain, scores, extra, solver.calibration)
        scorer = task.scorer()
        scorer.add(self.examples, results)
        scored = scorer.result(intervals=False)
        losses = task.losses(plain, scores, extra, 1.0)
        loss = float(losses.mean()) if losses is not None else scored.values["mean_absolute_error"]
        others = {name: value for name, value in scored.values.items() if name != scored.main and math.isfinite(value)}
        # far below the smallest step of the figure, so that it decides among equals alone
        return {
            "loss": loss,
            scored.main: scored.value,
            "figures": others,
            _SELECTION: scored.value - 1e-7 * (loss / (1 + loss) if math.isfinite(loss) else 1.0),
        }


def class_weights(prepared: Prepared) -> list[float]:
    """Of each label, by how often training has it."""
    return prepared.task.balanced_weights(strip_vectors(prepared.train), prepared.data.train.examples)
