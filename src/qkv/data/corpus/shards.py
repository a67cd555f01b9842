"""A prepared corpus: token ids in memory-mapped files, with the boundaries of words, sentences and documents.

    DIR/manifest.json              origin, settings and totals; written last, so its presence means: complete
    DIR/shard-00000.safetensors    training documents: four arrays,
        tokens                         ids, two bytes each if the vocabulary allows it
        word_starts                    one bit per token: whether a word begins here
        sentences                      token index of the beginning of each sentence; and the end
        documents                      sentence index of the beginning of each document; and the end
    DIR/valid-00000.safetensors    held-out documents, in the same form
    DIR/tokenizer/                 the tokenizer of the ids
    DIR/token_counts.safetensors   count of each id in the training documents
    DIR/sample.txt                 the first sentences, for people

A document may continue in the next shard; the views over all shards show it as one.

The files have the safetensors format (github.com/huggingface/safetensors): eight bytes with the length of a JSON
header, the header (name → type, shape, offsets), the concatenated arrays. They are written here because the library
copies every array in memory, both on writing and on reading.

What this file does NOT do: create such a folder. `prepare.py` does.
"""

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.data.stores import check_name, is_url, place_of
from qkv.errors import InputError, did_you_mean
from qkv.files import read_object, replaced_file, sha256_of
from qkv.text.tokenizer import Tokenizer

_TYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I64": np.int64}


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated indices of all ranges: starts[0], starts[0] + 1, …, starts[1], …

    >>> ranges(np.array([10, 20, 30]), np.array([2, 0, 3])).tolist()
    [10, 11, 30, 31, 32]
    """
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)
    # a cumulative sum: 1 inside a range, a jump at its beginning (np.repeat would hold the interpreter lock)
    steps = np.ones(int(ends[-1]), np.int64)
    steps[0] = starts[0]
    steps[ends[:-1]] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, out=steps)


class _Written(NamedTuple):
    bytes: int
    sha256: str


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[list[bytes | memoryview], _Written]:
    """Return the content of a file of arrays of one dimension; the widest types first, so that all are aligned."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    types = {np.dtype(kind): name for name, kind in _TYPES.items()}
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        header[name] = {"dtype": types[array.dtype], "shape": [len(array)], "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    pieces: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    pieces += [np.ascontiguousarray(array).data.cast("B") for _, array in ordered if len(array)]
    for piece in pieces:
        digest.update(piece)
    return pieces, _Written(8 + len(text) + end, digest.hexdigest())


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> _Written:
    """Write such a file atomically."""
    pieces, written = pack_arrays(arrays)
    with replaced_file(path) as part, open(part, "wb") as stream:
        for piece in pieces:
            stream.write(piece)
    return written


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a file into memory, by name."""
    try:
        return unpack_arrays(np.asarray(np.memmap(path, np.uint8, "r")), str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except InputError:
        raise
    except ValueError as error:  # an empty file cannot be mapped
        raise _damaged(str(path), error) from error


def unpack_arrays(content: NDArray[np.uint8], path: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in the content of a file, by name, without copying them."""
    try:
        begin = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:begin].tobytes())
        arrays = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            arrays[name] = content[begin + first : begin + last].view(_TYPES[entry["dtype"]])
            if [len(arrays[name])] != entry["shape"]:
                raise ValueError(f"{name} is truncated")
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> InputError:
    return InputError(f"{path} is damaged: {error}. Prepare the corpus again.")


SHARDS_FORMAT = "qkv shards 1"
MANIFEST = "manifest.json"
STATE = "unfinished.json"
CORPUS_PARTS = ("train", "valid")


