"""A list of sentences as a section of a page."""

from dataclasses import dataclass
from typing import ClassVar

from qkv.report.bilingual import Words, spans


@dataclass(frozen=True)
class Notes:
    title: Words
    notes: tuple[Words, ...]
    style: ClassVar[str] = (
        ".plain-notes { margin: 0; padding: 12px 24px 12px 40px; background: var(--paper); border-radius: 14px; "
        "box-shadow: var(--shadow); overflow-wrap: anywhere }"
    )
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        items = "".join(f"<li>{spans(note)}</li>" for note in self.notes)
        return f'<ul class="plain-notes">{items}</ul>'
