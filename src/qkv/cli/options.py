"""What several verbs share: options (model, device, `--json`, columns of labelled files, run settings), their checks,
and help in the user's language."""

import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from unicodedata import east_asian_width

import typer
from typer.core import TyperCommand, TyperGroup

from qkv.errors import InputError, did_you_mean
from qkv.text.messages import language, translate, write

if TYPE_CHECKING:
    from qkv.api.model import Model
    from qkv.jobs.lifecycle import Finished
    from qkv.models.family import Ability
    from qkv.text.tokenizer import Tokenizer


ModelOption = Annotated[
    str,
    typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="Model folder, or hf:owner/name."),
]
SentenceModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="QKV_MODEL",
        metavar="FOLDER",
        help="Model folder, or hf:owner/name (default: qkv-sentences, or qkv-mini where there is none).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LanguageOption = Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the captions.")]
_DEVICES = "auto (the fastest that is found), cpu, cuda, cuda:0 or mps."
DeviceOption = Annotated[str, typer.Option("--device", metavar="NAME", help=_DEVICES)]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype", metavar="TYPE", help="Data type for computation: float32; on a GPU also bfloat16, float16."
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="TYPE",
        help="On a CPU: fp32, bf16, int8, or auto (bf16 where the CPU has it); a BERT or a relative of it.",
    ),
]
PartRowsOption = Annotated[
    int | None,
    typer.Option("--part-rows", metavar="N", help="With --cluster: maximum number of rows of a part (default 8192)."),
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", metavar="N", help="Number of CPU threads.")]


def choose_device(name: str, precision: str = "fp32") -> str:
    """Return the device for "auto", and print it if it is not the CPU. Reduced precisions run on a CPU."""
    from qkv.train.device import AUTO, describe_device, fastest_device

    if name != AUTO:
        return name
    found = fastest_device() if precision in ("fp32", AUTO) else "cpu"
    if found != "cpu":
        write(f"device: {describe_device(found)}", err=True)
    return found


@contextmanager
def quick_start() -> Iterator[None]:
    """Import torch without garbage collection, which would search its objects again and again, and leave them out of
    all later ones: they stay until the end."""
    begins, was_enabled = "torch" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if begins:
            gc.freeze()
        if was_enabled:
            gc.enable()


def load_model(model: str, wanted: "Ability[Any] | None" = None, **how: Any) -> "Model":
    """Load a model with this ability (by default, that it encodes texts) and print the notes about its folder to
    standard error."""
    with quick_start():
        from qkv.api.model import load, load_for

        loaded = load(model, **how) if wanted is None else load_for(wanted, model, **how)
    for note in loaded.notes:
        write(f"note: {note}", err=True)
    return loaded


AnyModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Model; then all arguments are texts (default: one of qkv's own)."
    ),
]
_SENTENCE = re.compile(r"[\s?!,;:'\"，。？！；：、「」《》“”…]|\.$")
"""What the name of a run or a model has not, and most texts have."""


def take_model(model: str | None, words: list[str], need: str, files: bool = False) -> tuple[str | None, list[str]]:
    """Tell the model from the texts of a verb that takes both: `qkv generate MODEL TEXT`, and `qkv generate TEXT` with
    the default for the ability `need` (None is returned for it). `files`: a file may stand for texts.

    The first argument is a model if it is the name of one of qkv's own, hf:…, or a folder; if it is like a path
    (a / or a ~ at its beginning) or like a misspelt folder of those here; or if texts follow and it is one word of
    ASCII. A text has a space, punctuation or 汉字. What is taken for a model by its looks alone, and is none, is an
    error that says how to have it taken as a text.
    """
    if model is not None or not words:
        return model, words
    from qkv.models.folders.hub import FOLDER, HUB, MODELS, default_model, locate, nearest_folder

    first, *rest = words
    if first in MODELS or first.startswith(HUB) or not first.strip():
        return first, rest
    path = Path(os.path.expanduser(first))
    try:
        exists, is_file = path.exists(), path.is_file()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        exists = is_file = False
    if exists and not (is_file and files and not rest):
        return first, rest
    if first == "-" or exists or _SENTENCE.search(first):
        return None, words
    default = default_model(need, *(("en", "zh") if need == "translates" else ()))
    like_path = "/" in first or "\\" in first or first.startswith("~")
    if not (like_path or nearest_folder(path) or (first.isascii() and (rest or not (FOLDER / default).is_dir()))):
        if first.isascii():
            write(f"note: there is no folder '{first}' here, so it is taken as a text", err=True)
        return None, words
    try:
        locate(first)
    except InputError as error:
        raise InputError(f"{error} If it is a text, add --model {default}.") from None
    return first, rest


