"""`qkv train embed`: train vectors of texts on pairs, triplets, scores or a teacher, exactly resumable.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, loss, learning rate, evaluations; step 0 is the model before training
RUN/faults.jsonl      every row that was dropped, with file, line and reason
RUN/vectors/          vectors of the teacher, until the run is finished
RUN/model/            the finished model, a folder of sentence-transformers: qkv embed --model RUN
RUN/report.html       the report page
RUN/result.json       the figures; written last, so it exists only for a finished run

Not here: the objectives and the teacher (tasks/embed.py), how files are read (data/pairs/groups.py).
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.config import JobSettings, Requested, check_known, check_least, check_shares
from qkv.data.labelled.examples import Fault, fold_text
from qkv.data.pairs.groups import (
    GROUP_KINDS,
    GroupFile,
    check_scores_differ,
    drop_known,
    encode_texts,
    files_of,
    hold_out_groups,
    make_rows,
    make_table,
    pin_columns,
    read_groups,
    read_translations,
)
from qkv.data.readers import check_file
from qkv.errors import InputError
from qkv.files import sha256_of, to_json, write_text
from qkv.jobs.embed_page import EmbedFacts, embed_page
from qkv.jobs.lifecycle import Lifecycle, write_faults
from qkv.models.family import ENCODES, TAKES_HEAD, Encodes, Head, Opened, Saving, TakesHead
from qkv.models.folders.hub import DEFAULT_MODEL, locate, shown_name
from qkv.models.pretraining import evaluate_often, resolve_minutes
from qkv.models.table import describe_model, open_model
from qkv.nn.block import FeedForward, find_matrices
from qkv.nn.gpu.layers import WeightCasts
from qkv.report.page import write_report
from qkv.tasks.embed import (
    EmbedBatch,
    EmbedBatches,
    EmbedObjective,
    GroupSource,
    SentenceEncoder,
    SetScore,
    TextArray,
    make_source,
    score_vectors,
    vectors_of_rows,
)
from qkv.tasks.teacher import Teacher, teach
from qkv.tasks.transfer import layer_scale
from qkv.train.device import Sizes, device_named, memory_for
from qkv.train.distributed import current_world
from qkv.train.log import Progress, Silent, summary
from qkv.train.loop import PRECISIONS, Job, TrainConfig, Trainer, step_seed
from qkv.train.run_folder import Outcome, Sessions, check_folder_sha256, folder_sha256

# Settings

_POOLINGS = ("auto", "mean", "cls")
_AT_ONCE = {"cpu": 8_192}  # tokens of a chunk
_AT_ONCE_ELSEWHERE = 131_072
_MOST_HELD_OUT = 1_000  # rows of a file: enough to measure by, and few to search among
_FEWEST_SCORES, _MOST_SHARE = 10, 1 / 3  # held-out scored rows: an order of fewer says nothing; and share of a file
_RATE, _RATE_WIDTH = 3e-4, 256  # learning rate of this width; by its square lower for wider models


@dataclass(frozen=True)
class TextsChoice:
    train: tuple[str, ...] = ()  # files of pairs, triplets, scored pairs, or with a teacher of single texts
    parallel: tuple[str, ...] = ()  # translations, both sides of which learn the teacher's vector of the first
    dev: tuple[str, ...] = ()  # development sets; else held out of each training file
    test: tuple[str, ...] = ()  # test sets, evaluated once, at the end
    columns: tuple[str, ...] = ()  # of all files, or after the name of one: sts.csv:6,7,5
    sentences: bool = False  # single texts are split into sentences
    dev_share: float = 0.1  # held out of a training file, at most a thousand rows
    sha256: str | None = None  # of all these files; put here at the start

    def __post_init__(self) -> None:
        check_shares(self, "dev_share")


@dataclass(frozen=True)
class EmbedConfig:
    model: str = DEFAULT_MODEL
    model_sha256: str | None = None
    teacher: str | None = None  # a model whose vectors are learned
    teacher_sha256: str | None = None
    teacher_vectors: str | None = None  # a folder in which its vectors are kept for other runs
    relations: float = 0.0  # weight of the teacher's cosines between the texts of a step, beside its vectors
    batch: int = 256  # rows of a file a step; of pairs, each is compared with the others
    tokens_at_once: int | None = None  # of a chunk; None: by the device
    max_length: int | None = None  # tokens of a window in training; None: the model's
    train_windows: int = 4  # of a longer text, in one step
    pooling: str = "auto"  # mean or cls; auto: as the folder says, else mean
    normalize: bool = True  # the saved model gives vectors of length 1
    scale: float = 20.0  # of cosines: the inverse of a temperature
    widths: tuple[int, ...] = ()  # the first numbers of a vector that are trained to be used alone
    width_weights: tuple[float, ...] = ()  # of their losses; (): 1 each, as the whole vector
    mix: float = 1.0  # several files: 1 in proportion to their rows, 0 as often each
    dropout: float | None = None  # None: the folder's own
    attention_dropout: float = 0.0
    layer_decay: float = 1.0  # factor of the learning rate from each layer to the one below it
    epochs: float | None = 1.0  # times through the files; turned into train.steps at the start
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    data: TextsChoice = field(default_factory=TextsChoice)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(lr=_RATE, warmup=0.1))

    def __post_init__(self) -> None:
        check_known(self, pooling=_POOLINGS)
        check_least(self, "tokens_at_once", "train_windows")
        check_least(self, "batch", least=2)
        check_least(self, "max_length", least=8)
        check_shares(self, "dropout", "attention_dropout")
        if not self.scale > 0:
            raise InputError(f"scale must be more than 0, not {self.scale}.")
        if not self.relations >= 0:
            raise InputError(f"relations is a weight of 0 or more, not {self.relations}.")
        if not 0 <= self.mix <= 1:
            raise InputError(f"mix is from 0 (files as often each) to 1 (in proportion), not {self.mix}.")
        if self.epochs is not None and not self.epochs > 0:
            raise InputError(f"epochs must be more than 0, not {self.epochs}.")
        if self.width_weights and len(self.width_weights) != len(self.widths):
            raise InputError(f"There are {len(self.widths)} widths and {len(self.width_weights)} width_weights.")
        if not 0 < self.layer_decay <= 1:
            raise InputError(f"layer_decay is above 0 and at most 1, not {self.layer_decay}.")
        for name, usual in (("recompute", False), ("accumulate", 1)):
            if getattr(self.train, name) != usual:
                raise InputError(
                    f"train.{name} does nothing here: a step is computed in chunks of tokens_at_once. Leave it out."
                )


def _checked(config: EmbedConfig, given: Requested) -> EmbedConfig:
    """With the learning rate that suits the model's width, and widths that are smaller than it."""
    sizes = describe_model(locate(config.model)).sizes
    if sizes is None:
        return config  # a model that takes no training, which `open_student` explains
    for width in config.widths:
        if not 0 < width < sizes.width:
            raise InputError(f"widths: {width} is not between 0 and {sizes.width}, the width of {config.model}.")
    if "train.lr" in {**given.written, **given.typed}:
        return config
    rate = float(f"{_RATE * min(1.0, _RATE_WIDTH / sizes.width) ** 2:.2g}")
    return replace(config, train=replace(config.train, lr=rate))


