"""Where a step's time goes: what the device does, kernel by kernel, gathered into groups by the kernels' names.

Names are all that a profiler tells of a kernel, so a group is a list of words, and the first group with a word of the
name takes it. What no group knows is "other"; the kernels that take most time are listed by name beside.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpu_sides import Step, finish, timed
from torch.profiler import ProfilerActivity, profile

GROUPS = {
    "attention": r"flash|fmha|attention|attn|varlen|^_(forward|backward)$",  # the last are nn/gpu/short_attention.py's
    "optimizer, clipping": r"adam|muon|newton|multi_tensor|foreach|lpnorm|clip",
    "loss": r"softmax|nll|cross_?entropy|argmax",
    "matmul": r"gemm|nvjet|cutlass|cublas|splitk|xmma|matmul|addmm|(^|_)b?mm\b|linear",
    "embedding": r"embed|index|gather|scatter|sort|radix",
    "copies, casts": r"memcpy|memset|copy|fill|catarray|to_copy",
    "norm, dropout, GELU, sums": r"norm|dropout|gelu|side_by_side|elementwise|reduce|triton|bernoulli|add|mul|sum|tanh",
}


@dataclass(frozen=True)
class Profile:
    wall: float  # milliseconds of a step, without the profiler
    groups: dict[str, float]  # milliseconds of a step
    kernels: Sequence[tuple[str, float, int]]  # those that take longest: name, milliseconds, launches a step
    launches: int  # a step

    @property
    def busy(self) -> float:
        return sum(self.groups.values())


def profiled(step: Step, device: torch.device, steps: int = 3, shown: int = 15) -> Profile:
    """Of a step that is warm. On a CPU operators take the place of kernels, for a look."""
    wall = timed(step, steps, device) / steps
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu) as recorded:
        for number in range(steps):
            step(number)
        finish(device)
    found: list[tuple[str, float, int]] = []
    for event in recorded.key_averages():
        # an annotation spans the kernels that are counted by themselves
        if (event.device_type.name == "CUDA") == on_gpu and not getattr(event, "is_user_annotation", False):
            microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            found.append((event.key, microseconds / 1000 / steps, event.count // steps))
    groups = dict.fromkeys([*GROUPS, "other"], 0.0)
    for name, milliseconds, _ in found:
        groups[group_of(name)] += milliseconds
    found.sort(key=lambda kernel: -kernel[1])
    return Profile(1000 * wall, groups, found[:shown], sum(count for _, _, count in found))


def group_of(name: str) -> str:
    """
    >>> group_of("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(...)")
    'norm, dropout, GELU, sums'
    """
    # "at::native" and the like hold the words too
    plain = re.sub(r"at::native::|\(anonymous namespace\)::|void |aten::", "", name).lower()
    return next((group for group, words in GROUPS.items() if re.search(words, plain)), "other")
