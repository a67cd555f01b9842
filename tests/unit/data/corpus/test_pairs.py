"""Pairs: what is next is next, what is not is not, and a coin decides."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qkv.data.corpus import rows as segments
from qkv.data.corpus.rows import IS_NEXT, NOT_NEXT, Instances, PairConfig, instances
from qkv.errors import InputError


@dataclass
class Layout:
    sentence_offsets: NDArray[np.int64]
    document_offsets: NDArray[np.int64]

    def document_of(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        bounds = self.sentence_offsets[self.document_offsets]
        return np.searchsorted(bounds, tokens, side="right") - 1


def layout(documents: int, sentences: int = 30, longest: int = 40, seed: int = 0) -> Layout:
    draw = np.random.default_rng(seed)
    per_document = draw.integers(1, sentences + 1, documents)
    lengths = draw.integers(1, longest + 1, per_document.sum())
    return Layout(np.concatenate([[0], np.cumsum(lengths)]), np.concatenate([[0], np.cumsum(per_document)]))


def share(rows: Instances, label: int) -> float:
    return float((rows.label == label).mean())


@pytest.mark.parametrize("negatives", ["document", "corpus"])
def test_a_coin_decides(negatives: str) -> None:
    rows = instances(layout(400), PairConfig(negatives, max_length=64), seed=0, epoch=0)
    assert abs(share(rows, IS_NEXT) - 0.5) < 5 * 0.5 / len(rows) ** 0.5


@pytest.mark.parametrize("negatives", ["document", "corpus"])
def test_next_is_next_and_rows_fit(negatives: str) -> None:
    corpus = layout(300)
    config = PairConfig(negatives, max_length=64)
    rows = instances(corpus, config, seed=1, epoch=0)
    assert (rows.a_length > 0).all() and (rows.b_length > 0).all()
    assert (rows.a_length + rows.b_length + 3 <= 64).all()
    follows = rows.a_start + rows.a_length == rows.b_start
    assert follows[rows.label == IS_NEXT].all()
    assert not follows[rows.label == NOT_NEXT].any()
    for start, length in ((rows.a_start, rows.a_length), (rows.b_start, rows.b_length)):
        assert (corpus.document_of(start) == corpus.document_of(start + length - 1)).all()
    same = corpus.document_of(rows.a_start) == corpus.document_of(rows.b_start)
    assert same[rows.label == IS_NEXT].all()
    if negatives == "document":
        assert not same[rows.label == NOT_NEXT].any()


def test_nothing_changes_at_the_seams_of_what_is_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large corpora are drawn for a piece at a time; rows go on from one piece into the next."""
    corpus = layout(30, sentences=40, longest=12)
    for together in (1, 7, 100_000):
        monkeypatch.setattr(segments, "_TOGETHER", together)
        rows = instances(corpus, PairConfig("document", max_length=64, short_share=0.0), seed=1, epoch=0)
        assert (np.diff(rows.a_start) > 0).all()
        covered = np.zeros(corpus.sentence_offsets[-1], bool)
        for start, a, b, label in zip(rows.a_start, rows.a_length, rows.b_length, rows.label, strict=True):
            covered[start : start + a + (b if label == IS_NEXT else 0)] = True
        assert covered.mean() > 0.85, "all of the text but what was too long for a row"


def test_most_rows_are_full_and_a_share_is_short() -> None:
    corpus = layout(40, sentences=400, longest=12)
    full = instances(corpus, PairConfig("document", 64, short_share=0.0), 0, 0)
    lengths = full.a_length + full.b_length + 3
    assert (lengths == 64).mean() > 0.7
    mixed = instances(corpus, PairConfig("document", 64, short_share=0.5), 0, 0)
    assert (mixed.a_length + mixed.b_length).mean() < (full.a_length + full.b_length).mean() * 0.9


