"""`qkv embed`: vectors of texts, or with --tokens of tokens; and `qkv train embed`, which trains a model for them.

On a terminal a token is compared with the first one of the same spelling: their cosine is 1 for word2vec, and below 1
for the contextual vectors of ELMo and BERT.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    ClusterOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    MinProcessesOption,
    OverwriteOption,
    PartRowsOption,
    PrecisionOption,
    ProcessesOption,
    RecipeOption,
    ResumeOption,
    RunOption,
    SentenceModelOption,
    SetOption,
    TextColumn,
    ThreadsOption,
    TrainingDevice,
    WithFiles,
    check_not_read,
    choose_device,
    end_other_process,
    join_processes,
    load_model,
    quick_start,
    refuse_with_resume,
    report_result,
)
from qkv.cli.translate import train
from qkv.errors import InputError, listed
from qkv.models.folders.hub import DEFAULT_MODEL, default_model
from qkv.text.messages import write

if TYPE_CHECKING:
    from qkv.api.embed_files import Lacks, Written
    from qkv.api.embedder import Embeddings
    from qkv.api.model import Model
    from qkv.api.precision import VectorCost
    from qkv.text.unknown import UnknownCounter


_MOST = 100
"""Maximum number of tokens shown on a terminal."""
_SHOWN = 4
"""Components of a vector that are shown."""


def check_tokens(out: Path | None, pooling: str | None) -> None:
    if out is not None:
        raise InputError("--out does not take token vectors: leave it out, and add --json > tokens.jsonl.")
    if pooling is not None:
        raise InputError("--pooling makes one vector per text, --tokens one per token: leave one of them out.")


def lacks_tokens(model: "Model") -> "Lacks":
    """Return a function that says why `embed_tokens` would reject a text, or None."""
    return lambda text: "is empty" if not text.strip() or model.tokenizer.is_empty(text) else None


def embed_tokens(
    model: "Model", texts: Iterable[str], normalize: bool, layer: int | None, as_json: bool, unknown: "UnknownCounter"
) -> None:
    from qkv.api.embed_files import token_lines, token_parts

    if not as_json:
        _show_tokens(model, texts, normalize, layer, unknown)
        return
    for taken, part in token_parts(model, texts, normalize, layer, unknown):
        for line in token_lines(taken, part):
            typer.echo(line)


def _show_tokens(
    model: "Model", texts: Iterable[str], normalize: bool, layer: int | None, unknown: "UnknownCounter"
) -> None:
    import numpy as np

    from qkv.api.embed_files import token_parts
    from qkv.api.embedder import scale_to_unit
    from qkv.cli.terminal import print_table, shade_number

    rows: list[list[object]] = []
    first: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}
    number = 0
    for taken, part in token_parts(model, texts, normalize, layer, unknown):
        for text, found in zip(taken, part, strict=True):
            number += 1
            if len(rows) + len(found) > _MOST:
                raise InputError(f"More than {_MOST} tokens do not fit on the screen: add --json.")
            unit = scale_to_unit(found.vectors)
            for place, (token, (start, end)) in enumerate(zip(found.tokens, found.offsets, strict=True)):
                row = [number, f"{start}–{end}", text[start:end]]
                if not found.has_vector[place]:
                    rows.append([*row, "no vector", ""])
                    continue
                alike = shade_number(float(np.clip(unit[place] @ first[token], -1, 1))) if token in first else ""
                first.setdefault(token, unit[place])
                numbers = ", ".join(f"{value:.3f}" for value in found.vectors[place, :_SHOWN].tolist())
                rows.append([*row, f"{numbers}, …", alike])
    if not rows:
        raise InputError("There is no text to embed: the input is empty.")
    print_table(
        ["text", "at", "token", f"vector ({model.config.width} numbers)", "cosine with the first"], rows, right=[4]
    )


How = tuple[str | None, bool | None, int | None]
"""Pooling, normalize, layer."""
_FEW = 12
"""Maximum number of texts in a similarity table on a terminal."""


def embed_texts(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; - reads lines of standard input.")
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Texts, one per line (.txt .jsonl, also .gz .xz), or a table (csv tsv xlsx parquet); repeatable.",
        ),
    ] = None,
    text: TextColumn = None,
    model: SentenceModelOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write .npy, .jsonl, .tsv, .csv, .parquet or .xlsx."),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling", metavar="mean|cls", help="Pooling of token vectors (default: as in the model folder)."
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Scale to unit length (default: texts as in the model folder, tokens no).",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", metavar="N", help="Layer (0 = embeddings); default: last, or ELMo's mean."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="One vector per token instead of one per text.")] = False,
    skip_empty: Annotated[
        bool,
        typer.Option(
            "--skip-empty", help="Skip texts of files and standard input that have no token or no known word."
        ),
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    dtype: DtypeOption = "float32",
    precision: PrecisionOption = "fp32",
    cluster: ClusterOption = None,
    part_rows: PartRowsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute vectors of texts; on a terminal, print the similarities of a few texts.

    A text above the maximum length is split into overlapping windows; nothing is truncated. Files are streamed.

    \b
    qkv embed "A cat sits." "Stocks fell." "一只猫"
    qkv embed --file texts.txt --out vectors.npy
    qkv embed --file texts.jsonl.gz --json --model FOLDER > vectors.jsonl
    qkv embed --file reviews.csv --text Review --out vectors.parquet
    qkv embed --tokens --layer 2 --model ELMO "He got bit by Python" "Python is my favorite programming language"

    The default model is qkv-sentences, which compares sentences; with --tokens qkv-mini.

    Models without a task head also work: word2vec or nnlm (mean of the words that have a vector), rnnlm, ELMo (mean of
    the tokens, layers in equal shares).

    --precision bf16 and int8 are faster on a CPU; what they change is measured on the first texts and said.

    Rows of a table keep their columns and order in --out, with their number in the column row; rows without a text
    stay, without a vector (.npy: NaN), unless --skip-empty.

    --json prints one line per text: text, n_tokens, n_windows, n_unknown, vector (for word vectors also
    n_without_vector); with --tokens: text, n_windows, n_unknown, tokens (token, start, end, vector). With --out, one
    document: out, n_texts, n_tokens, n_windows, width, seconds, n_without_vector, n_unknown, n_empty, renamed, lost.

    \b
    qkv embed --file "data/*.parquet" --cluster auto --out vectors

    With --cluster, files, folders and patterns are embedded by a Ray cluster, into a folder of parts: parquet, or JSON
    lines if its name ends in .jsonl. The same command again continues. --json adds n_parts, n_parts_kept, n_rows.
    """
    with quick_start():
        from qkv.api.embed_files import check_name
        from qkv.cli.terminal import refuse_with_cluster, warn_unknown
        from qkv.text.unknown import UnknownCounter

    refuse_with_cluster(cluster, part_rows, tokens=tokens)
    if cluster is not None:
        if texts or not file:
            raise InputError("--cluster embeds the texts of files: give them with --file.")
        asked = (model or default_model("encodes"), device, threads, precision, dtype)
        options = (text, pooling, normalize, layer, skip_empty)
        _embed_on_cluster(asked, options, file, out, cluster, part_rows, as_json)
        return
    if out is not None:
        check_name(out)
    if bool(texts) == bool(file):
        raise InputError('Give texts (qkv embed "one text" "another"), or a file with --file; one of the two.')
    check_not_read(out, file or [])
    if skip_empty and texts and texts != ["-"]:
        raise InputError("--skip-empty is for files and standard input: leave it out, or leave out the empty texts.")
    if text is not None and not file:
        raise InputError("--text names a column of a file: give the file with --file.")
    if tokens:
        check_tokens(out, pooling)
    model = model or (DEFAULT_MODEL if tokens else default_model("encodes"))
    loaded = load_model(
        model, device=choose_device(device, precision), threads=threads, dtype=dtype, precision=precision
    )
    how = (pooling, normalize, layer)
    # a text without a known word has no mean, but its tokens can be listed without vectors
    lacks = lacks_tokens(loaded) if tokens else loaded.lacks
    unknown = UnknownCounter(loaded.tokenizer)
    if file:
        from qkv.cli.terminal import say_encodings

        if out is not None and len(file) == 1 and _has_rows(file[0], text, out):
            if loaded.precision != "fp32":
                from qkv.api.embed_files import file_texts

                _say_cost(loaded, file_texts(file, lacks, True, text), how, tokens)
            _rows_to_file(loaded, file[0], text, out, how, skip_empty, as_json, unknown)
            warn_unknown(unknown.facts(), model)
            return
        say_encodings(file)
    number, stream = _open_texts(texts or [], file or [], lacks, skip_empty, text)
    if loaded.precision != "fp32":
        stream = _say_cost(loaded, stream, how, tokens)
    if tokens:
        embed_tokens(loaded, stream, bool(normalize), layer, as_json, unknown)
    elif out is not None:
        _to_file(loaded, stream, number, out, how, as_json, unknown)
    elif as_json:
        _to_json(loaded, stream, how, unknown)
    else:
        _show_similarities(loaded, stream, how, unknown)
    warn_unknown(unknown.facts(), model)


