"""The report page of `qkv train embed`: figures before and after, and the curves of log.jsonl."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.report.bilingual import Phrase, Words, count, duration, parameter_count
from qkv.report.charts import Chart, Level, Series
from qkv.report.page import Charts, Figure, Gauge, Remarks, RunPage, Section, Settings, Table
from qkv.report.remarks import WARNING, Remark
from qkv.report.run_log import (
    RunLog,
    chart_gradient_norm,
    chart_learning_rate,
    cost_rows,
    loss_remarks,
    read_run,
    speed_rows,
)
from qkv.report.tables import BarTable
from qkv.tasks.embed import SetScore

FEW_ROWS = 20
"""A set with fewer is remarked upon."""


@dataclass(frozen=True)
class EmbedFacts:
    """Facts that the files of the run do not hold."""

    model: str
    teacher: str | None
    rows: Mapping[str, Mapping[str, Mapping[str, Any]]]  # part → file → kind and rows
    left_out: int = 0
    tokens: int | None = None  # of one time through the training files
    parameters: int | None = None
    seconds: float | None = None
    peak_memory: int | None = None
    resumed_from: tuple[int, ...] = ()
    after: Mapping[str, Mapping[str, SetScore]] = field(default_factory=dict)  # part → file → figures
    before: Mapping[str, Mapping[str, SetScore]] = field(default_factory=dict)
    narrow: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)  # width → part → file


_FIGURES = {
    "spearman": Phrase("Spearman", "Spearman 相关"),
    "mrr": Phrase("Mean reciprocal rank, both directions", "平均倒数排名（双向）"),
    "cosine": Phrase("Cosine with the teacher", "与教师向量的余弦"),
    "accuracy_at_1_forward": Phrase("First hit, first → second text", "首位命中，第一句 → 第二句"),
    "accuracy_at_1_back": Phrase("First hit, second → first text", "首位命中，第二句 → 第一句"),
}
_PARTS = {"train": Phrase("training", "训练集"), "dev": Phrase("dev", "验证集"), "test": Phrase("test", "测试集")}
_KIND_WORDS = {
    "texts": Phrase("texts", "单句"),
    "pairs": Phrase("pairs", "文本对"),
    "triplets": Phrase("triplets", "三元组"),
    "scores": Phrase("scored pairs", "带分数的文本对"),
    "translations": Phrase("translations", "翻译对"),
}
_TERMS = {
    "pairs": Phrase("pairs (InfoNCE)", "文本对（InfoNCE）"),
    "scores": Phrase("scores (CoSENT)", "分数（CoSENT）"),
    "teacher": Phrase("teacher (1 − cosine)", "教师（1 − 余弦）"),
}


def embed_page(run: Path, facts: EmbedFacts) -> RunPage:
    log = read_run(run)
    described: list[Words] = [facts.model]
    described += [Phrase(f"teacher {facts.teacher}", f"教师 {facts.teacher}")] if facts.teacher else []
    described += [parameter_count(facts.parameters)] if facts.parameters else []
    described.append(Phrase(f"{log.last_step:,} steps", f"{log.last_step:,} 步"))
    described += [duration(facts.seconds)] if facts.seconds is not None else []
    return RunPage(
        title=run.resolve().name,
        kind=Phrase("Sentence vectors: training report", "句向量训练报告"),
        facts=tuple(described),
        notices=tuple(log.notices()),
        figures=tuple(_figures(facts)),
        sections=tuple(_sections(log, facts)),
    )


def _figures(facts: EmbedFacts) -> Iterator[Figure]:
    for part in ("test", "dev"):
        for name, score in facts.after.get(part, {}).items():
            before = facts.before[part][name].value
            note = Phrase(
                f"{name}, {_PARTS[part].en}, {score.n:,} rows; before training {before:.3f}",
                f"{name}，{_PARTS[part].zh}，{score.n:,} 行；训练前 {before:.3f}",
            )
            marks = ((before, Phrase("before", "训练前")),)
            gauge = Gauge(min(0.0, before), 1, score.value, score.intervals.get(score.main), marks)
            yield Figure(_FIGURES[score.main], f"{score.value:.3f}", note, gauge)


def _few_rows(facts: EmbedFacts) -> Iterator[Remark]:
    """One remark, on the smallest of the sets."""
    fewest = min((score.n for sets in facts.after.values() for score in sets.values()), default=FEW_ROWS)
    if fewest < FEW_ROWS:
        yield Remark(
            WARNING,
            Phrase(
                f"{fewest} row{' is' if fewest == 1 else 's are'} few to judge by: with others the figures may be "
                "quite different.",
                f"只有 {fewest} 行用来评判，偏少：换一些行，数值可能相差很大。",
            ),
        )


def _sections(log: RunLog, facts: EmbedFacts) -> Iterator[Section]:
    if log.steps:
        if found := (*_few_rows(facts), *loss_remarks(log, "loss", "loss")):
            yield Remarks(Phrase("Remarks", "结果分析"), found)
        yield Charts(Phrase("Curves", "曲线"), tuple(_curves(log, facts)))
    if facts.after:
        yield _score_table(facts)
    rate = Phrase("Tokens per second (median)", "每秒词元数（中位数）")
    speed = list(speed_rows(log, rate, Phrase("Epochs (about)", "训练轮数（约）"), facts.tokens))
    speed += cost_rows(facts.seconds, facts.peak_memory)
    if speed:
        yield Table(Phrase("Performance", "速度与内存"), tuple(speed))
    rows: list[tuple[Words, ...]] = [
        (
            Phrase(f"{name}, {_PARTS[part].en}", f"{name}，{_PARTS[part].zh}"),
            _KIND_WORDS[one["kind"]],
            count(one["rows"]),
        )
        for part, files in facts.rows.items()
        for name, one in files.items()
    ]
    if facts.left_out:
        rows.append((Phrase("Dropped (faults.jsonl)", "略去（见 faults.jsonl）"), "", count(facts.left_out)))
    yield Table(Phrase("Data", "数据"), tuple(rows))
    if log.config.strip():
        yield Settings(Phrase("Settings", "配置"), log.config)


def _score_table(facts: EmbedFacts) -> BarTable:
    """Every figure before and after; then the main ones of shorter vectors."""
    rows: list[tuple[Words, ...]] = []
    for part, sets in facts.after.items():
        for name, score in sets.items():
            for key in (key for key in _FIGURES if key in score.values):
                between = " – ".join(f"{end:.3f}" for end in score.intervals.get(key, ()))
                before = f"{facts.before[part][name].values[key]:.3f}"
                label = Phrase(f"{name} ({part}, rows: {score.n:,})", f"{name}（{part}，{score.n:,} 行）")
                rows.append((label, _FIGURES[key], before, f"{score.values[key]:.3f}", between))
            for width, found in facts.narrow.items():
                shorter = Phrase(f"the first {width} numbers", f"只用前 {width} 维")
                rows.append((f"{name} ({part})", shorter, "", f"{found[part][name]:.3f}", ""))
    headings = (
        *(Phrase("set", "数据集"), Phrase("figure", "指标"), Phrase("before", "训练前"), Phrase("after", "训练后")),
        "95 %",
    )
    return BarTable(Phrase("Before and after", "训练前后"), headings, tuple(rows))


def _curves(log: RunLog, facts: EmbedFacts) -> Iterator[Chart]:
    seams = tuple(float(step) for step in facts.resumed_from)
    for term, title in _TERMS.items():
        if points := log.logged(f"{term}_loss"):
            loss = Phrase(f"Loss of {title.en}", f"损失：{title.zh}")
            yield Chart(loss, (Series(_PARTS["train"], points, smooth=True),), seams=seams)
    for key in log.evaluations[0][1] if log.evaluations else ():
        name, _, figure = key.rpartition(": ")
        points = log.evaluated(key)
        if figure in _FIGURES and len(points) > 1:
            title = Phrase(f"{_FIGURES[figure].en}: {name}", f"{_FIGURES[figure].zh}：{name}")
            level = Level(points[0][1], Phrase("before training", "训练前"))
            curve = Series(_PARTS["dev"], points, "evaluation", dots=True)
            yield Chart(title, (curve,), levels=(level,), seams=seams)
    yield chart_gradient_norm(log, seams)
    yield chart_learning_rate(log, seams)
