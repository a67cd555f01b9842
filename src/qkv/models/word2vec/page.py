"""The report of a word2vec run: its curves, and a map of its most frequent words.

On the map (`WordMap`, inline SVG without a script) words are placed in the order of their frequency. A word that would
overlap a more frequent one is drawn as a dot with a tooltip. All input is plain data: what the run's files do not say
(the corpus, the machine, the positions of the words) comes as `VectorFacts`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unicodedata import east_asian_width

from qkv.report import remarks
from qkv.report.bilingual import Phrase, Words, count, duration, percent, safe, size, spans
from qkv.report.charts import Chart, Level, Series
from qkv.report.page import Answers, Charts, Figure, Gauge, Remarks, RunPage, Sample, Samples, Section, Settings, Table
from qkv.report.remarks import Remark
from qkv.report.run_log import (
    EVALUATION,
    TRAINING,
    RunLog,
    chart_learning_rate,
    choose_evaluations,
    number,
    pair_series,
    read_run,
)

WIDTH, HEIGHT = 1104, 640
MARGIN_X, MARGIN_Y = 48, 20
LINE, LETTER = 15.0, 7.2  # height of a word and width of a letter, at the size of letters that the page gives it


class PlacedWord(NamedTuple):
    word: str
    x: float
    y: float


class _Box(NamedTuple):
    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        beside = self.right < other.left or other.right < self.left
        return not (beside or self.bottom < other.top or other.bottom < self.top)


@dataclass(frozen=True)
class WordMap:
    title: Words
    words: tuple[PlacedWord, ...]  # the most frequent first
    note: Words = ""
    style: ClassVar[str] = ".chart .map circle { cursor: help } .chart .map text { stroke-width: 3px }"
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        known = [one for one in self.words if math.isfinite(one.x) and math.isfinite(one.y)]
        if not known:
            nothing = spans(Phrase("There is nothing to draw.", "没有可画的东西。"))
            return f'<p class="empty">{nothing}</p>'
        note = f'<p class="note">{spans(self.note)}</p>' if self.note else ""
        parts = list(_drawn(known))
        letters = [part for part in parts if part.startswith("<text")]  # over the dots, whatever came first
        dots = [part for part in parts if not part.startswith("<text")]
        return (
            '<figure class="chart wide map"><div class="plot">'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(dots + letters)}</svg></div>{note}</figure>'
        )


def _drawn(words: Sequence[PlacedWord]) -> Iterator[str]:
    across = _scale([one.x for one in words], MARGIN_X, WIDTH - MARGIN_X)
    up = _scale([one.y for one in words], HEIGHT - MARGIN_Y, MARGIN_Y)
    taken: list[_Box] = []
    for one, x, y in zip(words, across, up, strict=True):
        half = LETTER * cells(one.word) / 2 + 2
        box = _Box(x - half, x + half, y - LINE / 2, y + LINE / 2)
        if any(box.meets(other) for other in taken):
            name = f"<title>{safe(one.word)}</title>"
            yield f'<circle class="dot train faint" cx="{x:.1f}" cy="{y:.1f}" r="3">{name}</circle>'
            continue
        taken.append(box)
        yield f'<text class="level" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{safe(one.word)}</text>'


def _scale(values: Sequence[float], begin: float, end: float) -> list[float]:
    """Values as positions on the picture; all in the middle if they are equal."""
    low, high = min(values), max(values)
    if not high > low:
        return [(begin + end) / 2] * len(values)
    return [begin + (value - low) / (high - low) * (end - begin) for value in values]


def cells(word: str) -> float:
    """
    >>> cells("cat"), cells("猫")
    (3.0, 1.8)
    """
    return float(round(sum(1.8 if east_asian_width(letter) in "WF" else 1.0 for letter in word), 1))


# The report


@dataclass(frozen=True)
class VectorFacts:
    """Facts that the run's files do not hold; None if unknown."""

    words: int  # that have a vector
    width: int
    negatives: int
    architecture: str = "skipgram"
    chunks: int | None = None  # of the corpus
    running_words: int | None = None  # of the corpus, those that have a vector
    documents: int | None = None
    sentences: int | None = None
    seconds: float | None = None  # by the clock, evaluation and saving included
    peak_memory: int | None = None  # bytes
    resumed_from: tuple[int, ...] = ()  # steps
    map: tuple[PlacedWord, ...] = ()  # the most frequent words first
    map_shares: tuple[float, ...] = ()  # of the vectors' spread that the two directions of the map hold


