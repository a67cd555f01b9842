"""The report page of a fine-tuning run: scores, confusion, calibration, hardest examples, curves, cost.

The figures come as `FinetuneFacts`, the curves from log.jsonl of every seed. What is unknown is left out.
"""

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qkv.data.labelled.reader import COLUMN_ENDINGS
from qkv.data.readers import COMPRESSED
from qkv.jobs.finetune.facts import (
    ENOUGH,
    CalibrationFacts,
    FinetuneFacts,
    Seeds,
    Shown,
    best_baseline,
    choose_best_seed,
    draw_reliability,
    explain_few_answers,
    explain_threshold,
)
from qkv.jobs.finetune.remarks import finetune_remarks, remark_nothing_learned
from qkv.jobs.finetune.tables import (
    DataUsed,
    ExamplesShown,
    cost_table,
    label_table,
    layer_mix_table,
    length_table,
    score_sections,
)
from qkv.metrics.calibration import FEWEST_EXAMPLES
from qkv.report.bilingual import SPACE, Phrase, Words, duration, parameter_count, percent
from qkv.report.charts import Chart, Level, Series
from qkv.report.page import Charts, Commands, Figure, Gauge, Notes, Remarks, RunPage, Section, Settings
from qkv.report.plane import Axis, Dots, Line, Plane, Planes, Rule
from qkv.report.run_log import RunLog, chart_learning_rate, number, read_run
from qkv.report.tables import Confusion
from qkv.tasks.table import ERROR, PART_NAMES, SHARE, find_metric, task_words
from qkv.tasks.task import Scored

SECOND = ("macro_f1", "f1", "em", "pearson", "spearman", "accuracy", "mcc", "recall", "mean_absolute_error")
"""Without a test score, the first of these is shown next to the main one."""


def headline_figures(facts: FinetuneFacts) -> Iterator[Figure]:
    yield from _score(facts, facts.scored, facts.main, "dev")
    if facts.test_scored is not None:
        yield from _score(facts, facts.test_scored, facts.main, "test")
    else:
        others = [name for name in SECOND if name in facts.scored.values and name != facts.main]
        if others:
            yield from _score(facts, facts.scored, others[0], "dev")
    if facts.calibration is not None:
        yield from _by_itself(facts.calibration)
        yield from _trust(facts.calibration)
    elif "mean_absolute_error" in facts.scored.values:
        yield from _score(facts, facts.scored, "mean_absolute_error", "dev")


def _score(facts: FinetuneFacts, scored: Scored, name: str, part: str) -> Iterator[Figure]:
    value = scored.values.get(name, math.nan)
    if not math.isfinite(value):
        return
    what = find_metric(name)
    interval = scored.intervals.get(name)
    if interval is not None and not all(map(math.isfinite, interval)):
        interval = None
    words = task_words(facts.task, facts.kind)
    of, where = words.of(scored.n), PART_NAMES[part]
    label = Phrase(f"{what.name.en} ({where.en})", f"{what.name.zh}（{where.zh}）")
    means = (words.f1 if name == "f1" else None) or what.means
    notes = [Phrase(f"{means.en[0].upper()}{means.en[1:]}.", f"{means.zh}。")] if means else []
    if interval:
        low, high = map(what.shown, interval)
        notes.append(
            Phrase(f"95{SPACE}% interval {low} to {high}, {of.en}.", f"95{SPACE}% 区间 {low} 至 {high}，{of.zh}。")
        )
    else:
        notes.append(Phrase(f"On {of.en}.", f"共 {of.zh}。"))
    if part == "dev" and facts.n_evaluations > 1:
        notes.append(Phrase("The model was chosen on these: optimistic.", "模型按这批样本挑选：偏乐观。"))
    note = Phrase(" ".join(one.en for one in notes), "".join(one.zh for one in notes))
    marks: tuple[tuple[float, Words], ...] = ()
    best = best_baseline(facts.test_baselines if part == "test" else facts.baselines)
    if best is not None and name == facts.main:
        level = best.value
        shown = percent(level, 0) if what.kind == SHARE else what.shown(level)
        marks = ((level, Phrase(f"baseline {shown}", f"基线 {shown}")),)
    low_end = min(0.0, value, *(interval or ()))
    gauge = None if what.kind == ERROR else Gauge(low_end, 1.0, value, interval, marks)
    yield Figure(label, what.shown(value), note, gauge)


