"""The tensors of a folder: model.safetensors, its shards, or pytorch_model.bin and its shards.

A tensor is handed out as a view of the file mapped into memory (private: training may write to it, the file stays as
it is), or read into a tensor of the caller's. Reading does not go through the mapping, so that bytes which end up in
other memory, such as a fused qkv or a converted half-precision weight, are not resident twice.

Folders that only qkv reads may have their matrices in 8 bits (`join_scales`): X is int8, and X.scale, float32, has a
number for each of its rows, the first dimension. A row is X[i] · scale[i], where the scale is its largest absolute
value / 127. Vectors (biases, norms) are float16 there.

The header of a safetensors file is parsed here, not by the safetensors package, for its byte offsets (that is what
reading past the mapping needs) and for messages that say what is wrong with which file. The format: eight bytes with
the header's length, little-endian; a JSON header of {name: {dtype, shape, data_offsets}}; then the data.

Names, shapes and dtypes of safetensors are read without torch; it is imported for values, and for .bin files.
"""

import json
import math
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from qkv.errors import InputError, listed
from qkv.files import read_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_DTYPES: dict[str, tuple[str, int]] = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
"""By the names of the format: torch's, and the bytes of a number."""

SINGLE, SINGLE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_FOREIGN = ("tf_model.h5", "flax_model.msgpack", "bert_model.ckpt.index", "model.onnx")

_DAMAGED = "The file is damaged or was not copied completely: copy or download it again."
SCRATCH_BYTES = 1 << 16
"""Of a conversion. Small on purpose: a large buffer that comes and goes between the weights leaves holes in the heap
(measured: a quarter of the weights), because the C library moves its limit for separate mappings when one is freed."""


class StoredTensor(Protocol):
    """One tensor of a file, not yet read."""

    @property
    def file(self) -> Path: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str:
        """As it is stored, by torch's name; int8 is read as float32."""

    def mapped(self) -> "Tensor":
        """A view of the file, or a copy where the file's layout allows no view. Refuses NaN and infinite weights."""

    def read_into(self, destination: "Tensor") -> None:
        """Copy to a contiguous CPU tensor of the same size, converted to its dtype. Refuses them, too."""


@dataclass(frozen=True)
class WeightFiles:
    source: Path  # the file to name when a tensor is missing: the weights or the index of their shards
    tensors: Mapping[str, StoredTensor]
    files: tuple[Path, ...]


class _Mapping:
    """The bytes of a file, mapped on first use."""

    def __init__(self, file: Path, size: int) -> None:
        self.file, self.size = file, size
        self._bytes: Tensor | None = None

    def bytes(self) -> "Tensor":
        if self._bytes is None:
            import torch

            self._bytes = torch.from_file(str(self.file), shared=False, size=self.size, dtype=torch.uint8)
        return self._bytes


