"""Which training `qkv pretrain MODEL` begins or goes on with, and what is said when it ends. The verb: pretrain.py."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import JsonOption, RecipeOption, ResumeOption, RunOption, SetOption, TrainingDevice
from qkv.errors import InputError, did_you_mean
from qkv.models.table import MODELS

if TYPE_CHECKING:
    from qkv.models.pretraining import Finished
    from qkv.train.progress import Progress

    Run = Callable[[Path, Progress], Finished]


def begin(
    model: str,
    data: str,
    out: Path,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> "Finished":
    """A new run. `flags` are what was typed beside it, by the key of the setting: model.size, train.minutes, device."""
    from qkv.train.progress import for_stderr

    run = _settled(model, data, recipe, dict(flags or {}), settings)
    with for_stderr() as progress:
        return run(out, progress)


def _settled(model: str, data: str, recipe: Path | None, flags: dict[str, Any], settings: Sequence[str]) -> "Run":
    """The training of a model, its settings put together and checked."""
    if model == "bert":
        from qkv.models.bert import pretrain as bert
        from qkv.models.bert.pretrain import configured as of_bert

        return partial(bert.start, of_bert(data, recipe, flags, settings))
    if model == "gpt":
        from qkv.models.gpt import pretrain as gpt
        from qkv.models.gpt.pretrain import configured as of_gpt

        return partial(gpt.start, of_gpt(data, recipe, flags, settings))
    if "init" in flags:
        raise InputError(f"--init is for bert and gpt; {model} begins from nothing.")
    if model == "word2vec":
        from qkv.models.word2vec import pretrain as word2vec
        from qkv.models.word2vec.learners import configured as of_word2vec

        if "model.size" in flags:
            raise InputError("--size is not for word2vec. The width of word vectors is --set model.width=…")
        return partial(word2vec.start, of_word2vec(data, recipe, flags, settings))
    if model == "elmo":
        from qkv.models.elmo import pretrain as elmo
        from qkv.models.elmo.pretrain import configured as of_elmo

        return partial(elmo.start, of_elmo(data, recipe, flags, settings))
    from qkv.models import language_model
    from qkv.models.language_model import configured as of_language_model

    named = {"size" if key == "model.size" else key: value for key, value in flags.items()}
    return partial(language_model.start, of_language_model(model, data, recipe, named, settings))


def go_on(model: str, run: Path) -> "Finished":
    """A run of this model (`model_of` says of which it is), from where it was left."""
    from qkv.models import language_model
    from qkv.models.bert import pretrain as bert
    from qkv.models.elmo import pretrain as elmo
    from qkv.models.gpt import pretrain as gpt
    from qkv.models.word2vec import pretrain as word2vec
    from qkv.train.progress import for_stderr

    runs: dict[str, Run] = {
        "bert": bert.resume,
        "word2vec": word2vec.resume,
        "elmo": elmo.resume,
        "nnlm": language_model.resume,
        "rnnlm": language_model.resume,
        "gpt": gpt.resume,
    }
    with for_stderr() as progress:
        return runs[model](run, progress)


def tell(model: str, finished: "Finished", as_json: bool = False) -> None:
    """What a run came to, or how to go on with it; the exit code of what stopped it, if something did."""
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
        say("\n".join(_lines(model, run, finished.evaluation or {})))
    else:
        say(f"Stopped and saved at step {outcome.step:,}. Go on with: qkv pretrain --resume {run}")
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)


def _lines(model: str, run: Path, evaluation: Mapping[str, Any]) -> list[str]:
    found = []
    if "next_perplexity" in evaluation:
        forward, count = evaluation["next_perplexity"], evaluation["next_count"]
        both = f" forward and {evaluation['previous_perplexity']:,.1f} backward," if model == "elmo" else ""
        bits = f", {evaluation['bits_per_character']:.3f} bits a character" if model == "gpt" else ""
        found.append(f"perplexity {forward:,.1f}{both} on {count:,} held-out tokens{bits}")
    kind = {
        "bert": "the model, for qkv and transformers",
        "word2vec": f"the word vectors. Try: qkv similar WORD --model {run / 'model'}",
        "gpt": f"the model, for qkv and transformers. Try: qkv generate {run / 'model'} TEXT",
    }
    shown = {
        "bert": "curves, fillings, remarks",
        "word2vec": "curves, neighbours, a map of words",
        "gpt": "curves, what it writes, remarks",
    }
    found.append(f"{run / 'model'}: {kind.get(model, 'the model')}")
    return [*found, f"{run / 'report.html'}: {shown.get(model, 'curves, remarks')}"]


# --- `qkv pretrain`: shards to a pretrained model.


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
        from qkv.models.pretraining import model_of

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
