"""Learning curves: short fine-tunings on growing shares of the training set, a power law through them, and the report.

Every point is evaluated on the same development set, by its best evaluation. The power law (metrics/power_law.py)
predicts scores for more labels with intervals; the page says so if the points do not determine it.

RUN/config.toml    the resolved settings; a resumed run reads nothing else
RUN/points.jsonl   one line per finished point
RUN/report.html    the curve as a page, rewritten after every point
RUN/result.json    the figures; written last, so it exists only for a finished run
"""

import math
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.data.batch import Integers
from qkv.data.corpus.shards import ranges
from qkv.errors import InputError
from qkv.files import to_json, write_text
from qkv.jobs.finetune.data import check_data_unchanged, count_labels, pin_data, read_data
from qkv.jobs.finetune.settings import FinetuneConfig, choose_epochs, is_scratch, reopen_model, start_model
from qkv.jobs.finetune.training import Prepared, build_trainer, compute_vectors, prepare_examples, resolve_data_defaults
from qkv.jobs.lifecycle import Lifecycle
from qkv.metrics.power_law import CurveFit, Prediction, fit_power_law
from qkv.report.bilingual import SPACE, Phrase, Words, duration, phrase
from qkv.report.page import Figure, Gauge, Notes, Remarks, RunPage, Section, Settings, write_report
from qkv.report.plane import Axis, Band, Dots, Layer, Line, Plane, Planes, Rule
from qkv.report.remarks import GOOD, NOTE, WARNING, Remark
from qkv.report.run_log import read_run
from qkv.report.tables import Bar, BarTable, TableCell
from qkv.tasks.baselines import score_constant
from qkv.tasks.predictor import Vectors
from qkv.tasks.table import SHARE, Metric, find_metric, task_words
from qkv.tasks.task import Features
from qkv.tasks.texts import BEFORE_POOLING
from qkv.train.device import device_named
from qkv.train.log import Progress, Silent
from qkv.train.run_folder import Outcome, add_line, read_lines

_WORTH = 0.01
"""Minimum gain from twice as many labels that is worth the work: one point."""
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
    """Return the largest size that has a score, and its mean."""
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
        yield Remarks(Phrase("Remarks", "结果分析"), remarks)
    if any(math.isfinite(score) for _, scores in facts.points for score in scores):
        yield Planes(Phrase("Learning curve", "学习曲线"), (_plane(facts),))
        yield _table(facts)
    if facts.notes:
        yield Notes(Phrase("Default choices", "自动选择的设置"), facts.notes)
    if facts.config.strip():
        yield Settings(Phrase("Settings", "配置"), facts.config)


def remark_more_labels(facts: CurveFacts) -> Remark | None:
    """Say whether twice as many labels would gain `_WORTH`: yes, no, perhaps, or undetermined."""
    last = _largest(facts)
    what, words = find_metric(facts.main), task_words(facts.task, facts.kind)
    if last is None:
        return None
    if facts.fit.law is None or not facts.fit.predictions:
        why = NO_FIT_REASONS.get(facts.fit.reason, phrase(facts.fit.reason or "?"))
        return Remark(
            WARNING if facts.fit.reason != "flat" else NOTE,
            Phrase(
                f"The gain from more labels cannot be estimated: {why.en}.",
                f"无法估计增加标注的收益：{why.zh}。",
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
    """Report the measured gain of the last doubling, without extrapolation."""
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
    """Report the standard deviation between draws of equal size."""
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
    # a baseline far below all points would flatten them
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
            "The horizontal axis is logarithmic. The interval covers the random draw of the training examples, not the "
            "sampling of the development set.",
            "横轴为对数刻度。区间只反映训练样本抽取的随机性，不包括验证集本身的抽样误差。",
        ),
    )


def _table(facts: CurveFacts) -> BarTable:
    what = find_metric(facts.main)
    rows: list[tuple[TableCell, ...]] = []
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
    return BarTable(Phrase("Results by size", "各规模得分"), headings, tuple(rows))


# Sampling: a draw is an order of all examples, and a size is a prefix of it, so the sizes of a draw are nested. The
# order is stratified by label and starts with one example of every label, so that no size lacks a label.

_FEWEST = 8
"""Minimum number of examples of a point."""


