"""What several verbs share on their command line: the model, its tokenizer, the language, `--json`, text from standard
input, and a file to write that is none of those that are read."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from qkv.api.model import Model
    from qkv.jobs.lifecycle import Finished
    from qkv.text.tokenizer import Tokenizer


ModelOption = Annotated[
    str,
    typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="A model folder, or hf:owner/name."),
]
"""Its default is the zoo's DEFAULT_MODEL in every verb."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
LanguageOption = Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the captions.")]
DeviceOption = Annotated[str, typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:0 or mps.")]
DtypeOption = Annotated[
    str, typer.Option("--dtype", metavar="TYPE", help="What to compute in: float32, or bfloat16, float16 for a GPU.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", metavar="N", help="CPU threads to use.")]


def load_model(model: str, **how: Any) -> "Model":
    """Load the model that was named; what is odd about its folder is said beside the results."""
    from qkv.api.model import load

    loaded = load(model, **how)
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    return loaded


def load_tokenizer_and_limit(name: str) -> "tuple[Tokenizer, int | None]":
    """The tokenizer of a model, a run or a tokenizer folder, and the model's limit where there is a model."""
    from qkv.files import read_object
    from qkv.models.folders.hub import locate
    from qkv.text.tokenizer import Tokenizer
    from qkv.train.run_folder import model_folder

    path = Path(name).expanduser()
    if path.is_file():
        return Tokenizer.load(path), None
    folder = model_folder(locate(name))
    config = folder / "config.json"
    limit = read_object(config).get("max_position_embeddings") if config.is_file() else None
    return Tokenizer.load(folder), limit if isinstance(limit, int) else None


def text_or_stdin(text: str) -> str:
    """The argument itself, or all of standard input for "-"."""
    if text != "-":
        return text
    from qkv.data.readers import read_stdin

    return read_stdin()


def check_not_read(out: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Refuse to write over what is read; what is None or - is no file."""
    if out is None:
        return
    target = out.expanduser().resolve()
    for one in inputs:
        if one is not None and str(one) != "-" and Path(one).expanduser().resolve() == target:
            raise InputError(f"--out {out} is a file that is read: what it holds would be lost. Give another name.")


def suffix_of(path: Path, known: dict[str, Any]) -> str:
    """The file's ending, which says what is to be written."""

    suffix = path.suffix.lower()
    if suffix not in known:
        hint = did_you_mean(suffix, known)
        raise InputError(
            f"Cannot tell what to write into '{path.name}'.{hint} Use a name that ends in {' or '.join(known)}."
        )
    return suffix


# --- How a labelled file is read, as options of the verbs that read one: which column holds what, and the format.


def _column(name: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(f"--{name}", metavar="COLUMN", help=f"Column of {what}.")


TextColumn = Annotated[str | None, _column("text", "the text")]
PairColumn = Annotated[str | None, _column("pair", "the second text")]
LabelColumn = Annotated[str | None, _column("label", "the label")]
GroupColumn = Annotated[str | None, _column("group", "what belongs together in a split")]
QuestionColumn = Annotated[str | None, _column("question", "the question")]
ContextColumn = Annotated[str | None, _column("context", "the passage")]
AnswerColumn = Annotated[str | None, _column("answer", "the answer")]
ChoicesColumn = Annotated[str | None, _column("choices", "the choices")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="csv, tsv, jsonl, conll, squad …; found out if left out.")
]
SeparatorOption = Annotated[
    str | None, typer.Option("--separator", metavar="TEXT", help="Between several labels in one cell.")
]


def drop_missing(**options: str | None) -> dict[str, str]:
    """Those that were given.

    >>> given(text="评论", label=None)
    {'text': '评论'}
    """
    return {name: value for name, value in options.items() if value is not None}


# --- What the verbs that train share on their command line: where a run goes, its settings, how it ends.

RunOption = Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="A new folder for the run.")]
RecipeOption = Annotated[
    Path | None, typer.Option("--recipe", metavar="FILE", help="Settings in TOML that differ from the defaults.")
]
TrainingDevice = Annotated[str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:0.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; repeatable.")
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
]

