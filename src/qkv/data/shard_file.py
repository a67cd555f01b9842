"""Arrays in a file, in the format of safetensors, to be mapped into memory instead of read.

The format (github.com/huggingface/safetensors): eight bytes with the length of a JSON header, the header (name → type,
shape, where), the arrays end to end. It is written here and not with the library because the library wants every array
as a copy in memory, and gives copies back.

A file is written whole or not at all: beside its target, flushed to the disk, then renamed.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError

TYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I64": np.int64}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
DRAFT = ".part"  # the ending of a file that is not yet whole


class Written(NamedTuple):
    bytes: int
    sha256: str


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A stream that takes the place of `path` when the block ends without an error."""
    draft = path.with_name(f".{path.name}.{os.getpid()}{DRAFT}")
    try:
        with open(draft, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}. What was finished before it is kept: mend this and "
            "run the same again."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as stream:
        stream.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Written:
    """One-dimensional arrays of the types above, the widest first, so that every one begins at a multiple of its width."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        header[name] = {"dtype": NAMES[array.dtype], "shape": [len(array)], "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with whole_file(path) as stream:
        for part in (len(text).to_bytes(8, "little"), text, *(memoryview(array).cast("B") for _, array in ordered)):
            digest.update(part)
            stream.write(part)
    return Written(8 + len(text) + end, digest.hexdigest())


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name; nothing is read before it is used."""
    try:
        content = np.asarray(np.memmap(path, np.uint8, "r"))
        begin = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:begin].tobytes())
        arrays = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            array = content[begin + first : begin + last].view(TYPES[entry["dtype"]])
            if [len(array)] != entry["shape"]:
                raise ValueError(f"{name} is cut short")
            arrays[name] = array
        return arrays
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error}. Prepare the corpus again.") from error


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
