"""The view of word vectors: neighbours, an analogy with its parallelogram, a map of words.

Scores are those of `qkv similar` and `qkv analogy` (models/word2vec/folder.py). The corners a, b, c and b − a + c of
an analogy are in one plane, which is drawn exactly; answers are projected onto it, with their distance from it. A map
shows the two principal components of many words, with their share of the variance and the true nearest words of each.

Vectors are normalised to length 1.

Shapes: V words of the table, n words drawn, D width, k nearest.
"""

import re
from typing import Any

import numpy as np

from qkv.api.embedder import scale_to_unit
from qkv.look.subject import Subject
from qkv.look.token_layers import VectorArray, project_vectors
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.word2vec.folder import ANALOGY_METHODS, Neighbour, WordVectors, near_spellings
from qkv.text.wordpiece import CHINESE

LONGEST_QUERY, MOST_NEIGHBOURS, MOST_ANSWERS = 60, 50, 20
MOST_ON_MAP, MOST_NAMED_WORDS, NEAREST = 2_000, 200, 6
"""Words on a map, words that may be given by name, and nearest words listed for each."""

SCRIPTS = {
    "all": re.compile(r"\w"),
    "chinese": re.compile(f"[{CHINESE}]"),
    "letters": re.compile(f"[^\\W\\d_{CHINESE}]"),
}
"""What a word must contain to be drawn; punctuation never is."""


def show_neighbours(subject: Subject, asked: Asked) -> Reply:
    word = asked.text("word", longest=LONGEST_QUERY).strip()
    k = asked.number("k", 1, MOST_NEIGHBOURS, 12)
    asked.done()
    table = subject.vectors
    row = find_row(subject, word)
    found = table.neighbours(table.words[row], k)
    head = {
        "word": table.words[row],
        "asked": word,
        "model": subject.title,
        "rank": row,
        "words": len(table),
        "width": table.width,
        "length": round(float(table.vectors[row].norm()), 6),
        "neighbours": [_describe_neighbour(table, one) for one in found],
    }
    return Reply(head, {"cosine": np.array([one.score for one in found], np.float32)})


def show_analogy(subject: Subject, asked: Asked) -> Reply:
    words = [asked.text(name, longest=LONGEST_QUERY).strip() for name in ("a", "b", "c")]
    k = asked.number("k", 1, MOST_ANSWERS, 6)
    method = asked.choice("method", list(ANALOGY_METHODS), "add")
    asked.done()
    table = subject.vectors
    rows = [find_row(subject, word) for word in words]
    a, b, c = (table.words[row] for row in rows)
    found = table.analogy(a, b, c, k, method)
    answers = [table.rows[one.word] for one in found]
    corners = scale_to_unit(table.vectors[[*rows]].numpy())  # (3, D)
    target = corners[1] - corners[0] + corners[2]
    others = scale_to_unit(table.vectors[answers].numpy())
    points, above = project_on_corners(corners, np.concatenate([corners, target[None], others]))
    head = {
        "model": subject.title,
        "a": a,
        "b": b,
        "c": c,
        "method": method,
        "answers": [
            _describe_neighbour(table, one) | {"to_target": round(float(other @ target / np.linalg.norm(target)), 6)}
            for one, other in zip(found, others, strict=True)
        ],
        "names": [a, b, c, "", *(one.word for one in found)],
    }
    return Reply(head, {"points": points, "above": above})


def show_word_map(subject: Subject, asked: Asked) -> Reply:
    most = asked.number("most", 2, MOST_ON_MAP, 600)
    script = asked.choice("script", list(SCRIPTS), "all")
    named = (asked.maybe_text("words", longest=MOST_NAMED_WORDS * LONGEST_QUERY) or "").split()[:most]  # between spaces
    asked.done()
    table = subject.vectors
    rows = {row: None for word in named if (row := table.find(word)) is not None}
    missing = [word for word in named if table.find(word) is None]
    rows |= dict.fromkeys(_choose_words(table, most - len(rows), frozenset(rows), SCRIPTS[script]))
    if len(rows) < 2:
        raise RefusalError("number", "A map needs two words at least.", most=most)
    chosen = list(rows)
    unit = scale_to_unit(table.vectors[chosen].numpy())  # (n, D)
    points, shares = project_vectors(unit)
    alike = unit @ unit.T  # (n, n)
    np.fill_diagonal(alike, -np.inf)
    k = min(NEAREST, len(chosen) - 1)
    nearest = np.argsort(-alike, axis=1, kind="stable")[:, :k]
    head = {
        "model": subject.title,
        "script": script,
        "words": [table.words[row] for row in chosen],
        "named": len(named) - len(missing),
        "missing": missing,
        "of": len(table),
        "variance": [round(float(share), 6) for share in shares],
    }
    arrays = {
        "points": points,
        "rank": np.array(chosen, np.int32),
        "nearest": nearest.astype(np.int32),
        "nearest_cosine": np.take_along_axis(alike, nearest, 1).astype(np.float32),
    }
    return Reply(head, arrays)


def find_row(subject: Subject, word: str) -> int:
    """The row of a word with a nonzero vector. Raises RefusalError with similarly spelled words."""
    table = subject.vectors
    row = table.find(word)
    if row is None:
        near = near_spellings(word, table.words)
        hint = f" Near it: {', '.join(near)}." if near else ""
        raise RefusalError(
            "word_not_found",
            f"'{word}' is not among the {len(table):,} words of {subject.title}.{hint}",
            word=word,
            model=subject.title,
            near=", ".join(near),
            words=len(table),
        )
    if not table.vectors[row].any():
        raise RefusalError(
            "no_vectors", f"The vector of '{word}' is all zeros: no word is like it.", word=word, model=subject.title
        )
    return row


def project_on_corners(corners: VectorArray, points: VectorArray) -> tuple[VectorArray, VectorArray]:
    """Corners (3, D) and points (n, D) → (n, 2) on the plane through the corners, and (n,) the distance from it. The
    first corner is the origin, the third to the right of it, the second above.

    >>> square = np.array([[0, 0, 0], [0, 2, 0], [1, 0, 0]], np.float32)
    >>> where, above = project_on_corners(square, np.array([[1, 2, 5]], np.float32))
    >>> where.tolist(), above.tolist()
    ([[1.0, 2.0]], [5.0])
    """
    start, up, right = corners.astype(np.float64)
    axes: list[Any] = []
    for direction in (right - start, up - start):
        for axis in axes:
            direction = direction - (direction @ axis) * axis
        length = np.linalg.norm(direction)
        axes.append(direction / length if length > 1e-9 else np.zeros_like(direction))
    plane = np.stack(axes, axis=1)  # (D, 2)
    moved = points.astype(np.float64) - start
    places = moved @ plane
    above = np.linalg.norm(moved - places @ plane.T, axis=1)
    return places.astype(np.float32), above.astype(np.float32)


def _choose_words(table: WordVectors, most: int, but: frozenset[int], script: re.Pattern[str]) -> list[int]:
    """The first words of a script with nonzero vectors; in most tables these are the most frequent."""
    found: list[int] = []
    for row, word in enumerate(table.words):
        if len(found) >= most:
            break
        if row not in but and script.search(word) and table.vectors[row].any():
            found.append(row)
    return found


def _describe_neighbour(table: WordVectors, one: Neighbour) -> dict[str, Any]:
    return {"word": one.word, "score": round(one.score, 6), "rank": table.rows[one.word]}
