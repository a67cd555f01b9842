"""Examples to be looked at: the text, what was expected, what was answered, how sure, and where it stands in the file.

A long text is shown around its answer, or from its beginning, and says how long it is: the file and the line lead to
the rest. What a user wrote enters as text alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from unicodedata import east_asian_width

from qkv.report.bilingual import Phrase, Words, percent, safe, spans
from qkv.report.finetune_facts import Shown

LENGTH = 260
"""Characters of a text that are shown."""
BETWEEN = {"tag": "; ", "answer": " / ", "multi": ", "}
"""What stands between the parts of a judgement: entities, accepted answers, labels."""
NOTHING = {
    "tag": Phrase("no span", "无片段"),
    "answer": Phrase("no answer", "无答案"),
    "multi": Phrase("no label", "无标签"),
}
EMPTY = ("", "–", "∅")  # how a judgement says nothing


@dataclass(frozen=True)
class ExamplesShown:
    title: Words
    examples: tuple[Shown, ...]
    task: str  # "multi" is classification with several labels
    note: Words = ""
    shown: int = 8
    narrow: bool = False

    @property
    def style(self) -> str:
        return resources.files("qkv.report").joinpath("examples_shown.css").read_text(encoding="utf-8")

    def html(self) -> str:
        cards = [_card(example, self.task) for example in self.examples]
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
    """What is shown of a text, and whether it is less than all: around the first of these that stands in it.

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


def _card(example: Shown, task: str) -> str:
    judged = example.judgement
    answers = []
    if task == "answer":
        answers = [(one, "wanted") for one in _items(judged.expected, task)] + [(judged.answered, "given")]
    text, cut = excerpt(example.text, [answer for answer, _ in answers])
    body = _marked(text, answers)
    first = f'<p class="text">{body}</p>'
    if example.pair is not None and example.pair.strip():
        pair = f'<p class="text pair">{safe(excerpt(example.pair)[0])}</p>'
        first = pair + first if task in ("answer", "choice") else first + pair
    elif not text:
        first = f'<p class="text empty">{spans(Phrase("(empty)", "（空）"))}</p>'
    return (
        f'<article class="case">{first}{_answers(example, task)}'
        f'<p class="place">{_place(example)}{_length(example, cut)}</p></article>'
    )


def _marked(text: str, answers: Sequence[tuple[str, str]]) -> str:
    """The text with the expected answers and the given one marked where they first stand."""
    places = sorted((text.find(answer), len(answer), kind) for answer, kind in answers if answer and answer in text)
    parts, done = [], 0
    for begin, size, kind in places:
        if begin < done:  # one lies in the other: the first is marked
            continue
        parts.append(f'{safe(text[done:begin])}<mark class="{kind}">{safe(text[begin : begin + size])}</mark>')
        done = begin + size
    return "".join(parts) + safe(text[done:])


def _answers(example: Shown, task: str) -> str:
    judged = example.judgement
    expected, answered = _items(judged.expected, task), _items(judged.answered, task)
    right = "" if judged.right else " wrong"
    rows = [
        (Phrase("expected", "应为"), _chips(expected, answered, "missed", task)),
        (Phrase("answered", "模型答"), _chips(answered, expected, "wrong", task) + _sure(judged.confidence)),
    ]
    cells = "".join(f"<dt>{spans(name)}</dt><dd>{content}</dd>" for name, content in rows)
    return f'<dl class="answers-of{right}">{cells}</dl>'


def _items(words: str, task: str) -> list[str]:
    return words.split(BETWEEN[task]) if task in BETWEEN else [words]


def _chips(items: Sequence[str], others: Sequence[str], kind: str, task: str) -> str:
    """What both have is quiet; what only this side has is the point."""
    nothing = NOTHING.get(task, Phrase("nothing", "无"))
    return " ".join(
        f'<span class="chip {"both" if item in others else kind}">'
        f"{spans(nothing if item.strip() in EMPTY else excerpt(item, length=90)[0])}</span>"
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
