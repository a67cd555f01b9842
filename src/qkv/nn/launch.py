"""Triton kernels, sent to the device that their tensors are on, in as little of the host's time as there can be.

At every launch Triton finds out again which of its compiled kernels is meant: it reads the types of all arguments,
and whether numbers and addresses are multiples of 16. This takes the host several times as long as the launch itself,
and longer than a small kernel runs. Our kernels are told apart by less, so what was found is kept here; the compiled
kernel is then called as Triton's own documentation calls it, by a grid and all of its arguments.

What this file does NOT do: anything without a GPU, where Triton's interpreter runs kernels as they are.
"""

from typing import Any

import torch
from torch import Tensor

_COMPILED: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """On the device of the first argument: Triton takes whichever is the current one. Constants stand last in a
    kernel."""
    device = arguments[0].device
    if device.type != "cuda":
        kernel[grid](*arguments, **constants)
    elif device.index == torch.cuda.current_device():
        launch_known(kernel, grid, device.index, arguments, constants)
    else:
        with torch.cuda.device(device):
            launch_known(kernel, grid, device.index, arguments, constants)


def launch_known(
    kernel: Any, grid: tuple[int, ...], place: int, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    """By what Triton compiled, where the like was launched before on this device. On ROCm Triton is asked every time:
    there it also compiles for how far a pointer reaches."""
    if torch.version.hip or (kinds := kinds_of(arguments)) is None:
        kernel[grid](*arguments, **constants)
        return
    key = (id(kernel), place, kinds, *constants.values())  # its own hash reads the source again
    if (known := _COMPILED.get(key)) is None:
        compiled = kernel[grid](*arguments, **constants)
        _COMPILED[key] = compiled, [constants[name] for name in kernel.arg_names[len(arguments) :]]
    else:
        compiled, last = known
        compiled[(*grid, 1, 1)[:3]](*arguments, *last)


def kinds_of(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What Triton compiles for: types, and whether a whole number is 1 or a multiple of 16. None where an address is
    no multiple of 16 bytes, or a number has more than 31 bits, which is rare.

    >>> kinds_of((torch.zeros(2), 7, 32, 1, 0.5, None))
    (torch.float32, 0, 16, 1, 'float', None)
    """
    found: list[Any] = []
    addresses = 0
    for one in arguments:
        if isinstance(one, Tensor):
            addresses |= one.data_ptr()
            found.append(one.dtype)
        elif isinstance(one, int):
            if not -(1 << 31) <= one < 1 << 31:
                return None
            found.append(1 if one == 1 else 0 if one % 16 else 16)
        else:
            found.append(None if one is None else type(one).__name__)
    return None if addresses % 16 else tuple(found)
