"""Make a folder of the zoo from runs: weights, card, licence, recipes, logs, reports, and SHA256SUMS over all of them.

    python bench/zoo_folder.py bench/zoo_cards/qkv-words.toml --run run --recipe qkv-words.toml --dtype int8 --bits 6
    python bench/zoo_folder.py --table       # the table of docs/zoo.md and docs/zoo.zh.md, from the folders

A model that was trained in parts has several --run and --recipe, in order; its weights are those of the last. The words
of the card are in a TOML file: name, about and about_zh, use (commands), python, sources (of SOURCES), commands (how it
was trained), device, limits and limits_zh, record (entries that are added to qkv.json's), and its figures, without
which no folder is made:

    [[figures]]
    caption = "…"                  # what was measured, on what
    columns = ["", "qkv-words"]
    rows = [["WS-353, Spearman", "0.61"]]
    how = "qkv evaluate-vectors --data FOLDER"

Sizes, steps and time come from the folder and the logs. Paths of the machine are taken out of qkv.json and of reports;
a file that still has one is an error.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError
from qkv.files import read_object, replaced_folder, to_json, write_text
from qkv.models.folders import hub
from qkv.models.folders.own import CARD, OURS, OWN_FORMATS, rewrite_folder
from qkv.models.table import describe_model

ROOT = Path(__file__).resolve().parents[1]


class Source(NamedTuple):
    text: str
    licence: str
    notice: str  # of LICENSE


_BY_SA = (
    "CC BY-SA (version 3.0 at the time of the copies used, https://creativecommons.org/licenses/by-sa/3.0/, and GFDL)"
)
SOURCES = {
    "enwiki": Source(
        "English Wikipedia, a sample of articles",
        "CC BY-SA 3.0 and GFDL, by its contributors",
        f"text of the English Wikipedia (https://en.wikipedia.org), by its contributors, licensed under {_BY_SA}. The "
        "authors of an article are listed in its page history. Documents were selected, mark-up was removed",
    ),
    "zhwiki": Source(
        "Chinese Wikipedia, a sample of articles, in simplified characters",
        "CC BY-SA 3.0 and GFDL, by its contributors",
        "text of the Chinese Wikipedia (https://zh.wikipedia.org), converted to simplified characters, by its "
        f"contributors, licensed under {_BY_SA}. The authors of an article are listed in its page history. Documents "
        "were selected, mark-up was removed",
    ),
    "gutenberg": Source(
        "Project Gutenberg, English books",
        "public domain in the USA",
        "English books of Project Gutenberg (https://www.gutenberg.org), in the public domain in the USA",
    ),
    "poetry": Source(
        "chinese-poetry, poems of the Tang and Song dynasties",
        "public domain; the collection: MIT",
        "poems of the collection chinese-poetry (https://github.com/chinese-poetry/chinese-poetry, MIT License); the "
        "poems are in the public domain",
    ),
    "tatoeba": Source(
        "Tatoeba, English and Chinese sentence pairs",
        "CC BY 2.0 FR, by its contributors",
        "sentence pairs of Tatoeba (https://tatoeba.org), by its contributors, licensed under CC BY 2.0 FR "
        "(https://creativecommons.org/licenses/by/2.0/fr/)",
    ),
    "squad": Source(
        "SQuAD v1.1, questions and passages, training part",
        "CC BY-SA 4.0",
        "questions and passages of SQuAD v1.1 (Rajpurkar et al. 2016), licensed under CC BY-SA 4.0",
    ),
    "cmrc": Source(
        "CMRC 2018, questions and passages, training part",
        "CC BY-SA 4.0",
        "questions and passages of CMRC 2018 (Cui et al. 2019), licensed under CC BY-SA 4.0",
    ),
    "cedict": Source(
        "CC-CEDICT, Chinese words and what they mean in English",
        "CC BY-SA 4.0, published by MDBG",
        "entries of CC-CEDICT (https://cc-cedict.org), published by MDBG, licensed under CC BY-SA 4.0. Words were "
        "selected, and their first explanations shortened",
    ),
    "made": Source(
        "scenes, headlines and requests in both languages, made by a grammar of qkv",
        "Apache-2.0",
        "sentences that the grammar of qkv's bench/zoo_made.py (Apache License 2.0) makes",
    ),
    "minilm": Source(
        "vectors of all-MiniLM-L6-v2, as a teacher",
        "Apache-2.0",
        "vectors that sentence-transformers/all-MiniLM-L6-v2 (Apache License 2.0) computed for English texts",
    ),
}
LICENCE = """{name}: the files of this folder, the weights above all
{line}

