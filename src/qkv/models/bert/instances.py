"""Training instances as a person would draw them: the pair, what was hidden and how, what is to be predicted.

    A     0      1  2   3   4          5  …
          [CLS]  巴·黎  是  [MASK]←法  国 …

On a terminal the marks alone say everything, colour only repeats it: `[MASK]←x` is hidden and x is to be predicted,
`~r~←x` was replaced by a random token, `=x=` was kept and is predicted all the same. Pieces of one word are joined by a
dot. On a page the same is drawn with boxes. Plain data in: no corpus, no tokenizer.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import resources
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len

from qkv.report.bilingual import Phrase, Words, check_page_language, join_phrases, safe, spans
from qkv.report.charts import printable
from qkv.report.page import RunPage
from qkv.report.page import render_page as page_html

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
        """How many tokens, how many chosen, and how these were treated."""
        how = Counter(token.treatment for token in self.chosen)
        parts = [
            Phrase(f"{how[name]} {TREATMENT_NAMES[name].en}", f"{how[name]} {TREATMENT_NAMES[name].zh}")
            for name in TREATMENTS
        ]
        n, m = len(self.tokens), len(self.chosen)
        en, zh = join_phrases(parts, ", ").en, join_phrases(parts, "，").zh
        return Phrase(f"{n} tokens, {m} chosen: {en}", f"{n} 个词元，选中 {m} 个：{zh}")


class _Span(NamedTuple):
    """A stretch of a line; `style` is a name that the terminal may turn into a colour."""

    text: str
    style: str = ""


DrawnLine = list[_Span]


def draw_lines(instance: Instance, number: int = 1, width: int = 100, lang: str = "en") -> list[DrawnLine]:
    """One instance for a terminal of so many columns; wide characters count as two."""
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


def line_text(line: DrawnLine) -> str:
    return "".join(span.text for span in line).rstrip()


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
    """What is to be predicted where, wrapped."""
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
    """What the marks mean, wrapped between them."""
    check_page_language(lang)
    rows = [""]
    for part in getattr(LEGEND, lang).split(" · "):
        longer = f"{rows[-1]} · {part}" if rows[-1] else part
        rows = [*rows[:-1], longer] if cell_len(longer) <= width else [*rows, part]
    return [[_Span(row, "soft")] for row in rows]


@dataclass(frozen=True)
class _Instances:
    """The same as part of a page."""

    title: Words
    instances: tuple[Instance, ...]
    narrow: ClassVar[bool] = False

    @property
    def style(self) -> str:
        return resources.files("qkv.models.bert").joinpath("instances.css").read_text(encoding="utf-8")

    def html(self) -> str:
        return _legend() + "".join(_card(one, number) for number, one in enumerate(self.instances, start=1))


def instances_page(instances: Sequence[Instance], title: str, facts: Sequence[Words] = (), lang: str = "en") -> str:
    """An offline page of instances, with the look of every other report."""
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
    """A box: over it the target, in it what the model reads, under it the position."""
    kind = " ".join(filter(None, ("piece", token.treatment, "special" if token.special else "")))
    target = f"<b>{safe(printable(token.original))}</b>" if token.treatment else ""
    number = f"<i>{token.position}</i>" if numbered else ""
    return f'<span class="{kind}">{target}<span>{safe(printable(token.token))}</span>{number}</span>'
