"""The report of `qkv curve`: what was reached with fewer labels, and what more would bring, or that nobody can tell.

Every size was trained several times on other draws of the training file. The curve through them is a power law
(metrics/power_law.py); its predictions come with intervals, and where the points do not determine it the page says so.
"""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qkv.metrics.power_law import CurveFit, Prediction
from qkv.report.bars import Bar, BarTable, Cell
from qkv.report.bilingual import SPACE, Phrase, Words, duration, phrase
from qkv.report.page import Figure, Gauge, Notes, Remarks, RunPage, Section, Settings
from qkv.report.plane import Axis, Band, Dots, Layer, Line, Plane, Planes, Rule
from qkv.report.remarks import GOOD, NOTE, WARNING, Remark
from qkv.tasks.names import SHARE, Metric, find_metric, task_words

_WORTH = 0.01
"""What twice as many labels must bring at least to be worth the work: a point."""
NO_FIT_REASONS = {
    "few_sizes": Phrase("fewer than three sizes were measured", "测量的规模不足三种"),
    "few_points": Phrase("there are too few points to tell noise from a trend", "点太少，分不清波动与趋势"),
    "flat": Phrase("the scores do not rise by more than chance", "分数的上升没有超出偶然的范围"),
    "wide": Phrase("very different curves fit the points", "差别很大的几种曲线都能拟合这些点"),
}


@dataclass(frozen=True)
class CurveFacts:
    task: str
    kind: str
    model: str
    transfer: str
    main: str  # the metric
    source: str  # the training file
    available: int  # its labelled examples
    dev_examples: int
    points: tuple[tuple[int, tuple[float, ...]], ...]  # size, a score for every draw; sizes ascending
    fit: CurveFit
    baseline: tuple[Words, float] | None = None
    seconds: float | None = None
    notes: tuple[Words, ...] = ()
    config: str = ""


def curve_page(run: Path, facts: CurveFacts) -> RunPage:
    words = task_words(facts.task, facts.kind)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase(f"Learning curve: {words.name.en}", f"学习曲线：{words.name.zh}"),
        facts=tuple(_fact_lines(facts)),
        figures=tuple(_figures(facts)),
        sections=tuple(_sections(facts)),
    )


def _fact_lines(facts: CurveFacts) -> Iterator[Words]:
    words = task_words(facts.task, facts.kind)
    if facts.model:
        yield facts.model
    n = words.of(facts.available)
    yield Phrase(f"{n.en} labelled", f"{n.zh}有标注")
    runs = sum(len(scores) for _, scores in facts.points)
    yield Phrase(f"{runs:,} training{'' if runs == 1 else 's'}", f"训练 {runs:,} 次")
    if facts.seconds is not None:
        yield duration(facts.seconds)


def mean_score(scores: tuple[float, ...]) -> float:
    known = [score for score in scores if math.isfinite(score)]
    return statistics.fmean(known) if known else math.nan


def _largest(facts: CurveFacts) -> tuple[int, float] | None:
    """The largest size that has a score, and its mean."""
    known = [(n, mean_score(scores)) for n, scores in facts.points if math.isfinite(mean_score(scores))]
    return known[-1] if known else None


def _figures(facts: CurveFacts) -> Iterator[Figure]:
    what, words = find_metric(facts.main), task_words(facts.task, facts.kind)
    last = _largest(facts)
    if last is None:
        return
    n, score = last
    marks: tuple[tuple[float, Words], ...] = ()
    if facts.baseline is not None and math.isfinite(facts.baseline[1]):
        shown = what.shown(facts.baseline[1])
        marks = ((facts.baseline[1], Phrase(f"baseline {shown}", f"基线 {shown}")),)
    of = words.of(n)
    yield Figure(
        Phrase(f"{what.name.en} with {of.en}", f"用 {of.zh}，{what.name.zh}"),
        what.shown(score),
        Phrase(
            f"The mean of the draws, on {words.of(facts.dev_examples).en} of dev.",
            f"各次抽取的平均，在验证集的 {words.of(facts.dev_examples).zh}上。",
        ),
        Gauge(min(0.0, score), 1.0, score, marks=marks),
    )
    for one in facts.fit.predictions[:3]:
        times = one.n / n
        yield Figure(
            Phrase(f"With {times:.3g} × as many ({one.n:,})", f"若标注增到 {times:.3g} 倍（{one.n:,}）"),
            what.shown(one.score),
            Phrase(
                f"Expected; 95{SPACE}% interval {what.shown(one.low)} to {what.shown(one.high)}.",
                f"预计值；95{SPACE}% 区间 {what.shown(one.low)} 至 {what.shown(one.high)}。",
            ),
            Gauge(min(0.0, one.low), 1.0, one.score, (one.low, one.high), ((score, Phrase("now", "现在")),)),
        )


