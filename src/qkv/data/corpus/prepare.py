"""The first sentences of a corpus as a person would check them: the text, and under it the pieces, word by word."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from qkv.data.corpus.documents import BLOCK_BYTES, SourceFile, open_sources, read_blocks
from qkv.data.corpus.shards import CORPUS_PARTS, MANIFEST, STATE, Shards, hash_of
from qkv.data.corpus.workers import EncodedBlock, EncodeJob, encode_blocks
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE, Writer, manifest_of
from qkv.data.readers import AnyPath
from qkv.errors import InputError
from qkv.files import read_object, to_json, write_text
from qkv.text.segmenter import Cut, is_installed
from qkv.text.segmenter import find_segmenter as segmenter_of
from qkv.text.tokenizer import Tokenizer

HEADING = "The first sentences of the corpus, as they are written and as pieces. A word begins at each |\n\n"
INVISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}  # a character tokenizer has these as tokens


def sample_of(result: EncodedBlock, tokenizer: Tokenizer, name: str) -> str:
    """The beginning of a file; a blank line lies between documents."""
    lines = [f"# {name}"]
    document_begins = {0, *accumulate(result.documents.tolist())}
    begin = 0
    for number, (text, length) in enumerate(zip(result.sample, result.sentences.tolist(), strict=False)):
        tokens = result.tokens[begin : begin + length].tolist()
        starts = result.word_starts[begin : begin + length].tolist()
        if number in document_begins:
            lines.append("")
        lines += [" ".join(text.split()), "    " + pieces([tokenizer.token(id) for id in tokens], starts)]
        begin += length
    return "\n".join(lines) + "\n\n"


def pieces(tokens: list[str], starts: list[bool]) -> str:
    """
    >>> pieces(["un", "##happy", "北", "京", "。"], [True, False, True, False, True])
    '| un ##happy | 北 京 | 。'
    """
    marked = zip(("| " if start else "" for start in starts), tokens, strict=True)
    return " ".join(mark + INVISIBLE.get(token, token) for mark, token in marked)


# --- A corpus into shards: documents, sentences, ids and word starts, in files that training maps into memory.
#
# The files are read once, a block at a time, by as many processes as there are cores; memory stays the same however
# large
# they are. What is written depends on the corpus, the tokenizer and the settings alone: any number of processes
# gives the
# same bytes. A preparation that was killed goes on after its last whole shard when it is asked for again.
#
# What it leaves behind is described in `shards.py`.

SHARD_TOKENS = 1 << 22
_SMALL = 1 << 23  # bytes of sources for which starting other processes costs more than it gives
SAMPLED = 8  # files of which the sample shows the beginning
SAMPLE, TOKENIZER = "sample.txt", "tokenizer"
_OURS = ("shard-*.safetensors", "valid-*.safetensors", TOKEN_COUNTS_FILE, SAMPLE, STATE, MANIFEST)


@dataclass(frozen=True)
class _Settings:
    """What the shards depend on beside the corpus and the tokenizer."""

    segmenter: str
    hold_out: float
    shard_tokens: int
    block_bytes: int
    field: str


@dataclass(frozen=True)
class PrepareProgress:
    share: float  # of the files
    bytes: int  # of text
    documents: int
    tokens: int


def prepare_corpus(
    paths: AnyPath | Iterable[AnyPath],
    tokenizer: Tokenizer,
    out: AnyPath,
    *,
    workers: int | None = None,
    segmenter: str | Cut | None = None,
    hold_out: float = 0.005,
    shard_tokens: int = SHARD_TOKENS,
    block_bytes: int = BLOCK_BYTES,
    field: str = "text",
    overwrite: bool = False,
    progress: Callable[[PrepareProgress], None] | None = None,
) -> dict[str, Any]:
    """Prepare files for training and return the manifest; what is prepared already is left as it is.

    `segmenter` finds Chinese words: "rjieba", "none", or a function from a string to its words; left out, it is the
    tokenizer's own, else rjieba where that is installed. `hold_out` is the share of documents kept for evaluation.
    `workers` is the number of processes; with 1, or with a segmenter that another process could not import, all is done
    in this one. `overwrite` does away with what `out` holds of an earlier preparation; without it, one from other files
    or settings is an error.
    """
    files = open_sources(paths)
    _check(files, workers, hold_out, shard_tokens, block_bytes)
    cut, name = _choose_segmenter(segmenter, tokenizer)
    job = EncodeJob.of(tokenizer, cut, field)
    workers = _workers(workers, job, files)
    made_from = _describe_origin(files, tokenizer, _Settings(name, hold_out, shard_tokens, block_bytes, field))
    folder = Path(out)
    made = [one for one in (folder, *folder.parents) if not one.exists()]  # by us, if there is something to prepare
    begun = _resume_state(folder, made_from, files, overwrite)
    if MANIFEST in begun:
        return begun[MANIFEST]
    writer = Writer(folder, hold_out, shard_tokens)
    if begun:
        writer.go_on(begun)
    samples: list[str] = begun.get("samples", [])

    def keep() -> None:
        state = {**made_from, "modified": _modification_time(files), "samples": samples, **writer.state()}
        write_text(folder / STATE, to_json(state))

    keep()
    tokenizer.save(folder / TOKENIZER)
    with closing(encode_blocks(job, read_blocks(files, writer.place, block_bytes), workers)) as results:
        for block, result in results:
            if result.sample and block.place.offset == 0 and len(samples) < SAMPLED:
                samples.append(sample_of(result, tokenizer, block.source.path.name))
                write_text(folder / SAMPLE, HEADING + "".join(samples))
            if writer.add(block, result):
                keep()
            if progress is not None:
                progress(PrepareProgress(block.share, writer.counts["bytes"], writer.documents, writer.tokens))
    writer.write()
    if not writer.documents:
        _remove(folder)
        with suppress(OSError):  # somebody else has put something there
            for one in made:
                one.rmdir()
        raise InputError(f"there is no text in {', '.join(str(source.path) for source in files)}: nothing to prepare.")
    manifest = manifest_of(made_from, writer, tokenizer)
    write_text(folder / MANIFEST, to_json(manifest))
    (folder / STATE).unlink(missing_ok=True)
    return manifest


def _describe_origin(files: Sequence[SourceFile], tokenizer: Tokenizer, settings: _Settings) -> dict[str, Any]:
    """What the shards depend on: equal descriptions give equal shards."""
    return {
        "sources": [_describe_file(source) for source in files],
        "tokenizer": {
            "hash": hash_of(tokenizer),
            "kind": tokenizer.kind,
            "lowercase": tokenizer.lowercase,
            "vocabulary_size": tokenizer.size,
        },
        "settings": asdict(settings),
    }


def _check(
    files: Sequence[SourceFile], workers: int | None, hold_out: float, shard_tokens: int, block_bytes: int
) -> None:
    if not files:
        raise InputError("no files were given: there is nothing to prepare.")
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1, or left out.")
    if not 0 <= hold_out <= 0.5:
        raise InputError(f"hold_out is {hold_out}; it is the share of documents kept for evaluation, from 0 to 0.5.")
    if min(shard_tokens, block_bytes) < 1:
        raise InputError("shard_tokens and block_bytes must be at least 1.")


def _choose_segmenter(choice: str | Cut | None, tokenizer: Tokenizer) -> tuple[str | Cut, str]:
    """The segmenter to use, and what the manifest calls it."""
    if tokenizer.segmenter is not None:
        own = tokenizer.segmenter.partition(" ")[0]
        if choice not in (None, own):
            raise InputError(
                f"the tokenizer cuts Chinese words itself, by {own}, so no other segmenter can have a say. Leave it "
                "out, or take a tokenizer without one."
            )
        choice = own
    if choice is None:
        choice = "rjieba" if is_installed("rjieba") else "none"
    found = segmenter_of(choice)
    return choice, "none" if found is None else found.name


def _workers(workers: int | None, job: EncodeJob, files: Sequence[SourceFile]) -> int:
    if not job.travels():
        if workers is not None and workers > 1:
            raise InputError(
                "the segmenter cannot be used in several processes: they could not find it. Put the function into a "
                "module of its own, or use one worker."
            )
        return 1
    if workers is not None:
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if sum(source.size for source in files) > _SMALL else 1


def _describe_file(source: SourceFile) -> dict[str, Any]:
    """What a file is recognised by. Of a large one not all is read, but a piece of every part."""
    size = source.size
    digest = hashlib.sha256()
    with open(source.path, "rb") as stream:
        for piece in range(17):
            stream.seek(max(0, size - (1 << 16)) * piece // 16)
            digest.update(stream.read(1 << 16))
    return {"name": source.path.name, "bytes": size, "sampled_sha256": digest.hexdigest()}


def _modification_time(files: Sequence[SourceFile]) -> list[int]:
    return [source.path.stat().st_mtime_ns for source in files]


def _resume_state(
    folder: Path, made_from: dict[str, Any], files: Sequence[SourceFile], overwrite: bool
) -> dict[str, Any]:
    """What an earlier run left in the folder: nothing, the state it got to, or a manifest (under that name)."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Give the name of a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draft in (*folder.glob(".*.part"), *(folder / TOKENIZER).glob(".*.part")):
            # of a run that was killed
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        held = sorted(one.name for one in folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from error
    left = MANIFEST if MANIFEST in held else STATE
    if held and left not in held:
        raise InputError(f"{folder} holds something else already, such as {held[0]}. Give a new or an empty folder.")
    if held and overwrite:
        _remove(folder)
        return {}
    if not held:
        return {}
    found = read_object(folder / left)
    changed = [key for key in ("sources", "tokenizer") if found.get(key) != made_from[key]]
    changed += [key for key, value in made_from["settings"].items() if found.get("settings", {}).get(key) != value]
    if left == STATE and found.get("modified") != _modification_time(files):
        changed.append("sources")
    if changed and left == STATE and not any(found.get("shards", {}).values()):
        _remove(folder)  # it had not got anywhere
        return {}
    if changed:
        raise InputError(
            f"{folder} was {'prepared' if left == MANIFEST else 'begun'} from something else: other "
            f"{', '.join(dict.fromkeys(changed))}. Give another folder, or have this one overwritten (--overwrite)."
        )
    if left == STATE:
        return found
    for part in CORPUS_PARTS:
        Shards.open(folder, part)  # raises when a file has gone
    return {MANIFEST: found}


def _remove(folder: Path) -> None:
    """All that a preparation leaves, and nothing else; what marks the folder as one goes last."""
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    for pattern in _OURS:
        for file in folder.glob(pattern):
            file.unlink()
