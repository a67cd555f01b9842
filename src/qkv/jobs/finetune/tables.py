"""Tables of a fine-tuning report: data, examples, ELMo layer weights (Peters et al. 2018, §5.1), scores, labels, cost.

A long text is shown around its answer, or from its beginning, with its length. User text is always escaped.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from unicodedata import east_asian_width

from qkv.data.labelled.examples import Fault, Place
from qkv.jobs.finetune.facts import CostFacts, DataFacts, FinetuneFacts, LengthBin, MixFacts, Shown
from qkv.metrics.intervals import wilson_interval
from qkv.report.bilingual import SPACE, Phrase, Words, count, duration, percent, safe, size, spans
from qkv.report.page import Section, Table
from qkv.report.tables import Bar, BarTable, Label, TableCell, render_bar_table
from qkv.tasks.table import ERROR, PART_NAMES, TaskWords, find_metric, task_words, transfer_words
from qkv.tasks.task import LabelScore, Scored
from qkv.text.messages import translate

ACTIONS = {
    "dropped": Phrase("left out", "略去"),
    "mended": Phrase("repaired", "修正"),
    "noted": Phrase("noted", "记录"),
}
_SHOWN = 12
"""Faults in view; the others are folded away."""


@dataclass(frozen=True)
class DataUsed:
    title: Words
    parts: tuple[tuple[str, DataFacts], ...]  # "train", "dev", "test"
    narrow: bool = False

    @property
    def style(self) -> str:
        return resources.files("qkv.jobs.finetune").joinpath("data_used.css").read_text(encoding="utf-8")

    def html(self) -> str:
        headings = (
            Phrase("part", "部分"),
            Phrase("file", "文件"),
            Phrase("examples", "样本"),
            Phrase("tokens", "词元"),
            Phrase("longest", "最长"),
            Phrase("in windows", "分窗口的"),
            Phrase("repaired", "修正"),
            Phrase("left out", "略去"),
        )
        text = render_bar_table(headings, [_row(name, part) for name, part in self.parts])
        if any(part.windowed for _, part in self.parts):
            most = max(part.most_windows for _, part in self.parts)
            note = Phrase(
                f"Nothing is cut off: a text longer than the model is read in overlapping windows (at most {most:,} "
                "here), all of which count.",
                f"没有截断：超过模型长度的文本分成互相重叠的窗口来读（这里最多 {most:,} 个），每个窗口都算数。",
            )
        else:
            note = Phrase("No text exceeds the maximum length.", "所有文本都未超过最大长度。")
        text += f'<p class="note">{spans(note)}</p>'
        return text + _faults([fault for _, part in self.parts for fault in part.faults], self._missing())

    def _missing(self) -> int:
        """Faults that happened and are not listed."""
        happened = sum(part.n_dropped + part.n_mended for _, part in self.parts)
        listed = sum(fault.action in ("dropped", "mended") for _, part in self.parts for fault in part.faults)
        return max(0, happened - listed)


def _row(name: str, part: DataFacts) -> tuple[TableCell, ...]:
    windowed: Words = "0"
    if part.windowed:
        share = percent(part.windowed / max(1, part.examples))
        windowed = Phrase(f"{part.windowed:,} ({share})", f"{part.windowed:,}（{share}）")
    return (
        PART_NAMES.get(name, name),
        Label(part.source or "–"),
        f"{part.examples:,}",
        count(part.tokens),
        f"{part.longest:,}",
        windowed,
        f"{part.n_mended:,}",
        f"{part.n_dropped:,}",
    )


def _at(place: Place) -> str:
    return f"{place.file}:{place.line}" if place.unit == "line" else str(place)


def _faults(faults: Sequence[Fault], missing: int) -> str:
    if not faults:
        return ""
    items = [
        f'<li><b class="{safe(fault.action)}">{spans(ACTIONS.get(fault.action, fault.action))}</b>'
        f"<code>{safe(_at(fault.place))}</code>"
        f"<span>{spans(Phrase(fault.message, translate(fault.message, 'zh')))}</span></li>"
        for fault in faults
    ]
    cut = _SHOWN if len(items) > _SHOWN + 4 else len(items)
    text = f'<ul class="faults">{"".join(items[:cut])}</ul>'
    if items[cut:]:
        more = Phrase(f"{len(items) - cut:,} more", f"其余 {len(items) - cut:,} 条")
        folded = f'<ul class="faults">{"".join(items[cut:])}</ul>'
        text += f'<details class="more"><summary>{spans(more)}</summary>{folded}</details>'
    if missing:
        rest = Phrase(f"{missing:,} further ones are not listed here.", f"另有 {missing:,} 条没有列在这里。")
        text += f'<p class="note rest">{spans(rest)}</p>'
    return f'<div class="scroll faulty">{text}</div>'


# Examples.

LENGTH = 260
"""Characters of a text that are shown."""
EMPTY = ("", "–", "∅")  # how a judgement says nothing


@dataclass(frozen=True)
class ExamplesShown:
    title: Words
    examples: tuple[Shown, ...]
    words: TaskWords
    note: Words = ""
    shown: int = 8
    narrow: bool = False

    @property
    def style(self) -> str:
        return resources.files("qkv.jobs.finetune").joinpath("examples_shown.css").read_text(encoding="utf-8")

    def html(self) -> str:
        cards = [_card(example, self.words) for example in self.examples]
        # two stand beside each other, and folding two away clears nothing
        cut = self.shown if len(cards) > self.shown + 2 else len(cards)
        text = f'<p class="note before">{spans(self.note)}</p>' if self.note else ""
        text += f'<div class="cases">{"".join(cards[:cut])}</div>'
        if cards[cut:]:
            more = Phrase(f"{len(cards) - cut:,} more", f"其余 {len(cards) - cut:,} 条")
            text += (
                f'<details class="more-cases"><summary>{spans(more)}</summary>'
                f'<div class="cases">{"".join(cards[cut:])}</div></details>'
            )
        return text


def excerpt(text: str, around: Sequence[str] = (), length: int = LENGTH) -> tuple[str, bool]:
    """The part of a text that is shown, around the first of these that it contains, and whether it is shortened.

    >>> excerpt("one two three", length=7)
    ('one two …', True)
    >>> excerpt("one two three four", ["three"], length=9)
    ('… o three f …', True)
    """
    text = text.strip()
    if sum(map(_is_wide, text[:length])) > min(len(text), length) // 2:
        length //= 2  # 汉字 say as much in half as many
    if len(text) <= length:
        return text, False
    found = next((place for item in around if item and (place := text.find(item)) >= 0), 0)
    size = next((len(item) for item in around if item and item in text), 0)
    begin = max(0, min(found - max(0, length - size) // 2, len(text) - length)) if found else 0
    end = begin + length
    return f"{'… ' if begin else ''}{text[begin:end].strip()}{' …' if end < len(text) else ''}", True


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in "WF"


def _card(example: Shown, words: TaskWords) -> str:
    judged = example.judgement
    answers = []
    if words.marks_answers:
        answers = [(one, "wanted") for one in _items(judged.expected, words)] + [(judged.answered, "given")]
    text, cut = excerpt(example.text, [answer for answer, _ in answers])
    body = _marked(text, answers)
    first = f'<p class="text">{body}</p>'
    if example.pair is not None and example.pair.strip():
        pair = f'<p class="text pair">{safe(excerpt(example.pair)[0])}</p>'
        first = pair + first if words.question_first else first + pair
    elif not text:
        first = f'<p class="text empty">{spans(Phrase("(empty)", "（空）"))}</p>'
    return (
        f'<article class="case">{first}{_answers(example, words)}'
        f'<p class="place">{_place(example)}{_length(example, cut)}</p></article>'
    )


def _marked(text: str, answers: Sequence[tuple[str, str]]) -> str:
    """The text with the expected answers and the given one marked where they first stand."""
    places = sorted((text.find(answer), len(answer), kind) for answer, kind in answers if answer and answer in text)
    parts, done = [], 0
    for begin, length, kind in places:
        if begin < done:  # one lies in the other: the first is marked
            continue
        parts.append(f'{safe(text[done:begin])}<mark class="{kind}">{safe(text[begin : begin + length])}</mark>')
        done = begin + length
    return "".join(parts) + safe(text[done:])


def _answers(example: Shown, words: TaskWords) -> str:
    judged = example.judgement
    expected, answered = _items(judged.expected, words), _items(judged.answered, words)
    right = "" if judged.right else " wrong"
    rows = [
        (Phrase("expected", "应为"), _chips(expected, answered, "missed", words)),
        (Phrase("answered", "模型答"), _chips(answered, expected, "wrong", words) + _sure(judged.confidence)),
    ]
    cells = "".join(f"<dt>{spans(name)}</dt><dd>{content}</dd>" for name, content in rows)
    return f'<dl class="answers-of{right}">{cells}</dl>'


def _items(said: str, words: TaskWords) -> list[str]:
    return [said] if words.between is None else said.split(words.between)


def _chips(items: Sequence[str], others: Sequence[str], kind: str, words: TaskWords) -> str:
    """What both have is quiet; what only this side has is the point."""
    return " ".join(
        f'<span class="chip {"both" if item in others else kind}">'
        f"{spans(words.nothing if item.strip() in EMPTY else excerpt(item, length=90)[0])}</span>"
        for item in items
    )


def _sure(confidence: float) -> str:
    if not math.isfinite(confidence):
        return ""
    words = Phrase(f"{percent(confidence, 0)} sure", f"置信度 {percent(confidence, 0)}")
    return f'<span class="sure">{spans(words)}</span>'


def _place(example: Shown) -> str:
    return (
        safe(f"{example.file}:{example.line}") if example.file else spans(Phrase("not from a file", "不是从文件读入"))
    )


def _length(example: Shown, cut: bool) -> str:
    parts = []
    if example.n_windows > 1:
        n = example.n_windows
        parts.append(
            Phrase(f"{example.n_tokens:,} tokens in {n} windows", f"{example.n_tokens:,} 个词元，分 {n} 个窗口")
        )
    if cut:
        n = len(example.text)
        parts.append(Phrase(f"{n:,} characters, shown in part", f"共 {n:,} 字，只显示一部分"))
    return "".join(f" · {spans(part)}" for part in parts)


# ELMo layer weights.

EQUAL = Phrase("equal ones", "相等的值")
NEAR = 1e-6
"""Shares that differ by less are reported as equal."""


def layer_mix_table(mix: MixFacts) -> BarTable:
    even = (1 / len(mix.shares),) * len(mix.shares)
    began = mix.began or even
    goes_on = any(abs(one - other) > NEAR for one, other in zip(began, even, strict=True))
    start = Phrase("those of the model that this run went on from", "所接续的模型的权重") if goes_on else EQUAL
    return BarTable(
        Phrase("Weights of the ELMo layers", "ELMo 各层的权重"),
        (Phrase("layer", "层"), Phrase("weight", "权重")),
        tuple(
            _layer_row(number, share, before)
            for number, (share, before) in enumerate(zip(mix.shares, began, strict=True))
        ),
        note=Phrase(
            "A token's vector is the weighted sum of its layers' vectors, times γ = "
            f"{_number(mix.gamma)}. The weights add up to 1 and were learned with the head, from {start.en} (the "
            "marks). Layers whose vectors are longer count for more than their weight says.",
            f"词元的向量是各层向量的加权和，再乘以 γ = {_number(mix.gamma)}。权重之和为 1，从{start.zh}（刻度线）开始，"
            "与任务头一起学得。向量较长的层，实际作用比权重显示的更大。",
        ),
        narrow=True,
    )


def _layer_row(number: int, share: float, before: float) -> tuple[TableCell, ...]:
    name = Phrase("spelling: the same in every sentence", "拼写层：与语境无关")
    if number:
        name = Phrase(f"recurrent layer {number}", f"第 {number} 层循环网络")
    return name, Bar(share, percent(share), "train", mark=before)


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


# Scores, labels, lengths and cost.


def score_sections(facts: FinetuneFacts) -> Iterator[Section]:
    """Every metric, dev and test beside each other."""
    parts = [("dev", facts.scored)] + ([("test", facts.test_scored)] if facts.test_scored is not None else [])
    names = [name for name in facts.scored.values if name != facts.main]
    names = [name for name in (facts.main, *names) if name in facts.scored.values]
    if len(names) * len(parts) < 2 and len(facts.baselines) < 2:  # they are at the head of the page
        return
    yield BarTable(
        Phrase("Results", "全部得分"),
        (Phrase("metric", "指标"), *(PART_NAMES[part] for part, _ in parts)),
        (
            *((_name(name, facts), *(_score(scored, name) for _, scored in parts)) for name in names),
            *_baseline_rows(facts),
        ),
        note=_score_note(facts, [scored for _, scored in parts]) if len(names) > 1 else "",
        narrow=True,
    )


def _score_note(facts: FinetuneFacts, parts: Sequence[Scored]) -> Phrase:
    said = [Phrase(f"Whiskers are 95{SPACE}% intervals.", f"误差线为 95{SPACE}% 区间。")]
    if facts.strength is None:  # a head that was fitted to its optimum was not stopped
        said.insert(0, Phrase("The first counts: training was stopped by it.", "以第一行为准：训练按它早停。"))
    drawn = ("macro_f1", "weighted_f1", "f1", "mcc")  # of these, resampling right answers alone gives no interval
    if any(scored.values.get(name) == 1 for scored in parts for name in drawn if name in scored.intervals):
        said.append(
            Phrase(
                "Where nothing was wrong, F1 and MCC have the interval of accuracy: resampling gives none.",
                "没有答错时，重抽样得不出区间，F1 和 MCC 借用准确率的区间。",
            )
        )
    return Phrase(" ".join(one.en for one in said), "".join(one.zh for one in said))


def _baseline_rows(facts: FinetuneFacts) -> Iterator[tuple[TableCell, ...]]:
    """The main metric of every baseline, by part."""
    what = find_metric(facts.main)
    parts = [facts.baselines] + ([facts.test_baselines] if facts.test_scored is not None else [])
    for place, one in enumerate(facts.baselines):
        values = [found[place].value if place < len(found) else math.nan for found in parts]
        bars = (Bar(value, what.shown(value), "faint") for value in values)
        yield (
            Phrase(f"{what.name.en} of a baseline: {one.name.en}", f"基线的{what.after.rstrip()}：{one.name.zh}"),
            *bars,
        )


def _name(name: str, facts: FinetuneFacts) -> Phrase:
    labels = facts.scored.confusion_labels
    if name == "f1" and task_words(facts.task, facts.kind).f1_of_second and len(labels) == 2:
        return Phrase(f"F1 of “{labels[1]}”", f"「{labels[1]}」的 F1")
    return find_metric(name).name


def _score(scored: Scored, name: str) -> TableCell:
    value = scored.values.get(name, math.nan)
    what = find_metric(name)
    if what.kind == ERROR:
        return Bar(math.nan, what.shown(value))
    return Bar(value, what.shown(value), "train", scored.intervals.get(name))


def label_table(
    labels: tuple[LabelScore, ...], train: Mapping[str, int], thresholds: Mapping[str, float], unit: Phrase, part: str
) -> BarTable:
    """Weakest first: that is where work pays; `unit` says what is counted, `part` on what (dev or test)."""
    where = PART_NAMES[part]
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
    return BarTable(
        Phrase(f"Results by label ({where.en})", f"各标签得分（{where.zh}）"),
        tuple(headings),
        tuple(_label_row(one, train, thresholds) for one in ordered),
        note=Phrase(
            "Weakest first. Precision: of what it calls so, how much is. Recall: of what is so, how much it finds. "
            + unit.en,
            f"最弱的在前。精确率：它答出的里面对的比例；召回率：应有的里面找到的比例。{unit.zh}",
        ),
    )


def _label_row(one: LabelScore, train: Mapping[str, int], thresholds: Mapping[str, float]) -> tuple[TableCell, ...]:
    if one.support:
        figures = [_share(one.f1), _share(one.precision, "faint"), _share(one.recall, "faint")]
    else:  # nothing was expected: a bar at zero would accuse it
        figures = [Bar(math.nan, "–"), Bar(math.nan, "–"), Bar(math.nan, "–")]
    cells: list[TableCell] = [Label(one.label), *figures, f"{one.support:,}", f"{one.answered:,}"]
    cells += [f"{train.get(one.label, 0):,}"] if train else []
    cells += [f"{thresholds[one.label]:.2f}" if one.label in thresholds else "–"] if thresholds else []
    return tuple(cells)


def _share(value: float, role: str = "train") -> Bar:
    return Bar(value, percent(value, 0) if math.isfinite(value) else "–", role)


def length_table(bins: tuple[LengthBin, ...]) -> BarTable:
    return BarTable(
        Phrase("Results by length", "按长度分组的得分"),
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


def cost_table(facts: CostFacts, transfer: str, total: float, new_layers: bool = False) -> Table:
    """Return the table of time and memory; `total` is the time of all seeds. `new_layers` as in `FinetuneFacts`."""
    moved = transfer_words(transfer, new_layers)
    rows: list[tuple[Words, ...]] = [(Phrase("Trained layers", "训练的部分"), moved)]
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
        rows.append((Phrase("All seeds", "全部种子合计"), duration(total)))
    if facts.seconds_vectors is not None:
        name = Phrase("of which the encoder's one pass", "其中编码器运行一遍")
        rows.append((name, duration(facts.seconds_vectors)))
    if facts.tokens_per_second is not None and math.isfinite(facts.tokens_per_second):
        rows.append((Phrase("Real tokens per second", "每秒真实词元数"), f"{facts.tokens_per_second:,.0f}"))
    if facts.peak_memory is not None:
        rows.append((Phrase("Peak memory", "内存峰值"), size(facts.peak_memory)))
    if facts.device:
        rows.append((Phrase("Machine", "设备"), facts.device))
    return Table(Phrase("Performance", "训练开销"), tuple(rows))
