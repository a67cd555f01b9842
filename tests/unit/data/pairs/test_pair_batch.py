import torch

from qkv.data.pairs.batching import NEXT, PairBatch


def test_it_moves_and_counts_what_is_predicted() -> None:
    batch = PairBatch.of([[7, 3], [8, 9, 3]], [[4, 5, 6], [4]], begin=2, end=3)
    assert batch.n_rows == 2 and batch.n_tokens == 6
    moved = batch.to(torch.device("cpu"), non_blocking=True)
    assert moved.target.labels[NEXT].tolist() == [4, 5, 6, 3, 4, 3] and moved.source.lengths == (2, 3)
