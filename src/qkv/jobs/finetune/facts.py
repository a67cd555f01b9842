"""The data of a fine-tuning report, the calibration plots, and the spread between seeds.

Reliability: accuracy of the answers in bins of confidence. Coverage: precision of the most confident answers.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.data.labelled.examples import Fault
from qkv.metrics.calibration import FEWEST_EXAMPLES
from qkv.report.bilingual import Phrase, Words, duration, percent, spans
from qkv.report.charts import nice_ticks, tick_labels
from qkv.report.plane import Axis, Dots, Layer, Line, Plane, Planes, Rule
from qkv.report.tables import render_bar_table
from qkv.tasks.baselines import BaselineScore
from qkv.tasks.table import SHARE, UNITS, Metric
from qkv.tasks.task import Judgement, Scored
from qkv.text.unknown import UnknownFacts


@dataclass(frozen=True)
class Leak:
    """Examples of dev or test that are in the training set."""

    part: str  # dev or test
    share: float  # of it
    text: Phrase


@dataclass(frozen=True)
class DataFacts:
    """One part of the labelled data as it was used."""

    source: str  # file name, or "held out of train.csv"
    examples: int
    labels: Mapping[str, int]  # how many of each; empty where examples have no labels of that kind
    tokens: int
    longest: int  # tokens of the longest text
    windowed: int  # texts of more than one window
    most_windows: int
    faults: tuple[Fault, ...] = ()  # the first of them
    n_dropped: int = 0
    n_mended: int = 0


@dataclass(frozen=True)
class Shown:
    """An example with what was answered, to be looked at."""

    file: str
    line: int
    text: str
    pair: str | None  # the second text; the question of an answer or a choice
    judgement: Judgement
    n_tokens: int
    n_windows: int


@dataclass(frozen=True)
class LengthBin:
    low: int  # tokens, both ends included
    high: int
    n: int
    right: int


@dataclass(frozen=True)
class CalibrationFacts:
    """`after` is cross-fitted: each fold's temperature and thresholds were fitted on the other folds.

    A temperature that does not lower the cross-fitted error is not used: `temperature` is 1 then, and `after` equals
    `before`.
    """

    unit: str  # what a probability is of: "text", "entity", "question"
    temperature: float  # used
    error_before: float  # expected calibration error
    error_after: float  # of what is used
    # reliability bins: mean confidence, share right, count; empty bins left out
    before: tuple[tuple[float, float, int], ...]
    after: tuple[tuple[float, float, int], ...]
    # coverage curve, from answering all to answering few: threshold, share answered, precision of those
    coverage: tuple[tuple[float, float, float], ...]
    target: float = 0.95  # precision asked for
    abstain_below: float | None = None  # reaches it; None: no threshold does, or there is no rule
    answered: float | None = None  # share it answers by itself then
    thresholds: Mapping[str, float] = field(default_factory=dict)  # multi-label: by label
    fitted_temperature: float | None = None  # on all examples; None: as `temperature`

    @property
    def answers(self) -> int:
        """With a confidence: texts, questions, or the entities that were found."""
        return sum(n for _, _, n in self.before)

    def to_dict(self) -> dict[str, Any]:
        """The calibration part of result.json."""
        fitted = self.temperature if self.fitted_temperature is None else self.fitted_temperature
        return {
            "temperature": self.temperature,
            "fitted_temperature": fitted,
            "expected_calibration_error": {"before": self.error_before, "after": self.error_after},
            "abstain_below": self.abstain_below,
            "answered": self.answered,
            "precision_target": self.target,
            "thresholds": dict(self.thresholds),
            "answers": self.answers,
            "abstains": bool(self.coverage),
        }


@dataclass(frozen=True)
class SeedFacts:
    seed: int
    score: float  # the main metric on dev at the best step
    best_step: int
    steps: int  # trained
    seconds: float
    folder: str = ""  # under the run; "" is the run itself


@dataclass(frozen=True)
class CostFacts:
    seconds: float  # training, by the clock, evaluation included
    seconds_vectors: float | None  # transfer features: the one pass of the encoder
    tokens_per_second: float | None  # training
    peak_memory: int | None  # bytes
    parameters: int
    trained_parameters: int
    device: str


@dataclass(frozen=True)
class MixFacts:
    """How much of each layer of ELMo the task uses."""

    shares: tuple[float, ...]  # from the spelling up; they add up to 1
    gamma: float  # what their sum is multiplied by
    began: tuple[float, ...] = ()  # the shares before the first step; none: all alike


LEAKED = 0.02
"""Share of dev or test that is also in training, above which its scores are not to be trusted."""


class EvaluatedPart(NamedTuple):
    name: str  # dev or test
    scored: Scored
    baselines: tuple[BaselineScore, ...]


@dataclass(frozen=True)
class FinetuneFacts:
    task: str  # classify, tag, answer, choice
    kind: str  # single, multi, regression; bio, crf; "" where a task has one kind
    model: str
    transfer: str  # full, top:K, freeze, features
    main: str  # the metric that counts
    train: DataFacts
    dev: DataFacts
    scored: Scored  # on dev, best seed
    baselines: tuple[BaselineScore, ...]  # on dev, in the main metric
    seeds: tuple[SeedFacts, ...]
    cost: CostFacts
    calibration: CalibrationFacts | None = None
    test: DataFacts | None = None
    test_scored: Scored | None = None
    hardest: tuple[Shown, ...] = ()
    confident_errors: tuple[Shown, ...] = ()
    by_length: tuple[LengthBin, ...] = ()
    numbers: NDArray[np.float64] | None = None  # regression: (n, 2) expected, answered
    notes: tuple[Words, ...] = ()  # what was chosen by itself, in words
    leaks: tuple[Leak, ...] = ()
    lr: float | None = None  # peak learning rate
    mix: MixFacts | None = None
    new_layers: bool = False  # the encoder was made for this run, and what `transfer` freezes is below it
    unknown: UnknownFacts | None = None  # tokens of the training texts that the vocabulary lacks
    test_baselines: tuple[BaselineScore, ...] = ()
    left_out_baseline: bool = False  # there was too much text for tf-idf
    strength: float | None = None  # of the penalty, where the head was fitted to its optimum (linear.py)
    n_evaluations: int = 1  # on dev, of all seeds; the weights of the best one were kept

    def is_leaked(self, part: str) -> bool:
        """Whether so many examples of dev or test are in the training set that its scores say nothing."""
        return any(leak.part == part and leak.share > LEAKED for leak in self.leaks)

    @property
    def parts(self) -> tuple[EvaluatedPart, ...]:
        """What the model was evaluated on, the part that decides first: test, which chose nothing, then dev. Parts that
        leaked are left out if another is left."""
        found = [EvaluatedPart("dev", self.scored, self.baselines)]
        if self.test_scored is not None:
            found.insert(0, EvaluatedPart("test", self.test_scored, self.test_baselines))
        return tuple(part for part in found if not self.is_leaked(part.name)) or tuple(found)


def best_baseline(baselines: Sequence[BaselineScore]) -> BaselineScore | None:
    known = [one for one in baselines if math.isfinite(one.value)]
    return max(known, key=lambda one: one.value) if known else None


def explain_selection(evaluations: int) -> Phrase:
    """Why the score of the development set is too high, and what to do."""
    return Phrase(
        f"The held-out score is the best of {evaluations:,} evaluations, chosen on the same examples: it is "
        "optimistic. For a score to rely on, keep other labelled examples apart and give them with --test FILE.",
        f"验证集分数是 {evaluations:,} 次评估中最好的一次，模型就是按这批样本挑选的：偏乐观。"
        "要得到可靠的分数，请另留一些标注样本，用 --test FILE 给出。",
    )


def explain_threshold(calibration: Mapping[str, Any]) -> Phrase | None:
    """What an abstention threshold reaches, or why there is none, from the calibration part of result.json; None for
    tasks without one."""
    if not calibration["abstains"]:
        return None
    target, n = percent(calibration["precision_target"], 0), int(calibration["answers"])
    least, answered = calibration["abstain_below"], calibration["answered"]
    if n < FEWEST_EXAMPLES:  # whatever an older run has stored
        answers = f"{n:,} answer{' is' if n == 1 else 's are'}"
        return Phrase(
            f"{answers} too few to fit an abstention threshold: a person should check every answer.",
            f"只有 {n:,} 个回答，太少，定不出阈值：每个回答都应由人工复核。",
        )
    if least is None:
        return Phrase(
            f"No threshold reaches {target} precision with {FEWEST_EXAMPLES} of {n:,} answers or more: a person should "
            "check every answer.",
            f"{n:,} 个回答中，没有哪个阈值能在保留至少 {FEWEST_EXAMPLES} 个回答时达到 {target} 的精确率："
            "每个回答都应由人工复核。",
        )
    share, rest = percent(answered, 0), percent(1 - answered, 0)
    if answered >= 0.999:
        return Phrase(
            f"On {n:,} held-out answers it has {target} precision with nothing left to a person.",
            f"在留出的 {n:,} 个回答上，全部自动作答，精确率也达到 {target}。",
        )
    return Phrase(
        f"At {target} precision it answers {share} automatically (probability ≥ {least:.2f}); {rest} are left to a "
        "person.",
        f"精确率 {target} 时，{share} 可自动作答（概率不低于 {least:.2f}），其余 {rest} 交由人工处理。",
    )


ENOUGH = 50
"""Answers under which nothing can be said about probabilities."""


def explain_few_answers(n: int) -> Phrase:
    return Phrase(
        f"Whether its probabilities can be believed is not to be seen from {n:,} answers.",
        f"只有 {n:,} 个回答，看不出它给的概率是否可信。",
    )


# Calibration plots.

ANSWERED = Phrase("answered by itself", "自动作答")


def draw_reliability(facts: CalibrationFacts) -> Planes:
    planes = (_diagram(facts), *([_coverage(facts)] if facts.coverage else []))
    return Planes(Phrase("Calibration", "概率校准"), planes)


def _diagram(facts: CalibrationFacts) -> Plane:
    names = (
        (Phrase("as trained", "校准前"), facts.before, "other"),
        (Phrase("calibrated", "校准后"), facts.after, "evaluation"),
    )
    dots = [
        Dots(
            name,
            tuple((sure, right) for sure, right, _ in bins),
            role,
            tuple(float(n) for _, _, n in bins),
            joined=True,
        )
        for name, bins, role in names
    ]
    unit = UNITS.get(facts.unit, Phrase(facts.unit, facts.unit))
    return Plane(
        Phrase("Reliability diagram", "可靠性图"),
        Axis(Phrase("how sure it was", "置信度"), "percent", 0.0, 1.0),
        Axis(Phrase("share that is right", "答对的比例"), "percent", 0.0, 1.0),
        (Rule(Phrase("as often right as it says", "说几成就对几成")), *dots),
        note=Phrase(
            f"A dot is all answers of about the same confidence (per {unit.en}); the larger, the more. Above the "
            f"dashed line it is too modest, below it too sure. Temperature {facts.temperature:.2f}; each answer is "
            "calibrated without having been used for it.",
            f"一个点是置信度相近的一批回答（以{unit.zh}计），点越大回答越多。在虚线上方是过于谦虚，下方是过于自信。"
            f"温度 {facts.temperature:.2f}；每个回答校准时都没有用到它自己。",
        ),
    )


def _coverage(facts: CalibrationFacts) -> Plane:
    points = tuple((answered, precision) for _, answered, precision in facts.coverage)
    layers: list[Layer] = [
        Rule(Phrase(f"asked for: {percent(facts.target, 0)}", f"要求：{percent(facts.target, 0)}"), y=facts.target),
        Line(
            Phrase("right among those answered", "作答部分的精确率"),
            points,
            more=tuple(f" (p ≥ {threshold:.2f})" for threshold, _, _ in facts.coverage),
        ),
    ]
    if facts.abstain_below is not None and facts.answered is not None:
        answered = facts.answered
        reached = min(points, key=lambda point: abs(point[0] - answered))[1]
        label = Phrase(f"p ≥ {facts.abstain_below:.2f}", f"p ≥ {facts.abstain_below:.2f}")
        name = Phrase("the threshold kept with the model", "随模型保存的阈值")
        layers.append(Dots(name, ((answered, reached),), "kept", labels=(label,), read=False))
    lowest = min([precision for _, precision in points] + [facts.target])
    return Plane(
        Phrase("Coverage and precision", "作答比例与精确率"),
        Axis(ANSWERED, "percent", 0.0, 1.0),
        Axis(Phrase("share that is right", "精确率"), "percent", max(0.0, lowest - 0.06), 1.0),
        tuple(layers),
        note=Phrase(
            "From left to right it answers more, the surest first; what it does not answer is left to a person.",
            "从左到右作答越来越多，最有把握的先答；没有作答的留给人处理。",
        ),
    )


# Seeds.


@dataclass(frozen=True)
class SeedSpread:
    mean: float
    deviation: float  # of the sample; 0 of a single score


def measure_spread(seeds: Sequence[SeedFacts]) -> SeedSpread | None:
    scores = [seed.score for seed in seeds if math.isfinite(seed.score)]
    if not scores:
        return None
    return SeedSpread(statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0)


def choose_best_seed(seeds: Sequence[SeedFacts]) -> SeedFacts | None:
    """The one that was kept; the first of equals."""
    known = [seed for seed in seeds if math.isfinite(seed.score)]
    return max(known, key=lambda seed: seed.score) if known else next(iter(seeds), None)


@dataclass(frozen=True)
class Seeds:
    title: Words
    seeds: tuple[SeedFacts, ...]
    metric: Metric
    narrow: bool = True

    @property
    def style(self) -> str:
        return resources.files("qkv.jobs.finetune").joinpath("seeds.css").read_text(encoding="utf-8")

    def html(self) -> str:
        kept = choose_best_seed(self.seeds)
        rows = [
            (
                Phrase(f"{seed.seed} (kept)", f"{seed.seed}（保留）") if seed == kept else str(seed.seed),
                self.metric.shown(seed.score),
                f"{seed.best_step:,} / {seed.steps:,}",
                duration(seed.seconds),
            )
            for seed in self.seeds
        ]
        headings = (
            Phrase("seed", "种子"),
            self.metric.name,
            Phrase("best step / all", "最佳步 / 总步数"),
            Phrase("time", "用时"),
        )
        return self._ruler() + render_bar_table(headings, rows, 10)

    def _ruler(self) -> str:
        """All scores on one line, with the mean and one standard deviation to either side."""
        found = measure_spread(self.seeds)
        scores = [seed.score for seed in self.seeds if math.isfinite(seed.score)]
        if found is None or len(scores) < 2:
            return ""
        room = 0.35 * (max(scores) - min(scores)) or 0.01
        low = min([*scores, found.mean - found.deviation]) - room
        high = max([*scores, found.mean + found.deviation]) + room

        def place(score: float) -> float:
            return 100 * (score - low) / (high - low)

        ticks = nice_ticks(low, high, 4)
        labels = tick_labels(ticks, "percent" if self.metric.kind == SHARE else "number")
        marks = "".join(
            f'<em style="left:{place(tick):.1f}%">{label}</em>' for tick, label in zip(ticks, labels, strict=True)
        )
        kept = choose_best_seed(self.seeds)
        dots = "".join(
            f'<i class="{"kept" if seed == kept else ""}" style="left:{place(seed.score):.1f}%"></i>'
            for seed in self.seeds
            if math.isfinite(seed.score)
        )
        width = 100 * 2 * found.deviation / (high - low)
        band = f'<u style="left:{place(found.mean - found.deviation):.1f}%;width:{width:.1f}%"></u>'
        middle = f'<s style="left:{place(found.mean):.1f}%"></s>'
        # the deviation in the same unit as the mean
        deviation = f"{100 * found.deviation:.1f}" if self.metric.kind == SHARE else f"{found.deviation:.3f}"
        mean = f"{100 * found.mean:.1f}" if self.metric.kind == SHARE else f"{found.mean:.3f}"
        unit = "\u00a0%" if self.metric.kind == SHARE else ""
        words = Phrase(
            f"{mean} ± {deviation}{unit} (mean and standard deviation of {len(scores)} seeds)",
            f"{mean} ± {deviation}{unit}（{len(scores)} 个种子的平均与标准差）",
        )
        return (
            f'<div class="seeds"><p>{spans(words)}</p>'
            f'<div class="ruler" aria-hidden="true">{band}{middle}{dots}{marks}</div></div>'
        )
