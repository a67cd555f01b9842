"""Does a fixed context forget long sentences? BLEU by the length of the source, of several models on the same test set.

    python bench/translation_length.py fixed=runs/fixed every_step=runs/every_step attention=runs/attention \\
        transformer=runs/transformer
    … --out docs/images              # also the figure of docs/seq2seq.md and its numbers
    … --source test.de --reference test.en fixed=fixed.txt       # translations that lie in files, a line each

A run is a folder of `qkv train translate`; its translations.tsv holds the test set. Files may be .gz or .xz. Two runs
under one name are two seeds: their counts are put together. A sentence's length is its words between spaces (of Chinese
its characters); --edges says where groups begin.

The claim is judged by how much of its score a model keeps: BLEU of the longest group by that of the shortest, and by
the difference between two models in each group. Both systems of a difference are drawn together (paired bootstrap), so
that sentences that are hard for both cancel. BLEU of one group is not BLEU of another: its references differ. Compare
models within a group, and how their distance changes from group to group.
"""

import argparse
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from qkv.errors import InputError, reading
from qkv.metrics.intervals import FloatArray, bootstrap, paired_difference
from qkv.metrics.translation import ScoreError, bleu_counts, bleu_of, bleu_signature
from qkv.text.wordpiece import CHINESE

DOCS = Path(__file__).resolve().parent.parent / "docs"
EDGES = (8, 10, 12, 14, 17)
"""Of the test set of Multi30k, each group has 75 to 234 sentences."""
FEWEST = 20
"""Sentences of a group that is worth a figure."""


def lines(file: Path) -> list[str]:
    with reading(file):
        raw = file.read_bytes()
    raw = gzip.decompress(raw) if file.suffix == ".gz" else lzma.decompress(raw) if file.suffix == ".xz" else raw
    return raw.decode("utf-8-sig").removesuffix("\n").split("\n")


