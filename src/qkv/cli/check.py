"""`qkv check`: check a corpus, labelled files or sentence pairs before training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import (
    AnswerColumn,
    ChoicesColumn,
    ContextColumn,
    FormatOption,
    JsonOption,
    LabelColumn,
    PairColumn,
    QuestionColumn,
    SeparatorOption,
    TextColumn,
    drop_missing,
    load_tokenizer_and_limit,
)
from qkv.cli.translate import split_two
from qkv.errors import InputError
from qkv.text.messages import translate, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qkv.data.corpus.check import CorpusReport
    from qkv.data.labelled.check import LabelledReport, Lengths
    from qkv.data.pairs.batching import Languages
    from qkv.data.pairs.check import PairReport


_SHOWN = 40  # labels
_WHAT = {"classify": "label", "tag": "kind of span", "answer": "answer", "choice": "right choice"}
_OWN_LABELS = {"answer": ("answered", "no answer")}
"""Labels that are no words of the file, and are shown in the user's language."""


def print_labelled(report: "LabelledReport") -> None:
    from qkv.cli.terminal import print_facts, print_findings
    from qkv.data.labelled.check import LABELLED_FINDINGS

    rows = [("task", report.task), ("examples", f"{report.examples:,}")]
    for facts in report.files:
        against = ", compared with the others" if facts.against else ""
        lost = f", {facts.dropped:,} dropped" if facts.dropped else ""
        mended = f", {facts.mended:,} repaired" if facts.mended else ""
        rows.append((facts.path, f"{facts.examples:,} examples{lost}{mended}{against} ({facts.read_as})"))
    for unit, lengths in (("characters", report.characters), ("tokens", report.tokens)):
        if lengths is not None:
            rows.append((unit, _describe_lengths(lengths)))
    if (unknown := report.unknown) is not None:
        shown = f" in {unknown.n_affected:,} examples: {unknown.examples}" if unknown.n_unknown else ""
        rows.append(("unknown tokens", f"{unknown.n_unknown:,} of {unknown.n_tokens:,} ({unknown.share:.1%}){shown}"))
        rows += [("", unknown.remedy())] if unknown.is_notable else []
    if report.numbers is not None:
        rows.append(("labels", ", ".join(f"{name} {value:.4g}" for name, value in report.numbers.items())))
    print_facts(rows)
    _print_labels(report)
    print_findings(report.counts, report.findings, LABELLED_FINDINGS)
    _print_end(bool(report.counts), report.has_faults, report.notes)


def _print_labels(report: "LabelledReport") -> None:
    from qkv.cli.terminal import bar, print_table

    if not report.labels:
        return
    typer.echo()
    total, most = sum(report.labels.values()), max(report.labels.values())
    own = _OWN_LABELS.get(report.task, ())
    rows = [
        (translate(label) if label in own else label, f"{count:,}", f"{count / total:.1%}", bar(count / most))
        for label, count in list(report.labels.items())[:_SHOWN]
    ]
    print_table([_WHAT[report.task], "number", "share", ""], rows, right=(1, 2))
    if len(report.labels) > _SHOWN:
        write(f"… and {len(report.labels) - _SHOWN:,} more labels")


def _describe_lengths(lengths: "Lengths") -> str:
    windows = ", which are split into windows" if lengths.over else ""
    over = "" if lengths.limit is None else f"; {lengths.over:,} above the model's {lengths.limit:,}{windows}"
    return (
        f"median {lengths.median:,}, 90 % up to {lengths.p90:,}, 99 % up to {lengths.p99:,}, "
        f"longest {lengths.longest:,}{over}"
    )


# Sentence pairs.

TrainPairsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pairs",
        metavar="FILE [FILE]",
        help="Training set for translation: source and target file, or one file with both.",
    ),
]
DevPairsOption = Annotated[
    list[str] | None, typer.Option("--dev", metavar="FILE [FILE]", help="Development set, for model selection.")
]
TestPairsOption = Annotated[list[str] | None, typer.Option("--test", metavar="FILE [FILE]", help="Test set.")]
MorePairsOption = Annotated[
    list[str] | None,
    typer.Option("--more", metavar="FILE …", help="Additional training pairs; each file has both sides."),
]
PairColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Columns of source and target in a file with both.")
]


