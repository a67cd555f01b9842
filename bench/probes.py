"""What each layer knows: linear probes for part of speech and for the sense of a word, of word2vec, ELMo and BERT.

    python bench/probes.py --models runs/word2vec runs/elmo runs/bert
    python bench/probes.py --models … --out FOLDER               # also probes.svg, probes.zh.svg and their numbers
    python bench/probes.py --models … --words 20000 --device cuda --data FOLDER

A model is a folder of ours or a run that wrote one; of word vectors also a file. Models stay as they are; only the
probe on top is fitted (probe_fit.py). FOLDER holds conll2003/ and wic/.

    part of speech   a word's vector → its tag. Fitted to eng.train (`--words` of it), scored on eng.testa.
    WiC              u and v of one word in two sentences: [u, v, |u − v|, u v] → the same sense? Fitted to train, the
                     penalty chosen on dev, scored on test; and beside it a threshold on the cosine of u and v.
    Python           the cosine of the two vectors of Python in two sentences of the lecture notes.

Intervals are Wilson's, 95 %: what another test set of this size would give, not another training of the model.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from probe_data import Pair, Tagged, read_pairs, read_tagged, some
from probe_fit import best, right, threshold
from probe_readers import Reader, WordToVector, open_reader
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from qkv.errors import InputError
from qkv.metrics.intervals import wilson_interval

ROOT = Path(__file__).resolve().parent.parent
SHARED, DOCS = ROOT.parent / "shared" / "data", ROOT / "docs"
HELD_OUT = 0.1
SNAKE, LANGUAGE = "He got bit by Python".split(), "Python is my favorite programming language".split()
Score = dict[str, Any]


def scored(successes: int, n: int) -> Score:
    low, high = wilson_interval(successes, n)
    return {"right": successes / n, "low": low, "high": high, "n": n}


def all_words(sentences: Sequence[Tagged]) -> tuple[list[list[str]], list[range]]:
    return [one.words for one in sentences], [range(len(one.words)) for one in sentences]


def tags_of(sentences: Sequence[Tagged], known: Mapping[str, int]) -> Tensor:
    """−1 for a tag that training never met: no probe can be right there."""
    return torch.tensor([known.get(tag, -1) for one in sentences for tag in one.tags])


def part_of_speech(reader: Reader, train: Sequence[Tagged], test: Sequence[Tagged]) -> list[Score]:
    """A score of every layer."""
    names = sorted({tag for one in train for tag in one.tags})
    known = {name: number for number, name in enumerate(names)}
    cut = max(1, round((1 - HELD_OUT) * len(train)))
    parts = []
    for sentences in (train[:cut], train[cut:] or train[:cut], test):
        x = reader.read(*all_words(sentences))
        parts.append((x, tags_of(sentences, known).to(x.device)))
    found = []
    for layer in range(len(reader.layers)):
        fit, held_out, tested = ((x[:, layer].float(), y) for x, y in parts)
        probe = best(fit, held_out, len(names))
        found.append({"penalty": probe.penalty, **scored(right(probe, *tested), len(tested[1]))})
    return found


def tag_baselines(train: Sequence[Tagged], test: Sequence[Tagged]) -> dict[str, Score]:
    """Without any vector: the most frequent tag, and the most frequent one of each word."""
    counts: dict[str, Counter[str]] = {}
    for one in train:
        for word, tag in zip(one.words, one.tags, strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    overall = sum(counts.values(), Counter())
    usual = overall.most_common(1)[0][0]
    pairs = [(word, tag) for one in test for word, tag in zip(one.words, one.tags, strict=True)]
    of_word = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return {
        "most frequent tag": scored(sum(tag == usual for _, tag in pairs), len(pairs)),
        "most frequent tag of the word": scored(
            sum(of_word.get(word, usual) == tag for word, tag in pairs), len(pairs)
        ),
    }


def both_vectors(reader: Reader, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """(P, K, D) each"""
    first = reader.read([pair.first for pair in pairs], [[pair.places[0]] for pair in pairs])
    second = reader.read([pair.second for pair in pairs], [[pair.places[1]] for pair in pairs])
    return first, second


def features(u: Tensor, v: Tensor) -> Tensor:
    """(P, D), (P, D) → (P, 4 D)"""
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def word_in_context(reader: Reader, parts: Mapping[str, Sequence[Pair]]) -> list[Score]:
    """A score of every layer; `cosine` is that of the threshold."""
    vectors = {part: both_vectors(reader, pairs) for part, pairs in parts.items()}
    labels = {
        part: torch.tensor([int(pair.same) for pair in pairs], device=vectors[part][0].device)
        for part, pairs in parts.items()
    }
    found = []
    for layer in range(len(reader.layers)):
        two = {part: (u[:, layer].float(), v[:, layer].float()) for part, (u, v) in vectors.items()}
        sets = {part: (features(u, v), labels[part]) for part, (u, v) in two.items()}
        probe = best(sets["train"], sets["dev"], 2)
        cosines = {part: functional.cosine_similarity(u, v) for part, (u, v) in two.items()}
        at = threshold(cosines["train"], labels["train"])
        above = int(((cosines["test"] > at).long() == labels["test"]).sum())
        n = len(labels["test"])
        found.append(
            {"penalty": probe.penalty, **scored(right(probe, *sets["test"]), n), "cosine": scored(above, n), "at": at}
        )
    return found


def python_twice(reader: Reader) -> list[float] | None:
    """The cosine of its two vectors, of every layer; None where word vectors do not have the word."""
    if isinstance(reader, WordToVector) and reader.vectors.find("Python") is None:
        return None
    u, v = reader.read([SNAKE, LANGUAGE], [[SNAKE.index("Python")], [LANGUAGE.index("Python")]])
    return functional.cosine_similarity(u.float(), v.float(), dim=-1).tolist()


def measured(reader: Reader, train: Sequence[Tagged], test: Sequence[Tagged], wic: Mapping[str, Sequence[Pair]]) -> Any:
    begin = time.perf_counter()
    found: dict[str, Any] = {"layers": reader.layers, "python": python_twice(reader)}
    if isinstance(reader, WordToVector):
        found["coverage"] = reader.coverage([word for one in test for word in one.words])
    found["part of speech"] = part_of_speech(reader, train, test)
    found["wic"] = word_in_context(reader, wic)
    return found | {"seconds": time.perf_counter() - begin}


def written(score: Score) -> str:
    return f"{100 * score['right']:.1f} ({100 * score['low']:.1f}–{100 * score['high']:.1f})"


def show(found: dict[str, Any]) -> None:
    console = Console(width=120)
    table = Table(title="Right of 100, with 95 % intervals")
    for heading in ("model", "layer", "part of speech", "WiC, probe", "WiC, cosine", "Python, cosine"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name, score in found["baselines"].items():
        table.add_row(name, "–", written(score), "", "", "")
    wic = found["wic chance"]
    table.add_row("the more frequent answer", "–", "", written(wic), "", "")
    for name, model in found["models"].items():
        for number, layer in enumerate(model["layers"]):
            pos, sense = model["part of speech"][number], model["wic"][number]
            cosine = "–" if model["python"] is None else f"{model['python'][number]:.3f}"
            table.add_row(name, layer, written(pos), written(sense), written(sense["cosine"]), cosine)
    console.print(table)
    for name, model in found["models"].items():
        if "coverage" in model:
            console.print(f"{name} has {100 * model['coverage']:.1f} % of the words of the test part.")
    size = found["words"]
    console.print(f"Probes for part of speech fitted to {size['train']:,} words, scored on {size['test']:,}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", type=Path, metavar="FOLDER", default=[])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--words", type=int, default=40_000, help="of CoNLL's training part; 0 for all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--out", type=Path, help="a folder for probes.json, probes.svg and probes.zh.svg")
    options = parser.parse_args()
    if not options.models:
        print("No models to look into: give their folders with --models.")
        return
    torch.set_num_threads(options.threads)
    try:
        found = probed(options)
    except InputError as error:
        sys.exit(f"error: {error}")
    show(found)
    save(found, options.json, options.out)


def probed(options: argparse.Namespace) -> dict[str, Any]:
    conll = options.data / "conll2003"
    train, test = some(read_tagged(conll / "eng.train"), options.words or None), read_tagged(conll / "eng.testa")
    wic = {part: read_pairs(options.data / "wic", part) for part in ("train", "dev", "test")}
    usual = sum(pair.same for pair in wic["train"]) * 2 >= len(wic["train"])
    found: dict[str, Any] = {
        "words": {"train": sum(len(one.words) for one in train), "test": sum(len(one.words) for one in test)},
        "baselines": tag_baselines(train, test),
        "wic chance": scored(sum(pair.same == usual for pair in wic["test"]), len(wic["test"])),
        "models": {},
    }
    for path in options.models:
        reader = open_reader(path, torch.device(options.device))
        name = reader.name if reader.name not in found["models"] else f"{reader.name} ({path.name})"
        found["models"][name] = measured(reader, train, test, wic)
        print(f"{name}: {found['models'][name]['seconds']:.0f} s", file=sys.stderr)
    return found


def save(found: dict[str, Any], file: Path | None, folder: Path | None) -> None:
    if file:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / "probes.json"
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        # the pen lies in docs/, and draws again from the numbers alone
        subprocess.run([sys.executable, str(DOCS / "measured_figures.py"), str(place)], check=True)


if __name__ == "__main__":
    main()
