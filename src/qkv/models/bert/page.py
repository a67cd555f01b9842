"""The report of a BERT's pretraining, from the logs and settings of its run; and training instances as a picture.

What these files do not say (the corpus, the machine) comes as `PretrainingFacts`. All input is plain data, no tensors.
Unknown facts are left out of the page; a run that was killed before its first logged step gets a page that says so.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len

from qkv.metrics.intervals import wilson_interval
from qkv.metrics.numbers import perplexity
from qkv.report import remarks
from qkv.report.bilingual import (
    SPACE,
    Phrase,
    Words,
    check_page_language,
    count,
    duration,
    join_phrases,
    parameter_count,
    percent,
    phrase,
    safe,
    size,
    spans,
)
from qkv.report.charts import Chart, ChartPoint, Level, Series, printable
from qkv.report.page import Charts, Figure, Gauge, Remarks, RunPage, Samples, Section, Settings, Table
from qkv.report.page import render_page as page_html
from qkv.report.remarks import Remark, find_spikes
from qkv.report.run_log import (
    RunLog,
    chart_gradient_norm,
    chart_learning_rate,
    fillings,
    loss_levels,
    number,
    pair_series,
    read_run,
)


def pretraining_curves(
    log: RunLog, vocabulary_size: int, unigram_entropy: float | None, resumed_from: Sequence[int] = ()
) -> Iterator[Chart]:
    seams = tuple(float(step) for step in resumed_from)
    yield Chart(
        Phrase("Masked language model loss", "掩码语言模型损失"),
        pair_series(log, "masked_loss"),
        levels=loss_levels(vocabulary_size, unigram_entropy),
        seams=seams,
        shape="wide",
    )
    filled = Phrase("Masked words filled correctly", "填空正确率")
    yield Chart(filled, pair_series(log, "masked_accuracy"), seams=seams, format="percent", from_zero=True)
    trained, evaluated = pair_series(log, "next_sentence_accuracy")
    if trained.points or evaluated.points:
        yield Chart(
            Phrase("Next sentence recognised", "下一句预测正确率"),
            (trained, replace(evaluated, intervals=tuple(_intervals(log)))),
            levels=(Level(0.5, Phrase("chance", "瞎猜")),),
            seams=seams,
            format="percent",
        )
    norms = log.logged("gradient_norm")
    clip = number(log.setting("train", "clip"))
    yield replace(
        chart_gradient_norm(log, seams),
        levels=(Level(clip, Phrase(f"clipped at {clip:g}", f"裁剪到 {clip:g}")),) if _near(clip, norms) else (),
        spikes=tuple((step, norm) for step, norm, _ in find_spikes(norms)),
    )
    yield chart_learning_rate(log, seams)
    if log.timing:
        yield Chart(
            Phrase("Tokens per second", "每秒词元数"),
            (Series(Phrase("Tokens per second", "每秒词元数"), log.timed("tokens_per_second"), fine=True),),
            seams=seams,
            format="count",
            from_zero=True,
        )


def _near(level: float, points: tuple[ChartPoint, ...]) -> bool:
    """Whether a level is close enough to the points to be drawn: a distant one would flatten the curve."""
    known = [value for _, value in points if math.isfinite(value) and value > 0]
    return bool(known) and min(known) / 3 <= level <= 3 * max(known)


def _intervals(log: RunLog) -> Iterator[tuple[float, float]]:
    for _, found in log.evaluations:
        if "next_sentence_accuracy" not in found:
            continue
        right, pairs = found.get("next_sentence_correct"), found.get("next_sentence_count")
        if isinstance(right, int) and isinstance(pairs, int) and 0 <= right <= pairs:
            yield wilson_interval(right, pairs)
        else:
            yield math.nan, math.nan


# The report

_LANGUAGE_NAMES = {"en": Phrase("English", "英文"), "zh": Phrase("Chinese", "中文"), "other": Phrase("other", "其他")}
_NEGATIVES = {
    "document": Phrase("from another document", "来自另一篇文档"),
    "corpus": Phrase("from any other place of the corpus", "来自语料的任何别处"),
    "none": Phrase("none: one long span, no pairs", "无：一个长片段，不成对"),
}


@dataclass(frozen=True)
class PretrainingFacts:
    """Facts that the run's files do not hold; None if unknown."""

    vocabulary_size: int
    unigram_entropy: float | None = None  # of the training text's tokens, in nats
    vocabulary_seen: int | None = None  # different tokens in the training text
    documents: int | None = None
    sentences: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    languages: Mapping[str, float] = field(default_factory=dict)  # "en", "zh", … → share of the text
    seconds: float | None = None  # by the clock, evaluation and saving included
    peak_memory: int | None = None  # bytes
    negatives: str = "document"
    masked_share: float = 0.8  # of the chosen tokens, how many become [MASK]
    resumed_from: tuple[int, ...] = ()  # steps
    held_out_documents: int | None = None


