"""Verbs of pretraining: `qkv prepare` tokenizes a corpus into shards, `qkv show` shows BERT's training instances, `qkv
pretrain` trains a model on shards."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    ClusterOption,
    JsonOption,
    LanguageOption,
    MinProcessesOption,
    OverwriteOption,
    ProcessesOption,
    RecipeOption,
    ResumeOption,
    RunOption,
    SetOption,
    TrainingDevice,
    end_other_process,
    join_processes,
    quick_start,
    report_outcome,
)
from qkv.cli.tokenize import load_tokenizer
from qkv.errors import InputError, did_you_mean
from qkv.models.table import PRETRAINED
from qkv.text.messages import language

if TYPE_CHECKING:
    from qkv.data.corpus.parts import Tasks
    from qkv.jobs.lifecycle import Finished
    from qkv.models.bert.objective import Corpus
    from qkv.models.bert.page import Instance
    from qkv.text.tokenizer import Tokenizer


def prepare_corpus(
    corpus: Annotated[list[Path], typer.Argument(metavar="FILE", help=".txt or .jsonl, also .gz and .xz.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", "-t", metavar="FOLDER", help="A tokenizer or model folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the shards.")],
    segmenter: Annotated[
        str | None,
        typer.Option(
            "--segmenter",
            metavar="NAME",
            help="Chinese word segmenter: rjieba or none (default: the tokenizer's, else rjieba if installed).",
        ),
    ] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", metavar="SHARE", help="Share of documents held out for evaluation.")
    ] = 0.005,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Number of processes (default: one per core).")
    ] = None,
    field: Annotated[str, typer.Option("--field", metavar="NAME", help="Text field of .jsonl files.")] = "text",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier preparation.")] = False,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tokenize a corpus into shards: token ids with the boundaries of documents, sentences and words.

    In .txt a blank line separates documents, and a line is a sentence or a paragraph; in .jsonl a line is a document.
    White space inside a document is kept for character and byte-pair tokenizers. Memory use is constant. Run the same
    command again to resume a preparation that was killed.

    \b
    qkv tokenizer train corpus.txt --vocab-size 8000 --out tokenizer
    qkv prepare corpus.txt --tokenizer tokenizer --out shards
    qkv prepare wiki-*.txt.xz news.jsonl.gz --tokenizer tokenizer --out shards
    qkv prepare my-field.txt --tokenizer qkv-mini --out shards
    qkv prepare s3://bucket/wiki.txt --tokenizer qkv-mini --out s3://bucket/shards --cluster HOST:6379

    FILE may be the URL of an object store; with --cluster, so may --out. A cluster writes the same bytes.
    FOLDER/sample.txt shows a sample of the tokens. --json prints the manifest.
    """
    from qkv.cli.terminal import fraction, print_json, say, say_encodings
    from qkv.data.corpus.prepare import prepare_corpus as prepared
    from qkv.data.stores import place_of

    began = time.monotonic()
    cutter = load_tokenizer(tokenizer)
    say_encodings(corpus)
    with ExitStack() as stack:
        tasks: Tasks | None = None
        if cluster is not None:
            from qkv.data.corpus.cluster import cluster_tasks

            tasks = stack.enter_context(cluster_tasks(cluster, out, workers, lambda text: say(text)))
        moved = stack.enter_context(fraction("preparing"))
        manifest = prepared(
            corpus,
            cutter,
            out,
            workers=workers,
            segmenter=segmenter,
            hold_out=hold_out,
            field=field,
            overwrite=overwrite,
            progress=lambda now: moved(now.share, f"{now.documents:,} documents, {now.tokens:,} tokens"),
            tasks=tasks,
        )
    place = place_of(out)
    sample = f"{place.rstrip('/')}/sample.txt"
    if as_json:
        print_json(manifest)
        return
    totals = manifest["totals"]
    say(
        f"{place}: {totals['documents']:,} documents, {totals['sentences']:,} sentences, {totals['tokens']:,} tokens; "
        f"{manifest['valid']['documents']:,} documents held out; {time.monotonic() - began:.1f} s. "
        f"See {sample}."
    )
    for note in manifest["notes"]:
        say(f"note: {note}")


STYLES = {
    "mask": "bold blue",
    "random": "bold yellow",
    "kept": "bold green",
    "special": "dim",
    "soft": "dim",
    "segment": "bold",
    "IsNext": "bold green",
    "NotNext": "bold yellow",
    "plain": "bold",
}


