"""Attention as equations, from averaging to self-attention; multihead.py has the same maths on fused kernels.

The example of the lecture notes: a memory holds two entries, "5G" → "Huawei" and "4G" → "Nokia", and the query is
"5G". A dictionary returns exactly one value. Attention compares the query with every key and returns a weighted mean
of the values, mostly "Huawei", so that the look-up has a gradient and can be learned:

>>> key_5g, key_4g = torch.tensor([1.0, 0.0]), torch.tensor([0.6, 0.8])  # alike, since both are mobile networks
>>> huawei, nokia = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
>>> answer, weights = attention(
...     query=4 * key_5g[None],                  # (1, K): one query
...     key=torch.stack([key_5g, key_4g]),       # (2, K): two entries
...     value=torch.stack([huawei, nokia]),
...     scale=1.0,
... )
>>> [round(w, 2) for w in weights[0].tolist()]   # weights of Huawei and Nokia
[0.83, 0.17]
>>> bool((answer == weights @ torch.stack([huawei, nokia])).all())
True

Every attention below is f(q, K, V) = Σ_i α(q, k_i) v_i, where α is the softmax of a score:

    kernel     −(q − k)² w² / 2           attention pooling (Nadaraya 1964; Watson 1964)
    additive   vᵀ tanh(W_q q + W_k k)     Bahdanau et al. 2015, appendix A.1.2
    dot        q · k                      Luong et al. 2015, §3.1
    scaled     q · k / √K                 Vaswani et al. 2017, §3.2.1

Masks are boolean; True means visible. Masked scores become a large negative number before the softmax, as in the
notes. A query whose keys are all masked gets zero (a plain softmax would give the masked keys equal weights).

Shapes: … any leading dimensions, Q queries, T keys (and as many values), K head width, H heads, D width.
"""

import math

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the visible entries of the last dimension; zeros if none is visible."""
    if mask is None:
        return scores.softmax(dim=-1)
    hidden = ~mask
    # the most negative finite number, not -inf: its exp() is also 0, and a fully masked row does not become NaN
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights.masked_fill(hidden, 0.0)


def attend(scores: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scores (…, Q, T) and values (…, T, K) → outputs (…, Q, K) and weights (…, Q, T)."""
    weights = masked_softmax(scores, mask)
    return weights @ value, weights


def causal_mask(queries: int, keys: int | None = None, device: torch.device | None = None) -> Tensor:
    """(Q, T): position i sees positions up to i. With more keys than queries, the queries are the last ones.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> causal_mask(1, 3).int().tolist()   # one new token after two cached tokens
    [[1, 1, 1]]
    """
    keys = queries if keys is None else keys
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def attention_pooling(
    query: Tensor, key: Tensor, value: Tensor, width: Tensor | float = 1.0, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Non-parametric attention pooling: a mean of the values, weighted by a Gaussian kernel around the query.

    `query` (…, Q) and `key` (…, T) are points on a line, `value` (…, T) the measurements at the keys. `width` is the
    kernel's inverse width: 0 gives the plain mean (average pooling), a large value the nearest neighbour.

    >>> x, y = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 10.0, 20.0])
    >>> attention_pooling(torch.tensor([1.0]), x, y, width=0.0)[0].tolist()
    [10.0]
    """
    distance = query[..., :, None] - key[..., None, :]  # (…, Q, T)
    answer, weights = attend(-((distance * width) ** 2) / 2, value[..., None], mask)
    return answer[..., 0], weights


class KernelPooling(nn.Module):
    """Parametric attention pooling: `attention_pooling` with a learned kernel width."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        self.width = nn.Parameter(torch.tensor(width))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return attention_pooling(query, key, value, self.width, mask)


def dot_scores(query: Tensor, key: Tensor, scale: float = 1.0) -> Tensor:
    """(…, Q, K), (…, T, K) → (…, Q, T): the scaled dot product of every query with every key."""
    return (query * scale) @ key.transpose(-2, -1)


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, softmax(Q Kᵀ / √K) V; `scale` replaces 1 / √K, and 1.0 is the plain dot product.

    The variance of a dot product of random vectors grows with their width K. Dividing by √K (not by K) keeps the
    softmax of wide heads away from saturation, where its gradient vanishes.
    """
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return attend(dot_scores(query, key, scale), value, mask)


class AdditiveAttention(nn.Module):
    """Additive attention, vᵀ tanh(W_q q + W_k k); queries and keys may differ in width."""

    def __init__(self, query_width: int, key_width: int, hidden_width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, hidden_width, bias=False)
        self.key = nn.Linear(key_width, hidden_width, bias=False)
        self.score = nn.Linear(hidden_width, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.query(query)[..., :, None, :] + self.key(key)[..., None, :, :])  # (…, Q, T, hidden)
        return attend(self.score(hidden)[..., 0], value, mask)


class SelfAttention(nn.Module):
    """Single-head self-attention: three learned matrices project x to queries, keys and values."""

    def __init__(self, width: int, head_width: int, scale: float | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(width, head_width)
        self.key = nn.Linear(width, head_width)
        self.value = nn.Linear(width, head_width)
        self.scale = scale

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return attention(self.query(x), self.key(x), self.value(x), mask, self.scale)
