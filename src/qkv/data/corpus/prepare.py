"""Prepare a corpus: documents, sentences, ids and word starts in shards that training maps into memory.

The files are read once, a block at a time, by as many processes as there are cores; memory does not depend on their
size. The output depends only on the corpus, the tokenizer and the settings, not on the number of processes. A killed
preparation resumes after its last complete shard when it is started again. `sample.txt` shows the first sentences with
their tokens.

`shards.py` describes the output.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from qkv.data.corpus.documents import BLOCK_BYTES, SourceFile, open_sources, read_blocks
from qkv.data.corpus.parts import WORK, PartsJob, Tasks, prepare_parts, remove_parts
from qkv.data.corpus.shards import CORPUS_PARTS, MANIFEST, STATE, Shards, hash_of, pack_arrays, write_arrays
from qkv.data.corpus.workers import EncodeJob, map_blocks
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE, Writer, manifest_of, sample_of, token_counts
from qkv.data.readers import AnyPath, TextFile
from qkv.data.stores import Store, open_store
from qkv.errors import InputError
from qkv.files import read_object, to_json, write_text
from qkv.text.segmenter import Cut, is_installed
from qkv.text.segmenter import find_segmenter as segmenter_of
from qkv.text.tokenizer import Tokenizer

HEADING = "The first sentences of the corpus, as they are written and as pieces. A word begins at each |\n\n"

SHARD_TOKENS = 1 << 22
_SMALL = 1 << 23  # bytes of sources below which one process is faster
SAMPLED = 8  # files in the sample
SAMPLE, TOKENIZER = "sample.txt", "tokenizer"
IN_PARTS = "in parts"
"""Field of the state of an unfinished preparation by tasks."""
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
    tasks: Tasks | None = None,
) -> dict[str, Any]:
    """Prepare files for training and return the manifest; a finished preparation is unchanged.

    `segmenter` finds Chinese words: "rjieba", "none", or a function from a string to its words; by default the
    tokenizer's own, or else rjieba if installed. `hold_out` is the share of documents held out for evaluation.
    `workers` is the number of processes; 1, or a segmenter that another process cannot import, uses this process only.
    `overwrite` removes an earlier preparation in `out`; without it, one from other files or settings is an error.
    With `tasks`, the work is done in parts wherever those run (parts.py), and `out` may be the URL of a store.
    """
    files = open_sources(paths)
    _check(files, workers, hold_out, shard_tokens, block_bytes)
    cut, name = _choose_segmenter(segmenter, tokenizer)
    job = EncodeJob.of(tokenizer, cut, field)
    settings = _Settings(name, hold_out, shard_tokens, block_bytes, field)
    if tasks is None:
        workers = _workers(workers, job, files)
    elif not job.travels():
        raise InputError("the segmenter cannot be imported by other machines. Put the function into a module.")
    store = open_store(out)
    if not (store.is_local or tasks):
        raise InputError(
            f"{store} is in an object store, where only a cluster writes. Add --cluster ADDRESS; --cluster local is "
            "this machine alone."
        )
    made_from = _describe_origin(files, tokenizer, settings)
    folder = Path(store.where)
    made = [one for one in (folder, *folder.parents) if store.is_local and not one.exists()]  # to remove if it is empty
    if store.is_local:
        _make_folder(folder)
    try:
        # what is finished is only read, perhaps from a disk that cannot be written
        with nullcontext() if store.exists(MANIFEST) and not overwrite else store.lock():
            begun = _resume_state(store, made_from, files, overwrite, tasks is not None)
            if MANIFEST in begun:
                return begun[MANIFEST]
            if tasks is not None:
                parts = PartsJob(
                    store.where if not store.is_local else str(folder.resolve()),
                    hashlib.sha256(to_json([made_from, _versions(files)]).encode()).hexdigest(),
                    job,
                    tuple(SourceFile(_absolute(source.path), source.kind) for source in files),
                    tuple(source.size for source in files),
                    tokenizer.size,
                    hold_out,
                    shard_tokens,
                    block_bytes,
                )
                return _in_parts(parts, tasks, made_from, tokenizer, files, progress)
            return _in_order(folder, begun, made_from, tokenizer, files, settings, job, workers or 1, progress)
    except _NoTextError:
        with suppress(OSError):  # not empty
            for one in made:
                one.rmdir()
        raise InputError(
            f"there is no text in {', '.join(str(source.path) for source in files)}: nothing to prepare."
        ) from None


class _NoTextError(Exception):
    """Nothing was found in the files."""


def _in_order(
    folder: Path,
    begun: dict[str, Any],
    made_from: dict[str, Any],
    tokenizer: Tokenizer,
    files: Sequence[SourceFile],
    settings: _Settings,
    job: EncodeJob,
    workers: int,
    progress: Callable[[PrepareProgress], None] | None,
) -> dict[str, Any]:
    """Prepare block after block, by processes of this machine."""
    writer = Writer(folder, settings.hold_out, settings.shard_tokens)
    if begun:
        writer.go_on(begun)
    samples: list[str] = begun.get("samples", [])

    def keep() -> None:
        state = {**made_from, "modified": _versions(files), "samples": samples, **writer.state()}
        write_text(folder / STATE, to_json(state))

    keep()
    tokenizer.save(folder / TOKENIZER)
    with closing(map_blocks(job, read_blocks(files, writer.place, settings.block_bytes), workers)) as results:
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
        _remove(open_store(folder))
        raise _NoTextError
    written = {part.name: part.shards for part in writer.parts}
    counts = token_counts(folder, written["train"], tokenizer.size)
    write_arrays(folder / TOKEN_COUNTS_FILE, {"counts": counts})
    manifest = manifest_of(made_from, written, writer.counts, counts, tokenizer)
    write_text(folder / MANIFEST, to_json(manifest))
    (folder / STATE).unlink(missing_ok=True)
    return manifest


def _in_parts(
    job: PartsJob,
    tasks: Tasks,
    made_from: dict[str, Any],
    tokenizer: Tokenizer,
    files: Sequence[SourceFile],
    progress: Callable[[PrepareProgress], None] | None,
) -> dict[str, Any]:
    """Prepare in parts, by tasks that may run on other machines."""
    store = open_store(job.out)
    versions = _versions(files)
    store.write_text(STATE, to_json({**made_from, "modified": versions, IN_PARTS: True}))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / TOKENIZER)
        for file in sorted((Path(folder) / TOKENIZER).iterdir()):
            store.put(f"{TOKENIZER}/{file.name}", file)

    def done(share: float, totals: dict[str, int]) -> None:
        if progress is not None:
            progress(PrepareProgress(share, totals["bytes"], totals["filled"], totals["tokens"]))

    made = prepare_parts(job, tasks, done, SAMPLED)
    if not (made.shards["train"] or made.shards["valid"]):
        _remove(store)
        raise _NoTextError
    if _versions(files) != versions:
        raise InputError(f"the files changed while {store} was being prepared. Start again with --overwrite.")
    store.write_text(SAMPLE, HEADING + "".join(made.samples))
    store.write(TOKEN_COUNTS_FILE, pack_arrays({"counts": made.token_counts})[0])
    manifest = manifest_of(made_from, made.shards, made.counts, made.token_counts, tokenizer)
    store.write_text(MANIFEST, to_json(manifest))
    store.remove(STATE)
    remove_parts(store)
    return manifest


def _absolute(path: TextFile) -> TextFile:
    return path.resolve() if isinstance(path, Path) else path


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
    with source.path.open("rb") as stream:
        for piece in range(17):
            stream.seek(max(0, size - (1 << 16)) * piece // 16)
            digest.update(stream.read(1 << 16))
    return {"name": source.path.name, "bytes": size, "sampled_sha256": digest.hexdigest()}


def _versions(files: Sequence[SourceFile]) -> list[int | str]:
    return [source.version for source in files]


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Give the name of a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from error


def _resume_state(
    store: Store, made_from: dict[str, Any], files: Sequence[SourceFile], overwrite: bool, in_parts: bool
) -> dict[str, Any]:
    """Return what an earlier run left in the folder: {}, its state, or {MANIFEST: its manifest}."""
    held = store.entries()
    left = MANIFEST if MANIFEST in held else STATE
    if held and left not in held:
        raise InputError(f"{store} already holds other files, such as {held[0]}. Give a new or an empty folder.")
    if store.is_local:
        _remove_drafts(Path(store.where))
    if held and overwrite:
        _remove(store)
        return {}
    if not held:
        return {}
    found = _read_state(store, left)
    changed = [key for key in ("sources", "tokenizer") if found.get(key) != made_from[key]]
    changed += [key for key, value in made_from["settings"].items() if found.get("settings", {}).get(key) != value]
    if left == STATE and found.get("modified") != _versions(files):
        changed.append("sources")
    nothing_yet = not any(found.get("shards", {}).values()) and not store.names(WORK)
    if left == STATE and nothing_yet and (changed or in_parts != (IN_PARTS in found)):
        _remove(store)
        return {}
    if changed:
        raise InputError(
            f"{store} was {'prepared' if left == MANIFEST else 'started'} from something else: other "
            f"{', '.join(dict.fromkeys(changed))}. Give another folder, or overwrite this one with --overwrite."
        )
    if left == STATE and in_parts != (IN_PARTS in found):
        if in_parts:
            raise InputError(f"{store} was started without --cluster. Resume it without, or add --overwrite.")
        raise InputError(f"{store} was started with --cluster. Resume it with --cluster, or add --overwrite.")
    if left == STATE:
        return found
    if {STATE, WORK} & set(held):  # of a run that was killed after its last file
        store.remove(STATE)
        remove_parts(store)
    if store.is_local:
        for part in CORPUS_PARTS:
            Shards.open(store.where, part)  # raises if a file is missing
    else:
        there = set(store.names())
        for name in (shard["file"] for part in CORPUS_PARTS for shard in found[part]["shards"]):
            if name not in there:
                raise InputError(f"{store.at(name)} is missing. Prepare the corpus again (--overwrite).")
    return {MANIFEST: found}


def _read_state(store: Store, name: str) -> dict[str, Any]:
    if store.is_local:
        return read_object(Path(store.where) / name)
    try:
        found: dict[str, Any] = json.loads(store.read(name))
        return found
    except ValueError as error:
        raise InputError(f"{store.at(name)} is damaged: {error}. Prepare the corpus again (--overwrite).") from None


def _remove_drafts(folder: Path) -> None:
    """Remove what a killed run left."""
    try:
        for place in (folder, folder / TOKENIZER, folder / WORK):
            for draft in place.glob(".*.part"):
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from error


def _remove(store: Store) -> None:
    """Remove all files of a preparation and no others; the files that identify the folder last."""
    remove_parts(store)
    ours = store.names(TOKENIZER)
    ours += [name for name in store.entries() if any(fnmatch(name, pattern) for pattern in _OURS)]
    for name in sorted(ours, key=lambda name: name in (STATE, MANIFEST)):
        store.remove(name)
    store.remove_folder(TOKENIZER)