def show(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="Folder written by qkv prepare.")],
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", help="Number of instances.")] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    epoch: Annotated[
        int, typer.Option("--epoch", metavar="N", help="Epoch, counted from 0; masks differ between epochs.")
    ] = 0,
    negatives: Annotated[
        str, typer.Option("--negatives", metavar="document|corpus|none", help="Source of a random segment B.")
    ] = "document",
    max_length: Annotated[int, typer.Option("--max-length", metavar="N", help="Maximum tokens of an instance.")] = 128,
    whole_words: Annotated[
        bool, typer.Option("--whole-words/--no-whole-words", help="Mask whole words, or single tokens.")
    ] = True,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page instead.")] = None,
    lang: LanguageOption = "en",
    as_json: JsonOption = False,
) -> None:
    """Show BERT training instances: segments, masked tokens, targets.

    \b
    qkv show SHARDS
    qkv show SHARDS -n 5 --epoch 1 --max-length 48
    qkv show SHARDS --html instances.html --lang zh

    These are the first instances of the epoch that training with this seed uses. --json prints one document:
    seed, epoch, and instances with label and tokens (token, original, segment, position, begins_word, treatment).
    """
    if count < 1:
        raise InputError(f"-n must be at least 1, not {count}.")
    if epoch < 0 or seed < 0:
        raise InputError("--epoch and --seed are counted from 0.")
    from qkv.data.corpus.shards import Shards
    from qkv.report.bilingual import check_page_language

    check_page_language(lang)
    corpus = Shards.open(shards)
    drawn = draw_instances(
        corpus,
        corpus.tokenizer(),
        count,
        seed=seed,
        epoch=epoch,
        negatives=negatives,
        max_length=max_length,
        whole_words=whole_words,
    )
    if html is not None:
        _write_page(html, drawn, shards, seed, epoch, lang)
    if as_json:
        from qkv.cli.terminal import print_json

        print_json({"seed": seed, "epoch": epoch, "instances": [one.to_dict() for one in drawn]})
    elif html is None:
        _print(drawn, language() if lang == "en" else lang)  # without --lang that of messages


def draw_instances(
    corpus: "Corpus",
    tokenizer: "Tokenizer",
    count: int,
    *,
    seed: int,
    epoch: int,
    negatives: str,
    max_length: int,
    whole_words: bool,
) -> "list[Instance]":
    """Return the first masked rows of an epoch, with the data for drawing them."""
    import numpy as np

    from qkv.data.corpus.rows import PairConfig
    from qkv.models.bert.objective import MaskingConfig, PretrainingBatches
    from qkv.models.bert.page import LABELS, TREATMENTS, DrawnToken, Instance

    pairs, masking = PairConfig(negatives, max_length), MaskingConfig(whole_words=whole_words)
    batches = PretrainingBatches(corpus, tokenizer, pairs, masking, rows=1, seed=seed)
    epoch_rows, order = batches.epoch(epoch)
    rows = epoch_rows.take(order[:count])
    batch, masked = batches.packed(rows, np.random.default_rng(np.random.SeedSequence((seed, epoch, 3))))
    original = batch.ids.numpy().copy()
    original[masked.chosen] = masked.targets
    treatment = dict(zip(masked.chosen.tolist(), masked.treatment.tolist(), strict=True))
    begins = np.ones(len(original), bool)  # a special token is a word of its own
    separators = np.isin(original, (tokenizer.cls_id, tokenizer.sep_id))
    # segments A and B of each row, in batch order
    begins[~separators] = corpus.word_starts(
        np.stack((rows.a_start, rows.b_start), 1).ravel(), np.stack((rows.a_length, rows.b_length), 1).ravel()
    )

    found = []
    at = 0
    for number, length in enumerate(batch.lengths):
        tokens = tuple(
            DrawnToken(
                token=tokenizer.token(int(batch.ids[place])),
                original=tokenizer.token(int(original[place])),
                segment=int(batch.segments[place]),
                position=int(batch.positions[place]),
                begins_word=bool(begins[place]),
                special=bool(separators[place]),
                treatment=TREATMENTS[treatment[place]] if place in treatment else None,
            )
            for place in range(at, at + length)
        )
        found.append(Instance(tokens, LABELS[int(rows.label[number])] if negatives != "none" else None))
        at += length
    return found


def _write_page(out: Path, drawn: "list[Instance]", shards: Path, seed: int, epoch: int, lang: str) -> None:
    from qkv.cli.terminal import say
    from qkv.files import write_text
    from qkv.models.bert.page import instances_page
    from qkv.report.bilingual import Phrase

    facts = (Phrase(f"epoch {epoch}", f"第 {epoch} 轮"), Phrase(f"seed {seed}", f"种子 {seed}"))
    write_text(out, instances_page(drawn, shards.resolve().name, facts, lang))
    say(f"{out}: {len(drawn)} instances")


def _print(drawn: "list[Instance]", lang: str) -> None:
    import shutil

    from rich.text import Text

    from qkv.cli.terminal import console
    from qkv.models.bert.page import draw_legend, draw_lines

    out = console()
    width = out.width if out.is_terminal else shutil.get_terminal_size((100, 24)).columns
    drawn_lines = []
    for number, one in enumerate(drawn, start=1):
        drawn_lines += [*draw_lines(one, number, width, lang), []]
    for line in [*drawn_lines, *draw_legend(width, lang)]:
        out.print(Text.assemble(*((span.text, STYLES.get(span.style, "")) for span in line)), soft_wrap=True)


