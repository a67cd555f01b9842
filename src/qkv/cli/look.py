"""qkv look: the page that looks inside a model."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import ThreadsOption, suffix_of, text_or_stdin
from qkv.errors import InputError, did_you_mean
from qkv.models.folders.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from qkv.look.api import Api

_ENDINGS = {".html": "the page with its data"}
_LANGUAGES = ("zh", "en")
LOOPBACK = "127.0.0.1"


def port_of(value: str) -> int:
    """
    >>> port_of("8765")
    8765
    """
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"'{value}' is no whole number from 0 to 65535.") from None


def look(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            envvar="QKV_MODEL",
            help="A model folder, a run, a file of word vectors, or hf:owner/name; else qkv-mini.",
            show_default=False,
            show_envvar=False,
        ),
    ] = DEFAULT_MODEL,
    compare: Annotated[
        list[str] | None, typer.Option("--compare", metavar="MODEL", help="Another one beside it; may be repeated.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="The text to begin with; - reads standard input.")
    ] = None,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT", help="A second text.")] = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            metavar="NAME",
            help="Where to begin: attention, fill, meanings, positions, translation, vectors, tasks or recurrence.",
        ),
    ] = None,
    lang: Annotated[
        str | None, typer.Option("--lang", metavar="en|zh", help="Language of the page; else the browser's.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE.html", help="Write the page as one file, and stop.")
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="Save all examples of the page, and not only the first of each view.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Where to listen, if not to this machine alone; needs a token."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", parser=port_of, help="Port; 0 is any free one, else 8765 or the next free one."
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="WORD", help="What a visitor must show; else one is drawn if due.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open nothing.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """See a model at work, on a page in your browser that needs no network.

    Attention of every head and how it is computed, blanks, one word in many sentences, positions, translations step by
    step, word vectors, what a fine-tuned model answers, states and gates: each model shows what it has.

    \b
    qkv look
    qkv look --text "The animal didn't cross the street because it was too tired." --view attention
    qkv look RUN --compare qkv-mini --lang zh

    The page is served to this machine alone until Ctrl-C. --save writes one file instead, which opens from disk
    without a server and holds what the page asks about --text, or else about its first examples (--examples: all).

    \b
    qkv look --text "他欠我100万" --save page.html

    A program may ask too: GET /api/room lists what there is, POST /api/NAME answers.
    """
    from qkv.look.subject import VIEWS, open_subject

    if view is not None and view not in VIEWS:
        raise InputError(f"There is no view '{view}'.{did_you_mean(view, VIEWS)} Views: {', '.join(VIEWS)}.")
    if lang is not None and lang not in _LANGUAGES:
        raise InputError(f"--lang is '{lang}', and the page speaks {' and '.join(_LANGUAGES)}.")
    if save is not None:
        suffix_of(save, _ENDINGS)
        check_parent_folder(save)
    serving = {"--host": host, "--port": port, "--token": token, "--no-browser": no_browser or None}
    for option, value in (serving if save is not None else {"--examples": examples or None}).items():
        if value is not None:
            other = (
                "a page that is served, not for --save" if save is not None else "--save: a served page has them all"
            )
            raise InputError(f"{option} is for {other}. Leave it out.")
    text = text_or_stdin(text) if text is not None else None
    if pair is not None and text is None:
        raise InputError("--pair is a second text: give the first with --text.")
    for option, given in (("--text", text), ("--pair", pair)):
        if given is not None:
            check_text(option, given)

    from qkv.look.api import Api

    if threads is not None and threads < 1:
        raise InputError(f"--threads must be 1 or more, not {threads}.")
    if threads is not None or save is not None:
        import torch

        # --save has many small questions, in which threads would wait for each other most of the time
        torch.set_num_threads(threads or 1)
    api = Api([open_subject(name, threads) for name in (model, *(compare or ()))])
    begins_with = choose_subject(api, view) if view is not None else 0
    api.load()  # what is wrong with the weights is said here, and the first picture does not wait for them
    begin: dict[str, str | int | None] = {"view": view, "text": text, "pair": pair, "lang": lang}
    begin["model"] = begins_with or None
    begin["compare"] = (0 if begins_with else 1) if len(api.subjects) > 1 else None
    state = {name: value for name, value in begin.items() if value is not None}
    if save is not None:
        write_page(api, save, state, examples)
    else:
        serve(api, host or LOOPBACK, port, token, state, browser=not no_browser)


def check_parent_folder(save: Path) -> None:
    """A folder that is not there is a slip of the pen more often than a wish."""
    folder = Path(os.path.expanduser(save)).parent
    if not folder.exists():
        raise InputError(f"{save} cannot be written: there is no folder {folder}. Make it first: mkdir -p {folder}")


def choose_subject(api: "Api", view: str) -> int:
    """Which of the models the page begins with: the first, or else the first that has this view."""
    subjects = api.room()["subjects"]
    found = next((one["index"] for one in subjects if view in one["views"]), None)
    if found is None:
        have = "; ".join(f"{one['title']} has {', '.join(one['views'])}" for one in subjects)
        raise InputError(f"--view {view} cannot be shown: {have}.")
    return int(found)


def check_text(option: str, text: str) -> None:
    from qkv.look.wire import LONGEST

    if not text.strip():
        raise InputError(f"{option} is empty. Write something, or leave it out.")
    if len(text) > LONGEST:
        raise InputError(f"{option} has {len(text):,} characters; {LONGEST:,} are taken at most.")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of the command line that are no text come as halves of a pair
        raise InputError(f"{option} is not UTF-8: character {error.start + 1} cannot be read.") from None


def write_page(api: "Api", out: Path, state: dict[str, str | int], every: bool = False) -> None:
    """One file with the page, and in it the answers to what it will ask."""
    from qkv.cli.terminal import fraction, say
    from qkv.files import replaced_file
    from qkv.look.page import address_of, saved
    from qkv.look.recording import MOST_BYTES, Text, record

    room = api.room()
    given = Text(str(state["text"]), str(state["pair"]) if "pair" in state else None) if "text" in state else None

    def nameless(message: str) -> str:
        """Where a model lies on this machine is nobody's business."""
        for subject in api.subjects:
            for place in (str(subject.path.resolve()), str(subject.path), subject.name):
                message = message.replace(place, subject.title)
        return message

    with exit_on_sigterm(), replaced_file(out) as part:
        part.touch()  # a place where one may not write is told before the work
        with fraction("asking") as moved:
            made = record(
                api.ask,
                room,
                given,
                every=every,
                progress=lambda done, total: moved(done / total, f"{done} of {total}"),
                told=nameless,
            )
        subjects = [subject | {"name": subject["title"]} for subject in room["subjects"]]
        recorded = {
            "room": room | {"subjects": subjects, "saved": True},
            "replies": made.replies,
            "hash": f"#{address_of(state)}" if state else "",
        }
        part.write_text(saved(recorded), encoding="utf-8", newline="\n")
        size = part.stat().st_size
    say(f"{out}: {_ENDINGS['.html']}, {len(made.replies)} answers, {size / 2**20:.1f} MB")
    if made.left_out:
        more = f"{len(made.left_out)} more answers did not fit into {MOST_BYTES >> 20} MB"
        say(f"{more}; the page says so where they belong.")


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the process as an exception does, so that nothing half written is left behind."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # a thread that hears no signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def serve(
    api: "Api", host: str, port: int | None, token: str | None, state: dict[str, str | int], browser: bool = True
) -> None:
    """Until Ctrl-C."""
    from qkv.look.page import address_of
    from qkv.look.server import serve_page

    with serve_page(api, host, port, token) as server:
        link = server.link(address_of(state))
        typer.echo(link)
        sys.stdout.flush()  # for whoever waits for the address at the end of a pipe
        shared = " Whoever has this link can ask." if server.token else ""
        typer.echo(f"{', '.join(one.title for one in api.subjects)}: Ctrl-C ends it.{shared}", err=True)
        # a link with a token is for those who may ask, and all users of a machine see how its programs were started
        if browser and has_screen() and server.token is None:
            import threading
            import webbrowser

            # some browsers come back only when they are closed
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
        try:
            server.run()
        except KeyboardInterrupt:
            typer.echo("", err=True)
        is_working = server.worker.is_working()
    if is_working:
        # nobody waits for what is still computed, and a thread inside torch must not meet the end of the interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def has_screen() -> bool:
    """Whether a browser has somewhere to open; on a machine that is reached by ssh a text browser would take over."""
    if os.name == "nt" or sys.platform == "darwin" or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
