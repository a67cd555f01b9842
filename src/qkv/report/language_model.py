"""The report page of a language model's training, from log.jsonl, timing.jsonl and config.toml."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.metrics.numbers import perplexity
from qkv.report import remarks
from qkv.report.bilingual import Phrase, Words, count, duration, percent, size
from qkv.report.charts import Chart, Level, Series
from qkv.report.page import Charts, Figure, Gauge, Remarks, RunPage, Section, Settings, Table
from qkv.report.remarks import Remark
from qkv.report.run_log import RunLog, number, read_run

_NAMES = {
    "nnlm": Phrase("Neural network language model (NNLM)", "神经网络语言模型（NNLM）"),
    "gpt": Phrase("GPT, a left-to-right Transformer", "GPT：从左到右的 Transformer"),
    "rnnlm": Phrase("Recurrent language model (RNNLM)", "循环神经网络语言模型（RNNLM）"),
}
TRAINING, EVALUATION = Phrase("training", "训练"), Phrase("held-out text", "留出文本")


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
        n = count(facts.parameters)
        yield Phrase(f"{n.en} parameters", f"{n.zh}个参数" if "万" in n.zh or "亿" in n.zh else f"{n.zh} 个参数")
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
        found = tuple(_remarks(log))
        if found:
            yield Remarks(Phrase("Remarks", "结果分析"), found)
        yield Charts(Phrase("Curves", "曲线"), tuple(_curves(log, facts, facts.resumed_from)))
    if speed := tuple(_speed(log, facts)):
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


def _remarks(log: RunLog) -> Iterator[Remark]:
    evaluated = log.evaluated("next_loss")
    found = (
        remarks.training_and_evaluation(log.training_level("next_loss"), evaluated[-1][1] if evaluated else None),
        remarks.trend(log.logged("next_loss")),
        remarks.best_evaluation(evaluated),
        remarks.gradient_spikes(log.logged("gradient_norm")),
        remarks.waiting_for_batches(log.share_of_time("waited_for_batches")),
    )
    yield from (remark for remark in found if remark is not None)


def _curves(log: RunLog, facts: LanguageModelFacts, resumed_from: Sequence[int]) -> Iterator[Chart]:
    seams = tuple(float(step) for step in resumed_from)
    even = math.log(facts.vocabulary_size)
    levels = [
        Level(even, Phrase(f"ln V = {even:.2f}: all tokens equally likely", f"ln V = {even:.2f}：所有词元等可能"))
    ]
    if facts.unigram_entropy is not None:
        h = f"{facts.unigram_entropy:.2f}"
        name = Phrase(f"unigram entropy {h}: above it, only frequencies", f"一元熵 {h}：在它之上，只知道词频")
        levels.append(Level(facts.unigram_entropy, name))
    for key, title in (
        ("next_loss", Phrase("Loss of the next token", "下一词元的损失")),
        ("next_accuracy", Phrase("Next-token accuracy", "下一词元准确率")),
    ):
        series = (
            Series(TRAINING, log.logged(key), smooth=True),
            Series(EVALUATION, log.evaluated(key), "evaluation", dots=True),
        )
        if key == "next_loss":
            yield Chart(title, series, levels=tuple(levels), seams=seams, shape="wide")
        else:
            yield Chart(title, series, seams=seams, format="percent", from_zero=True)
    largest = Phrase("largest since the last logged step", "上次记录以来的最大值")
    norms = (Series(largest, log.logged("gradient_norm"), fine=True),)
    yield Chart(Phrase("Gradient norm", "梯度范数"), norms, seams=seams, log=True)
    rate = Phrase("Learning rate", "学习率")
    yield Chart(rate, (Series(rate, log.logged("lr")),), seams=seams, format="rate", from_zero=True)


def _speed(log: RunLog, facts: LanguageModelFacts) -> Iterator[tuple[Words, ...]]:
    if rate := log.median_rate():
        yield Phrase("Tokens per second (median)", "每秒词元数（中位数）"), f"{rate:,.0f}"
    trained = sum(value for _, value in log.logged("tokens") if math.isfinite(value))
    if trained and facts.tokens:
        yield Phrase("Epochs (about)", "轮数（约）"), f"{trained / facts.tokens:.2g}"
    if facts.seconds is not None:
        yield Phrase("Total time", "总用时"), duration(facts.seconds)
    if facts.peak_memory is not None:
        yield Phrase("Peak memory", "内存峰值"), size(facts.peak_memory)