def pretraining_page(run: Path, facts: PretrainingFacts) -> RunPage:
    log = read_run(run)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase("Pretraining report", "预训练报告"),
        facts=tuple(_facts(log, facts)),
        notices=tuple(_notices(log)),
        figures=tuple(_figures(log, facts)),
        sections=tuple(_sections(log, facts)),
    )


def _facts(log: RunLog, facts: PretrainingFacts) -> Iterator[Words]:
    if facts.parameters:
        yield parameter_count(facts.parameters)
    yield Phrase(f"vocabulary {facts.vocabulary_size:,}", f"词表 {facts.vocabulary_size:,}")
    if facts.languages:
        yield join_phrases([_language(name) for name in facts.languages], " + ")
    yield Phrase(f"{log.last_step:,} steps", f"{log.last_step:,} 步")
    if facts.seconds is not None:
        yield duration(facts.seconds)


def _language(name: str) -> Phrase:
    return _LANGUAGE_NAMES.get(name, phrase(name))


def _notices(log: RunLog) -> Iterator[Words]:
    yield from log.notices()
    lost = [step for step, loss in log.logged("masked_loss") if math.isnan(loss)]
    if lost:
        yield Phrase(
            f"The loss is not a number at {len(lost):,} logged step{'' if len(lost) == 1 else 's'}, first at step "
            f"{lost[0]:,.0f}.",
            f"有 {len(lost):,} 个记录点的损失不是数，最早在第 {lost[0]:,.0f} 步。",
        )
    if log.steps and not log.evaluations:
        yield Phrase(
            "There was no evaluation: the figures are those of training.", "没有做过评估：下面是训练中的数字。"
        )


def _last(points: tuple[ChartPoint, ...]) -> float | None:
    return next((value for _, value in reversed(points) if math.isfinite(value)), None)


