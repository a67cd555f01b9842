"""`qkv translate`: texts in another language, with the words they came from."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import DeviceOption, JsonOption, LanguageOption, ThreadsOption, suffix_of
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.generate.options import GenerateConfig
    from qkv.run.translate import Translation, Translator

WRITTEN = {".txt": "a translation a line", ".tsv": "source and translation", ".jsonl": "JSON lines"}


def translate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A translation run, a model folder, or hf:owner/name.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT|FILE", help="Texts, one file of lines, or - for standard input.")
    ] = None,
    beams: Annotated[int | None, typer.Option("--beams", metavar="N", help="Of beam search; 1: greedy.")] = None,
    n_best: Annotated[int | None, typer.Option("--n-best", metavar="N", help="Translations of a text.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option("--length-penalty", metavar="A", help="More than 1 favours long ones.")
    ] = None,
    coverage_penalty: Annotated[
        float | None, typer.Option("--coverage-penalty", metavar="B", help="Against words nobody looked at.")
    ] = None,
    min_length: Annotated[int | None, typer.Option("--min-length", metavar="N", help="Tokens, at least.")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", metavar="N", help="Tokens, at most.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", metavar="P", help="Above 1: less of what was written.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option("--no-repeat", metavar="N", help="No run of N tokens comes twice.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw by chance instead of the best.")] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="Of --sample: below 1, surer.")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help="Of --sample: the K likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help="Of --sample: the likeliest.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Of --sample.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--decoding", metavar="KEY=VALUE", help="Any other option; repeatable.")
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Sentence by sentence, for texts of several.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Which word came from which.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.svg", help="Draw the alignment of one text.")
    ] = None,
    lang: LanguageOption = "en",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .txt, .tsv or .jsonl.")] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    precision: Annotated[
        str, typer.Option("--precision", metavar="TYPE", help="fp32; or int8, faster on a CPU and nearly the same.")
    ] = "fp32",
    as_json: JsonOption = False,
) -> None:
    """Translate texts or a file, with a model of `qkv train translate` or an OPUS-MT folder.

    \b
    qkv translate run "Ein Mann liest ein Buch."
    qkv translate run "Tom chases Jerry" --alignments --picture tom.svg
    qkv translate run news.de --out news.en.txt --beams 5
    qkv translate run "Ein Hund." --n-best 3
    qkv translate run "Ein Hund." --sample --top-p 0.9 --seed 1
    cat news.de | qkv translate run - --json

    A file has a text a line (.tsv: the first column, .jsonl: source or text), and its translations come in the same
    order. A text that is longer than the model was made for is refused, unless --split cuts it into sentences.
    --decoding has the options that have no flag: max_ratio, length_formula, stopping, renormalise.
    --json prints one line of JSON a text; with --alignments, character spans on both sides.
    """
    if not inputs:
        raise InputError('Give texts or a file: qkv translate RUN "a text"; or - to read standard input.')
    if picture is not None:
        suffix_of(picture, {".svg": "a picture"})
        if len(inputs) != 1 or inputs[0] == "-" or _is_file(inputs[0]):
            raise InputError("--picture draws the alignment of one text: give that text alone.")
    suffix = suffix_of(out, WRITTEN) if out is not None else None
    given: dict[str, Any] = {
        "beams": beams,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
        "min_length": min_length,
        "max_length": max_length,
        "repetition_penalty": repetition_penalty,
        "no_repeat": no_repeat,
        "sample": sample or None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    wanted = {key: value for key, value in given.items() if value is not None}
    from qkv.cli.terminal import say
    from qkv.run.translate import load_translator

    # an option that is not there is told before a model is loaded
    wanted |= _assigned(options or [])
    translator = load_translator(run, device, threads, precision)
    for note in translator.notes:
        say(f"note: {note}")
    config = decoding_of(translator, wanted)
    how: dict[str, Any] = {"alignments": alignments or picture is not None, "split": split}
    found = translator.stream(_texts(inputs), config, **how)
    if out is not None and suffix is not None:
        _write(out, suffix, found)
        return
    for number, one in enumerate(found):
        _tell_unfinished(one)
        if picture is not None:
            _draw(picture, one, translator, lang)
        if as_json:
            from qkv.cli.terminal import print_json

            print_json(one.to_dict())
        else:
            _print(one, alignments, number)


def decoding_of(translator: "Translator", wanted: dict[str, Any]) -> "GenerateConfig":
    """The model's own way of decoding, changed by what was asked for."""
    from dataclasses import asdict

    from qkv.generate.options import GenerateConfig

    own = {key: value for key, value in asdict(translator.decoding).items() if value is not None}
    if wanted.get("sample"):
        own["beams"] = 1  # unless beams were asked for as well, which is told
    elif wanted.get("n_best", 1) > wanted.get("beams", own["beams"]) and "beams" not in wanted:
        own["beams"] = wanted["n_best"]  # so many are looked for, at least
    return GenerateConfig.of(own | wanted)


