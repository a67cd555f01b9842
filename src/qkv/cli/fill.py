"""`qkv fill`: predict the token of each [MASK]. `qkv next`: does one sentence follow another (BERT's second task)."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption, ModelOption, load_model, text_or_stdin
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import translate

if TYPE_CHECKING:
    from qkv.api.model import Model

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

    --json prints one document: text, n_tokens, n_windows, n_unknown, and blanks with start, end (character positions)
    and candidates (token, text, probability).
    """
    text = text_or_stdin(text)
    loaded = load_model(model)
    blanks = loaded.fill(text, k)
    from qkv.cli.terminal import bar, print_json, print_table

    _warn_unknown(loaded, model, [text], blanks[0].n_unknown, blanks[0].n_tokens - 2 - len(blanks))
    if as_json:
        found = [{key: value for key, value in asdict(blank).items() if not key.startswith("n_")} for blank in blanks]
        sizes = {"n_tokens": blanks[0].n_tokens, "n_windows": blanks[0].n_windows, "n_unknown": blanks[0].n_unknown}
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


def score_next_sentence(
    first: Annotated[str, typer.Argument(metavar="A", help="The first sentence.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The sentence that may follow it.")],
    model: ModelOption = DEFAULT_MODEL,
    as_json: JsonOption = False,
) -> None:
    """Say how probable it is that sentence B follows sentence A in running text (next sentence prediction).

    \b
    qkv next "She opened the fridge to make breakfast." "There was not a single egg left."
    qkv next "他打开冰箱，想做顿早饭。" "里面连一个鸡蛋也没有了。" --json

    A model needs the head of BERT's second pretraining task: qkv-mini, a BertForPreTraining or
    BertForNextSentencePrediction folder. --json prints one document: first, second, is_next, not_next (probabilities),
    n_tokens, n_windows, n_unknown.
    """
    loaded = load_model(model)
    found = loaded.next_sentence(first, second)
    from qkv.cli.terminal import bar, print_json, print_table

    n_tokens = found.n_tokens - loaded.tokenizer.marks.around_pair
    _warn_unknown(loaded, model, [first, second], found.n_unknown, n_tokens)
    if as_json:
        print_json({"first": first, "second": second, **asdict(found)})
        return
    rows = [("follows", found.is_next), ("does not follow", found.not_next)]
    print_table(["", "", ""], [[translate(name), f"{share:.1%}", bar(share, 16)] for name, share in rows], right=(1,))


def _warn_unknown(model: "Model", name: str, texts: list[str], n_unknown: int, n_tokens: int) -> None:
    from qkv.cli.terminal import warn_unknown
    from qkv.text.unknown import UnknownCounter

    counter = UnknownCounter(model.tokenizer)
    counter.add(texts, n_unknown, n_tokens)
    warn_unknown(counter.facts(), name)


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
