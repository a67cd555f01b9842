"""`qkv pretrain elmo`: shards to ELMo. The verb itself, and which model it is for, stand in pretrain.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.from_shards import Finished


def begin_elmo(
    data: str,
    out: Path,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> "Finished":
    """A new run. `flags` are what was typed beside it, by the key of the setting: model.size, train.minutes, device."""
    from qkv.run import elmo as job
    from qkv.run.elmo_config import configured
    from qkv.train.progress import for_stderr

    wanted = {key: value for key, value in (flags or {}).items() if value is not None}
    if "init" in wanted:
        raise InputError("--init is for bert; elmo begins from nothing.")
    config = configured(data, recipe, wanted, settings)
    with for_stderr() as progress:
        return job.start(config, out, progress)


def resume_elmo(run: Path) -> "Finished":
    from qkv.run import elmo as job
    from qkv.train.progress import for_stderr

    with for_stderr() as progress:
        return job.resume(run, progress)


def is_elmo(run: Path) -> bool:
    """Whether `--resume RUN` is for this file."""
    from qkv.run import elmo as job

    return job.is_elmo(run)


def tell_elmo(finished: "Finished", as_json: bool) -> None:
    """What a run came to, or how to go on with it."""
    from qkv.cli.terminal import print_json, say

    run, outcome, evaluation = finished.run, finished.outcome, finished.evaluation
    model, report = run / "model", run / "report.html"
    if as_json:
        document = {"run": str(run), "finished": outcome.finished, "step": outcome.step, "steps": finished.steps}
        made = {"model": str(model) if outcome.finished else None, "report": str(report)}
        print_json(document | made | {"evaluation": evaluation})
    elif finished.already:
        say(f"{run} is finished: {outcome.step:,} steps. Its model is {model}.")
    elif outcome.finished:
        if evaluation is not None:
            forward, backward = (evaluation[f"{name}_perplexity"] for name in ("next", "previous"))
            say(
                f"perplexity {forward:,.1f} forward and {backward:,.1f} backward, on "
                f"{evaluation['next_count']:,} held-out tokens"
            )
        say(f"{model}: the model\n{report}: curves, remarks")
    else:
        say(f"Stopped and saved at step {outcome.step:,}. Go on with: qkv pretrain --resume {run}")