_SETTINGS = JobSettings(
    EmbedConfig(),
    lengths={"train.minutes": "--minutes", "epochs": "--epochs", "train.steps": "--steps"},
    giving_way=("epochs", "train.minutes"),
    check=_checked,
)


def resolve_embed_settings(given: Requested) -> EmbedConfig:
    if "model_type" in given.tables:
        raise InputError(f"{given.recipe} is a recipe of another command: it has a model_type, which sentences lack.")
    return _SETTINGS.resolve(given)


# Data


@dataclass(frozen=True)
class TextData:
    train: tuple[GroupFile, ...]
    dev: tuple[GroupFile, ...]
    test: tuple[GroupFile, ...]

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(fault for file in (*self.train, *self.dev, *self.test) for fault in file.faults)


def pin_texts(choice: TextsChoice) -> TextsChoice:
    """The settings with absolute paths and a hash, so that a resumed run finds and recognises the files."""
    if not choice.train and not choice.parallel:
        raise InputError("There is nothing to train on: give files with --data.")

    def whole(name: str) -> str:
        return ",".join(str(Path(one).expanduser().resolve()) for one in files_of(name))

    names = ("train", "parallel", "dev", "test")
    pinned: dict[str, Any] = {name: tuple(map(whole, getattr(choice, name))) for name in names}
    choice = replace(choice, **pinned)
    choice = replace(choice, sha256=_hash(choice))  # a file that is missing is an error now
    return replace(choice, columns=pin_columns(choice.columns, _names_of_files(choice)))


