"""`qkv train translate` and `qkv translate`: train a translation model on sentence pairs, and translate with it."""

from collections.abc import Iterator
from functools import partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    AnyModelOption,
    ClusterOption,
    DeviceOption,
    JsonOption,
    LanguageOption,
    MinProcessesOption,
    Noun,
    OverwriteOption,
    PartRowsOption,
    ProcessesOption,
    RecipeOption,
    ResumeOption,
    RunOption,
    SetOption,
    ThreadsOption,
    TrainingDevice,
    WithFiles,
    check_not_read,
    choose_device,
    end_other_process,
    join_processes,
    quick_start,
    report_result,
    suffix_of,
    take_model,
)
from qkv.errors import InputError
from qkv.text.messages import write

if TYPE_CHECKING:
    from collections import Counter

    from qkv.api.translator import Translation, Translator
    from qkv.text.segmenter import Segmenter


train = typer.Typer(help="Train a model on sentence pairs: translate, embed.", rich_markup_mode=None, cls=Noun)

_NOTHING = "Give sentence pairs with --pairs (or --example reverse) and a new folder for the run with --out."


@train.callback()
def _noun() -> None:
    """Train a model on sentence pairs: translate, embed."""


@train.command("translate", short_help="Train a translation model on sentence pairs.", cls=WithFiles)
def train_translate(
    invocation: typer.Context,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--pairs", metavar="FILE [FILE]", help="Training set: source and target file, or one file with both."
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            "--dev", metavar="FILE [FILE]", help="Development set, for model selection (default: held out of --pairs)."
        ),
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", metavar="FILE [FILE]", help="Test set, evaluated once after training.")
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--more", metavar="FILE …", help="Additional training pairs; each file has both sides."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Columns of source and target in a file with both.")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option("--example", metavar="NAME", help="Built-in data: reverse (digits reversed; trains in a minute)."),
    ] = None,
    out: RunOption = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="transformer (default) or seq2seq.")
    ] = None,
    size: Annotated[str | None, typer.Option("--size", metavar="NAME", help="Model size, see below.")] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            "--languages", metavar="A-B", help="Language codes, such as de-en (default: from the file names)."
        ),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option("--vocab-size", metavar="N", help="Size of the learned vocabulary.")
    ] = None,
    separate: Annotated[bool, typer.Option("--separate", help="Learn one vocabulary per language.")] = False,
    epochs: Annotated[float | None, typer.Option("--epochs", metavar="E", help="Number of epochs.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Training time; converted to steps at the start.")
    ] = None,
    recipe: RecipeOption = None,
    device: TrainingDevice = None,
    processes: ProcessesOption = None,
    cluster: ClusterOption = None,
    min_processes: MinProcessesOption = None,
    settings: SetOption = None,
    overwrite: OverwriteOption = False,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a translation model: the Transformer, or recurrent networks with or without attention.

    \b
    qkv train translate --example reverse --out run      an example, in a minute on a CPU
    qkv translate run "1 2 3 4"

    \b
    qkv train translate --pairs train.de train.en --dev val.de val.en --test test.de test.en --out run
    qkv train translate --pairs cmn.txt --languages en-zh --separate --epochs 30 --out run
    qkv train translate --model seq2seq --pairs train.de train.en --out run --set seq2seq.context=fixed
    qkv train translate --recipe translate-multi30k --pairs train.de train.en --device cuda --out run
    qkv train translate --resume run

    \b
    Pairs     two files aligned by line, or one file: tab-separated columns, or .jsonl; also .gz, .xz
    Sizes     transformer: tiny, small, base, big; seq2seq: small, base
    seq2seq   --set seq2seq.context=fixed|every_step|attention, seq2seq.score=additive|dot|bilinear

    \b
    RUN/model             the model: qkv translate RUN TEXT
    RUN/report.html       BLEU and chrF, curves, translations, BLEU by length
    RUN/translations.tsv  translations of the evaluated pairs
    RUN/faults.jsonl      dropped pairs, with file and line

    BLEU and chrF need sacrebleu: pip install 'qkv[translate]'. Without --dev, 2 % of the pairs are held out, by a hash
    of the source. Ctrl-C saves and stops; --resume continues and ends with the same result.
    --json prints one document: run, finished, result.
    """
    join_processes(invocation, processes, cluster, min_processes)
    from qkv.train.log import for_stderr

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
        if flags or overwrite or any(one is not None for one in (out, model, recipe, settings, example)):
            raise InputError("--resume uses the settings of the run; leave out everything else.")
        from qkv.jobs.translate.training import TRANSLATING

        with for_stderr() as progress:
            finished = TRANSLATING.resume(resume, progress)
    else:
        if out is None:
            raise InputError(_NOTHING)
        if example is not None and {"bitext.train", "bitext.dev", "bitext.test", "bitext.more"} & set(flags):
            raise InputError("--example brings its own pairs: leave out --pairs, --dev, --test and --more.")
        from qkv.cli.terminal import say_encodings

        parts = [flags.get(f"bitext.{part}") or () for part in ("train", "dev", "test", "more")]
        say_encodings(file for files in parts for file in ([files] if isinstance(files, str) else files))
        finished = _begin(example, model, out, recipe, flags, settings or [], overwrite)
    end_other_process(finished)
    run = finished.run
    left = f"\n{run / 'model'}: the model. Try: qkv translate {run} TEXT\n{run / 'report.html'}: the report"
    report_result("translate", finished, as_json, _show, left)


def _begin(
    example: str | None,
    model: str | None,
    out: Path,
    recipe: Path | None,
    flags: dict[str, Any],
    settings: list[str],
    overwrite: bool,
) -> Any:
    from qkv.config import Requested
    from qkv.errors import did_you_mean
    from qkv.jobs.translate.settings import TRANSLATION_MODELS, example_settings, resolve_translation_settings
    from qkv.jobs.translate.training import TRANSLATING, start_example
    from qkv.train.log import for_stderr

    if model is not None and model not in TRANSLATION_MODELS:
        hint = did_you_mean(model, TRANSLATION_MODELS)
        raise InputError(f"'{model}' is not a translation model.{hint} Known: {', '.join(TRANSLATION_MODELS)}.")
    begun = None if example is None else example_settings(example, model or "transformer")
    config = resolve_translation_settings(Requested(recipe, {"model_type": model, **flags}, settings), begun)
    if example is None and not config.bitext.train:  # a recipe or --set may name the pairs
        raise InputError(_NOTHING)
    with for_stderr() as progress:
        if example is not None:
            return start_example(example, config, out, progress, overwrite)
        return TRANSLATING.start(config, out, progress, overwrite)


def split_two(text: str, separator: str, option: str) -> tuple[str, str]:
    """
    >>> split_two("en-zh-CN", "-", "--languages")
    ('en', 'zh-CN')
    """
    first, found, second = text.partition(separator)
    if not found or not first.strip() or not second.strip():
        raise InputError(f"{option} takes two, source and target, as in {option} A{separator}B; not '{text}'.")
    return first.strip(), second.strip()


def _show(result: dict[str, Any]) -> None:
    from qkv.tasks.translate import summarize_scores

    for name, score in result["scores"].items():
        write(f"{name}, {score['pairs']:,} pairs:")
        for line in summarize_scores(score):
            write(f"  {line}")
    write(f"weights: {result['weights']}")


_WRITTEN = {".txt": "a translation a line", ".tsv": "source and translation", ".jsonl": "JSON lines"}
_PLAIN = (".txt", ".tsv")  # what holds the best translation of a text and nothing beside it
_SHOWN = 5  # translations without an end that are told one by one; of more, how many there are


def translate_texts(
    named: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A translation run, a model folder, or hf:owner/name.")
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT|FILE", help="Texts, one file of lines, or - for standard input.")
    ] = None,
    model: AnyModelOption = None,
    source: Annotated[
        str,
        typer.Option("--from", metavar="LANGUAGE", help="Language of the texts: en, zh (default: by their letters)."),
    ] = "",
    target: Annotated[
        str, typer.Option("--to", metavar="LANGUAGE", help="Language to translate to (default: Chinese, or English).")
    ] = "",
    beams: Annotated[int | None, typer.Option("--beams", metavar="N", help="Beam width; 1 is greedy.")] = None,
    n_best: Annotated[
        int | None, typer.Option("--n-best", metavar="N", help="Number of translations per text.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option("--length-penalty", metavar="A", help="Above 1 favours long translations.")
    ] = None,
    coverage_penalty: Annotated[
        float | None,
        typer.Option("--coverage-penalty", metavar="B", help="Penalty for source words without attention."),
    ] = None,
    min_length: Annotated[
        int | None, typer.Option("--min-length", metavar="N", help="Minimum number of tokens.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", metavar="N", help="Maximum number of tokens.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", metavar="P", help="Above 1 discourages repeated tokens.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option("--no-repeat", metavar="N", help="Never repeat a sequence of N tokens.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Sample instead of searching.")] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="Sampling temperature.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="K", help="Sample from the K most probable tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", metavar="P", help="Nucleus sampling: smallest set of tokens with total probability P."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Random seed of --sample (default 0).")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--decoding", metavar="KEY=VALUE", help="Other decoding option; repeatable.")
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Split texts into sentences and translate each.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Print word alignments.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.svg", help="Draw the word alignment of one text.")
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option(
            "--segmenter",
            metavar="NAME",
            help="Chinese words: rjieba (default if installed, else the words of qkv-words) or none.",
        ),
    ] = None,
    lang: LanguageOption = "en",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .txt, .tsv or .jsonl.")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="TYPE",
            help="fp32; on a CPU also int8 (faster, nearly equal) or drafted (faster, equal).",
        ),
    ] = "fp32",
    cluster: ClusterOption = None,
    part_rows: PartRowsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate texts or a file, with qkv-en-zh or qkv-zh-en, a model of `qkv train translate` or an OPUS-MT folder.

    \b
    qkv translate "The cat sleeps."                      # with qkv-en-zh
    qkv translate 你好 --to en                           # with qkv-zh-en
    qkv translate run "Ein Mann liest ein Buch."
    qkv translate run "Tom chases Jerry" --alignments --picture tom.svg
    qkv translate run news.de --out news.en.txt --beams 5
    qkv translate run "Ein Hund." --n-best 3
    qkv translate run "Ein Hund." --sample --top-p 0.9 --seed 1
    cat news.de | qkv translate run - --json

    The first argument is a model if it is the name of one (qkv-en-zh, hf:owner/name), a folder, like a path (with a /)
    or like the misspelt name of a folder here; or one word of ASCII that texts follow. Anything else is a text, or one
    file, for qkv's own model of that direction. With --model all arguments are texts.

    A file has one text per line (.tsv: first column, .jsonl: source or text); translations keep its order. A text that
    is too long for the model is an error unless --split cuts it into sentences; files are checked before anything is
    translated. Characters outside the vocabulary are reported, also in the JSON (n_unknown, unknown). A line of a file
    in a language that qkv's own model does not read stays as it is, with a note (in the JSON: foreign).
    --decoding sets the options without a flag: max_ratio, length_formula, stopping, renormalise.
    --json prints one line of JSON per text; with --alignments, character spans of both sides. --segmenter defines
    Chinese words; with none, each 汉字 is a word.

    \b
    qkv translate qkv-en-zh "news/*.jsonl" --cluster auto --out news.zh.jsonl

    With --cluster, files, folders and patterns (lines, tsv, jsonl, parquet with a column source or text) are translated
    by a Ray cluster, into a folder of parts: parquet, or JSON lines if its name ends in .jsonl. The same command again
    continues; --json prints one document: out, n_parts, n_parts_kept, n_rows, n_results, n_foreign, n_unfinished,
    unfinished, n_unknown, n_affected, unknown_words, seconds.
    """
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
    # report unknown options before a model is loaded
    wanted |= parse_decoding(options or [])
    from qkv.cli.terminal import refuse_with_cluster

    refuse_with_cluster(cluster, part_rows, alignments=alignments, picture=picture, segmenter=segmenter)
    if cluster is not None:
        words = [one for one in (named, *(inputs or ())) if one is not None]
        languages = (source, target)
        _translate_on_cluster(
            model, words, languages, (device, threads, precision), wanted, split, out, cluster, part_rows, as_json
        )
        return
    model, inputs = take_model(model, [] if named is None else [named, *(inputs or ())], "translates", files=True)
    if not inputs:
        raise InputError('Give texts or a file: qkv translate RUN "a text"; or - to read standard input.')
    with quick_start():
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
        raise InputError("--segmenter needs --alignments or --picture: add one of them, or leave it out.")
    segments = _segmenter(segmenter) if aligned else None
    suffix = None if out is None else suffix_of(out, _WRITTEN)
    if suffix is not None and as_json:
        raise InputError("Choose one: --json, which prints, or --out, which writes JSON if its file ends in .jsonl.")
    if suffix in _PLAIN and alignments:
        raise InputError(f"A {suffix} file cannot hold --alignments: leave them out, or write .jsonl.")
    from qkv.api.translator import choose_translator, keep_foreign, load_translator, resolve_decoding
    from qkv.cli.terminal import say
    from qkv.models.folders.hub import check_language_of, foreign_language

    has_lines = file is not None or inputs == ["-"]  # a line that the model cannot read stays as it is
    # standard input can be read only once: what was read ahead is kept
    ahead, rest = tee(_texts(inputs, file)) if inputs == ["-"] else (_texts(inputs, file), None)

    def texts() -> Iterator[tuple[str, str]]:
        for text, place in rest or _texts(inputs, file):
            if not has_lines:
                check_language_of(translator.path, text, place, trusted=source)
            yield text, place

    def is_foreign(text: str) -> str:
        return foreign_language(translator.path, text, source) if has_lines else ""

    if is_default := model is None:
        model = choose_translator(ahead, source, target)
    del ahead
    translator = load_translator(
        model, choose_device(device, precision), threads, precision, source=source, target=target
    )
    for note in translator.notes:
        say(f"note: {note}")
    config = resolve_decoding(translator, wanted)
    if suffix in _PLAIN and config.n_best > 1:
        raise InputError(f"A {suffix} file has one translation per text, and n_best is {config.n_best}: write .jsonl.")
    how: dict[str, Any] = {"alignments": aligned, "segmenter": segments, "split": split}
    # check all texts before translating
    count = None
    if inputs != ["-"]:
        count = translator.check(((text, place) for text, place in texts() if not is_foreign(text)), split=split)
    if count == 0:
        for text, place in texts():  # nothing is left to translate
            check_language_of(translator.path, text, place, trusted=source)
    if is_default:
        say(f"{translator.path.name} answers; another model: --model MODEL")
    found = keep_foreign(texts(), is_foreign, partial(translator.stream_placed, decoding=config, **how))
    found = _warn_left(_report_partial(found, out), translator)
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


