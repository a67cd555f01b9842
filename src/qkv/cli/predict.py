"""`qkv predict`: predict with a fine-tuned model, for a few texts or millions.

`qkv fill`: predict the token of each [MASK]. `qkv next`: does one sentence follow another (BERT's second task).
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import (
    ClusterOption,
    DeviceOption,
    FormatOption,
    JsonOption,
    ModelOption,
    PairColumn,
    PartRowsOption,
    PrecisionOption,
    TextColumn,
    ThreadsOption,
    check_not_read,
    choose_device,
    drop_missing,
    load_model,
    quick_start,
    suffix_of,
    text_or_stdin,
)
from qkv.errors import InputError, listed
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import translate

if TYPE_CHECKING:
    from qkv.api.model import Model
    from qkv.api.precision import ResultCost
    from qkv.api.predict import Inputs, ResultWriter


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Fine-tuning run, or folder of a fine-tuned model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT|FILE", help="Texts, a file, a folder of documents, or - for standard input."),
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", "-q", metavar="TEXT", help="answer and choice: the question.")
    ] = None,
    second: Annotated[
        str | None, typer.Option("--with", metavar="TEXT", help="Text pair classification: the second text.")
    ] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choice", metavar="TEXT", help="choice: a candidate answer; repeatable.")
    ] = None,
    document: Annotated[
        bool, typer.Option("--document", help="Each file is one text, however many lines it has.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .jsonl, .csv, .tsv, .parquet or .xlsx.")
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    format: FormatOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    precision: PrecisionOption = "fp32",
    cluster: ClusterOption = None,
    part_rows: PartRowsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict labels, entities, answers or choices, each with its probability.

    \b
    qkv predict run "Where is my parcel?" "我要退货"
    qkv predict run messages.txt --out answers.csv
    cat messages.txt | qkv predict run - --json
    qkv predict reader "雨是从云中落下的水滴。" -q "雨从哪里落下？"
    qkv predict reader contract.txt --document -q "Who signs?"
    qkv predict run documents/ --out answers.csv

    A file has one text per line (.txt), or is csv, tsv, xlsx, parquet, jsonl, SQuAD …; results stream in the order of
    the file, in constant memory. With --document, and for a folder of .txt files, each file is one text. --json prints
    one line of JSON per text. Texts above the maximum length are split into windows.

    --out keeps the columns of a table (the fields of JSON lines, the names of documents) and adds row and line, label,
    probability and p_LABEL for each label; rows without a text stay, without a result. Columns are those named in
    training, if the file has them; --text and --pair name others. With --out, --json prints one document: out,
    n_results, n_empty, renamed, lost.

    --precision bf16 and int8 are faster on a CPU; what they change is measured on the first texts and said.

    \b
    qkv predict run "data/*.parquet" --cluster auto --out answers
    qkv predict run s3://bucket/data --cluster HOST:PORT --out s3://bucket/answers.jsonl

    With --cluster, files, folders and patterns (parquet, jsonl, csv, tsv, lines) are answered by a Ray cluster, into a
    folder of parts: parquet, or JSON lines if its name ends in .jsonl. The same command again continues. --json adds
    n_parts, n_parts_kept, n_rows, seconds.
    """
    if not inputs:
        raise InputError('Give texts or a file: qkv predict RUN "a text"; or - to read standard input.')
    from qkv.cli.terminal import refuse_with_cluster

    given = {"question": question, "with": second, "choice": choices, "document": document}
    refuse_with_cluster(cluster, part_rows, **given)
    if cluster is not None:
        how = (device, threads, precision)
        _predict_on_cluster(
            run, inputs, out, drop_missing(text=text, pair=pair), format, how, cluster, part_rows, as_json
        )
        return
    check_not_read(out, inputs)
    from qkv.api.table_files import TABLES, check_table_library

    suffix = suffix_of(out, TABLES) if out is not None else None
    if out is not None and suffix is not None:
        check_table_library(out, suffix)
    with quick_start():
        from qkv.api.model import load_for
        from qkv.api.predict import ResultWriter, make_record, open_inputs, remembered_columns
        from qkv.cli.terminal import ResultPrinter, print_json, progress, say, say_windows, warn_unknown
        from qkv.models.family import HAS_TASK

        model = load_for(HAS_TASK, run, choose_device(device, precision), threads, precision=precision)
    columns = drop_missing(text=text, pair=pair)
    source = open_inputs(
        model.solver.task,
        inputs,
        model.tokenizer,
        question=question,
        pair=second,
        choices=choices or (),
        columns=columns,
        format=format,
        document=document,
        remembered=remembered_columns(model.record),
    )
    if source.note:
        say(f"{inputs[0]}: {source.note}")
    parts = model.answer_stream(source, watch=say_windows())
    if model.precision != "fp32":
        from qkv.api.precision import watch_results

        parts = watch_results(model, parts, _say_cost)
    answers, unknown = model.watch_unknown(parts)
    if out is not None:
        assert suffix is not None
        with (
            progress("texts", None) as advance,
            ResultWriter(out, suffix, model.solver.task.paired is not False, model.labels, source) as written,
        ):
            for examples, results in answers:
                written.add(examples, results)
                advance(len(results))
        count = written.count + written.empty
        if as_json:
            print_json(written.facts())
        else:
            say(f"{out}: {written.count:,} result{'' if written.count == 1 else 's'}{_describe_rows(written)}")
    else:
        printed, count = ResultPrinter(), 0
        for examples, results in answers:
            count += len(results)
            for example, result in zip(examples, results, strict=True):
                if as_json:
                    print_json(make_record(example, result))
                else:
                    printed.show(example, result)
    if not count and not source.n_left_out:
        say("note: the input has no text.")
    warn_unknown(unknown.facts())
    if source.n_left_out:
        say(f"note: {_describe_left_out(source, out is not None and source.has_records)}")