def _embed_on_cluster(
    model: tuple[str, str, int | None, str, str],
    how: tuple[str | None, str | None, bool | None, int | None, bool],
    files: list[Path],
    out: Path | None,
    address: str,
    part_rows: int | None,
    as_json: bool,
) -> None:
    from qkv.api.part_jobs import EmbedParts, JobModel, unknown_facts
    from qkv.api.precision import VectorCost
    from qkv.cli.terminal import answer_on_cluster, print_json, say, warn_unknown

    done = answer_on_cluster(EmbedParts(JobModel.of(*model), *how), files, out, address, part_rows)
    facts = done.facts
    for cost in facts.get("cost", ()):
        _say_vector_cost(VectorCost(**cost))
    if not facts.get("n_texts"):
        raise InputError("There is no text to embed: the input is empty.")
    if empty := facts["n_empty"]:
        say(f"rows without a text, which have no vector: {empty:,}")
    warn_unknown(unknown_facts(facts["unknown"]), model[0])
    if as_json:
        print_json(done.to_dict())


def _say_cost(model: "Model", texts: Iterator[str], how: How, tokens: bool) -> Iterator[str]:
    """Say what the precision changes, measured on the first texts, and return all of them."""
    from itertools import chain, islice

    from qkv.api.precision import MEASURED, measure_vectors

    first = list(islice(texts, MEASURED))
    if first:
        _say_vector_cost(measure_vectors(model, first, how[0], how[2], tokens))
    return chain(first, texts)