def check_pair_files(
    given: dict[str, list[str]], columns: str | None, model: str | None, named: int, as_json: bool
) -> None:
    """Check sentence pairs and print the report; `given` maps train, more, dev, test to files."""
    from qkv.cli.terminal import fraction, print_json, say_encodings
    from qkv.data.pairs.check import check_pairs
    from qkv.data.pairs.files import PairFiles

    names = () if columns is None else split_two(columns, ",", "--columns")
    say_encodings(one for files in given.values() for one in files)
    # each file of --more has both sides; two files of another option are one set of pairs
    sets = {part: [[one] for one in files] if part == "more" else [files] for part, files in given.items()}
    if names and all(len(files) == 2 for found in sets.values() for files in found):
        raise InputError(f"--columns are {' and '.join(names)}, and no file has both sides. Leave --columns out.")
    parts = {
        part: [PairFiles.of(files, names if len(files) == 1 else ()) for files in found] for part, found in sets.items()
    }
    languages, limit = _limits(model)
    with fraction("checking") as moved:
        report = check_pairs(parts, languages=languages, max_length=limit, named=named, progress=moved)
    if as_json:
        print_json(report.to_dict())
    else:
        print_pairs(report)
    _exit(report.has_faults)


def _print_end(has_findings: bool, has_faults: bool, notes: "Sequence[str]") -> None:
    """Print the last line of a report without faults, and its notes."""
    if not has_faults:
        write("\nNo errors found, only remarks." if has_findings else "\nNo errors found.")
    for note in notes:
        write(f"\nnote: {note}")


def _exit(has_faults: bool) -> None:
    """End with exit code 1 if something is wrong."""
    if has_faults:
        raise typer.Exit(1)


def _limits(model: str | None) -> "tuple[Languages | None, int]":
    """Return the tokenizers and the maximum length of a translation model; for another model or a tokenizer, its own
    tokenizer for both sides, and its maximum length or the default."""
    from pathlib import Path

    from qkv.api.translator import load_translator, translates
    from qkv.data.pairs.batching import Languages
    from qkv.jobs.translate.settings import TranslateConfig

    usual = TranslateConfig().max_length
    if model is None:
        return None, usual
    if not Path(model).expanduser().is_file() and translates(model):
        translator = load_translator(model)
        return translator.languages, translator.max_length
    tokenizer, limit = load_tokenizer_and_limit(model)
    return Languages.of(tokenizer, tokenizer), limit or usual


def print_pairs(report: "PairReport") -> None:
    from qkv.cli.terminal import print_facts, print_findings
    from qkv.data.pairs.check import PAIR_FINDINGS

    rows = [("training pairs", f"{report.pairs:,}")]
    for facts in report.files:
        left = f", {facts.dropped:,} dropped" if facts.dropped else ""
        rows.append((facts.name, f"{facts.part}: {facts.pairs:,} pairs{left}"))
    for unit, by_side in (("characters", report.characters), ("tokens", report.tokens)):
        rows += [
            (f"{unit}, {side}", _describe_pair_lengths(found)) for side, found in by_side.items() if found is not None
        ]
    if report.ratio is not None:
        rows.append(("length", f"{report.ratio:.2f} characters of target per character of source (median)"))
    if report.several:
        rows.append(
            ("several translations", f"{report.several:,} pairs have a source that also has another translation")
        )
    print_facts(rows)
    print_findings(report.counts, report.findings, PAIR_FINDINGS)
    _print_end(bool(report.counts), report.has_faults, report.notes)


def _describe_pair_lengths(lengths: "Lengths") -> str:
    over = "" if lengths.limit is None else f"; {lengths.over:,} above {lengths.limit:,}"
    return (
        f"median {lengths.median:,}, 90 % up to {lengths.p90:,}, 99 % up to {lengths.p99:,}, "
        f"longest {lengths.longest:,}{over}"
    )


_LANGUAGE_NAMES = {"zh": "Chinese", "en": "English", "other": "other"}


