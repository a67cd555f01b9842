"""`qkv evaluate`: evaluate a fine-tuned model on a labelled file, or a translation model on sentence pairs."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    AnswerColumn,
    ChoicesColumn,
    ContextColumn,
    DeviceOption,
    FormatOption,
    JsonOption,
    LabelColumn,
    PairColumn,
    QuestionColumn,
    SeparatorOption,
    SkipBadOption,
    TextColumn,
    ThreadsOption,
    check_not_read,
    choose_device,
    drop_missing,
)
from qkv.cli.translate import split_two
from qkv.errors import InputError
from qkv.text.messages import language, translate, translate_at, write

if TYPE_CHECKING:
    from qkv.api.translator import Translator
    from qkv.search.options import GenerateConfig


ReferencePairsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pairs", metavar="FILE [FILE]", help="Translation models: source and reference file, or one file with both."
    ),
]
ReferenceColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Columns of source and reference in a file with both.")
]
TargetOption = Annotated[
    str | None, typer.Option("--language", metavar="CODE", help="Target language, such as zh, if the model has none.")
]
DecodingOption = Annotated[
    list[str] | None,
    typer.Option("--decoding", metavar="KEY=VALUE", help="Decoding option, such as beams=1; repeatable."),
]


def evaluate_translations(
    run: str,
    pairs: list[str],
    columns: str | None,
    language: str | None,
    decoding: list[str] | None,
    against: str | None,
    out: Path | None,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from qkv.api.evaluate import evaluate_pairs
    from qkv.api.translator import resolve_decoding
    from qkv.cli.options import suffix_of
    from qkv.cli.terminal import print_json, progress
    from qkv.cli.translate import parse_decoding

    if out is not None:
        suffix_of(out, {".jsonl": "one line per pair"})
    wanted = parse_decoding(decoding or [])

    def way(translator: "Translator") -> "GenerateConfig":
        return resolve_decoding(translator, wanted)

    with progress("texts", None) as advance:
        found = evaluate_pairs(
            run,
            pairs,
            columns=() if columns is None else split_two(columns, ",", "--columns"),
            language=language,
            decoding=way,
            against=against,
            out=out,
            device=device,
            threads=threads,
            progress=advance,
        )
    if as_json:
        print_json(found)
        return
    for line in _lines(found):
        write(line)
    if out is not None:
        from qkv.cli.terminal import say

        say(f"{out}: {found['scores']['pairs']:,} pairs, one line each")


def _lines(found: dict[str, Any]) -> list[str]:
    from qkv.cli.translate import unknown_to_the_model
    from qkv.tasks.translate import summarize_scores

    score = found["scores"]
    lines = [f"{' and '.join(Path(one).name for one in found['files'])}, {score['pairs']:,} pairs:"]
    lines += [f"  {line}" for line in summarize_scores(score)]
    if "bleu" not in score:
        lines.append("  BLEU and chrF need sacrebleu, which is not installed: pip install 'qkv[translate]'")
    if found["is_training_file"]:
        lines.append("note: the model was trained on this file, so the scores are too high")
    if found["dropped"]:
        lines.append(f"pairs with an empty side, not evaluated: {found['dropped']:,}")
    if found["not_translated"]:
        lines.append(
            f"sources that are too long for the model, or have no tokens: {found['not_translated']:,}; they count as "
            "empty translations"
        )
    lines += [f"  {fault}" for fault in found["faults"][:5]]
    if found["unknown"]["pieces"]:
        words = Counter(found["unknown"]["most_frequent"])
        unknown = found["unknown"]
        lines.append(f"note: {unknown_to_the_model(words, unknown['texts'], unknown['pieces'])}")
    if other := found["against"]:
        verdict = "not significant" if other["p"] > 0.05 else "significant"
        lines.append(
            f"against {other['run']}: {other['figure']} {other['value']:.4g}; difference {other['difference']:+.4g} "
            f"({other['low']:+.4g} to {other['high']:+.4g}), p = {other['p']:.3f}: {verdict}"
        )
    return lines


def resolve_pair_files(file: str | None, pairs: list[str] | None, labelled: list[str]) -> list[str]:
    """Return the files of pairs; raise if options of labelled files were given."""
    if file is not None and pairs:
        raise InputError(f"{file} and --pairs {' '.join(pairs)} were given. Give the pairs once, with --pairs.")
    if labelled:
        raise InputError(
            f"{', '.join(labelled)}: only for labelled files. Columns of pairs are named by --columns A,B."
        )
    return pairs or ([file] if file is not None else [])


def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run or model folder: fine-tuned model or translation model.")
    ],
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Labelled file, or sentence pairs.")] = None,
    pairs: ReferencePairsOption = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="RUN", help="Compare with another model on the same file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write every example and prediction, as .jsonl.")
    ] = None,
    pair_columns: ReferenceColumnsOption = None,
    language: TargetOption = None,
    decoding: DecodingOption = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    question: QuestionColumn = None,
    context: ContextColumn = None,
    answer: AnswerColumn = None,
    choices: ChoicesColumn = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    skip_bad: SkipBadOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a fine-tuned model on a labelled file, with 95 % intervals, in constant memory.

    \b
    qkv evaluate run test.tsv
    qkv evaluate run test.tsv --out answers.jsonl
    qkv evaluate run test.tsv --against other-run

    A translation model takes sentence pairs, in two files or one (tsv, jsonl), and gets BLEU and chrF with signatures:

    \b
    qkv evaluate run --pairs test.de test.en
    qkv evaluate run --pairs test.de test.en --decoding beams=1 --out translations.jsonl

    Examples that RUN was trained on are counted, whatever the name of the file.

    RUN with its training file in place also shows what simple baselines reach (tf-idf with logistic regression, the
    most frequent label, a dictionary of entities).

    --against adds the difference of the main score with its interval and p-value (paired bootstrap). --json prints one
    document: file, examples, scores, intervals, labels, windowed, n_unknown, dropped, …; for pairs files,
    scores (bleu, chrf, their signatures and intervals, exact, by_length), not_translated, unknown, dropped, …
    """
    from qkv.api.evaluate import evaluate_file
    from qkv.cli.terminal import baseline_lines, print_json, print_scores, progress, warn_unknown
    from qkv.text.unknown import UnknownFacts
    from qkv.train.device import device_named

    check_not_read(out, [file, *(pairs or ())])
    device_named(device := choose_device(device))  # report a missing device first
    columns = drop_missing(
        text=text, pair=pair, label=label, question=question, context=context, answer=answer, choices=choices
    )
    if pairs or _translates(run):
        labelled = [f"--{name}" for name in (*columns, *drop_missing(format=format, separator=separator))]
        labelled += ["--skip-bad"] if skip_bad else []
        files = resolve_pair_files(file, pairs, labelled)
        if files:
            evaluate_translations(run, files, pair_columns, language, decoding, against, out, device, threads, as_json)
            return
        raise InputError(f"Give sentence pairs to evaluate {run} on: qkv evaluate {run} --pairs SOURCE REFERENCE.")
    if file is None:
        raise InputError(f"Give a labelled file to evaluate {run} on: qkv evaluate {run} FILE.")
    for option, value in (("--columns", pair_columns), ("--language", language), ("--decoding", decoding)):
        if value:
            raise InputError(f"{option} is for translation models, and {run} is not one: leave it out.")
    with progress("examples", None) as advance:
        found = evaluate_file(
            run,
            file,
            against=against,
            out=out,
            columns=columns,
            format=format,
            separator=separator,
            device=device,
            threads=threads,
            progress=advance,
            skip_bad=skip_bad,
        )
    warn_unknown(UnknownFacts(**found["unknown"]))
    if as_json:
        print_json(found)
        return
    print_scores(Path(file).name, found["scores"])
    for line in [*baseline_lines({Path(file).name: found["baselines"]}, found["scores"]["main"]), *_remarks(found)]:
        write(line)


