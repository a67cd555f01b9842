"""The same files, neighbours, analogies and scores as gensim, both ways, on random vectors; skipped without gensim."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.api.vector_scores import Analogies, RatedPairs, find_tests, load_vectors, score_analogies, score_pairs
from qkv.models.word2vec.files import read_vector_file, write_vector_file
from qkv.models.word2vec.folder import WordVectors
from tests.support.word_vectors import random_vectors

gensim = pytest.importorskip("gensim.models", reason="gensim is not installed: pip install gensim")
WORDS = 400


@pytest.fixture(scope="module")
def ours() -> WordVectors:
    vectors = random_vectors(WORDS, 12)
    vectors.words[1] = "猫"
    vectors.words[2] = "café"
    return WordVectors(vectors.words, vectors.vectors)


@pytest.fixture(scope="module")
def theirs(ours: WordVectors) -> Any:
    table = gensim.KeyedVectors(ours.width)
    table.add_vectors(ours.words, ours.vectors.numpy())
    return table


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.bin.gz"])
def test_gensim_loads_ours(tmp_path: Path, ours: WordVectors, name: str) -> None:
    write_vector_file(tmp_path / name, ours.words, ours.vectors)
    found = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    assert found.index_to_key == ours.words and np.array_equal(found.vectors, ours.vectors.numpy())
    for word in ("w7", "猫"):
        neighbours = found.most_similar(word, topn=10)
        assert [one for one, _ in neighbours] == [one.word for one in ours.neighbours(word, 10)]


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.txt.gz"])
def test_we_load_gensims(tmp_path: Path, theirs: Any, ours: WordVectors, name: str) -> None:
    theirs.save_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    found = read_vector_file(tmp_path / name)
    assert found.words == ours.words and torch.equal(found.vectors, ours.vectors)
    assert load_vectors(tmp_path / name).neighbours("café") == ours.neighbours("café")


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`:DeprecationWarning")  # gensim's own call
def test_the_same_answers(ours: WordVectors, theirs: Any) -> None:
    for a, b, c in (("w3", "w4", "w5"), ("猫", "café", "w9"), ("w100", "w7", "w8")):
        for method, ask in (("add", theirs.most_similar), ("multiply", theirs.most_similar_cosmul)):
            expected = ask(positive=[b, c], negative=[a], topn=5)
            found = ours.analogy(a, b, c, 5, method)
            assert [one.word for one in found] == [word for word, _ in expected]
            if method == "multiply":  # for the other one gensim scales the sum first
                assert [one.score for one in found] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_the_same_scores(tmp_path: Path, ours: WordVectors, theirs: Any) -> None:
    random = np.random.default_rng(0)
    rows = random.integers(3, WORDS + 100, (300, 3))  # some are not in the vocabulary
    # half of the questions have the answer that would be given, so that there is something to get right
    lines = [": one"]
    for number, (a, b, c) in enumerate(rows.tolist()):
        first, second, third = (f"W{row}" if number % 3 else f"w{row}" for row in (a, b, c))
        covered = max(a, b, c) < WORDS and len({a, b, c}) == 3
        best = ours.analogy(first, second, third, k=1)[0].word if covered and number % 2 else "w11"
        lines += [" ".join([first, second, third, best])] + ([": gram2"] if number == 150 else [])
    (tmp_path / "questions.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = [f"w{a}\tw{b}\t{score:.3f}" for (a, b, _), score in zip(rows, random.random(300), strict=True)]
    (tmp_path / "pairs.txt").write_text("\n".join(pairs) + "\n")
    analogies, rated = find_tests([tmp_path / "questions.txt", tmp_path / "pairs.txt"])
    assert isinstance(analogies, Analogies) and isinstance(rated, RatedPairs)

    total, sections = theirs.evaluate_word_analogies(str(tmp_path / "questions.txt"))
    found = score_analogies(ours, analogies)
    assert found.total.accuracy == pytest.approx(total) and 0.2 < total < 0.8
    expected = [(part["section"], len(part["correct"]), len(part["incorrect"])) for part in sections[:-1]]
    assert [(part.name, part.n_correct, part.n_covered - part.n_correct) for part in found.sections] == expected

    _, spearman, missing = theirs.evaluate_word_pairs(str(tmp_path / "pairs.txt"))
    score = score_pairs(ours, rated)
    assert score.spearman == pytest.approx(spearman.statistic, abs=1e-6)
    assert 100 * (1 - score.coverage) == pytest.approx(missing)
