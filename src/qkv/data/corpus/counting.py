"""Counting the words or characters of files of any size, in several processes: what a vocabulary is learned from.

Blocks of the files are split into raw chunks by worker processes; this one adds them up in the order of the files, so
the counts, and which rare words are dropped where there are too many, do not depend on the number of processes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from qkv.data.corpus.documents import BLOCK_BYTES, Block, open_sources, read_blocks
from qkv.data.corpus.workers import map_blocks
from qkv.data.readers import AnyPath, block_texts
from qkv.errors import InputError
from qkv.text.folding import fold_text
from qkv.text.segmenter import find_segmenter
from qkv.text.vocabulary import Kind, WordCounter, fold_case, half_character, raw_chunks

_SMALL = 1 << 23  # bytes of sources below which one process is faster


@dataclass(frozen=True)
class CountJob:
    """Everything that a worker needs."""

    kind: Kind
    segments: bool  # whether a segmenter finds Chinese words later
    fold: tuple[str, ...]

    def start(self) -> "Callable[[Block], CountedBlock]":
        return self.count

    def count(self, block: Block) -> "CountedBlock":
        split: Callable[[str], Iterable[str]] = str if self.kind == "character" else raw_chunks(self.segments)
        counts: Counter[str] = Counter()
        texts = 0
        for text in block_texts(block.source.path, block.source.kind, block.data, block.place.line):
            counts.update(split(fold_text(text, self.fold) if self.fold else text))
            texts += 1
        return CountedBlock(dict(counts), texts)


@dataclass(frozen=True)
class CountedBlock:
    counts: dict[str, int]
    texts: int


def count_files(
    paths: AnyPath | Iterable[AnyPath],
    kind: Kind,
    lowercase: bool,
    *,
    segmenter: str | None = None,
    fold: Sequence[str] = (),
    workers: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int], None] | None = None,
) -> "Counter[str]":
    """Count the words (or characters) of files as `count_words` does; `progress` is called with the texts so far."""
    files = open_sources(paths)
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1, or omitted.")
    if workers is None:
        workers = _cores() if sum(source.size for source in files) > _SMALL else 1
    cutter = None if segmenter is None else find_segmenter(segmenter)
    words, characters, texts = WordCounter(lowercase, cutter), Counter[str](), 0
    job = CountJob(kind, cutter is not None, tuple(fold))
    try:
        with closing(map_blocks(job, read_blocks(files, size=block_bytes), workers)) as results:
            for _, counted in results:
                if kind == "character":
                    characters.update(counted.counts)
                else:
                    words.add(counted.counts)
                texts += counted.texts
                if progress is not None:
                    progress(texts)
        return fold_case(characters, lowercase) if kind == "character" else words.finish()
    except UnicodeEncodeError as error:
        raise half_character(error.object[error.start]) from error


def _cores() -> int:
    from qkv.train.device import count_cores  # imports torch, which few verbs need

    return count_cores()
