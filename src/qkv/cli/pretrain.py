"""`qkv pretrain`: pretrain a model on shards."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    JsonOption,
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
from qkv.errors import InputError, did_you_mean
from qkv.models.table import PRETRAINED

if TYPE_CHECKING:
    from qkv.jobs.lifecycle import Finished


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
    join_processes(invocation, processes)
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
