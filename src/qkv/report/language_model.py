"""The report page of a language model's training, from log.jsonl, timing.jsonl and config.toml."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.metrics.numbers import perplexity
from qkv.report.bilingual import Phrase, Words, count, duration, parameter_count, percent
from qkv.report.charts import Chart
from qkv.report.page import Charts, Figure, Gauge, Remarks, RunPage, Section, Settings, Table
from qkv.report.run_log import (
    EVALUATION,
    TRAINING,
    RunLog,
    chart_gradient_norm,
    chart_learning_rate,
    cost_rows,
    loss_levels,
    loss_remarks,
    number,
    pair_series,
    read_run,
    speed_rows,
)

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
