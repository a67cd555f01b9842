"""`qkv pretrain word2vec`: shards to word vectors. The verb itself, and which model it is for, stand in pretrain.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.from_shards import Finished


def begin_word2vec(
    data: str,
    out: Path,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> "Finished":
    """A new run. `flags` are what was typed beside it, by the key of the setting: train.minutes, device."""
    from qkv.run import word2vec as job
    from qkv.run.word2vec_config import configured
    from qkv.train.progress import for_stderr

    wanted = {key: value for key, value in (flags or {}).items() if value is not None}
    if foreign := [name for name in ("init", "model.size") if name in wanted]:
        flag = {"init": "--init", "model.size": "--size"}[foreign[0]]
        raise InputError(f"{flag} is for bert. The width of word vectors is --set model.width=…")
    config = configured(data, recipe, wanted, settings)
    with for_stderr() as progress:
        return job.start(config, out, progress)


def resume_word2vec(run: Path) -> "Finished":
    from qkv.run import word2vec as job
    from qkv.train.progress import for_stderr

    with for_stderr() as progress:
        return job.resume(run, progress)


def is_word2vec(run: Path) -> bool:
    """Whether `--resume RUN` is for this file."""
    from qkv.run import word2vec as job

    return job.is_word2vec(run)


def tell_word2vec(finished: "Finished", as_json: bool) -> None:
    """What a run came to, or how to go on with it."""
    from qkv.cli.terminal import print_json, say

    run, outcome = finished.run, finished.outcome
    model = run / "model"
    if as_json:
        document = {"run": str(run), "finished": outcome.finished, "step": outcome.step, "steps": finished.steps}
        print_json(
            document | {"model": str(model) if outcome.finished else None, "evaluation": finished.evaluation},
        )
    elif finished.already:
        say(f"{run} is finished: {outcome.step:,} chunks. Its word vectors are {model}.")
    elif outcome.finished:
        say(f"{model}: the word vectors. Try: qkv similar WORD --model {model}")
    else:
        say(f"Stopped and saved at step {outcome.step:,}. Go on with: qkv pretrain --resume {run}")