def _names_of_files(choice: TextsChoice) -> tuple[str, ...]:
    return (*choice.train, *choice.parallel, *choice.dev, *choice.test)


def _hash(choice: TextsChoice) -> str:
    found = (sha256_of(check_file(one)) for name in _names_of_files(choice) for one in files_of(name))
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def check_texts_unchanged(choice: TextsChoice) -> None:
    if choice.sha256 is not None and _hash(choice) != choice.sha256:
        raise InputError(
            "The texts have changed since the run began: a resumed run would train on others than before. Put the "
            "files back as they were (they are named in config.toml), or begin another run."
        )


def read_training_texts(config: EmbedConfig, tell: Callable[[str], None]) -> TextData:
    choice = config.data
    if choice.parallel and config.teacher is None:
        raise InputError("--parallel is for a teacher's vectors: give --teacher, or give the pairs with --data.")

    def read(name: str) -> GroupFile:
        file = read_groups(name, choice.columns, choice.sentences)
        if file.kind == "texts" and config.teacher is None:
            raise InputError(
                f"{name} has one text a row ({file.about}), from which only a teacher's vectors can be learned. Give a "
                "teacher (--teacher MODEL), or the columns of pairs (--columns anchor=NAME,positive=NAME)."
            )
        return file

    train = [*map(read, choice.train), *map(read_translations, choice.parallel)]
    dev, test = tuple(map(read, choice.dev)), tuple(map(read, choice.test))
    for file in (*train, *dev, *test):
        number = sum(fault.action == "dropped" for fault in file.faults)
        dropped = f", {number:,} rows dropped: faults.jsonl" if number else ""
        tell(f"{file.name}: {len(file.groups):,} rows of {GROUP_KINDS[file.kind]} ({file.about}){dropped}")
    if not dev:
        train, dev = _hold_out(train, choice.dev_share, tell)
    # rows that were held out share no text with those that are trained on
    for name, files in (("dev", dev if choice.dev else ()), ("test", test)):
        _tell_known(name, train, files, tell)
    return TextData(tuple(train), dev, test)


def _hold_out(
    train: Sequence[GroupFile], share: float, tell: Callable[[str], None]
) -> tuple[list[GroupFile], tuple[GroupFile, ...]]:
    parts: list[tuple[GroupFile, GroupFile]] = []
    for file in train:
        kept, held = _divide(file, share)
        number, rows = len(held.groups), len(file.groups)
        if share and rows > 1 and len({tuple(map(fold_text, one.every_text())) for one in file.groups}) == 1:
            raise InputError(
                f"{file.name}: all {rows:,} rows are the same, so that none can be held out to measure with. Give rows "
                "that differ."
            )
        if share and file.kind == "scores" and number < _FEWEST_SCORES:
            tell(
                f"note: {file.title} is not evaluated: of {rows:,} rows fewer than {_FEWEST_SCORES} can be held out, "
                "too few to measure an order. Give others to measure with: --dev FILE."
            )
            parts.append((file, replace(file, groups=(), faults=())))
            continue
        is_flat = file.kind == "scores" and len({group.score for group in held.groups}) < 2  # no order to measure
        if not kept.groups or (share and (number < 2 or is_flat)):
            raise InputError(
                f"{file.name} has {rows:,} rows: too few to hold some out (data.dev_share = {share:g}). "
                "Add rows, or give others to measure with: --dev FILE."
            )
        parts.append((kept, held))
    known = {fold_text(text) for _, held in parts for group in held.groups for text in group.every_text()}
    trained = [drop_known(kept, known) if len(parts) > 1 else kept for kept, _ in parts]
    for file, kept, (_, held) in zip(train, trained, parts, strict=True):
        left_out = len(file.groups) - len(kept.groups) - len(held.groups)
        sharing = f", and {left_out:,} that share a text with held-out ones are dropped" if left_out else ""
        if not kept.groups:
            raise InputError(
                f"{file.name}: every row shares a text with rows that are held out for evaluation, here or in another "
                "file. Give others to measure with: --dev FILE."
            )
        if held.groups or left_out:
            tell(f"{file.title}: {len(held.groups):,} rows are held out for evaluation{sharing}")
    return trained, tuple(held for _, held in parts if held.groups)