def _translate_on_cluster(
    model: str | None,
    words: list[str],
    languages: tuple[str, str],
    how: tuple[str, int | None, str],
    decoding: dict[str, Any],
    split: bool,
    out: Path | None,
    address: str,
    part_rows: int | None,
    as_json: bool,
) -> None:
    from collections import Counter

    from qkv.api.part_jobs import JobModel, TranslateParts
    from qkv.cli.terminal import answer_on_cluster, print_json, say
    from qkv.models.folders.hub import default_model

    if model is None and not any(languages):
        model, *words = words or [""]
    name = model or default_model("translates", *languages)
    if not words:
        raise InputError("Give model and files: qkv translate RUN FILE --cluster ADDRESS --out FOLDER.")
    done = answer_on_cluster(
        TranslateParts(JobModel.of(name, *how), *languages, decoding, split), words, out, address, part_rows
    )
    facts = done.facts
    for begin, n_tokens in facts.get("unfinished", ()):
        say(f"note: the translation of {begin!r} is unfinished after {n_tokens} tokens")
    if (unfinished := facts.get("n_unfinished", 0)) > len(facts.get("unfinished", ())):
        say(f"note: {unfinished:,} translations are unfinished in total")
    if foreign := facts.get("n_foreign"):
        say(f"note: texts in a language that {name} does not read, which stay as they are: {foreign:,}")
    if found := facts.get("unknown_words"):
        say(f"note: {unknown_to_the_model(Counter(found), facts['n_affected'], facts['n_unknown'])}")
    if as_json:
        print_json(done.to_dict())


