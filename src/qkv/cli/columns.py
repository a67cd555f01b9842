"""How a labelled file is read, as options of the verbs that read one: which column holds what, and the format."""

from typing import Annotated

import typer


def _column(name: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(f"--{name}", metavar="COLUMN", help=f"Column of {what}.")


TextColumn = Annotated[str | None, _column("text", "the text")]
PairColumn = Annotated[str | None, _column("pair", "the second text")]
LabelColumn = Annotated[str | None, _column("label", "the label")]
GroupColumn = Annotated[str | None, _column("group", "what belongs together in a split")]
QuestionColumn = Annotated[str | None, _column("question", "the question")]
ContextColumn = Annotated[str | None, _column("context", "the passage")]
AnswerColumn = Annotated[str | None, _column("answer", "the answer")]
ChoicesColumn = Annotated[str | None, _column("choices", "the choices")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="csv, tsv, jsonl, conll, squad …; found out if left out.")
]
SeparatorOption = Annotated[
    str | None, typer.Option("--separator", metavar="TEXT", help="Between several labels in one cell.")
]


def given(**options: str | None) -> dict[str, str]:
    """Those that were given.

    >>> given(text="评论", label=None)
    {'text': '评论'}
    """
    return {name: value for name, value in options.items() if value is not None}