def _divide(file: GroupFile, share: float) -> tuple[GroupFile, GroupFile]:
    """What is kept and what is held out; of a small scored file more than the share, for an order to measure."""
    share = min(share, _MOST_HELD_OUT / len(file.groups))
    kept, held = hold_out_groups(file, share)
    while file.kind == "scores" and 0 < share < _MOST_SHARE and len(held.groups) < _FEWEST_SCORES:
        share = min(_MOST_SHARE, max(1.25 * share, _FEWEST_SCORES / len(file.groups)))
        kept, held = hold_out_groups(file, share)
    return kept, held


def _tell_known(name: str, train: Sequence[GroupFile], files: Sequence[GroupFile], tell: Callable[[str], None]) -> None:
    if not files:
        return
    known = {fold_text(text) for file in train for group in file.groups for text in group.every_text()}
    for file in files:
        both = sum(all(fold_text(text) in known for text in group.every_text()) for group in file.groups)
        if both:
            tell(f"note: of {file.title} ({name}), {both:,} of {len(file.groups):,} rows are texts that are trained on")


# Evaluation

MEAN_SCORE = "mean_score"


@dataclass
class EmbedEvaluation:
    """Evaluates a model on every set; returns the figures for the log."""

    sets: dict[str, GroupSource]
    student: SentenceEncoder  # the model that is trained
    takes: TakesHead
    tokens: int

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        scores = self.scores(self.student)
        figures = {f"{name}: {key}": value for name, one in scores.items() for key, value in one.values.items()}
        return figures | {MEAN_SCORE: float(np.mean([one.value for one in scores.values()]))}

    def scores(self, model: SentenceEncoder, intervals: bool = False, width: int | None = None) -> dict[str, SetScore]:
        encodes = Encodes(model.network, self.takes.tokenizer, self.takes.sizes)
        device = next(model.parameters()).device
        model.eval()
        found = {}
        for name, source in self.sets.items():
            vectors = vectors_of_rows(
                encodes, model.hidden, source.table.rows, model.pooling, device, self.tokens
            ).vectors
            found[name] = score_vectors(source, vectors[:, :width], intervals)
        return found


# The run


def open_student(folder: Path) -> Opened:
    opened = open_model(folder)
    if not opened.ability(TAKES_HEAD).pools:
        raise InputError(
            f"{folder} holds {opened.facts.about.en}; vectors of texts are trained from BERT and its relatives, whose "
            "folders sentence-transformers reads. Give one of them with --model."
        )
    return opened


def open_teacher(config: EmbedConfig, device: torch.device) -> Teacher:
    from qkv.models.family import Loading

    assert config.teacher is not None
    folder, precision = Path(config.teacher), config.train.precision
    opened = open_model(folder, Loading(PRECISIONS[precision], device))
    opened.ability(ENCODES)
    if foreign := opened.sentence.foreign:
        raise InputError(f"{folder} pools with {foreign}, which qkv does not do: it cannot be a teacher.")
    key = f"{config.teacher_sha256} {precision} {device.type}"
    return Teacher(opened, device, _AT_ONCE.get(device.type, _AT_ONCE_ELSEWHERE), key)


def build_student(config: EmbedConfig, opened: Opened) -> SentenceEncoder:
    """The encoder of the folder without a head, on the CPU."""
    seed = step_seed(config.train.seed, 1 << 20)
    head = Head("sequence", 1, seed, config.dropout, config.attention_dropout, pooling="mean")
    network, _ = opened.ability(TAKES_HEAD).with_head(head)
    network.heads = nn.ModuleDict()
    return SentenceEncoder(network, config.pooling)


