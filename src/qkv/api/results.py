"""What the Python API hands back: frozen dataclasses of plain fields, numpy for what is large.

Every result says how much text it stands for: `n_tokens` counts the special tokens (but in a mean that they are no part
of, that of a model which no task was put on), and `n_windows` is above 1 where a
text was longer than the model and was read in overlapping parts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BlankCandidate:
    """One proposal for a blank: the vocabulary's spelling, the same as running text, and its probability."""

    token: str
    text: str
    probability: float


@dataclass(frozen=True)
class Blank:
    """One [MASK] at text[start:end] and its candidates, most probable first."""

    start: int
    end: int
    candidates: tuple[BlankCandidate, ...]
    n_tokens: int
    n_windows: int = 1

    @property
    def best(self) -> BlankCandidate:
        return self.candidates[0]


@dataclass(frozen=True)
class Embeddings:
    """One vector a text, in the order the texts were given."""

    vectors: NDArray[np.float32]  # (texts, width)
    n_tokens: NDArray[np.int64]  # (texts,)
    n_windows: NDArray[np.int64]  # (texts,)
    n_without_vector: NDArray[np.int64] | None = None  # (texts,) words left out of the mean; None: each has a vector

    def __len__(self) -> int:
        return len(self.vectors)

    def similarity(self) -> NDArray[np.float32]:
        """(texts, texts) cosine of every pair."""
        unit = normalize(self.vectors)
        return np.clip(unit @ unit.T, -1, 1)


@dataclass(frozen=True)
class TokenVectors:
    """One vector a token of a text; a token stands at text[start:end]."""

    tokens: tuple[str, ...]  # as the vocabulary spells them
    offsets: tuple[tuple[int, int], ...]
    vectors: NDArray[np.float32]  # (tokens, width)
    has_vector: NDArray[np.bool_]  # (tokens,) False for a word that word vectors lack, and its vector is zeros
    n_windows: int = 1

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class NextSentence:
    """How likely the second text follows the first (BERT §3.1, task 2)."""

    is_next: float
    not_next: float
    n_tokens: int
    n_windows: int = 1


def normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays as it is."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
