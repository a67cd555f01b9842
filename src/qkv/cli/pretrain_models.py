"""Which training `qkv pretrain MODEL` begins or goes on with, and what is said when it ends. The verb: pretrain.py."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.from_shards import Finished
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
        from qkv.run import pretrain as bert
        from qkv.run.pretrain_config import configured as of_bert

        return partial(bert.start, of_bert(data, recipe, flags, settings))
    if model == "gpt":
        from qkv.run import gpt
        from qkv.run.gpt_config import configured as of_gpt

        return partial(gpt.start, of_gpt(data, recipe, flags, settings))
    if "init" in flags:
        raise InputError(f"--init is for bert and gpt; {model} begins from nothing.")
    if model == "word2vec":
        from qkv.run import word2vec
        from qkv.run.word2vec_config import configured as of_word2vec

        if "model.size" in flags:
            raise InputError("--size is not for word2vec. The width of word vectors is --set model.width=…")
        return partial(word2vec.start, of_word2vec(data, recipe, flags, settings))
    if model == "elmo":
        from qkv.run import elmo
        from qkv.run.elmo_config import configured as of_elmo

        return partial(elmo.start, of_elmo(data, recipe, flags, settings))
    from qkv.run import language_model
    from qkv.run.language_model_config import configured as of_language_model

    named = {"size" if key == "model.size" else key: value for key, value in flags.items()}
    return partial(language_model.start, of_language_model(model, data, recipe, named, settings))


def go_on(model: str, run: Path) -> "Finished":
    """A run of this model (`model_of` says of which it is), from where it was left."""
    from qkv.run import elmo, gpt, language_model, pretrain, word2vec
    from qkv.train.progress import for_stderr

    runs: dict[str, Run] = {
        "bert": pretrain.resume,
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
