"""The first part of `qkv demo`: blanks, pairs of sentences and attention, in English and Chinese."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qkv.cli.attention import print_attention, write_attention

if TYPE_CHECKING:
    from qkv.report.attention_map import AttentionMap
    from qkv.run.predict import Model

BLANKS = (
    "The capital of France is [MASK].",
    "She drank a cup of [MASK].",
    "The river flows into the Atlantic [MASK].",
    "He was [MASK] in London in 1815.",
    "巴黎是[MASK]国的首都。",
    "长江是中国最长的[MASK]流。",
    "第二次世界大[MASK]于1939年爆发。",
    "这部电[MASK]于1994年上映。",
)
PAIRS = (
    ("The old man opened the door and looked out.", "There was nobody in the street.", "The album came out in 2004."),
    ("昨天夜里下了一场大雨。", "今天早上路面还是湿的。", "该银行成立于1865年。"),
)
LOOKS = {
    "en": ("The king and his sons rode to London", "his", "king"),
    "zh": ("国王和他的儿子去了伦敦", "他", "国王"),
}
"""A sentence, a word that stands for another, and that other word."""


def demo_tour(out: Path, layer: int | None, head: int | None) -> None:
    from qkv.run.load import load

    model = load()
    drawn = {lang: model.attention(text) for lang, (text, _, _) in LOOKS.items()}
    chosen = {}
    for lang, (_, word, meant) in LOOKS.items():
        # a wrong number is told here, before anything is printed or written
        chosen[lang] = clearest(drawn[lang], word, meant, layer, head)
    layers, heads = len(drawn["en"].layers), len(drawn["en"].heads)
    size = f"{layers} layers of width {model.config.width}, {heads} heads each"
    typer.echo(f"{model.name}: a BERT of {size}, for Chinese and English, from the package itself")
    typer.echo("\nWhat stands behind [MASK]?\n")
    for text in BLANKS:
        best_words = model.fill(text, k=4)[0].candidates
        typer.echo(f"{text}\n    {', '.join(f'{one.text} {one.probability:.0%}' for one in best_words)}")
    typer.echo("\nWhich sentence comes next?\n")
    _judge(model)
    for lang, (text, word, meant) in LOOKS.items():
        open_to = (layers if layer is None else 1) * (heads if head is None else 1)
        measured = f" (of {open_to} heads, the one that sees “{meant}” most)" if open_to > 1 else ""
        typer.echo(f"\n{text}: what does “{word}” look at?{measured}\n")
        print_attention(drawn[lang], *chosen[lang], word)
    typer.echo("")
    for lang, (_, word, _) in LOOKS.items():
        for ending, what in ((".svg", "this head as a picture"), (".html", "every head on one page")):
            file = out / f"attention.{lang}{ending}"
            write_attention(drawn[lang], file, *chosen[lang], word, lang)
            typer.echo(f"{file}: {what}")


def clearest(
    found: "AttentionMap", word: str, meant: str, layer: int | None = None, head: int | None = None
) -> tuple[int, int]:
    """Layer and head where one word looks at another most, beyond what all the words of the sentence do; a layer or
    head that is given is the only one looked at."""
    from qkv.report.attention_picture import choose

    first = found.weights(found.layers[0] if layer is None else layer, found.heads[0] if head is None else head)
    left, right = (list(choose(found, first, one)) for one in (word, meant))
    looks = found.attn[..., right].sum(-1) / 255  # (layers, heads, T)
    beyond = looks[..., left].mean(-1) - looks.mean(-1)
    layers, heads = (found.layers if layer is None else (layer,)), (found.heads if head is None else (head,))
    open_to = [(one, other) for one in layers for other in heads]
    return max(open_to, key=lambda pair: beyond[found.layers.index(pair[0]), found.heads.index(pair[1])])


def _judge(model: "Model") -> None:
    from qkv.cli.terminal import bar, table

    rows = []
    for first, *seconds in PAIRS:
        for number, second in enumerate(seconds):
            likely = model.next_sentence(first, second).is_next
            rows.append(("" if number else first, second, f"{likely:.0%}", bar(likely, 16)))
    table(["after", "comes", "", ""], rows, right=(2,))