def sample_sizes(shares: Sequence[float], available: int, labels: int) -> tuple[int, ...]:
    """Return the distinct sizes of the shares, each at least one example per label.

    >>> sample_sizes((0.1, 0.5, 1.0), 200, 3), sample_sizes((0.1, 0.5, 1.0), 200, 77)
    ((20, 100, 200), (77, 100, 200))
    """
    least = max(labels, _FEWEST)
    return tuple(sorted({min(available, max(least, round(share * available))) for share in shares}))


def draw_order(labels: Sequence[Sequence[str]], seed: int, draw: int) -> Integers:
    """Return (n,) the indices of the examples in an order whose prefixes are stratified by label.

    >>> order = draw_order([["a"]] * 90 + [["b"]] * 9 + [["c"]], seed=0, draw=0)
    >>> sorted(number // 90 for number in order[:20].tolist()).count(1)
    3
    """
    chance = np.random.default_rng(np.random.SeedSequence((seed, draw, 6)))
    shuffled = chance.permutation(len(labels))
    strata = [" ".join(sorted(set(found))) for found in labels]
    counts: dict[str, int] = {}
    for name in strata:
        counts[name] = counts.get(name, 0) + 1
    seen: set[str] = set()
    ranks = dict.fromkeys(counts, 0)
    places = np.empty(len(labels))
    for number, luck in zip(shuffled.tolist(), chance.random(len(labels)).tolist(), strict=True):
        name = strata[number]
        # the first example of each label comes before all others
        new = not seen.issuperset(labels[number])
        seen.update(labels[number])
        places[number] = luck - 1 if new else (ranks[name] + luck) / counts[name]
        ranks[name] += 1
    return np.argsort(places, kind="stable")


# Points: examples are prepared once for the whole curve, with all labels known. With transfer "features" the vectors of
# the encoder are computed once too, and a point only trains a head.

_SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)


@dataclass(frozen=True)
class CurveConfig:
    shares: tuple[float, ...] = _SHARES  # of the training examples
    draws: int = 3  # of every share
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise InputError(f"shares are above 0 and at most 1, such as 0.1,0.3,1, unlike {list(self.shares)}.")
        if self.draws < 1:
            raise InputError(f"draws must be at least 1, not {self.draws}.")
        if self.finetune.train.minutes is not None:
            raise InputError("A curve has no time budget: give --epochs instead of train.minutes.")
        if self.finetune.seeds != 1:
            raise InputError("Every draw of a curve has its own seed: give --draws instead of seeds.")


@dataclass(frozen=True)
class CurvePoint:
    n: int
    draw: int


@dataclass(frozen=True)
class CurvePlan:
    """The points of a curve, and what they share."""

    config: CurveConfig
    prepared: Prepared
    points: tuple[CurvePoint, ...]
    orders: tuple[Integers, ...]  # of the examples, one per draw
    vectors: Vectors | None  # of all training examples, with transfer "features"

    @property
    def task(self) -> Any:
        return self.prepared.task


def plan_curve(
    config: CurveConfig, prepared: Prepared, out: Path, device: torch.device, tell: Callable[[str], None]
) -> CurvePlan:
    examples = prepared.data.train.examples
    labels = _labels(prepared)
    distinct = len({label for found in labels for label in found})
    # draw by draw, so that an unfinished curve has all sizes
    numbers = sample_sizes(config.shares, len(examples), distinct)
    points = tuple(CurvePoint(n, draw) for draw in range(config.draws) for n in numbers)
    seed = config.finetune.train.seed
    orders = tuple(draw_order(labels, seed, draw) for draw in range(config.draws))
    vectors = None
    if prepared.transfer.cached:
        # once for all points; a point does not run the encoder
        whole = compute_vectors(prepared, out, device, tell)
        assert isinstance(whole.train, Vectors)
        vectors = whole.train
        prepared = replace(prepared, dev=whole.dev, transfer=replace(prepared.transfer, cached=False))
    return CurvePlan(config, prepared, points, orders, vectors)


def _labels(prepared: Prepared) -> list[list[str]]:
    """Return the labels of every training example; none for regression."""
    examples = prepared.data.train.examples
    if prepared.task.numbers:
        return [[] for _ in examples]
    return [list(count_labels((example,))) for example in examples]


