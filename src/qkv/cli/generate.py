"""`qkv generate`: generate text with a language model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    AnyModelOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    ThreadsOption,
    check_not_read,
    choose_device,
    quick_start,
    suffix_of,
    take_model,
    text_or_stdin,
)
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.api.generator import GeneratedText, Generator
    from qkv.search.options import GenerateConfig

_WRITTEN = {".txt": "texts", ".jsonl": "JSON lines"}


def generate_texts(
    named: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="GPT or recurrent language model: run, folder, or hf:owner/name."),
    ] = None,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="Prompts; - reads standard input.")
    ] = None,
    model: AnyModelOption = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", metavar="FILE", help="File with one prompt per line; .jsonl: field prompt or text; or -."
        ),
    ] = None,
    n_best: Annotated[int | None, typer.Option("--n", metavar="N", help="Number of texts per prompt.")] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", metavar="N", help="Maximum number of new tokens (default 256, or what fits)."),
    ] = None,
    min_length: Annotated[
        int | None, typer.Option("--min-length", metavar="N", help="Minimum number of new tokens.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="Sampling temperature (default 0.8).")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="K", help="Sample from the K most probable tokens (default 40).")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", metavar="P", help="Nucleus sampling: smallest set of tokens with total probability P."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Random seed (default 0).")] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Choose the most probable token; disables sampling.")
    ] = False,
    beams: Annotated[int | None, typer.Option("--beams", metavar="N", help="Beam width; disables sampling.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option("--length-penalty", metavar="A", help="Beam search: above 1 favours long texts.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", metavar="P", help="Above 1 discourages repeated tokens.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option("--no-repeat", metavar="N", help="Never repeat a sequence of N tokens.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--decoding", metavar="KEY=VALUE", help="Other decoding option; repeatable.")
    ] = None,
    begins: Annotated[
        bool | None,
        typer.Option(
            "--begin/--inside", help="Whether a prompt starts a document or continues one.", show_default=False
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .txt or .jsonl.")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    dtype: DtypeOption = "float32",
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="TYPE",
            help="fp32; for a GPT on a CPU also int8 (faster, nearly equal) or drafted (faster, equal).",
        ),
    ] = "fp32",
    as_json: JsonOption = False,
) -> None:
    """Generate text from a prompt, with qkv-gpt, a model of `qkv pretrain gpt`, a GPT-2 folder or a recurrent language
    model.

    \b
    qkv generate "The capital of France"                 # with qkv-gpt
    qkv generate run "ROMEO:"
    qkv generate run 春眠不觉晓， --n 3 --seed 7
    qkv generate run --max-length 100                    # without a prompt
    qkv generate run "The capital of" --greedy
    qkv generate run "It was" --beams 4 --no-repeat 3
    qkv generate run --file prompts.txt --out texts.jsonl
    cat poem.txt | qkv generate run -                    # the whole input is one prompt
    qkv generate hf:openai-community/gpt2 "Once upon a time" --temperature 1 --top-p 0.95

    The first argument is a model if it is the name of one (qkv-gpt, hf:owner/name), a folder, like a path (with a /) or
    like the misspelt name of a folder here; or one word of ASCII that prompts follow. Anything else is a prompt for
    qkv-gpt. With --model all arguments are prompts.

    By default tokens are sampled at temperature 0.8 from the 40 most probable. Any of --temperature, --top-k and
    --top-p replaces both defaults; --greedy and --beams search instead. The same seed gives the same text for a
    prompt, whatever the other prompts are. A single text is printed while it is generated.
    For models trained by qkv, a prompt starts a document unless --inside is given. A prompt that leaves no room for
    --max-length new tokens is an error; nothing is truncated.
    --decoding sets the options without a flag: length_formula, stopping, renormalise.
    --precision int8 is faster on a CPU. So is drafted, for a single text: speculative decoding with 8-bit weights.
    --json prints one line of JSON per prompt: prompt, texts (text, score, log_probability, finished, n_tokens).
    """
    words = [] if named is None else [named, *(prompts or ())]
    if file is not None and model is None and words:  # there cannot be a prompt as well
        model, prompts = words[0], words[1:]
    else:
        model, prompts = take_model(model, words, "writes")
    if file is not None and prompts:
        raise InputError("Choose one: prompts, or --file.")
    if prompts and "-" in prompts and len(prompts) > 1:
        raise InputError("Give - for standard input alone, without other prompts.")
    for number, text in enumerate(prompts, 1):
        if not text:
            raise InputError(
                f"Prompt {number} is empty. Write something, or leave the prompt out to generate without one."
            )
    suffix = None if out is None else suffix_of(out, _WRITTEN)
    if suffix is not None and as_json:
        raise InputError("Choose one: --json, which prints, or --out, which writes JSON if its file ends in .jsonl.")
    check_not_read(out, [file])
    given: dict[str, Any] = {
        "n_best": n_best,
        "max_length": max_length,
        "min_length": min_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "beams": beams,
        "length_penalty": length_penalty,
        "repetition_penalty": repetition_penalty,
        "no_repeat": no_repeat,
    }
    from qkv.cli.terminal import say
    from qkv.cli.translate import parse_decoding

    # report bad options before a model is loaded
    wanted = {key: value for key, value in given.items() if value is not None} | parse_decoding(options or [])
    config = resolve_generation(wanted, greedy)
    texts = [text_or_stdin(text) for text in prompts]
    if "" in texts:
        raise InputError("Standard input is empty. Write something, or leave - out to generate without a prompt.")
    with quick_start():
        from qkv.api.generator import Generator
        from qkv.models.folders.hub import check_language_of

    generator = Generator(model, choose_device(device, precision), threads, dtype, precision)
    for note in generator.notes:
        say(f"note: {note}")
    how: dict[str, Any] = {"begins": begins, "fit": "max_length" not in wanted}
    for number, text in enumerate(texts, 1):
        check_language_of(generator.path, text, f"Prompt {number}", trusted="en")
    if model is None:
        say(f"{generator.path.name} answers; another model: --model MODEL")
    if file is None and len(texts) < 2 and config.hypotheses == 1 and not as_json and out is None:
        _show(generator, texts[0] if texts else "", config, how)
        return
    # report bad prompts before anything is generated; standard input can be read only once
    count = None if file == "-" else generator.check(_open_prompts(texts, file), config, **how)
    found = _warn_unknown(generator.generate_all(_open_prompts(texts, file), config, **how), generator)
    if out is not None and suffix is not None:
        _write(out, suffix, found, count)
        return
    for number, texts_of in enumerate(found, 1):
        if as_json:
            from qkv.cli.terminal import print_json

            print_json(to_dict(texts_of))
        else:
            _print(texts_of, number, (count or 2) > 1)


def resolve_generation(wanted: dict[str, Any], greedy: bool) -> "GenerateConfig":
    """Resolve the decoding options: sampling with the defaults of SAMPLING_DEFAULTS, unless options say otherwise.

    >>> resolve_generation({}, False).top_k, resolve_generation({"top_p": 0.9}, False).top_k
    (40, None)
    """
    from qkv.search.options import SAMPLING_DEFAULTS, GenerateConfig

    wanted = dict(wanted)
    beams = wanted.get("beams", 1)
    of_chance: list[str] = [key for key in ("temperature", "top_k", "top_p") if key in wanted]
    if greedy and wanted.get("beams", 1) != 1:
        raise InputError("Choose one: --greedy, or --beams.")
    if wanted.get("sample") is False:
        greedy = True
    if beams == 1 and "stopping" in wanted:
        raise InputError("stopping is for beam search: add --beams, or leave it out.")
    for name in ("length_penalty", "length_formula"):
        if name in wanted and beams == 1 and wanted.get("n_best", 1) == 1:
            raise InputError(
                f"{name} compares texts of one prompt, and there is one: add --beams or --n, or leave it out."
            )
    if greedy or beams != 1:
        how = "--greedy" if greedy else "--beams"
        if wanted.get("sample"):
            raise InputError(f"sample and {how} exclude each other: leave one of them out.")
        if of_chance or "seed" in wanted:
            name = (of_chance or ["seed"])[0]
            raise InputError(f"{name} is for sampling, and {how} does not sample: leave one of them out.")
        if greedy and wanted.get("n_best", 1) != 1:
            raise InputError("--greedy gives one text: leave --n or --greedy out, or use --beams.")
        return GenerateConfig.of({**wanted, "sample": False})
    return GenerateConfig.of({"sample": True, **({} if of_chance else SAMPLING_DEFAULTS), **wanted})


def to_dict(texts: list["GeneratedText"]) -> dict[str, Any]:
    """Return a prompt and its texts as one JSON object."""
    first = texts[0].to_dict()
    beside = ("prompt", "n_prompt_tokens", "n_unknown")
    return {
        "prompt": first["prompt"],
        "texts": [{key: value for key, value in one.to_dict().items() if key not in beside} for one in texts],
        **{key: first[key] for key in beside[1:]},
    }


def _open_prompts(texts: list[str], file: str | None) -> Iterator[tuple[str, str]]:
    """Yield each prompt and its name for messages."""
    if file is None:
        yield from ((text, f"Prompt {number}") for number, text in enumerate(texts or [""], 1))
        return
    from qkv.cli.terminal import say_encodings
    from qkv.data.readers import STDIN, read_texts

    if file != STDIN:
        say_encodings([file])
    for text, place in read_texts(file, "prompt", "text"):
        if not text:
            raise InputError(f"{place} is empty: every line is a prompt. Remove the line, or write something.")
        yield text, place


def _show(generator: "Generator", prompt: str, config: "GenerateConfig", how: dict[str, Any]) -> None:
    """Print one text while it is generated."""
    from qkv.cli.terminal import warn_unknown
    from qkv.text.unknown import UnknownCounter

    pieces = generator.stream(prompt, config, **how)
    first = next(pieces, "")  # bad input is reported before the prompt is printed
    typer.echo(prompt + first, nl=False)
    for piece in pieces:
        typer.echo(piece, nl=False)
        sys.stdout.flush()
    typer.echo("")
    counter = UnknownCounter(generator.tokenizer)
    counter.add([prompt], generator.n_unknown(prompt), _count_tokens(generator, prompt))
    warn_unknown(counter.facts())


def _print(texts: list["GeneratedText"], number: int, several: bool) -> None:
    """Print the texts, each below its number if there are several."""
    for place, one in enumerate(texts, 1):
        if several or len(texts) > 1:
            name = f"{number}.{place}" if several and len(texts) > 1 else str(number if several else place)
            typer.echo(f"--- {name}")
        typer.echo(one.prompt + one.text)


def _warn_unknown(found: Iterator[list["GeneratedText"]], generator: "Generator") -> Iterator[list["GeneratedText"]]:
    """Pass the texts through; at the end, warn about unknown tokens of their prompts."""
    from qkv.cli.terminal import warn_unknown
    from qkv.text.unknown import UnknownCounter

    counter = UnknownCounter(generator.tokenizer)
    for texts in found:
        counter.add([texts[0].prompt], texts[0].n_unknown, _count_tokens(generator, texts[0].prompt))
        yield texts
    warn_unknown(counter.facts())


def _count_tokens(generator: "Generator", prompt: str) -> int:
    """Without the special token before a prompt."""
    return len(generator.tokenizer.encode_ids([prompt])[0])


def _write(out: Path, suffix: str, found: Iterator[list["GeneratedText"]], total: int | None) -> None:
    import json

    from qkv.cli.terminal import progress, say
    from qkv.files import replaced_file

    prompts = count = 0
    with progress("prompts", total) as advance, replaced_file(out) as part, part.open("w", encoding="utf-8") as file:
        for texts in found:
            if suffix == ".jsonl":
                file.write(json.dumps(to_dict(texts), ensure_ascii=False) + "\n")
            else:
                file.writelines(one.prompt + one.text + "\n" for one in texts)
            prompts, count = prompts + 1, count + len(texts)
            advance(1)
    say(f"{out}: {count:,} texts from {prompts:,} prompts")