def _by_itself(facts: CalibrationFacts) -> Iterator[Figure]:
    note = explain_threshold(facts.to_dict())
    if note is None:
        return
    target = percent(facts.target, 0)
    label = Phrase(f"Answered automatically at {target} precision", f"精确率 {target} 时自动作答的比例")
    if facts.answers < FEWEST_EXAMPLES:
        yield Figure(label, "–", note)
    else:
        yield Figure(label, percent(facts.answered or 0.0, 0), note, Gauge(0, 1, facts.answered or 0.0))


def _trust(facts: CalibrationFacts) -> Iterator[Figure]:
    if not math.isfinite(facts.error_after):
        return
    before = facts.error_before
    marks: tuple[tuple[float, Words], ...] = ()
    if math.isfinite(before):
        marks = ((before, Phrase(f"before {percent(before)}", f"校准前 {percent(before)}")),)
    note = Phrase(
        "Mean difference between predicted probability and accuracy, after calibration; lower is better.",
        "校准后，预测概率与实际准确率的平均差距；越低越好。",
    )
    if facts.answers < ENOUGH:
        yield Figure(Phrase("Calibration error", "校准误差"), "–", explain_few_answers(facts.answers))
        return
    widest = max(0.1, 1.15 * facts.error_after, 1.15 * before if math.isfinite(before) else 0.0)
    gauge = Gauge(0, widest, facts.error_after, marks=marks)
    yield Figure(Phrase("Calibration error", "校准误差"), percent(facts.error_after), note, gauge)


TRAINING, DEV, OTHERS = Phrase("training", "训练集"), Phrase("dev", "验证集"), Phrase("other seeds", "其他种子")

_WORDS = "language_model_loss"


def draw_training_curves(
    log: RunLog, main: str, baseline: float | None, best_step: int | None, others: Mapping[int, RunLog]
) -> Iterator[Chart]:
    """Draw the curves of the kept run, with `others` by seed; the language model loss of a GPT has its own chart."""
    words = log.logged(_WORDS)
    yield Chart(
        Phrase("Loss of the task", "任务的损失") if words else Phrase("Loss", "损失"),
        (
            Series(TRAINING, log.logged(_of_the_task(log) if words else "loss"), smooth=True),
            Series(DEV, log.evaluated("loss"), "evaluation", dots=True),
        ),
        from_zero=True,
    )
    if words:
        loss = Phrase("Loss of the next word", "下一个词的损失")
        yield Chart(loss, (Series(TRAINING, words, smooth=True),), from_zero=True)
    scores = log.evaluated(main)
    what = find_metric(main)
    background = tuple(
        Series(OTHERS, points, "other") for other in others.values() if len(points := other.evaluated(main)) > 1
    )
    kept = tuple(point for point in scores if point[0] == best_step)
    ring = (Series(Phrase("kept", "保留"), kept[-1:], "kept", dots=True),) if kept else ()
    level = Level(baseline, Phrase("baseline", "基线")) if baseline is not None else None
    yield Chart(
        Phrase(f"{what.name.en} on dev", f"验证集{what.after}".strip()),
        (*background, Series(DEV, scores, "evaluation", dots=True), *ring),
        levels=(level,) if level else (),
        format="percent" if what.kind == SHARE else "number",
    )
    if log.logged("lr"):
        yield chart_learning_rate(log)


def draw_strengths(log: RunLog, chosen: float, kind: str) -> Plane:
    """Draw the cross-validated score and loss of every strength of the penalty that was tried (linear.py)."""
    lines = [line for line in log.steps if "strength" in line]
    scores, losses = (
        tuple((number(line["strength"]), number(line[key])) for line in lines) for key in ("score", "loss")
    )
    best = tuple(point for point in scores if point[0] == chosen)
    label = Phrase("kept", "保留")
    shown = "R²" if kind != SHARE else Phrase("cross-validated score", "交叉验证得分")
    return Plane(
        Phrase("Strength of the regularisation", "正则化强度"),
        Axis(Phrase("strength of the penalty", "惩罚强度"), "count", log=True),
        Axis(shown, "percent" if kind == SHARE else "number"),
        (
            Line(shown, scores, "evaluation", more=tuple(f" (loss {loss:.4g})" for _, loss in losses)),
            Dots(label, best, "kept", labels=(label,) * len(best), read=False),
        ),
        shape="wide",
        note=Phrase(
            "The head is a linear model of stored vectors, fitted to its optimum for each strength of an L2 penalty. "
            "The strength with the lowest cross-validated loss on the training examples is kept.",
            "任务头是建立在向量之上的线性模型，每种 L2 惩罚强度都求到最优；保留训练样本上交叉验证损失最低的强度。",
        ),
    )


