"""Arrays in files: the library of the format reads them, and a damaged file is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from qkv.data.corpus.shards import map_arrays, write_arrays
from qkv.errors import InputError
from qkv.files import sha256_of

ARRAYS: dict[str, NDArray[Any]] = {
    "bits": np.arange(5, dtype=np.uint8),
    "ids": np.arange(7, dtype=np.uint16),
    "wide": np.arange(3, dtype=np.uint32) << 20,
    "offsets": np.arange(4) << 40,
    "none": np.zeros(0, np.uint16),
}


def test_there_and_back(tmp_path: Path) -> None:
    written = write_arrays(tmp_path / "a.safetensors", ARRAYS)
    assert written.bytes == (tmp_path / "a.safetensors").stat().st_size
    assert written.sha256 == sha256_of(tmp_path / "a.safetensors")
    for found in (map_arrays(tmp_path / "a.safetensors"), load_file(tmp_path / "a.safetensors")):
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype and found[name].tolist() == array.tolist()
    assert all(array.flags.aligned for array in map_arrays(tmp_path / "a.safetensors").values())
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_mapped_array_cannot_be_changed(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.safetensors", ARRAYS)
    with pytest.raises(ValueError, match="read-only"):
        map_arrays(tmp_path / "a.safetensors")["ids"][0] = 1


@pytest.mark.parametrize("size", [0, 3, 8, 30, 300, -1])
def test_a_file_cut_short_is_named(tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.safetensors"
    write_arrays(file, ARRAYS)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(InputError, match="a.safetensors is damaged"):
        map_arrays(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a.safetensors cannot be read: No such file"):
        map_arrays(tmp_path / "a.safetensors")