# of fine-tuning
TaskArgument = Annotated[
    str | None, typer.Argument(metavar="[classify|tag|answer|choice]", help="What is to be learned.")
]
PretrainedOption = Annotated[
    str,
    typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="A pretrained model, or scratch:KIND."),
]
EmbeddingsOption = Annotated[
    str | None,
    typer.Option("--embeddings", metavar="FOLDER|FILE", help="Of scratch: word vectors, or ELMo."),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option("--tokenizer", metavar="FOLDER", help="Of scratch: a tokenizer; else that of the vectors."),
]
TrainOption = Annotated[str | None, typer.Option("--train", metavar="FILE", help="Labelled examples.")]
DevOption = Annotated[
    str | None, typer.Option("--dev", metavar="FILE", help="Examples to choose by; else held out of --train.")
]
TransferOption = Annotated[
    str | None, typer.Option("--transfer", metavar="WAY", help="full, top:K, freeze or features.")
]
EpochsOption = Annotated[float | None, typer.Option("--epochs", metavar="E", help="How often to read the file.")]
RateOption = Annotated[float | None, typer.Option("--lr", metavar="RATE", help="Largest learning rate.")]
KindOption = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Of classify: single, multi or regression.")
]


def refuse_with_resume(*given: object) -> None:
    """A run that goes on has its settings: anything else on the line would be ignored."""
    if any(value not in (None, False) and value != {} for value in given):
        raise InputError("--resume goes on with the settings of the run; leave out everything else.")


OF_ONE_TASK = {"classify.kind": "--kind", "tag.crf": "--crf"}
"""Settings that have an option of their own."""


def check_task(
    verb: str, task: str | None, train: str | None, out: Path | None, flags: Mapping[str, Any]
) -> tuple[str, Path]:
    """The task and the run's folder, once all that a new run needs was given, and no setting of another task."""
    from qkv.data.labelled.kinds import LABELLINGS

    if task not in LABELLINGS:
        named = f"'{task}' is not a task.{did_you_mean(task, LABELLINGS)} " if task else ""
        raise InputError(f"{named}Say what is to be learned: qkv {verb} {'|'.join(LABELLINGS)} --train FILE --out RUN.")
    if train is None or out is None:
        raise InputError("Give the labelled file with --train and a new folder for the run with --out.")
    for key, option in OF_ONE_TASK.items():
        owner = key.partition(".")[0]
        if key in flags and owner != task:
            raise InputError(f"{option} is for {owner}, not for {task}.")
    return task, out


def check_spelling(model: str) -> None:
    """Refuse a slip in scratch:KIND, which would be looked for as a folder.

    >>> check_spelling("scrach:lstm")
    Traceback (most recent call last):
    qkv.errors.InputError: There is no model 'scrach:lstm'. Did you mean 'scratch:lstm'?
    """
    before, colon, kind = model.partition(":")
    if colon and before != "scratch" and did_you_mean(before, ["scratch"]) and not Path(model).exists():
        raise InputError(f"There is no model '{model}'. Did you mean 'scratch:{kind}'?")


def report_outcome(
    job: str, finished: "Finished", as_json: bool, document: Mapping[str, Any], show: Callable[[], None]
) -> None:
    """What a run came to (`document` for programs, `show` for people), or how to go on with it."""
    from qkv.cli.terminal import print_json, say
    from qkv.train.run_folder import JOBS

    run, outcome = finished.run, finished.outcome
    if as_json:
        print_json({"run": str(run), "finished": outcome.finished, **document})
    elif outcome.finished:
        show()
    else:
        at = f" at step {outcome.step:,}" if "step" in document else ""
        say(f"Stopped and saved{at}. Go on with: qkv {JOBS[job].verb} --resume {run}")
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)


def report_result(
    job: str, finished: "Finished", as_json: bool, show: Callable[[dict[str, Any]], None], left: str
) -> None:
    """The same of a job that leaves a result; `left` says what is in its folder."""
    from qkv.cli.terminal import say

    result = finished.result if finished.finished else None

    def lines() -> None:
        assert result is not None
        if finished.already:
            say(f"{finished.run} is finished.")
        show(result)
        say(left)

    report_outcome(job, finished, as_json, {"result": result}, lines)