def _assigned(options: list[str]) -> dict[str, Any]:
    import tomllib

    from qkv.generate.options import GenerateConfig

    found: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise InputError(f"--decoding {option}: write KEY=VALUE, such as stopping=never.")
        try:
            found[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = text
    known = {key: value for key, value in found.items() if key not in vars(GenerateConfig())}
    GenerateConfig.of(known)  # refuses what is not there, and says what it may have been
    return found


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except OSError:  # a text may be longer than a name can be
        return False


def _of_file(path: Path) -> Iterator[str]:
    """A text a line; of .tsv the first column, of .jsonl the field source or text."""
    from qkv.data.readers import COMPRESSED, field_of, lines

    ending = Path(path.stem if path.suffix.lower() in COMPRESSED else path.name).suffix.lower()
    for number, line in lines(path):
        place = f"{path}, line {number}"
        if ending == ".jsonl":
            if line.strip():
                yield field_of(line, place, "source" if '"source"' in line else "text")
        elif ending == ".tsv":
            yield line.split("\t")[0]
        elif "\t" in line:
            raise InputError(
                f"{place} has columns, between tabs, and a text would be one of them. Call the file .tsv to have its "
                "first column translated, or give a file of texts alone."
            )
        else:
            yield line


def _texts(inputs: list[str]) -> Iterator[str]:
    if inputs == ["-"]:
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise InputError(f"Standard input, line {number} is not UTF-8.") from None
    elif len(inputs) == 1 and _is_file(inputs[0]):
        yield from _of_file(Path(inputs[0]))
    else:
        for number, text in enumerate(inputs, 1):
            if not text.strip():
                raise InputError(f"Text {number} is empty.")
            yield text


def _print(one: "Translation", alignments: bool, number: int) -> None:
    from qkv.cli.terminal import table

    if len(one.candidates) > 1:
        if number:
            typer.echo("")
        for candidate in one.candidates:
            typer.echo(f"{candidate.score:.4f}\t{candidate.text}")
    else:
        typer.echo(one.text)
    if alignments:
        links = one.best.alignments
        if not links:
            typer.echo("  (this model has no attention to read an alignment from)")
            return
        rows = [
            [
                f"  {one.source[slice(*link.source)]}",
                one.text[slice(*link.target)],
                f"{link.weight:.0%}",
                f"{link.source.start}–{link.source.end} → {link.target.start}–{link.target.end}",
            ]
            for link in links
        ]
        table(["", "", "", ""], rows, right=(2,))


def _tell_unfinished(one: "Translation") -> None:
    if not one.best.finished:
        from qkv.cli.terminal import say

        say(f"note: the translation of {one.source[:40]!r} was not ended after {one.best.n_tokens} tokens")


def _draw(picture: Path, one: "Translation", translator: "Translator", lang: str) -> None:
    from qkv.atomic import write_text
    from qkv.cli.terminal import say
    from qkv.report.alignment_picture import svg

    attention = one.best.attention
    if attention is None:
        raise InputError(
            f"{translator.path} has no attention, so there is no alignment to draw. Train one that has: "
            "--set seq2seq.context=attention, or the Transformer."
        )
    write_text(picture, svg(attention, lang=lang))
    say(f"{picture}: which word came from which")


def _write(out: Path, suffix: str, found: Iterator["Translation"]) -> None:
    import json

    from qkv.atomic import replaced_file
    from qkv.cli.terminal import progress, say

    count = 0
    with progress("texts", None) as advance, replaced_file(out) as part, part.open("w", encoding="utf-8") as file:
        for one in found:
            _tell_unfinished(one)
            text = " ".join(one.text.split())
            if suffix == ".jsonl":
                file.write(json.dumps(one.to_dict(), ensure_ascii=False) + "\n")
            elif suffix == ".tsv":
                file.write(f"{' '.join(one.source.split())}\t{text}\n")
            else:
                file.write(text + "\n")
            count += 1
            advance(1)
    say(f"{out}: {count:,} translations")