def _of_the_task(log: RunLog) -> str:
    """Return the key of the training loss that is comparable with that of the development set."""
    return next(key for line in log.steps for key in line if key.endswith("_loss") and key != _WORDS)


DOTS = 2000
"""Maximum dots of a scatter plot, picked evenly."""


def finetune_page(run: Path, facts: FinetuneFacts) -> RunPage:
    kept = choose_best_seed(facts.seeds)
    log = read_run(run / kept.folder if kept is not None else run)
    config = log.config if kept is None or not kept.folder else read_run(run).config or log.config
    words = task_words(facts.task, facts.kind)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase(f"Fine-tuning report: {words.name.en}", f"微调报告：{words.name.zh}"),
        facts=tuple(_facts(facts)),
        notices=tuple(_notices(log, bool(config.strip()))),
        figures=tuple(headline_figures(facts)),
        sections=tuple(_sections(run, log, config, facts)),
    )


def _facts(facts: FinetuneFacts) -> Iterator[Words]:
    words = task_words(facts.task, facts.kind)
    if facts.model:
        yield facts.model
    if facts.train.examples:
        n = words.of(facts.train.examples)
        yield Phrase(f"trained on {n.en}", f"用 {n.zh}训练")
    labels = len(facts.train.labels)
    if labels:
        yield Phrase(f"{labels:,} label{'' if labels == 1 else 's'}", f"{labels:,} 个标签")
    if facts.cost.parameters:
        yield parameter_count(facts.cost.parameters)
    if facts.cost.seconds > 0:
        yield duration(facts.cost.seconds)


def _notices(log: RunLog, has_config: bool) -> Iterator[Words]:
    # with several seeds there is one config.toml, next to their folders; clock times are not drawn here
    unneeded = ("timing.jsonl is missing", *(("config.toml is missing",) if has_config else ()))
    yield from (fault for fault in log.faults if not fault.en.startswith(unneeded))


def _sections(run: Path, log: RunLog, config: str, facts: FinetuneFacts) -> Iterator[Section]:
    said = tuple(finetune_remarks(facts))
    if said:
        yield Remarks(Phrase("Remarks", "结果分析"), said)
    calibration = facts.calibration
    part, scored, _ = facts.parts[0]
    if scored.per_label:
        thresholds = calibration.thresholds if calibration is not None else {}
        counts = task_words(facts.task, facts.kind).counts
        yield label_table(scored.per_label, facts.train.labels, thresholds, counts, part)
    if scored.confusion is not None and len(scored.confusion_labels) > 1:
        where = PART_NAMES[part]
        title = Phrase(f"Confusion matrix ({where.en})", f"混淆矩阵（{where.zh}）")
        yield Confusion(title, scored.confusion, scored.confusion_labels)
    if facts.numbers is not None and len(facts.numbers):
        yield _scatter(facts.numbers)
    if calibration is not None and (calibration.before or calibration.after):
        yield draw_reliability(calibration)
    yield from _examples(facts)
    if facts.strength is not None:
        drawn = draw_strengths(log, facts.strength, find_metric(facts.main).kind)
        yield Planes(Phrase("Training", "训练过程"), (drawn,))
    elif charts := tuple(_curves(run, log, facts)):
        yield Charts(Phrase("Training", "训练过程"), charts)
    yield from _narrow(facts)
    parts = [("train", facts.train), ("dev", facts.dev)] + ([("test", facts.test)] if facts.test is not None else [])
    if math.isfinite(scored.values.get(facts.main, math.nan)) and remark_nothing_learned(facts) is None:
        yield Commands(Phrase("Next steps", "下一步"), tuple(_next_steps(run, facts)))
    if any(part.examples or part.n_dropped for _, part in parts):
        yield DataUsed(Phrase("Data", "数据"), tuple(parts))
    if facts.notes:
        yield Notes(Phrase("Default choices", "自动选择的设置"), facts.notes)
    if config.strip():
        yield Settings(Phrase("Settings", "配置"), config)