def _sections(facts: CurveFacts) -> Iterator[Section]:
    remarks = tuple(
        remark
        for remark in (remark_more_labels(facts), remark_rising(facts), remark_spread(facts))
        if remark is not None
    )
    if remarks:
        yield Remarks(Phrase("What the numbers say", "这些数字说明什么"), remarks)
    if any(math.isfinite(score) for _, scores in facts.points for score in scores):
        yield Planes(Phrase("The curve", "曲线"), (_plane(facts),))
        yield _table(facts)
    if facts.notes:
        yield Notes(Phrase("Chosen by itself", "自动选择"), facts.notes)
    if facts.config.strip():
        yield Settings(Phrase("Settings", "配置"), facts.config)


def remark_more_labels(facts: CurveFacts) -> Remark | None:
    """Whether twice as many labels would bring `WORTH`: yes, no, perhaps, or that the data cannot say."""
    last = _largest(facts)
    what, words = find_metric(facts.main), task_words(facts.task, facts.kind)
    if last is None:
        return None
    if facts.fit.law is None or not facts.fit.predictions:
        why = NO_FIT_REASONS.get(facts.fit.reason, phrase(facts.fit.reason or "?"))
        return Remark(
            WARNING if facts.fit.reason != "flat" else NOTE,
            Phrase(
                f"How many more labels would help, this data cannot say: {why.en}.",
                f"再多标注能有多大帮助，这份数据说不准：{why.zh}。",
            ),
        )
    one = facts.fit.predictions[0]
    gain = (one.score - last[1], one.low - last[1], one.high - last[1])
    missing = max(0, one.n - last[0])
    more = Phrase(f"{missing:,} more {words.many.en}", words.of(missing).zh)
    figures_en = f"from {what.shown(last[1])} to about {what.shown(one.score)} ({_between(what, one)})"
    figures_zh = f"从 {what.shown(last[1])} 升到约 {what.shown(one.score)}（{_between(what, one)}）"
    if gain[1] >= _WORTH:
        return Remark(
            GOOD,
            Phrase(
                f"More labels help: {more.en} would bring {what.plain} {figures_en}.",
                f"多标注有用：再标 {more.zh}，{what.zh}可{figures_zh}。",
            ),
        )
    if gain[2] < _WORTH:
        return Remark(
            NOTE,
            Phrase(
                f"More labels of this kind hardly help: {more.en} would bring {what.plain} {figures_en}. Cleaner "
                "labels or a better model would do more.",
                f"再多这样的标注帮助不大：再标 {more.zh}，{what.zh}只{figures_zh}。改进标注质量或换更好的模型更有用。",
            ),
        )
    return Remark(
        NOTE,
        Phrase(
            f"More labels may help: {more.en} would bring {what.plain} {figures_en}.",
            f"多标注可能有用：再标 {more.zh}，{what.zh}预计{figures_zh}。",
        ),
    )


def _between(what: Metric, one: Prediction) -> str:
    return f"{what.shown(one.low)} – {what.shown(one.high)}"


def remark_rising(facts: CurveFacts) -> Remark | None:
    """What the last doubling brought, as measured: nothing is extrapolated here."""
    known = [(n, mean_score(scores)) for n, scores in facts.points if math.isfinite(mean_score(scores))]
    last = known[-1] if known else (0, math.nan)
    half = [(n, score) for n, score in known if 0.35 * last[0] <= n <= 0.7 * last[0]]
    if not half:
        return None
    n, score = min(half, key=lambda point: abs(point[0] - last[0] / 2))
    what, words = find_metric(facts.main), task_words(facts.task, facts.kind)
    by = what.change(last[1] - score)
    up = last[1] >= score
    return Remark(
        NOTE,
        Phrase(
            f"As measured, going from {n:,} to {words.of(last[0]).en} {'brought' if up else 'cost'} {by.en}.",
            f"实测：从 {n:,} 增加到 {words.of(last[0]).zh}，{'提高' if up else '降低'} {by.zh}。",
        ),
    )


