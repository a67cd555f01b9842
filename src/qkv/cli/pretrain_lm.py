"""`qkv pretrain nnlm` and `qkv pretrain rnnlm`: what the verb does for language models."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.from_shards import Finished

MODELS = ("nnlm", "rnnlm")


def pretrain_language_model(
    model: str,
    data: str | None,
    out: Path | None,
    *,
    size: str | None = None,
    recipe: Path | None = None,
    minutes: float | None = None,
    device: str | None = None,
    settings: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Begin a run, and say what came of it."""
    from qkv.run import language_model as job
    from qkv.run.language_model_config import configured
    from qkv.train.progress import for_stderr

    if data is None or out is None:
        raise InputError("Give the prepared corpus with --data and a new folder for the run with --out.")
    flags = {"size": size, "train.minutes": minutes, "device": device}
    wanted = {key: value for key, value in flags.items() if value is not None}
    config = configured(model, data, recipe, wanted, settings)
    with for_stderr() as progress:
        finished = job.start(config, out, progress)
    _tell(finished, as_json)


def resume_language_model(run: Path, as_json: bool = False) -> bool:
    """Go on with a run, if it is one of these; False if it is something else's."""
    from qkv.run import language_model as job
    from qkv.train.progress import for_stderr

    if not job.is_language_model(run):
        return False
    with for_stderr() as progress:
        finished = job.resume(run, progress)
    _tell(finished, as_json)
    return True


def _tell(finished: "Finished", as_json: bool) -> None:
    from qkv.cli.terminal import print_json, say

    run, outcome, evaluation = finished.run, finished.outcome, finished.evaluation
    if as_json:
        print_json(
            {
                "run": str(run),
                "finished": outcome.finished,
                "step": outcome.step,
                "steps": finished.steps,
                "model": str(run / "model") if outcome.finished else None,
                "report": str(run / "report.html"),
                "evaluation": evaluation,
            }
        )
    elif finished.already:
        say(f"{run} is finished: {outcome.step:,} steps. Its model is {run / 'model'}.")
    elif outcome.finished:
        if evaluation is not None:
            say(f"perplexity {evaluation['next_perplexity']:,.1f} on {evaluation['next_count']:,} held-out tokens")
        say(f"{run / 'model'}: the model\n{run / 'report.html'}: curves, remarks")
    else:
        say(f"Stopped and saved at step {outcome.step:,}. Go on with: qkv pretrain --resume {run}")
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)
