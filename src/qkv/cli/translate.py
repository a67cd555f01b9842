"""`qkv train translate`: pairs of texts to a model that translates."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from qkv.cli.options import (
    DeviceOption,
    JsonOption,
    LanguageOption,
    RecipeOption,
    ResumeOption,
    RunOption,
    SetOption,
    ThreadsOption,
    TrainingDevice,
    check_not_read,
    report_result,
    suffix_of,
)
from qkv.errors import InputError

if TYPE_CHECKING:
    from collections import Counter

    from qkv.api.translator import Translation, Translator
    from qkv.search.options import GenerateConfig
    from qkv.text.segmenter import Segmenter


train = typer.Typer(help="Train a model on pairs of texts: translate.", rich_markup_mode=None)

_SEVERAL = ("--pairs", "--dev", "--test", "--more")
"""Options that take all names up to the next option: --pairs de.txt en.txt"""
_NOTHING = "Give pairs of texts with --pairs (or --example reverse) and a new folder for the run with --out."


class WithFiles(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_options(args))


def repeat_options(words: list[str]) -> list[str]:
    """An option that takes several names, written once for each of them, as the parser wants it.

    >>> repeated(["--pairs", "de", "en", "--out", "run"])
    ['--pairs', 'de', '--pairs', 'en', '--out', 'run']
    """
    found: list[str] = []
    option, taken = "", 0
    for word in words:
        if word.startswith("-") and word != "-":
            option, taken = word if word in _SEVERAL else "", 0
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
        "bitext.columns": split_two(columns, ",", "--columns") if columns is not None else None,
        "size": size,
        "tokenizer.size": vocabulary,
        "tokenizer.joint": False if separate else None,
        "epochs": epochs,
        "train.minutes": minutes,
        "device": device,
    }
    if languages is not None:
        given["bitext.source_language"], given["bitext.target_language"] = split_two(languages, "-", "--languages")
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        if flags or any(one is not None for one in (out, model, recipe, settings, example)):
            raise InputError("--resume goes on with the settings of the run; leave out everything else.")
        from qkv.jobs.translate.training import TRANSLATING

        with for_stderr() as progress:
            finished = TRANSLATING.resume(resume, progress)
    else:
        if out is None:
            raise InputError(_NOTHING)
        if example is not None and {"bitext.train", "bitext.dev", "bitext.test", "bitext.more"} & set(flags):
            raise InputError("--example brings its own pairs: leave out --pairs, --dev, --test and --more.")
        finished = _begin(example, model, out, recipe, flags, settings or [])
    run = finished.run
    left = f"\n{run / 'model'}: the model. Try: qkv translate {run} TEXT\n{run / 'report.html'}: the whole story"
    report_result("translate", finished, as_json, _show, left)


def _begin(
    example: str | None, model: str | None, out: Path, recipe: Path | None, flags: dict[str, Any], settings: list[str]
) -> Any:
    from qkv.config import Requested
    from qkv.errors import did_you_mean
    from qkv.jobs.translate.example import example_settings, start_example
    from qkv.jobs.translate.settings import TRANSLATION_MODELS, resolve_translation_settings
    from qkv.jobs.translate.training import TRANSLATING
    from qkv.train.progress import for_stderr

    if model is not None and model not in TRANSLATION_MODELS:
        hint = did_you_mean(model, TRANSLATION_MODELS)
        raise InputError(f"'{model}' does not translate.{hint} Known: {', '.join(TRANSLATION_MODELS)}.")
    begun = None if example is None else example_settings(example, model or "transformer")
    config = resolve_translation_settings(Requested(recipe, {"model_type": model, **flags}, settings), begun)
    if example is None and not config.bitext.train:  # a recipe or a setting may have named the pairs
        raise InputError(_NOTHING)
    with for_stderr() as progress:
        if example is not None:
            return start_example(example, config, out, progress)
        return TRANSLATING.start(config, out, progress)


def split_two(text: str, separator: str, option: str) -> tuple[str, str]:
    """
    >>> two_of("en-zh-CN", "-", "--languages")
    ('en', 'zh-CN')
    """
    first, found, second = text.partition(separator)
    if not found or not first.strip() or not second.strip():
        raise InputError(f"{option} takes two, source and target, as in {option} A{separator}B; not '{text}'.")
    return first.strip(), second.strip()


def _show(result: dict[str, Any]) -> None:
    from qkv.tasks.translate import summarize_scores

    for name, score in result["scores"].items():
        typer.echo(f"{name}, {score['pairs']:,} pairs:")
        for line in summarize_scores(score):
            typer.echo(f"  {line}")
    typer.echo(f"weights: {result['weights']}")


# --- `qkv translate`: texts in another language, with the words they came from.

_WRITTEN = {".txt": "a translation a line", ".tsv": "source and translation", ".jsonl": "JSON lines"}
_PLAIN = (".txt", ".tsv")  # what holds the best translation of a text and nothing beside it
_SHOWN = 5  # translations without an end that are told one by one; of more, how many there are


def translate_texts(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A translation run, a model folder, or hf:owner/name.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT|FILE", help="Texts, one file of lines, or - for standard input.")
    ] = None,
    beams: Annotated[int | None, typer.Option("--beams", metavar="N", help="Of beam search; 1: greedy.")] = None,
    n_best: Annotated[int | None, typer.Option("--n-best", metavar="N", help="Translations of a text.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option("--length-penalty", metavar="A", help="More than 1 favours long ones.")
    ] = None,
    coverage_penalty: Annotated[
        float | None, typer.Option("--coverage-penalty", metavar="B", help="Against words nobody looked at.")
    ] = None,
    min_length: Annotated[int | None, typer.Option("--min-length", metavar="N", help="Tokens, at least.")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", metavar="N", help="Tokens, at most.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", metavar="P", help="Above 1: less of what was written.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option("--no-repeat", metavar="N", help="No run of N tokens comes twice.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw by chance instead of the best.")] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="Of --sample: below 1, surer.")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help="Of --sample: the K likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help="Of --sample: the likeliest.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Of --sample.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--decoding", metavar="KEY=VALUE", help="Any other option; repeatable.")
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Sentence by sentence, for texts of several.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Which word came from which.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.svg", help="Draw the alignment of one text.")
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option("--segmenter", metavar="NAME", help="Of Chinese words: rjieba, the usual one if installed; none."),
    ] = None,
    lang: LanguageOption = "en",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .txt, .tsv or .jsonl.")] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision", metavar="TYPE", help="fp32; on a CPU int8, faster and nearly the same, or drafted, the same."
        ),
    ] = "fp32",
    as_json: JsonOption = False,
) -> None:
    """Translate texts or a file, with a model of `qkv train translate` or an OPUS-MT folder.

    \b
    qkv translate run "Ein Mann liest ein Buch."
    qkv translate run "Tom chases Jerry" --alignments --picture tom.svg
    qkv translate run news.de --out news.en.txt --beams 5
    qkv translate run "Ein Hund." --n-best 3
    qkv translate run "Ein Hund." --sample --top-p 0.9 --seed 1
    cat news.de | qkv translate run - --json

    A file has a text a line (.tsv: the first column, .jsonl: source or text), and its translations come in the same
    order. A text that is longer than the model was made for is refused, unless --split cuts it into sentences; in a
    file it is found before anything is translated. Characters that the vocabulary lacks are told, and stand in the JSON
    (n_unknown, unknown).
    --decoding has the options that have no flag: max_ratio, length_formula, stopping, renormalise.
    --json prints one line of JSON a text; with --alignments, character spans on both sides. Chinese words are what
    --segmenter says; with none, each 汉字 is a word.
    """
    if not inputs:
        raise InputError('Give texts or a file: qkv translate RUN "a text"; or - to read standard input.')
    from qkv.api.predict import check_is_text, is_file

    file = Path(inputs[0]).expanduser() if len(inputs) == 1 and is_file(inputs[0]) else None
    for text in inputs if file is None and inputs != ["-"] else ():
        check_is_text(text, languages=True)
    check_not_read(out, [file])
    if picture is not None:
        suffix_of(picture, {".svg": "a picture"})
        if len(inputs) != 1 or inputs[0] == "-" or file is not None:
            raise InputError("--picture draws the alignment of one text: give that text alone.")
    aligned = alignments or picture is not None
    if segmenter is not None and not aligned:
        raise InputError("--segmenter is for alignments: add --alignments or --picture, or leave it out.")
    words = _segmenter(segmenter) if aligned else None
    suffix = None if out is None else suffix_of(out, _WRITTEN)
    if suffix is not None and as_json:
        raise InputError("Choose one: --json, which prints, or --out, which writes JSON if its file ends in .jsonl.")
    if suffix in _PLAIN and alignments:
        raise InputError(f"A {suffix} file has no place for --alignments: leave them out, or write .jsonl.")
    given: dict[str, Any] = {
        "beams": beams,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
        "min_length": min_length,
        "max_length": max_length,
        "repetition_penalty": repetition_penalty,
        "no_repeat": no_repeat,
        "sample": sample or None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    wanted = {key: value for key, value in given.items() if value is not None}
    from qkv.api.translator import load_translator
    from qkv.cli.terminal import say

    # an option that is not there is told before a model is loaded
    wanted |= parse_decoding(options or [])
    translator = load_translator(run, device, threads, precision)
    for note in translator.notes:
        say(f"note: {note}")
    config = resolve_decoding(translator, wanted)
    if suffix in _PLAIN and config.n_best > 1:
        raise InputError(f"A {suffix} file has a translation a text, and n_best is {config.n_best}: write .jsonl.")
    how: dict[str, Any] = {"alignments": aligned, "segmenter": words, "split": split}
    # what cannot be translated is told before anything is; standard input can be read but once
    count = None if inputs == ["-"] else translator.check(_texts(inputs, file), split=split)
    found = _warn_unfinished(_report_partial(translator.stream_placed(_texts(inputs, file), config, **how), out))
    if picture is not None:
        found = _draw_pictures(found, picture, translator, lang)
    if out is not None and suffix is not None:
        _write(out, suffix, found, count)
        return
    for number, one in enumerate(found):
        if as_json:
            from qkv.cli.terminal import print_json

            print_json(one.to_dict())
        else:
            _print(one, alignments, number)


def _segmenter(name: str | None) -> "Segmenter | None":
    from qkv.text.segmenter import is_installed, segmenter

    return segmenter(name or ("rjieba" if is_installed("rjieba") else "none"))


def resolve_decoding(translator: "Translator", wanted: dict[str, Any]) -> "GenerateConfig":
    """The model's own way of decoding, changed by what was asked for."""
    from dataclasses import asdict

    from qkv.search.options import GenerateConfig

    own = {key: value for key, value in asdict(translator.decoding).items() if value is not None}
    if wanted.get("sample"):
        own["beams"] = 1  # unless beams were asked for as well, which is told
    elif "beams" not in wanted and isinstance(n_best := wanted.get("n_best"), int):  # what is no number is told below
        own["beams"] = max(own["beams"], n_best)  # so many are looked for, at least
    config = GenerateConfig.of(own | wanted)
    if "seed" in wanted and not config.sample:
        raise InputError("seed is for drawing by chance: add --sample, or leave --seed out.")
    return config