def pretrain(
    invocation: typer.Context,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="bert, gpt, word2vec, elmo, nnlm or rnnlm.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="Shards written by qkv prepare.")] = None,
    out: RunOption = None,
    size: Annotated[str | None, typer.Option("--size", metavar="NAME", help="Model size, see above.")] = None,
    recipe: RecipeOption = None,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="MODEL", help="Initial weights: a folder, qkv-mini or hf:owner/name."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Training time; converted to steps at the start.")
    ] = None,
    device: TrainingDevice = None,
    processes: ProcessesOption = None,
    cluster: ClusterOption = None,
    min_processes: MinProcessesOption = None,
    settings: SetOption = None,
    overwrite: OverwriteOption = False,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pretrain a model on shards; the result is a folder in Hugging Face format.

    bert learns masked language modelling and next-sentence prediction, word2vec word vectors from context words, gpt,
    nnlm and rnnlm next-token prediction, elmo next and previous words. --init is for bert and gpt, --size for all but
    word2vec:

    \b
    bert   tiny, mini, small, medium, base, large
    gpt    tiny, mini, small, gpt, gpt2
    elmo   mini, small, paper
    nnlm   small, medium, paper
    rnnlm  small, medium, large

    \b
    qkv pretrain bert --size mini --data shards --out run
    qkv pretrain bert --data shards --out run --minutes 20 --set train.lr=5e-4
    qkv pretrain bert --data shards --out run --init qkv-mini --recipe adapt
    qkv pretrain gpt --size mini --data shards --out gpt --minutes 20
    qkv pretrain word2vec --data shards --out vectors
    qkv pretrain rnnlm --data shards --out lm --set rnnlm.cell=gru
    qkv pretrain elmo --data shards --out elmo --recipe elmo
    qkv pretrain --resume run
    qkv pretrain bert --size base --data shards --out run --processes 8

    \b
    RUN/model        the finished model: qkv fill, qkv generate, qkv similar, qkv finetune, …
    RUN/report.html  curves, samples, remarks
    RUN/config.toml  all settings; these are the keys of --set
    RUN/log.jsonl    step, loss, learning rate

    Ctrl-C saves and stops; --resume continues and ends with the same weights as an uninterrupted run.
    --json prints one document: run, finished, step, steps, model, report, evaluation.
    """
    join_processes(invocation, processes, cluster, min_processes)
    with quick_start():
        from qkv.config import Requested
        from qkv.jobs import pretrain as job
        from qkv.train.log import for_stderr

    if resume is not None:
        given: dict[str, object] = {"--data": data, "--out": out, "--size": size, "--recipe": recipe, "--init": init}
        given |= {"--minutes": minutes, "--device": device, "--set": settings, "--overwrite": overwrite or None}
        if clash := [name for name, value in given.items() if value is not None]:
            raise InputError(f"--resume uses the settings of the run; leave out {', '.join(clash)}.")
        trained = job.read_model_name(resume)
        if model not in (None, trained):
            raise InputError(f"{resume} is a run of {trained}, not of {model}: qkv pretrain --resume {resume}")
        with for_stderr() as progress:
            finished = job.resume(resume, progress)
        end_other_process(finished)
        report_pretrained(trained, finished, as_json)
        return
    if model not in PRETRAINED:
        named = f"'{model}' cannot be pretrained.{did_you_mean(model, PRETRAINED)} " if model else ""
        raise InputError(f"{named}Name the model: qkv pretrain {'|'.join(PRETRAINED)} --data SHARDS --out RUN.")
    if data is None or out is None:
        raise InputError("Give the prepared corpus with --data and a new folder for the run with --out.")
    flags = {"data": data, "size": size, "train.minutes": minutes, "init": init, "device": device}
    config = job.resolve_pretraining_settings(model, Requested(recipe, flags, settings or ()))
    with for_stderr() as progress:
        finished = job.start(config, out, progress, overwrite)
    end_other_process(finished)
    report_pretrained(model, finished, as_json)


def report_pretrained(model: str, finished: "Finished", as_json: bool = False) -> None:
    """Print the result of a run, or how to resume it."""
    run, outcome, evaluation = finished.run, finished.outcome, finished.evaluation
    document = {
        "step": outcome.step,
        "steps": finished.steps,
        "model": str(run / "model") if outcome.finished else None,
        "report": str(run / "report.html"),
        "evaluation": evaluation,
    }
    report_outcome("pretrain", finished, as_json, document, lambda: _show(model, finished, evaluation or {}))


def _show(model: str, finished: "Finished", evaluation: dict[str, Any]) -> None:
    from qkv.cli.terminal import say
    from qkv.models.table import load_pretraining

    folder, report = finished.run / "model", finished.run / "report.html"
    if finished.already:
        say(f"{finished.run} is finished: {finished.outcome.step:,} steps. Its model is {folder}.")
        return
    if "next_perplexity" in evaluation:
        forward, count = evaluation["next_perplexity"], evaluation["next_count"]
        back, bits = evaluation.get("previous_perplexity"), evaluation.get("bits_per_character")
        both = "" if back is None else f" forward and {back:,.1f} backward,"
        characters = "" if bits is None else f", {bits:.3f} bits per character"
        say(f"perplexity {forward:,.1f}{both} on {count:,} held-out tokens{characters}")
    trained = load_pretraining(model)
    say(f"{folder}: {trained.model.format(model=folder)}\n{report}: {trained.report}")
