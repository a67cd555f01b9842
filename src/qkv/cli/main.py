"""The `qkv` command: the table of verbs, the language of its messages, and errors as one line.

Help is plain text and imports neither rich nor torch, so that it is fast.
"""

import errno
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TextIO

import typer

from qkv.cli.check import check
from qkv.cli.demo import demo
from qkv.cli.embed import embed_texts
from qkv.cli.evaluate import evaluate
from qkv.cli.export import export_graph
from qkv.cli.finetune import curve, finetune
from qkv.cli.generate import generate_texts
from qkv.cli.info import convert, info
from qkv.cli.look import draw_attention, look
from qkv.cli.options import Noun, Verb, WithFiles
from qkv.cli.predict import fill_blanks, predict, score_next_sentence
from qkv.cli.pretrain import prepare_corpus, pretrain, show
from qkv.cli.search import SearchVerb, search_texts
from qkv.cli.serve import serve_models
from qkv.cli.tokenize import tokenize, tokenizer
from qkv.cli.translate import train, translate_texts
from qkv.cli.word_vectors import evaluate_vectors, similar, solve_analogy
from qkv.errors import PEER_LOST, InputError, did_you_mean
from qkv.text.messages import LANGUAGES, check_language, language, speaking, translate, write
from qkv.train.launch import LAUNCHED

VERBS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (demo, "Show what each system does, from word2vec to BERT, offline, in about two minutes."),
    "fill": (fill_blanks, "Predict the token of every [MASK] in a text."),
    "next": (score_next_sentence, "Say how probable it is that one sentence follows another."),
    "embed": (embed_texts, "Compute vectors of texts, a few or millions."),
    "search": (search_texts, "Find texts by meaning: index files, then ask questions."),
    "attention": (draw_attention, "Draw the attention of a model, as a picture or a page."),
    "look": (look, "Explore a model in the browser: attention, blanks, meanings, translations."),
    "serve": (serve_models, "Serve models over HTTP: predictions, vectors, blanks, translations, texts."),
    "tokenize": (tokenize, "Split a text into tokens."),
    "check": (check, "Check a corpus, a labelled file or sentence pairs for errors."),
    "prepare": (prepare_corpus, "Tokenize a corpus into shards for pretraining."),
    "show": (show, "Show BERT training instances: segments, masked tokens, targets."),
    "pretrain": (pretrain, "Pretrain BERT, GPT, word2vec, ELMo or a language model on shards; resume a run."),
    "finetune": (finetune, "Fine-tune on a labelled file: classify, tag, answer, choice."),
    "evaluate": (evaluate, "Evaluate a fine-tuned model on a labelled file, or a translation model on sentence pairs."),
    "predict": (predict, "Predict with a fine-tuned model."),
    "curve": (curve, "Learning curve: estimate how much more labels would help."),
    "generate": (generate_texts, "Generate text with a GPT or a recurrent language model."),
    "translate": (translate_texts, "Translate texts or a file, with word alignments."),
    "similar": (similar, "Find the nearest neighbours of a word, by word vectors."),
    "analogy": (solve_analogy, "Solve an analogy with word vectors: A is to B as C is to what."),
    "evaluate-vectors": (evaluate_vectors, "Evaluate word vectors on analogies and word similarity."),
    "info": (info, "Describe a folder: model, tokenizer or shards."),
    "export": (export_graph, "Export an encoder as an ONNX graph, to run without qkv; also packed, and in int8."),
    "convert": (convert, "Convert a BERT folder to the current transformers format, or word vectors to other formats."),
}
CLASSES: dict[str, type[Verb]] = {"check": WithFiles, "evaluate": WithFiles, "search": SearchVerb}
"""Verbs that read their words in another way: options with several values (--pairs test.de test.en), `search index`."""
CAPTIONED = ("attention", "look", "show", "translate")
"""Verbs with a --lang of their own: the language of their picture or page, and of messages."""
NOUNS: dict[str, typer.Typer] = {"tokenizer": tokenizer, "train": train}

HELP = """BERT and what led to it: load any BERT folder, fill blanks, embed texts, draw attention, fine-tune.

Start here (no network, no model needed):

\b
    qkv demo

Choose a model for all commands, or for one with --model:

\b
    export QKV_MODEL=FOLDER
    qkv fill "The capital of France is [MASK]."
    qkv fill "巴黎是[MASK]国的首都。"
    qkv attention "It was too tired" --token it --out it.svg
    qkv embed "A cat sleeps." "A kitten naps." "Rates rose."
    qkv fill "Paris is the [MASK] of France." --model hf:google-bert/bert-base-uncased

Explore it in your browser:

\b
    qkv look --text "The animal didn't cross the street because it was too tired."

Fine-tune on a labelled file (csv, jsonl, CoNLL, SQuAD …) and predict:

\b
    qkv check messages.csv
    qkv finetune classify --train messages.csv --out run
    qkv predict run "Where is my parcel?"

Train a translation model on sentence pairs (here an example with digits, in a minute):

\b
    qkv train translate --example reverse --out run
    qkv translate run "1 2 3 4"

Pretrain a model on your own text, Chinese or English:

\b
    qkv tokenizer train 语料.txt corpus.txt --vocab-size 8000 --out tokenizer
    qkv prepare 语料.txt corpus.txt --tokenizer tokenizer --out shards
    qkv pretrain bert --size mini --data shards --out run --minutes 20

A model is a Hugging Face folder; small ones of each kind are included. Only hf:owner/name uses the network.
`qkv VERB --help` has examples.
"""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"qkv {version('qkv')}")
        except PackageNotFoundError:
            write("qkv, from a source tree that is not installed")
        raise typer.Exit


