"""The precision of decoding on a CPU; training is not affected.

fp32       exact (the dtype of the weights)
int8       8 bits (nn/cpu/int8.py): faster, nearly the same
drafted    speculative: an 8-bit draft verified by the weights (nn/cpu/speculative.py): exact, faster for a single text
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
    """Set the decoding precision and return the network."""
    check_precision(precision)
    network.decoding.precision = precision
    return network


def check_precision(precision: str) -> None:
    """Raise InputError if the precision is unknown or unavailable here."""
    if precision not in DECODING_PRECISIONS:
        hint = did_you_mean(precision, DECODING_PRECISIONS)
        raise InputError(f"Unknown precision '{precision}'.{hint} Known: {', '.join(DECODING_PRECISIONS)}.")
    if precision != "fp32" and (reason := explain_no_int8()) is not None:
        raise InputError(f"{precision} is not available: {reason}. Use fp32.")


class HasParameters(Protocol):
    def parameters(self) -> Iterator[Tensor]: ...


def check_weights(network: HasParameters) -> None:
    """Raise InputError unless the weights can be quantised: float32, on a CPU."""
    for weight in network.parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.is_inference():
            raise InputError(
                f"int8 is made from fp32 weights on a CPU; these are {weight.dtype} on {weight.device}. "
                "Use --device cpu, or fp32."
            )
