"""What goes into the first layer: token + segment + position (Devlin et al. 2019, §3 and figure 2).

Shapes: … (B, T) of padded or (N,) of packed rows, D width, V vocabulary.
"""

from torch import Tensor, nn

from qkv.nn import fast
from qkv.nn.position import LearnedPositions


class InputEmbedding(nn.Module):
    """Three looked-up vectors, added, normalised, dropped out.

    `positions` is an argument, not counted here: packed rows restart it, and giving every token the same position
    takes word order away (which is how a test shows that nothing else carries it).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        max_length: int,
        segments: int = 2,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-12,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.segment = nn.Embedding(segments, width)
        self.position = LearnedPositions(max_length, width)
        self.norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """(…,) each → (…, D)"""
        if ids.dim() == 1 and fast.fits(self.token.weight):
            tables = (self.token.weight, self.segment.weight, self.position.weight)
            return self.dropout(fast.add_norm(fast.embed(ids, segments, positions, tables), None, None, self.norm))
        x = self.token(ids) + self.segment(segments) + self.position(positions)
        return self.dropout(self.norm(x))