def build_command(only: str | None = None) -> typer.Typer:
    """The command line; with `only` that of one verb or noun, which takes a tenth of the time."""
    app = typer.Typer(
        name="qkv",
        cls=Noun,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"max_content_width": 100},
    )

    @app.callback(help=HELP)
    def start(
        version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
        ] = False,
        lang: Annotated[
            str | None,
            typer.Option("--lang", metavar="zh|en", help="Language of messages (default: QKV_LANG, then LANG)."),
        ] = None,
    ) -> None: ...

    for name, (verb, summary) in VERBS.items():
        if only in (None, name):
            app.command(name, short_help=summary, cls=CLASSES.get(name, Verb))(verb)
    for name, noun in NOUNS.items():
        if only in (None, name):
            app.add_typer(noun, name=name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0 done, 1 findings of `qkv check`, 2 bad input, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:
        return _fail("Standard output is closed, so results cannot be printed. Send it to a file, or to /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        _settle_encoding(stream)
    try:
        words, lang = take_language(words)
        with speaking(lang):
            return _run(words)
    except InputError as error:  # of --lang or QKV_LANG
        return _fail(str(error), "en")


def take_language(words: list[str]) -> tuple[list[str], str | None]:
    """Take --lang out of the words, wherever it is; a verb with a --lang of its own is given it too.

    >>> take_language(["--lang", "zh", "check", "corpus.txt"])
    (['check', 'corpus.txt'], 'zh')
    """
    left: list[str] = []
    lang = None
    queue = iter(words)
    for word in queue:
        name, equals, value = word.partition("=")
        if word == "--":
            return [*left, word, *queue], lang
        if name != "--lang" or (not equals and (value := next(queue, "")) == ""):
            left.append(word)
            continue
        own = next((one for one in left if not one.startswith("-")), None)
        if own in CAPTIONED:
            left += [name, value]
        if own not in CAPTIONED or value in LANGUAGES:
            lang = check_language(value, "--lang")
    return left, lang


def _run(words: list[str]) -> int:
    language()  # a wrong QKV_LANG is an error before anything else
    shown, warnings.showwarning = warnings.showwarning, _show_warning
    try:
        with _exit_on_sigterm():
            words = words or ["--help"]
            command = build_command(words[0] if words[0] in VERBS or words[0] in NOUNS else None)
            answer = command(words, prog_name="qkv", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except InputError as error:
        code = getattr(error, "exit_code", 2)
        if code == PEER_LOST and LAUNCHED in os.environ:
            return code  # the one that started the processes says which has ended
        return _fail(str(error), code=code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        _discard_output()  # the reader of the pipe has closed it
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _discard_output()
        return _fail(f"Standard output cannot be written: {error.strerror}. Nothing more was printed.")
    except Exception as error:
        message = _usage(error)
        if message is None:
            raise
        return _fail(message)
    finally:
        warnings.showwarning = shown


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that partial files are removed. Training, which saves first, and the servers
    of `qkv look` and `qkv serve` have their own ways."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning for users as a note, and another one with its place."""
    if category is UserWarning:
        write(f"note: {message}", err=True)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG)
"""Errors of a standard output that takes no more; errors of files are reported where they are written."""


def _discard_output() -> None:
    """Send what is left in the buffer nowhere, so that flushing it at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _settle_encoding(stream: Any) -> None:
    """Use UTF-8 for files and pipes; a terminal keeps its encoding."""
    if not hasattr(stream, "reconfigure"):
        return
    if stream.isatty():
        stream.reconfigure(errors="replace")  # a terminal may be unable to show 汉字
    else:
        # escape undecodable file names, so that the output stays valid UTF-8 and JSON
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _fail(message: str, lang: str | None = None, code: int = 2) -> int:
    print(translate(f"error: {message}", lang), file=sys.stderr)
    return code


_NO_COMMAND = re.compile(r"No such command '(.*?)'\.")
_NUMBER = re.compile(r"a valid (integer|float|number)")
_QUOTED = re.compile(r"'([^'\n]*)'")
"""In messages of typer about a value: the value."""


def _usage(error: Any) -> str | None:
    """Return the message of a usage error; None for any other error."""
    if not hasattr(error, "format_message"):
        return None
    possibilities = getattr(error, "possibilities", None)
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        message = f"There is no option {error.option_name}.{did_you_mean(error.option_name, possibilities or ())}"
    elif name := _NO_COMMAND.match(error.message):  # the library guesses from far
        known = error.ctx.command.list_commands(error.ctx)
        message = f"No such command '{name[1]}'.{did_you_mean(name[1], known)}"
    elif (kind := _NUMBER.search(error.message)) and (said := _QUOTED.search(f"{error.message} {error.__cause__}")):
        option = error.param.opts[0]
        message = f"{option} is a number, not '{said[1]}'."
        if kind[1] == "integer":
            message = f"{option} is a whole number, not '{said[1]}'."
    else:
        message = str(error.format_message()).rstrip(".")
        message += "" if message.endswith("?") else "."
    context = getattr(error, "ctx", None)
    if message.endswith("requires an argument.") and context is not None:
        options = (one for one in context.command.params if error.option_name in one.opts)
        message = f"{error.option_name} needs a value. {next((one.help for one in options if one.help), '')}".rstrip()
    path = context.command_path if context is not None else "qkv"
    return f"{message} See: {path} --help"
