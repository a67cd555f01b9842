"""`qkv pretrain`: shards to a pretrained model."""

from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.pretrain_models import begin, go_on, tell
from qkv.cli.training import RecipeOption, ResumeOption, RunOption, SetOption, TrainingDevice
from qkv.errors import InputError, did_you_mean
from qkv.run.pretrain_recipe import MODELS


def pretrain(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="bert, gpt, word2vec, elmo, nnlm or rnnlm.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="What qkv prepare wrote.")] = None,
    out: RunOption = None,
    size: Annotated[str | None, typer.Option("--size", metavar="NAME", help="One of the model's sizes, above.")] = None,
    recipe: RecipeOption = None,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="MODEL", help="Go on from a folder, qkv-mini or hf:owner/name."),
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

    bert learns masked words and the next sentence, word2vec a vector a word from its neighbours, gpt, nnlm and rnnlm
    the next word from those before it, elmo the next word and the one before. --init is for bert and gpt, --size for
    all but word2vec:

    \b
    bert   tiny, mini, small, medium, base, large
    gpt    tiny, mini, small, gpt, gpt2
    elmo   mini, small, paper
    nnlm   small, medium, paper
    rnnlm  small, medium, large

    \b
    qkv pretrain bert --size mini --data shards --out run
    qkv pretrain bert --data shards --out run --minutes 20 --set train.lr=5e-4
    qkv pretrain bert --data shards --out run --init qkv-mini --recipe recipes/adapt.toml
    qkv pretrain gpt --size mini --data shards --out gpt --minutes 20
    qkv pretrain word2vec --data shards --out vectors
    qkv pretrain rnnlm --data shards --out lm --set rnnlm.cell=gru
    qkv pretrain elmo --data shards --out elmo --recipe recipes/elmo.toml
    qkv pretrain --resume run

    \b
    RUN/model        the finished model: qkv fill, qkv generate, qkv similar, qkv finetune, …
    RUN/report.html  curves, samples, remarks
    RUN/config.toml  every setting; these are the keys of --set
    RUN/log.jsonl    step, loss, learning rate

    Ctrl-C saves and stops; --resume goes on, and ends with the same weights as a run that was never stopped.
    --json prints one document: run, finished, step, steps, model, report, evaluation.
    """
    if resume is not None:
        from qkv.run.from_shards import model_of

        given: dict[str, object] = {"--data": data, "--out": out, "--size": size, "--recipe": recipe, "--init": init}
        given |= {"--minutes": minutes, "--device": device, "--set": settings}
        if clash := [name for name, value in given.items() if value is not None]:
            raise InputError(f"--resume goes on with the settings of the run; leave out {', '.join(clash)}.")
        trained = model_of(resume)
        if model not in (None, trained):
            raise InputError(f"{resume} is a run of {trained}, not of {model}: qkv pretrain --resume {resume}")
        model = trained
        finished = go_on(model, resume)
    else:
        if model not in MODELS:
            named = f"'{model}' cannot be pretrained.{did_you_mean(model, MODELS)} " if model else ""
            raise InputError(f"{named}Say what to train: qkv pretrain {'|'.join(MODELS)} --data SHARDS --out RUN.")
        if data is None or out is None:
            raise InputError("Give the prepared corpus with --data and a new folder for the run with --out.")
        flags = {"model.size": size, "train.minutes": minutes, "init": init, "device": device}
        wanted = {key: value for key, value in flags.items() if value is not None}
        finished = begin(model, data, out, recipe, wanted, settings or [])
    tell(model, finished, as_json)
