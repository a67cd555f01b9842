"""The tables of a fine-tuning report: all scores, every label, lengths, and what the training cost."""

import math
from collections.abc import Iterator, Mapping

from qkv.metrics.intervals import wilson_interval
from qkv.report.bars import Bar, BarTable, Cell, Label
from qkv.report.bilingual import SPACE, Phrase, Words, count, duration, percent, size
from qkv.report.finetune_facts import CostFacts, FinetuneFacts, LengthBin
from qkv.report.run_page import Section, Table
from qkv.report.task_names import ERROR, PARTS, metric, transfer_words
from qkv.tasks.task import LabelScore, Scored


def scores(facts: FinetuneFacts) -> Iterator[Section]:
    """Every metric, dev and test beside each other."""
    parts = [("dev", facts.scored)] + ([("test", facts.test_scored)] if facts.test_scored is not None else [])
    names = [name for name in facts.scored.values if name != facts.main]
    names = [name for name in (facts.main, *names) if name in facts.scored.values]
    if len(names) * len(parts) < 2:  # it stands at the head of the page
        return
    yield BarTable(
        Phrase("All scores", "全部得分"),
        (Phrase("metric", "指标"), *(PARTS[part] for part, _ in parts)),
        tuple((_name(name, facts), *(_score(scored, name) for _, scored in parts)) for name in names),
        note=Phrase(
            f"The first counts: training was stopped by it. Whiskers are 95{SPACE}% intervals.",
            f"以第一行为准：训练按它早停。误差线为 95{SPACE}% 区间。",
        )
        if len(names) > 1
        else "",
        narrow=True,
    )


def _name(name: str, facts: FinetuneFacts) -> Phrase:
    labels = facts.scored.confusion_labels
    if name == "f1" and facts.task == "classify" and len(labels) == 2:
        return Phrase(f"F1 of “{labels[1]}”", f"「{labels[1]}」的 F1")
    return metric(name).name


def _score(scored: Scored, name: str) -> Cell:
    value = scored.values.get(name, math.nan)
    what = metric(name)
    if what.kind == ERROR:
        return Bar(math.nan, what.shown(value))
    return Bar(value, what.shown(value), "train", scored.intervals.get(name))


def per_label(
    labels: tuple[LabelScore, ...], train: Mapping[str, int], thresholds: Mapping[str, float], spans_counted: bool
) -> BarTable:
    """Weakest first: that is where work pays."""
    ordered = sorted(labels, key=lambda one: (one.support == 0, one.f1, one.label))
    many = Phrase("in training", "训练集中")
    headings: list[Words] = [
        Phrase("label", "标签"),
        Phrase("F1", "F1"),
        Phrase("precision", "精确率"),
        Phrase("recall", "召回率"),
        Phrase("expected", "应有"),
        Phrase("answered", "答出"),
    ]
    headings += [many] if train else []
    headings += [Phrase("threshold", "阈值")] if thresholds else []
    unit = (
        Phrase("Spans are counted, not texts.", "按片段计数，不按文本。")
        if spans_counted
        else Phrase("Texts are counted.", "按文本计数。")
    )
    return BarTable(
        Phrase("Label by label", "各标签得分"),
        tuple(headings),
        tuple(_label_row(one, train, thresholds) for one in ordered),
        note=Phrase(
            "Weakest first. Precision: of what it calls so, how much is. Recall: of what is so, how much it finds. "
            + unit.en,
            f"最弱的在前。精确率：它答出的里面对的比例；召回率：应有的里面找到的比例。{unit.zh}",
        ),
    )


def _label_row(one: LabelScore, train: Mapping[str, int], thresholds: Mapping[str, float]) -> tuple[Cell, ...]:
    if one.support:
        figures = [_share(one.f1), _share(one.precision, "faint"), _share(one.recall, "faint")]
    else:  # nothing was expected: a bar at zero would accuse it
        figures = [Bar(math.nan, "–"), Bar(math.nan, "–"), Bar(math.nan, "–")]
    cells: list[Cell] = [Label(one.label), *figures, f"{one.support:,}", f"{one.answered:,}"]
    cells += [f"{train.get(one.label, 0):,}"] if train else []
    cells += [f"{thresholds[one.label]:.2f}" if one.label in thresholds else "–"] if thresholds else []
    return tuple(cells)


def _share(value: float, role: str = "train") -> Bar:
    return Bar(value, percent(value, 0) if math.isfinite(value) else "–", role)


def by_length(bins: tuple[LengthBin, ...]) -> BarTable:
    return BarTable(
        Phrase("By length", "按长度"),
        (Phrase("tokens", "词元数"), Phrase("right", "答对"), Phrase("how many", "条数")),
        tuple(
            (
                f"{one.low:,}–{one.high:,}" if one.high > one.low else f"{one.low:,}",
                Bar(
                    one.right / one.n,
                    percent(one.right / one.n, 0),
                    "train",
                    wilson_interval(one.right, one.n),
                ),
                f"{one.n:,}",
            )
            for one in bins
            if one.n > 0
        ),
        note=Phrase(f"Whiskers are 95{SPACE}% intervals.", f"误差线为 95{SPACE}% 区间。"),
        narrow=True,
    )


def cost(facts: CostFacts, transfer: str, total: float, new_layers: bool = False) -> Table:
    """What it took; `total` is the time of all seeds together. `new_layers` as in `FinetuneFacts`."""
    moved = transfer_words(transfer, new_layers)
    rows: list[tuple[Words, ...]] = [(Phrase("What was trained", "训练了什么"), moved)]
    if facts.parameters:
        n, all_ = count(facts.trained_parameters), count(facts.parameters)
        part = facts.trained_parameters / facts.parameters
        share = percent(part, 1 if part >= 0.01 else 3)
        how_many = Phrase(f"{n.en} of {all_.en} ({share})", f"{all_.zh}中的 {n.zh}（{share}）")
        if facts.trained_parameters >= facts.parameters:
            how_many = Phrase(f"all {all_.en}", f"全部 {all_.zh}")
        rows.append((Phrase("Parameters trained", "训练的参数"), how_many))
    if facts.seconds > 0:
        rows.append((Phrase("Training and evaluation", "训练与评估用时"), duration(facts.seconds)))
    if total > 1.05 * facts.seconds and facts.seconds > 0:
        rows.append((Phrase("All seeds together", "全部种子合计"), duration(total)))
    if facts.seconds_vectors is not None:
        name = Phrase("of which the encoder's one pass", "其中编码器运行一遍")
        rows.append((name, duration(facts.seconds_vectors)))
    if facts.tokens_per_second is not None and math.isfinite(facts.tokens_per_second):
        rows.append((Phrase("Real tokens per second", "每秒真实词元数"), f"{facts.tokens_per_second:,.0f}"))
    if facts.peak_memory is not None:
        rows.append((Phrase("Peak memory", "内存峰值"), size(facts.peak_memory)))
    if facts.device:
        rows.append((Phrase("Machine", "设备"), facts.device))
    return Table(Phrase("What it cost", "训练开销"), tuple(rows))
