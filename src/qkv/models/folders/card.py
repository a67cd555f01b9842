"""README.md of a saved folder: what it holds and how to load it, in Chinese and English.

What this file does NOT do: know a model. Each family gives the facts of its own (`Card`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MARK = "<!-- written by qkv: a new save writes it anew -->"


@dataclass(frozen=True)
class Card:
    name: str
    about: tuple[str, str]  # what the model is, in English and in Chinese
    tags: Sequence[str]  # for the hub, beside "qkv"
    library: str = "qkv"  # which one loads it
    pipeline: str | None = None  # the hub's name for the task
    sizes: Mapping[str, object] = field(default_factory=dict)
    labels: Sequence[str] = ()
    notes: Sequence[str] = ()
    command: str | None = None  # the first thing to do with it
    python: Sequence[str] = ()  # pieces of code that load it


def write_about(subject: str, english: str, chinese: str, parameters: int) -> tuple[str, str]:
    """What a model is, as `Card.about` has it.

    >>> write_about("word2vec", "a vector a word", "每词一个向量", 3000)
    ('word2vec: a vector a word. 3,000 parameters.', 'word2vec：每词一个向量。3,000 个参数。')
    """
    return f"{subject}: {english}. {parameters:,} parameters.", f"{subject}：{chinese}。{parameters:,} 个参数。"


def write_card(card: Card) -> str:
    """The text of README.md."""
    pipeline = [f"pipeline_tag: {card.pipeline}"] if card.pipeline else []
    head = ["---", f"library_name: {card.library}", *pipeline, "tags:", *(f"- {tag}" for tag in ("qkv", *card.tags))]
    parts = ["\n".join([*head, "---", MARK]), f"# {card.name}", *card.about]
    if card.sizes:
        parts.append("\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in card.sizes.items())]))
    if card.labels:
        parts.append(f"Labels / 标签: {', '.join(f'`{label}`' for label in card.labels)}")
    parts += card.notes
    if card.command or card.python:
        parts.append("## Use / 用法")
    if card.command:
        parts.append(f"```bash\n{card.command}\n```")
    parts += [f"```python\n{code}\n```" for code in card.python]
    return "\n\n".join(parts) + "\n"