def _figures(log: RunLog, facts: PretrainingFacts) -> Iterator[Figure]:
    evaluation = log.evaluations[-1][1] if log.evaluations else {}
    evaluated = "masked_loss" in evaluation
    loss = number(evaluation.get("masked_loss")) if evaluated else log.training_level("masked_loss")
    source = Phrase("held-out text", "留出文本") if evaluated else Phrase("training", "训练")
    even = math.log(facts.vocabulary_size)
    if loss is not None and math.isfinite(loss):
        marks: tuple[tuple[float, Words], ...] = ((even, Phrase(f"ln V {even:.2f}", f"ln V {even:.2f}")),)
        if facts.unigram_entropy is not None:
            entropy = facts.unigram_entropy
            marks = ((entropy, Phrase(f"unigram {entropy:.2f}", f"一元熵 {entropy:.2f}")), *marks)
        yield Figure(
            Phrase("Masked language model loss", "掩码语言模型损失"),
            f"{loss:.3f}",
            Phrase(
                f"nats a masked token, {source.en}; lower is better", f"每个被遮蔽词元的纳特数，{source.zh}；越低越好"
            ),
            Gauge(0, 1.06 * max(even, loss), loss, marks=marks),
        )
    accuracy = number(evaluation.get("masked_accuracy")) if evaluated else log.training_level("masked_accuracy")
    if accuracy is not None and math.isfinite(accuracy):
        n = evaluation.get("masked_count") if evaluated else None
        yield _rate(
            Phrase("Masked words filled correctly", "填空正确率"), accuracy, n, Phrase("tokens", "个词元"), marks=()
        )
    if loss is not None and math.isfinite(loss):
        unsure = number(evaluation.get("masked_perplexity")) if evaluated else perplexity(loss)
        unsure = perplexity(loss) if math.isnan(unsure) else unsure
        shown = f"{unsure:,.1f}" if unsure < 1000 else f"{unsure:,.0f}"
        yield Figure(
            Phrase("Perplexity", "困惑度"),
            shown,
            Phrase(
                f"as unsure as among {shown} equally likely tokens (ruler: logarithmic)",
                f"相当于在 {shown} 个同样可能的词元中猜（标尺为对数）",
            ),
            Gauge(0, max(even, loss), loss, marks=((0, "1"), (even, f"V = {facts.vocabulary_size:,}"))),
        )
    right, pairs = evaluation.get("next_sentence_correct"), evaluation.get("next_sentence_count")
    chance = ((0.5, Phrase("chance 50%", "瞎猜 50%")),)
    if isinstance(right, int) and isinstance(pairs, int) and 0 <= right <= pairs and pairs:
        label = Phrase("Next sentence recognised", "下一句预测正确率")
        yield _rate(label, right / pairs, pairs, Phrase("pairs", "个句对"), chance)


def _rate(label: Phrase, rate: float, of: object, what: Phrase, marks: tuple[tuple[float, Words], ...]) -> Figure:
    """A share of correct answers with its interval, if the number of answers is known."""
    if not isinstance(of, int) or of < 1:
        return Figure(label, percent(rate), "", Gauge(0, 1, rate, marks=marks))
    low, high = wilson_interval(min(of, max(0, round(rate * of))), of)
    note = Phrase(
        f"95{SPACE}% interval {percent(low)} to {percent(high)}, from {of:,} {what.en}",
        f"95{SPACE}% 区间 {percent(low)} 至 {percent(high)}，共 {of:,} {what.zh}",
    )
    return Figure(label, percent(rate), note, Gauge(0, 1, rate, (low, high), marks))


def _sections(log: RunLog, facts: PretrainingFacts) -> Iterator[Section]:
    if log.steps:
        yield Remarks(Phrase("Remarks", "结果分析"), tuple(_remarks(log, facts)))
        yield Charts(
            Phrase("Curves", "曲线"),
            tuple(pretraining_curves(log, facts.vocabulary_size, facts.unigram_entropy, facts.resumed_from)),
        )
    samples = fillings(log)
    if samples:
        yield Samples(
            Phrase("How the answers changed", "答案是怎样变化的"),
            samples,
            note=Phrase(
                "The same blanks at several moments of the training, likeliest candidates first; the expected token is "
                "green.",
                "训练中几个时刻对同样的空填什么，可能性大的在前；答案为绿色。",
            ),
        )
    speed = tuple(_speed(log, facts))
    if speed:
        yield Table(Phrase("Performance", "训练开销"), speed)
    corpus = tuple(_corpus(facts))
    if corpus:
        yield Table(Phrase("Corpus", "语料"), corpus)
    if log.config.strip():
        yield Settings(Phrase("Settings", "配置"), log.config)


