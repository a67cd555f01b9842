"""In which numbers a network writes, on a CPU: settings of decoding, of which training knows nothing.

fp32       exact, or whatever type the weights are of
int8       8 bits (nn/cpu/int8.py): faster, and nearly the same
drafted    8 bits guess ahead and the weights judge (nn/cpu/speculative.py): exact, and faster for a single text
"""

from collections.abc import Iterator
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError, did_you_mean
from qkv.nn.cpu.int8 import explain_no_int8

DECODING_PRECISIONS = ("fp32", "int8", "drafted")


class DecodingSettings(Protocol):
    precision: str


class Decodes(Protocol):
    @property
    def decoding(self) -> DecodingSettings: ...


DecodingNetwork = TypeVar("DecodingNetwork", bound=Decodes)


def set_precision(network: DecodingNetwork, precision: str) -> DecodingNetwork:
    """The same network, which writes in this precision from now on."""
    check_precision(precision)
    network.decoding.precision = precision
    return network


def check_precision(precision: str) -> None:
    """Whether there is such a thing, and here."""
    if precision not in DECODING_PRECISIONS:
        hint = did_you_mean(precision, DECODING_PRECISIONS)
        raise InputError(f"Unknown precision '{precision}'.{hint} Known: {', '.join(DECODING_PRECISIONS)}.")
    if precision != "fp32" and (reason := explain_no_int8()) is not None:
        raise InputError(f"{precision} cannot be had: {reason}. Use fp32.")


class HasParameters(Protocol):
    def parameters(self) -> Iterator[Tensor]: ...


def check_weights(network: HasParameters) -> None:
    """Whether products of 8 bits can be made of them."""
    for weight in network.parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.is_inference():
            raise InputError(
                f"int8 is made from fp32 weights on a CPU; these are {weight.dtype} on {weight.device}. "
                "Use --device cpu, or fp32."
            )