@pytest.mark.parametrize("negatives", ["document", "none"])
def test_most_rows_are_of_the_usual_length_and_a_few_are_long(negatives: str) -> None:
    config = PairConfig(negatives, max_length=256, short_share=0.0, usual_length=64, long_share=0.1)
    corpus = layout(300, sentences=200)
    rows = instances(corpus, config, seed=0, epoch=0)
    special = 2 if negatives == "none" else 3
    lengths = rows.a_length + rows.b_length + special
    assert lengths.max() == 256
    assert 0.85 < (lengths <= 64).mean() < 0.95
    if negatives == "none":
        assert int(rows.a_length.sum()) == corpus.sentence_offsets[-1]
    else:
        assert 0.05 < (lengths > 150).mean() < 0.15


def test_one_document_needs_negatives_from_the_corpus() -> None:
    corpus = layout(1, sentences=200)
    with pytest.raises(InputError, match="only one document.*pairs.negatives=corpus"):
        instances(corpus, PairConfig("document"), 0, 0)
    rows = instances(corpus, PairConfig("corpus"), 0, 0)
    assert {IS_NEXT, NOT_NEXT} == set(rows.label.tolist())


def test_documents_of_one_sentence_are_split_inside() -> None:
    corpus = Layout(np.arange(0, 2001, 20), np.arange(101))  # 100 documents of one sentence of 20 tokens
    rows = instances(corpus, PairConfig("document", 64, short_share=0.0), 0, 0)
    assert len(rows) == 100
    assert 0.25 < share(rows, IS_NEXT) < 0.75


def test_documents_of_one_token_give_no_pair() -> None:
    corpus = Layout(np.array([0, 1, 21, 41]), np.arange(4))
    rows = instances(corpus, PairConfig("document", 64), 0, 0)
    assert 0 not in rows.a_start


def test_without_pairs_nothing_is_left_out() -> None:
    corpus = layout(50)
    for epoch in (0, 1):
        rows = instances(corpus, PairConfig("none", 64), 3, epoch)
        covered = np.concatenate([np.arange(s, s + n) for s, n in zip(rows.a_start, rows.a_length, strict=True)])
        assert (np.sort(covered) == np.arange(corpus.sentence_offsets[-1])).all()
        assert (rows.a_length <= 62).all()
        assert (rows.b_length == 0).all()


def test_epochs_differ_and_repeat() -> None:
    corpus = layout(50)
    one, again, other = (instances(corpus, PairConfig(), 5, epoch) for epoch in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert len(one) != len(other) or (one.a_start != other.a_start).any()


def test_the_true_next_is_never_the_random_one() -> None:
    corpus = Layout(np.array([0, 10, 20, 30]), np.array([0, 3]))
    for seed in range(100):
        rows = instances(corpus, PairConfig("corpus", 16, 0.0), seed, 0)
        wrong = (rows.label == NOT_NEXT) & (rows.a_start + rows.a_length == rows.b_start)
        assert not wrong.any()


def test_names_are_checked() -> None:
    with pytest.raises(InputError, match="Unknown negatives 'documents'. Did you mean 'document'"):
        PairConfig("documents")
    with pytest.raises(InputError, match="at least 8"):
        PairConfig(max_length=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"usual_length": 600}, "usual_length"),
        ({"usual_length": 64, "long_share": 2}, "share from"),
        ({"long_share": 0.5}, "set usual_length"),
    ],
)
def test_lengths_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(PairConfig(max_length=512), **changes)


@pytest.mark.parametrize("negatives", ["document", "corpus"])
def test_where_b_begins_does_not_tell_the_label(negatives: str) -> None:
    """B begins inside a sentence as often when it is the next one as when it is not."""
    corpus = layout(800, sentences=3, longest=60)
    rows = instances(corpus, PairConfig(negatives, max_length=48), 0, 0)
    inside = ~np.isin(rows.b_start, corpus.sentence_offsets)
    shares = [float(inside[rows.label == label].mean()) for label in (IS_NEXT, NOT_NEXT)]
    assert min(shares) > 0.1
    assert abs(shares[0] - shares[1]) < 0.08


def test_a_random_span_of_the_corpus_holds_nothing_of_a() -> None:
    corpus = layout(3, sentences=40)
    for seed in range(10):
        rows = instances(corpus, PairConfig("corpus", max_length=48), seed, 0)
        a_end, b_end = rows.a_start + rows.a_length, rows.b_start + rows.b_length
        overlap = (rows.b_start < a_end) & (rows.a_start < b_end)
        assert not overlap.any()
