"""What word vectors know: scores by hand, and what is not covered."""

import json
import math
from pathlib import Path

import pytest
import torch

from qkv.api.vector_scores import Analogies, AnalogySection, RatedPairs, as_document, score_analogies, score_pairs
from qkv.models.word2vec.folder import WordVectors
from tests.support.word_vectors import small

FILE = Path("test.txt")
ANALOGIES = Analogies(
    "A",
    FILE,
    [
        AnalogySection(
            "family", [("man", "king", "woman", "queen"), ("king", "man", "Queen", "woman"), ("a", "b", "c", "d")]
        ),
        AnalogySection("gram1", [("man", "king", "woman", "cat")]),
        AnalogySection("nothing", [("x", "king", "woman", "cat")]),
    ],
)


def test_analogies_by_hand() -> None:
    score = score_analogies(small(), ANALOGIES)
    figures = [(part.name, part.n_questions, part.n_covered, part.n_correct) for part in score.sections]
    assert figures == [("family", 3, 2, 2), ("gram1", 1, 1, 0), ("nothing", 1, 0, 0)]
    assert math.isnan(score.sections[2].accuracy) and score.sections[2].coverage == 0
    assert score.total.accuracy == pytest.approx(2 / 3) and score.total.coverage == pytest.approx(3 / 5)
    meaning, grammar = score.halves
    assert (meaning.name, meaning.n_questions, meaning.accuracy) == ("semantic", 4, 1.0)
    assert (grammar.name, grammar.n_questions, grammar.accuracy) == ("syntactic", 1, 0.0)


def test_rare_words_neither_ask_nor_answer() -> None:
    assert score_analogies(small(), ANALOGIES, most=4).total.n_covered == 2, "cat is the fifth word"
    assert score_analogies(small(), ANALOGIES, most=3).total.n_covered == 0
    assert score_analogies(small(), ANALOGIES, "multiply", most=None).total.n_correct == 2


def test_pairs_by_hand() -> None:
    rated = [("king", "man", 9.0), ("King", "queen", 5.0), ("king", "cat", 1.0), ("king", "dog", 9.9)]
    score = score_pairs(small(), RatedPairs("P", FILE, rated))
    assert (score.n_pairs, score.n_covered, score.coverage, score.spearman) == (4, 3, 0.75, 1.0)
    assert score.low <= 1.0 and score.high == 1.0
    upside_down = [(one, other, -rating) for one, other, rating in rated]
    assert score_pairs(small(), RatedPairs("P", FILE, upside_down)).spearman == -1.0


def test_nothing_covered_is_no_figure_and_still_json() -> None:
    vectors = WordVectors(["x", "y"], torch.randn(2, 3))
    pairs = RatedPairs("P", FILE, [("king", "man", 1.0)])
    document = as_document([score_analogies(vectors, ANALOGIES), score_pairs(vectors, pairs)])
    document = json.loads(json.dumps(document, allow_nan=False))
    assert document["analogies"][0]["accuracy"] is None and document["analogies"][0]["coverage"] == 0
    assert [part["name"] for part in document["analogies"][0]["sections"]] == ["family", "gram1", "nothing"]
    assert document["similarities"][0]["spearman"] is None and document["similarities"][0]["file"] == "test.txt"
