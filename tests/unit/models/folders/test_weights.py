import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from qkv.errors import InputError
from qkv.models.folders.weights import SCRATCH_BYTES, are_equal, open_weights, read_header


def some_tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "a": torch.randn(7, 5, generator=generator),
        "b": torch.randn(3, generator=generator),
        "empty": torch.empty(0, 4),
        "half": torch.randn(4, 4, generator=generator).to(torch.bfloat16),
        "position_ids": torch.arange(6).view(1, 6),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(some_tensors(), tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def test_names_shapes_types_and_values(folder: Path) -> None:
    weights = open_weights(folder)
    assert weights.source == folder / "model.safetensors"
    assert set(weights.tensors) == set(some_tensors())
    for name, expected in some_tensors().items():
        stored = weights.tensors[name]
        assert (stored.shape, f"torch.{stored.dtype}") == (tuple(expected.shape), str(expected.dtype))
        assert torch.equal(stored.mapped(), expected)
        for dtype in (expected.dtype, torch.float32):
            destination = torch.full(expected.shape, 9, dtype=dtype)
            stored.read_into(destination)
            assert torch.equal(destination, expected.to(dtype))


def test_a_mapped_tensor_is_a_view_and_writing_to_it_leaves_the_file_alone(folder: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    stored = open_weights(folder).tensors["a"]
    one, two = stored.mapped(), stored.mapped()
    assert one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()
    one.add_(1.0)
    assert torch.equal(two, some_tensors()["a"] + 1.0)
    assert (folder / "model.safetensors").read_bytes() == before
    assert torch.equal(open_weights(folder).tensors["a"].mapped(), some_tensors()["a"])


def test_a_tensor_outlives_its_file(folder: Path) -> None:
    tensor = open_weights(folder).tensors["a"].mapped()
    (folder / "model.safetensors").unlink()
    assert torch.equal(tensor, some_tensors()["a"])


def test_a_long_conversion_goes_piece_by_piece(tmp_path: Path) -> None:
    values = torch.arange(SCRATCH_BYTES // 2 + 12_345).remainder(251).to(torch.float16)  # more than one scratch buffer
    save_file({"a": values}, tmp_path / "model.safetensors")
    destination = torch.empty(values.shape)
    open_weights(tmp_path).tensors["a"].read_into(destination)
    assert torch.equal(destination, values.float())


def test_a_header_that_is_not_padded_is_read_all_the_same(tmp_path: Path) -> None:
    values = torch.arange(6, dtype=torch.float32)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    header += b" " * (1 - len(header) % 4 + 4)
    assert (8 + len(header)) % 4
    content = len(header).to_bytes(8, "little") + header + values.numpy().tobytes()
    (tmp_path / "model.safetensors").write_bytes(content)
    assert torch.equal(open_weights(tmp_path).tensors["a"].mapped(), values.view(2, 3))


def cut(content: bytes) -> bytes:
    return content[:-5]


def cut_in_header(content: bytes) -> bytes:
    return content[:30]


def cut_to_nothing(content: bytes) -> bytes:
    return content[:3]


def longer(content: bytes) -> bytes:
    return content + b"\0\0"


def spoil_header(content: bytes) -> bytes:
    return content[:8] + b"X" + content[9:]


def not_an_object(content: bytes) -> bytes:
    return (2).to_bytes(8, "little") + b"[]"


def lying_shape(content: bytes) -> bytes:
    return content.replace(b'"shape":[7,5]', b'"shape":[5,5]')


def unknown_type(content: bytes) -> bytes:
    return content.replace(b'"BF16"', b'"F8_9"')


def pointer(content: bytes) -> bytes:
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"holds \d+ bytes, but its header describes \d+.*copy or download"),
        (longer, r"holds \d+ bytes, but its header describes \d+"),
        (cut_in_header, "less than its header"),
        (cut_to_nothing, "holds 3 bytes, which is less than its header"),
        (spoil_header, "header that cannot be read"),
        (not_an_object, "header that cannot be read"),
        (lying_shape, "contradicts itself at tensor a"),
        (unknown_type, "F8_9, which qkv does not read"),
        (pointer, "Git LFS pointer"),
    ],
)
def test_damage_is_named(folder: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=rf"model\.safetensors .*{message}"):
        open_weights(folder)


def test_a_file_cut_after_it_was_opened(folder: Path) -> None:
    stored = open_weights(folder).tensors["a"]
    os.truncate(folder / "model.safetensors", 400)
    with pytest.raises(InputError, match="ended early"):
        stored.read_into(torch.empty(7, 5))