def _say_vector_cost(cost: "VectorCost") -> None:
    from qkv.cli.terminal import say

    # rounded down: .999996 is not 1
    worst, mean = (f"{1e-5 * (1e5 * value // 1):.5f}" for value in (cost.worst, cost.mean))
    say(f"{cost.precision}: cosine to fp32 at worst {worst}, on average {mean} (texts compared: {cost.n_texts})")


def _open_texts(
    texts: list[str], files: list[Path], lacks: "Lacks", skip_empty: bool, column: str | None
) -> tuple[int | None, Iterator[str]]:
    """Return the number of texts, if known, and the texts."""
    from qkv.api.embed_files import file_texts, stdin_texts

    if files:
        # read to the end first, so that an error in the last line is found before the work
        number = sum(1 for _ in file_texts(files, lacks, skip_empty, column))
        return number, file_texts(files, lacks, skip_empty, column)
    if texts == ["-"]:
        return None, stdin_texts(lacks, skip_empty)
    return len(texts), iter(texts)


def _to_file(
    model: "Model",
    texts: Iterable[str],
    number: int | None,
    out: Path,
    how: How,
    as_json: bool,
    unknown: "UnknownCounter",
) -> None:
    from qkv.api.embed_files import embed_to_file
    from qkv.cli.terminal import progress, say_windows

    with progress("embed", number) as advance:
        done = embed_to_file(model, texts, out, *how, advance, unknown, say_windows())
    _report(done, out, as_json)


def _has_rows(file: Path, column: str | None, out: Path) -> bool:
    """Whether the columns of a file are written next to the vectors."""
    from qkv.api.embed_files import is_table
    from qkv.api.table_files import TABLES

    is_json = ".jsonl" in file.name.lower()
    return is_table(file) or (is_json and (column is not None or out.suffix.lower() in TABLES))


def _rows_to_file(
    model: "Model",
    file: Path,
    column: str | None,
    out: Path,
    how: How,
    skip_empty: bool,
    as_json: bool,
    unknown: "UnknownCounter",
) -> None:
    from qkv.api.embed_files import embed_rows, open_rows
    from qkv.cli.terminal import progress, say, say_windows

    source = open_rows(file, column)
    if source.note:
        say(f"{file}: {source.note}")
    with progress("embed", None) as advance:
        done = embed_rows(model, source, out, *how, advance, skip_empty, unknown, say_windows())
    _report(done, out, as_json)