def _predict_on_cluster(
    run: str,
    inputs: list[str],
    out: Path | None,
    columns: dict[str, str],
    format: str | None,
    how: tuple[str, int | None, str],
    address: str,
    part_rows: int | None,
    as_json: bool,
) -> None:
    with quick_start():
        from qkv.api.part_jobs import JobModel, PredictParts, unknown_facts
        from qkv.api.precision import ResultCost
        from qkv.cli.terminal import answer_on_cluster, print_json, say, warn_unknown

    job = PredictParts.of(JobModel.of(run, *how), columns, format)
    done = answer_on_cluster(job, inputs, out, address, part_rows)
    facts = done.facts
    for cost in facts.get("cost", ()):
        _say_cost(ResultCost(**cost))
    if unknown := facts.get("unknown"):
        warn_unknown(unknown_facts(unknown), run)
    if left_out := facts.get("n_left_out"):
        first = facts["left_out"][0]
        if facts["n_empty"]:
            say(f"note: inputs without a text, which have no result: {left_out:,}; the first is {first}")
        else:
            say(f"note: inputs without a text, which are left out: {left_out:,}; the first is {first}")
    if not done.n_rows:
        say("note: the input has no text.")
    if as_json:
        print_json(done.to_dict())


def _say_cost(cost: "ResultCost") -> None:
    from qkv.cli.terminal import say

    change = f"{cost.largest_change:.3f}"
    say(
        f"{cost.precision}: the same result as in fp32: {cost.n_same} of {cost.n_texts}; "
        f"probabilities change by at most {change}"
    )


_NAMED = 5  # inputs without a text


def _describe_left_out(source: "Inputs", are_written: bool) -> str:
    """Say how many inputs have no text, and which."""
    first = [fault.place for fault in source.faults[:_NAMED]]
    places = [(one.within if one.line else one.file) if one.file else f"text {one.line}" for one in first]
    shown = "; ".join(places) + ("; …" if source.n_left_out > len(places) else "")
    if are_written:
        return f"inputs without a text, which have no result: {source.n_left_out:,} ({shown})"
    return f"inputs without a text, which are left out: {source.n_left_out:,} ({shown})"


def _describe_rows(written: "ResultWriter") -> str:
    """Say what differs from the input: columns with another name, fields without a column."""
    columns = written.columns
    renamed = [] if columns is None else [f"{old!r} is now {new!r}" for old, new in columns.renamed.items()]
    lost = [] if columns is None else [repr(name) for name in columns.lost]
    return (f"; columns of the input: {listed(renamed, 3)}" if renamed else "") + (
        f"; fields that only later lines have, not written: {listed(lost, 3)}" if lost else ""
    )


# qkv fill and qkv next.

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
