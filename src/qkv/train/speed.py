"""How fast is this machine, and how much of it is used: figures for the bar, never for the run's result."""

import time

import torch


def measured_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """FLOP/s of a large matrix product here and now: the ceiling that a step is compared with."""
    side = 4096 if device.type == "cuda" else 768
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(3):
        a @ b
    finish()
    products, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        for _ in range(4):
            a @ b
        finish()
        products += 4
    return 2 * side**3 * products / elapsed
