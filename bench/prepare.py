"""Corpus to shards: qkv beside `datasets` (map, group, save) and a bare tokenizer, same text, same ids, two cores.

    python bench/prepare.py                    # 12 MB of each language, 3 rounds; about 5 minutes
    python bench/prepare.py --megabytes 4 --rounds 1 --no-memory

    datasets    load the lines, tokenize them, join and cut them into blocks of 512 as transformers' run_mlm.py does,
                save; two processes; nothing beside the ids is kept
    bare        the tokenizer's own encode_batch_fast on all lines, two threads, and one array written
    qkv         prepare with two workers: documents, sentences, ids, word starts from the pieces; hashes and manifest
    qkv, words  the same with Chinese words from rjieba

Each runs in a process of its own, imports not counted, and they take turns; a figure is the median over rounds of the
ratio within a round. The ids of all are compared. Where others use the machine too, CPU time is the fairer
measure. Memory is the largest sum, over a contender and its child processes, of what is theirs alone and of their part
of what they share (PSS).

The text is Wikipedia when ../shared/data (or QKV_DATA) is there, Python's own documentation when not.
"""

import argparse
import hashlib
import importlib
import lzma
import os
import pydoc_data.topics
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from qkv.text.tokenizer import Tokenizer

DATA = Path(os.environ.get("QKV_DATA", Path(__file__).parents[2] / "shared" / "data"))
LANGUAGES = {"en": ("enwiki_text", "bert-base-uncased"), "zh": ("zhwiki_text", "bert-base-chinese")}
CONTENDERS = ("datasets", "bare", "qkv", "qkv, words")


