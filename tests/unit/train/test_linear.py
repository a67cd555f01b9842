"""Linear models against scikit-learn and against algebra."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from qkv.train.linear import (
    Classes,
    DenseRows,
    Labels,
    LinearMap,
    Numbers,
    SparseRows,
    Standard,
    fit_linear,
    fold_numbers,
    try_strengths,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 5)) * [1, 2, 0.1, 5, 1] + 3
Y = (X[:, 0] + 0.3 * RANDOM.normal(size=60) > 3).astype(np.int64) + (X[:, 1] > 5)
EVEN = np.ones(60)


def test_classes_have_the_optimum_of_scikit_learn() -> None:
    found = fit_linear(DenseRows(X), Classes(Y, 3, EVEN), 0.5, tolerance=1e-9)
    theirs = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(X, Y)
    np.testing.assert_allclose(found.weight.T, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(X @ found.weight + found.bias, theirs.decision_function(X), atol=1e-3)


def test_a_weight_of_two_is_an_example_twice() -> None:
    twice = np.concatenate([np.arange(60), np.arange(10)])
    weights = np.where(np.arange(60) < 10, 2.0, 1.0)
    one = fit_linear(DenseRows(X), Classes(Y, 3, weights), 1.0)
    other = fit_linear(DenseRows(X[twice]), Classes(Y[twice], 3, np.ones(70)), 1.0)
    np.testing.assert_allclose(one.weight, other.weight, atol=1e-3)


def test_labels_are_one_logistic_regression_each() -> None:
    flags = np.stack([Y > 0, X[:, 3] > 3], 1).astype(np.float64)
    found = fit_linear(DenseRows(X), Labels(flags, np.ones_like(flags)), 1.0, tolerance=1e-9)
    for label in range(2):
        theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X, flags[:, label])
        np.testing.assert_allclose(found.weight[:, label], theirs.coef_[0], atol=1e-4)


def test_numbers_are_ridge_regression() -> None:
    values = X @ [1.0, -2.0, 0.0, 0.5, 3.0] + 7
    found = fit_linear(DenseRows(X), Numbers(values, EVEN), 4.0, tolerance=1e-10)
    centred = X - X.mean(0)
    expected = np.linalg.solve(centred.T @ centred + 4.0 * np.eye(5), centred.T @ (values - values.mean()))
    np.testing.assert_allclose(found.weight[:, 0], expected, atol=1e-4)
    assert found.bias[0] == pytest.approx(values.mean() - X.mean(0) @ expected, abs=1e-3)


def test_without_an_intercept() -> None:
    found = fit_linear(DenseRows(X), Numbers(EVEN * 3, EVEN), 1.0, intercept=False)
    assert found.bias.tolist() == [0.0] and np.abs(found.weight).max() > 0.01


def test_the_standardisation_is_folded_into_the_map() -> None:
    standard = Standard.of(np.concatenate([X, EVEN[:, None]], 1))
    rows = standard.rows(np.concatenate([X, EVEN[:, None]], 1))
    np.testing.assert_allclose(rows.values[:, :5].std(0), 1.0)
    assert np.abs(rows.values[:, 5]).max() == 0.0, "a column that does not vary"
    fitted = LinearMap(RANDOM.normal(size=(6, 2)), RANDOM.normal(size=2))
    weight, bias = standard.folded(fitted)
    np.testing.assert_allclose(np.concatenate([X, EVEN[:, None]], 1) @ weight + bias, fitted.scores(rows))


def test_sparse_rows_are_the_same_matrix() -> None:
    dense = np.where(RANDOM.random((7, 9)) < 0.3, RANDOM.normal(size=(7, 9)), 0.0)
    dense[3] = 0.0
    rows, columns = dense.nonzero()
    offsets = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).astype(np.int64)
    sparse = SparseRows(columns.astype(np.int64), dense[rows, columns], offsets, 9)
    weight, values, chosen = RANDOM.normal(size=(9, 2)), RANDOM.normal(size=(7, 2)), np.array([5, 3, 0])
    np.testing.assert_allclose(sparse.times(weight), dense @ weight)
    np.testing.assert_allclose(sparse.transposed_times(values), dense.T @ values)
    np.testing.assert_allclose(sparse.take(chosen).times(weight), dense[chosen] @ weight)


def test_folds_are_stratified_and_a_function_of_the_seed() -> None:
    strata = ["a"] * 20 + ["b"] * 5
    fold = fold_numbers(strata, 5, 0)
    assert [int((fold[20:] == number).sum()) for number in range(5)] == [1] * 5
    assert np.bincount(fold).tolist() == [5] * 5
    assert fold.tolist() == fold_numbers(strata, 5, 0).tolist() != fold_numbers(strata, 5, 1).tolist()


def test_noise_takes_a_strong_penalty_and_signal_a_weak_one() -> None:
    noise = np.random.default_rng(1).permutation(Y)
    strengths, fold = [1e4, 1e2, 1.0, 1e-2], fold_numbers(["x"] * 60, 5, 0)
    rows = Standard.of(X).rows(X)
    best = [
        min(try_strengths(rows, Classes(labels, 3, EVEN), strengths, fold), key=lambda one: one.loss)
        for labels in (noise, Y)
    ]
    assert best[0].strength > best[1].strength and best[0].score < best[1].score > 0.8