def train_point(
    plan: CurvePlan, point: CurvePoint, folder: Path, device: torch.device, progress: Progress
) -> dict[str, Any] | Outcome:
    """Train one point and return its line of points.jsonl, or the outcome if it was stopped."""
    began = time.perf_counter()
    prepared = plan.prepared
    chosen = np.sort(plan.orders[point.draw][: point.n])
    examples = tuple(prepared.data.train.examples[number] for number in chosen.tolist())
    features: Features = plan.task.features(prepared.opened.tokenizer, examples, prepared.max_length, training=True)
    if plan.vectors is not None:
        features = ChosenVectors(features, plan.vectors, _rows_of(plan, chosen))
    train = replace(prepared.data.train, examples=examples)
    part = replace(prepared, data=replace(prepared.data, train=train), train=features)
    config = resolve_data_defaults(part, Silent().message)
    seed = config.train.seed + point.draw
    part = replace(part, config=replace(config, train=replace(config.train, seed=seed)))
    trainer = build_trainer(part, 0, folder, device, progress)
    outcome = trainer.run()
    if not outcome.finished:
        return outcome
    best = dict(read_run(folder).evaluations)[trainer.best.step]
    return {
        "n": point.n,
        "draw": point.draw,
        "score": best[plan.task.main],
        "loss": best["loss"],
        "best_step": trainer.best.step,
        "steps": outcome.step,
        "seconds": round(time.perf_counter() - began, 2),
    }


class ChosenVectors(Vectors):
    """Vectors of some examples, as a view of the vectors of all."""

    def __init__(self, features: Features, whole: Vectors, rows: Integers) -> None:
        super().__init__(features, whole.vectors, whole.reads_rows)
        self.whole, self.whole_rows = whole, rows

    def of(self, rows: Integers) -> torch.Tensor:
        return self.whole.of(self.whole_rows[rows])


def _rows_of(plan: CurvePlan, chosen: Integers) -> Integers:
    """Return the rows of these examples among the rows of all."""
    counts = plan.prepared.train.row_counts
    return ranges((np.cumsum(counts) - counts)[chosen], counts[chosen])


def estimate_steps(plan: CurvePlan, n: int) -> int:
    """Estimate the steps of a point of this size by the rule of `resolve_data_defaults`."""
    config, tokens = plan.config.finetune, plan.prepared.train.unit_tokens
    units = max(1, round(n / len(plan.prepared.data.train.examples) * len(tokens)))
    per_step = config.tokens_per_step or max(8, round(float(tokens.mean()) * config.texts_per_step))
    per_epoch = max(1, min(units, round(units * float(tokens.mean()) / per_step)))
    return max(
        1, round((config.epochs or choose_epochs(config.task, units, per_epoch, is_scratch(config.model))) * per_epoch)
    )


@dataclass
class PointProgress:
    """Progress of one point, as part of the progress of the curve."""

    whole: Progress
    before: int
    planned: int
    steps: int = 1

    def start(self, step: int, steps: int) -> None:
        self.steps = steps

    def step(self, step: int, figures: Mapping[str, Any]) -> None:
        self.whole.step(self.before + round(self.planned * step / self.steps), figures)

    def log(self, line: Mapping[str, Any]) -> None: ...
    def end(self, result: Mapping[str, Any]) -> None: ...
    def message(self, text: str) -> None:
        if text.startswith("warning"):  # the evaluations of every point are not shown
            self.whole.message(text)