def _remarks(log: RunLog, facts: PretrainingFacts) -> Iterator[Remark]:
    evaluated = log.evaluated("masked_loss")
    training, evaluation = log.training_level("masked_loss"), _last(evaluated)
    last = log.evaluations[-1][1] if log.evaluations else {}
    right, pairs = last.get("next_sentence_correct"), last.get("next_sentence_count")
    known = isinstance(right, int) and isinstance(pairs, int) and 0 <= right <= pairs
    found = (
        remarks.loss_and_frequencies(
            training if evaluation is None else evaluation,
            facts.vocabulary_size,
            facts.unigram_entropy,
            facts.masked_share,
        ),
        remarks.next_sentence_accuracy(right if known else None, pairs if known else None),
        remarks.training_and_evaluation(training, evaluation),
        remarks.trend(log.logged("masked_loss")),
        remarks.best_evaluation(evaluated),
        remarks.gradient_spikes(log.logged("gradient_norm")),
        remarks.vocabulary_unseen(facts.vocabulary_seen, facts.vocabulary_size),
        remarks.waiting_for_batches(log.share_of_time("waited_for_batches")),
    )
    yield from (remark for remark in found if remark is not None)


def _speed(log: RunLog, facts: PretrainingFacts) -> Iterator[tuple[Words, ...]]:
    if rate := log.median_rate():
        yield Phrase("Real tokens per second (median)", "每秒真实词元数（中位数）"), f"{rate:,.0f}"
    shares = (
        ("share_of_peak", Phrase("Share of this machine's measured peak", "占本机实测峰值的比例")),
        ("waited_for_batches", Phrase("Time spent waiting for batches", "等待批次的时间")),
        ("building_batches", Phrase("Time spent building batches (beside training)", "造批次的时间（与训练同时）")),
    )
    for key, name in shares:
        share = log.share_of_time(key)
        if share is not None:
            yield name, percent(share)
    trained = [value for _, value in log.logged("tokens") if math.isfinite(value)]
    if trained:
        yield Phrase("Tokens trained on", "训练过的词元数"), count(sum(trained))
        if facts.tokens:
            epochs = sum(trained) / facts.tokens
            yield Phrase("Times through the corpus (about)", "遍历语料的次数（约）"), f"{epochs:.2g}"
    seconds = sum(value for _, value in log.timed("seconds") if math.isfinite(value))
    if seconds:
        yield Phrase("Time in training steps", "训练各步用时"), duration(seconds)
    if facts.seconds is not None:
        yield Phrase("Time in all", "总用时"), duration(facts.seconds)
    if facts.peak_memory is not None:
        yield Phrase("Peak memory", "内存峰值"), size(facts.peak_memory)
    if facts.resumed_from:
        yield Phrase("Resumed at steps", "续训于第几步"), ", ".join(f"{step:,}" for step in facts.resumed_from)


def _corpus(facts: PretrainingFacts) -> Iterator[tuple[Words, ...]]:
    numbers = (
        (facts.documents, Phrase("Documents", "文档")),
        (facts.held_out_documents, Phrase("of which held out for evaluation", "其中留作评估")),
        (facts.sentences, Phrase("Sentences", "句子")),
        (facts.tokens, Phrase("Tokens", "词元")),
    )
    for amount, name in numbers:
        if amount is not None:
            yield name, count(amount)
    if facts.languages:
        shares = [
            Phrase(f"{_language(name).en} {percent(share, 0)}", f"{_language(name).zh} {percent(share, 0)}")
            for name, share in facts.languages.items()
        ]
        yield Phrase("Languages", "语言"), join_phrases(shares)
    if facts.vocabulary_seen is not None:
        seen = facts.vocabulary_seen
        share = percent(seen / max(1, facts.vocabulary_size))
        yield (
            Phrase("Vocabulary that occurs in it", "出现过的词表"),
            Phrase(
                f"{seen:,} of {facts.vocabulary_size:,} ({share})",
                f"{facts.vocabulary_size:,} 个中的 {seen:,} 个（{share}）",
            ),
        )
    if facts.unigram_entropy is not None:
        yield (
            Phrase("Unigram entropy", "一元熵"),
            Phrase(f"{facts.unigram_entropy:.3f} nats", f"{facts.unigram_entropy:.3f} 纳特"),
        )
    if facts.documents is not None:
        yield (
            Phrase("Random second spans (NotNext)", "随机的第二片段（NotNext）"),
            _NEGATIVES.get(facts.negatives, facts.negatives),
        )