def _next_steps(run: Path, facts: FinetuneFacts) -> Iterator[tuple[str, Words]]:
    """How the model is used, evaluated on other examples, and looked into."""
    name, source = shlex.quote(run.resolve().name), Path(facts.train.source)
    ending = Path(source.stem).suffix if source.suffix in COMPRESSED else source.suffix
    labelled, texts = f"new{ending or '.csv'}", f"new{'.txt' if ending in COLUMN_ENDINGS else ending or '.csv'}"
    words = task_words(facts.task, facts.kind)
    yield (
        f"qkv predict {name} {texts} --out answers.csv",
        Phrase(
            f"Answers for a file of new {words.many.en}, next to its own columns.",
            f"给文件里新的{words.one.zh}作答，保留原有各列。",
        ),
    )
    yield (
        f"qkv evaluate {name} {labelled}",
        Phrase(
            "The score on other labelled examples, with its intervals and the baselines; --against RUN compares it "
            "with another model.",
            "在另一批标注样本上评分，附区间和基线；加 --against RUN 与另一个模型比较。",
        ),
    )
    yield (f"qkv look {name}", Phrase("What happens inside, in the browser.", "在浏览器里看模型内部。"))


def _narrow(facts: FinetuneFacts) -> Iterator[Section]:
    """Yield the half-width sections; with a test score the table of scores takes the full width."""
    yield from score_sections(facts)
    if any(one.n for one in facts.by_length):
        yield length_table(facts.by_length)
    if facts.mix is not None:
        yield layer_mix_table(facts.mix)
    if len(facts.seeds) > 1:
        yield Seeds(Phrase("Seeds", "随机种子"), facts.seeds, find_metric(facts.main))
    yield cost_table(facts.cost, facts.transfer, sum(seed.seconds for seed in facts.seeds), facts.new_layers)


def _examples(facts: FinetuneFacts) -> Iterator[Section]:
    words = task_words(facts.task, facts.kind)
    if facts.confident_errors:
        yield ExamplesShown(
            Phrase("Confident errors", "高置信度的错误"),
            facts.confident_errors,
            words,
            Phrase(
                "The most confident wrong answers on the development set. Some are label errors: correct those first.",
                "验证集中置信度最高的错误。其中有些是标注错误，应先改正。",
            ),
        )
    seen = {_key(one) for one in facts.confident_errors}
    rest = tuple(one for one in facts.hardest if _key(one) not in seen)
    if rest:
        others = Phrase(" Those above are left out.", "上面已列出的不再重复。")
        note = words.hardest
        if len(rest) < len(facts.hardest):
            note = Phrase(note.en + others.en, note.zh + others.zh)
        yield ExamplesShown(Phrase("Hardest examples", "最难的样本"), rest, words, note, shown=6)


def _key(one: Shown) -> tuple[str, int, str, str | None]:
    return one.file, one.line, one.text, one.pair


def _curves(run: Path, log: RunLog, facts: FinetuneFacts) -> Iterator[Chart]:
    if not log.steps and not log.evaluations:
        return
    kept = choose_best_seed(facts.seeds)
    others = {
        seed.seed: read_run(run / seed.folder)
        for seed in facts.seeds
        if kept is not None and seed.folder != kept.folder
    }
    best = best_baseline(facts.baselines)
    level = None if best is None else best.value
    yield from draw_training_curves(log, facts.main, level, kept.best_step if kept else None, others)


def _scatter(numbers: NDArray[np.float64]) -> Planes:
    chosen = numbers[np.linspace(0, len(numbers) - 1, min(DOTS, len(numbers))).round().astype(int)]
    known = numbers[np.isfinite(numbers).all(axis=1)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = 0.05 * (high - low) or 1.0
    return Planes(
        Phrase("Targets and predictions", "目标值与预测值"),
        (
            Plane(
                Phrase("Every text of dev", "验证集的每条文本"),
                Axis(Phrase("target", "目标值"), low=low - room, high=high + room),
                Axis(Phrase("prediction", "预测值"), low=low - room, high=high + room),
                (
                    Rule(Phrase("exactly right", "完全正确")),
                    Dots("", tuple((float(x), float(y)) for x, y in chosen), faint=True, read=False),
                ),
                shape="wide",
            ),
        ),
    )