def _translates(run: str) -> bool:
    from qkv.api.translator import translates

    return translates(run)


def _remarks(found: dict[str, Any]) -> list[str]:
    lines = [f"\n{Path(found['file']).name}: {found['read_as']}"]
    if found["is_training_file"]:
        lines.append("\nnote: the model was trained on this file, so the scores are too high")
    elif n := found["in_training"]:
        of = found["scores"]["examples"]
        lines.append(f"\nnote: {n:,} of {of:,} examples are in the training data, so the scores are too high")
    if found["windowed"]:
        windows = found["most_windows"]
        lines.append(
            f"\n{found['windowed']:,} texts exceed the maximum length and were split into up to {windows} windows"
        )
    if found["dropped"] or found["mended"]:
        lines.append(f"examples dropped: {found['dropped']:,}, repaired: {found['mended']:,}")
        lines += map(_describe_fault, found["faults"][:5])
    if other := found["against"]:
        lines.append(f"\nagainst {other['run']}: {_difference(other)}")
    return lines


def _describe_fault(fault: str) -> str:
    """A fault of the document, "a.csv, line 2: a.csv, line 2 has no label", with its place once."""
    place, _, message = fault.partition(": ")
    message = message.removeprefix(place).lstrip(": ")
    return f"  {translate(place)}{'：' if language() == 'zh' else ': '}{translate_at(place, message)}"


def _difference(other: dict[str, Any]) -> str:
    if other["difference"] is None:
        return f"the {other['figure']} of one of the two is undefined: all its predictions, or all labels, are equal"
    verdict = "not significant" if other["p"] > 0.05 else "significant"
    return (
        f"{other['figure']} {other['value']:.4f}; difference {other['difference']:+.4f} "
        f"({other['low']:+.4f} – {other['high']:+.4f}), p = {other['p']:.3f}: {verdict}"
    )