def load_tokenizer_and_limit(name: str) -> "tuple[Tokenizer, int | None]":
    """Load the tokenizer of a model, a run or a tokenizer folder, and the maximum length of the model, if any."""
    from qkv.files import read_object
    from qkv.models.folders.hub import locate
    from qkv.text.tokenizer import Tokenizer

    path = Path(name).expanduser()
    if path.is_file():
        return Tokenizer.load(path), None
    folder = locate(name)
    config = folder / "config.json"
    limit = read_object(config).get("max_position_embeddings") if config.is_file() else None
    return Tokenizer.load(folder), limit if isinstance(limit, int) else None


def text_or_stdin(text: str) -> str:
    """Return the argument, or all of standard input for "-"."""
    if text != "-":
        return text
    from qkv.data.readers import read_stdin

    return read_stdin()


def check_not_read(out: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Raise if `out` is one of the input files; None and - are not files."""
    if out is None:
        return
    target = os.path.realpath(os.path.expanduser(out))
    for one in inputs:  # texts, too, which need not be paths
        if one is not None and str(one) != "-" and os.path.realpath(os.path.expanduser(one)) == target:
            raise InputError(f"--out {out} is also an input file and would be overwritten. Give another name.")


def suffix_of(path: Path, known: dict[str, Any]) -> str:
    """Return the suffix of the file, which selects the output format."""
    suffix = path.suffix.lower()
    if suffix not in known:
        hint = did_you_mean(suffix, known)
        raise InputError(f"The format of '{path.name}' is unknown.{hint} Use a name that ends in {' or '.join(known)}.")
    return suffix


# Labelled files: columns and format.


def _column(name: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(f"--{name}", metavar="COLUMN", help=f"Column of {what}.")


TextColumn = Annotated[str | None, _column("text", "the text")]
PairColumn = Annotated[str | None, _column("pair", "the second text")]
LabelColumn = Annotated[str | None, _column("label", "the label")]
GroupColumn = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="COLUMN",
        help="Column of the group; a group is never split between training and development set.",
    ),
]
QuestionColumn = Annotated[str | None, _column("question", "the question")]
ContextColumn = Annotated[str | None, _column("context", "the passage")]
AnswerColumn = Annotated[str | None, _column("answer", "the answer")]
ChoicesColumn = Annotated[str | None, _column("choices", "the choices")]
WeightColumn = Annotated[
    str | None,
    typer.Option(
        "--weight",
        metavar="COLUMN",
        help="Column of the weight of each training example in the loss (classify, tag); scores count all alike.",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="NAME", help="csv, tsv, xlsx, parquet, jsonl, conll, squad …; detected by default."
    ),
]
SeparatorOption = Annotated[
    str | None, typer.Option("--separator", metavar="TEXT", help="Separator of several labels in one cell.")
]


SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out rows that cannot be used, such as one without a label.")
]


def drop_missing(**options: str | None) -> dict[str, str]:
    """Return the options that were given.

    >>> drop_missing(text="评论", label=None)
    {'text': '评论'}
    """
    return {name: value for name, value in options.items() if value is not None}


# Training: run folder and settings.

RunOption = Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="New folder for the run.")]


def locate_recipe(name: Path | None, command: str = "qkv pretrain") -> Path | None:
    """Return a file as it is, and the path of a recipe of the package for its name, if it is one of this command."""
    own = Path(__file__).parents[1] / "zoo" / "recipes"
    if name is None or name.expanduser().exists():
        return name
    if name.parent == Path("recipes") and (own / name.name).is_file():  # where a clone once had them
        return own / name.name
    if name.suffix or len(name.parts) > 1:
        return name
    verbs = {file.stem: _recipe_verb(file) for file in sorted(own.glob("*.toml"))}
    mine = [recipe for recipe, verb in verbs.items() if f"qkv {verb} ".startswith(f"{command} ")]
    if str(name) in mine:
        return own / f"{name}.toml"
    if str(name) in verbs:
        raise InputError(f"'{name}' is a recipe of qkv {verbs[str(name)]}, not of {command}.")
    if not mine:
        raise InputError(f"The package has no recipe of {command}, and there is no file '{name}'. Give a TOML file.")
    hint = did_you_mean(str(name), mine)
    raise InputError(f"There is no recipe '{name}' of {command}.{hint} Known: {', '.join(mine)}; or give a TOML file.")


def _locate_given(context: typer.Context, name: Path | None) -> Path | None:
    return locate_recipe(name, context.command_path)


def _recipe_verb(recipe: Path) -> str:
    """The words of the command that a recipe of the package is for, such as "pretrain bert"."""
    from qkv.config import read_toml
    from qkv.models.table import PRETRAINED

    model = read_toml(recipe).get("model_type")
    if model is None:
        return "train embed"
    return f"pretrain {model}" if model in PRETRAINED else "train translate"


RecipeOption = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="RECIPE", help="Recipe of the package, or a TOML file.", callback=_locate_given),
]
TrainingDevice = Annotated[str | None, typer.Option("--device", metavar="NAME", help=_DEVICES)]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; repeatable.")
]
ResumeOption = Annotated[Path | None, typer.Option("--resume", metavar="RUN", help="Resume a stopped run.")]

ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--processes", metavar="N", help="Train with N processes on this machine, one for each GPU or some cores."
    ),
]
MinProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--min-processes", metavar="N", help="With --cluster: train with as few as N processes while nodes are missing."
    ),
]


def _check_cluster(address: str | None) -> str | None:
    from qkv.train.cluster import check_address

    return None if address is None else check_address(address)


ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Run on a Ray cluster: auto (the one found here), HOST:PORT, ray://HOST:PORT, or local (a private one).",
        callback=_check_cluster,
    ),
]
_WORDS = "qkv.words"
"""Where a command keeps the words that it was given."""


def join_processes(
    context: typer.Context, processes: int | None, cluster: str | None = None, least: int | None = None
) -> None:
    """Start the command in several processes and end with them (--processes, --cluster); in one that was started so,
    or by torchrun, join the others."""
    if cluster is None and least is not None:
        raise InputError("--min-processes is for --cluster.")
    if cluster is not None:
        raise typer.Exit(_launch_on_cluster(context, cluster, processes, least))
    if processes is not None and processes != 1:
        from qkv.train.launch import launch

        words = [*context.command_path.split()[1:], *_without(context.meta[_WORDS], "--processes")]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        raise typer.Exit(launch(["--lang", language(), *words], processes, cores))
    with quick_start():
        from qkv.train.distributed import join

    context.with_resource(join())


def _launch_on_cluster(context: typer.Context, address: str, processes: int | None, least: int | None) -> int:
    from qkv.train.launch_ray import command_of, launch_on_cluster

    if processes is None:
        raise InputError("--cluster needs the number of processes: --processes N.")
    words = context.meta[_WORDS]
    for option in ("--processes", "--min-processes", "--cluster"):
        words = _without(words, option)
    verb = ["--lang", language(), *context.command_path.split()[1:]]
    return launch_on_cluster(address, command_of(verb, words, context.params), processes, least)


def _without(words: Sequence[str], option: str) -> list[str]:
    """The words without an option and its value.

    >>> _without(["bert", "--processes", "2", "--out", "run", "--processes=3"], "--processes")
    ['bert', '--out', 'run']
    """
    kept: list[str] = []
    queue = iter(words)
    for word in queue:
        if word == option:
            next(queue, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


def end_other_process(finished: "Finished") -> None:
    """End here, unless this is the process that reports the run."""
    from qkv.train.distributed import current_world

    if not current_world().is_main:
        raise typer.Exit(0 if finished.signal is None else 128 + finished.signal)


# Fine-tuning.
TaskArgument = Annotated[str | None, typer.Argument(metavar="[classify|tag|answer|choice]", help="Task.")]
PretrainedOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="QKV_MODEL",
        metavar="FOLDER",
        help="Pretrained model, or scratch:KIND for a new encoder.",
    ),
]
EmbeddingsOption = Annotated[
    str | None,
    typer.Option(
        "--embeddings", metavar="FOLDER|FILE", help="With scratch: pretrained word vectors, ELMo or a language model."
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option("--tokenizer", metavar="FOLDER", help="With scratch: tokenizer (default: that of --embeddings)."),
]
TrainOption = Annotated[str | None, typer.Option("--train", metavar="FILE", help="Training set: a labelled file.")]
DevOption = Annotated[
    str | None,
    typer.Option("--dev", metavar="FILE", help="Development set, for model selection (default: held out of --train)."),
]
TransferOption = Annotated[
    str | None, typer.Option("--transfer", metavar="WAY", help="Layers to train: full, top:K, freeze or features.")
]
EpochsOption = Annotated[float | None, typer.Option("--epochs", metavar="E", help="Number of epochs.")]
MinutesOption = Annotated[
    float | None,
    typer.Option("--minutes", metavar="M", help="Maximum training time; converted to epochs at the start."),
]
RateOption = Annotated[float | None, typer.Option("--lr", metavar="RATE", help="Peak learning rate.")]
KindOption = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Kind of classify: single, multi or regression.")
]


def refuse_with_resume(*given: object) -> None:
    """Raise if anything was given with --resume: a resumed run keeps its settings."""
    if any(value not in (None, False) and value != {} for value in given):
        raise InputError("--resume uses the settings of the run; leave out everything else.")


OF_SOME_TASKS = {
    "classify.kind": ("--kind", ("classify",)),
    "tag.crf": ("--crf", ("tag",)),
    "data.columns.weight": ("--weight", ("classify", "tag")),
}
"""Settings with an option of their own, and their tasks."""


def check_task(
    verb: str, task: str | None, train: str | None, out: Path | None, flags: Mapping[str, Any]
) -> tuple[str, Path]:
    """The task and the run's folder, once all that a new run needs was given, and no setting of another task."""
    from qkv.data.labelled.reader import LABELLINGS

    if task not in LABELLINGS:
        named = f"'{task}' is not a task.{did_you_mean(task, LABELLINGS)} " if task else ""
        raise InputError(f"{named}Name the task: qkv {verb} {'|'.join(LABELLINGS)} --train FILE --out RUN.")
    if train is None or out is None:
        raise InputError("Give the labelled file with --train and a new folder for the run with --out.")
    for key, (option, owners) in OF_SOME_TASKS.items():
        if key in flags and task not in owners:
            raise InputError(f"{option} is for {' and '.join(owners)}, not for {task}.")
    return task, out


def check_spelling(model: str) -> None:
    """Raise on a misspelt scratch:KIND, which would otherwise be searched for as a folder.

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
    """Print the result of a run (`document` as JSON, or `show`), or how to resume it."""
    from qkv.cli.terminal import print_json, say
    from qkv.train.run_folder import JOBS

    run, outcome = finished.run, finished.outcome
    if as_json:
        print_json({"run": str(run), "finished": outcome.finished, **document})
    elif outcome.finished:
        show()
    else:
        at = f" at step {outcome.step:,}" if "step" in document else ""
        say(f"Stopped and saved{at}. Resume with: qkv {JOBS[job].verb} --resume {run}{_processes_of_this_run()}")
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)


def _processes_of_this_run() -> str:
    """The option that resumes it with as many, for the same bytes."""
    from qkv.train.distributed import current_world

    size = current_world().size
    return f" --processes {size}" if size > 1 else ""


def report_result(
    job: str, finished: "Finished", as_json: bool, show: Callable[[dict[str, Any]], None], left: str
) -> None:
    """`report_outcome` for a job with a result.json; `left` describes the files of the run."""
    from qkv.cli.terminal import say

    result = finished.result if finished.finished else None

    def lines() -> None:
        assert result is not None
        if finished.already:
            say(f"{finished.run} is finished.")
        show(result)
        say(left)

    report_outcome(job, finished, as_json, {"result": result}, lines)


# Help in Chinese. English help is that of typer.

_EXTRA = re.compile(r"(?P<help>.*?)(?:\s*\[(?P<extra>(?:env var|default|required).*)\])?", re.DOTALL)


_PIECES = re.compile(r"\[[^\s\]]*\]|[（「“]?[\u2e80-\uffef][，。：；、！？）」”]*|\s+|[^\s\u2e80-\uffef]+")
"""What is kept on one line: a word, or a character with its punctuation."""


class ChineseHelp:
    """Takes the place of typer's formatter: translates what it is given, and wraps by the width of 汉字."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.current_indent = 0
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        self.parts.append(text)

    def getvalue(self) -> str:
        return "".join(self.parts)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self._wrap(f"{translate('Usage:', 'zh')}{prog} {args}")

    def write_paragraph(self) -> None:
        if self.parts:
            self.write("\n")

    def write_heading(self, heading: str) -> None:
        self.write(f"{' ' * self.current_indent}{translate(heading, 'zh')}：\n")

    def write_text(self, text: str) -> None:
        for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
            if number:
                self.write("\n")
            if "\b" in paragraph:  # lines as they are
                for line in paragraph.replace("\b", "").strip("\n").split("\n"):
                    self.write(f"{' ' * self.current_indent}{translate(line, 'zh')}\n")
            else:
                self._wrap(translate(" ".join(paragraph.split()), "zh"))

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        column = min(col_max, max(_width(name) for name, _ in rows)) + col_spacing
        for name, text in rows:
            found = _EXTRA.fullmatch(text)
            assert found is not None
            extra = "；".join(translate(one, "zh") for one in (found["extra"] or "").split("; ") if one)
            said = translate(found["help"].strip(), "zh") + (f"  [{extra}]" if extra else "")
            if _width(name) > column - col_spacing:
                self.write(f"{' ' * self.current_indent}{name}\n")
                name = ""
            self._wrap(said, name + " " * (column - _width(name)), column)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write_paragraph()
        self.write_heading(name)
        with self.indentation():
            yield

    @contextmanager
    def indentation(self) -> Iterator[None]:
        self.current_indent += 2
        try:
            yield
        finally:
            self.current_indent -= 2

    def _wrap(self, text: str, first: str = "", indent: int = 0) -> None:
        """Write a text in lines of the width, broken at spaces and between 汉字."""
        left = " " * self.current_indent
        line, used = left + first, self.current_indent + _width(first)
        for piece in _PIECES.findall(text):
            if used + _width(piece.rstrip()) > self.width and line.strip():
                self.write(line.rstrip() + "\n")
                line, used, piece = left + " " * indent, self.current_indent + indent, piece.lstrip()
            line, used = line + piece, used + _width(piece)
        self.write(line.rstrip() + "\n")


def _width(text: str) -> int:
    """Columns on a terminal.

    >>> _width("BERT 模型")
    9
    """
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)