def word2vec_page(run: Path, facts: VectorFacts) -> RunPage:
    log = read_run(run)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase("Report on word vectors", "词向量训练报告"),
        facts=tuple(_facts(log, facts)),
        notices=tuple(_notices(log)),
        figures=tuple(_figures(log, facts)),
        sections=tuple(_sections(log, facts)),
    )


def _facts(log: RunLog, facts: VectorFacts) -> Iterator[Words]:
    yield {"skipgram": "word2vec, skip-gram", "cbow": "word2vec, CBOW"}.get(facts.architecture, "word2vec")
    yield Phrase(f"{facts.words:,} words", f"{facts.words:,} 个词")
    yield Phrase(f"width {facts.width:,}", f"{facts.width:,} 维")
    yield Phrase(f"{log.last_step:,} chunks of text", f"{log.last_step:,} 块文本")
    if facts.seconds is not None:
        yield duration(facts.seconds)


def _notices(log: RunLog) -> Iterator[Words]:
    yield from log.notices(Phrase("chunk", "块"))
    if log.steps and not log.evaluated("loss"):
        yield Phrase("No text was held out: the loss is that of training.", "没有留出文本，这里给出的是训练损失。")


def _figures(log: RunLog, facts: VectorFacts) -> Iterator[Figure]:
    evaluated = [value for _, value in log.evaluated("loss") if math.isfinite(value)]
    loss = evaluated[-1] if evaluated else log.training_level("loss")
    source = EVALUATION if evaluated else TRAINING
    if loss is not None:
        blind = _blind(facts)
        yield Figure(
            Phrase("Loss", "损失"),
            f"{loss:.3f}",
            Phrase(
                f"nats to tell a word from {facts.negatives} others, {source.en}; lower is better",
                f"把一个词与另外 {facts.negatives} 个词区分开的纳特数，{source.zh}；越低越好",
            ),
            Gauge(
                0, 1.06 * max(blind, loss), loss, marks=((blind, Phrase(f"blind {blind:.2f}", f"瞎猜 {blind:.2f}")),)
            ),
        )
    if rate := log.median_rate():
        yield Figure(
            Phrase("Words per second", "每秒词数"),
            count(rate),
            Phrase("median over the run", "整个训练的中位数"),
        )
    if facts.chunks and facts.running_words is not None:
        yield Figure(
            Phrase("Times through the corpus", "遍历语料的次数"),
            f"{log.last_step / facts.chunks:.3g}",
            Phrase(f"of {facts.running_words:,} words", f"语料共 {facts.running_words:,} 个词"),
        )


def _blind(facts: VectorFacts) -> float:
    """The loss if every score is 0."""
    return (facts.negatives + 1) * math.log(2)


def _sections(log: RunLog, facts: VectorFacts) -> Iterator[Section]:
    if log.steps:
        if found := tuple(_remarks(log)):
            yield Remarks(Phrase("Remarks", "结果分析"), found)
        yield Charts(Phrase("Curves", "曲线"), tuple(_curves(log, facts)))
    if found_near := _neighbours(log):
        yield Samples(
            Phrase("Who a word's neighbours are", "谁是谁的近邻"),
            found_near,
            note=Phrase(
                f"The same words at several moments of the training, nearest words first. The share is the cosine of "
                f"the two vectors: {percent(1, 0)} is the same direction, {percent(0, 0)} a right angle.",
                f"训练中几个时刻同一些词的近邻，近的在前。百分数是两个向量的余弦："
                f"{percent(1, 0)} 是方向相同，{percent(0, 0)} 是互相垂直。",
            ),
        )
    if facts.map:
        yield WordMap(Phrase("A map of the most frequent words", "最常用词的地图"), facts.map, _map_note(facts))
    if speed := tuple(_speed(log, facts)):
        yield Table(Phrase("Performance", "训练开销"), speed)
    amounts = (
        (facts.documents, Phrase("Documents", "文档")),
        (facts.sentences, Phrase("Sentences", "句子")),
        (facts.running_words, Phrase("Words that have a vector", "有向量的词（按出现次数计）")),
        (facts.words, Phrase("different ones", "其中不同的词")),
    )
    if corpus := tuple((name, count(amount)) for amount, name in amounts if amount is not None):
        yield Table(Phrase("Corpus", "语料"), corpus)
    if log.config.strip():
        yield Settings(Phrase("Settings", "配置"), log.config)