def of_run(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Sources, references and translations of the pairs that a run was judged by."""
    file = folder / "translations.tsv"
    header, *rows = (line.split("\t") for line in lines(file))
    if missing := {"source", "reference", "translation"} - set(header):
        raise InputError(f"{file}, line 1: no column {', '.join(sorted(missing))}. Was it written by another program?")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise InputError(f"{file}, line {number}: {len(row)} columns where the first line names {len(header)}.")
    source, reference, translation = (
        [row[header.index(name)] for row in rows] for name in ("source", "reference", "translation")
    )
    return source, reference, translation


def gathered(
    given: Sequence[str], source: Path | None, reference: Path | None
) -> tuple[list[str], list[str], dict[str, list[list[str]]]]:
    """Sources, references, and name → translations of each seed, from name=RUN and name=FILE."""
    texts = [None if file is None else lines(file) for file in (source, reference)]
    systems: dict[str, list[list[str]]] = {}
    for one in given:
        name, sign, place = one.partition("=")
        if not sign or not name or not place:
            raise InputError(f"'{one}' is not name=RUN or name=FILE, as in attention=runs/attention.")
        if not Path(place).is_dir():
            systems.setdefault(name, []).append(lines(Path(place)))
            continue
        *own, translations = of_run(Path(place))
        for number, what in enumerate(("sources", "references")):
            expected = texts[number] = own[number] if texts[number] is None else texts[number]
            if own[number] != expected:
                raise InputError(f"{place} was judged by other {what} than those before it: nothing can be compared.")
        systems.setdefault(name, []).append(translations)
    sources, references = texts
    if sources is None or references is None:
        raise InputError("Translations in files need the texts they are of: --source FILE --reference FILE.")
    return sources, references, systems


def length(text: str) -> int:
    """
    >>> length("Ein Mann, der liest"), length("一个人在读书 ok")
    (4, 7)
    """
    chinese = [any(first <= c <= last for first, last in zip(CHINESE[::3], CHINESE[2::3], strict=True)) for c in text]
    others = "".join(" " if is_chinese else c for c, is_chinese in zip(text, chinese, strict=True))
    return sum(chinese) + len(others.split())


def groups(lengths: NDArray[np.int64], edges: Sequence[int]) -> list[dict[str, Any]]:
    """From one edge to before the next; those of fewer than FEWEST sentences go with the one before them."""
    bounds = [0, *sorted(edges), int(lengths.max()) + 1]
    found: list[dict[str, Any]] = []
    for low, high in pairwise(bounds):
        rows = np.flatnonzero((lengths >= low) & (lengths < high))
        if found and len(rows) < FEWEST:
            rows = np.concatenate([found.pop()["rows"], rows])
        if len(rows):
            found.append({"rows": rows})
    return [
        {
            "rows": one["rows"],
            "from": int(lengths[one["rows"]].min()),
            "to": int(lengths[one["rows"]].max()),
            "mean": float(lengths[one["rows"]].mean()),
            "sentences": len(one["rows"]),
        }
        for one in found
    ]


def score(counts: FloatArray) -> dict[str, float]:
    low, high = bootstrap(counts, bleu_of)
    return {"bleu": float(bleu_of(counts.sum(0)[None])[0]), "low": low, "high": high}


def kept(counts: FloatArray, short: NDArray[np.int64], long: NDArray[np.int64]) -> dict[str, float]:
    """BLEU of the longest group by that of the shortest; the draws are from both together."""
    width = counts.shape[1]
    both = np.zeros((len(short) + len(long), 2 * width))
    both[: len(short), :width], both[len(short) :, width:] = counts[short], counts[long]

    def ratio(sums: FloatArray) -> FloatArray:
        below = bleu_of(sums[:, :width])
        return np.divide(bleu_of(sums[:, width:]), below, out=np.full(len(below), np.nan), where=below > 0)

    low, high = bootstrap(both, ratio)
    return {"share": float(ratio(both.sum(0)[None])[0]), "low": low, "high": high}


def measured(
    sources: Sequence[str],
    references: Sequence[str],
    systems: dict[str, list[list[str]]],
    language: str,
    edges: Sequence[int] = EDGES,
) -> dict[str, Any]:
    """`systems`: name → one list of translations for each seed."""
    if not systems:
        raise InputError("No translations were given: name=FILE, as in attention=attention.txt.")
    if len(sources) != len(references):
        raise InputError(f"{len(sources)} sources and {len(references)} references: each source needs its own.")
    counts = {}
    for name, seeds in systems.items():
        for number, texts in enumerate(seeds, start=1):
            if len(texts) != len(sources):
                raise InputError(f"{name}, file {number}: {len(texts)} translations of {len(sources)} sources.")
        counts[name] = np.sum([bleu_counts(texts, references, language) for texts in seeds], axis=0)
    by_length = groups(np.array([length(text) for text in sources]), edges)
    rows = [group.pop("rows") for group in by_length]
    base = "fixed" if "fixed" in systems else next(iter(systems))
    return {
        "signature": bleu_signature(language),
        "groups": by_length,
        "base": base,
        "systems": {
            name: {
                "seeds": len(systems[name]),
                "all": score(own),
                "by_length": [score(own[group]) for group in rows],
                "kept": kept(own, rows[0], rows[-1]),
                "above_base": [paired_difference(own[group], counts[base][group], bleu_of)._asdict() for group in rows],
            }
            for name, own in counts.items()
        },
    }


def show(found: dict[str, Any]) -> None:
    console = Console(width=150)
    table = Table(title=f"BLEU by words of the source (95 %: by the bootstrap)\n{found['signature']}")
    table.add_column("")
    for group in found["groups"]:
        table.add_column(f"{group['from']}–{group['to']}\nn = {group['sentences']}", justify="right")
    table.add_column("all", justify="right")
    table.add_column("longest by shortest", justify="right")
    for name, one in found["systems"].items():
        table.add_row(
            name,
            *(f"{each['bleu']:.1f}\n{each['low']:.1f}–{each['high']:.1f}" for each in one["by_length"]),
            f"{one['all']['bleu']:.1f}\n{one['all']['low']:.1f}–{one['all']['high']:.1f}",
            f"{one['kept']['share']:.2f}\n{one['kept']['low']:.2f}–{one['kept']['high']:.2f}",
        )
    console.print(table)
    table = Table(title=f"Above {found['base']} (p: two-sided, paired bootstrap)")
    table.add_column("")
    for group in found["groups"]:
        table.add_column(f"{group['from']}–{group['to']}", justify="right")
    for name, one in found["systems"].items():
        if name != found["base"]:
            table.add_row(name, *(f"{each['difference']:+.1f}\np = {each['p']:.3f}" for each in one["above_base"]))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", metavar="name=RUN", help="a run, or a file with a translation a line")
    parser.add_argument("--source", type=Path, help="what was translated, where no run says so")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--language", default="en", help="of the translations")
    parser.add_argument("--edges", type=int, nargs="+", default=list(EDGES), help="lengths at which groups begin")
    parser.add_argument("--out", type=Path, help="a folder for translation_length.json, .svg and .zh.svg")
    options = parser.parse_args()
    if not options.systems:
        print("Nothing was given to measure: name=RUN, as in attention=runs/attention; --help says how.")
        return
    try:
        sources, references, systems = gathered(options.systems, options.source, options.reference)
        found = measured(sources, references, systems, options.language, options.edges)
    except (InputError, ScoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    show(found)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        place = options.out / "translation_length.json"
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        # the pen lies in docs/, and draws again from the numbers alone
        subprocess.run([sys.executable, str(DOCS / "translation_figure.py"), str(place)], check=True)


if __name__ == "__main__":
    main()
