"""The report page of a translation run: scores, and the curves of log.jsonl, timing.jsonl and config.toml."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from qkv.metrics.numbers import perplexity
from qkv.report.bilingual import Phrase, Words, count, duration, parameter_count, percent, safe, spans
from qkv.report.charts import Chart, Series
from qkv.report.page import Charts, Figure, Gauge, Remarks, RunPage, Section, Settings, Table
from qkv.report.run_log import (
    RunLog,
    chart_gradient_norm,
    chart_learning_rate,
    cost_rows,
    loss_levels,
    loss_remarks,
    pair_series,
    read_run,
    speed_rows,
)
from qkv.report.tables import Bar, BarTable
from qkv.tasks.translate import TranslationScore

_NAMES = {
    "transformer": Phrase("Transformer", "Transformer"),
    "seq2seq": Phrase("Recurrent encoder-decoder (seq2seq)", "循环编码器—解码器（seq2seq）"),
}
DEV = Phrase("dev", "验证集")
_SHOWN_TIMES = 3  # earlier translations shown per sample


@dataclass(frozen=True)
class TranslationFacts:
    """Facts that the files of the run do not hold; None if unknown."""

    model_type: str
    source_language: str
    target_language: str
    vocabulary_sizes: tuple[int, ...]  # one for both sides, or one each
    pairs: tuple[int, int, int] = (0, 0, 0)  # train, dev, test
    left_out: int = 0
    target_tokens: int | None = None  # of one time through the training pairs
    parameters: int | None = None
    seconds: float | None = None  # by the clock, evaluation and saving included
    peak_memory: int | None = None  # bytes
    resumed_from: tuple[int, ...] = ()  # steps
    judged: str = ""  # what the score is of: "test" or "dev"
    score: TranslationScore | None = None
    weights: str = ""  # which were kept


def translation_page(run: Path, facts: TranslationFacts) -> RunPage:
    log = read_run(run)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase("Translation report", "翻译训练报告"),
        facts=tuple(_facts(log, facts)),
        notices=tuple(_notices(log, facts)),
        figures=tuple(_figures(log, facts)),
        sections=tuple(_sections(log, facts)),
    )


def _facts(log: RunLog, facts: TranslationFacts) -> Iterator[Words]:
    yield f"{facts.source_language} → {facts.target_language}"
    yield _NAMES.get(facts.model_type, facts.model_type)
    if facts.parameters:
        yield parameter_count(facts.parameters)
    sizes = " + ".join(f"{one:,}" for one in facts.vocabulary_sizes)
    yield Phrase(f"vocabulary {sizes}", f"词表 {sizes}")
    yield Phrase(f"{log.last_step:,} steps", f"{log.last_step:,} 步")
    if facts.seconds is not None:
        yield duration(facts.seconds)


def _notices(log: RunLog, facts: TranslationFacts) -> Iterator[Words]:
    yield from log.notices()
    if facts.score is not None and facts.score.bleu is None:
        yield Phrase(
            "BLEU and chrF were not computed: sacrebleu is not installed (pip install 'qkv[translate]').",
            "没有计算 BLEU 和 chrF：未安装 sacrebleu（pip install 'qkv[translate]'）。",
        )
    if facts.score is not None and facts.score.unfinished:
        n = facts.score.unfinished
        yield Phrase(
            f"{n:,} translations are unfinished at the maximum length.",
            f"有 {n:,} 条译文达到最大长度时仍未结束。",
        )


def _figures(log: RunLog, facts: TranslationFacts) -> Iterator[Figure]:
    score = facts.score
    if score is not None:
        what = Phrase(
            f"{facts.judged}, {score.pairs:,} pairs",
            f"{'测试集' if facts.judged == 'test' else '验证集'}，{score.pairs:,} 对",
        )
        for found in (score.bleu, score.chrf):
            if found is not None and math.isfinite(found.value):
                interval = (found.low, found.high) if math.isfinite(found.low) else None
                note = Phrase(f"{what.en}; {found.signature}", f"{what.zh}；{found.signature}")
                yield Figure(found.name, f"{found.value:.1f}", note, Gauge(0, 100, found.value, interval))
        yield Figure(
            Phrase("Exactly the reference", "与参考译文完全相同"), percent(score.exact), what, Gauge(0, 1, score.exact)
        )
    losses = log.evaluated("next_loss")
    if losses and math.isfinite(losses[-1][1]):
        unsure = perplexity(min(loss for _, loss in losses))
        shown = f"{unsure:,.1f}" if unsure < 1000 else f"{unsure:,.0f}"
        yield Figure(
            Phrase("Perplexity", "困惑度"),
            shown,
            Phrase(
                f"dev, at its lowest: as unsure as among {shown} equally likely tokens",
                f"验证集，最低时：相当于在 {shown} 个同样可能的词元中猜",
            ),
        )


def _sections(log: RunLog, facts: TranslationFacts) -> Iterator[Section]:
    if log.steps:
        if found := tuple(loss_remarks(log, "plain_loss", "next_loss")):
            yield Remarks(Phrase("Remarks", "结果分析"), found)
        yield Charts(Phrase("Curves", "曲线"), tuple(_curves(log, facts)))
    if facts.score is not None and len(facts.score.by_length) > 1 and facts.score.bleu is not None:
        yield _by_length(facts.score)
    if samples := tuple(_samples(log)):
        yield Translations(Phrase("Translations during training", "训练过程中的译文"), samples)
    rate = Phrase("Target tokens per second (median)", "每秒目标词元数（中位数）")
    speed = list(speed_rows(log, rate, Phrase("Epochs (about)", "训练轮数（约）"), facts.target_tokens))
    if facts.weights:
        speed.append((Phrase("Saved weights", "保存的权重"), facts.weights))
    speed += cost_rows(facts.seconds, facts.peak_memory)
    if speed:
        yield Table(Phrase("Performance", "速度与内存"), tuple(speed))
    names = (Phrase("Training set", "训练集"), Phrase("Development set", "验证集"), Phrase("Test set", "测试集"))
    rows: list[tuple[Words, ...]] = [(name, count(n)) for name, n in zip(names, facts.pairs, strict=True) if n]
    if facts.left_out:
        rows.append((Phrase("Dropped (faults.jsonl)", "丢弃（见 faults.jsonl）"), count(facts.left_out)))
    yield Table(Phrase("Data", "数据"), tuple(rows))
    if log.config.strip():
        yield Settings(Phrase("Settings", "配置"), log.config)


def _by_length(score: TranslationScore) -> BarTable:
    values = [one.bleu for one in score.by_length if one.bleu is not None]
    most = max([*values, 1.0])
    rows = tuple(
        (
            f"{one.first}–{one.last}" if one.first != one.last else str(one.first),
            Bar(one.bleu / most, f"{one.bleu:.1f}") if one.bleu is not None else "",
            f"{one.pairs:,}",
        )
        for one in score.by_length
    )
    return BarTable(
        Phrase("BLEU by source length", "BLEU 与原文长度"),
        (Phrase("words of the source", "原文词数"), "BLEU", Phrase("pairs", "句对数")),
        rows,
        Phrase(
            "Chinese is counted by character. BLEU of few pairs is unreliable.", "中文按字计。句对太少时，BLEU 不可靠。"
        ),
    )


def _curves(log: RunLog, facts: TranslationFacts) -> Iterator[Chart]:
    seams = tuple(float(step) for step in facts.resumed_from)
    yield Chart(
        Phrase("Loss of the next token, without smoothing", "下一词元的损失（不含标签平滑）"),
        pair_series(log, "plain_loss", "next_loss", DEV),
        levels=loss_levels(facts.vocabulary_sizes[-1]),
        seams=seams,
        shape="wide",
    )
    for key, title in (
        ("bleu", Phrase("BLEU on dev, greedy", "验证集 BLEU（贪心解码）")),
        ("exact", Phrase("Exactly the reference", "与参考译文完全相同的比例")),
    ):
        if points := log.evaluated(key):
            kind = "percent" if key == "exact" else "number"
            yield Chart(
                title,
                (Series(DEV, points, "evaluation", dots=True),),
                seams=seams,
                format=kind,
                from_zero=True,
            )
    yield Chart(
        Phrase("Next-token accuracy", "下一词元的准确率"),
        pair_series(log, "plain_accuracy", "next_accuracy", DEV),
        seams=seams,
        format="percent",
        from_zero=True,
    )
    yield chart_gradient_norm(log, seams)
    yield chart_learning_rate(log, seams)


@dataclass(frozen=True)
class Translated:
    """A source, its reference, and translations at several steps."""

    source: str
    reference: str
    found: tuple[tuple[Words, str], ...]  # when, and what


@dataclass(frozen=True)
class Translations:
    title: Words
    samples: tuple[Translated, ...]
    narrow: ClassVar[bool] = False
    style: ClassVar[str] = (
        ".translations article { margin: 0 0 12px; padding: 12px 20px; background: var(--paper); border-radius: 14px; "
        "box-shadow: var(--shadow); overflow-wrap: anywhere } .translations p { margin: 4px 0 } "
        ".translations b { display: inline-block; min-width: 7em; font-weight: normal; opacity: .65 }"
    )

    def html(self) -> str:
        return f'<div class="translations">{"".join(map(self._card, self.samples))}</div>'

    @staticmethod
    def _card(sample: Translated) -> str:
        lines: list[tuple[Words, str]] = [(Phrase("source", "原文"), sample.source)]
        lines += [(Phrase("reference", "参考译文"), sample.reference), *sample.found]
        return f"<article>{''.join(f'<p><b>{spans(name)}</b> {safe(text)}</p>' for name, text in lines)}</article>"


def _samples(log: RunLog) -> Iterator[Translated]:
    """Yield the samples of the last evaluation, with their translations then and at earlier steps."""
    found = [(step, _by_source(result)) for step, result in log.evaluations if isinstance(result.get("samples"), list)]
    if not found:
        return
    places = sorted({round((len(found) - 1) * (time / _SHOWN_TIMES) ** 2) for time in range(_SHOWN_TIMES + 1)})
    for source, last in found[-1][1].items():
        times = tuple(
            (Phrase(f"step {found[place][0]:,}", f"第 {found[place][0]:,} 步"), found[place][1][source][1])
            for place in places
            if source in found[place][1]
        )
        yield Translated(source, last[0], times)


def _by_source(result: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    keys = ("source", "reference", "translation")
    return {
        str(one["source"]): (str(one["reference"]), str(one["translation"]))
        for one in result["samples"]
        if isinstance(one, dict) and all(key in one for key in keys)
    }
