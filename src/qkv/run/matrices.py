"""Which weights of a network are matrices between hidden layers, the ones that Muon takes (train/muon.py).

Embeddings and heads are not among them: they stand between words or labels and vectors, and each row is trained by
itself.
"""

from torch import nn

from qkv.nn.block import FeedForward
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention


def matrices_of(model: nn.Module) -> dict[str, int]:
    """Name of the weight → how many matrices lie on top of each other in it: of queries, keys and values three.

    >>> matrices_of(nn.ModuleDict({"attend": MultiHeadSelfAttention(4, 2), "head": nn.Linear(4, 2)}))
    {'attend.qkv.weight': 3, 'attend.out.weight': 1}
    """
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        inside: dict[str, int] = {}
        if isinstance(module, MultiHeadSelfAttention):
            inside = {"qkv": 3, "out": 1}
        elif isinstance(module, MultiHeadCrossAttention):
            inside = {"query": 1, "key_value": 2, "out": 1}
        elif isinstance(module, FeedForward):
            inside = {"up": 1, "down": 1}
        found |= {f"{name}.{part}.weight".lstrip("."): number for part, number in inside.items()}
    return found
