"""Verbs that look inside a model: `qkv look`, its page in the browser, and `qkv attention`, one map of weights."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import (
    JsonOption,
    LanguageOption,
    ModelOption,
    ThreadsOption,
    load_model,
    suffix_of,
    text_or_stdin,
)
from qkv.errors import InputError, did_you_mean
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import LANGUAGES, write

if TYPE_CHECKING:
    from qkv.look.api import Api
    from qkv.report.attention import AttentionMap

_SAVED = {".html": "the page with its data"}
_DRAWN = {".svg": "a picture of one head", ".html": "a page with every head", ".json": "the weights for a program"}
LOOPBACK = "127.0.0.1"


def port_of(value: str) -> int:
    """
    >>> port_of("8765")
    8765
    """
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"'{value}' is not an integer from 0 to 65535.") from None


def look(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            envvar="QKV_MODEL",
            help="Model folder, run, file of word vectors, or hf:owner/name (default: all models of the package).",
            show_default=False,
            show_envvar=False,
        ),
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option("--compare", metavar="MODEL", help="Second model to compare with; repeatable.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="Initial text; - reads standard input.")
    ] = None,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT", help="Second text of the pair.")] = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            metavar="NAME",
            help="Initial view: attention, fill, next, meanings, positions, translation, vectors, tasks or recurrence.",
        ),
    ] = None,
    lang: Annotated[
        str | None, typer.Option("--lang", metavar="en|zh", help="Language of the page (default: that of the browser).")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.html", help="Write the page to one file instead of serving it."),
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="With --save: include all examples, not only the first of each view.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="ADDRESS", help="Address to listen on (default: local only); others need a token."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", parser=port_of, help="Port; 0 for any free one (default 8765 or the next free one)."
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="WORD", help="Access token; generated when --host is not local.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Explore models on a page in your browser, offline.

    Views: attention of every head and its computation, masked words, next words, one word in many sentences, positions,
    translation step by step, word vectors, predictions of fine-tuned models, recurrent states and gates; as the model
    supports.

    Without MODEL the page has all models that came with qkv, and that of `qkv demo` if it ran here.

    \b
    qkv look
    qkv look qkv-mini
    qkv look --text "The animal didn't cross the street because it was too tired." --view attention
    qkv look RUN --compare qkv-mini --lang zh

    The page is served locally until Ctrl-C. --save writes one file instead, which opens without a server and contains
    the answers for --text, or for the first example of each view (--examples: all).

    \b
    qkv look --text "他欠我100万" --save page.html

    HTTP API: GET /api/room lists models and views, POST /api/NAME answers a request.
    """
    from qkv.look.subject import VIEWS, open_shipped, open_subject

    if view is not None and view not in VIEWS:
        raise InputError(f"There is no view '{view}'.{did_you_mean(view, VIEWS)} Views: {', '.join(VIEWS)}.")
    if lang is not None and lang not in LANGUAGES:
        raise InputError(f"--lang is '{lang}'; known: {', '.join(LANGUAGES)}.")
    if save is not None:
        suffix_of(save, _SAVED)
        check_parent_folder(save)
    serving = {"--host": host, "--port": port, "--token": token, "--no-browser": no_browser or None}
    for option, value in (serving if save is not None else {"--examples": examples or None}).items():
        if value is not None:
            other = "serving the page, not for --save" if save is not None else "--save: a served page has all examples"
            raise InputError(f"{option} is for {other}. Leave it out.")
    text = text_or_stdin(text) if text is not None else None
    if pair is not None and text is None:
        raise InputError("--pair is a second text: give the first with --text.")
    for option, given in (("--text", text), ("--pair", pair)):
        if given is not None:
            check_text(option, given)

    from qkv.look.api import Api
    from qkv.look.page import describe_too_long

    if threads is not None and threads < 1:
        raise InputError(f"--threads must be 1 or more, not {threads}.")
    if threads is not None or save is not None:
        import torch

        # --save runs many small requests, for which several threads are slower
        torch.set_num_threads(threads or 1)
    is_whole_zoo = model is None and not compare
    names = (model or DEFAULT_MODEL, *(compare or ()))
    api = Api(open_shipped(threads) if is_whole_zoo else [open_subject(name, threads) for name in names])
    begins_with = choose_subject(api, view) if view is not None else 0
    # report bad weights now, and make the first view fast; of the zoo the other models load when they are looked at
    api.load([begins_with] if is_whole_zoo else None)
    shown = [api.subjects[begins_with]] if is_whole_zoo else api.subjects
    for message in [] if text is None else describe_too_long(shown, text, pair):
        write(f"note: {message}", err=True)
    begin: dict[str, str | int | None] = {"view": view, "text": text, "pair": pair, "lang": lang}
    begin["model"] = begins_with or None
    begin["compare"] = (0 if begins_with else 1) if compare else None
    state = {name: value for name, value in begin.items() if value is not None}
    if save is not None:
        write_page(api, save, state, examples)
    else:
        serve(api, host or LOOPBACK, port, token, state, browser=not no_browser)