IN_STORES = {"prepare": ("corpus", "out"), "train": ("files",)}
"""Parameters that may be URLs of object stores, by verb; any other path is of this machine, and a URL would become a
folder named s3: there."""


_ON_CLUSTER = {"predict": ("out",), "embed": ("file", "out"), "translate": ("out",)}
"""Likewise, with --cluster."""


def refuse_urls(context: Any) -> None:
    """Raise if a path is a URL and the verb knows no stores there."""
    known = IN_STORES.get(str(context.info_name), ())
    if context.params.get("cluster") is not None:
        known += _ON_CLUSTER.get(str(context.info_name), ())
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Path) and parameter.name not in known and ":" in str(one):
                from qkv.data.stores import is_url, place_of

                if is_url(one):
                    name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar
                    raise InputError(
                        f"{name} is a path on this machine here, not a URL: {place_of(one)}. Copy the files, or mount "
                        "the store."
                    )


class Verb(TyperCommand):
    """A command with help in the user's language."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        try:
            left = super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # typer does not say of which command an option lacks its value
                vars(error)["ctx"] = ctx
            raise
        refuse_urls(ctx)
        return left

    def format_help(self, ctx: Any, formatter: Any) -> None:
        help_in_language(super().format_help, ctx, formatter)


_SEVERAL = ("--pairs", "--dev", "--test", "--more", "--data", "--parallel", "--columns")
"""Options that take all values up to the next option: --pairs de.txt en.txt"""


class WithFiles(Verb):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_options(args))


def repeat_options(words: list[str]) -> list[str]:
    """Repeat an option that takes several values before each value, as the parser expects.

    >>> repeat_options(["--pairs", "de", "en", "--out", "run"])
    ['--pairs', 'de', '--pairs', 'en', '--out', 'run']
    """
    found: list[str] = []
    option, taken = "", 0
    for word in words:
        if word.startswith("-") and word != "-":
            option, taken = word if word in _SEVERAL else "", 0
            found.append(word)
        else:
            found += [option, word] if option and taken else [word]
            taken += 1
    return found


class Noun(TyperGroup):
    """A group of commands, likewise."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        help_in_language(super().format_help, ctx, formatter)


def help_in_language(format_help: Callable[[Any, Any], None], ctx: Any, formatter: Any) -> None:
    if language() == "en":
        format_help(ctx, formatter)
        return
    chinese: Any = ChineseHelp(formatter.width)
    format_help(ctx, chinese)
    formatter.write(chinese.getvalue())
