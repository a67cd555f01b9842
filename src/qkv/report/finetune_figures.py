"""The headline figures of a fine-tuning run: the score that counts, and whether it can be left alone."""

import math
from collections.abc import Iterator

from qkv.report.bilingual import SPACE, Phrase, Words, percent
from qkv.report.finetune_facts import CalibrationFacts, FinetuneFacts
from qkv.report.reliability import ENOUGH, n_judged
from qkv.report.run_page import Figure, Gauge
from qkv.report.task_names import ERROR, PARTS, SHARE, metric, task_words
from qkv.tasks.task import Scored

SECOND = ("macro_f1", "f1", "em", "pearson", "spearman", "accuracy", "mcc", "recall", "mean_absolute_error")
"""Where there is no test score, the first of these stands beside the main one."""

OVERLAP = Phrase("how much of the answer's words is right", "答案用词与标准答案的重合程度")


def figures(facts: FinetuneFacts) -> Iterator[Figure]:
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
    what = metric(name)
    interval = scored.intervals.get(name)
    if interval is not None and not all(map(math.isfinite, interval)):
        interval = None
    of, where = task_words(facts.task, facts.kind).of(scored.n), PARTS[part]
    label = Phrase(f"{what.name.en} ({where.en})", f"{what.name.zh}（{where.zh}）")
    means = OVERLAP if facts.task == "answer" and name == "f1" else what.means
    notes = [Phrase(f"{means.en[0].upper()}{means.en[1:]}.", f"{means.zh}。")] if means else []
    if interval:
        low, high = map(what.shown, interval)
        notes.append(
            Phrase(f"95{SPACE}% interval {low} to {high}, {of.en}.", f"95{SPACE}% 区间 {low} 至 {high}，{of.zh}。")
        )
    else:
        notes.append(Phrase(f"On {of.en}.", f"共 {of.zh}。"))
    note = Phrase(" ".join(one.en for one in notes), "".join(one.zh for one in notes))
    marks: tuple[tuple[float, Words], ...] = ()
    if facts.baseline is not None and name == facts.main and math.isfinite(facts.baseline[1]):
        level = facts.baseline[1]
        shown = percent(level, 0) if what.kind == SHARE else what.shown(level)
        marks = ((level, Phrase(f"baseline {shown}", f"基线 {shown}")),)
    low_end = min(0.0, value, *(interval or ()))
    gauge = None if what.kind == ERROR else Gauge(low_end, 1.0, value, interval, marks)
    yield Figure(label, what.shown(value), note, gauge)


def _by_itself(facts: CalibrationFacts) -> Iterator[Figure]:
    if not facts.coverage:
        return
    target = percent(facts.target, 0)
    label = Phrase(f"Answers by itself at {target} precision", f"精确率 {target} 时自动作答")
    if facts.abstain_below is None or facts.answered is None:
        note = Phrase(
            f"No threshold reaches {target}: somebody should look at every answer.",
            f"没有阈值能达到 {target}：每个回答都应由人看过。",
        )
        if n_judged(facts) < ENOUGH:
            note = Phrase(
                f"{n_judged(facts):,} answers are too few to find a threshold by.",
                f"只有 {n_judged(facts):,} 个回答，太少，定不出阈值。",
            )
        yield Figure(label, percent(0.0, 0), note, Gauge(0, 1, 0.0))
        return
    rest, p = percent(1 - facts.answered, 0), f"{facts.abstain_below:.2f}"
    note = Phrase(
        f"Under a probability of {p} it would rather not say: {rest} are left to a person.",
        f"概率低于 {p} 就不作答：其余 {rest} 留给人处理。",
    )
    yield Figure(label, percent(facts.answered, 0), note, Gauge(0, 1, facts.answered))


def _trust(facts: CalibrationFacts) -> Iterator[Figure]:
    if not math.isfinite(facts.error_after):
        return
    before = facts.error_before
    marks: tuple[tuple[float, Words], ...] = ()
    if math.isfinite(before):
        marks = ((before, Phrase(f"before {percent(before)}", f"校准前 {percent(before)}")),)
    note = Phrase(
        "How far its probabilities are from the share that is right, after calibration; lower is better.",
        "校准之后，它给的概率与实际答对的比例平均差多少；越低越好。",
    )
    widest = max(0.1, 1.15 * facts.error_after, 1.15 * before if math.isfinite(before) else 0.0)
    gauge = Gauge(0, widest, facts.error_after, marks=marks)
    yield Figure(Phrase("Calibration error", "校准误差"), percent(facts.error_after), note, gauge)