def check(
    corpus: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Corpus (.txt, .jsonl) or labelled files (csv, xlsx, parquet, jsonl, CoNLL, SQuAD …), also .gz, .xz.",
        ),
    ] = None,
    field: Annotated[
        str | None, typer.Option("--field", metavar="NAME", help="Text field of a .jsonl corpus (default text).")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Task of labelled files: classify, tag, answer or choice."),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against", metavar="TEST", help="Labelled test file, checked for texts that FILE also has; repeatable."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            "--tokenizer",
            metavar="FOLDER",
            help="Count lengths in tokens of this model and compare with its maximum length.",
        ),
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    question: QuestionColumn = None,
    context: ContextColumn = None,
    answer: AnswerColumn = None,
    choices: ChoicesColumn = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    pairs: TrainPairsOption = None,
    dev: DevPairsOption = None,
    test: TestPairsOption = None,
    more: MorePairsOption = None,
    pair_columns: PairColumnsOption = None,
    named: Annotated[int, typer.Option("-n", "--named", metavar="N", help="Findings to list per kind.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Check a corpus, labelled files or sentence pairs: statistics, and every error by file and line.

    \b
    qkv check corpus.txt
    qkv check 语料.txt more-*.jsonl.gz -n 20
    qkv check train.csv --against test.csv --model qkv-mini
    qkv check 评论.txt --task classify --text 2 --label 1
    qkv check --pairs train.de train.en --dev val.de val.en --test test.de test.en

    A file is labelled if --task or a column is given, or if it is a table, words with tags, or JSON with questions,
    spans or labels. Checked are: similar spellings of labels, duplicate texts, duplicates with different labels, texts
    that are also in TEST, wrong offsets of spans and answers, mixed full and half width, mixed 简 and 繁, and lengths
    above the model's maximum.

    --pairs, --dev, --test, --more and --columns are those of `qkv train translate`. Checked are: empty sides, files of
    different length, duplicate pairs, development and test pairs that are also in the training set, unlikely length
    ratios, and lengths (with --model RUN in tokens).

    Files are not changed; they are read once, in constant memory. The exit code is 1 if there are
    faults, 2 if a file is missing or its columns are unknown, else 0. Repetitions, lengths, and mixed 简 and 繁 or full
    and half width are remarks, not faults.

    --json prints one document: for a corpus files, bytes, documents, sentences, characters, languages, counts, findings
    (kind, file, line, message, place), limits, …; for labelled files task, files, examples, labels, characters, tokens,
    counts, findings, notes, …; for pairs files, pairs, ratio, several, …
    """
    if named < 0:
        raise InputError(f"-n must be 0 or more, not {named}.")
    columns = drop_missing(
        text=text, pair=pair, label=label, question=question, context=context, answer=answer, choices=choices
    )
    given_pairs = {"train": pairs, "more": more, "dev": dev, "test": test}
    if any(given_pairs.values()):
        if not pairs:
            raise InputError("--dev, --test and --more need a training set: give it with --pairs.")
        if corpus or task or against or columns or format or separator or field:
            raise InputError(
                "--pairs is checked alone: leave out other files, --field, --task, --against and their columns."
            )
        check_pair_files({part: one for part, one in given_pairs.items() if one}, pair_columns, model, named, as_json)
        return
    if not corpus:
        raise InputError("Give a corpus or labelled files to check: qkv check FILE …; or pairs: qkv check --pairs A B.")
    if pair_columns is not None:
        raise InputError("--columns is for --pairs; columns of labelled files are named by --text, --label, …")
    asked = task or against or columns or format or separator or model
    if field and asked:
        raise InputError("--field is for a corpus; columns of labelled files are named by --text, --label, …")
    if field or not (asked or _is_labelled(corpus[0])):  # only a corpus has a field
        from qkv.cli.terminal import fraction, print_json
        from qkv.data.corpus.check import check_corpus

        with fraction("checking") as moved:
            report = check_corpus(corpus, field or "text", named, progress=lambda share: moved(share, ""))
        if as_json:
            print_json(report.to_dict())
        else:
            _print(report)
        _exit(report.has_faults)
        return
    _check_labelled(corpus, task, against or [], model, columns, format, separator, named, as_json)


def _is_labelled(path: Path) -> bool:
    from qkv.data.labelled.reader import guess_task
    from qkv.data.readers import check_text_file

    try:
        return guess_task(path) is not None
    except InputError as error:
        try:
            check_text_file(path)
        except InputError:
            raise error from None
        return False  # check_corpus reports the error and continues


def _check_labelled(
    paths: list[Path], task: str | None, against: list[Path], model: str | None, columns: dict[str, str],
    format: str | None, separator: str | None, named: int, as_json: bool,
) -> None:  # fmt: skip
    from qkv.cli.terminal import fraction, print_json
    from qkv.data.labelled.check import check_labelled

    tokenizer, limit = load_tokenizer_and_limit(model) if model is not None else (None, None)
    with fraction("checking") as moved:
        report = check_labelled(
            paths, task, against=against, columns=columns, format=format, separator=separator, tokenizer=tokenizer,
            max_length=limit, named=named, progress=moved,
        )  # fmt: skip
    if as_json:
        print_json(report.to_dict())
    else:
        print_labelled(report)
    _exit(report.has_faults)


def _print(report: "CorpusReport") -> None:
    from qkv.cli.terminal import print_facts, print_findings
    from qkv.data.corpus.check import CORPUS_FINDINGS

    languages = ", ".join(
        f"{translate(_LANGUAGE_NAMES.get(name, name))} {share:.0%}"
        for name, share in report.languages.items()
        if share >= 0.005
    )
    print_facts(
        [
            ("documents", f"{report.documents:,}"),
            ("sentences", f"{report.sentences:,}"),
            ("characters", f"{report.characters:,}"),
            ("longest document", f"{report.longest_document:,} characters"),
            ("languages", languages or translate("none")),
            ("files", f"{report.files:,}, {_size(report.bytes)} of text"),
        ],
    )
    print_findings(report.counts, report.findings, CORPUS_FINDINGS)
    _print_end(bool(report.counts), report.has_faults, report.limits)


def _size(count: int) -> str:
    """
    >>> _size(999), _size(12_345_678)
    ('999 bytes', '12.3 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 1000 or unit == "TB":
            break
    return f"{value:.1f} {unit}"
