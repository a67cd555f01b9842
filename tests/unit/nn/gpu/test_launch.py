"""Which of Triton's compiled kernels a launch means. A stand-in for Triton: without a GPU it compiles nothing."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from qkv.nn.gpu import kernels as module
from qkv.nn.gpu.kernels import compilation_key, launch, launch_cached


class Kernel:
    """Two arguments and two constants; a launch through it notes "found", one of what it compiled "known"."""

    arg_names = ("data", "rows", "BLOCK", "DROPS")

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(data: torch.Tensor, rows: int, *, num_warps: int = 4, **constants: Any) -> "Compiled":
            self.launched.append(("found", grid, rows, constants))
            return Compiled(self)

        return run


class Compiled:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda data, *others: self.kernel.launched.append(("known", grid, *others))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMPILED", {})


def test_what_was_compiled_is_called_with_all_of_its_arguments() -> None:
    kernel, data = Kernel(), torch.zeros(64)
    for rows, block in ((7, 16), (9, 16), (9, 32), (11, 32)):
        # the constants in another order than the kernel's
        launch_cached(kernel, (rows, 2), 0, (data, rows), {"DROPS": True, "num_warps": 8, "BLOCK": block})
    assert [(one[0], one[1]) for one in kernel.launched] == [
        ("found", (7, 2)),
        ("known", (9, 2, 1)),
        ("found", (9, 2)),
        ("known", (11, 2, 1)),
    ]
    assert kernel.launched[1][2:] == (9, 16, True)
    assert kernel.launched[3][2:] == (11, 32, True)


@pytest.mark.parametrize(
    ("data", "rows", "place"),
    [
        (torch.zeros(64, dtype=torch.bfloat16), 7, 0),
        (torch.zeros(64), 32, 0),
        (torch.zeros(64), 1, 0),
        (torch.zeros(64), 7, 1),
    ],
)
def test_another_type_number_or_device_is_another_kernel(data: torch.Tensor, rows: int, place: int) -> None:
    kernel = Kernel()
    for arguments, at in (((torch.zeros(64), 7), 0), ((data, rows), place)):
        launch_cached(kernel, (1,), at, arguments, {"BLOCK": 16, "DROPS": False})
    assert [one[0] for one in kernel.launched] == ["found", "found"]


def test_what_is_rare_is_left_to_triton() -> None:
    kernel, data = Kernel(), torch.zeros(64)
    for arguments in ((data[1:], 7), (data, 1 << 31)):
        assert compilation_key(arguments) is None
        for _ in range(2):
            launch_cached(kernel, (1,), 0, arguments, {"BLOCK": 16, "DROPS": False})
    assert [one[0] for one in kernel.launched] == ["found"] * 4


def test_on_rocm_all_is_left_to_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it also compiles for how far a pointer reaches."""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    kernel = Kernel()
    for _ in range(2):
        launch_cached(kernel, (1,), 0, (torch.zeros(64), 7), {"BLOCK": 16, "DROPS": False})
    assert [one[0] for one in kernel.launched] == ["found"] * 2


@pytest.mark.parametrize("width", [16, 17])
def test_one_kernel_of_two_alignments_and_two_numbers_of_rows(width: int) -> None:
    """On a GPU, where the second launch of a kind is one of what the first compiled; else by the interpreter."""
    pytest.importorskip("triton", reason="Triton is a part of torch for GPUs, and of the extra dev elsewhere")
    from qkv.nn.gpu.kernels import activation_forward

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bias = torch.randn(width, device=device)
    for first, rows in [(0, 32), (1, 32), (0, 33), (1, 33)] * 2:
        x = torch.randn(first + rows * width, device=device)[first:].view(rows, width)
        assert (x.data_ptr() % 16 == 0) == (first == 0)
        expected = functional.gelu(x + bias)
        torch.testing.assert_close(activation_forward(x, bias, "gelu"), expected, atol=1e-5, rtol=1e-5)
    known = 2 if device.type == "cuda" and torch.version.hip is None else 0
    assert len(module._COMPILED) == known, "by the number of rows; what lies askew is left to Triton"


def test_without_a_gpu_the_interpreter_runs_it() -> None:
    kernel = Kernel()
    for _ in range(2):
        launch(kernel, (3,), torch.zeros(4), 7, BLOCK=16, DROPS=False)
    assert kernel.launched == [("found", (3,), 7, {"BLOCK": 16, "DROPS": False})] * 2
