"""Every pair once an epoch, batches by a budget, the same whoever asks and in whatever order."""

import numpy as np
import pytest

from qkv.data.pairs.batching import NEXT, EncodedPairs, EncodedSide, Languages, PairBatch, PairBatches, encode_pairs
from qkv.data.pairs.files import Pair
from qkv.text.subwords import train_subwords

TEXTS = ["a b c", "d", "e f g h i", "b b", "c d e f", "a"]


@pytest.fixture(scope="module")
def languages() -> Languages:
    tokenizer = train_subwords(TEXTS * 2, 60)
    return Languages.of(tokenizer, tokenizer)


@pytest.fixture(scope="module")
def pairs(languages: Languages) -> EncodedPairs:
    return encode_pairs([Pair(text, text[::-1]) for text in TEXTS * 20], languages, 64).pairs


def test_ids_are_those_of_the_tokenizer(languages: Languages, pairs: EncodedPairs) -> None:
    assert len(pairs) == 120 and languages.source is languages.target
    for number, text in enumerate(TEXTS):
        begin, end = pairs.source.offsets[number : number + 2]
        assert pairs.source.ids[begin:end].tolist() == languages.source.encode_ids([text])[0]


def test_what_is_too_long_or_nothing_is_named(languages: Languages) -> None:
    found = encode_pairs([Pair("a b c", "a"), Pair("a", "a"), Pair("a", " "), Pair("d", "a b c")], languages, 3)
    assert (found.too_long, found.nothing, len(found.pairs)) == ((0, 3), (2,), 1)
    assert len(encode_pairs([Pair("a b", "a")], languages, 3).pairs) == 1  # two and the end are three


def test_long_texts_are_tokenized_a_few_at_a_time(languages: Languages, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [Pair(text, text[::-1]) for text in TEXTS * 4]
    whole = encode_pairs(pairs, languages, 5)
    monkeypatch.setattr("qkv.data.pairs.batching._CHARACTERS", 7)
    sizes: list[int] = []
    encode = languages.source.encode_ids

    def counted(texts: list[str]) -> list[list[int]]:
        sizes.append(sum(map(len, texts)))
        return encode(texts)

    monkeypatch.setattr(languages.source, "encode_ids", counted)
    found = encode_pairs(pairs, languages, 5)
    assert max(sizes) <= 12 and sum(sizes) == 2 * sum(len(pair.source) for pair in pairs)
    assert found.too_long == whole.too_long and len(found.too_long) == 4
    assert np.array_equal(found.pairs.source.ids, whole.pairs.source.ids)


def test_rows_begin_and_end_as_they_should(languages: Languages, pairs: EncodedPairs) -> None:
    rows = np.array([4, 0, 7])
    batch = PairBatches(pairs, languages, 100).collate(rows)
    sources = [(TEXTS * 20)[row] for row in rows]
    expected = PairBatch.of(
        languages.read(sources),
        languages.target.encode_ids([text[::-1] for text in sources]),
        languages.begin,
        languages.end,
    )
    for one, other in ((batch.source, expected.source), (batch.target, expected.target)):
        assert one.ids.equal(other.ids) and one.lengths == other.lengths and one.positions.equal(other.positions)
    assert batch.target.labels[NEXT].equal(expected.target.labels[NEXT])
    assert batch.target.examples.tolist() == rows.tolist() and batch.n_rows == 3
    assert batch.n_tokens == batch.target.n_tokens == sum(batch.target.lengths)


def test_an_epoch_is_every_pair_once_within_the_budget(languages: Languages, pairs: EncodedPairs) -> None:
    batches = PairBatches(pairs, languages, 24, seed=3)
    for epoch in (0, 1):
        plan = batches.epoch(epoch)
        assert sorted(np.concatenate(plan).tolist()) == list(range(120))
        assert all(batches.weights[rows].sum() <= 24 for rows in plan)
    assert not np.array_equal(np.concatenate(batches.epoch(0)), np.concatenate(batches.epoch(1)))
    # like lengths lie together: far less is spread within a batch than over all
    spread = np.mean([np.ptp(batches.weights[rows]) for rows in batches.epoch(0)])
    assert spread < 0.5 * np.ptp(batches.weights)


def test_a_step_is_a_pure_function(languages: Languages, pairs: EncodedPairs) -> None:
    def ids(batches: PairBatches, step: int) -> list[list[int]]:
        return [batch.target.ids.tolist() for batch in batches(step)]

    one, other = (PairBatches(pairs, languages, 24, accumulate=2, seed=1) for _ in range(2))
    late = 5 * int(one.steps_per_epoch) + 3
    there = [ids(one, step) for step in (0, 1, late)]
    assert [ids(other, step) for step in (late, 1, 0)] == there[::-1]  # also when asked backwards
    assert all(len(step) == 2 for step in there)
    assert ids(PairBatches(pairs, languages, 24, accumulate=2, seed=2), 0) != there[0]


def test_epochs_follow_one_another(languages: Languages, pairs: EncodedPairs) -> None:
    batches = PairBatches(pairs, languages, 24)
    n = len(batches.epoch(0))
    found = np.concatenate([batches.rows(number) for number in range(n)])
    assert sorted(found.tolist()) == list(range(120))
    assert batches.rows(n).tolist() == batches.epoch(1)[0].tolist()


def test_one_pair_longer_than_the_budget_is_a_batch(languages: Languages) -> None:
    side = EncodedSide.of([[5] * 9, [6]])
    batches = PairBatches(EncodedPairs(side, side), languages, 4)
    assert sorted(len(rows) for rows in batches.epoch(0)) == [1, 1]
