"""Prepare a corpus: documents, sentences, ids and word starts in shards that training maps into memory.

The files are read once, a block at a time, by as many processes as there are cores; memory does not depend on their
size. The output depends only on the corpus, the tokenizer and the settings, not on the number of processes. A killed
preparation resumes after its last complete shard when it is started again. `sample.txt` shows the first sentences with
their tokens.

`shards.py` describes the output.
"""

import hashlib
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
    """Format the first sentences of a file, with blank lines between documents."""
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


SHARD_TOKENS = 1 << 22
_SMALL = 1 << 23  # bytes of sources below which one process is faster
SAMPLED = 8  # files in the sample
SAMPLE, TOKENIZER = "sample.txt", "tokenizer"
_OURS = ("shard-*.safetensors", "valid-*.safetensors", TOKEN_COUNTS_FILE, SAMPLE, STATE, MANIFEST)


@dataclass(frozen=True)
class _Settings:
    """Settings on which the shards depend, in addition to the corpus and the tokenizer."""

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
    """Prepare files for training and return the manifest; a finished preparation is unchanged.

    `segmenter` finds Chinese words: "rjieba", "none", or a function from a string to its words; by default the
    tokenizer's own, or else rjieba if installed. `hold_out` is the share of documents held out for evaluation.
    `workers` is the number of processes; 1, or a segmenter that another process cannot import, uses this process only.
    `overwrite` removes an earlier preparation in `out`; without it, one from other files or settings is an error.
    """
    files = open_sources(paths)
    _check(files, workers, hold_out, shard_tokens, block_bytes)
    cut, name = _choose_segmenter(segmenter, tokenizer)
    job = EncodeJob.of(tokenizer, cut, field)
    workers = _workers(workers, job, files)
    made_from = _describe_origin(files, tokenizer, _Settings(name, hold_out, shard_tokens, block_bytes, field))
    folder = Path(out)
    made = [one for one in (folder, *folder.parents) if not one.exists()]  # to remove again if there is no text
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
        with suppress(OSError):  # not empty
            for one in made:
                one.rmdir()
        raise InputError(f"there is no text in {', '.join(str(source.path) for source in files)}: nothing to prepare.")
    manifest = manifest_of(made_from, writer, tokenizer)
    write_text(folder / MANIFEST, to_json(manifest))
    (folder / STATE).unlink(missing_ok=True)
    return manifest


def _describe_origin(files: Sequence[SourceFile], tokenizer: Tokenizer, settings: _Settings) -> dict[str, Any]:
    """Describe everything that determines the shards: equal descriptions give equal shards."""
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
        raise InputError(f"workers is {workers}; it must be at least 1, or omitted.")
    if not 0 <= hold_out <= 0.5:
        raise InputError(f"hold_out is {hold_out}; it must be a share of documents from 0 to 0.5.")
    if min(shard_tokens, block_bytes) < 1:
        raise InputError("shard_tokens and block_bytes must be at least 1.")


def _choose_segmenter(choice: str | Cut | None, tokenizer: Tokenizer) -> tuple[str | Cut, str]:
    """Return the segmenter to use, and its name in the manifest."""
    if tokenizer.segmenter is not None:
        own = tokenizer.segmenter.partition(" ")[0]
        if choice not in (None, own):
            raise InputError(
                f"the tokenizer already segments Chinese words with {own}, so no other segmenter can be used. Omit it, "
                "or use a tokenizer without a segmenter."
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
                "the segmenter cannot be imported by other processes. Put the function into a "
                "module, or use one worker."
            )
        return 1
    if workers is not None:
        return workers
    if sum(source.size for source in files) <= _SMALL:
        return 1
    from qkv.train.device import count_cores  # imports torch, which a process that encodes does not need

    return count_cores()


def _describe_file(source: SourceFile) -> dict[str, Any]:
    """Identify a file by name, size and the hash of 17 samples spread over it."""
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
    """Return what an earlier run left in the folder: {}, its state, or {MANIFEST: its manifest}."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Give the name of a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draft in (*folder.glob(".*.part"), *(folder / TOKENIZER).glob(".*.part")):
            # left by a killed run
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        held = sorted(one.name for one in folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from error
    left = MANIFEST if MANIFEST in held else STATE
    if held and left not in held:
        raise InputError(f"{folder} already holds other files, such as {held[0]}. Give a new or an empty folder.")
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
        _remove(folder)  # no shard was written yet
        return {}
    if changed:
        raise InputError(
            f"{folder} was {'prepared' if left == MANIFEST else 'started'} from something else: other "
            f"{', '.join(dict.fromkeys(changed))}. Give another folder, or overwrite this one with --overwrite."
        )
    if left == STATE:
        return found
    for part in CORPUS_PARTS:
        Shards.open(folder, part)  # raises if a file is missing
    return {MANIFEST: found}


def _remove(folder: Path) -> None:
    """Remove all files of a preparation and no others; the files that identify the folder last."""
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    for pattern in _OURS:
        for file in folder.glob(pattern):
            file.unlink()