def write_text(language: str, size: int, path: Path) -> Path:
    """About `size` bytes of whole lines."""
    left = size
    with open(path, "wb") as out:
        for file in sorted((DATA / LANGUAGES[language][0]).glob("train-*.txt.xz")):
            with lzma.open(file) as stream:
                for line in stream:
                    out.write(line)
                    left -= len(line)
                    if left <= 0:
                        return path
        if left == size:  # no data sets here
            text = "\n\n".join(pydoc_data.topics.topics.values()).encode()
            out.write(text * (size // len(text) + 1))
    return path


def tokenizer_for(language: str, corpus: Path) -> Tokenizer:
    vocabulary = DATA / "vocab" / f"{LANGUAGES[language][1]}-vocab.txt"
    if vocabulary.exists():
        return Tokenizer.load(vocabulary)
    return Tokenizer.train(corpus.read_text(encoding="utf-8").split("\n")[:5000], vocabulary_size=8000)


# The contenders: each prepares `corpus` into `out` and returns the ids, to be compared after the time is taken.


def run_datasets(corpus: Path, tokenizer_folder: Path, out: Path) -> Callable[[], np.ndarray]:
    from transformers import AutoTokenizer

    datasets: Any = importlib.import_module("datasets")  # it has no types
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.model_max_length = 1 << 40  # or it warns of long lines

    def tokenize(rows: dict[str, list[str]]) -> dict[str, Any]:
        found = tokenizer(
            rows["text"], add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
        )
        return {"input_ids": found["input_ids"]}

    def group(rows: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = [id for row in rows["input_ids"] for id in row]
        return {"input_ids": [joined[start : start + 512] for start in range(0, len(joined), 512)]}

    def work() -> None:
        text = datasets.Dataset.from_text(str(corpus), cache_dir=str(out / "cache"))
        ids = text.map(tokenize, batched=True, num_proc=2, remove_columns=["text"])
        ids.map(group, batched=True, num_proc=2).save_to_disk(out / "saved", num_proc=2)

    timed(work)
    return lambda: np.concatenate([np.array(row) for row in datasets.load_from_disk(out / "saved")["input_ids"]])


def run_bare(corpus: Path, tokenizer_folder: Path, out: Path) -> Callable[[], np.ndarray]:
    backend = Tokenizer.load(tokenizer_folder).backend

    def work() -> None:
        lines = corpus.read_text(encoding="utf-8").split("\n")
        ids: list[int] = []
        for start in range(0, len(lines), 10_000):
            for one in backend.encode_batch_fast(lines[start : start + 10_000], add_special_tokens=False):
                ids += one.ids
        np.save(out / "ids.npy", np.array(ids, np.uint16))

    timed(work)
    return lambda: np.load(out / "ids.npy")


def run_qkv(corpus: Path, tokenizer_folder: Path, out: Path, segmenter: str = "none") -> Callable[[], np.ndarray]:
    from qkv.data.corpus.prepare import prepare_corpus
    from qkv.data.corpus.shards import Shards

    tokenizer = Tokenizer.load(tokenizer_folder)
    timed(lambda: prepare_corpus(corpus, tokenizer, out / "shards", workers=2, segmenter=segmenter, hold_out=0))
    shards = Shards.open(out / "shards")
    return lambda: shards.tokens(np.array([0]), np.array([shards.n_tokens]))


RUN: dict[str, Callable[[Path, Path, Path], Callable[[], np.ndarray]]] = {
    "datasets": run_datasets,
    "bare": run_bare,
    "qkv": run_qkv,
    "qkv, words": partial(run_qkv, segmenter="rjieba"),
}


def timed(work: Callable[[], Any]) -> None:
    begin, before = time.perf_counter(), sum(os.times()[:4])
    work()
    seconds, processor = time.perf_counter() - begin, sum(os.times()[:4]) - before  # of child processes too
    print("seconds", seconds, processor, flush=True)


def contend(name: str, corpus: str, tokenizer_folder: str, out: str) -> None:
    """What a contender's own process does."""
    ids = RUN[name](Path(corpus), Path(tokenizer_folder), Path(out))()
    print("ids", len(ids), hashlib.sha256(ids.astype(np.uint32).tobytes()).hexdigest())


# Watching them


def memory_of(process: int) -> int:
    """Bytes of a process and its children; 0 when they are gone or the system does not say."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        threads = [one for one in Path(f"/proc/{process}/task").iterdir() if one.name != str(process)]
        children += [child for thread in threads for child in (thread / "children").read_text().split()]
    except (OSError, IndexError):
        return 0
    own = next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:")), 0)
    return own + sum(memory_of(int(child)) for child in children)


def watched(name: str, corpus: Path, tokenizer_folder: Path) -> dict[str, Any]:
    """Run a contender in a process of its own: seconds, a hash of the ids, the peak of memory while it worked."""
    out = Path(tempfile.mkdtemp(prefix="bench-prepare-", dir=corpus.parent))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "RAYON_NUM_THREADS": "2"}
    environment["TOKENIZERS_PARALLELISM"] = str(name == "bare").lower()
    command = [sys.executable, __file__, "--contend", name, str(corpus), str(tokenizer_folder), str(out)]
    peak, done = 0, threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:

        def look() -> None:
            nonlocal peak
            while not done.wait(0.05):
                peak = max(peak, memory_of(process.pid))

        watcher = threading.Thread(target=look)
        watcher.start()
        assert process.stdout is not None
        found: dict[str, Any] = {}
        for line in process.stdout:
            key, *values = line.split()
            found[key] = values
            done.set()
        done.set()
        watcher.join()
    shutil.rmtree(out)
    if process.returncode:
        raise SystemExit(f"{name} failed")
    seconds, processor = map(float, found["seconds"])
    return {"seconds": seconds, "processor": processor, "ids": found["ids"], "peak": peak}


def speed(console: Console, folder: Path, megabytes: float, rounds: int) -> None:
    table = Table(title=f"{megabytes:g} MB a language, median of {rounds} rounds, equal ids")
    for heading in ("", "MB/s", "× datasets", "× bare", "CPU s/MB", "× datasets", "peak MB"):
        table.add_column(heading, justify="left" if not heading else "right")
    for language in LANGUAGES:
        corpus = write_text(language, int(megabytes * 1e6), folder / f"{language}.txt")
        tokenizer_for(language, corpus).save(folder / language)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        for _ in range(rounds):
            for name in CONTENDERS:
                results[name].append(watched(name, corpus, folder / language))
        assert len({tuple(one["ids"]) for runs in results.values() for one in runs}) == 1, "the ids differ"
        size = corpus.stat().st_size / 1e6

        def ratio(name: str, to: str, key: str, results: dict[str, list[dict[str, Any]]] = results) -> float:
            pairs = zip(results[to], results[name], strict=True)
            return statistics.median(other[key] / own[key] for other, own in pairs)

        for name in CONTENDERS:
            table.add_row(
                f"{language}  {name}",
                f"{size / statistics.median(one['seconds'] for one in results[name]):.1f}",
                f"{ratio(name, 'datasets', 'seconds'):.2f}",
                f"{ratio(name, 'bare', 'seconds'):.2f}",
                f"{statistics.median(one['processor'] for one in results[name]) / size:.2f}",
                f"{ratio(name, 'datasets', 'processor'):.2f}",
                f"{max(one['peak'] for one in results[name]) / 1e6:.0f}",
            )
        table.add_section()
    console.print(table)


def memory(console: Console, folder: Path, megabytes: float) -> None:
    """The peak for a corpus in both languages and for one ten times as large."""
    peaks = []
    for size in (megabytes, 10 * megabytes):
        corpus = folder / "both.txt"
        with open(corpus, "wb") as out:
            for language in LANGUAGES:
                with open(write_text(language, int(size * 1e6), folder / "part.txt"), "rb") as part:
                    shutil.copyfileobj(part, out)
        tokenizer_for("zh", corpus).save(folder / "both")
        peaks.append(watched("qkv, words", corpus, folder / "both")["peak"] / 1e6)
    console.print(
        f"qkv, words: peak {peaks[0]:.0f} MB of memory for {2 * megabytes:g} MB of text, {peaks[1]:.0f} MB for "
        f"{20 * megabytes:g} MB: {peaks[1] / max(1, peaks[0]):.2f} ×"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-memory", action="store_true", help="leave out the run on ten times the text")
    parser.add_argument("--contend", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        contend(*options.contend)
        return
    console = Console()
    with tempfile.TemporaryDirectory(prefix="bench-prepare-") as name:
        speed(console, Path(name), options.megabytes, options.rounds)
        if not options.no_memory:
            memory(console, Path(name), options.megabytes)


if __name__ == "__main__":
    main()