def _report(done: "Written", out: Path, as_json: bool) -> None:
    from qkv.cli.terminal import print_json, say

    if as_json:
        print_json(asdict(done))
        return
    windows = f" in {done.n_windows:,} windows" if done.n_windows > done.n_texts else ""
    speed = f"{done.n_texts / max(done.seconds, 1e-3):,.0f} texts per second"
    say(f"{out}: {done.n_texts:,} texts{windows}, {done.width} numbers each, {speed}")
    if done.n_without_vector:
        say(f"{done.n_without_vector:,} of {done.n_tokens:,} words have no vector and are not in the means")
    if done.n_empty:
        say(f"rows without a text, which have no vector: {done.n_empty:,}")
    if done.lost:
        say(f"fields that only later lines have, not written: {listed(map(repr, done.lost), 3)}")
    if done.renamed:
        say("columns of the input: " + ", ".join(f"{old!r} is now {new!r}" for old, new in done.renamed.items()))


def _to_json(model: "Model", texts: Iterable[str], how: How, unknown: "UnknownCounter") -> None:
    from qkv.api.embed_files import embed_parts, json_lines
    from qkv.cli.terminal import say_windows

    for taken, part in embed_parts(model, texts, *how, unknown, say_windows()):
        for line in json_lines(taken, part):
            typer.echo(line)


def _show_similarities(model: "Model", texts: Iterable[str], how: How, unknown: "UnknownCounter") -> None:
    from itertools import islice

    from qkv.api.embed_files import add_unknown
    from qkv.api.embedder import join_embeddings
    from qkv.cli.terminal import similarity_table, warn_not_for_sentences

    few = list(islice(texts, _FEW + 1))
    if len(few) > _FEW:
        raise InputError(f"More than {_FEW} texts do not fit on the screen: add --out vectors.npy, or --json.")
    if not few:
        raise InputError("There is no text to embed: the input is empty.")
    found = join_embeddings(model.embed_stream(few, how[0], how[1], layer=how[2]), model.name, model.config.width)
    add_unknown(unknown, model, few, found)
    if len(few) == 1:
        start = ", ".join(f"{value:.4f}" for value in found.vectors[0, :6].tolist())
        write(f"{model.config.width} numbers: {start}, …")
    else:
        similarity_table(few, found.similarity().tolist())
        warn_not_for_sentences(model)
    _remark(found)


def _remark(found: "Embeddings") -> None:
    from qkv.cli.terminal import say

    for number, windows in enumerate(found.n_windows.tolist(), start=1):
        if windows > 1:
            say(f"text {number} is {found.n_tokens[number - 1]} tokens long and was split into {windows} windows")
    for number, without in enumerate([] if found.n_without_vector is None else found.n_without_vector.tolist(), 1):
        if without:
            words = f"{without} of {found.n_tokens[number - 1]} words"
            say(f"text {number}: {words} have no vector and are not in the mean (--tokens shows which)")


