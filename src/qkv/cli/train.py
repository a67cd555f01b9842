"""`qkv train translate`: pairs of texts to a model that translates."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from qkv.cli.options import JsonOption
from qkv.cli.training import RecipeOption, ResumeOption, RunOption, SetOption, TrainingDevice, tell
from qkv.errors import InputError

train = typer.Typer(help="Train a model on pairs of texts: translate.", rich_markup_mode=None)

SEVERAL = ("--pairs", "--dev", "--test", "--more")
"""Options that take all names up to the next option: --pairs de.txt en.txt"""
NOTHING = "Give pairs of texts with --pairs (or --example reverse) and a new folder for the run with --out."


class WithFiles(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated(args))


def repeated(words: list[str]) -> list[str]:
    """An option that takes several names, written once for each of them, as the parser wants it.

    >>> repeated(["--pairs", "de", "en", "--out", "run"])
    ['--pairs', 'de', '--pairs', 'en', '--out', 'run']
    """
    found: list[str] = []
    option, taken = "", 0
    for word in words:
        if word.startswith("-") and word != "-":
            option, taken = word if word in SEVERAL else "", 0
            found.append(word)
        else:
            found += [option, word] if option and taken else [word]
            taken += 1
    return found


@train.callback()
def _noun() -> None:
    """Train a model on pairs of texts."""


@train.command("translate", cls=WithFiles)
def train_translate(
    pairs: Annotated[
        list[str] | None, typer.Option("--pairs", metavar="FILE [FILE]", help="Source and target, or one with both.")
    ] = None,
    dev: Annotated[
        list[str] | None, typer.Option("--dev", metavar="FILE [FILE]", help="To choose by; else held out of --pairs.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", metavar="FILE [FILE]", help="To judge by, once, at the end.")
    ] = None,
    more: Annotated[
        list[str] | None, typer.Option("--more", metavar="FILE …", help="Further pairs to train on, both in a file.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Of source and target in a file with both.")
    ] = None,
    example: Annotated[
        str | None, typer.Option("--example", metavar="NAME", help="reverse: digits backwards, in a minute.")
    ] = None,
    out: RunOption = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="transformer (the default) or seq2seq.")
    ] = None,
    size: Annotated[str | None, typer.Option("--size", metavar="NAME", help="One of the model's sizes, below.")] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", metavar="A-B", help="Codes, as in de-en; else by the files' names.")
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option("--vocab-size", metavar="N", help="Tokens of a vocabulary that is learned.")
    ] = None,
    separate: Annotated[bool, typer.Option("--separate", help="A vocabulary for each side, not one for both.")] = False,
    epochs: Annotated[float | None, typer.Option("--epochs", metavar="E", help="Times through the pairs.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Time to train; turned into steps at the start.")
    ] = None,
    recipe: RecipeOption = None,
    device: TrainingDevice = None,
    settings: SetOption = None,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model that translates: the Transformer, or recurrent networks with or without attention.

    \b
    qkv train translate --example reverse --out run      a first one, in a minute on a CPU
    qkv translate run "1 2 3 4"

    \b
    qkv train translate --pairs train.de train.en --dev val.de val.en --test test.de test.en --out run
    qkv train translate --pairs cmn.txt --languages en-zh --separate --epochs 30 --out run
    qkv train translate --model seq2seq --pairs train.de train.en --out run --set seq2seq.context=fixed
    qkv train translate --recipe recipes/translate-multi30k.toml --pairs train.de train.en --device cuda --out run
    qkv train translate --resume run

    \b
    Pairs     two files that go line by line, or one: columns between tabs, or .jsonl; also .gz, .xz
    Sizes     transformer: tiny, small, base, big; seq2seq: small, base
    seq2seq   --set seq2seq.context=fixed|every_step|attention, seq2seq.score=additive|dot|bilinear

    \b
    RUN/model             the model: qkv translate RUN TEXT
    RUN/report.html       BLEU and chrF, curves, translations, BLEU by length
    RUN/translations.tsv  what the model made of the pairs it was judged by
    RUN/faults.jsonl      pairs that were left out, with their lines

    BLEU and chrF are counted by sacrebleu: pip install 'qkv[translate]'. Without --dev, 2 % of the pairs are held out,
    by a hash of their source. Ctrl-C saves and stops; --resume goes on, and ends as if never stopped.
    --json prints one document: run, finished, result.
    """
    from qkv.train.progress import for_stderr

    given: dict[str, Any] = {
        "bitext.train": tuple(pairs) if pairs else None,
        "bitext.dev": tuple(dev) if dev else None,
        "bitext.test": tuple(test) if test else None,
        "bitext.more": tuple(more) if more else None,
        "bitext.columns": two_of(columns, ",", "--columns") if columns is not None else None,
        "size": size,
        "tokenizer.size": vocabulary,
        "tokenizer.joint": False if separate else None,
        "epochs": epochs,
        "train.minutes": minutes,
        "device": device,
    }
    if languages is not None:
        given["bitext.source_language"], given["bitext.target_language"] = two_of(languages, "-", "--languages")
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        if flags or any(one is not None for one in (out, model, recipe, settings, example)):
            raise InputError("--resume goes on with the settings of the run; leave out everything else.")
        from qkv.run.train_translate import resume as go_on

        with for_stderr() as progress:
            finished = go_on(resume, progress)
    else:
        if out is None:
            raise InputError(NOTHING)
        if example is not None and {"bitext.train", "bitext.dev", "bitext.test", "bitext.more"} & set(flags):
            raise InputError("--example brings its own pairs: leave out --pairs, --dev, --test and --more.")
        finished = _begin(example, model, out, recipe, flags, settings or [])
    run = finished.run
    left = f"\n{run / 'model'}: the model. Try: qkv translate {run} TEXT\n{run / 'report.html'}: the whole story"
    tell("train translate", finished, as_json, _show, left)


def _begin(
    example: str | None, model: str | None, out: Path, recipe: Path | None, flags: dict[str, Any], settings: list[str]
) -> Any:
    from qkv.errors import did_you_mean
    from qkv.run.train_translate import start
    from qkv.run.translate_config import MODELS, configured
    from qkv.run.translate_example import example_settings, start_example
    from qkv.train.progress import for_stderr

    if model is not None and model not in MODELS:
        raise InputError(f"'{model}' does not translate.{did_you_mean(model, MODELS)} Known: {', '.join(MODELS)}.")
    begun = None if example is None else example_settings(example, model or "transformer")
    config = configured(recipe, flags, settings, model, begun)
    if example is None and not config.bitext.train:  # a recipe or a setting may have named the pairs
        raise InputError(NOTHING)
    with for_stderr() as progress:
        if example is not None:
            return start_example(example, config, out, progress)
        return start(config, out, progress)


def two_of(text: str, separator: str, option: str) -> tuple[str, str]:
    """
    >>> two_of("en-zh-CN", "-", "--languages")
    ('en', 'zh-CN')
    """
    first, found, second = text.partition(separator)
    if not found or not first.strip() or not second.strip():
        raise InputError(f"{option} takes two, source and target, as in {option} A{separator}B; not '{text}'.")
    return first.strip(), second.strip()


def _show(result: dict[str, Any]) -> None:
    from qkv.tasks.translate import summary

    for name, score in result["scores"].items():
        typer.echo(f"{name}, {score['pairs']:,} pairs:")
        for line in summary(score):
            typer.echo(f"  {line}")
    typer.echo(f"weights: {result['weights']}")
