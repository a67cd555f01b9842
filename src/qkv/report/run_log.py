"""What pages of training runs share: reading the logs, remarks, charts and rows, and the page of a language model.

`log.jsonl` has logged steps and evaluations, `timing.jsonl` times, `config.toml` the settings. Damage is tolerated,
since a killed run gets a page too: missing or damaged parts are skipped and listed in `faults`, and a value that is not
a finite number becomes NaN. `fillings` arranges the sample predictions of evaluations so that answers to one blank at
several steps are next to each other. `language_model_page` is the page of NNLM and RNNLM, and the base of those of GPT
and ELMo.
"""

import json
import math
import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.metrics.numbers import perplexity
from qkv.report import remarks
from qkv.report.bilingual import Phrase, Words, count, duration, parameter_count, percent, size
from qkv.report.charts import Chart, Level, Series
from qkv.report.page import Answers, Charts, Figure, Gauge, Remarks, RunPage, Sample, Section, Settings, Table
from qkv.report.remarks import Remark

_Point = tuple[float, float]
STEP = Phrase("step", "步")


@dataclass(frozen=True)
class RunLog:
    steps: tuple[dict[str, Any], ...]
    evaluations: tuple[tuple[int, dict[str, Any]], ...]
    timing: tuple[dict[str, Any], ...]
    config: str
    settings: Mapping[str, Any]
    faults: tuple[Phrase, ...]

    @property
    def last_step(self) -> int:
        return max([line["step"] for line in self.steps] + [step for step, _ in self.evaluations], default=0)

    def logged(self, key: str) -> tuple[_Point, ...]:
        """Return (step, value) of every logged step that has the key."""
        return tuple((line["step"], number(line[key])) for line in self.steps if key in line)

    def evaluated(self, key: str) -> tuple[_Point, ...]:
        return tuple((step, number(found[key])) for step, found in self.evaluations if key in found)

    def timed(self, key: str) -> tuple[_Point, ...]:
        return tuple((line["step"], number(line[key])) for line in self.timing if key in line)

    def share_of_time(self, key: str) -> float | None:
        """Return the mean of a share logged per lap, weighted by time."""
        laps = [(number(line.get("seconds")), number(line[key])) for line in self.timing if key in line]
        known = [(seconds, share) for seconds, share in laps if math.isfinite(seconds) and math.isfinite(share)]
        total = sum(seconds for seconds, _ in known)
        return sum(seconds * share for seconds, share in known) / total if total else None

    def setting(self, *path: str) -> Any:
        """Return a setting by its tables and name, or None."""
        found: Any = self.settings
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def training_level(self, key: str) -> float | None:
        """Return the mean over the last twentieth of the log, at least five lines, to reduce noise."""
        known = _finite(self.logged(key))
        return statistics.fmean(known[-max(5, len(known) // 20) :]) if known else None

    def median_rate(self) -> float | None:
        """Return the median of tokens per second."""
        known = _finite(self.timed("tokens_per_second"))
        return statistics.median(known) if known else None

    def notices(self, unit: Phrase = STEP) -> Iterator[Phrase]:
        """Yield notices for the top of a page: damaged files, no logged steps, an unfinished run."""
        yield from self.faults
        if not self.steps:
            yield Phrase("No step was logged yet, so there are no curves.", "尚未记录任何训练步，因此没有曲线。")
            return
        last, planned = self.last_step, self.setting("train", "steps")
        if isinstance(planned, int) and 0 < last < planned:
            yield Phrase(
                f"The run stopped at {unit.en} {last:,} of {planned:,}: it is not finished and can be resumed.",
                f"训练停在第 {last:,} {unit.zh}，共 {planned:,} {unit.zh}：尚未完成，可以续训。",
            )


def read_run(run: Path) -> RunLog:
    faults: list[Phrase] = []
    steps, evaluations = [], []
    for line in _lines(run / "log.jsonl", faults):
        if isinstance(line.get("evaluation"), dict):
            evaluations.append((line["step"], line["evaluation"]))
        elif not {"evaluation", "restart"} & line.keys():
            steps.append(line)
    timing = tuple(_lines(run / "timing.jsonl", faults))
    text = _text(run / "config.toml", faults)
    settings: dict[str, Any] = {}
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        faults.append(Phrase(f"config.toml is not valid TOML ({error}).", f"config.toml 不是合法的 TOML（{error}）。"))
    return RunLog(tuple(steps), tuple(evaluations), timing, text, settings, tuple(faults))


def number(value: object) -> float:
    """Return a finite number unchanged, everything else as NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:  # an integer too large for a float
        return math.nan


def _finite(points: Iterable[_Point]) -> list[float]:
    return [value for _, value in points if math.isfinite(value)]


def _text(file: Path, faults: list[Phrase]) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        faults.append(Phrase(f"{file.name} is missing.", f"缺少 {file.name}。"))
    except OSError as error:
        why = error.strerror or str(error)
        faults.append(Phrase(f"{file.name} cannot be read: {why}.", f"{file.name} 无法读取：{why}。"))
    return ""


def _lines(file: Path, faults: list[Phrase]) -> Iterator[dict[str, Any]]:
    """Yield valid lines with a step; a killed run may leave an incomplete last line."""
    damaged = 0
    for line in _text(file, faults).splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            damaged += 1
            continue
        if isinstance(content, dict) and type(content.get("step")) is int:
            yield content
        else:
            damaged += 1
    if damaged:
        faults.append(
            Phrase(
                f"{file.name}: {damaged:,} line{'' if damaged == 1 else 's'} could not be read and "
                f"{'is' if damaged == 1 else 'are'} skipped.",
                f"{file.name}：有 {damaged:,} 行无法读取，已略去。",
            )
        )


SHOWN_TIMES = 4
"""Evaluations shown next to each other."""
SHOWN_CANDIDATES = 4


def fillings(log: RunLog) -> tuple[Sample, ...]:
    """Return every sample of the last evaluation with its answers then and at a few earlier evaluations."""
    with_samples = [
        (step, found["samples"]) for step, found in log.evaluations if isinstance(found.get("samples"), list)
    ]
    if not with_samples:
        return ()
    places = choose_evaluations(len(with_samples))
    shown = [(step, _by_text(samples)) for step, samples in (with_samples[place] for place in places)]
    found = []
    for text, last in _by_text(with_samples[-1][1]).items():
        answers = tuple(
            Answers(Phrase(f"step {step:,}", f"第 {step:,} 步"), _candidates(samples[text]))
            for step, samples in shown
            if text in samples
        )
        expected = last.get("answer")
        found.append(Sample(text, str(expected) if expected is not None else None, answers))
    return tuple(found)


def choose_evaluations(n: int) -> list[int]:
    """Choose which of n evaluations to show: denser early in a run, where answers change fastest.

    >>> choose_evaluations(1), choose_evaluations(3), choose_evaluations(10)
    ([0], [0, 1, 2], [0, 1, 4, 9])
    """
    return sorted({round((n - 1) * (time / (SHOWN_TIMES - 1)) ** 2) for time in range(SHOWN_TIMES)})


def _by_text(samples: list[Any]) -> dict[str, dict[str, Any]]:
    return {str(one["text"]): one for one in samples if isinstance(one, dict) and "text" in one}


def _candidates(sample: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    pairs = sample.get("candidates")
    known = (
        [pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2] if isinstance(pairs, list) else []
    )
    shares = [(str(token), number(share)) for token, share in known]
    return tuple((token, min(1.0, max(0.0, share))) for token, share in shares if math.isfinite(share))[
        :SHOWN_CANDIDATES
    ]


# --- What the pages of several kinds of runs show alike.


def loss_remarks(log: RunLog, trained: str, evaluated: str) -> Iterator[Remark]:
    """Remarks on the loss, by its keys in training and evaluation, on gradients and on waiting."""
    found = log.evaluated(evaluated)
    said = (
        remarks.training_and_evaluation(log.training_level(trained), found[-1][1] if found else None),
        remarks.trend(log.logged(trained)),
        remarks.best_evaluation(found),
        remarks.gradient_spikes(log.logged("gradient_norm")),
        remarks.waiting_for_batches(log.share_of_time("waited_for_batches")),
    )
    yield from (remark for remark in said if remark is not None)


TRAINING, EVALUATION = Phrase("training", "训练"), Phrase("held-out text", "留出文本")


def pair_series(log: RunLog, key: str, evaluated: str = "", on: Words = EVALUATION) -> tuple[Series, Series]:
    """A figure of the logged steps, and that of the evaluations (`evaluated`, if it has another name there)."""
    return (
        Series(TRAINING, log.logged(key), smooth=True),
        Series(on, log.evaluated(evaluated or key), "evaluation", dots=True),
    )


def loss_levels(vocabulary_size: int, unigram_entropy: float | None = None) -> tuple[Level, ...]:
    """Losses of models that know nothing of the context."""
    even = math.log(vocabulary_size)
    first = Level(even, Phrase(f"ln V = {even:.2f}: all tokens equally likely", f"ln V = {even:.2f}：所有词元同样可能"))
    if unigram_entropy is None:
        return (first,)
    h = f"{unigram_entropy:.2f}"
    name = Phrase(f"unigram entropy {h}: above it, only frequencies", f"一元熵 {h}：在它之上，只知道词频")
    return first, Level(unigram_entropy, name)


def chart_gradient_norm(log: RunLog, seams: tuple[float, ...]) -> Chart:
    largest = Phrase("largest since the last logged step", "上次记录以来的最大值")
    norms = (Series(largest, log.logged("gradient_norm"), fine=True),)
    return Chart(Phrase("Gradient norm", "梯度范数"), norms, seams=seams, log=True)


def chart_learning_rate(log: RunLog, seams: tuple[float, ...] = ()) -> Chart:
    rate = Phrase("Learning rate", "学习率")
    return Chart(rate, (Series(rate, log.logged("lr")),), seams=seams, format="rate", from_zero=True)


def speed_rows(log: RunLog, rate_name: Phrase, epochs_name: Phrase, epoch: int | None) -> Iterator[tuple[Words, ...]]:
    """Tokens per second, and how many epochs of `epoch` tokens were trained."""
    if rate := log.median_rate():
        yield rate_name, f"{rate:,.0f}"
    trained = sum(value for _, value in log.logged("tokens") if math.isfinite(value))
    if trained and epoch:
        yield epochs_name, f"{trained / epoch:.2g}"


def cost_rows(seconds: float | None, peak_memory: int | None) -> Iterator[tuple[Words, ...]]:
    if seconds is not None:
        yield Phrase("Total time", "总用时"), duration(seconds)
    if peak_memory is not None:
        yield Phrase("Peak memory", "内存峰值"), size(peak_memory)


# --- The page of a language model's training.

_NAMES = {
    "nnlm": Phrase("Neural network language model (NNLM)", "神经网络语言模型（NNLM）"),
    "gpt": Phrase("GPT, a left-to-right Transformer", "GPT：从左到右的 Transformer"),
    "rnnlm": Phrase("Recurrent language model (RNNLM)", "循环神经网络语言模型（RNNLM）"),
}


@dataclass(frozen=True)
class LanguageModelFacts:
    """Facts that are not in the run's files; None: unknown."""

    model_type: str
    vocabulary_size: int
    unigram_entropy: float | None = None  # of the training text's tokens, in nats
    documents: int | None = None
    held_out_documents: int | None = None
    sentences: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    seconds: float | None = None  # wall-clock time, including evaluation and saving
    peak_memory: int | None = None  # bytes
    resumed_from: tuple[int, ...] = ()  # steps


def language_model_page(run: Path, facts: LanguageModelFacts) -> RunPage:
    log = read_run(run)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase("Pretraining report", "预训练报告"),
        facts=tuple(_facts(log, facts)),
        notices=tuple(_notices(log)),
        figures=tuple(_figures(log, facts)),
        sections=tuple(_sections(log, facts)),
    )


def _facts(log: RunLog, facts: LanguageModelFacts) -> Iterator[Words]:
    yield _NAMES.get(facts.model_type, facts.model_type)
    if facts.parameters:
        yield parameter_count(facts.parameters)
    yield Phrase(f"vocabulary {facts.vocabulary_size:,}", f"词表 {facts.vocabulary_size:,}")
    yield Phrase(f"{log.last_step:,} steps", f"{log.last_step:,} 步")
    if facts.seconds is not None:
        yield duration(facts.seconds)


def _notices(log: RunLog) -> Iterator[Words]:
    yield from log.notices()
    if log.steps and not log.evaluations:
        yield Phrase("There was no evaluation: the figures are from training.", "没有评估结果：以下为训练集上的数值。")


def _level(log: RunLog, key: str) -> float | None:
    """Return the value of the last evaluation, or else the mean over the end of training."""
    if log.evaluations:
        return number(log.evaluations[-1][1].get(key))
    return log.training_level(key)


def _figures(log: RunLog, facts: LanguageModelFacts) -> Iterator[Figure]:
    loss, accuracy = _level(log, "next_loss"), _level(log, "next_accuracy")
    source = EVALUATION if log.evaluations else TRAINING
    if loss is None or not math.isfinite(loss):
        return
    even = math.log(facts.vocabulary_size)
    unsure = perplexity(loss)
    shown = f"{unsure:,.1f}" if unsure < 1000 else f"{unsure:,.0f}"
    marks: list[tuple[float, Words]] = [(0, "1"), (even, f"V = {facts.vocabulary_size:,}")]
    if facts.unigram_entropy is not None:
        only = f"{perplexity(facts.unigram_entropy):,.0f}"
        marks.append((facts.unigram_entropy, Phrase(f"frequencies only {only}", f"只知词频 {only}")))
    yield Figure(
        Phrase("Perplexity", "困惑度"),
        shown,
        Phrase(
            f"{source.en}: as uncertain as {shown} equally likely tokens (logarithmic ruler)",
            f"{source.zh}：相当于在 {shown} 个等可能的词元中选择（标尺为对数）",
        ),
        Gauge(0, 1.06 * max(even, loss), loss, marks=tuple(marks)),
    )
    yield Figure(
        Phrase("Loss", "损失"),
        f"{loss:.3f}",
        Phrase(f"nats per token, {source.en}; lower is better", f"每个词元的纳特数，{source.zh}；越低越好"),
    )
    if accuracy is not None and math.isfinite(accuracy):
        yield Figure(
            Phrase("Next-token accuracy", "下一词元准确率"),
            percent(accuracy),
            Phrase(
                f"{source.en}: the most likely token was the actual one", f"{source.zh}：概率最高的词元即实际的下一词元"
            ),
            Gauge(0, 1, accuracy),
        )


def _sections(log: RunLog, facts: LanguageModelFacts) -> Iterator[Section]:
    if log.steps:
        found = tuple(loss_remarks(log, "next_loss", "next_loss"))
        if found:
            yield Remarks(Phrase("Remarks", "结果分析"), found)
        yield Charts(Phrase("Curves", "曲线"), tuple(_curves(log, facts, facts.resumed_from)))
    rate, epochs = Phrase("Tokens per second (median)", "每秒词元数（中位数）"), Phrase("Epochs (about)", "轮数（约）")
    speed = (*speed_rows(log, rate, epochs, facts.tokens), *cost_rows(facts.seconds, facts.peak_memory))
    if speed:
        yield Table(Phrase("Performance", "训练开销"), speed)
    amounts = (
        (facts.documents, Phrase("Documents", "文档")),
        (facts.held_out_documents, Phrase("held out for evaluation", "留作评估")),
        (facts.sentences, Phrase("Sentences", "句子")),
        (facts.tokens, Phrase("Tokens", "词元")),
    )
    if corpus := tuple((name, count(amount)) for amount, name in amounts if amount is not None):
        yield Table(Phrase("Corpus", "语料"), corpus)
    if log.config.strip():
        yield Settings(Phrase("Settings", "配置"), log.config)


def _curves(log: RunLog, facts: LanguageModelFacts, resumed_from: Sequence[int]) -> Iterator[Chart]:
    seams = tuple(float(step) for step in resumed_from)
    levels = loss_levels(facts.vocabulary_size, facts.unigram_entropy)
    loss, accuracy = Phrase("Loss of the next token", "下一词元的损失"), Phrase("Next-token accuracy", "下一词元准确率")
    yield Chart(loss, pair_series(log, "next_loss"), levels=levels, seams=seams, shape="wide")
    yield Chart(accuracy, pair_series(log, "next_accuracy"), seams=seams, format="percent", from_zero=True)
    yield chart_gradient_norm(log, seams)
    yield chart_learning_rate(log, seams)
