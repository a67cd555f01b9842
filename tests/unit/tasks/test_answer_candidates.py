"""The search for spans equals the plain one that looks at every span of every window."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.examples import AnswerExample
from qkv.tasks.answer import best_spans, find_candidates
from qkv.tasks.answer_features import AnswerFeatures
from tests.support.folders import make_tokenizer


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 14), st.integers(1, 9), st.integers(0, 99))
def test_best_spans_are_the_best_of_all(sizes: list[int], longest: int, n_best: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    starts, ends = draw.normal(size=(2, sum(sizes))).astype(np.float32)
    found = list(
        zip(*(each.tolist() for each in best_spans(starts, ends, np.array(sizes), longest, n_best)), strict=True)
    )
    expected = []
    begin = 0
    for row, size in enumerate(sizes):
        spans = [
            (row, i, j, float(starts[begin + i]) + float(ends[begin + j]))
            for i in range(size)
            for j in range(i, min(i + longest, size))
        ]
        expected += sorted(spans, key=lambda span: -span[3])[:n_best]
        begin += size
    assert found == expected


def test_a_group_is_searched_like_each_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, ends = np.random.default_rng(0).normal(size=(2, 60)).astype(np.float32)
    together = best_spans(starts, ends, np.full(6, 10), 4, 5)
    monkeypatch.setattr("qkv.tasks.answer._TOKENS", 1)
    alone = best_spans(starts, ends, np.full(6, 10), 4, 5)
    assert all((a == b).all() for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_over_windows_the_best_score_of_a_span_counts(seed: int) -> None:
    text = "猫 狗 鱼 我 你 他 她 元 今 天 气 很 好 坏 中 国 的 首 都 是"
    examples = [AnswerExample("上海", text), AnswerExample("人", text[:9]), AnswerExample("人", " ")]
    features = AnswerFeatures(make_tokenizer(), examples, max_length=15, overlap=5)
    rows = features.rows
    assert rows.n_windows.tolist() == [3, 1, 1]
    scores = np.random.default_rng(seed).normal(size=(int(rows.lengths.sum()), 2)).astype(np.float32)
    found = find_candidates(features, scores, longest=3, n_best=7)

    best: list[dict[tuple[int, int], float]] = [{}, {}, {}]
    nothing: list[list[float]] = [[], [], []]
    begin = 0
    for row, length in enumerate(rows.lengths.tolist()):
        e, size = int(rows.examples[row]), int(rows.b.lengths[row])
        row_scores = scores[begin : begin + length].astype(np.float64)
        nothing[e].append(row_scores[0].sum())
        part = row_scores[length - 1 - size : length - 1]
        for i in range(size):
            for j in range(i, min(i + 3, size)):
                # one character and a space for each token
                span = 2 * (int(rows.b.starts[row]) + i), 2 * (int(rows.b.starts[row]) + j) + 1
                best[e][span] = max(best[e].get(span, -np.inf), part[i, 0] + part[j, 1])
        begin += length
    for e in range(3):
        expected = sorted(best[e].items(), key=lambda item: -item[1])[:7]
        n = len(expected)
        assert list(zip(found.starts[e, :n].tolist(), found.ends[e, :n].tolist(), strict=True)) == [
            s for s, _ in expected
        ]
        assert found.scores[e, :n].tolist() == [score for _, score in expected]
        assert np.isneginf(found.scores[e, n:]).all()
        assert found.nothing[e] == min(nothing[e])


def test_no_examples() -> None:
    features = AnswerFeatures(make_tokenizer(), [], 64, 8)
    found = find_candidates(features, np.empty((0, 2), np.float32), 30, 20)
    assert found.scores.shape == (0, 20) and found.nothing.shape == (0,)