class EmbedSession:
    def __init__(self, config: EmbedConfig, out: Path, progress: Progress, begins: bool) -> None:
        self.out, self.progress, self.begins, tell = out, progress, begins, progress.message
        self.device = device_named(config.device)
        if config.train.threads is not None:
            torch.set_num_threads(config.train.threads)
        if begins:
            config = _pin(config)
        else:
            check_texts_unchanged(config.data)
            check_folder_sha256(locate(config.model), config.model_sha256)
            if config.teacher is not None:
                check_folder_sha256(locate(config.teacher), config.teacher_sha256)
        self.opened = open_student(Path(config.model))
        self.teacher = None if config.teacher is None else open_teacher(config, self.device)
        config = _resolve_reading(config, self.opened, tell)
        data = read_training_texts(config, tell if begins else Silent().message)
        self.faults, self.files = [*data.faults], data
        takes = self.opened.ability(TAKES_HEAD)
        sizes, longest = takes.sizes, takes.sizes.max_length
        self.train_sources = [self._source(file, config.max_length or longest, sizes.width) for file in data.train]
        self.dev, self.test = (
            dict(zip(_names(files), [self._source(file, longest, sizes.width) for file in files], strict=True))
            for files in (data.dev, data.test)
        )
        if self.teacher is not None and not any(one.targets is not None for one in self.train_sources):
            raise InputError(
                "--teacher was given, and no file has texts for it to teach: give single texts with --data, or "
                "translations with --parallel."
            )
        model = build_student(config, self.opened).to(self.device)
        if begins:
            config = self._divide_step(config)
        self.at_once = config.tokens_at_once or _AT_ONCE.get(self.device.type, _AT_ONCE_ELSEWHERE)
        self.evaluation = EmbedEvaluation(self.dev, model, takes, self.at_once)
        self.trainer = self._trainer(config, model)
        self.config = self._resolve(config) if begins else config
        self.trainer.config = self.config.train

    def _source(self, file: GroupFile, max_length: int, width: int) -> GroupSource:
        table = make_table(file, self.opened.tokenizer, max_length)
        check_scores_differ(table, file.name)
        self.faults += table.faults
        return make_source(table, self.teacher is not None, width)

    def _divide_step(self, config: EmbedConfig) -> EmbedConfig:
        """With chunks so small that every process has two or more of a usual step."""
        size = current_world().size
        if size == 1:
            return config
        rows, tokens = (
            sum(map(count, self.train_sources))
            for count in (lambda source: len(source.table), lambda source: source.table.tokens)
        )
        usual = config.tokens_at_once or _AT_ONCE.get(self.device.type, _AT_ONCE_ELSEWHERE)
        wanted = max(64, config.batch * tokens // max(1, rows) // (2 * size))
        return replace(config, tokens_at_once=min(usual, wanted))

    def _trainer(self, config: EmbedConfig, model: SentenceEncoder) -> Trainer[EmbedBatch]:
        def batches(tokens: int) -> EmbedBatches:
            seed, windows = config.train.seed, config.train_windows
            return EmbedBatches(
                self.train_sources, config.batch, tokens, seed=seed, train_windows=windows, mix=config.mix
            )

        def settings(tokens: int) -> str:
            return (
                f"For the same steps in smaller chunks, set tokens_at_once = {tokens} in config.toml of the run and "
                f"resume, or begin anew with --set tokens_at_once={tokens}."
            )

        self.batches, size = batches(self.at_once), self.at_once
        smaller = [size >> halvings for halvings in range(1, 16) if size >> halvings >= 64]
        job = Job(
            model=model,
            objective=EmbedObjective(config.scale, config.widths, config.width_weights, config.relations),
            batches=self.batches,
            out=self.out,
            evaluate=self.evaluation if self.dev else None,
            best_by=MEAN_SCORE if self.dev else None,
            scale=layer_scale(config.layer_decay, self.opened.ability(TAKES_HEAD).sizes.layers),
            compiled=[part for part in model.modules() if isinstance(part, FeedForward)],
            matrices=find_matrices(model),
            sizes=Sizes(size, "tokens", smaller, lambda tokens, step: batches(tokens)(step), settings),
            around=WeightCasts,
            together=True,
        )
        return Trainer(job, config.train, self.progress)

    def _resolve(self, config: EmbedConfig) -> EmbedConfig:
        """With every default that depends on the data written out."""
        per_epoch = self.batches.steps_per_epoch
        tokens = sum(source.table.tokens for source in self.train_sources)
        rows = sum(len(source.table) for source in self.train_sources)
        train = config.train
        if config.epochs is not None:
            train = replace(train, steps=max(1, round(config.epochs * per_epoch)))
        train = replace(train, evaluate_every=evaluate_often(train.evaluate_every, train.steps))
        self.progress.message(
            f"{rows:,} rows to train on, {tokens:,} tokens; an epoch is {per_epoch:,} "
            f"step{'' if per_epoch == 1 else 's'} of about {tokens / per_epoch:,.0f} tokens"
        )
        long = sum(int((source.table.rows.n_windows > 1).sum()) for source in self.train_sources)
        if long:
            self.progress.message(
                f"note: {long:,} texts have more than {config.max_length or self.evaluation.takes.sizes.max_length} "
                "tokens and are read in windows (max_length)"
            )
        config = replace(config, train=train)
        self.trainer.config = train
        return resolve_minutes(config, self.trainer, self.progress)

    def train(self) -> Outcome:
        self.began = time.perf_counter()
        write_faults(self.out, self.faults)
        if self.teacher is not None:
            self._teach()
        log = self.out / "log.jsonl"
        if self.dev and not log.is_file() and current_world().is_main:
            with memory_for(self.device, "in the evaluation before training"):
                before = self.evaluation(self.trainer.job.model)
            write_text(log, json.dumps({"step": 0, "evaluation": before}, ensure_ascii=False) + "\n")
            self.progress.message(f"before training: {summary(before, MEAN_SCORE)}")
        return self.trainer.run()

    def _teach(self) -> None:
        assert self.teacher is not None
        (self.out / "vectors").mkdir(exist_ok=True)
        every = [*self.train_sources, *self.dev.values(), *self.test.values()]
        config, takes = self.config, self.evaluation.takes
        kept_in = None if config.teacher_vectors is None else Path(config.teacher_vectors)
        if kept_in is not None:
            kept_in.mkdir(parents=True, exist_ok=True)
        with memory_for(self.device, "computing the teacher's vectors"), current_world().main_first():
            taught = teach(
                every,
                self.teacher,
                self.out / "vectors",
                takes.sizes.width,
                config.widths,
                self._vectors_before,
                self.progress.message,
                kept_in,
            )
        found = iter(taught)
        self.train_sources[:] = [next(found) for _ in self.train_sources]
        for sets in (self.dev, self.test):
            sets |= {name: next(found) for name in sets}

    def _vectors_before(self, texts: Sequence[str]) -> TextArray:
        """(E, D) by the model before training."""
        takes, pooling = self.evaluation.takes, self.evaluation.student.pooling
        model = build_student(self.config, self.opened).to(self.device).eval()
        rows = make_rows(encode_texts(texts, takes.tokenizer), takes.tokenizer, takes.sizes.max_length)
        encodes = Encodes(model.network, takes.tokenizer, takes.sizes)
        return vectors_of_rows(encodes, model.hidden, rows, pooling, self.device, self.at_once).vectors

    def stop(self, outcome: Outcome) -> None:
        sessions = Sessions.of(self.out).ended(outcome, self.began, self.device)
        sessions.write(self.out)
        write_report(self.out, embed_page(self.out, self._facts(sessions)))

    def finish(self, outcome: Outcome) -> None:
        """Evaluate the best weights and the model before training; write the model and the report."""
        config, out, trainer = self.config, self.out, self.trainer
        sessions = Sessions.of(out).ended(outcome, self.began, self.device)
        trainer.take_best()
        model, initial = self.evaluation.student, build_student(config, self.opened).to(self.device)
        parts = {"dev": self.dev, "test": self.test}
        with memory_for(self.device, "in the evaluation after training"):
            evaluations = {name: replace(self.evaluation, sets=sets) for name, sets in parts.items()}
            after = {name: one.scores(model, intervals=True) for name, one in evaluations.items()}
            before = {name: one.scores(initial) for name, one in evaluations.items()}
            narrow = {
                str(width): {
                    name: {file: score.value for file, score in one.scores(model, width=width).items()}
                    for name, one in evaluations.items()
                }
                for width in config.widths
            }
        facts = replace(self._facts(sessions), after=after, before=before, narrow=narrow)
        scores, earlier = (
            {name: {file: score.to_dict() for file, score in sets.items()} for name, sets in found.items()}
            for found in (after, before)
        )
        result: dict[str, Any] = {
            "model": shown_name(config.model),
            "teacher": None if config.teacher is None else shown_name(config.teacher),
            "files": facts.rows,
            "pooling": config.pooling,
            "normalize": config.normalize,
            "steps": outcome.step,
            "seed": config.train.seed,
            "best_step": trainer.best.step if self.dev else None,
            **scores,
            "before": earlier,
            "widths": narrow,
            "parameters": facts.parameters,
            "seconds": round(sessions.seconds, 1),
        }
        record = {
            "job": "embed",
            **{key: result[key] for key in ("model", "teacher", "steps", "before", "widths")},
            "scores": scores,
            "config": _public(config),
        }
        pooling = "first" if config.pooling == "cls" else "mean"
        saving = Saving(record=record, pooling=pooling, normalize=config.normalize)
        self.opened.ability(TAKES_HEAD).save(out / "model", model.network, saving)
        write_report(out, embed_page(out, facts))
        sessions.write(out)
        write_text(out / "result.json", to_json(result))
        for name in ("checkpoints", "vectors"):
            shutil.rmtree(out / name, ignore_errors=True)

    def _facts(self, sessions: Sessions) -> EmbedFacts:
        return EmbedFacts(
            model=shown_name(self.config.model),
            teacher=None if self.config.teacher is None else shown_name(self.config.teacher),
            rows={
                part: {name: {"kind": file.kind, "rows": len(file.groups)} for name, file in _named(files).items()}
                for part, files in (("train", self.files.train), ("dev", self.files.dev), ("test", self.files.test))
            },
            left_out=sum(fault.action == "dropped" for fault in self.faults),
            tokens=sum(source.table.tokens for source in self.train_sources),
            parameters=sum(parameter.numel() for parameter in self.trainer.job.model.parameters()),
            seconds=sessions.seconds,
            peak_memory=sessions.peak_memory,
            resumed_from=sessions.resumed_from,
        )


EMBEDDING = Lifecycle("embed", EmbedConfig(), EmbedSession)


def _pin(config: EmbedConfig) -> EmbedConfig:
    config = replace(config, data=pin_texts(config.data))
    student = locate(config.model).resolve()
    config = replace(config, model=str(student), model_sha256=folder_sha256(student))
    if config.teacher is None:
        return config
    teacher = locate(config.teacher).resolve()
    if config.teacher_vectors is not None:
        config = replace(config, teacher_vectors=str(Path(config.teacher_vectors).expanduser().resolve()))
    return replace(config, teacher=str(teacher), teacher_sha256=folder_sha256(teacher))


def _resolve_reading(config: EmbedConfig, opened: Opened, tell: Callable[[str], None]) -> EmbedConfig:
    longest = opened.ability(TAKES_HEAD).sizes.max_length
    if config.max_length is not None and config.max_length > longest:
        raise InputError(f"{opened.path} reads {longest} tokens at most, and max_length is {config.max_length}.")
    if config.pooling != "auto":
        return config
    if opened.sentence.foreign:
        tell(f"note: {opened.path} pools with {opened.sentence.foreign}, which qkv does not do; the mean is trained.")
    return replace(config, pooling=opened.sentence.pooling or "mean")


def _names(files: Sequence[GroupFile]) -> list[str]:
    """Different names of files: their own, with a number where two are called the same."""
    found: list[str] = []
    for file in files:
        number, name = 1, file.title
        while name in found:
            number += 1
            name = f"{file.title} ({number})"
        found.append(name)
    return found


def _named(files: Sequence[GroupFile]) -> dict[str, GroupFile]:
    return dict(zip(_names(files), files, strict=True))


def _public(config: EmbedConfig) -> dict[str, Any]:
    """The settings without paths of this machine, since a model may be shared."""
    found = asdict(config)
    found["model"] = shown_name(config.model)
    found["teacher"] = None if config.teacher is None else shown_name(config.teacher)
    found["teacher_vectors"] = None
    for file in _names_of_files(config.data):
        found["data"]["columns"] = [one.replace(f"{file}:", f"{Path(file).name}:") for one in found["data"]["columns"]]
    for name in ("train", "parallel", "dev", "test"):
        found["data"][name] = [",".join(Path(one).name for one in files_of(file)) for file in found["data"][name]]
    return found