# --- Training instances as a person would draw them: the pair, what was hidden and how, what is to be predicted.
#
#     A     0      1  2   3   4          5  …
#           [CLS]  巴·黎  是  [MASK]←法  国 …
#
# On a terminal the marks alone say everything, colour only repeats it: `[MASK]←x` is hidden and x is to be predicted,
# `~r~←x` was replaced by a random token, `=x=` was kept and is predicted all the same. Pieces of one word are joined by
# a dot. On a page the same is drawn with boxes. Plain data in: no corpus, no tokenizer.

MASK, RANDOM, KEPT = TREATMENTS = ("mask", "random", "kept")
IS_NEXT, NOT_NEXT = LABELS = ("IsNext", "NotNext")

LABEL_NAMES = {
    IS_NEXT: Phrase("IsNext: B follows A in the text", "IsNext：B 在原文中紧接着 A"),
    NOT_NEXT: Phrase("NotNext: B comes from elsewhere", "NotNext：B 来自别处"),
    None: Phrase("one span, no pair", "一个片段，不成对"),
}
TREATMENT_NAMES = {MASK: Phrase("[MASK]", "[MASK]"), RANDOM: Phrase("random", "随机"), KEPT: Phrase("kept", "不动")}
LEGEND = Phrase(
    "[MASK]←x: hidden, x is predicted · ~r~←x: replaced by a random token · =x=: kept, predicted all the same · "
    "a·b: pieces of one word · numbers: positions · A, B: segments 0, 1",
    "[MASK]←x：被遮蔽，要预测 x · ~r~←x：换成随机词元 · =x=：不动，仍要预测 · a·b：同一个词的各片 · "
    "数字：位置 · A、B：句段 0、1",
)
PREDICTED = Phrase("predict", "预测")


@dataclass(frozen=True)
class DrawnToken:
    token: str  # what the model reads
    original: str  # before masking: the target, if it was chosen
    segment: int
    position: int
    begins_word: bool = True
    special: bool = False
    treatment: str | None = None  # MASK, RANDOM, KEPT; None was not chosen


@dataclass(frozen=True)
class Instance:
    tokens: tuple[DrawnToken, ...]
    label: str | None = None  # IS_NEXT, NOT_NEXT; None has no second span

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "n_tokens": len(self.tokens), "tokens": [asdict(token) for token in self.tokens]}

    @cached_property
    def chosen(self) -> tuple[DrawnToken, ...]:
        return tuple(token for token in self.tokens if token.treatment is not None)

    def segments(self) -> Iterator[tuple[int, list[DrawnToken]]]:
        for segment in sorted({token.segment for token in self.tokens}):
            yield segment, [token for token in self.tokens if token.segment == segment]

    def counts(self) -> Phrase:
        """The number of tokens, of chosen ones, and of each treatment."""
        how = Counter(token.treatment for token in self.chosen)
        parts = [
            Phrase(f"{how[name]} {TREATMENT_NAMES[name].en}", f"{how[name]} {TREATMENT_NAMES[name].zh}")
            for name in TREATMENTS
        ]
        n, m = len(self.tokens), len(self.chosen)
        en, zh = join_phrases(parts, ", ").en, join_phrases(parts, "，").zh
        return Phrase(f"{n} tokens, {m} chosen: {en}", f"{n} 个词元，选中 {m} 个：{zh}")


class _Span(NamedTuple):
    """Part of a line with a style name, which the terminal may show as a colour."""

    text: str
    style: str = ""