@dataclass(frozen=True)
class SafeTensor:
    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    item_bytes: int
    start: int  # in the file
    stop: int
    mapping: _Mapping = field(repr=False)

    def mapped(self) -> "Tensor":
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        if self.start % self.item_bytes or self.start == self.stop:
            # headers were not always padded, and a view must start at a multiple of its item size
            copy = torch.empty(self.shape, dtype=dtype)
            self.read_into(copy)
            return copy
        found = self.mapping.bytes()[self.start : self.stop].view(dtype).view(self.shape)
        # not read through the mapping: what is never used of a table stays out of memory
        check_finite(found, self.name, self.file, self._pieces(dtype))
        return found

    def read_into(self, destination: "Tensor") -> None:
        import torch

        dtype, flat = getattr(torch, self.dtype), destination.view(-1)
        assert flat.numel() * self.item_bytes == self.stop - self.start
        if flat.dtype == dtype:
            with self.file.open("rb", buffering=0) as file:
                file.seek(self.start)
                self._fill(file, flat)
            check_finite(destination, self.name, self.file)
        else:
            for part, piece in zip(flat.split(SCRATCH_BYTES // self.item_bytes), self._pieces(dtype), strict=True):
                part.copy_(piece)
            if not _is_finite(destination):
                raise _too_large(self.mapped(), self.name, self.file, dtype_name(destination.dtype))

    def _pieces(self, dtype: "torch.dtype") -> Iterator["Tensor"]:
        """The numbers, SCRATCH_BYTES at a time, each time in the same memory."""
        import torch

        left, step = (self.stop - self.start) // self.item_bytes, SCRATCH_BYTES // self.item_bytes
        scratch = torch.empty(min(step, left), dtype=dtype)
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.start)
            while left:
                piece = scratch[: min(step, left)]
                self._fill(file, piece)
                left -= len(piece)
                yield piece

    def _fill(self, file: Any, part: "Tensor") -> None:
        import torch

        left = part.view(torch.uint8).numpy().data
        while len(left):
            count = file.readinto(left)
            if not count:  # the header's check has passed, so the file was cut after that
                raise InputError(f"{self.file} ended early while it was read. {_DAMAGED}")
            left = left[count:]


def read_header(file: Path) -> dict[str, SafeTensor]:
    """The tensors of a safetensors file, checked against each other and the file's size."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if first == b"version ":
            raise InputError(f"{file} is a Git LFS pointer, not the weights. Run `git lfs pull` in its folder.")
        if len(first) < 8 or length > size - 8:
            raise InputError(f"{file} holds {size} bytes, which is less than its header. {_DAMAGED}")
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        start = 8 + length
        mapping = _Mapping(file, size)
        tensors = {name: _entry(file, name, entry, start, mapping) for name, entry in header.items()}
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file} has a header that cannot be read ({error}). {_DAMAGED}") from None
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if tensor.start != end or tensor.stop - end != math.prod(tensor.shape) * tensor.item_bytes:
            raise InputError(f"{file} has a header that contradicts itself at tensor {name}. {_DAMAGED}")
        end = tensor.stop
    if end != size:
        raise InputError(f"{file} holds {size} bytes, but its header describes {end}. {_DAMAGED}")
    return tensors


def _entry(file: Path, name: str, entry: dict[str, Any], start: int, mapping: _Mapping) -> SafeTensor:
    if entry["dtype"] not in _DTYPES:
        raise InputError(
            f"{file} stores weights as {entry['dtype']}, which qkv does not read (known: {', '.join(_DTYPES)}). "
            "Save the model in float32, float16 or bfloat16."
        )
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(length) for length in entry["shape"])
    return SafeTensor(file, name, shape, *_DTYPES[entry["dtype"]], start + begin, start + end, mapping)


@dataclass(frozen=True)
class PickledTensor:
    """A tensor of a .bin file, already mapped by torch."""

    file: Path
    name: str
    tensor: "Tensor" = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> str:
        return dtype_name(self.tensor.dtype)

    def mapped(self) -> "Tensor":
        check_finite(self.tensor, self.name, self.file)
        return self.tensor.contiguous()

    def read_into(self, destination: "Tensor") -> None:
        exact = self.mapped()
        if not _is_finite(destination.copy_(exact)):
            raise _too_large(exact, self.name, self.file, dtype_name(destination.dtype))


def dtype_name(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")


def read_pickled(file: Path, shapes_only: bool = False) -> dict[str, PickledTensor]:
    """A .bin file through torch's restricted unpickler, which builds tensors and runs nothing."""
    with file.open("rb") as stream:
        first = stream.read(8)
    if first == b"version ":
        raise InputError(f"{file} is a Git LFS pointer, not the weights. Run `git lfs pull` in its folder.")
    import torch

    place = "meta" if shapes_only else "cpu"
    try:
        # files from before torch 1.6 are no zip archives and cannot be mapped
        content = torch.load(file, map_location=place, weights_only=True, mmap=first.startswith(b"PK"))
    except pickle.UnpicklingError:
        raise InputError(
            f"{file} is not a plain file of tensors, and qkv does not run code from a file. "
            "Ask for a model.safetensors, or convert it with transformers on a machine that trusts it."
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise InputError(f"{file} cannot be read ({str(error).split('. ')[0]}). {_DAMAGED}") from None
    if not isinstance(content, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in content.values()):
        raise InputError(f"{file} is not a table of tensors by name (a state dict), as transformers writes it.")
    return {name: PickledTensor(file, name, tensor) for name, tensor in content.items()}


def open_weights(folder: Path, shapes_only: bool = False) -> WeightFiles:
    """The weights of a folder; with `shapes_only`, only names, shapes and dtypes of a .bin file are available."""

    def read(file: Path) -> Mapping[str, StoredTensor]:
        return read_header(file) if file.suffix == ".safetensors" else read_pickled(file, shapes_only)

    for single, index in ((SINGLE, SINGLE_INDEX), (PICKLED, PICKLED_INDEX)):
        if (folder / single).is_file():
            return WeightFiles(folder / single, read(folder / single), (folder / single,))
        if (folder / index).is_file():
            shards = _read_index(folder / index)
            opened = {file: read(file) for file in sorted(set(shards.values()))}
            for name, file in shards.items():
                if name not in opened[file]:
                    raise InputError(f"{folder / index} says that {name} is in {file.name}, but it is not. {_DAMAGED}")
            for file, tensors in opened.items():
                if extra := [name for name in tensors if shards.get(name) != file]:
                    raise InputError(f"{file} holds {listed(extra)}, which {index} does not name there. {_DAMAGED}")
            return WeightFiles(
                folder / index, {name: opened[file][name] for name, file in shards.items()}, tuple(opened)
            )
    if (folder / "export.json").is_file():
        raise InputError(
            f"{folder} is an exported model: its graphs run in onnxruntime (README.md there has a script). "
            "For qkv give the model that it was made of."
        )
    others = [name for name in _FOREIGN if (folder / name).exists()]
    hint = f" It has {others[0]}: convert it with transformers first." if others else ""
    raise InputError(f"{folder} has no weights: neither {SINGLE} nor {PICKLED}, nor an index of their shards.{hint}")


def _read_index(index: Path) -> dict[str, Path]:
    content = read_object(index)
    shards = content.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise InputError(f'{index} has no "weight_map" that says which tensor is in which file. {_DAMAGED}')
    files: dict[str, Path] = {}
    for name, file_name in shards.items():
        # a shard is next to its index: a path here could read another file of the user
        if (
            not isinstance(file_name, str)
            or Path(file_name).name != file_name
            or not file_name.endswith((".safetensors", ".bin"))
        ):
            raise InputError(f"{index} names {file_name!r} as the file of {name}, which is no weights file beside it.")
        files[name] = index.parent / file_name
    for file in sorted(set(files.values())):
        if not file.is_file():
            count = sum(1 for other in files.values() if other == file)
            raise InputError(f"{file} is missing; {index.name} says that {count} tensors are in it. Copy it there.")
    return files


def are_equal(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two tensors hold the same bytes; compared piece by piece, so that neither becomes resident."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if not (isinstance(one, SafeTensor) and isinstance(other, SafeTensor)):
        return one.mapped().equal(other.mapped())
    with one.file.open("rb", buffering=0) as first, other.file.open("rb", buffering=0) as second:
        first.seek(one.start)
        second.seek(other.start)
        left = one.stop - one.start
        while left:
            size = min(left, SCRATCH_BYTES)
            pieces = first.read(size), second.read(size)
            if pieces[0] != pieces[1] or not pieces[0]:
                return False
            left -= len(pieces[0])
    return True


# 8 bits, a scale per row

SCALE = ".scale"


@dataclass(frozen=True)
class ScaledTensor:
    """A tensor in 8 bits. Reading it gives float32, or the dtype of the destination."""

    name: str
    codes: StoredTensor
    scale: StoredTensor

    @property
    def file(self) -> Path:
        return self.codes.file

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def dtype(self) -> str:
        return self.codes.dtype

    def mapped(self) -> "Tensor":
        scale = self.scale.mapped().float()
        if not (scale >= 0).all():
            raise InputError(f"{self.file}: {self.name}{SCALE} has numbers that are negative. {_DAMAGED}")
        return self.codes.mapped().float().mul_(scale.view(-1, *[1] * (len(self.shape) - 1)))

    def read_into(self, destination: "Tensor") -> None:
        destination.view(self.shape).copy_(self.mapped())


def join_scales(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors of a file without the scales, which are part of the tensors in 8 bits."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        base = name.removesuffix(SCALE)
        if base != name and base in tensors and tensors[base].dtype == "int8":
            continue
        if tensor.dtype != "int8":
            found[name] = tensor
            continue
        scale = tensors.get(name + SCALE)
        if scale is None:
            raise InputError(f"{tensor.file}: {name} is in 8 bits, and {name}{SCALE} is missing. {_DAMAGED}")
        if not tensor.shape or scale.shape != tensor.shape[:1] or not _is_float(scale):
            raise InputError(
                f"{tensor.file}: {name}{SCALE} has the shape {list(scale.shape)} ({scale.dtype}), and {name} "
                f"{list(tensor.shape)} needs a number for each of its rows. {_DAMAGED}"
            )
        found[name] = ScaledTensor(name, tensor, scale)
    return found


def name_dtype(tensors: Mapping[str, StoredTensor]) -> str:
    """How tensors are stored: "float16", "float16 and float32"; "int8" where matrices are in 8 bits."""
    names = {tensor.dtype for tensor in tensors.values()}
    return "int8" if "int8" in names else " and ".join(sorted(names))


class StorageError(NamedTuple):
    """The relative error of rows, |stored − exact| / |exact|."""

    largest: float
    where: str  # the tensor with the largest
    mean: float


def encode_rows(tensor: "Tensor", bits: int = 8) -> tuple["Tensor", "Tensor"]:
    """(R, …) → the same in int8, and scales (R,). With fewer bits, fewer of its numbers are used.

    >>> import torch
    >>> codes, scale = encode_rows(torch.tensor([[1.0, -2.54], [0.0, 0.0]]))
    >>> codes.tolist(), [round(one, 4) for one in scale.tolist()]
    ([[50, -127], [0, 0]], [0.02, 0.0])
    """
    import torch

    rows, largest = tensor.float().flatten(1), (1 << bits - 1) - 1
    scale = rows.abs().amax(1) / largest if rows.numel() else torch.zeros(len(rows))
    codes = (rows / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None]).round_().clamp_(-largest, largest)
    return codes.to(torch.int8).view(tensor.shape), scale


def round_to_bits(tensor: "Tensor", bits: int) -> "Tensor":
    """Floats rounded to so many significant bits; a file of them takes the same room, and is packed into less.

    >>> import torch
    >>> round_to_bits(torch.tensor([1.0, 1.3, -0.3, 0.0]), 3).tolist()
    [1.0, 1.25, -0.3125, 0.0]
    """
    import torch

    part, exponent = torch.frexp(tensor.float())
    return torch.ldexp((part * (1 << bits)).round_() / (1 << bits), exponent)


def encode_tensors(
    tensors: Mapping[str, StoredTensor], dtype: str, bits: int | None = None
) -> tuple[dict[str, "Tensor"], StorageError]:
    """Tensors to store as float32, float16, bfloat16 or int8, and the error against what they were. With `bits`,
    matrices are rounded to so many (`round_to_bits`, `encode_rows`)."""
    import torch

    encoded: dict[str, Tensor] = {}
    errors: dict[str, Tensor] = {}
    for name, stored in tensors.items():
        exact = stored.mapped()
        if not exact.is_floating_point():
            encoded[name] = exact.clone()
            continue
        if dtype == "int8" and exact.dim() > 1:
            codes, scale = encode_rows(exact, bits or 8)
            encoded |= {name: codes, name + SCALE: scale}
            after = codes.float() * scale.view(-1, *[1] * (exact.dim() - 1))
        else:
            # a copy, since safetensors refuses views of one file
            rounded = exact if bits is None or exact.dim() == 1 else round_to_bits(exact, bits)
            encoded[name] = rounded.to(torch.float16 if dtype == "int8" else getattr(torch, dtype), copy=True)
            after = encoded[name].float()
            if not after.isfinite().all():
                raise _too_large(exact, name, stored.file, dtype)
        rows = exact.float().flatten(1) if exact.dim() > 1 else exact.float().view(1, -1)
        length = rows.norm(dim=1)
        errors[name] = ((after.view(rows.shape) - rows).norm(dim=1) / length)[length > 0]
    worst = {name: float(error.max()) for name, error in errors.items() if len(error)}
    where = max(worst, key=worst.__getitem__, default="")
    every = torch.cat([*errors.values(), torch.zeros(0)])
    return encoded, StorageError(worst.get(where, 0.0), where, float(every.double().mean()) if len(every) else 0.0)


def gather(stored: Sequence[StoredTensor], dtype: "torch.dtype") -> "Tensor":
    """One tensor as mapped, if it needs no conversion; else all of them concatenated in new memory, each read directly
    into its place."""
    if len(stored) == 1 and stored[0].dtype == dtype_name(dtype):
        return stored[0].mapped()
    import torch

    rows = sum(tensor.shape[0] for tensor in stored)
    whole = torch.empty((rows, *stored[0].shape[1:]), dtype=dtype)
    for tensor, part in zip(stored, torch.split(whole, [tensor.shape[0] for tensor in stored]), strict=True):
        tensor.read_into(part)
    return whole


def check_names(weights: WeightFiles, found: Collection[str], wanted: Collection[str], what: str) -> None:
    """Refuse a file that lacks a tensor of the network, or has one that the network does not have."""
    if missing := set(wanted) - set(found):
        raise InputError(
            f"{weights.source} lacks {len(missing)} of the tensors that {what} needs: {listed(missing)}. The file is "
            "incomplete, or config.json belongs to another model."
        )
    if unexpected := set(found) - set(wanted):
        raise InputError(
            f"{weights.source} holds {len(unexpected)} tensors that {what} does not have: {listed(unexpected)}. The "
            "folder is of another architecture, or config.json of another model."
        )


_REPEATED = frozenset({"layers", "encoder_layers", "decoder_layers", "highways"})
_NOT_STORED = frozenset(
    {"max_length", "longest", "segments", "window", "negatives", "pad_id", "begin_id", "alignment_layer"}
)
_ANY_LAYERS, _ANY_WIDTH = 64, 4096
"""Up to these a network is quickly built, and its shapes are compared one by one; some encoders have unused widths."""


def check_sizes(config: Mapping[str, Any], tensors: Mapping[str, Any], file: Path) -> None:
    """Refuse sizes that no tensor of the weights can have, before a network of them is built: more layers than there
    are tensors, or a width above the largest dimension of all tensors."""
    widest = max((length for tensor in tensors.values() for length in tensor.shape), default=0)
    for name, value in config.items():
        if isinstance(value, Mapping):
            check_sizes(value, tensors, file)
        numbers = value if isinstance(value, list | tuple) else [value]
        if name in _NOT_STORED or not all(isinstance(one, int) for one in numbers):
            continue
        most, what = (len(tensors), "tensors") if name in _REPEATED else (widest, "numbers in the widest tensor")
        least = _ANY_LAYERS if name in _REPEATED else _ANY_WIDTH
        if too_large := [one for one in numbers if one > max(most, least)]:
            raise InputError(
                f"{file}: {name} is {too_large[0]:,}, and the weights next to it have {most:,} {what}. One of the two "
                "files belongs to another model."
            )


def check_finite(tensor: "Tensor", name: str, file: Path, pieces: Iterable["Tensor"] = ()) -> None:
    """Refuse weights that are NaN or infinite: everything computed from them would be NaN. `pieces` of the tensor are
    read in its place."""
    if not _is_finite(tensor, pieces):
        wrong = int((~tensor.isfinite()).sum())
        raise InputError(
            f"{file}: {wrong:,} of the {tensor.numel():,} weights in {name} are NaN or infinite. The training "
            "diverged or the file is damaged: take an earlier checkpoint, or copy the model again."
        )


def _is_finite(tensor: "Tensor", pieces: Iterable["Tensor"] = ()) -> bool:
    import torch

    if tensor.is_meta or not tensor.is_floating_point() or not tensor.numel():
        return True
    # pieces are too small for threads, which take longer to wake than a piece takes; the sum of finite numbers may
    # overflow, so only what it shows is looked at in full
    sums = [piece.sum() for piece in pieces or tensor.reshape(-1).split(SCRATCH_BYTES // 4)]
    return bool(torch.stack(sums).isfinite().all() or tensor.isfinite().all())


def _too_large(exact: "Tensor", name: str, file: Path, dtype: str) -> InputError:
    return InputError(
        f"{file}: {name} has numbers of up to {exact.abs().max():.3g}, too large for {dtype}. Use bfloat16 or float32."
    )


def _is_float(stored: StoredTensor) -> bool:
    return stored.dtype.startswith(("float", "bfloat"))


def check_tensor(stored: StoredTensor, name: str, shape: Sequence[int]) -> None:
    if list(stored.shape) != list(shape):
        raise InputError(
            f"{stored.file}: {name} has the shape {list(stored.shape)}, but config.json asks for {list(shape)}. One of "
            "the two files belongs to another model."
        )
    if not _is_float(stored):
        kind = f"torch.{stored.dtype}"
        raise InputError(f"{stored.file}: {name} is stored as {kind}; qkv reads float weights.")