def check_parent_folder(save: Path) -> None:
    """Raise if the parent folder does not exist: most often it is misspelt."""
    folder = Path(os.path.expanduser(save)).parent
    if not folder.exists():
        raise InputError(f"{save} cannot be written: there is no folder {folder}. Make it first: mkdir -p {folder}")


def choose_subject(api: "Api", view: str) -> int:
    """Return the index of the first model that has this view."""
    subjects = api.room()["subjects"]
    found = next((one["index"] for one in subjects if view in one["views"]), None)
    if found is None:
        have = "; ".join(f"{one['title']} has {', '.join(one['views'])}" for one in subjects)
        raise InputError(f"--view {view} cannot be shown: {have}.")
    return int(found)


def check_text(option: str, text: str) -> None:
    from qkv.look.wire import TEXT_LIMIT

    if not text.strip():
        raise InputError(f"{option} is empty. Write something, or leave it out.")
    if len(text) > TEXT_LIMIT:
        raise InputError(f"{option} has {len(text):,} characters; the maximum is {TEXT_LIMIT:,}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # undecodable bytes of the command line become surrogates
        raise InputError(f"{option} is not UTF-8: character {error.start + 1} cannot be read.") from None


def write_page(api: "Api", out: Path, state: dict[str, str | int], every: bool = False) -> None:
    """Write the page and the recorded answers to one file."""
    from qkv.cli.terminal import fraction, say
    from qkv.files import replaced_file
    from qkv.look.page import build_page
    from qkv.look.recording import MOST_RECORDED_BYTES

    with replaced_file(out) as part:
        part.touch()  # fail early if the file cannot be written
        with fraction("asking") as moved:
            page, made = build_page(
                api, dict(state), every, lambda done, total: moved(done / total, f"{done} of {total}")
            )
        part.write_text(page, encoding="utf-8", newline="\n")
        size = part.stat().st_size
    say(f"{out}: {_SAVED['.html']}, {len(made.replies)} answers, {size / 2**20:.1f} MB")
    if made.left_out:
        more = f"{len(made.left_out)} more answers did not fit into {MOST_RECORDED_BYTES >> 20} MB"
        say(f"{more}; the page says so where they belong.")


def serve(
    api: "Api", host: str, port: int | None, token: str | None, state: dict[str, str | int], browser: bool = True
) -> None:
    """Serve the page until Ctrl-C."""
    from qkv.look.page import address_of, serve_page

    with serve_page(api, host, port, token) as server:
        link = server.link(address_of(state))
        typer.echo(link)
        sys.stdout.flush()  # a pipe needs the address at once
        shared = " Anyone with this link has access." if server.token else ""
        write(f"{', '.join(one.title for one in api.subjects)}: Ctrl-C ends it.{shared}", err=True)
        # other users see the arguments of processes, so a link with a token is not passed to a browser
        if browser and has_screen() and server.token is None:
            import threading
            import webbrowser

            # some browsers block until they are closed
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # at once, whatever is being computed
        try:
            server.run()
        except KeyboardInterrupt:
            typer.echo("", err=True)
        is_working = server.worker is not None and server.worker.is_working()
    if is_working:
        # a thread that still computes in torch would crash at interpreter shutdown
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def has_screen() -> bool:
    """Whether a graphical browser can open; over ssh a text browser would take over the terminal."""
    if os.name == "nt" or sys.platform == "darwin" or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


# `qkv attention`


def draw_attention(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.")],
    model: ModelOption = DEFAULT_MODEL,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT", help="Second text.")] = None,
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="N", help="Layer, counted from 0 (default: last).")
    ] = None,
    head: Annotated[int | None, typer.Option("--head", metavar="N", help="Head, counted from 0 (default 0).")] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="WORD", help="Word whose attention is highlighted.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .svg, .html or .json.")] = None,
    lang: LanguageOption = "en",
    as_json: JsonOption = False,
) -> None:
    """Draw the attention of one head, or of all heads on a page that opens offline.

    Layers and heads are counted from 0, as in the names of the weights.

    \b
    qkv attention "The children went home because they were hungry." --token they --layer 6 --head 2
    qkv attention "The river is long, and it flows into the sea." --token it --layer 6 --head 2 --out it.svg
    qkv attention "他欠我100万" --pair "我欠他100万" --out pair.html --lang zh --model FOLDER

    .svg is a picture of one head, .html a page with every head, .json (also --json) the selected weights,
    one byte each: {name, attn, shape, layers, heads, left, right, texts}. With --out, --json prints one document
    about the file: out, layers, heads, n_tokens.
    """
    from qkv.models.family import ATTENDS
    from qkv.report.attention import caption_texts, choose

    suffix = suffix_of(out, _DRAWN) if out is not None else None
    caption_texts(lang)
    text = text_or_stdin(text)
    loaded = load_model(model, ATTENDS)
    one = suffix == ".svg" or (suffix is None and not as_json)
    wanted_layer = loaded.config.layers - 1 if layer is None and one else layer
    wanted_head = 0 if head is None and one else head
    # the page has all heads and opens with the selected one; other formats have only the selected ones
    page = suffix == ".html"
    found = loaded.attention(text, pair, None if page else wanted_layer, None if page else wanted_head)
    choose(found, found.weights(found.layers[0], found.heads[0]), token)  # report an unknown word in any case
    if out is not None:
        write_attention(found, out, wanted_layer, wanted_head, token, lang)
    if as_json:
        from qkv.cli.terminal import print_json

        facts = {"out": str(out), "layers": found.layers, "heads": found.heads, "n_tokens": found.n_tokens}
        print_json(found.to_dict() if out is None else facts)
    elif out is not None:
        from qkv.cli.terminal import say

        say(f"{out}: {_DRAWN[out.suffix.lower()]}, {found.n_tokens} tokens")
    else:
        assert wanted_layer is not None and wanted_head is not None
        print_attention(found, wanted_layer, wanted_head, token)


