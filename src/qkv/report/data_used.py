"""What became of the labelled data: how much of each part was used, cut into windows, mended or left out, by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from qkv.data.examples import Fault
from qkv.report.bars import Cell, Label, table
from qkv.report.bilingual import Phrase, Words, count, percent, safe, spans
from qkv.report.finetune_facts import DataFacts
from qkv.report.task_names import PARTS

ACTIONS = {
    "dropped": Phrase("left out", "略去"),
    "mended": Phrase("mended", "修正"),
    "noted": Phrase("noted", "记录"),
}
SHOWN = 12
"""Faults in view; the others are folded away."""


@dataclass(frozen=True)
class DataUsed:
    title: Words
    parts: tuple[tuple[str, DataFacts], ...]  # "train", "dev", "test"
    narrow: bool = False

    @property
    def style(self) -> str:
        return resources.files("qkv.report").joinpath("data_used.css").read_text(encoding="utf-8")

    def html(self) -> str:
        headings = (
            Phrase("part", "部分"),
            Phrase("file", "文件"),
            Phrase("examples", "样本"),
            Phrase("tokens", "词元"),
            Phrase("longest", "最长"),
            Phrase("in windows", "分窗口的"),
            Phrase("mended", "修正"),
            Phrase("left out", "略去"),
        )
        text = table(headings, [_row(name, part) for name, part in self.parts])
        if any(part.windowed for _, part in self.parts):
            most = max(part.most_windows for _, part in self.parts)
            note = Phrase(
                f"Nothing is cut off: a text longer than the model is read in overlapping windows (at most {most:,} "
                "here), all of which count.",
                f"没有截断：超过模型长度的文本分成互相重叠的窗口来读（这里最多 {most:,} 个），每个窗口都算数。",
            )
        else:
            note = Phrase("Every text fits the model whole; nothing is cut off.", "每条文本都放得进模型，没有截断。")
        text += f'<p class="note">{spans(note)}</p>'
        return text + _faults([fault for _, part in self.parts for fault in part.faults], self._missing())

    def _missing(self) -> int:
        """Faults that happened and are not listed."""
        happened = sum(part.n_dropped + part.n_mended for _, part in self.parts)
        listed = sum(fault.action in ("dropped", "mended") for _, part in self.parts for fault in part.faults)
        return max(0, happened - listed)


def _row(name: str, part: DataFacts) -> tuple[Cell, ...]:
    windowed: Words = "0"
    if part.windowed:
        share = percent(part.windowed / max(1, part.examples))
        windowed = Phrase(f"{part.windowed:,} ({share})", f"{part.windowed:,}（{share}）")
    return (
        PARTS.get(name, name),
        Label(part.source or "–"),
        f"{part.examples:,}",
        count(part.tokens),
        f"{part.longest:,}",
        windowed,
        f"{part.n_mended:,}",
        f"{part.n_dropped:,}",
    )


def _faults(faults: Sequence[Fault], missing: int) -> str:
    if not faults:
        return ""
    items = [
        f'<li><b class="{safe(fault.action)}">{spans(ACTIONS.get(fault.action, fault.action))}</b>'
        f"<code>{safe(f'{fault.place.file}:{fault.place.line}')}</code><span>{safe(fault.message)}</span></li>"
        for fault in faults
    ]
    cut = SHOWN if len(items) > SHOWN + 4 else len(items)
    text = f'<ul class="faults">{"".join(items[:cut])}</ul>'
    if items[cut:]:
        more = Phrase(f"{len(items) - cut:,} more", f"其余 {len(items) - cut:,} 条")
        folded = f'<ul class="faults">{"".join(items[cut:])}</ul>'
        text += f'<details class="more"><summary>{spans(more)}</summary>{folded}</details>'
    if missing:
        rest = Phrase(f"{missing:,} further ones are not listed here.", f"另有 {missing:,} 条没有列在这里。")
        text += f'<p class="note rest">{spans(rest)}</p>'
    return f'<div class="scroll faulty">{text}</div>'