DrawnLine = list[_Span]


def draw_lines(instance: Instance, number: int = 1, width: int = 100, lang: str = "en") -> list[DrawnLine]:
    """One instance as lines for a terminal of this many columns; wide characters count as two."""
    check_page_language(lang)
    title = _Span(f"{number}  {getattr(LABEL_NAMES[instance.label], lang)}", instance.label or "plain")
    counts = _Span(f"  ({getattr(instance.counts(), lang)})", "soft")
    fits = cell_len(title.text) + cell_len(counts.text) <= width
    drawn: list[DrawnLine] = [[title, counts]] if fits else [[title], [_Span("  "), counts]]
    for segment, tokens in instance.segments():
        for row, pair in enumerate(_rows(tokens, max(20, width - 4))):
            gutter = "AB"[segment] if segment < 2 else str(segment)
            drawn.append([_Span(f"{gutter if not row else ' '}   ", "segment"), *pair[0]])
            drawn.append([_Span("    "), *pair[1]])
    if instance.chosen:
        drawn += _targets(instance, width, lang)
    return drawn


def _marked(token: DrawnToken) -> str:
    """
    >>> _marked(DrawnToken("[MASK]", "paris", 0, 4, treatment=MASK))
    '[MASK]←paris'
    """
    shown, original = printable(token.token), printable(token.original)
    if token.treatment == MASK:
        return f"{shown}←{original}"
    if token.treatment == RANDOM:
        return f"~{shown}~←{original}"
    return f"={shown}=" if token.treatment == KEPT else shown


def group_words(tokens: Sequence[DrawnToken]) -> list[list[DrawnToken]]:
    """Tokens grouped into words; a special token is on its own."""
    grouped: list[list[DrawnToken]] = []
    for token in tokens:
        if grouped and not token.begins_word and not token.special and not grouped[-1][-1].special:
            grouped[-1].append(token)
        else:
            grouped.append([token])
    return grouped


def _rows(tokens: Sequence[DrawnToken], room: int) -> Iterator[tuple[DrawnLine, DrawnLine]]:
    """Pairs of lines, positions over tokens. A line breaks between words, and within one only if it fits no line."""
    numbers, shown, used = "", DrawnLine(), 0
    for word in group_words(tokens):
        size = sum(cell_len(_marked(token)) for token in word) + len(word) - 1
        for place, token in enumerate(word):
            mark, number = _marked(token), str(token.position)
            gap = "·" if place else "  " if shown else ""
            wanted = cell_len(mark) if place or size > room else size
            if shown and used + len(gap) + wanted > room:
                yield [_Span(numbers, "soft")], shown
                numbers, shown, used = "", DrawnLine(), 0
                gap = gap.strip()
            if gap:
                shown.append(_Span(gap, "soft"))
                used += len(gap)
            # a number that would touch the one before is left out; the first token of a word makes room for its own
            if not place or not numbers or len(numbers) < used:
                numbers = numbers.ljust(used) + number
            shown.append(_Span(mark, token.treatment or ("special" if token.special else "")))
            used += cell_len(mark)
        if used < len(numbers):
            shown.append(_Span(" " * (len(numbers) - used)))
            used = len(numbers)
    if shown:
        yield [_Span(numbers, "soft")], shown


def _targets(instance: Instance, width: int, lang: str) -> list[DrawnLine]:
    """The targets by position, wrapped."""
    begin = f"    {getattr(PREDICTED, lang)}  "
    drawn: list[DrawnLine] = [[_Span(begin, "soft")]]
    used = cell_len(begin)
    for token in instance.chosen:
        how = getattr(TREATMENT_NAMES[token.treatment or KEPT], lang)
        seen = f" {printable(token.token)}" if token.treatment == RANDOM else ""
        text = f"{token.position}: {printable(token.original)} ({how}{seen})"
        gap = "  " if len(drawn[-1]) > 1 else ""
        if gap and used + len(gap) + cell_len(text) > width:
            drawn.append([_Span(" " * cell_len(begin))])
            gap, used = "", cell_len(begin)
        drawn[-1] += [_Span(gap), _Span(text, token.treatment or "")]
        used += len(gap) + cell_len(text)
    return drawn