def write_attention(
    found: "AttentionMap", out: Path, layer: int | None, head: int | None, token: str | None, lang: str
) -> None:
    """Write one file, in the format of its suffix."""
    from qkv.files import write_text

    suffix = suffix_of(out, _DRAWN)
    if suffix == ".json":
        found.save(out)
    elif suffix == ".html":
        from qkv.report.attention import attention_page

        write_text(out, attention_page(found, layer, head, token, lang))
    else:
        from qkv.report.attention import draw_attention

        if layer is None or head is None:
            raise InputError("A picture shows one head: give --layer and --head.")
        write_text(out, draw_attention(found, layer, head, token, lang))


def print_attention(found: "AttentionMap", layer: int, head: int, token: str | None, most: int | None = None) -> None:
    """Print the attention of one word as bars; with `most`, only the largest, in the order of the text."""
    from qkv.cli.terminal import bar, print_table
    from qkv.report.attention import choose

    weights = found.weights(layer, head)
    chosen = choose(found, weights, token)
    looks = weights[list(chosen)].mean(axis=0)
    name = "".join(found.left[place].label.removeprefix("##") for place in chosen)
    kept = sorted(looks.argsort()[::-1][:most])
    rows = [[found.right[place].label, f"{looks[place]:.0%}", bar(float(looks[place]))] for place in kept]
    print_table([f"layer {layer}, head {head}: {name} looks at", "", ""], rows, right=(1,))