class Shards:
    """One part of a prepared corpus: all its shards as one. Positions are token and sentence indices of the part."""

    def __init__(self, folder: Path, part: str, manifest: dict[str, Any]) -> None:
        self.folder, self.part, self.manifest = folder, part, manifest
        self._shards = manifest[part]["shards"]
        self._files = [folder / check_name(shard["file"]) for shard in self._shards]
        self._arrays: list[dict[str, NDArray[Any]] | None] = [None] * len(self._files)
        self._token_bases = _bases(shard["tokens"] for shard in self._shards)
        self._sentence_offsets: NDArray[np.int64] | None = None
        self._document_offsets: NDArray[np.int64] | None = None

    @classmethod
    def open(cls, folder: str | Path, part: str = "train") -> "Shards":
        """Read the manifest and check the size of every file; `verify` compares hashes."""
        if is_url(folder):
            raise InputError(
                f"{place_of(folder)} is in an object store, and shards are mapped into memory from a disk. Copy the "
                "folder to each machine that trains, and give the copy."
            )
        folder = Path(folder)
        if part not in CORPUS_PARTS:
            raise InputError(f"there is no part {part!r} of a corpus, only {', '.join(CORPUS_PARTS)}.")
        shards = cls(folder, part, read_manifest(folder))
        for file, shard in zip(shards._files, shards._shards, strict=True):
            size = file.stat().st_size if file.is_file() else None
            if size != shard["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes instead of {shard['bytes']:,}"
                raise InputError(f"{file} {found}. Copy the folder again, or prepare the corpus again (--overwrite).")
        return shards

    @property
    def n_tokens(self) -> int:
        return self.manifest[self.part]["tokens"]

    @property
    def n_sentences(self) -> int:
        return self.manifest[self.part]["sentences"]

    @property
    def n_documents(self) -> int:
        return self.manifest[self.part]["documents"]

    @property
    def vocabulary_size(self) -> int:
        return self.manifest["tokenizer"]["vocabulary_size"]

    @property
    def tokenizer_hash(self) -> str:
        return self.manifest["tokenizer"]["hash"]

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the folder and check that the ids belong to it."""
        tokenizer = Tokenizer.load(self.folder / "tokenizer")
        self.check_tokenizer(tokenizer, str(self.folder / "tokenizer"))
        return tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer, name: str) -> None:
        """Raise unless the shards were made with this tokenizer; `name` is its name in the message."""
        if hash_of(tokenizer) != self.tokenizer_hash:
            raise InputError(
                f"{self.folder} was prepared with another tokenizer than {name}, so its ids mean other tokens. "
                "Prepare the corpus again with that tokenizer."
            )

    @property
    def sentence_offsets(self) -> NDArray[np.int64]:
        """(n_sentences + 1,): token index of the beginning of each sentence, and the end."""
        if self._sentence_offsets is None:
            found = [self._array(shard, "sentences")[:-1] + base for shard, base in enumerate(self._token_bases[:-1])]
            self._sentence_offsets = np.concatenate([*found, self._token_bases[-1:]])
        return self._sentence_offsets

    @property
    def document_offsets(self) -> NDArray[np.int64]:
        """(n_documents + 1,): sentence index of the beginning of each document, and the end."""
        if self._document_offsets is None:
            bases = _bases(shard["sentences"] for shard in self._shards)
            found = [
                self._array(number, "documents")[int(shard["goes_on"]) : -1] + bases[number]
                for number, shard in enumerate(self._shards)
            ]
            self._document_offsets = np.concatenate([*found, bases[-1:]])
        return self._document_offsets

    def tokens(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the concatenated ids of many ranges; a range may span shards."""
        ids = np.empty(int(lengths.sum()), np.int64)
        for shard, places, out in self._by_shard(starts, lengths):
            ids[out] = self._array(shard, "tokens")[places]
        return ids

    def word_starts(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether a word begins at each token of the ranges."""
        begins = np.empty(int(lengths.sum()), np.bool_)
        for shard, places, out in self._by_shard(starts, lengths):
            begins[out] = self._array(shard, "word_starts")[places >> 3] >> (places & 7).astype(np.uint8) & 1
        return begins

    def verify(self) -> None:
        """Read every file and compare its hash with the manifest's."""
        for file, shard in zip(self._files, self._shards, strict=True):
            if sha256_of(file) != shard["sha256"]:
                raise InputError(f"{file} is damaged: its content differs from the manifest. Copy it again.")

    def _by_shard(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Split ranges by shard: (shard, positions in it, positions in the result)."""
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
        ends = starts + lengths
        if not len(starts):
            return []
        if starts.min() < 0 or ends.max() > self._token_bases[-1]:
            raise IndexError(f"a range is outside the {self._token_bases[-1]:,} tokens of {self.folder}")
        shard = np.searchsorted(self._token_bases, starts, side="right") - 1
        parts = np.searchsorted(self._token_bases, ends) - shard  # number of shards that a range spans
        shard = ranges(shard, parts)
        starts = np.maximum(np.repeat(starts, parts), self._token_bases[shard])
        lengths = np.minimum(np.repeat(ends, parts), self._token_bases[shard + 1]) - starts
        begins = np.cumsum(lengths) - lengths
        order = np.argsort(shard, kind="stable")  # the ranges of a batch come from all shards
        cuts = [0, *(np.flatnonzero(np.diff(shard[order])) + 1).tolist(), len(shard)]
        found = []
        for chosen in (order[begin:end] for begin, end in pairwise(cuts)):
            number, sizes = int(shard[chosen[0]]), lengths[chosen]
            places = ranges(starts[chosen] - self._token_bases[number], sizes)
            found.append((number, places, ranges(begins[chosen], sizes)))
        return found

    def _array(self, shard: int, name: str) -> NDArray[Any]:
        arrays = self._arrays[shard]
        if arrays is None:
            arrays = self._arrays[shard] = map_arrays(self._files[shard])
        return arrays[name]


def read_manifest(folder: Path) -> dict[str, Any]:
    if folder.is_file():
        raise InputError(
            f"{folder} is a file, not a prepared corpus. Run qkv prepare first: qkv prepare {folder.name} "
            "--tokenizer FOLDER --out SHARDS; then give SHARDS."
        )
    if not folder.is_dir():
        siblings = (one.name for one in folder.parent.iterdir()) if folder.parent.is_dir() else ()
        raise InputError(f"there is no folder {folder}.{did_you_mean(folder.name, siblings)}")
    if not (folder / MANIFEST).is_file():
        if (folder / STATE).is_file():
            raise InputError(f"{folder} is not finished: run the same `qkv prepare` again to resume it.")
        raise InputError(f"{folder} is not a prepared corpus: it has no {MANIFEST}. `qkv prepare` makes one.")
    manifest = read_object(folder / MANIFEST)
    if manifest.get("format") != SHARDS_FORMAT:
        raise InputError(
            f"{folder / MANIFEST} has the format {manifest.get('format')!r}; this version reads {SHARDS_FORMAT!r}. "
            "Prepare the corpus again."
        )
    return manifest


def hash_of(tokenizer: Tokenizer) -> str:
    """Return a hash that is equal for tokenizers with the same ids for every text."""
    state = json.loads(tokenizer.backend.to_str())
    for part in ("version", "truncation", "padding", "post_processor", "decoder"):
        state.pop(part, None)
    if tokenizer.segmenter is not None:
        state["segmenter"] = tokenizer.segmenter
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _bases(sizes: Any) -> NDArray[np.int64]:
    """Return the offset of each when concatenated, and the end."""
    return np.cumsum([0, *sizes], dtype=np.int64)