def _map_note(facts: VectorFacts) -> Phrase:
    held = percent(sum(facts.map_shares))
    return Phrase(
        f"{len(facts.map):,} words by the two directions in which their vectors (of length 1) differ most: principal "
        f"components. These hold {held} of the spread, so that words which lie far apart here are different, and words "
        "which lie close need not be alike. Dots are words for whose letters there was no room: point at them.",
        f"{len(facts.map):,} 个词，按其向量（长度化为 1）差别最大的两个方向排开（主成分分析）。"
        f"这两个方向只含全部差别的 {held}：图上相距远的词确实不同，相距近的词却未必相似。"
        "圆点是写不下的词，把指针移上去即可看到。",
    )


def _remarks(log: RunLog) -> Iterator[Remark]:
    evaluated, training = log.evaluated("loss"), log.training_level("loss")
    last = evaluated[-1][1] if evaluated else None
    # nothing is dropped out here, and text that happens to be easier says nothing of the vectors
    easier = last is not None and training is not None and last < training - remarks.GAP
    found = (
        None if easier else remarks.training_and_evaluation(training, last),
        remarks.trend(log.logged("loss")),
        remarks.best_evaluation(evaluated),
    )
    yield from (remark for remark in found if remark is not None)


def _curves(log: RunLog, facts: VectorFacts) -> Iterator[Chart]:
    seams, blind = tuple(float(step) for step in facts.resumed_from), _blind(facts)
    yield Chart(
        Phrase("Loss", "损失"),
        pair_series(log, "loss"),
        levels=(
            Level(
                blind,
                Phrase(
                    f"{facts.negatives + 1} ln 2 = {blind:.2f}: every score is 0",
                    f"{facts.negatives + 1} ln 2 = {blind:.2f}：所有得分都是 0",
                ),
            ),
        ),
        seams=seams,
        shape="wide",
    )
    yield chart_learning_rate(log, seams)
    speed = Phrase("Words per second", "每秒词数")
    series = (Series(speed, log.timed("tokens_per_second"), fine=True),)
    yield Chart(speed, series, seams=seams, format="count", from_zero=True)


def _neighbours(log: RunLog) -> tuple[Sample, ...]:
    """The words of the last evaluation, with their neighbours then and at earlier steps."""
    found = [(step, _by_word(one["neighbours"])) for step, one in log.evaluations if "neighbours" in one]
    if not found:
        return ()
    shown = [found[place] for place in choose_evaluations(len(found))]
    return tuple(
        Sample(
            word,
            None,
            tuple(
                Answers(Phrase(f"step {step:,}", f"第 {step:,} 步"), near[word]) for step, near in shown if word in near
            ),
        )
        for word in found[-1][1]
    )


def _by_word(neighbours: Any) -> dict[str, tuple[tuple[str, float], ...]]:
    lines = [one for one in neighbours if isinstance(one, Mapping)] if isinstance(neighbours, list) else []
    return {
        str(one["word"]): tuple(
            (str(word), min(1.0, max(0.0, number(cosine))))
            for word, cosine in one["near"]
            if math.isfinite(number(cosine))
        )
        for one in lines
        if "word" in one and "near" in one
    }


def _speed(log: RunLog, facts: VectorFacts) -> Iterator[tuple[Words, ...]]:
    if rate := log.median_rate():
        yield Phrase("Words per second (median)", "每秒词数（中位数）"), f"{rate:,.0f}"
    kernel, threads = log.setting("train", "kernel"), log.setting("train", "threads")
    if isinstance(kernel, str) and isinstance(threads, int):
        yield Phrase("Kernel and threads", "核函数与线程数"), f"{kernel}, {threads}"
    if facts.seconds is not None:
        yield Phrase("Time in all", "总用时"), duration(facts.seconds)
    if facts.peak_memory is not None:
        yield Phrase("Peak memory", "内存峰值"), size(facts.peak_memory)
    if facts.resumed_from:
        yield Phrase("Resumed at steps", "续训于第几步"), ", ".join(f"{step:,}" for step in facts.resumed_from)
