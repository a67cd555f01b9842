"""`qkv fill`: predict the token of each [MASK]."""

from dataclasses import asdict
from typing import Annotated

import typer

from qkv.cli.options import JsonOption, ModelOption, load_model, text_or_stdin
from qkv.models.folders.hub import DEFAULT_MODEL

_SHOWN = 32  # characters on either side of a blank


def fill_blanks(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text with one or more [MASK]; - reads standard input.")],
    model: ModelOption = DEFAULT_MODEL,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Candidates per blank.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Predict the most probable tokens for every [MASK] of a text.

    \b
    qkv fill "The capital of France is [MASK]."
    qkv fill "巴黎是[MASK]国的首都。" -k 3 --json
    qkv fill "Paris is the [MASK] of France." --model hf:google-bert/bert-base-uncased

    --json prints one document: text, n_tokens, n_windows, and blanks with start, end (character positions) and
    candidates (token, text, probability).
    """
    text = text_or_stdin(text)
    blanks = load_model(model).fill(text, k)
    from qkv.cli.terminal import bar, print_json, print_table

    if as_json:
        found = [{key: value for key, value in asdict(blank).items() if not key.startswith("n_")} for blank in blanks]
        sizes = {"n_tokens": blanks[0].n_tokens, "n_windows": blanks[0].n_windows}
        print_json({"text": text, "blanks": found, **sizes})
        return
    for blank in blanks:
        before, after = _around(text, blank.start, blank.end)
        rows = [
            [
                f"{candidate.probability:.1%}",
                bar(candidate.probability, 16),
                candidate.token,
                f"{before}{candidate.text}{after}",
            ]
            for candidate in blank.candidates
        ]
        if blank is not blanks[0]:
            typer.echo()
        print_table([f"blank at {blank.start}", "", "token", "reads"], rows, right=(0,))


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the text before and after a blank, shortened.

    >>> _around("The capital of France is [MASK].", 25, 31)
    ('The capital of France is ', '.')
    >>> _around("a" * 40 + "[MASK]" + "b" * 32, 40, 46) == ("…" + "a" * 32, "b" * 32)
    True
    """
    before = ("…" if start > _SHOWN else "") + text[max(0, start - _SHOWN) : start]
    after = text[end : end + _SHOWN] + ("…" if len(text) - end > _SHOWN else "")
    return before, after