def write_shards(folder: Path, **files: list[str]) -> None:
    tensors = some_tensors()
    where: dict[str, str] = {}
    for file, names in files.items():
        save_file({name: tensors[name] for name in names}, folder / f"{file}.safetensors")
        where |= dict.fromkeys(names, f"{file}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def change_index(folder: Path, **entries: str) -> None:
    file = folder / "model.safetensors.index.json"
    content = json.loads(file.read_text())
    content["weight_map"] |= entries
    file.write_text(json.dumps(content))


def test_shards(tmp_path: Path) -> None:
    write_shards(tmp_path, one=["a", "half"], two=["b"])
    weights = open_weights(tmp_path)
    assert weights.source.name == "model.safetensors.index.json"
    assert [file.name for file in weights.files] == ["one.safetensors", "two.safetensors"]
    for name in ("a", "half", "b"):
        assert torch.equal(weights.tensors[name].mapped(), some_tensors()[name])


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    write_shards(tmp_path, one=["a", "half"], two=["b"])
    (tmp_path / "one.safetensors").unlink()
    with pytest.raises(InputError, match=r"one\.safetensors is missing; .*says that 2 tensors are in it"):
        open_weights(tmp_path)


def test_an_index_that_does_not_fit_its_shards(tmp_path: Path) -> None:
    write_shards(tmp_path, one=["a", "half"], two=["b"])
    change_index(tmp_path, c="two.safetensors")
    with pytest.raises(InputError, match=r"index\.json says that c is in two\.safetensors, but it is not"):
        open_weights(tmp_path)
    write_shards(tmp_path, one=["a", "half"], two=["b"])
    save_file(some_tensors(), tmp_path / "two.safetensors")
    with pytest.raises(InputError, match=r"two\.safetensors holds a, empty, half, position_ids, which"):
        open_weights(tmp_path)


@pytest.mark.parametrize("file", ["../one.safetensors", "/etc/passwd", "config.json", ""])
def test_an_index_reads_only_weights_beside_it(tmp_path: Path, file: str) -> None:
    write_shards(tmp_path, one=["a"])
    change_index(tmp_path, a=file)
    with pytest.raises(InputError, match="which is no weights file beside it"):
        open_weights(tmp_path)


def test_an_index_without_a_map(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(InputError, match='no "weight_map"'):
        open_weights(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_weights_of_both_formats(tmp_path: Path, zipped: bool) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save(some_tensors(), file, _use_new_zipfile_serialization=zipped)
    weights = open_weights(tmp_path)
    for name, expected in some_tensors().items():
        assert torch.equal(weights.tensors[name].mapped(), expected)
    before = file.read_bytes()
    weights.tensors["a"].mapped().zero_()
    assert file.read_bytes() == before
    shapes = open_weights(tmp_path, shapes_only=True).tensors
    assert {name: tensor.shape for name, tensor in shapes.items()} == {
        name: tuple(tensor.shape) for name, tensor in some_tensors().items()
    }


class Evil:
    """Pickled, it would run a command when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("exit 3",)


def test_pickled_code_is_refused(tmp_path: Path) -> None:
    torch.save({"a": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin is not a plain file of tensors.*does not run code"):
        open_weights(tmp_path)


@pytest.mark.parametrize("content", [[1, 2], {"a": 1}, torch.ones(2)])
def test_a_pickle_that_is_no_table_of_tensors(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="not a table of tensors"):
        open_weights(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_was_cut(tmp_path: Path, zipped: bool) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(10_000)}, file, _use_new_zipfile_serialization=zipped)
    os.truncate(file, 20_000)
    with pytest.raises(InputError, match=r"pytorch_model\.bin cannot be read"):
        open_weights(tmp_path)
    file.write_bytes(b"")
    with pytest.raises(InputError, match=r"pytorch_model\.bin cannot be read"):
        open_weights(tmp_path)


def test_safetensors_come_before_a_pickle(folder: Path) -> None:
    torch.save({"a": Evil()}, folder / "pytorch_model.bin")
    assert open_weights(folder).source.name == "model.safetensors"


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no weights: neither model\.safetensors nor pytorch_model\.bin"):
        open_weights(tmp_path)
    (tmp_path / "tf_model.h5").write_bytes(b"")
    with pytest.raises(InputError, match=r"It has tf_model\.h5: convert it"):
        open_weights(tmp_path)


def test_same_compares_bytes(tmp_path: Path) -> None:
    long = torch.arange(SCRATCH_BYTES // 4 + 100, dtype=torch.float32)
    other = long.clone()
    other[-1] += 1
    tensors = {"a": long, "b": long.clone(), "c": other, "d": long.view(2, -1).clone(), "e": long.int()}
    save_file(tensors, tmp_path / "model.safetensors")
    torch.save({"a": torch.ones(3), "b": torch.ones(3), "c": torch.zeros(3)}, tmp_path / "x.bin")
    header = read_header(tmp_path / "model.safetensors")
    assert are_equal(header["a"], header["b"])
    assert not any(are_equal(header["a"], header[name]) for name in "cde")
    (tmp_path / "model.safetensors").rename(tmp_path / "aside")
    (tmp_path / "x.bin").rename(tmp_path / "pytorch_model.bin")
    pickled = open_weights(tmp_path).tensors
    assert are_equal(pickled["a"], pickled["b"])
    assert not are_equal(pickled["a"], pickled["c"])


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_numbers_too_large_for_a_type_are_not_called_damage(tmp_path: Path, name: str) -> None:
    """Those of a pickle became infinite."""
    tensors = {"a": torch.tensor([1.0, 1e6]), "b": torch.tensor([1.0, float("nan")])}
    save_file(tensors, tmp_path / name) if name.endswith("tensors") else torch.save(tensors, tmp_path / name)
    stored, half = open_weights(tmp_path).tensors, torch.empty(2, dtype=torch.float16)
    with pytest.raises(InputError, match=r"a has numbers of up to 1e\+06, too large for float16"):
        stored["a"].read_into(half)
    with pytest.raises(InputError, match="1 of the 2 weights in b are NaN or infinite"):
        stored["b"].read_into(half)