Copyright 2026 the qkv authors.

The weights (model.safetensors), the vocabulary and tokenizer files, and the card of this folder are licensed under the
Creative Commons Attribution-ShareAlike 4.0 International License (CC BY-SA 4.0).

    You may share and adapt them, also commercially, if you give attribution and share what you adapt under the same
    licence. The legal code, which alone is binding, is at
    https://creativecommons.org/licenses/by-sa/4.0/legalcode

Attribution. Please name "{name}, from qkv", and keep this notice. The model learned from

{sources}.

None of these sources endorses the model.

The code of qkv, outside of this folder, is licensed under the Apache License 2.0 (the LICENSE of the package).

The weights come as they are, without warranty of any kind.
"""
_NEEDED = ("name", "about", "about_zh", "use", "sources", "commands", "device", "limits", "limits_zh", "figures")


def read_card(file: Path) -> dict[str, Any]:
    card = tomllib.loads(file.read_text(encoding="utf-8"))
    if missing := [name for name in _NEEDED if not card.get(name)]:
        raise InputError(f"{file} lacks {', '.join(missing)}. Weights are measured before they ship.")
    if card["name"] not in hub.ZOO:
        raise InputError(f"{file}: '{card['name']}' is not in the table of the zoo (models/folders/hub.py).")
    if unknown := set(card["sources"]) - set(SOURCES):
        raise InputError(f"{file}: no source is called {', '.join(sorted(unknown))}. Known: {', '.join(SOURCES)}.")
    return card


def make_folder(
    card: Mapping[str, Any],
    runs: Sequence[Path],
    recipes: Sequence[Path],
    dtype: str,
    out: Path,
    bits: int | None = None,
) -> None:
    """Write the folder, whole or not at all; it may take the place of an earlier one."""
    if len(recipes) != len(runs):
        raise InputError(f"{len(runs)} runs have {len(recipes)} recipes: give --recipe for each --run, in order.")
    with replaced_folder(out, _reason_to_keep) as new:
        _copy_model(runs[-1] / "model", new, dtype, bits)
        for number, (run, recipe) in enumerate(zip(runs, recipes, strict=True), 1):
            mark = f"-{number}" if number > 1 else ""
            shutil.copyfile(recipe, new / f"{card['name']}{mark}.toml")
            shutil.copyfile(run / "log.jsonl", new / f"log{mark}.jsonl")
            report = (run / "report.html").read_text(encoding="utf-8")
            write_text(new / f"report{mark}.html", _without(report, runs))
        if (new / OURS).is_file():
            ours = _plain_paths(read_object(new / OURS))
            ours["record"] = {**(ours.get("record") or {}), **card.get("record", {})}
            write_text(new / OURS, to_json(ours))
        write_text(new / CARD, write_card(card, new, runs))
        write_text(new / "LICENSE", write_licence(card))
        _check_paths(new)
        hub.seal(new)


def _reason_to_keep(folder: Path) -> str | None:
    return None if (folder / hub.SUMS).is_file() else "it is no folder of the zoo"


def _copy_model(model: Path, new: Path, dtype: str, bits: int | None) -> None:
    facts = describe_model(model)
    made = new / "made"
    if bits is not None or facts.model_type in OWN_FORMATS:
        rewrite_folder(model, made, dtype, bits)
    else:
        import torch

        from qkv.models.family import Loading
        from qkv.models.table import open_model

        opened = open_model(model, Loading(getattr(torch, dtype)))
        if opened.write is None:
            rewrite_folder(model, made, dtype)
        else:
            opened.save(made)
    for entry in made.iterdir():
        entry.rename(new / entry.name)
    made.rmdir()


def _plain_paths(value: Any) -> Any:
    """A record without the folders of files.

    >>> _plain_paths({"data": "/here/there/shards", "rate": 0.1, "files": ["../a.txt", "a b / c"]})
    {'data': 'shards', 'rate': 0.1, 'files': ['a.txt', 'a b / c']}
    """
    if isinstance(value, dict):
        return {name: _plain_paths(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain_paths(one) for one in value]
    is_path = isinstance(value, str) and re.match(r"[/~]|\.\.?/", value) is not None
    return Path(value).name if is_path else value


def _without(text: str, runs: Sequence[Path]) -> str:
    """A report or a log with the names of the run, of its files and of what is beside it, instead of their paths."""
    for run in runs:
        config = run / "config.toml"
        named = list(_strings(tomllib.loads(config.read_text(encoding="utf-8")))) if config.is_file() else []
        for path in sorted((one for one in named if os.path.isabs(one)), key=len, reverse=True):
            text = text.replace(path, Path(path).name)
        text = text.replace(str(run.resolve()), run.name).replace(str(run), run.name)
        text = text.replace(f"{run.resolve().parent}{os.sep}", "")
    return text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(one)


def _check_paths(folder: Path) -> None:
    ours = {str(Path.home()), os.getcwd(), str(ROOT), str(ROOT.parent)} - {"/"}
    for file in sorted(folder.rglob("*")):
        if file.suffix in {".json", ".jsonl", ".html", ".toml", ".md"}:
            text = file.read_text(encoding="utf-8")
            if found := [path for path in ours if re.search(rf"{re.escape(path)}(?![\w-])", text)]:
                raise InputError(f"{file.relative_to(folder)} names a path of this machine: {found[0]}. Take it out.")


# The card


def write_card(card: Mapping[str, Any], folder: Path, runs: Sequence[Path]) -> str:
    facts = describe_model(folder)
    size, bits = _size(folder), {"int8": 8, "float16": 16, "bfloat16": 16}.get(facts.document["dtype"], 32)
    count = _parameters(facts.document)
    titles = [f"part {number}" for number in range(1, len(runs) + 1)] if len(runs) > 1 else [""]
    head = ["---", "license: cc-by-sa-4.0", "language:", *(f"- {one}" for one in _languages(card["name"]))]
    head += [f"library_name: {card.get('library', 'qkv')}"]
    head += [f"pipeline_tag: {card['pipeline']}"] if "pipeline" in card else []
    head += ["tags:", *(f"- {tag}" for tag in ("qkv", *card.get("tags", ()))), "---"]
    parts = [
        "\n".join(head),
        f"# {card['name']}",
        f"{card['about']} {count:,} parameters, stored in {bits} bits ({size}).",
        f"{card['about_zh']}{count:,} 个参数，{bits} 位存放（{size}）。",
        "## Use / 用法",
        _block("bash", card["use"]),
        *([_block("python", [card["python"].strip()])] if "python" in card else []),
        "## Training / 训练",
        "With qkv's own commands; recipe, losses and report are in this folder. / 用 qkv 自己的命令训练；"
        "配方、损失和报告都在本文件夹里。",
        _block("bash", card["commands"]),
        _table(["", *titles], _course(card, runs)),
        "## Data / 数据",
        _table(["text", "licence"], [SOURCES[one][:2] for one in card["sources"]]),
        "## How good it is / 成绩",
    ]
    for figures in card["figures"]:
        parts += [figures["caption"], _table(figures["columns"], figures["rows"]), f"`{figures['how']}`"]
    parts += ["## Limits / 局限", "\n".join(f"- {one}" for one in card["limits"]), card["limits_zh"]]
    parts += [
        "## Licence / 许可",
        "Weights, vocabulary and card: [CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/); attribution is "
        "in LICENSE. The code of qkv is Apache-2.0. / 权重、词表和本卡片：CC BY-SA 4.0，署名见 LICENSE。"
        "qkv 的代码是 Apache-2.0。",
    ]
    return "\n\n".join(parts) + "\n"


def _course(card: Mapping[str, Any], runs: Sequence[Path]) -> list[list[str]]:
    """Steps, tokens and time, from the logs."""
    rows: dict[str, list[str]] = {"steps": [], "tokens": [], "time": []}
    for run in runs:
        lines = list(_lines(run / "log.jsonl"))
        rows["steps"].append(f"{max((one['step'] for one in lines), default=0):,}")
        tokens = sum(one.get("tokens", 0) for one in lines if "evaluation" not in one)
        rows["tokens"].append(f"{tokens / 1e6:,.0f} M" if tokens else "–")
        sessions = run / "sessions.jsonl"
        seconds = sum(one["seconds"] for one in _lines(sessions)) if sessions.is_file() else 0.0
        rows["time"].append(f"{seconds / 60:,.1f} minutes, {card['device']}")
    return [[name, *values] for name, values in rows.items()]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip())


def _languages(name: str) -> list[str]:
    one = hub.ZOO[name]
    return list(dict.fromkeys([*one.reads, *([one.writes] if one.writes else [])]))


def _parameters(document: Mapping[str, Any]) -> int:
    count = document["parameters"]
    return int(count["total"] if isinstance(count, dict) else count)


def _size(folder: Path) -> str:
    return f"{(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB"


def _block(language: str, lines: Sequence[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |".replace("|  |", "| |") for line in lines)


def write_licence(card: Mapping[str, Any]) -> str:
    import textwrap

    notices = [
        textwrap.fill(SOURCES[one].notice, 118, initial_indent="  - ", subsequent_indent="    ")
        for one in card["sources"]
    ]
    title = f"{card['name']}: the files of this folder, the weights above all"
    return LICENCE.format(name=card["name"], line="=" * len(title), sources=";\n".join(notices))


# The table of the documents

MARKS = ("<!-- zoo: python bench/zoo_folder.py --table -->", "<!-- end -->")
HEADINGS = {
    "zoo.md": ("model", "parameters", "weights", "folder", "licence"),
    "zoo.zh.md": ("模型", "参数", "权重", "文件夹", "许可"),
}


def write_table(file: Path) -> str:
    """The text of a page with the table of the folders that are there."""
    rows = []
    for name in hub.shipped_models():
        folder = hub.FOLDER / name
        whole = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
        document = describe_model(folder).document
        bits = {"int8": "8 bits", "float16": "16 bits", "bfloat16": "16 bits"}.get(document["dtype"], document["dtype"])
        shown = f"{_size(folder)}, {bits.replace(' bits', ' 位') if file.name.endswith('.zh.md') else bits}"
        rows.append([name, f"{_parameters(document):,}", shown, f"{whole / 1e6:.1f} MB", "CC BY-SA 4.0"])
    before, _, rest = file.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    return f"{before}{MARKS[0]}\n\n{_table(HEADINGS[file.name], rows)}\n\n{MARKS[1]}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("card", type=Path, nargs="?")
    parser.add_argument("--run", type=Path, action="append", default=[])
    parser.add_argument("--recipe", type=Path, action="append", default=[])
    parser.add_argument("--dtype", choices=("int8", "bfloat16", "float16", "float32"), default="float16")
    parser.add_argument("--bits", type=int, help="significant bits of each number of a matrix")
    parser.add_argument("--out", type=Path, help="default: the folder of the zoo")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    try:
        if given.table:
            for name in HEADINGS:
                write_text(ROOT / "docs" / name, write_table(ROOT / "docs" / name))
        elif given.card is None or not given.run:
            parser.error("give a card and --run, or --table")
        else:
            card = read_card(given.card)
            out = given.out or hub.FOLDER / card["name"]
            make_folder(card, given.run, given.recipe, given.dtype, out, given.bits)
            print(f"{out}: {_size(out)} of weights; now run: python bench/zoo_folder.py --table")
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