@train.command("embed", short_help="Train sentence vectors on pairs, triplets, scores or a teacher.", cls=WithFiles)
def train_embed(
    invocation: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="FILE …", help="Training files: pairs, triplets, scored pairs, or texts."),
    ] = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            "--parallel", metavar="FILE …", help="Translations: both sides learn the teacher's vector of the first."
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option("--dev", metavar="FILE …", help="Development sets (default: held out of each training file)."),
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", metavar="FILE …", help="Test sets, evaluated once after training.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", metavar="ROLE=NAME,…", help="Columns, of all files or of one: sts.csv:6,7,5. See below."
        ),
    ] = None,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Split single texts into sentences, for a teacher.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="FOLDER", help="Model to train (default: qkv-mini, or QKV_MODEL)."),
    ] = None,
    teacher: Annotated[
        str | None, typer.Option("--teacher", metavar="FOLDER", help="Model whose vectors are learned.")
    ] = None,
    out: RunOption = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", metavar="E", help="Number of epochs (default: 1).")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Number of steps.")] = None,
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
    """Train a model to give vectors that can be compared, from texts that belong together.

    \b
    qkv train embed --data questions.csv --out run
    qkv embed "How do I return it?" "Sending goods back" --model run

    \b
    qkv train embed --data pairs.tsv squad.json --test sts.csv --columns sts.csv:6,7,5 --out run
    qkv train embed --data train.jsonl --columns anchor=query,positive=passage,negative=neg --out run
    qkv train embed --teacher MINILM --data english.txt --parallel en-zh.tsv --sentences --out run
    qkv train embed --data pairs.tsv --set batch=1024 --set widths=[64,128] --minutes 10 --out run
    qkv train embed --resume run

    \b
    Two texts a row           pairs: compared with all other rows of the step (InfoNCE)
    … and negatives           triplets: negative, negative2, … or a list in JSON
    … and a number            scored pairs: cosines are put in the order of the scores (CoSENT)
    One text a row            with --teacher: its vector is learned
    SQuAD and CMRC files      pairs of question and passage
    A.txt,B.txt               pairs: line n of both files

    Columns have usual names (anchor/query/question/sentence1, positive/answer/passage/sentence2, negative, score), or
    are given: --columns anchor=A,positive=B,score=C by name or number, in this order also without the roles.

    Several files are mixed in proportion, one file a step, and evaluated apart: Spearman of scores, retrieval of pairs
    in both directions, each beside the model before training. Large batches are computed in chunks (--set batch=1024,
    tokens_at_once).

    \b
    RUN/model        a folder of sentence-transformers: qkv embed --model RUN
    RUN/report.html  figures before and after, curves
    RUN/faults.jsonl dropped rows, with file and line

    Ctrl-C saves and stops; --resume continues and ends with the same result. --json prints one document: run, finished,
    result.
    """
    import os

    join_processes(invocation, processes, cluster, min_processes)
    given: dict[str, Any] = {
        "data.train": tuple(data) if data else None,
        "data.parallel": tuple(parallel) if parallel else None,
        "data.dev": tuple(dev) if dev else None,
        "data.test": tuple(test) if test else None,
        "data.columns": tuple(columns) if columns else None,
        "data.sentences": True if sentences else None,
        "teacher": teacher,
        "epochs": epochs,
        "train.steps": steps,
        "train.minutes": minutes,
        "device": device,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        refuse_with_resume(flags, overwrite, out, model, recipe, settings)
    elif out is None or not (recipe or data or parallel or settings):
        raise InputError("Give files to train on with --data and a new folder for the run with --out.")
    with quick_start():
        from qkv.config import Requested
        from qkv.jobs.embed import EMBEDDING, resolve_embed_settings
        from qkv.train.log import for_stderr

    with for_stderr() as progress:
        if resume is not None:
            finished = EMBEDDING.resume(resume, progress)
        else:
            assert out is not None
            named = {"model": model or os.environ.get("QKV_MODEL"), **flags}
            config = resolve_embed_settings(Requested(recipe, named, settings or []))
            finished = EMBEDDING.start(config, out, progress, overwrite)
    end_other_process(finished)
    run = finished.run
    left = f"\n{run / 'model'}: the model. Try: qkv embed TEXT TEXT --model {run}\n{run / 'report.html'}: the report"
    report_result("embed", finished, as_json, _show_trained, left)


def _show_trained(result: dict[str, Any]) -> None:
    from qkv.jobs.embed_page import FEW_ROWS

    for part in ("dev", "test"):
        for name, score in result[part].items():
            main = score["main"]
            ends = score["intervals"].get(main)
            between = (
                f"(95 %: {ends[0]:.3f} to {ends[1]:.3f})" if ends else "(no interval: all samples of the rows agree)"
            )
            before, rows = result["before"][part][name][main], score["examples"]
            write(f"{name} ({part}, rows: {rows:,}), {main}: {score[main]:.3f} {between}, before training {before:.3f}")
    fewest = min((one["examples"] for part in ("dev", "test") for one in result[part].values()), default=FEW_ROWS)
    if fewest < FEW_ROWS:
        write(
            f"note: {fewest:,} row{'' if fewest == 1 else 's'} {'is' if fewest == 1 else 'are'} few to judge by: "
            "with others the figures may be quite different. Give more to measure with: --dev FILE, or --set "
            "data.dev_share=0.3."
        )
    write(f"weights: step {result['best_step']:,}" if result["best_step"] is not None else "weights: the last step's")
