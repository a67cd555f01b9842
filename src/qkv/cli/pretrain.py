"""`qkv pretrain`: shards to a pretrained model."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.pretrain_lm import MODELS as LANGUAGE_MODELS
from qkv.cli.training import RecipeOption, ResumeOption, RunOption, SetOption, TrainingDevice
from qkv.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from qkv.run.from_shards import Finished

MODELS = ("bert", "word2vec", "elmo", *LANGUAGE_MODELS)


def pretrain(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="bert, word2vec, elmo, nnlm or rnnlm.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="What qkv prepare wrote.")] = None,
    out: RunOption = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="NAME", help="tiny, mini, small, medium, base or large.")
    ] = None,
    recipe: RecipeOption = None,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="MODEL", help="Go on from a folder, or hf:owner/name."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Time to train; turned into steps at the start.")
    ] = None,
    device: TrainingDevice = None,
    settings: SetOption = None,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pretrain a model on shards; the result is a folder in the manner of Hugging Face.

    bert learns masked words and the next sentence, word2vec a vector a word from its neighbours, nnlm and rnnlm the
    next word from those before it, elmo the next word and the one before. --init is for bert; --size is tiny to large
    for bert, mini, small or paper for elmo, and also for nnlm and rnnlm.

    \b
    qkv pretrain bert --size mini --data shards --out run
    qkv pretrain bert --data shards --out run --minutes 20 --set train.lr=5e-4
    qkv pretrain bert --data shards --out run --init FOLDER --recipe recipes/adapt.toml
    qkv pretrain word2vec --data shards --out vectors
    qkv pretrain rnnlm --data shards --out lm --set rnnlm.cell=gru
    qkv pretrain elmo --data shards --out elmo
    qkv pretrain --resume run

    \b
    RUN/model        the finished model: qkv fill, transformers, …
    RUN/report.html  curves, sample fillings, remarks
    RUN/config.toml  every setting; these are the keys of --set
    RUN/log.jsonl    step, loss, learning rate

    Ctrl-C saves and stops; --resume goes on, and ends with the same weights as a run that was never stopped.
    --json prints one document: run, finished, step, steps, model, report, evaluation.
    """
    from qkv.cli.pretrain_elmo import begin_elmo, is_elmo, resume_elmo, tell_elmo
    from qkv.cli.pretrain_lm import pretrain_language_model, resume_language_model
    from qkv.cli.pretrain_word2vec import begin_word2vec, is_word2vec, resume_word2vec, tell_word2vec
    from qkv.run import pretrain as job
    from qkv.run.pretrain_config import configured
    from qkv.train.progress import for_stderr

    if resume is not None:
        given: dict[str, object] = {"--data": data, "--out": out, "--size": size, "--recipe": recipe, "--init": init}
        given |= {"--minutes": minutes, "--device": device, "--set": settings}
        if clash := [name for name, value in given.items() if value is not None]:
            raise InputError(f"--resume goes on with the settings of the run; leave out {', '.join(clash)}.")
        if is_word2vec(resume):
            _told(resume_word2vec(resume), tell_word2vec, as_json)
            return
        if is_elmo(resume):
            _told(resume_elmo(resume), tell_elmo, as_json)
            return
        if resume_language_model(resume, as_json):
            return
        with for_stderr() as progress:
            finished = job.resume(resume, progress)
    else:
        if model not in MODELS:
            named = f"'{model}' cannot be pretrained.{did_you_mean(model, MODELS)} " if model else ""
            raise InputError(f"{named}Say what to train: qkv pretrain bert --data SHARDS --out RUN.")
        if data is None or out is None:
            raise InputError("Give the prepared corpus with --data and a new folder for the run with --out.")
        if model in LANGUAGE_MODELS:
            if init is not None:
                raise InputError(f"--init is for bert; {model} begins from nothing.")
            run_settings = settings or []
            pretrain_language_model(
                model,
                data,
                out,
                size=size,
                recipe=recipe,
                minutes=minutes,
                device=device,
                settings=run_settings,
                as_json=as_json,
            )
            return
        flags = {"model.size": size, "train.minutes": minutes, "init": init, "device": device}
        wanted = {key: value for key, value in flags.items() if value is not None}
        if model == "word2vec":
            _told(begin_word2vec(data, out, recipe, wanted, settings or []), tell_word2vec, as_json)
            return
        if model == "elmo":
            _told(begin_elmo(data, out, recipe, wanted, settings or []), tell_elmo, as_json)
            return
        config = configured(data, recipe, wanted, settings or [])
        with for_stderr() as progress:
            finished = job.start(config, out, progress)
    _told(finished, _tell, as_json)


def _told(finished: "Finished", tell: "Callable[[Finished, bool], None]", as_json: bool) -> None:
    tell(finished, as_json)
    if finished.outcome.signal is not None:
        raise typer.Exit(128 + finished.outcome.signal)


def _tell(finished: "Finished", as_json: bool) -> None:
    from qkv.cli.terminal import print_json, say

    run, outcome = finished.run, finished.outcome
    if as_json:
        print_json(
            {
                "run": str(run),
                "finished": outcome.finished,
                "step": outcome.step,
                "steps": finished.steps,
                "model": str(run / "model") if outcome.finished else None,
                "report": str(run / "report.html"),
                "evaluation": finished.evaluation,
            }
        )
    elif finished.already:
        say(f"{run} is finished: {outcome.step:,} steps. Its model is {run / 'model'}.")
    elif outcome.finished:
        say(f"{run / 'model'}: the model, for qkv and transformers\n{run / 'report.html'}: curves, fillings, remarks")
    else:
        say(f"Stopped and saved at step {outcome.step:,}. Go on with: qkv pretrain --resume {run}")