def remark_spread(facts: CurveFacts) -> Remark | None:
    """How far equal sizes differ by the draw alone."""
    what = find_metric(facts.main)
    several = [(n, scores) for n, scores in facts.points if len(scores) > 1 and all(map(math.isfinite, scores))]
    if len(several) < 2:
        return None
    n, scores = several[0]
    first, last = what.change(statistics.stdev(scores)), what.change(statistics.stdev(several[-1][1]))
    return Remark(
        NOTE,
        Phrase(
            f"Which examples are drawn matters: equal sizes differ by {first.en} at {n:,} and by {last.en} at "
            f"{several[-1][0]:,} (standard deviation).",
            f"抽到哪些样本也有影响：规模同为 {n:,} 条时标准差为 {first.zh}，{several[-1][0]:,} 条时为 {last.zh}。",
        ),
    )


def _plane(facts: CurveFacts) -> Plane:
    what, words = find_metric(facts.main), task_words(facts.task, facts.kind)
    every = tuple((float(n), score) for n, scores in facts.points for score in scores)
    means = tuple((float(n), mean_score(scores)) for n, scores in facts.points)
    layers: list[Layer] = []
    law, predictions = facts.fit.law, facts.fit.predictions
    low = min(n for n, _ in every)
    if law is not None:
        last = max(n for n, _ in every)
        if predictions:
            begin = (last, law(last), law(last))
            band = tuple((float(one.n), one.low, one.high) for one in predictions)
            layers.append(Band(Phrase(f"95{SPACE}% interval", f"95{SPACE}% 区间"), (begin, *band), "good"))
        end = float(max([one.n for one in predictions] + [last]))
        steps = [low * (end / low) ** (place / 60) for place in range(61)]
        name = Phrase("fitted", "拟合曲线")
        layers.append(Line(name, tuple((n, law(n)) for n in steps), "good", dashed=True, read=False))
    if facts.available > low:
        layers.append(Rule(Phrase("all there is", "现有全部"), x=float(facts.available)))
    ends = [score for _, score in every if math.isfinite(score)]
    ends += [end for one in predictions for end in (one.low, one.high)]
    # far below all points it would only flatten them
    if facts.baseline is not None and facts.baseline[1] > min(ends) - 0.5 * (max(ends) - min(ends)):
        layers.append(Rule(Phrase("baseline", "基线"), y=facts.baseline[1]))
    layers += [
        Dots(Phrase("single draws", "单次抽取"), every, "other", faint=True, read=False),
        Dots(Phrase("mean", "平均"), means, "evaluation", joined=law is None),
    ]
    if predictions:
        layers.append(
            Dots(
                Phrase("expected", "预计"),
                tuple((float(one.n), one.score) for one in predictions),
                "good",
                intervals=tuple((one.low, one.high) for one in predictions),
            )
        )
    highest = 1.0 if what.kind == SHARE and max(ends) > 0.93 else None
    return Plane(
        Phrase(f"{what.name.en} and the number of labels", f"{what.zh}与标注数量"),
        Axis(Phrase(f"labelled {words.many.en}", f"有标注的{words.one.zh}数"), "count", log=True),
        Axis(what.name, "percent" if what.kind == SHARE else "number", high=highest),
        tuple(layers),
        shape="wide",
        note=Phrase(
            "To the right every step is a multiple: the axis is logarithmic. The interval holds what the draw of the "
            "training examples does by chance, not that dev is itself a sample.",
            "横轴是对数的：每一格是倍数。区间只包含抽取训练样本的偶然性，不包含验证集本身也是抽样这一点。",
        ),
    )


def _table(facts: CurveFacts) -> BarTable:
    what = find_metric(facts.main)
    rows: list[tuple[Cell, ...]] = []
    for n, scores in facts.points:
        known = [score for score in scores if math.isfinite(score)]
        deviation = what.change(statistics.stdev(known)) if len(known) > 1 else phrase("–")
        rows.append((f"{n:,}", Bar(mean_score(scores), what.shown(mean_score(scores))), deviation, f"{len(scores):,}"))
    for one in facts.fit.predictions:
        bar = Bar(one.score, what.shown(one.score), "good", (one.low, one.high))
        rows.append((Phrase(f"{one.n:,} (expected)", f"{one.n:,}（预计）"), bar, "–", "–"))
    headings = (
        Phrase("labels", "标注数"),
        what.name,
        Phrase("standard deviation", "标准差"),
        Phrase("draws", "抽取次数"),
    )
    return BarTable(Phrase("Size by size", "各规模得分"), headings, tuple(rows))
