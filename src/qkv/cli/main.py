"""The `qkv` command: a literal table of verbs, and errors as one line.

Help is plain text and imports neither rich nor torch, so it answers at once.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from qkv.cli.attention import draw_attention
from qkv.cli.check import check
from qkv.cli.convert import convert
from qkv.cli.demo import demo
from qkv.cli.embed import embed_texts
from qkv.cli.evaluate import evaluate
from qkv.cli.fill import fill_blanks
from qkv.cli.finetune import curve, finetune
from qkv.cli.generate import generate_texts
from qkv.cli.info import info
from qkv.cli.look import look
from qkv.cli.predict import predict
from qkv.cli.prepare import prepare_corpus, show
from qkv.cli.pretrain import pretrain
from qkv.cli.tokenize import tokenize, tokenizer
from qkv.cli.translate import WithFiles, train, translate_texts
from qkv.cli.word_vectors import evaluate_vectors, similar, solve_analogy
from qkv.errors import InputError, did_you_mean

VERBS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (demo, "Blanks, attention, a fine-tuned model and its report, offline."),
    "fill": (fill_blanks, "Fill every [MASK] of a text."),
    "embed": (embed_texts, "Turn texts into vectors, a few or millions."),
    "attention": (draw_attention, "Draw who looks at whom, as a picture or a page."),
    "look": (look, "A page where a model is seen at work: attention, blanks, meanings, translations."),
    "tokenize": (tokenize, "Cut a text into tokens."),
    "check": (check, "Say what is in a corpus, a labelled file or pairs, and what is wrong with it."),
    "prepare": (prepare_corpus, "Turn a corpus into shards to train on."),
    "show": (show, "Draw training instances: pairs, hidden tokens, targets."),
    "pretrain": (pretrain, "Pretrain BERT, GPT, word2vec, ELMo or a language model on shards; resume a run."),
    "finetune": (finetune, "Fine-tune on a labelled file: classes, entities, answers, choices."),
    "evaluate": (evaluate, "Score a fine-tuned model on a labelled file, or one that translates on pairs."),
    "predict": (predict, "Say what a fine-tuned model says about texts."),
    "curve": (curve, "How many more labels would help."),
    "generate": (generate_texts, "Write on from a prompt, with a GPT or a recurrent language model."),
    "translate": (translate_texts, "Translate texts or a file, with the words they came from."),
    "similar": (similar, "The nearest words of a word, by its vector."),
    "analogy": (solve_analogy, "A is to B as C is to what, by vectors of words."),
    "evaluate-vectors": (evaluate_vectors, "Score word vectors: analogies, and likeness as people rate it."),
    "info": (info, "Say what a folder holds: a model, a tokenizer, shards."),
    "convert": (convert, "Rewrite a BERT folder as transformers does today; word vectors to other forms."),
}
PAIRED = ("check", "evaluate")
"""Verbs with options that take several names: --pairs test.de test.en"""
NOUNS: dict[str, typer.Typer] = {"tokenizer": tokenizer, "train": train}

HELP = """BERT and what led to it: load any BERT folder, fill blanks, embed texts, see attention, fine-tune.

Start here (no network, no model needed):

\b
    qkv demo

Name a model for all commands, or for one with --model, and ask it:

\b
    export QKV_MODEL=FOLDER
    qkv fill "The capital of France is [MASK]."
    qkv fill "巴黎是[MASK]国的首都。"
    qkv attention "It was too tired" --token it --out it.svg
    qkv embed "A cat sleeps." "A kitten naps." "Rates rose."
    qkv fill "Paris is the [MASK] of France." --model hf:google-bert/bert-base-uncased

Look inside it, on a page in your browser:

\b
    qkv look --text "The animal didn't cross the street because it was too tired."

Fine-tune on a labelled file (csv, jsonl, CoNLL, SQuAD …), and ask the result:

\b
    qkv check messages.csv
    qkv finetune classify --train messages.csv --out run
    qkv predict run "Where is my parcel?"

Train a model that translates on pairs of texts (a first one on digits, in a minute), and ask it:

\b
    qkv train translate --example reverse --out run
    qkv translate run "1 2 3 4"

Or train one on text of your own, Chinese or English:

\b
    qkv tokenizer train 语料.txt corpus.txt --vocab-size 8000 --out tokenizer
    qkv prepare 语料.txt corpus.txt --tokenizer tokenizer --out shards
    qkv pretrain bert --size mini --data shards --out run --minutes 20

A model is a Hugging Face folder; qkv-mini is the one in the package. Only hf:owner/name reaches for the network.
`qkv VERB --help` has examples.
"""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"qkv {version('qkv')}")
        except PackageNotFoundError:
            typer.echo("qkv, from a source tree that is not installed")
        raise typer.Exit


def build_command() -> typer.Typer:
    app = typer.Typer(
        name="qkv",
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
    ) -> None: ...

    for name, (verb, summary) in VERBS.items():
        app.command(name, short_help=summary, cls=WithFiles if name in PAIRED else None)(verb)
    for name, noun in NOUNS.items():
        app.add_typer(noun, name=name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 2 bad input, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        _settle_encoding(stream)
    try:
        answer = build_command()(words or ["--help"], prog_name="qkv", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except InputError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # whoever read our output has gone; what is still buffered must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        message = _usage(error)
        if message is None:
            raise
        return _fail(message)


def _settle_encoding(stream: Any) -> None:
    """What goes into a file or a pipe is UTF-8 on every machine; a terminal gets what it can show."""
    if not hasattr(stream, "reconfigure"):
        return
    if stream.isatty():
        stream.reconfigure(errors="replace")  # a terminal that cannot show 汉字 is no reason to stop
    else:
        # a file name that is no text comes out escaped, so that the output stays UTF-8, and JSON stays JSON
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def _usage(error: Any) -> str | None:
    """The message of an error in the words of the command line; None for any other error."""
    if not hasattr(error, "format_message"):
        return None
    possibilities = getattr(error, "possibilities", None)
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        message = f"There is no option {error.option_name}.{did_you_mean(error.option_name, possibilities or ())}"
    else:
        message = str(error.format_message()).rstrip(".")
        message += "" if message.endswith("?") else "."
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "qkv"
    return f"{message} See: {path} --help"