def draw_legend(width: int = 100, lang: str = "en") -> list[DrawnLine]:
    """The legend of the marks, wrapped between marks."""
    check_page_language(lang)
    rows = [""]
    for part in getattr(LEGEND, lang).split(" · "):
        longer = f"{rows[-1]} · {part}" if rows[-1] else part
        rows = [*rows[:-1], longer] if cell_len(longer) <= width else [*rows, part]
    return [[_Span(row, "soft")] for row in rows]


@dataclass(frozen=True)
class _Instances:
    """Instances as a section of a page."""

    title: Words
    instances: tuple[Instance, ...]
    narrow: ClassVar[bool] = False

    @property
    def style(self) -> str:
        return resources.files("qkv.models.bert").joinpath("instances.css").read_text(encoding="utf-8")

    def html(self) -> str:
        return _legend() + "".join(_card(one, number) for number, one in enumerate(self.instances, start=1))


def instances_page(instances: Sequence[Instance], title: str, facts: Sequence[Words] = (), lang: str = "en") -> str:
    """An offline page of instances, in the style of the reports."""
    shown = _Instances(Phrase("What the model is asked", "模型要回答的问题"), tuple(instances))
    return page_html(RunPage(title, Phrase("Training instances", "训练样例"), tuple(facts), sections=(shown,)), lang)


def _legend() -> str:
    examples = (
        (DrawnToken("[MASK]", "x", 0, 0, treatment=MASK), Phrase("hidden: predict x", "被遮蔽：要预测 x")),
        (DrawnToken("r", "x", 0, 0, treatment=RANDOM), Phrase("replaced by a random token", "换成随机词元")),
        (DrawnToken("x", "x", 0, 0, treatment=KEPT), Phrase("kept, predicted all the same", "不动，仍要预测")),
    )
    whole = [DrawnToken(text, text, 0, 0, begins_word=not place) for place, text in enumerate(("play", "##ing"))]
    shown = [*(([token], name) for token, name in examples), (whole, Phrase("one word in pieces", "一个词的各片"))]
    marks = "".join(f"<span>{_word(word, False)} {spans(name)}</span>" for word, name in shown)
    return f'<p class="marks">{marks}<span>{spans(Phrase("numbers are positions", "数字是位置"))}</span></p>'


def _card(instance: Instance, number: int) -> str:
    rows = "".join(
        f'<div class="row segment-{segment}"><h4>{"AB"[segment] if segment < 2 else segment}'
        f"<small>{spans(Phrase(f'segment {segment}', f'句段 {segment}'))}</small></h4>"
        f"<p>{' '.join(_word(word) for word in group_words(tokens))}</p></div>"
        for segment, tokens in instance.segments()
    )
    label = spans(LABEL_NAMES[instance.label])
    return (
        f'<article class="instance"><h3>{number}<span class="label {instance.label or "single"}">{label}</span>'
        f"<small>{spans(instance.counts())}</small></h3>{rows}</article>"
    )


def _word(word: Sequence[DrawnToken], numbered: bool = True) -> str:
    return f'<span class="word">{"".join(_piece(token, numbered) for token in word)}</span>'


def _piece(token: DrawnToken, numbered: bool = True) -> str:
    """A box with the target above, the token inside and the position below."""
    kind = " ".join(filter(None, ("piece", token.treatment, "special" if token.special else "")))
    target = f"<b>{safe(printable(token.original))}</b>" if token.treatment else ""
    number = f"<i>{token.position}</i>" if numbered else ""
    return f'<span class="{kind}">{target}<span>{safe(printable(token.token))}</span>{number}</span>'