def _segmenter(name: str | None) -> "Segmenter | None":
    from qkv.models.folders.hub import locate, shipped_models
    from qkv.text.segmenter import Segmenter, cut_longest, find_segmenter, is_installed

    if name is None and not is_installed("rjieba") and "qkv-words" in shipped_models():
        known = frozenset((locate("qkv-words") / "vocab.txt").read_text(encoding="utf-8").split("\n"))
        return Segmenter("qkv-words", partial(cut_longest, known=known))
    return find_segmenter(name or ("rjieba" if is_installed("rjieba") else "none"))


def parse_decoding(options: list[str]) -> dict[str, Any]:
    """Parse the values of --decoding."""
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
    GenerateConfig.of(unknown)  # raises on unknown keys, with a suggestion
    return found


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each text and its place."""
    from qkv.api.translator import open_texts

    for row in open_texts(path).rows():
        for example in row.examples:
            yield example.text, str(example.place)


def _texts(inputs: list[str], file: Path | None) -> Iterator[tuple[str, str]]:
    """Yield each text and its name for messages."""
    if inputs == ["-"]:
        from qkv.data.readers import read_texts

        yield from read_texts("-")
    elif file is not None:
        from qkv.cli.terminal import say_encodings

        say_encodings([file])
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
    if alignments and not one.foreign:
        links = one.best.alignments
        if not links and not one.text.strip():
            return
        if not links:
            write("  (this model has no attention, so there is no alignment)")
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


def _warn_left(found: Iterator["Translation"], translator: "Translator") -> Iterator["Translation"]:
    """Pass the translations through; warn about foreign texts, unfinished translations and unknown characters."""
    from collections import Counter

    from qkv.cli.terminal import say
    from qkv.text.languages import language_name

    foreign = unfinished = texts = 0
    unknown: Counter[str] = Counter()
    for one in found:
        unknown.update(one.unknown_words)
        texts += bool(one.unknown)
        if one.foreign:
            foreign += 1
            if foreign <= _SHOWN:
                say(
                    f"note: {one.source[:40]!r} looks like {language_name(one.foreign)}, which {translator.path.name} "
                    "does not read: it stays as it is"
                )
        if not one.best.finished:
            unfinished += 1
            if unfinished <= _SHOWN:
                say(f"note: the translation of {one.source[:40]!r} is unfinished after {one.best.n_tokens} tokens")
        yield one
    if foreign > _SHOWN:
        say(f"note: and {foreign - _SHOWN:,} more texts stay as they are, {foreign:,} in total")
    if unfinished > _SHOWN:
        say(f"note: and {unfinished - _SHOWN:,} more are unfinished, {unfinished:,} in total")
    if unknown:
        say(f"note: {unknown_to_the_model(unknown, texts)}")


def unknown_to_the_model(unknown: "Counter[str]", texts: int, pieces: int | None = None) -> str:
    """Describe tokens that the vocabulary lacks; `pieces` is their total if `unknown` has only the most frequent.

    >>> from collections import Counter
    >>> unknown_to_the_model(Counter("ï🐱🐱"), 2)
    "the vocabulary lacks 3 tokens of 2 texts, which the model reads as unknown: '🐱' (2), 'ï'"
    """
    words = [f"{word!r}" + (f" ({count:,})" if count > 1 else "") for word, count in unknown.most_common(_SHOWN)]
    total = unknown.total() if pieces is None else pieces
    return (
        f"the vocabulary lacks {'a token' if total == 1 else f'{total:,} tokens'} of "
        f"{'a text' if texts == 1 else f'{texts:,} texts'}, which the model reads as unknown: "
        f"{', '.join(words)}{' …' if len(unknown) > _SHOWN else ''}"
    )


def _report_partial(found: Iterator["Translation"], out: Path | None) -> Iterator["Translation"]:
    """Pass the translations through; if one fails, add to the error how many were done."""
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
    """Pass the translations through and draw each."""
    for one in found:
        _draw(picture, one, translator, lang)
        yield one


def _draw(picture: Path, one: "Translation", translator: "Translator", lang: str) -> None:
    from qkv.cli.terminal import say
    from qkv.files import write_text
    from qkv.report.alignment_picture import draw_alignment

    attention = one.best.attention
    if attention is None:
        raise InputError(
            f"{translator.path} has no attention, so there is no alignment to draw. Train one that has: "
            "--set seq2seq.context=attention, or the Transformer."
        )
    write_text(picture, draw_alignment(attention, lang=lang))
    say(f"{picture}: word alignment")


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
