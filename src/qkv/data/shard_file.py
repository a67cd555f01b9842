"""Arrays in a file, in the format of safetensors, to be mapped into memory instead of read.

The format (github.com/huggingface/safetensors): eight bytes with the length of a JSON header, the header (name → type,
shape, where), the arrays end to end. It is written here and not with the library because the library wants every array
as a copy in memory, and gives copies back.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.atomic import replaced_file
from qkv.errors import InputError

TYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I64": np.int64}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}


class Written(NamedTuple):
    bytes: int
    sha256: str


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Written:
    """Arrays of one dimension, whole or not at all; the widest come first, so that each begins at a multiple of its
    width."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        header[name] = {"dtype": NAMES[array.dtype], "shape": [len(array)], "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    pieces: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    pieces += [np.ascontiguousarray(array).data for _, array in ordered]
    with replaced_file(path) as part, open(part, "wb") as stream:
        for piece in pieces:
            digest.update(piece)
            stream.write(piece)
    return Written(8 + len(text) + end, digest.hexdigest())


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name; nothing is read from the disk before it is used."""
    try:
        content = np.asarray(np.memmap(path, np.uint8, "r"))
        begin = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:begin].tobytes())
        arrays = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            arrays[name] = content[begin + first : begin + last].view(TYPES[entry["dtype"]])
            if [len(arrays[name])] != entry["shape"]:
                raise ValueError(f"{name} is cut short")
        return arrays
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error}. Prepare the corpus again.") from error


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
