from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.objective import Causal, CausalBatches, causal_flops, cut_texts, evaluate_causal
from tests.support.corpus import MemoryCorpus

pytestmark = pytest.mark.usefixtures("one_thread")

END = 3
SIZES = [(7, 3, 2), (64, 2, 1), (5, 1, 1), (1000, 4, 1), (16, 1, 3), (1, 2, 1)]


class TwoDocuments(MemoryCorpus):
    """[10 11 . 12] [20 21 22], the first of two sentences."""

    def __init__(self) -> None:
        self.flat = np.array([10, 11, 12, 20, 21, 22])
        self.sentence_offsets, self.document_offsets = np.array([0, 2, 3, 6]), np.array([0, 2, 3])


def read_out(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """What each row reads and what it predicts."""
    rows = zip(batch.rows(batch.ids), batch.rows(batch.labels["next"]), strict=True)
    return [(ids.tolist(), following.tolist()) for ids, following in rows]


def test_on_paper() -> None:
    whole = CausalBatches(TwoDocuments(), END, 8, rows=2, shuffle=False)
    assert whole.n_tokens == 8 and whole.steps_per_epoch == 1
    (batch,) = whole(0)
    assert read_out(batch) == [([END, 10, 11, 12], [10, 11, 12, END]), ([END, 20, 21, 22], [20, 21, 22, END])]
    assert batch.positions.tolist() == [0, 1, 2, 3] * 2
    (batch,) = CausalBatches(TwoDocuments(), END, 3, rows=4, shuffle=False)(0)
    assert read_out(batch) == [
        ([12], [END]), ([22], [END]), ([END, 10, 11], [10, 11, 12]), ([END, 20, 21], [20, 21, 22])
    ]  # fmt: skip


@pytest.mark.parametrize(("length", "rows", "accumulate"), SIZES)
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_token_is_predicted_once_an_epoch(length: int, rows: int, accumulate: int, shuffle: bool) -> None:
    corpus = MemoryCorpus(documents=8)
    batches = CausalBatches(corpus, END, length, rows=rows, accumulate=accumulate, seed=1, shuffle=shuffle)
    starts = corpus.sentence_offsets[corpus.document_offsets]
    texts = [corpus.flat[begin:end].tolist() for begin, end in pairwise(starts)]
    for epoch in range(2):
        found: dict[int, list[int]] = {number: [] for number in range(len(texts))}
        sizes = []
        for step in range(batches.steps_per_epoch):
            here = batches(epoch * batches.steps_per_epoch + step)
            assert 1 <= len(here) <= accumulate
            sizes += [batch.n_tokens for batch in here]
            for batch in here:
                assert batch.longest <= length
                for (ids, following), document in zip(read_out(batch), batch.examples.tolist(), strict=True):
                    assert ids[1:] == following[:-1]
                    whole = [END, *texts[document], END]
                    place = next(
                        at for at in range(len(whole)) if whole[at : at + len(ids) + 1] == [*ids, following[-1]]
                    )
                    assert len(whole) > length + 1 or (place == 0 and len(ids) == len(whole) - 1), (
                        "short ones stay whole"
                    )
                    found[document] += following
        assert {number: Counter(tokens) for number, tokens in found.items()} == {
            number: Counter([*text, END]) for number, text in enumerate(texts)
        }
        if rows > 1:
            assert max(sizes) < (rows + 1) * length


def test_a_pure_function_of_seed_and_step() -> None:
    corpus = MemoryCorpus()
    one, same, other = (CausalBatches(corpus, END, 16, rows=4, seed=seed) for seed in (1, 1, 2))
    steps = [*range(3 * one.steps_per_epoch)]
    first = [read_out(one(step)[0]) for step in steps]
    assert [read_out(same(step)[0]) for step in reversed(steps)] == first[::-1]
    assert [read_out(other(step)[0]) for step in steps] != first
    per_epoch = one.steps_per_epoch
    assert first[:per_epoch] != first[per_epoch : 2 * per_epoch], "rows in another order"
    rows = [{tuple(ids) for step in first[at : at + per_epoch] for ids, _ in step} for at in (0, per_epoch)]
    assert rows[0] != rows[1], "and cut elsewhere"


def test_a_step_in_smaller_batches_reads_the_same() -> None:
    batches = CausalBatches(MemoryCorpus(), END, 16, rows=8)
    smaller = batches.resized(2, 4)
    for step in range(batches.steps_per_epoch):
        whole, parts = batches(step), smaller(step)
        assert len(whole) == 1 and len(parts) == 4
        assert sorted(read_out(whole[0])) == sorted(row for part in parts for row in read_out(part))


def test_documents_are_cut_where_they_are_too_long() -> None:
    rows = cut_texts(np.array([1, 4, 5, 8, 12]), 4, np.array([3, 3, 1, 4, 2]))
    assert rows.document.tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 4, 4]
    assert rows.length.tolist() == [1, 4, 1, 4, 4, 4, 2, 4, 4, 2]
    assert rows.begin.tolist() == [0, 0, 0, 1, 0, 4, 0, 2, 6, 10]


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="length must be at least 1"):
        CausalBatches(TwoDocuments(), END, 0, rows=2)
    nothing = TwoDocuments()
    nothing.sentence_offsets, nothing.document_offsets = np.array([0]), np.array([0])
    with pytest.raises(InputError, match="nothing to train on"):
        CausalBatches(nothing, END, 4, rows=2)


def test_the_loss_is_that_of_the_equation() -> None:
    """− Σ log softmax(h E)[next], row by row, as if each were alone."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(50, layers=2, width=16, heads=2, inner_width=32, max_length=64)).eval()
    (batch,) = CausalBatches(MemoryCorpus(), END, 16, rows=4)(0)
    objective = Causal()
    term = objective.terms(model, batch)["next"]
    assert objective.counts(batch) == {"next": batch.n_tokens} and set(objective.weights) == {"next"}
    expected, right = torch.zeros(()), 0
    for ids, following in read_out(batch):
        alone = Batch.of([ids])
        logs = model.scores(model(alone.ids, alone.packing)).log_softmax(-1)
        expected -= logs[torch.arange(len(ids)), following].sum()
        right += int((logs.argmax(-1) == torch.tensor(following)).sum())
    assert term.loss.item() == pytest.approx(expected.item(), rel=1e-5) and int(term.correct) == right
    assert evaluate_causal(model, [batch, batch]) == pytest.approx((2 * expected.item(), 2 * right, 2 * batch.n_tokens))


def test_flops_are_counted_by_hand() -> None:
    model = GPT(GPTConfig(10, layers=3, width=4, heads=2, inner_width=8, max_length=8))
    batch = Batch.of([[1, 2, 3], [4]])
    weights = 3 * (4 * 4 * 4 + 2 * 4 * 8) + 4 * 10
    looks = (1 + 2 + 3) + 1
    assert causal_flops(model, batch) == 6 * weights * 4 + 12 * 3 * 4 * looks