def parse_decoding(options: list[str]) -> dict[str, Any]:
    """What --decoding gives a value."""
    import tomllib

    from qkv.search.options import GenerateConfig

    found: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise InputError(f"--decoding {option}: write KEY=VALUE, such as stopping=never.")
        try:
            found[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = text
    unknown = {key: value for key, value in found.items() if key not in vars(GenerateConfig())}
    GenerateConfig.of(unknown)  # refuses what is not there, and says what it may have been
    return found


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    """A text a line, and its place; of .tsv the first column, of .jsonl the field source or text."""
    from qkv.data.readers import COMPRESSED, read_texts

    ending = Path(path.stem if path.suffix.lower() in COMPRESSED else path.name).suffix.lower()
    for text, place in read_texts(path, "source", "text"):
        if ending == ".tsv":
            yield text.split("\t")[0], place
        elif ending != ".jsonl" and "\t" in text:
            raise InputError(
                f"{place} has columns, between tabs, and a text would be one of them. Call the file .tsv to have its "
                "first column translated, or give a file of texts alone."
            )
        else:
            yield text, place


def _texts(inputs: list[str], file: Path | None) -> Iterator[tuple[str, str]]:
    """Each text, and what messages call it."""
    if inputs == ["-"]:
        from qkv.data.readers import read_texts

        yield from read_texts("-")
    elif file is not None:
        yield from _of_file(file)
    else:
        for number, text in enumerate(inputs, 1):
            if not text.strip():
                raise InputError(f"Text {number} is empty.")
            yield text, f"Text {number}"


def _print(one: "Translation", alignments: bool, number: int) -> None:
    from qkv.cli.terminal import print_table

    if len(one.candidates) > 1:
        if number:
            typer.echo("")
        for candidate in one.candidates:
            typer.echo(f"{candidate.score:.4f}\t{candidate.text}")
    else:
        typer.echo(one.text)
    if alignments:
        links = one.best.alignments
        if not links:
            typer.echo("  (this model has no attention to read an alignment from)")
            return
        rows = [
            [
                f"  {one.source[slice(*link.source)]}",
                one.text[slice(*link.target)],
                f"{link.weight:.0%}",
                f"{link.source.start}–{link.source.end} → {link.target.start}–{link.target.end}",
            ]
            for link in links
        ]
        print_table(["", "", "", ""], rows, right=(2,))


def _warn_unfinished(found: Iterator["Translation"]) -> Iterator["Translation"]:
    """The same; what was not ended is told, the first ones by name, and at the end what the vocabulary lacks."""
    from collections import Counter

    from qkv.cli.terminal import say

    unfinished = texts = 0
    unknown: Counter[str] = Counter()
    for one in found:
        unknown.update(one.unknown_words)
        texts += bool(one.unknown)
        if not one.best.finished:
            unfinished += 1
            if unfinished <= _SHOWN:
                say(f"note: the translation of {one.source[:40]!r} was not ended after {one.best.n_tokens} tokens")
        yield one
    if unfinished > _SHOWN:
        say(f"note: and {unfinished - _SHOWN:,} more were not ended, {unfinished:,} in all")
    if unknown:
        say(f"note: {unknown_to_the_model(unknown, texts)}")


def unknown_to_the_model(unknown: "Counter[str]", texts: int, pieces: int | None = None) -> str:
    """`pieces`: how many there are, where `unknown` has only the most frequent.

    >>> from collections import Counter
    >>> unknown_to_the_model(Counter("ï🐱🐱"), 2)
    "the vocabulary lacks 3 pieces of 2 texts, which the model reads as unknown and can only guess: '🐱' (2), 'ï'"
    """
    words = [f"{word!r}" + (f" ({count:,})" if count > 1 else "") for word, count in unknown.most_common(_SHOWN)]
    total = unknown.total() if pieces is None else pieces
    return (
        f"the vocabulary lacks {'a piece' if total == 1 else f'{total:,} pieces'} of "
        f"{'a text' if texts == 1 else f'{texts:,} texts'}, which the model reads as unknown and can only guess: "
        f"{', '.join(words)}{' …' if len(unknown) > _SHOWN else ''}"
    )


def _report_partial(found: Iterator["Translation"], out: Path | None) -> Iterator["Translation"]:
    """The same; where a text cannot be translated, the message says what has become of those before it."""
    done = 0
    try:
        for one in found:
            done += 1
            yield one
    except InputError as error:
        if not done:
            raise
        kept = "were translated and printed" if out is None else f"were translated, and nothing was written to {out}"
        raise InputError(f"{error} The first {done:,} texts {kept}.") from error


def _draw_pictures(
    found: Iterator["Translation"], picture: Path, translator: "Translator", lang: str
) -> Iterator["Translation"]:
    """The same, drawn as they come: of --picture there is one."""
    for one in found:
        _draw(picture, one, translator, lang)
        yield one


def _draw(picture: Path, one: "Translation", translator: "Translator", lang: str) -> None:
    from qkv.cli.terminal import say
    from qkv.files import write_text
    from qkv.report.alignment_picture import svg

    attention = one.best.attention
    if attention is None:
        raise InputError(
            f"{translator.path} has no attention, so there is no alignment to draw. Train one that has: "
            "--set seq2seq.context=attention, or the Transformer."
        )
    write_text(picture, svg(attention, lang=lang))
    say(f"{picture}: which word came from which")


def _write(out: Path, suffix: str, found: Iterator["Translation"], total: int | None) -> None:
    import json

    from qkv.cli.terminal import progress, say
    from qkv.files import replaced_file

    count = 0
    with progress("texts", total) as advance, replaced_file(out) as part, part.open("w", encoding="utf-8") as file:
        for one in found:
            text = " ".join(one.text.split())
            if suffix == ".jsonl":
                file.write(json.dumps(one.to_dict(), ensure_ascii=False) + "\n")
            elif suffix == ".tsv":
                file.write(f"{' '.join(one.source.split())}\t{text}\n")
            else:
                file.write(text + "\n")
            count += 1
            advance(1)
    say(f"{out}: {count:,} translations")