class CurveSession:
    def __init__(self, config: CurveConfig, out: Path, progress: Progress, begins: bool) -> None:
        self.out, self.progress = out, progress
        self.device = device_named(config.finetune.device)
        tell = progress.message
        if begins:
            tuned, folder = start_model(config.finetune, tell)
            config = replace(config, finetune=replace(tuned, data=pin_data(tuned.data)))
        else:
            check_data_unchanged(config.finetune.data)
            folder = reopen_model(config.finetune, tell)
        # prepare all examples once, so that the task knows every label, also those missing in a small draw
        data = read_data(config.finetune, tell if begins else Silent().message)
        self.prepared, self.config = prepare_examples(config.finetune, folder, data, tell), config
        if config.finetune.train.threads is not None:
            torch.set_num_threads(config.finetune.train.threads)

    def train(self) -> Outcome:
        config, out, progress = self.config, self.out, self.progress
        self.plan = plan = plan_curve(config, self.prepared, out, self.device, progress.message)
        known = {CurvePoint(line["n"], line["draw"]) for line in read_points(out)}
        costs = [estimate_steps(plan, point.n) for point in plan.points]
        done = sum(cost for point, cost in zip(plan.points, costs, strict=True) if point in known)
        started, available = done, len(self.prepared.data.train.examples)
        progress.start(done, sum(costs))
        for number, (point, cost) in enumerate(zip(plan.points, costs, strict=True), 1):
            if point in known:
                continue
            name = f"point {number} of {len(plan.points)}"
            draw = f"draw {point.draw + 1} of {config.draws}"
            progress.message(f"{name}: {point.n:,} of {available:,} examples, {draw}")
            folder = out / "points" / f"{point.n}-{point.draw}"
            found = train_point(plan, point, folder, self.device, PointProgress(progress, done, cost))
            if isinstance(found, Outcome):
                return found
            progress.message(f"{name} is done: {plan.task.main} {found['score']:.4f}")
            add_line(out / "points.jsonl", found)
            progress.log(found)
            shutil.rmtree(folder, ignore_errors=True)
            self._report()
            done += cost
        return Outcome(started, done, finished=True)

    def _report(self) -> CurveFacts:
        facts = _collect_facts(self.plan, self.out)
        write_report(self.out, curve_page(self.out, facts))
        return facts

    def stop(self, outcome: Outcome) -> None:
        """Nothing to do: every point is reported when it is finished."""

    def finish(self, outcome: Outcome) -> None:
        facts = self._report()
        shutil.rmtree(self.out / "points", ignore_errors=True)
        shutil.rmtree(self.out / "vectors", ignore_errors=True)
        write_text(self.out / "result.json", to_json(_make_result(facts)))


CURVES = Lifecycle("curve", CurveConfig(finetune=FinetuneConfig(classify=BEFORE_POOLING)), CurveSession)
"""The defaults are those of a resumed run: what an old config.toml does not name is as it was then."""


def read_points(run: Path) -> list[dict[str, Any]]:
    return read_lines(run / "points.jsonl")


def _collect_facts(plan: CurvePlan, out: Path) -> CurveFacts:
    prepared, config = plan.prepared, plan.config.finetune
    found: dict[int, list[float]] = {}
    lines = read_points(out)
    for line in sorted(lines, key=lambda line: (line["n"], line["draw"])):
        found.setdefault(line["n"], []).append(line["score"])
    usual = score_constant(prepared.task, prepared.data.train.examples, prepared.data.dev.examples)
    points = [(n, score) for n, scores in found.items() for score in scores if math.isfinite(score)]
    return CurveFacts(
        task=config.task,
        kind=prepared.task.kind,
        model=prepared.opened.path.resolve().name,
        transfer=config.transfer,
        main=prepared.task.main,
        available=len(prepared.data.train.examples),
        dev_examples=len(prepared.data.dev.examples),
        points=tuple((n, tuple(scores)) for n, scores in found.items()),
        fit=fit_power_law(points),
        baseline=None if usual is None else (usual.name, usual.value),
        seconds=sum(line["seconds"] for line in lines),
        notes=(*prepared.notes, *_make_notes(plan)),
        config=(out / "config.toml").read_text(encoding="utf-8"),
    )


def _make_notes(plan: CurvePlan) -> list[Words]:
    notes: list[Words] = [
        Phrase(
            "Every point was evaluated on the same development set; its best evaluation counts.",
            "每个点都在同一验证集上评估，取最好的一次。",
        )
    ]
    wanted = min(plan.config.shares) * len(plan.prepared.data.train.examples)
    least = min(point.n for point in plan.points)
    if least > wanted + 1:
        notes.append(
            Phrase(
                f"The smallest share is {wanted:,.0f} examples; {least:,} were taken, so that no label is missing.",
                f"最小的一份本应是 {wanted:,.0f} 条；为了不缺任何标签，取了 {least:,} 条。",
            )
        )
    return notes


def _make_result(facts: CurveFacts) -> dict[str, Any]:
    remark = remark_more_labels(facts)
    return {
        "task": facts.task,
        "kind": facts.kind,
        "model": facts.model,
        "transfer": facts.transfer,
        "main": facts.main,
        "examples": {"train": facts.available, "dev": facts.dev_examples},
        "points": [
            {
                "n": n,
                "mean": statistics.fmean(scores),
                "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
                "scores": list(scores),
            }
            for n, scores in facts.points
        ],
        "fit": facts.fit.to_dict(),
        "verdict": None if remark is None else {"level": remark.level, **remark.text._asdict()},
        "baseline": None if facts.baseline is None else facts.baseline[1],
        "seconds": facts.seconds,
    }
