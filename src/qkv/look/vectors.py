"""Word vectors as numbers to draw: neighbours, an analogy with its parallelogram, a map of words.

Scores are those of `qkv similar` and `qkv analogy` (models/word2vec/vectors.py). Nothing is projected that need not be:
the four corners a, b, c and b − a + c of an analogy lie in one plane, so that plane is what is drawn, and an answer is
where it falls upon it, with how far it lies above. A map of many words has to be a projection, their two principal
components, and says how little of the spread that holds; who is really near whom is told beside it.

Vectors have length 1 here, as the cosine sees them.

Shapes: V words of the table, n words that are drawn, D width, k nearest.
"""

import re
from typing import Any

import numpy as np

from qkv.api.embedder import scale_to_unit
from qkv.look.plane import Floats, on_a_plane
from qkv.look.subject import Subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.word2vec.vectors import METHODS, Neighbour, WordVectors, near_spellings
from qkv.text.wordpiece import CHINESE

LONGEST_WORD, MOST_NEIGHBOURS, MOST_ANSWERS = 60, 50, 20
MOST_ON_MAP, NAMED, NEAREST = 2_000, 200, 6
"""Words on a map, words that may be asked for by name, and how many of its own each is told."""

SCRIPTS = {
    "all": re.compile(r"\w"),
    "chinese": re.compile(f"[{CHINESE}]"),
    "letters": re.compile(f"[^\\W\\d_{CHINESE}]"),
}
"""What a word has to have in it to be drawn; signs always lie in the way."""


def neighbours(subject: Subject, asked: Asked) -> Reply:
    word = asked.text("word", longest=LONGEST_WORD).strip()
    k = asked.number("k", 1, MOST_NEIGHBOURS, 12)
    asked.done()
    table = subject.vectors
    row = row_of(subject, word)
    found = table.neighbours(table.words[row], k)
    head = {
        "word": table.words[row],
        "asked": word,
        "model": subject.title,
        "rank": row,
        "words": len(table),
        "width": table.width,
        "length": round(float(table.vectors[row].norm()), 6),
        "neighbours": [_told(table, one) for one in found],
    }
    return Reply(head, {"cosine": np.array([one.score for one in found], np.float32)})


def analogy(subject: Subject, asked: Asked) -> Reply:
    words = [asked.text(name, longest=LONGEST_WORD).strip() for name in ("a", "b", "c")]
    k = asked.number("k", 1, MOST_ANSWERS, 6)
    method = asked.choice("method", list(METHODS), "add")
    asked.done()
    table = subject.vectors
    rows = [row_of(subject, word) for word in words]
    a, b, c = (table.words[row] for row in rows)
    found = table.analogy(a, b, c, k, method)
    answers = [table.rows[one.word] for one in found]
    corners = scale_to_unit(table.vectors[[*rows]].numpy())  # (3, D)
    target = corners[1] - corners[0] + corners[2]
    others = scale_to_unit(table.vectors[answers].numpy())
    points, above = on_the_plane_of(corners, np.concatenate([corners, target[None], others]))
    head = {
        "model": subject.title,
        "a": a,
        "b": b,
        "c": c,
        "method": method,
        "answers": [
            _told(table, one) | {"to_target": round(float(other @ target / np.linalg.norm(target)), 6)}
            for one, other in zip(found, others, strict=True)
        ],
        "names": [a, b, c, "", *(one.word for one in found)],
    }
    return Reply(head, {"points": points, "above": above})


def word_map(subject: Subject, asked: Asked) -> Reply:
    most = asked.number("most", 2, MOST_ON_MAP, 600)
    script = asked.choice("script", list(SCRIPTS), "all")
    named = (asked.maybe_text("words", longest=NAMED * LONGEST_WORD) or "").split()[:most]  # between spaces
    asked.done()
    table = subject.vectors
    rows = {row: None for word in named if (row := table.find(word)) is not None}
    missing = [word for word in named if table.find(word) is None]
    rows |= dict.fromkeys(_worth_drawing(table, most - len(rows), frozenset(rows), SCRIPTS[script]))
    if len(rows) < 2:
        raise RefusalError("number", "A map needs two words at least.", most=most)
    chosen = list(rows)
    unit = scale_to_unit(table.vectors[chosen].numpy())  # (n, D)
    points, shares = on_a_plane(unit)
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


def row_of(subject: Subject, word: str) -> int:
    """The row of a word that has a direction; a refusal that names words spelled like it."""
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


def on_the_plane_of(corners: Floats, points: Floats) -> tuple[Floats, Floats]:
    """Corners (3, D) and points (n, D) → (n, 2), on the plane through the corners, and (n,), how far above it. The
    first corner is at 0, the third to the right of it, the second above.

    >>> square = np.array([[0, 0, 0], [0, 2, 0], [1, 0, 0]], np.float32)
    >>> where, above = on_the_plane_of(square, np.array([[1, 2, 5]], np.float32))
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


def _worth_drawing(table: WordVectors, most: int, but: frozenset[int], script: re.Pattern[str]) -> list[int]:
    """The first words of a script that have a direction; in most tables these are the most frequent."""
    found: list[int] = []
    for row, word in enumerate(table.words):
        if len(found) >= most:
            break
        if row not in but and script.search(word) and table.vectors[row].any():
            found.append(row)
    return found


def _told(table: WordVectors, one: Neighbour) -> dict[str, Any]:
    return {"word": one.word, "score": round(one.score, 6), "rank": table.rows[one.word]}
