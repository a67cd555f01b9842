"""Whether probabilities can be believed, in two pictures: the reliability diagram, and what may be answered unseen.

Reliability: answers in bins by how sure they were, against the share of them that was right. On the diagonal a
probability means what it says. Coverage: the surest answers first, how many of them are right.
"""

from qkv.report.bilingual import Phrase, percent
from qkv.report.finetune_facts import CalibrationFacts
from qkv.report.plane import Axis, Dots, Layer, Line, Plane, Planes, Rule
from qkv.report.task_names import UNITS

ENOUGH = 50
"""Answers under which nothing can be said about probabilities."""
ANSWERED = Phrase("answered by itself", "自动作答")


def reliability(facts: CalibrationFacts) -> Planes:
    planes = (_diagram(facts), *([_coverage(facts)] if facts.coverage else []))
    return Planes(Phrase("Can its probabilities be believed?", "它给的概率可信吗？"), planes)


def n_judged(facts: CalibrationFacts) -> int:
    return sum(n for _, _, n in facts.before)


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
        Phrase("How sure, and how often right", "有多大把握，对了多少"),
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
        Phrase("How much it may answer by itself", "放手让它答，能答多少"),
        Axis(ANSWERED, "percent", 0.0, 1.0),
        Axis(Phrase("share that is right", "精确率"), "percent", max(0.0, lowest - 0.06), 1.0),
        tuple(layers),
        note=Phrase(
            "From left to right it answers more, the surest first; what it does not answer is left to a person.",
            "从左到右作答越来越多，最有把握的先答；没有作答的留给人处理。",
        ),
    )
